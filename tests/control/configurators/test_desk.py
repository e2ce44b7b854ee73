"""What the desk, the copies, the monitor and the turns promise, one by one."""

from __future__ import annotations

import asyncio
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.content import Filter, Subscription, ValueSet
from sievenet.control.configurators import messages as m
from sievenet.control.configurators.copies import Copies
from sievenet.control.configurators.monitor import Monitor, Work
from sievenet.control.configurators.packed import pack, unpack
from sievenet.control.configurators.turns import Turns
from sievenet.control.registrations import Puts, Registrations
from sievenet.control.routes import Routes, Wires
from sievenet.errors import CodecError, Rejected
from sievenet.network import Add, Line, Modify, SpanningTree, Testbed
from sievenet.testing.virtual_time import run_virtual
from tests.control.configurators.staff import StaffedWorld
from tests.control.plain import listed, one_by_one
from tests.control.test_stateful import OTHER
from tests.control.test_stateful import drive as drive_alone
from tests.control.world import CONFIG
from tests.seeds import seeds

keys = st.integers(0, 112).flatmap(lambda n: st.integers(1 << n, (2 << n) - 1))
rows = st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 9), st.lists(keys, max_size=4)), max_size=20)


def ground():
    topology = Testbed.build()
    wires = Wires(topology)
    routes = Routes(wires, SpanningTree.shortest(topology, topology.switches[0]))
    return wires, routes, [wires.attach(switch, 1000 + i) for i, switch in enumerate(topology.switches[:6])]


@given(rows)
def test_puts_survive_the_way_and_can_be_undone(some):
    puts = Puts.of(some)
    same = Puts.decode(puts.encode())
    assert all((a == b).all() for a, b in zip(puts, same, strict=True))
    back = puts.undone().undone()
    assert all((a == b).all() for a, b in zip(puts, back, strict=True))


@pytest.mark.parametrize(
    "data", [b"x", b"\x04" + bytes(30) + b"\1", b"\x01" + bytes(31), b"\x01" + bytes(7) + b"\xff" * 24]
)
def test_other_bytes_are_no_puts(data):
    with pytest.raises(CodecError):
        Puts.decode(data)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), keys), max_size=40), st.data())
def test_a_tree_that_is_handed_out_and_taken_home_is_the_same(some, data):
    """Registered here, listed, and registered there: the same tables; changes of what was not sent yet are not lost."""
    wires, routes, clients = ground()
    here, there = Registrations(1, wires, routes), Registrations(1, wires, routes)
    kept = []
    for offers, who, key in some:
        (here.offer if offers else here.want)(clients[who], [key])
        kept.append((offers, True, clients[who], [key]))
        if data.draw(st.booleans()):
            offers, _, wire, mine = kept.pop(data.draw(st.integers(0, len(kept) - 1)))
            (here.withdraw if offers else here.unwant)(wire, mine)
    everything = Puts.decode(here.hand_out().encode())
    there._tree.put_all(everything)
    assert there.count == here.count == len(kept)
    assert all(sorted(map(str, here.table(s))) == sorted(map(str, there.table(s))) for s in wires.out)
    there.changes()
    late = [(False, True, clients[0], [5]), (True, True, clients[1], [1])]
    for offers, _, wire, mine in late:
        for each in (here, there):
            (each.offer if offers else each.want)(wire, mine)
    here.take_home(Puts.of(late))
    assert listed(here.changes()) == listed(there.changes())
    assert not here.away
    assert not here.changes()


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), keys), min_size=1, max_size=30))
def test_packed_changes_are_the_changes(some):
    wires, routes, clients = ground()
    trees = [Registrations(7, wires, routes)._tree for _ in range(2)]
    half = len(some) // 2
    for batch, adds in ((some, True), (some[:half], False)):
        puts = Puts.of((offers, adds, clients[who], [key]) for offers, who, key in batch)
        for tree in trees:
            tree.put_all(puts)
        plain = one_by_one(7, wires, trees[0].walked())
        answer = msgspec.msgpack.decode(msgspec.msgpack.encode(pack(1, 2, 3, wires, trees[1].walked())), type=m.Answer)
        assert listed(unpack(7, wires.names, answer)) == plain


