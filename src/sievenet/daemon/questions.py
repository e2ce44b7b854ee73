"""Questions: however many ask, looking takes a small share of the daemon's time, and one member a smaller one.

An answer costs milliseconds of the event loop, in a large network many. Each is paid for from a bucket that fills with
a fiftieth of the time, and from one of whoever asks, a hundredth. As long as there is something in both everybody gets
a fresh answer; whoever asks beyond that gets the status of a moment ago, or waits, for its own answers or for those of
all. Of both kinds one is given in a turn of the event loop, so that events never wait for many. What is kept is kept as
it travels: telling an old status again costs next to nothing.
"""

from __future__ import annotations

import asyncio
import time
import types
from collections.abc import Coroutine, Generator, Hashable
from typing import Any, Final

import msgspec

from sievenet.access.quota import Bucket
from sievenet.daemon.answers import Answers

__all__ = ["Questions"]

#: The share of the time that answers may take, and the seconds that they may take at once: of all, and of one party.
_SHARE: Final = 0.02
_BURST: Final = 0.1
_EACH: Final = 0.01
_EACH_BURST: Final = 0.03
#: Seconds that a question waits at most for its share.
_WAIT: Final = 1.0
#: Parties that are remembered.
_MOST: Final = 1024


class _Asker:
    """Whoever asks, with all its connections."""

    def __init__(self) -> None:
        self.spent = Bucket(_EACH, _EACH_BURST)
        self.turn = asyncio.Lock()


class Questions:
    """Asks `Answers`, within bounds."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._spent = Bucket(_SHARE, _BURST)
        self._turn, self._old = asyncio.Lock(), asyncio.Lock()
        self._askers: dict[Hashable, _Asker] = {}
        self._status: msgspec.Raw | None = None

    async def answer(self, about: str, of: str, party: Hashable = None) -> msgspec.Raw:
        """The answer to a question, encoded; `InvalidInput` if it is none that we know."""
        asker = self._asker(party)
        if about == "status" and self._status is not None and (self._debt(asker.spent) or self._debt(self._spent)):
            async with self._old:
                await asyncio.sleep(0)  # whoever is next comes after the sockets were looked at
            return self._status
        async with asker.turn:
            await self._paid(asker.spent)
            async with self._turn:
                await asyncio.sleep(0)
                await self._paid(self._spent)
                work = _Timed(self._encoded(about, of))
                try:
                    found = await work.result()
                finally:
                    for bucket in (self._spent, asker.spent):
                        bucket.charge(work.spent, self._now())
        if about == "status":
            self._status = found
        return found

    async def _encoded(self, about: str, of: str) -> msgspec.Raw:
        found = await self._answers.answer(about, of)
        await asyncio.sleep(0)
        return msgspec.Raw(msgspec.msgpack.encode(found))

    async def _paid(self, bucket: Bucket) -> None:
        """Until there is something in a bucket, or for long enough."""
        if debt := self._debt(bucket):
            await asyncio.sleep(min(debt, _WAIT))

    def _asker(self, party: Hashable) -> _Asker:
        found = self._askers.get(party)
        if found is None:
            if len(self._askers) >= _MOST:
                self._askers = {
                    each: asker
                    for each, asker in self._askers.items()
                    if asker.turn.locked() or self._debt(asker.spent)
                }
            found = self._askers[party] = _Asker()
        return found

    def _debt(self, bucket: Bucket) -> float:
        """Seconds until a bucket is not empty any more."""
        return bucket.wait(0.0, self._now())

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


class _Timed:
    """Work in many steps, and the processor seconds of its own steps; what is done for others in between is not its."""

    def __init__(self, work: Coroutine[Any, Any, msgspec.Raw]) -> None:
        self._work = work
        self.spent = 0.0

    @types.coroutine
    def result(self) -> Generator[Any, Any, msgspec.Raw]:
        """Do it."""
        thrown: BaseException | None = None
        while True:
            begin = time.thread_time()
            try:
                waited = self._work.send(None) if thrown is None else self._work.throw(thrown)
            except StopIteration as done:
                found: msgspec.Raw = done.value
                return found
            finally:
                self.spent += time.thread_time() - begin
            thrown = None
            try:
                yield waited
            except BaseException as error:
                thrown = error
