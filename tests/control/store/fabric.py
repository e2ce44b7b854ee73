"""A fabric whose journal and partitions are in a store, in virtual time: several daemons, configurators, and faults."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import msgspec

from sievenet.control.plane import ControlPlane
from sievenet.control.store.journal import StoreJournal
from sievenet.control.store.leadership import Leadership
from sievenet.control.store.memory import MemoryStore, Shelf
from sievenet.daemon.delegate import Delegate
from sievenet.daemon.distribution import Distribution
from sievenet.errors import Fenced, SievenetError, Unavailable
from tests.control.world import World


class FencedPlane:
    """What a daemon of one term sees of switches that obey the highest term they have heard of, as OpenFlow's do."""

    def __init__(self, plane, heard: dict[str, int], term: int) -> None:
        self._plane, self._heard, self._term = plane, heard, term
        self.refused = 0
        #: Cleared while the daemon is paused: it learns of nothing, and does nothing.
        self.awake = asyncio.Event()
        self.awake.set()
        for switch in plane.topology.switches:
            heard[switch] = max(heard.get(switch, 0), term)

    def __getattr__(self, name):
        return getattr(self._plane, name)

    async def apply(self, switch, changes):
        await self.awake.wait()
        if self._heard[switch] > self._term:
            self.refused += 1
            raise Unavailable(f"{switch} obeys another daemon")
        await self._plane.apply(switch, changes)

    async def detach(self, client):
        if max(self._heard.values()) == self._term:
            await self._plane.detach(client)


class Member:
    """A configurator that can be paused and killed."""

    def __init__(self, shelf: Shelf, name: str, r: random.Random) -> None:
        self.store, self.awake = MemoryStore(shelf, limit=4096), asyncio.Event()
        self.awake.set()
        self.random = r
        self.delegate = Delegate(self.store, name, beat=0.1, run=self.run)

    async def run(self, work, *arguments):
        await asyncio.sleep(self.random.random() * self.random.choice((0.001, 0.02)))
        await self.awake.wait()
        return work(*arguments)

    def pause(self) -> None:
        self.awake.clear()
        self.store.linked.clear()

    def wake(self) -> None:
        self.awake.set()
        self.store.linked.set()

    async def kill(self) -> None:
        self.store._closed = True
        await self.delegate._tasks.close()


class Reign:
    """A daemon that leads, or believes so."""

    def __init__(self, world: StoredWorld, name: str) -> None:
        self.world, self.name = world, name
        self.store = MemoryStore(world.shelf, limit=4096)
        self.deposed: SievenetError | None = None

    async def begin(self) -> None:
        world = self.world
        self.leadership = await Leadership.win(self.store, self.name, 1.0)
        self.leadership.on_lost = self.lost
        self.journal = await StoreJournal.open(self.store, self.leadership.term)
        self.journal.on_fenced = self.leadership.lose
        self.plane = FencedPlane(world.plane, world.heard, self.leadership.term)
        self.control = await ControlPlane.start(self.plane, self.journal, world.config, world.worker)
        self.distribution = Distribution(
            self.control, self.store, self.leadership.term, silence=0.5, fenced=self.leadership.lose
        )
        await self.distribution.start()
        heard = self.control.configurators_heard

        def note(said):
            for name, messages in said:
                world.note(self, name, messages)
            heard(said)

        self.control.configurators_heard = note

    def lost(self, reason) -> None:
        self.deposed = reason
        self.ending = asyncio.ensure_future(self.control.close())

    async def die(self) -> None:
        """From one moment to the next."""
        self.store._closed = True
        self.control._closed = True
        for task in [*self.control._tasks, self.control._listening, self.leadership._task, *self.distribution._tasks]:
            task.cancel()
        if self.control._timer is not None:
            self.control._timer.cancel()
        await asyncio.sleep(0)


