"""Kernel switches against the definition of a flow table: what arrives, what is read back, what survives."""

import asyncio
import random
from collections import Counter
from contextlib import contextmanager, suppress
from functools import partial

import numpy as np
import pytest

from sievenet.client.ports.burst import Burst
from sievenet.dataplane.kernel.network import KernelNetwork
from sievenet.dataplane.kernel.ranges import MOST
from sievenet.dataplane.packet import Packet, encode_packet
from sievenet.errors import Rejected
from sievenet.index import CODE_BITS, ROOT, Cell, Dz
from sievenet.network import TOP_PRIORITY, Add, Delete, Flow, FlowTable, Match, Modify, parse_topology
from sievenet.network.link import LinkSettings
from sievenet.network.table import difference
from tests.kernel.harness import make_network, on_kernel, remove_network
from tests.seeds import seeds

pytestmark = [pytest.mark.root]

ONE = parse_topology("line,switches=1,hosts=3")


@pytest.fixture(scope="module")
def network():
    network = make_network(ONE, kind="svo")
    yield network
    remove_network(network)


def random_flow(rng, ports):
    """Flows of every kind over few codes, so that they meet."""
    out = frozenset(rng.sample(ports, rng.randrange(len(ports) + 1)))
    category = rng.randrange(1, 4)
    if category == 3 and rng.random() < 0.9:
        cell, port = Cell.parse("".join(rng.choice("01*") for _ in range(4))), rng.choice(ports)
        return Flow(Match(category, cell), frozenset({port}), cell.checked, table=port)
    if category == 3:  # as while a plan changes
        return Flow(Match(category, ROOT), frozenset(ports), TOP_PRIORITY)
    kind = rng.randrange(5)
    if kind == 0:
        in_port = rng.choice([None, *ports])
        return Flow(Match(category, ROOT), out, TOP_PRIORITY + rng.randrange(2), in_port)
    if kind == 1:
        cell = Cell.parse("".join(rng.choice("01*") for _ in range(4)))
        return Flow(Match(category, cell), out, rng.randrange(6))
    length = rng.randrange(5)
    return Flow.of(category, Dz(rng.randrange(1 << length), length), *out)


def masked(number, port):
    """A cell of one of many masks."""
    masks = [n for n in range(1, 256) if not Cell(0, n, 8).is_dz]
    cell = Cell(masks[number] & 0b10101010, masks[number], 8)
    return Flow(Match(1, cell), frozenset({port}), cell.checked, table=port)


def packet(sender, number, category, bits):
    code = bits << (CODE_BITS - 4)
    return Packet(category, code, sender.publisher, number, 17, 0, b"")


def burst(packets):
    """The same in as few datagrams as possible."""
    return Burst.of(np.frombuffer(b"".join(map(encode_packet, packets)), np.uint8).reshape(len(packets), -1))


async def changed(plane, table, rng, ports):
    """Some flows of switch s1 added, changed and deleted, in any order; its table after that, as a value."""
    flows = [random_flow(rng, ports) for _ in range(rng.randrange(1, 12))]
    held = list(table)
    changes = [rng.choice([Add, Modify])(flow) for flow in flows]
    changes += [Delete(flow) for flow in rng.sample(held, rng.randrange(len(held) + 1))]
    rng.shuffle(changes)
    await plane.apply("s1", changes)
    return table.applied(changes)


