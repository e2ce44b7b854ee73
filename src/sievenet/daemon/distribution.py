"""Configurators on other machines, seen from the daemon that leads: it tells them through a store.

It decides nothing, like `configurators`: what the control plane wants to say about a partition goes into the
partition's log, then the owner is asked to read it.  Each partition has a line of its own, since writing takes a
while; within it everything keeps its order.

    control plane ── Own, Load, Order ──▶ line ── put, append ──▶ store ── Ask ──▶ owner
          ▲                                                                          │
          └───────────────────────── Answer ◀────────────────────────────────────────┘

Words may be lost, so an order that stays open is asked for again, and who says nothing for `silence` seconds is gone.
So is, sooner, who does not listen any more, as the store says: a process that ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from sievenet.control.configurators import messages as m
from sievenet.control.configurators import words
from sievenet.control.plane import ControlPlane
from sievenet.control.store.logs import Writer
from sievenet.control.store.store import Store
from sievenet.daemon.harvest import Harvest
from sievenet.errors import Fenced, SievenetError
from sievenet.session.complaints import Seldom
from sievenet.session.lifetime import Tasks
from sievenet.session.message import Message

__all__ = ["Distribution"]

log = logging.getLogger("sievenet.daemon")

#: Seconds after which an open order is asked for again.
_AGAIN: Final = 0.5
#: Configurators that there may be: whoever reaches the store can say that it is one.
_MOST: Final = 1024


class _Line:
    """What is to be told about one partition."""

    def __init__(self, store: Store, term: int, number: int) -> None:
        self.number = number
        #: To whom, and what.
        self.queue: deque[tuple[str, Message]] = deque()
        self.running = False
        self.writer = Writer(store, f"partition.{term}.{number}")
        self.cell, self.revision = f"owner.{term}.{number}", 0
        #: The epoch as the control plane sees it, which is ahead of the store.
        self.coming = 0
        #: As the store has it.
        self.owner, self.epoch, self.answered = "", 0, 0
        #: The last order, the one without an answer, and when it was asked for last.
        self.last = self.open = 0
        self.asked = 0.0


class _Peer:
    """A configurator that is there."""

    def __init__(self, life: int, heard: float) -> None:
        self.life, self.heard = life, heard
        #: Since when nobody listens under its name; 0 if somebody does.
        self.missed = 0.0


class Distribution:
    """Tells configurators through a store, in one term."""

    def __init__(
        self,
        control: ControlPlane,
        store: Store,
        term: int,
        *,
        silence: float = 1.0,
        fenced: Callable[[SievenetError], None] | None = None,
    ) -> None:
        self._control, self._store, self._term, self._silence = control, store, term, silence
        self._fenced = fenced
        self._lines: dict[int, _Line] = {}
        self._peers: dict[str, _Peer] = {}
        self._pieces = words.Pieces()
        self._answers = Harvest(control)
        self._tasks = Tasks()
        self._wiring = Writer(store, f"wiring.{term}")
        self._wired = b""
        self._turn = asyncio.Lock()
        self._closed = False
        #: About words that are none.
        self.complain = Seldom(log)

    async def start(self) -> None:
        """Remove what earlier leaders left, and listen; the control plane works alone until configurators come."""
        for logs in ("partition.*", "wiring.*"):
            await self._store.discard(logs)
        await self._store.forget("owner.*")
        self._control.share(self._term)
        self._control.consult = self._say
        await self._store.hear("beat", self._beat)
        await self._store.unheard(self._unheard)
        await self._store.hear(f"answer.{self._term}", self._answer)
        self._tasks.begin(self._watch(), name="watch over configurators")

    async def close(self) -> None:
        """Tell nobody anything any more."""
        self._closed = True
        self._answers.close()
        self._control.consult = None
        await self._tasks.close()

    # -- what the control plane says -------------------------------------------------------

    def _say(self, name: str, message: Message) -> None:
        match message:
            case m.Wiring():
                self._tasks.begin(self._wire(message))
            case m.Drop(partition):
                self._tasks.begin(self._drop(name, partition))
            case m.Own() | m.Load() | m.Order() | m.Dismissed():
                line = self._lines.get(message.partition)
                if line is None:
                    line = self._lines[message.partition] = _Line(self._store, self._term, message.partition)
                if isinstance(message, m.Own):
                    line.coming = message.epoch
                line.queue.append((name, message))
                if not line.running:
                    line.running = True
                    self._tasks.begin(self._tell(line))

    async def _drop(self, name: str, partition: int) -> None:
        ask = words.Ask(self._term, partition, 0, 0, 0, 0, drop=True)
        await self._store.say(f"ask.{name}", words.encode(ask))

    async def _wire(self, message: m.Wiring) -> None:
        data = words.encode(message)
        async with self._turn:
            if data != self._wired:
                self._wired = data
                await self._guarded(self._wiring.write(data, anew=True))

    async def _tell(self, line: _Line) -> None:
        """Write what waits, in its order, then ask the owner."""
        try:
            while line.queue:
                name, message = line.queue.popleft()
                if not await self._guarded(self._write(line, name, message)):
                    self._give_up(name, message)
                if not line.queue and line.open:
                    await self._ask(line)
        finally:
            line.running = False

    async def _write(self, line: _Line, name: str, message: Message) -> None:
        match message:
            case m.Own(_, epoch, answered):
                owner = words.Owner(name, epoch)
                line.revision = await self._store.put(line.cell, words.encode(owner), line.revision)
                line.owner, line.epoch, line.answered = name, epoch, answered
                # An answer that came meanwhile, of the owner before, does not count.
                line.open = line.last if line.last > answered else 0
            case m.Load():
                await line.writer.write(words.encode(message), anew=True)
            case m.Order(_, _, serial):
                await line.writer.write(words.encode(message))
                line.open = line.last = serial
            case m.Dismissed(partition):
                del self._lines[partition]
                await self._store.discard(line.writer.log)
                await self._store.forget(line.cell)
                await self._drop(name, partition)

    async def _guarded(self, work: Any) -> bool:
        """Do something with the store; whether it was done.  If somebody else leads, that is told."""
        try:
            await work
        except Fenced as error:
            if self._fenced is not None:
                self._fenced(error)
            return False
        except SievenetError as error:
            log.error("the store does not take what configurators are to know: %s", error)
            return False
        except Exception:
            log.exception("internal error while configurators are told (please report)")
            return False
        return True

    def _give_up(self, name: str, message: Message) -> None:
        """It cannot be told: the control plane does it itself."""
        if isinstance(message, m.Order) and not self._closed:
            answer = m.Puzzled(message.partition, message.epoch, message.serial, "the store did not take it")
            self._control.configurator_heard(name, answer)

    async def _ask(self, line: _Line) -> None:
        async with self._turn:  # the network as it is now has been written
            wiring = self._wiring.at
        line.asked = asyncio.get_running_loop().time()
        ask = words.Ask(self._term, line.number, line.epoch, line.writer.at, wiring, line.answered)
        await self._store.say(f"ask.{line.owner}", words.encode(ask))

    # -- what configurators say ------------------------------------------------------------

    def _beat(self, data: bytes) -> None:
        if self._closed:
            return
        try:
            beat = words.decode(data, words.Beat)
        except SievenetError as error:
            self.complain(f"not a configurator's sign of life: {error}")
            return
        now, peer = asyncio.get_running_loop().time(), self._peers.get(beat.name)
        if beat.leaves:
            if peer is not None and peer.life == beat.life:
                self._gone(beat.name, "has left")
        elif peer is None and len(self._peers) >= _MOST:
            self.complain(f"configurator {beat.name} is one too many: {_MOST} are there")
        elif peer is None or peer.life != beat.life:
            if peer is not None and now - peer.heard < self._silence / 2:
                self.complain(f"configurator {beat.name} was started again, or two have this name: names must differ")
            self._peers[beat.name] = _Peer(beat.life, now)
            log.info("configurator %s is there (process %d)", beat.name, beat.process)
            self._control.configurator_joined(beat.name, beat.process)
        else:
            peer.heard, peer.missed = now, 0.0
            self._control.configurator_heard(beat.name)

    def _unheard(self, subject: str) -> None:
        """Nobody listens to what a configurator was asked: it is gone, unless it only changes its server."""
        name = subject.removeprefix("ask.")
        peer, now = self._peers.get(name), asyncio.get_running_loop().time()
        if self._closed or peer is None or not self._store.reachable:
            return
        if not peer.missed:
            peer.missed = now
            self._tasks.begin(self._make_sure(name))
        elif now - peer.missed > self._silence / 4:
            self._gone(name, "listens no more")

    async def _make_sure(self, name: str) -> None:
        """Ask once more, after the time in which a sign of life would have come."""
        await asyncio.sleep(self._silence / 3)
        for line in list(self._lines.values()):
            if line.owner == name and line.open and not line.running:
                await self._ask(line)
                return

    def _answer(self, data: bytes) -> None:
        try:
            reply = words.decode(data, words.Reply)
            peer = self._peers.get(reply.name)
            answer = None if peer is None or peer.life != reply.life else self._pieces.take(reply)
        except SievenetError as error:
            self.complain(f"not an answer of a configurator: {error}")
            return
        if answer is None:
            return
        line = self._lines.get(answer.partition)
        if line is not None and line.open == answer.serial and line.coming == answer.epoch:
            line.open = 0
        self._answers.take(reply.name, [answer])

    # -- time ------------------------------------------------------------------------------

    async def _watch(self) -> None:
        clock, pause = asyncio.get_running_loop().time, self._silence / 4
        last = clock()
        while True:
            await asyncio.sleep(pause)
            now = clock()
            if now - last > 2 * pause or not self._store.reachable:
                for peer in self._peers.values():  # it is us who did not listen
                    peer.heard = now
            last = now
            for name in [name for name, peer in self._peers.items() if now - peer.heard > self._silence]:
                self._gone(name, f"has said nothing for {self._silence:g} s")
            tried: set[str] = set()
            for line in list(self._lines.values()):
                if not line.open or line.running or line.owner not in self._peers:
                    continue
                # One of each owner's sooner: the store says whether anybody listens, and did not know it yet, perhaps,
                # when it was asked for first.
                if now - line.asked > (_AGAIN if line.owner in tried else pause / 2):
                    tried.add(line.owner)
                    await self._ask(line)

    def _gone(self, name: str, why: str) -> None:
        log.warning("configurator %s %s", name, why)
        self._answers.flush()
        del self._peers[name]
        self._pieces.forget(name)
        self._control.configurator_gone(name)
