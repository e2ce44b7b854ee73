"""Configurators in virtual time: messages that take a while, members that are killed, paused, and come back."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from sievenet.control.configurators import messages as m
from sievenet.control.configurators.copies import Copies
from sievenet.session.framing import frame
from tests.control.world import World


class Member:
    """One configurator: a queue of what was said to it, and a task that works it off."""

    def __init__(self, staff: Staff, name: str) -> None:
        self.staff, self.name = staff, name
        self.copies = Copies()
        self.inbox: asyncio.Queue[object] = asyncio.Queue()
        self.awake = asyncio.Event()
        self.awake.set()
        self.framer = m.CONFIGURATORS.dialling()
        self.task = asyncio.ensure_future(self.run())

    async def run(self) -> None:
        r = self.staff.random
        while True:
            self.copies.take(await self.inbox.get())
            while not self.inbox.empty() and r.random() < 0.7:
                self.copies.take(self.inbox.get_nowait())
            while self.copies.waiting and r.random() < 0.9:
                await self.awake.wait()
                await asyncio.sleep(r.random() * r.choice((0.001, 0.02)))
                await self.awake.wait()
                answer = self.copies.work() if self.copies.waiting else None
                if answer is not None:
                    [answer] = m.CONFIGURATORS.listening(1 << 24).feed(frame(answer))
                    self.staff.note(self.name, answer)
                    self.staff.world.control.configurator_heard(self.name, answer)
            if self.copies.waiting and self.inbox.empty():
                self.inbox.put_nowait(None)


class Staff:
    """The configurators of a world."""

    def __init__(self, world: StaffedWorld, seed: int) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.members: dict[str, Member] = {}
        #: Answers by partition and epoch: who gave some.
        self.answers: dict[tuple[int, int], set[str]] = {}
        self.counts: Counter[str] = Counter()
        self.next = 0

    def note(self, name: str, answer: m.Answer | m.Puzzled | m.Dropped) -> None:
        if isinstance(answer, m.Dropped):
            return
        assert isinstance(answer, m.Answer), answer
        self.counts["answers"] += 1
        self.answers.setdefault((answer.partition, answer.epoch), set()).add(name)

    def say(self, name: str, message) -> None:
        member = self.members.get(name)
        if member is not None:
            for each in member.framer.feed(frame(message)):
                member.inbox.put_nowait(each)

    def hire(self) -> None:
        self.next += 1
        name = f"configurator-{self.next}"
        self.members[name] = Member(self, name)
        self.counts["hired"] += 1
        self.world.control.configurator_joined(name, self.next)

    def kill(self, name: str) -> None:
        self.members.pop(name).task.cancel()
        self.counts["killed"] += 1
        self.world.control.configurator_gone(name)

    def anew(self) -> None:
        """Another controller: connections of before are lost, with the copies."""
        self.answers.clear()  # epochs are those of one dispatcher, and so are partitions
        names = list(self.members)
        for name in names:
            self.members[name].task.cancel()
            self.members[name] = Member(self, name)
        self.world.control.consult = self.say
        for name in names:
            self.world.control.configurator_joined(name)

    def fault(self) -> None:
        """Something happens to somebody."""
        r, names = self.random, sorted(self.members)
        choice = r.random()
        if choice < 0.3 and len(names) < 4:
            self.hire()
        elif choice < 0.5 and names:
            self.kill(r.choice(names))
        elif choice < 0.8 and names:
            self.members[r.choice(names)].awake.clear()
            self.counts["paused"] += 1
        else:
            for member in self.members.values():
                member.awake.set()

    def close(self) -> None:
        for member in self.members.values():
            member.task.cancel()


class StaffedWorld(World):
    """A world whose control plane has configurators."""

    staff: Staff

    async def start(self) -> None:
        await super().start()
        if not hasattr(self, "staff"):
            self.staff = Staff(self, self.random.randrange(1 << 30))
        self.staff.anew()

    async def settle(self) -> None:
        await asyncio.sleep(0)
        await super().settle()

    def check(self) -> None:
        """What must always hold: an epoch of a partition has one owner."""
        for owners in self.staff.answers.values():
            assert len(owners) == 1, owners
