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

from sievenet.session.rest import Rest

__all__ = ["Apart"]

T = TypeVar("T")

#: Times as long as its last message took that a party waits, unless told otherwise.
_REST: Final = 200.0


class Apart:
    """One thread's worth of work at a time; a party waits ``rest`` times as long for its next."""

    def __init__(self, rest: float = _REST) -> None:
        self._rest = Rest(rest)
        self._turn = asyncio.Semaphore(1)

    async def run(self, party: Hashable | None, work: Callable[[], T]) -> T:
        """The result of work for a party, beside the event loop; None waits for nobody but others' work."""
        while True:
            wait = self._rest.wait(party, time.monotonic())
            if wait:
                await asyncio.sleep(wait)
                continue
            async with self._turn:
                if self._rest.wait(party, time.monotonic()):
                    continue  # another connection of the same party was first
                result, seconds = await asyncio.to_thread(_timed, work)
                if party is not None:
                    self._rest.worked(party, seconds, time.monotonic())
                return result


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    begin = time.thread_time()
    return work(), time.thread_time() - begin
