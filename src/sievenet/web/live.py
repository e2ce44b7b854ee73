"""The live view: one look at the network per second, shared by all who watch, and none while nobody does.

    look ─▶ snapshot ─▶ delta to the last one ─▶ broadcast
                 └─▶ whoever comes new gets the whole, then deltas

However many watch, a look costs the same; where one costs much, as in a large network, the next one waits longer. What
counts is the processor time of the look itself, not how long it waits for others: a busy network is looked at as often.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final

import msgspec

from sievenet.session.lifetime import ended
from sievenet.web.broadcast import Broadcast
from sievenet.web.snapshot import delta
from sievenet.web.stream import Stream

__all__ = ["Live"]

log = logging.getLogger("sievenet.web")

#: A look may take this part of the processor's time.
_SHARE: Final = 0.03
#: Bytes of deltas that are kept for slow pages.
_WINDOW: Final = 1 << 20


class _Timed:
    """Awaits something, and counts the processor time of its own steps alone."""

    def __init__(self, work: Coroutine[Any, Any, dict[str, Any]]) -> None:
        self._work = work
        self.spent = 0.0

    def __await__(self) -> Generator[Any, Any, dict[str, Any]]:
        step: Callable[[Any], Any] = self._work.send
        given: Any = None
        while True:
            begin = time.thread_time()
            try:
                waited = step(given)
            except StopIteration as done:
                found: dict[str, Any] = done.value
                return found
            finally:
                self.spent += time.thread_time() - begin
            step = self._work.send
            try:
                given = yield waited
            except BaseException as error:
                step, given = self._work.throw, error


class Live(Broadcast):
    """Looks while there are streams."""

    def __init__(self, look: Callable[[], Coroutine[Any, Any, dict[str, Any]]], every: float) -> None:
        super().__init__(_WINDOW)
        self._look, self._every = look, every
        self._state: dict[str, Any] | None = None
        self._task: asyncio.Task[None] | None = None
        #: Looks so far, and the processor seconds that the last one took.
        self.looks = 0
        self.took = 0.0

    async def begin(self, stream: Callable[[int], Stream]) -> Stream:
        """A stream that gets the whole picture first; ``stream`` makes it, given its cursor."""
        if self._task is None or self._task.done():
            await self._take()
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._run())
        # From here to `enter` nothing else runs: deltas begin where the picture ends.
        made = stream(self.window.next)
        made.say("snapshot", msgspec.json.encode(self._state))
        self.enter(made)
        return made

    async def _take(self) -> None:
        timed = _Timed(self._look())
        state = await timed
        self.took = timed.spent
        self.looks += 1
        changed = delta(self._state or {}, state)
        self._state = state
        if changed:
            self.add(msgspec.json.encode(changed))

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(max(self._every, self.took / _SHARE))
            if not self.streams:
                # Nobody looks; the next one begins anew.
                self._state, self._task = None, None
                return
            try:
                await self._take()
            except Exception:
                log.exception("the network could not be looked at")

    async def close(self) -> None:
        """End all streams."""
        self.end("the server is closing")
        await ended(self._task)