class StoredWorld(World):
    """A world whose control plane is in a store."""

    def __init__(self, topology, seed, config, **simulator) -> None:
        super().__init__(topology, seed, config, **simulator)
        self.shelf = Shelf(random=random.Random(seed), delay=0.01, lost=0.05)
        self.faults = random.Random(seed + 1)
        #: The highest term that each switch has heard of.
        self.heard: dict[str, int] = {}
        self.members: dict[str, Member] = {}
        self.counts: Counter[str] = Counter()
        #: Answers that counted, by partition and epoch: who gave them.
        self.answers: dict[tuple[int, int], set[str]] = {}
        self.zombies: list[Reign] = []
        self.reigns = 0

    async def start(self) -> None:
        self.reigns += 1
        self.reign = Reign(self, f"daemon-{self.reigns}")
        await self.reign.begin()
        self.control = self.reign.control
        self.control.on_plan(self.adopt)
        for category in self.control.categories():
            self.plans.setdefault(category.name, category.plan)

    def note(self, reign: Reign, name: str, messages) -> None:
        if reign is self.reign:
            for answer in messages:
                self.counts[type(answer).__name__] += 1
                self.answers.setdefault((answer.partition, answer.epoch), set()).add(name)

    async def crash(self) -> None:
        """The daemon is killed; or it is paused, another one takes over, and the first wakes up."""
        old = self.reign
        if self.faults.random() < 0.5:
            self.counts["killed daemons"] += 1
            await old.die()
        else:
            self.counts["paused daemons"] += 1
            old.store.linked.clear()
            old.plane.awake.clear()
            self.zombies.append(old)
            late = [asyncio.ensure_future(self._late(old, i)) for i in range(self.faults.randrange(3))]
        await self.start()
        if old in self.zombies:
            old.store.linked.set()
            old.plane.awake.set()
            for each in late:
                async with asyncio.timeout(60):
                    await each
        await self.settle()
        for category in self.control.categories():
            self.plans[category.name] = category.plan

    async def _late(self, old: Reign, number: int) -> None:
        """A request to a daemon that does not lead any more, and does not know: it is never granted."""
        client = sorted(self.clients)[0]
        try:
            await old.control.subscribe(client, 10_000_000 + 10 * self.next + number, self.content())
        except Fenced:
            self.counts["fenced"] += 1
        except SievenetError:
            self.counts["refused"] += 1
        else:
            raise AssertionError("a daemon that leads no more has granted something")

    # -- configurators, and the store ----------------------------------------------------------

    async def hire(self) -> None:
        name = f"configurator-{self.counts['hired']}"
        self.counts["hired"] += 1
        member = self.members[name] = Member(self.shelf, name, random.Random(self.faults.random()))
        await member.delegate.start()

    async def fault(self) -> str:
        r, names = self.faults, sorted(self.members)
        choice = r.random()
        if choice < 0.25 and len(names) < 4:
            await self.hire()
            return "hired"
        if choice < 0.45 and names:
            self.counts["killed"] += 1
            await self.members.pop(r.choice(names)).kill()
            return "killed"
        if choice < 0.65 and names:
            self.counts["paused"] += 1
            self.members[r.choice(names)].pause()
            return "paused"
        if choice < 0.8:
            self.counts["store away"] += 1
            self.shelf.up.clear()
            asyncio.get_running_loop().call_later(r.random() * 2, self.shelf.up.set)
            return "store away"
        for member in self.members.values():
            member.wake()
        return "awake"

    async def close(self) -> None:
        self.shelf.up.set()
        for member in self.members.values():
            await member.kill()
        for reign in (*self.zombies, self.reign):
            await reign.die()

    def check(self) -> None:
        """What must always hold."""
        for owners in self.answers.values():
            assert len(owners) == 1, f"an epoch of a partition has two owners: {owners}"
        for name, entries in self.shelf.logs.items():
            if name.startswith("journal."):
                terms = [msgspec.msgpack.decode(e.data[1:])[0] for e in entries if e.data[0] == 3]
                assert terms == sorted(terms), f"an older daemon wrote into {name}: {terms}"
        for zombie in self.zombies:
            assert zombie.leadership.term < self.reign.leadership.term
