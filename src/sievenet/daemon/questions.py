"""Questions: however many ask, looking takes a small share of the daemon's time.

An answer costs milliseconds of the event loop, in a large network many. Each is paid for from one bucket that fills
with a fiftieth of the time. As long as there is something in it everybody gets a fresh answer; whoever asks beyond
that gets the status of a moment ago, or waits for other answers. Of both kinds one is given in a turn of the event
loop, so that events never wait for many.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from sievenet.access.quota import Bucket
from sievenet.daemon.answers import Answers

__all__ = ["Questions"]

#: The share of the time that answers may take, and the seconds that they may take at once.
_SHARE: Final = 0.02
_BURST: Final = 0.1
#: Seconds that a question waits at most for its share.
_WAIT: Final = 1.0


class Questions:
    """Asks `Answers`, within bounds."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._spent = Bucket(_SHARE, _BURST)
        self._turn, self._old = asyncio.Lock(), asyncio.Lock()
        self._status: Any = None

    async def answer(self, about: str, of: str) -> Any:
        """The answer to a question; `InvalidInput` if it is none that we know."""
        if about == "status" and self._status is not None and self._debt():
            async with self._old:
                await asyncio.sleep(0)  # whoever is next comes after the sockets were looked at
            return self._status
        async with self._turn:
            await asyncio.sleep(0)
            if debt := self._debt():
                await asyncio.sleep(min(debt, _WAIT))
            begin = time.thread_time()
            try:
                found = await self._answers.answer(about, of)
            finally:
                self._spent.charge(time.thread_time() - begin, self._now())
        if about == "status":
            self._status = found
        return found

    def _debt(self) -> float:
        """Seconds until the bucket is not empty any more."""
        return self._spent.wait(0.0, self._now())

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
