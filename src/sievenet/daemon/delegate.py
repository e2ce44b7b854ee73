"""A configurator that works through a store: it reads the logs of the partitions that are its own, and answers.

    Ask ──▶ my epoch? ── new: does the store say that it is mine? ──▶ read the log up to there ──▶ Answer
                │                           └── no: nothing                 ▲
                └── known: ─────────────────────────────────────────────────┘  read already: the same answer again

It decides nothing and reaches no switch.  If it was paused, and believes that it still owns something, what it answers
is of an epoch that counts no more.  A leader of another term makes it forget everything, once the store says that it
leads; one of an earlier term is not heard.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from sievenet.control.configurators import messages as m
from sievenet.control.configurators import words
from sievenet.control.configurators.copies import Copies
from sievenet.control.store.leadership import read_leader
from sievenet.control.store.logs import Reader
from sievenet.control.store.store import Store
from sievenet.daemon.stopwatch import timed
from sievenet.errors import CodecError, SievenetError
from sievenet.session.complaints import Seldom
from sievenet.session.lifetime import Tasks

__all__ = ["Delegate"]

log = logging.getLogger("sievenet.configurator")

#: Partitions of which questions in another term are kept, until it is known who leads.
_MOST: Final = 65536

Run = Callable[..., Awaitable[Any]]


class _Line:
    """A partition that is, or was, this one's in a term; it keeps to what belongs to that term."""

    def __init__(self, store: Store, term: int, number: int, copies: Copies, wiring: Reader) -> None:
        self.term, self.number, self.cell = term, number, f"owner.{term}.{number}"
        self.copies, self.wiring = copies, wiring
        self._store, self._log = store, f"partition.{term}.{number}"
        self.reader = Reader(store, self._log)
        self.epoch = 0
        #: What is asked for, and not looked at.
        self.ask: words.Ask | None = None
        self.running = False
        #: The last answer, should it be lost on the way; and the last order that was followed and needed none.
        self.last: m.Answer | m.Puzzled | None = None
        self.followed = 0

    def begin(self, epoch: int) -> None:
        """It is this one's in another epoch: what was answered since the last is not known, so all is read again."""
        if self.epoch:
            self.again()
        self.epoch, self.last = epoch, None

    def again(self) -> None:
        """Read everything once more."""
        self.reader, self.followed = Reader(self._store, self._log), 0


