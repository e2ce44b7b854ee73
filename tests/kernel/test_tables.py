"""Kernel switches against the definition of a flow table: what arrives, what is read back, what survives."""

import asyncio
import random
from collections import Counter
from contextlib import contextmanager

import pytest

from sievenet.dataplane.kernel.network import KernelNetwork
from sievenet.dataplane.kernel.ranges import MOST
from sievenet.dataplane.kernel.sets import PortSets
from sievenet.dataplane.packet import Packet
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


def packet(sender, number, category, bits):
    code = bits << (CODE_BITS - 4)
    return Packet(category, code, sender.publisher, number, 17, 0, b"")


@pytest.mark.parametrize("seed", seeds(6))
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
                flows = [random_flow(rng, sorted(by_port)) for _ in range(rng.randrange(1, 12))]
                held = list(table)
                changes = [rng.choice([Add, Modify])(flow) for flow in flows]
                changes += [Delete(flow) for flow in rng.sample(held, rng.randrange(len(held) + 1))]
                rng.shuffle(changes)
                await plane.apply("s1", changes)
                table = table.applied(changes)
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


def test_nothing_is_lost_or_doubled_while_tables_change(network):
    """Two tables that both deliver to b, changed to and fro under traffic."""

    async def main():
        rng = random.Random(1)
        async with on_kernel(network) as harness:
            plane = harness.plane
            a, b, c = [await plane.attach(f"h{i}", name) for i, name in ((1, "a"), (2, "b"), (3, "c"))]

            def table():
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
                await harness.send(a, [packet(a, first + i, 1, rng.randrange(16)) for i in range(100)])
                await asyncio.sleep(0)
            stop.set()
            await changing
            await harness.settle()
            assert [p.sequence for p in harness.received(b)] == list(range(5_000))

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


def test_tables_of_ports_fit_up_to_their_bound(network):
    """Cells of 100 ports under 32 masks; one more mask or too many ports are refused, and nothing changes."""

    async def main():
        async with on_kernel(network) as harness:
            plane = harness.plane
            a = await plane.attach("h1", "a")
            others = [await plane.attach(f"h{1 + i % 3}", f"o{i}") for i in range(100)]
            masks = [n for n in range(1, 256) if not Cell(0, n, 8).is_dz]

            def cell(i, port):
                found = Cell(0, masks[i], 8)
                return Flow(Match(1, found), frozenset({port}), found.checked, table=port)

            flows = [cell(i % 32, other.port) for i, other in enumerate(others)]
            await plane.apply("s1", [Add(flow) for flow in flows])
            table = FlowTable(flows)
            assert await plane.table("s1") == table
            with pytest.raises(Rejected, match=r"at most 32 masks.*kind dz"):
                await plane.apply("s1", [Delete(flows[0]), Add(cell(32, others[0].port))])
            with pytest.raises(Rejected, match=r"at most 128 out ports with cells.*kind dz"):
                await plane.apply("s1", [Add(cell(0, 2000 + i)) for i in range(29)])
            assert await plane.table("s1") == table
            codes = [i << (CODE_BITS - 8) for i in range(0, 256, 5)]
            await harness.send(a, [Packet(1, code, a.publisher, i, 17, 0, b"") for i, code in enumerate(codes)])
            await harness.settle()
            for other in others:
                wanted = [i for i, code in enumerate(codes) if other.port in table.ports(1, code, a.port)]
                assert [each.sequence for each in harness.received(other)] == wanted
            # What goes gives back its masks and slots.
            await plane.apply("s1", [Delete(flow) for flow in flows])
            flows = [cell(40 + i % 32, 3000 + i) for i in range(128)]
            await plane.apply("s1", [Add(flow) for flow in flows])
            assert await plane.table("s1") == FlowTable(flows)

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
            network.switches["s1"]._flows.clear()
            network.switches["s1"]._rows.clear()
            network.switches["s1"]._order.clear()
            network.switches["s1"]._sets = PortSets(network.switches["s1"].maps)

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