@pytest.mark.parametrize("seed", seeds(8))
def test_packets_go_where_the_table_says(network, seed):
    """Any flows, changed in any order: every packet leaves by the ports that the table as a value names."""

    async def main():
        rng = random.Random(seed)
        async with on_kernel(network) as harness:
            plane = harness.plane
            clients = [await plane.attach(f"h{1 + i % 3}", f"c{i}") for i in range(4)]
            by_port = {client.port: client for client in clients}
            table, number = FlowTable(), 0
            for _ in range(8):
                table = await changed(plane, table, rng, sorted(by_port))
                assert await plane.table("s1") == table
                want = Counter()
                sender = rng.choice(clients)
                sent = [packet(sender, number + i, rng.randrange(1, 4), rng.randrange(16)) for i in range(24)]
                number += len(sent)
                for each in sent:
                    for port in table.ports(each.category, each.code, sender.port):
                        want[by_port[port].client, each.sequence] += 1
                await harness.send(sender, sent)
                await harness.settle()
                got = Counter((c.client, p.sequence) for c in clients for p in harness.received(c))
                for client in clients:
                    harness.received(client).clear()
                assert got == want

    asyncio.run(main())


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("cells", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_nothing_is_lost_or_doubled_while_tables_change(network, cells, together):
    """Tables that all deliver to b, changed to and fro under traffic; cells have more masks than fit."""

    async def main():
        rng = random.Random(1)
        async with on_kernel(network) as harness:
            plane = harness.plane
            a, b, c = [await plane.attach(f"h{i}", name) for i, name in ((1, "a"), (2, "b"), (3, "c"))]

            def table():
                if cells:
                    every = [Cell.parse("*******0"), Cell.parse("*******1")]
                    flows = [Flow(Match(1, cell), frozenset({b.port}), 1, table=b.port) for cell in every]
                    flows += [masked(rng.randrange(120), rng.choice([b.port, c.port])) for _ in range(60)]
                    return FlowTable(flows)
                flows = [Flow.of(1, ROOT, b.port)]
                for _ in range(30):
                    length = rng.randrange(1, 8)
                    extra = (c.port,) if rng.random() < 0.5 else ()
                    flows.append(Flow.of(1, Dz(rng.randrange(1 << length), length), b.port, *extra))
                if rng.random() < 0.3:
                    flows.append(Flow(Match(1, ROOT), frozenset({b.port, c.port}), TOP_PRIORITY))
                return FlowTable(flows)

            tables = [table() for _ in range(20)]
            now = FlowTable()
            await plane.apply("s1", difference(now, tables[0]))
            now = tables[0]
            stop = asyncio.Event()

            async def change():
                nonlocal now
                while not stop.is_set():
                    goal = rng.choice(tables)
                    await plane.apply("s1", difference(now, goal))
                    now = goal
                    await asyncio.sleep(0)

            changing = asyncio.create_task(change())
            for first in range(0, 5_000, 100):
                some = [packet(a, first + i, 1, rng.randrange(16)) for i in range(100)]
                await harness.send(a, burst(some) if together else some)
                await asyncio.sleep(0)
            stop.set()
            await changing
            await harness.settle()
            assert [p.sequence for p in harness.received(b)] == list(range(5_000))

    asyncio.run(main())


def test_an_entry_whose_memory_is_another_flows_by_now_is_none(network):
    """The kernel gives the memory of an entry of `cells` to the next one at once: what it names may be another flow."""

    async def main():
        async with on_kernel(network) as harness:
            plane, switch = harness.plane, network.switches["s1"]
            a, b, c = [await plane.attach(f"h{i}", name) for i, name in ((1, "a"), (2, "b"), (3, "c"))]
            special = [Flow(Match(n, ROOT), frozenset({b.port}), TOP_PRIORITY) for n in (1, 2)]
            cells = [
                Flow(Match(3, Cell.parse(t)), frozenset({p.port}), 1, table=p.port) for t, p in (("*1", b), ("*0", c))
            ]
            await plane.apply("s1", [Add(Flow.of(1, ROOT, c.port)), *map(Add, special), *map(Add, cells)])
            entries = switch.maps["cells"]
            numbers = dict(entries.items())
            # Keys begin with the number of the row; those of masks are large.
            rows, masks = (
                [key for key in sorted(numbers, key=lambda k: k[8:]) if (key[3] < 128) == low] for low in (1, 0)
            )
            codes = [(1, 5), (2, 5), (3, 0b0100), (3, 0b0000)]
            await harness.send(a, [packet(a, i, *each) for i, each in enumerate(codes)])
            # As a packet would see them that found an entry just before it was taken out and another came.
            for key, other in (rows, masks):
                entries.put(key, numbers[other])
            await harness.send(a, [packet(a, 10 + i, *each) for i, each in enumerate(codes)])
            await harness.settle()
            assert [p.sequence for p in harness.received(b)] == [0, 1, 2, 11, 12]
            assert [p.sequence for p in harness.received(c)] == [3, 10]
            for key, number in numbers.items():
                entries.put(key, number)

    asyncio.run(main())


def test_many_outputs(network):
    """More outputs than the program serves in one go; and too many are refused."""

    async def main():
        async with on_kernel(network) as harness:
            plane = harness.plane
            a = await plane.attach("h1", "a")
            others = [await plane.attach(f"h{1 + i % 3}", f"o{i}") for i in range(300)]
            await plane.apply("s1", [Add(Flow.of(1, ROOT, *(o.port for o in others)))])
            await harness.send(a, [packet(a, 0, 1, 5)])
            await harness.settle()
            assert [len(harness.received(o)) for o in others] == [1] * 300
            with pytest.raises(Rejected, match=f"at most {MOST}"):
                await plane.apply("s1", [Add(Flow.of(1, ROOT, *range(1024, 1024 + MOST + 1)))])

    asyncio.run(main())


def test_masks_fit_up_to_their_bound(network):
    """Cells under 32 masks, of which the one with precedence decides. One more is refused, and nothing changes."""

    async def main():
        async with on_kernel(network) as harness:
            plane = harness.plane
            a, b, c = [await plane.attach(f"h{i}", name) for i, name in ((1, "a"), (2, "b"), (3, "c"))]

            def cell(i, ports):
                masks = [n for n in range(1, 256) if n & (n + 1) & 255 and not Cell(0, n, 8).is_dz]
                return Flow(Match(1, Cell(0, masks[i], 8)), frozenset(ports), i + 1)

            flows = [cell(i, {b.port} if i % 2 else {c.port}) for i in range(32)]
            await plane.apply("s1", [Add(flow) for flow in flows])
            with pytest.raises(Rejected, match="32 combinations of mask and priority fit"):
                await plane.apply("s1", [Delete(flows[0]), Add(cell(32, ())), Add(cell(33, ()))])
            table = FlowTable(flows)
            assert await plane.table("s1") == table
            codes = [i << (CODE_BITS - 8) for i in range(256)]
            await harness.send(a, [Packet(1, code, a.publisher, i, 17, 0, b"") for i, code in enumerate(codes)])
            await harness.settle()
            for client in (b, c):
                wanted = [i for i, code in enumerate(codes) if client.port in table.ports(1, code, a.port)]
                assert [each.sequence for each in harness.received(client)] == wanted

    asyncio.run(main())


@pytest.mark.parametrize("seed", seeds(2))
def test_more_masks_than_fit_let_more_through_and_nothing_less(network, seed):
    """A hundred ports, cells that come and go: with few masks just what is wanted passes, with many at least that."""

    async def main():
        rng = random.Random(seed)
        async with on_kernel(network) as harness:
            plane, switch = harness.plane, network.switches["s1"]
            a = await plane.attach("h1", "a")
            others = [await plane.attach(f"h{1 + i % 3}", f"o{i}") for i in range(100)]
            codes = [i << (CODE_BITS - 8) for i in range(0, 256, 5)]
            table, number = FlowTable(), 0
            for masks in (20, 120, 60, 200, 10):
                flows = [masked(rng.randrange(masks), rng.choice(others).port) for _ in range(150)]
                now = FlowTable(flows)
                await plane.apply("s1", difference(table, now))
                table = now
                assert await plane.table("s1") == table
                assert (switch._sets.widened > 0) == (masks > 31)
                assert len(switch.counters().flows) == len(table)
                await harness.send(a, [Packet(1, c, a.publisher, number + i, 17, 0, b"") for i, c in enumerate(codes)])
                await harness.settle()
                more = 0
                for other in others:
                    wanted = {number + i for i, c in enumerate(codes) if other.port in table.ports(1, c, a.port)}
                    got = [each.sequence for each in harness.received(other)]
                    harness.received(other).clear()
                    assert wanted <= set(got)
                    assert len(got) == len(set(got))
                    more += len(set(got) - wanted)
                assert (more > 0) == (masks > 31)
                number += len(codes)
                # The next process finds the flows as they were asked for.
                again = KernelNetwork(ONE, network.name, run_dir=network.run_dir)
                assert again.up() is True
                assert again.switches["s1"].table() == table
                assert again.switches["s1"]._sets.widened == switch._sets.widened
            with pytest.raises(Rejected, match=r"room for 128 out ports with cells.*kind dz"):
                await plane.apply("s1", [Add(masked(0, 2000 + i)) for i in range(129)])
            assert await plane.table("s1") == table
            await plane.apply("s1", [Delete(flow) for flow in table])
            assert not switch.maps["cells"].items() + switch.maps["held"].items() + switch._sets._versions.read()

    asyncio.run(main())


@pytest.mark.parametrize("seed", seeds(2))
def test_a_process_that_is_killed_while_masks_change_leaves_nothing_wrong(network, seed):
    """Every write to the kernel may be the last: the next process finds flows that work, and can go on."""

    class Killed(Exception):
        pass

    async def main():
        rng = random.Random(seed)
        async with on_kernel(network) as harness:
            a, b = await harness.plane.attach("h1", "a"), await harness.plane.attach("h2", "b")
            switch = network.switches["s1"]
            ports, table = [a.port, b.port], FlowTable()
            for _ in range(12):
                left = rng.randrange(40)

                def die(what, *arguments):
                    nonlocal left
                    left -= 1
                    if left < 0:
                        raise Killed
                    return what(*arguments)

                goal = FlowTable(masked(rng.randrange(100), rng.choice(ports)) for _ in range(60))
                before, maps = set(table), [switch.maps[name] for name in ("cells", "held")]
                for each in maps:
                    for name in ("put", "remove"):
                        setattr(each, name, partial(die, getattr(each, name)))
                with suppress(Killed):
                    switch.apply(difference(table, goal))
                again = KernelNetwork(ONE, network.name, run_dir=network.run_dir)
                assert again.up() is True
                network.switches["s1"] = switch = again.switches["s1"]
                table = switch.table()
                assert set(table) <= set(goal) | before
                sets = switch._sets
                there = dict(switch.maps["cells"].items())
                for flow in table:  # whatever it says it has, it has
                    assert sets._key(sets._under[type(next(iter(sets._under))).of(flow)], flow) in there
                switch.apply(difference(table, goal))
                table = goal
                assert switch.table() == goal
            switch.apply([Delete(flow) for flow in goal])
            assert not switch.maps["cells"].items() + switch.maps["held"].items() + switch._sets._versions.read()

    asyncio.run(main())


def test_only_attached_clients_are_let_in(network):
    """Neither an unknown UDP port nor another host's address gets a packet through; both are counted."""

    async def main():
        async with on_kernel(network) as harness:
            plane = harness.plane
            a, b = await plane.attach("h1", "a"), await plane.attach("h2", "b")
            await plane.apply("s1", [Add(Flow.of(1, ROOT, b.port))])
            await harness.send(a, [packet(a, 0, 1, 5)])
            await plane.detach("a")
            await harness.send(b, [])
            harness._ports["a"].send([packet(a, 1, 1, 5)])
            await harness._ports["a"].flushed(ahead=0)
            await harness.settle()
            assert [p.sequence for p in harness.received(b)] == [0]
            assert plane.statistics().unknown == 1

    asyncio.run(main())


@contextmanager
def successor(network, topology=None):
    """The same network as the next process finds it."""
    yield KernelNetwork(topology or network.topology, network.name, run_dir=network.run_dir)


def test_the_next_process_finds_everything(network):
    async def main():
        rng = random.Random(7)
        async with on_kernel(network) as harness:
            a, b = await harness.plane.attach("h1", "a"), await harness.plane.attach("h2", "b")
            flows = {flow.key: flow for flow in (random_flow(rng, [a.port, b.port]) for _ in range(40))}
            await harness.plane.apply("s1", [Add(flow) for flow in flows.values()])
            await harness.send(a, [packet(a, i, 1, i % 16) for i in range(32)])
            await harness.settle()
            before = network.switches["s1"].counters()
            again = KernelNetwork(ONE, network.name, run_dir=network.run_dir)
            assert again.up() is True
            switch = again.switches["s1"]
            assert switch.table() == FlowTable(flows.values())
            assert switch.counters().flows == before.flows
            # It can go on from there: everything can be changed and deleted.
            plain = [f for f in flows.values() if not f.table]
            assert 0 < len(plain) < len(flows)
            switch.apply([Modify(Flow(f.match, frozenset({b.port}), f.priority, f.in_port)) for f in plain])
            assert {flow.ports for flow in switch.table() if not flow.table} == {frozenset({b.port})}
            switch.apply([Delete(flow) for flow in flows.values()])
            assert len(switch.table()) == 0
            # The first process is thought dead; its memory of the flows is not used again.
            network.switches["s1"] = switch

    asyncio.run(main())


def test_links_have_their_bandwidth():
    """What a slow link cannot carry is dropped by its queue, and counted at its port."""
    slow = parse_topology("line,switches=2,hosts=1").with_links(LinkSettings(bandwidth=8e6))
    network = make_network(slow, kind="svl")

    async def main():
        async with on_kernel(network) as harness:
            plane = harness.plane
            a, b = await plane.attach("h1", "a"), await plane.attach("h2", "b")
            port = slow.port("s1", "s2")
            await plane.apply("s1", [Add(Flow.of(1, ROOT, port))])
            await plane.apply("s2", [Add(Flow.of(1, ROOT, b.port))])
            loop = asyncio.get_running_loop()
            begin = loop.time()
            # 500 kB into a link of 1 MB/s, whose queue holds what it carries in 50 ms.
            await harness.send(a, [Packet(1, 0, a.publisher, i, 17, 0, bytes(900)) for i in range(500)])
            lost = 0
            while len(harness.received(b)) + lost < 500:
                assert loop.time() < begin + 10
                await asyncio.sleep(0.05)
                lost = (await plane.counters("s1")).ports[port].dropped
            came = [each.sequence for each in harness.received(b)]
            assert came == sorted(came)
            took = loop.time() - begin
            assert 20 <= len(came) <= 100 + 1000 * took
            assert lost == 500 - len(came) > 0

    try:
        asyncio.run(main())
    finally:
        remove_network(network)


@pytest.mark.parametrize("seed", seeds(3))
def test_switches_share_a_program_and_nothing_else(seed):
    """Every switch of a network has flows, clients and permits of its own; whoever takes them over finds each's."""
    rng = random.Random(seed)
    topology = parse_topology("line,switches=3,hosts=1")
    network = make_network(topology, kind="svs")
    try:
        held = {}
        for number, (name, switch) in enumerate(network.switches.items()):
            ports = sorted(topology.ports(name))
            changes = [Add(random_flow(rng, ports)) for _ in range(30)]
            table = FlowTable().applied(changes)
            switch.apply(changes)
            switch.add_client(1000, 1)
            assert switch.permits.give(1000, frozenset({number + 1}))
            held[name] = table
        assert {name: set(switch.table()) for name, switch in network.switches.items()} == {
            name: set(table) for name, table in held.items()
        }
        indices = [index for devices in network.devices.values() for index in devices]
        assert len(set(indices)) == len(indices)
        network.switches["s2"].clear()
        held["s2"] = FlowTable()
        later = KernelNetwork(topology, network.name, run_dir=network.run_dir)
        assert later.up()  # it was there
        for number, (name, switch) in enumerate(later.switches.items()):
            assert set(switch.table()) == set(held[name])
            assert switch.permits._held == {1000: frozenset({number + 1})}
            switch.close()
    finally:
        remove_network(network)