def test_a_copy_says_when_it_is_puzzled():
    copies = Copies()
    copies.take(m.Wiring(("s1",), ()))
    copies.take(m.Load(1, 1, 7, b"broken", b"", ()))
    copies.take(m.Order(1, 1, 5, b""))
    copies.take(m.Order(2, 1, 6, b""))
    answers = [copies.work() for _ in range(3)]
    assert answers[0] is None
    assert [(each.partition, each.serial) for each in answers[1:]] == [(1, 5), (2, 6)]
    assert all(isinstance(each, m.Puzzled) for each in answers[1:])


def test_what_was_dropped_is_not_begun():
    copies = Copies()
    copies.take(m.Load(1, 1, 7, b"", b"", ()))
    copies.take(m.Order(1, 1, 5, b""))
    copies.take(m.Load(2, 2, 7, b"", b"", ()))
    copies.take(m.Drop(1))
    assert copies.waiting == 2
    assert [copies.work(), copies.work()] == [m.Dropped(1), None]
    assert len(copies) == 1
    assert not copies.waiting


# -- owners and epochs -----------------------------------------------------------------------


def staffed(test, **config):
    async def main():
        settings = {"mode": "sna", "partitions": 4, "patience": 0.5, "look": 0.05, **config}
        world = StaffedWorld(Line.build(switches=3), 1, msgspec.structs.replace(CONFIG, **settings))
        await world.open()
        for _ in range(2):
            world.staff.hire()
        await test(world, [await world.join() for _ in range(3)])
        await world.settle()
        world.check_tables()
        world.check()
        world.staff.close()
        await world.control.close()

    run_virtual(main())


def owners(world):
    return [each["owner"] for each in world.control.configurators()["partitions"]]


async def some(world, clients, count=8):
    await world.advertise(clients[0], world.content())
    await asyncio.gather(*(world.subscribe(world.random.choice(clients), world.content()) for _ in range(count)))


def test_partitions_are_handed_out_evenly_and_to_whoever_comes():
    async def test(world, clients):
        await some(world, clients)
        assert sorted(owners(world)) == ["configurator-1"] * 2 + ["configurator-2"] * 2
        epoch = world.control.configurators()["epoch"]
        world.staff.hire()
        world.staff.hire()
        await some(world, clients)
        assert sorted(owners(world)) == [f"configurator-{i}" for i in range(1, 5)]
        assert world.control.configurators()["epoch"] == epoch + 2  # those that moved, and no others

    staffed(test)


def test_what_is_being_worked_on_goes_over_afterwards():
    """Else whoever comes back in the middle of a take-over would have everything read once more."""

    async def test(world, clients):
        await some(world, clients)
        for member in world.staff.members.values():
            member.awake.clear()
        wide = Subscription([Filter(world.content().schema, {})])
        under_way = asyncio.ensure_future(world.subscribe(clients[1], wide))
        await asyncio.sleep(0.1)
        before = owners(world)
        assert all(each["waiting"] for each in world.control.configurators()["partitions"])
        world.staff.hire()
        world.staff.hire()
        await asyncio.sleep(0.1)
        assert owners(world) == before
        for member in world.staff.members.values():
            member.awake.set()
        await under_way
        assert sorted(owners(world)) == [f"configurator-{i}" for i in range(1, 5)]
        shown = world.control.configurators()
        assert (shown["moved"], shown["stale"], shown["taken_over"]) == (2, 0, 0)

    staffed(test)


def test_one_that_wakes_up_is_not_heard():
    async def test(world, clients):
        await some(world, clients)
        for member in world.staff.members.values():
            member.awake.clear()
        loop = asyncio.get_running_loop()
        begin = loop.time()
        await some(world, clients)  # answered, though nobody but the dispatcher is awake
        assert 0.4 < loop.time() - begin < 3
        shown = world.control.configurators()
        assert not any(each["well"] for each in shown["configurators"])
        assert shown["stale"] == 0
        answers = world.staff.counts["answers"]
        for member in world.staff.members.values():
            member.awake.set()  # it still believes that it owns what it was asked about, and answers
        await asyncio.sleep(1.0)
        shown = world.control.configurators()
        assert shown["stale"] == world.staff.counts["answers"] - answers > 0
        await some(world, clients)
        assert world.control.configurators()["stale"] == shown["stale"]
        assert any(each["well"] for each in world.control.configurators()["configurators"])

    staffed(test)