class Delegate:
    """Serves whoever leads, until it is closed."""

    def __init__(self, store: Store, name: str, *, beat: float = 0.25, run: Run | None = None) -> None:
        self._store, self._name, self._pause = store, name, beat
        self._life = secrets.randbits(48)
        self.term = 0
        self.copies = Copies()
        self._lines: dict[int, _Line] = {}
        self._wiring = Reader(store, "wiring.0")
        #: What it is asked in another term than the one that it knows, by partition.
        self._strange: dict[int, words.Ask] = {}
        self._tasks = Tasks()
        self._complain = Seldom(log)
        self._turn = asyncio.Lock()
        self._executor = None if run is not None else ThreadPoolExecutor(1, "configurator")
        #: Works out something beside the event loop, so that signs of life go on.
        self._run: Run = run or partial(asyncio.get_running_loop().run_in_executor, self._executor)
        #: What it answered, for people to see.
        self.answered = 0

    def __len__(self) -> int:
        return len(self._lines)

    async def start(self) -> None:
        """Say that it is there, and listen."""
        await self._store.hear(f"ask.{self._name}", self._asked)
        self._tasks.begin(self._beat(), name="signs of life")

    async def close(self) -> None:
        """Leave."""
        await self._tasks.close()
        await self._store.say("beat", words.encode(words.Beat(self._name, self._life, os.getpid(), leaves=True)))
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)

    async def _beat(self) -> None:
        beat = words.encode(words.Beat(self._name, self._life, os.getpid()))
        while True:
            await self._store.say("beat", beat)
            await asyncio.sleep(self._pause)

    # -- what it is asked ------------------------------------------------------------------

    def _asked(self, data: bytes) -> None:
        try:
            ask = words.decode(data, words.Ask)
        except SievenetError as error:
            self._complain(f"not a question of a daemon: {error}")
            return
        if ask.term == self.term:
            self._take(ask)
        elif len(self._strange) < _MOST:
            if not self._strange:
                self._tasks.begin(self._look())
            self._strange[ask.partition] = ask

    async def _look(self) -> None:
        """Somebody asks who leads in another term: the store says whether anybody does.

        Terms begin anew in a store that has lost what it had, so the later one of two is not always the right one.
        """
        leader = None
        try:
            leader, _ = await read_leader(self._store)
        except SievenetError as error:
            self._complain(f"who leads cannot be read: {error}")
        finally:  # whatever went wrong: the next question has to find nobody looking
            asks, self._strange = self._strange, {}
        if leader is None or all(ask.term != leader.term for ask in asks.values()):
            self._complain(f"a question of term {next(iter(asks.values())).term}, in which nobody leads")
            return
        if leader.term != self.term:
            log.info("a daemon leads in term %d", leader.term)
            self.term, self.copies, self._lines = leader.term, Copies(), {}
            self._wiring = Reader(self._store, f"wiring.{leader.term}")
        for ask in asks.values():
            if ask.term == self.term:
                self._take(ask)

    def _take(self, ask: words.Ask) -> None:
        if ask.drop:
            if self._lines.pop(ask.partition, None) is not None:
                self.copies.drop(ask.partition)
            return
        line = self._lines.get(ask.partition)
        if line is None:
            if len(self._lines) >= _MOST:
                self._complain(f"a question about partition {ask.partition}: {_MOST} others are looked at")
                return
            line = _Line(self._store, ask.term, ask.partition, self.copies, self._wiring)
            self._lines[ask.partition] = line
        line.ask = ask
        if not line.running:
            line.running = True
            self._tasks.begin(self._serve(line))

    async def _serve(self, line: _Line) -> None:
        try:
            while (ask := line.ask) is not None and self._lines.get(line.number) is line:
                line.ask = None
                if await self._mine(line, ask):
                    await self._wire(line, ask.wiring)
                    await self._read(line, ask)
        except SievenetError as error:
            self._complain(f"partition {line.number} cannot be read now: {error}")
        finally:
            line.running = False
            if not line.epoch and self._lines.get(line.number) is line:
                del self._lines[line.number]  # it was never this one's: anybody can ask about any number

    async def _mine(self, line: _Line, ask: words.Ask) -> bool:
        """Whether the store says that this one has the partition, in this epoch."""
        if ask.epoch == line.epoch:
            return True
        entry = await self._store.get(line.cell)
        if entry is None or ask.epoch < line.epoch:
            return False
        owner = words.decode(entry.data, words.Owner)
        if (owner.name, owner.epoch) != (self._name, ask.epoch):
            return False
        line.begin(ask.epoch)
        return True

    async def _wire(self, line: _Line, upto: int) -> None:
        async with self._turn:
            reader = line.wiring
            while reader.at < upto and (entry := await reader.next()) is not None:
                await self._run(line.copies.take, words.decode_logged(entry.data))

    async def _read(self, line: _Line, ask: words.Ask) -> None:
        """Follow the log, and answer what is open."""
        if ask.answered < line.followed:
            line.again()  # somebody else said that an order needs no answer, and it does
        found = line.last
        try:
            async for entry in line.reader.upto(ask.upto):
                message = words.decode_logged(entry.data)
                if isinstance(message, m.Wiring):
                    continue
                open_order = isinstance(message, m.Order) and message.serial > ask.answered
                if isinstance(message, m.Order) and not open_order:
                    line.followed = message.serial
                found = await self._run(timed, line.copies.follow, message, line.epoch, entry.number, open_order)
                if self._lines.get(line.number) is not line:
                    break
        except CodecError:
            line.again()  # what cannot be read may have been an order: nothing behind it is right without it
            raise
        if self._lines.get(line.number) is not line:  # it was dropped meanwhile, or another term has begun
            if line.number not in self._lines:
                line.copies.drop(line.number)
        elif found is not None and found.epoch == line.epoch:
            line.last = found
            self.answered += 1
            for piece in words.pieces(self._name, self._life, found, self._store.limit):
                await self._store.say(f"answer.{line.term}", piece)
