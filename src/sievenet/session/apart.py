"""Large messages are decoded apart: in a thread, one at a time, and of one member a small share of the time.

Decoding some hundred kilobytes takes milliseconds, and most of that is one call which does not let go of the
interpreter: a thread does not help those who wait for the event loop then. So a member that had a message decoded waits
two hundred times as long, by processor time, until its next one is; others do not wait for that. So one member takes
half a hundredth of the time by this, and hardly one event in a hundred meets it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import Final, TypeVar

__all__ = ["Apart"]

T = TypeVar("T")

#: Times as long as its last message took that a party waits, unless told otherwise.
_REST: Final = 200.0
#: Parties that are remembered.
_MOST: Final = 1024


class Apart:
    """One thread's worth of work at a time; a party waits ``rest`` times as long for its next."""

    def __init__(self, rest: float = _REST) -> None:
        self._rest = rest
        self._turn = asyncio.Semaphore(1)
        #: When the next message of a party may be decoded.
        self._next: dict[Hashable, float] = {}

    async def run(self, party: Hashable | None, work: Callable[[], T]) -> T:
        """The result of work for a party, beside the event loop; None waits for nobody but others' work."""
        while True:
            wait = self._next.get(party, 0.0) - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
                continue
            async with self._turn:
                if self._next.get(party, 0.0) > time.monotonic():
                    continue  # another connection of the same party was first
                result, seconds = await asyncio.to_thread(_timed, work)
                if party is not None:
                    self._rests(party, seconds)
                return result

    def _rests(self, party: Hashable, seconds: float) -> None:
        now = time.monotonic()
        if len(self._next) >= _MOST:
            self._next = {each: until for each, until in self._next.items() if until > now}
        self._next[party] = now + self._rest * seconds


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    begin = time.thread_time()
    return work(), time.thread_time() - begin