def test_who_has_much_to_load_is_not_silent(monkeypatch):
    """Or the next owner would have to load it too, and would be given up as well."""
    monkeypatch.setattr("sievenet.control.configurators.desk._EACH", 10.0)

    async def test(world, clients):
        for member in world.staff.members.values():
            member.awake.clear()
        under_way = asyncio.ensure_future(some(world, clients))
        await asyncio.sleep(4.0)  # eight times the patience
        shown = world.control.configurators()
        assert not under_way.done()
        assert all(each["well"] for each in shown["configurators"])
        assert shown["taken_over"] == 0
        for member in world.staff.members.values():
            member.awake.set()
        await under_way

    staffed(test)


def test_an_answer_counts_once_and_only_from_the_owner():
    async def test(world, clients):
        heard = world.control.configurator_heard
        answers = []
        world.staff.note = lambda name, answer: answers.append((name, answer))  # nothing is dropped here
        await some(world, clients)
        stale = world.control.configurators()["stale"]
        assert answers
        for name, answer in answers:
            heard(name, answer)  # once more
            heard("configurator-1" if name != "configurator-1" else "configurator-2", answer)
        assert world.control.configurators()["stale"] == stale + 2 * len(answers)

    staffed(test)


def test_nobody_is_left_but_the_dispatcher():
    async def test(world, clients):
        await some(world, clients)
        under_way = asyncio.ensure_future(some(world, clients))
        await asyncio.sleep(0)
        for name in list(world.staff.members):
            world.staff.kill(name)
        await under_way
        assert set(owners(world)) == {""}
        await some(world, clients)

    staffed(test)


def quarter(world, x, y):
    """A subscription in one of the four partitions."""
    sides = [(0, 7), (8, 15)]
    box = {"x": ValueSet.interval(*sides[x]), "y": ValueSet.interval(*sides[y])}
    return Subscription([Filter(world.content().schema, box)])


def test_who_is_refused_by_a_switch_is_refused_and_those_of_other_partitions_are_not():
    async def test(world, clients):
        near, far = await world.join("h1"), await world.join("h3")
        await world.advertise(near, Subscription([Filter(world.content().schema, {})]))
        apply, refused = world.plane.apply, []

        async def full(switch, changes):
            cells = [change.flow.match.cell for change in changes if isinstance(change, Add | Modify)]
            if switch == "s2" and any(cell.key >> cell.length - 2 == 0b100 for cell in cells if cell.length > 1):
                refused.append(len(cells))
                raise Rejected("The table is full")
            await apply(switch, changes)

        world.plane.apply = full
        for times in (1, 3):  # requests of each partition
            quarters = [(x, y) for x in range(2) for y in range(2)] * times
            asked = [(2000 * times + i, quarter(world, x, y)) for i, (x, y) in enumerate(quarters)]
            work = [world.control.subscribe(far, number, wanted) for number, wanted in asked]
            answers = await asyncio.gather(*work, return_exceptions=True)
            for where, (number, wanted), answer in zip(quarters, asked, answers, strict=True):
                if where == (0, 0):
                    assert isinstance(answer, Rejected), (where, answer)
                else:
                    assert answer is None
                    world.subscriptions[far, number] = wanted
        assert refused
        await world.settle()
        world.check_tables()
        await world.check_deliveries()

    staffed(test)


def test_partitions_of_a_category_that_is_removed_while_others_wait():
    async def test(world, clients):
        await some(world, clients)
        await world.control.register_schema(OTHER)
        other = Subscription([Filter(OTHER, {})])
        await world.control.advertise(clients[0], 1000, other)
        await world.control.subscribe(clients[1], 1000, other)
        number = world.control.category(OTHER.name).number
        for member in world.staff.members.values():
            member.awake.clear()
        wide = Subscription([Filter(world.content().schema, {})])
        waits = asyncio.ensure_future(world.subscribe(clients[2], wide))
        await asyncio.sleep(0.01)
        removed = asyncio.ensure_future(world.control.remove(number, force=True))
        await asyncio.sleep(0.05)
        for member in world.staff.members.values():
            member.awake.set()
        await asyncio.gather(waits, removed)
        assert OTHER.name not in [each.name for each in world.control.categories()]
        assert {each["category"] for each in world.control.configurators()["partitions"]} == {1}

    staffed(test)


# -- the monitor and turns -------------------------------------------------------------------


