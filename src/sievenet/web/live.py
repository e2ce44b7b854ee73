"""The live view: one look at the network per second, shared by all who watch, and none while nobody does.

    look ─▶ snapshot ─▶ delta to the last one ─▶ broadcast
                 └─▶ whoever comes new gets the whole, then deltas

However many watch, a look costs the same; where one takes long, as in a large network, the next one waits longer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from sievenet.web.broadcast import Broadcast
from sievenet.web.snapshot import delta
from sievenet.web.stream import Stream

__all__ = ["Live"]

log = logging.getLogger("sievenet.web")

#: A look may take this part of the time.
_SHARE: Final = 0.05
#: Bytes of deltas that are kept for slow pages.
_WINDOW: Final = 1 << 20


class Live(Broadcast):
    """Looks while there are streams."""

    def __init__(self, look: Callable[[], Awaitable[dict[str, Any]]], every: float) -> None:
        super().__init__(_WINDOW)
        self._look, self._every = look, every
        self._state: dict[str, Any] | None = None
        self._task: asyncio.Task[None] | None = None
        #: Looks so far, and the seconds that the last one took.
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
        begin = asyncio.get_running_loop().time()
        state = await self._look()
        self.took = asyncio.get_running_loop().time() - begin
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
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