class Fluid:
    """Configurators that work off what comes for their partitions, each as much as it can, in no particular order."""

    def __init__(self, r, rates, owners, speed=1.0):
        self.random, self.rates, self.speed = r, rates, speed
        self.owner = {p: r.choice(owners) for p in rates}
        self.waiting, self.served = dict.fromkeys(rates, 0.0), dict.fromkeys(rates, 0.0)
        self.owners, self.moves = owners, []

    def load(self, owner):
        return sum(rate for p, rate in self.rates.items() if self.owner[p] == owner)

    def step(self, monitor, seconds):
        for p, rate in self.rates.items():
            self.waiting[p] += 1000 * seconds * rate * self.random.uniform(0.7, 1.3)
        for owner in self.owners:
            mine = [p for p in self.rates if self.owner[p] == owner]
            share = min(1.0, 1000 * seconds * self.speed / (sum(self.waiting[p] for p in mine) or 1.0))
            for p in mine:
                done = share * self.waiting[p]
                self.waiting[p] -= done
                self.served[p] += done
        work = {owner: {} for owner in self.owners}
        for p, owner in self.owner.items():
            # A thousandth of a second each, however long the dispatcher lets it wait.
            work[owner][p] = Work(round(self.waiting[p]), round(self.served[p]), 1e-3 * self.served[p])
        before, loads = dict(self.owner), {owner: self.load(owner) for owner in self.owners}
        moves = monitor.look(work)
        for partition, to in moves:
            assert self.owner[partition] != to
            self.owner[partition] = to
        if moves:
            [giver] = {before[partition] for partition, _ in moves}
            assert loads[giver] == pytest.approx(max(loads.values()), rel=0.5)
        self.moves.append(len(moves))


@pytest.mark.parametrize("seed", seeds(12, 40))
def test_what_can_be_balanced_is_balanced_and_then_left_alone(seed):
    """Zipf rates at random owners: nobody has more than it can do in the end, and moves come to an end."""
    r = random.Random(seed)
    owners = ["a", "b", "c", "d"][: r.randint(2, 4)]
    zipf = [1 / (i + 1) for i in range(r.choice((16, 64)))]
    use = min(0.8 * len(owners) / sum(zipf), 0.8 / zipf[0])  # of what all can do, and one for the heaviest
    fluid = Fluid(r, {p: use * rate for p, rate in enumerate(zipf)}, owners)
    monitor = Monitor(1.5, 0.25)
    for _ in range(400):
        fluid.step(monitor, 0.25)
    assert max(fluid.load(owner) for owner in owners) <= 1.05
    assert sum(fluid.waiting.values()) < 2000  # some seconds of one's work, however long it goes on
    assert sum(fluid.moves) <= 2 * len(zipf)
    assert sum(fluid.moves[200:]) <= 4


@pytest.mark.parametrize("seed", seeds(10))
def test_who_is_not_busy_gives_nothing_away(seed):
    """If the dispatcher cannot keep up, requests wait for partitions too; to move those would help nobody."""
    r = random.Random(seed)
    fluid = Fluid(r, {p: 0.5 / (p + 1) for p in range(16)}, ["a", "b"], speed=0.4)
    monitor = Monitor(1.5, 0.25)
    for _ in range(40):
        fluid.step(monitor, 0.25)
    assert sum(fluid.waiting.values()) > 1000
    assert not sum(fluid.moves)


@given(st.integers(1, 4), st.integers(0, 1 << 30))
def test_turns_are_taken_in_order_and_never_by_too_many(count, seed):
    r, turns = random.Random(seed), Turns(count)
    working, waiting, served = [], [], []

    def begin(who):
        if turns.enter(who, lambda: begin(who)):
            working.append(who)
            served.append(who)
            if who in waiting:
                assert waiting.pop(0) == who
        elif who not in waiting:
            waiting.append(who)
        assert len(working) <= count

    for number in range(40):
        if r.random() < 0.6 or not working:
            begin(number)
        else:
            turns.leave(working.pop(r.randrange(len(working))))
    while working:
        turns.leave(working.pop(0))
    assert sorted(served) == served
    assert not waiting


@pytest.mark.parametrize("seed", seeds(4))
def test_shared_everything_leads_to_the_same_tables(seed):
    drive_alone(Testbed.build(), seed, 25, failures=seed % 2 == 1, mode="sea", configurators=1 + seed % 3, partitions=8)
