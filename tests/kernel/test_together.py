"""Several events in one packet: it leaves by every port that one of them wants, once, whatever the table holds."""

import asyncio
import random
from collections import Counter

import pytest

from sievenet.dataplane.kernel.ranges import MOST
from sievenet.dataplane.packet import Packet
from sievenet.index import CODE_BITS, ROOT, Dz
from sievenet.index.address import TOGETHER
from sievenet.network import Add, Flow, FlowTable, parse_topology
from tests.kernel.harness import make_network, on_kernel, remove_network
from tests.kernel.test_tables import burst, changed, packet
from tests.seeds import seeds

pytestmark = [pytest.mark.root]

ONE = parse_topology("line,switches=1,hosts=3")
LINE = parse_topology("line,switches=3,hosts=1")


@pytest.fixture(scope="module")
def network():
    network = make_network(ONE, kind="svt")
    yield network
    remove_network(network)


def in_datagrams(packets):
    return [packets[start : start + TOGETHER] for start in range(0, len(packets), TOGETHER)]


@pytest.mark.parametrize("seed", seeds(8))
def test_a_packet_goes_where_one_of_its_events_would(network, seed):
    """Any flows, changed in any order; counters of flows have what they would have had event by event."""

    async def main():
        rng = random.Random(seed)
        async with on_kernel(network) as harness:
            plane = harness.plane
            clients = [await plane.attach(f"h{1 + i % 3}", f"c{i}") for i in range(4)]
            by_port = {client.port: client for client in clients}
            table, number = FlowTable(), 0
            for _ in range(8):
                table = await changed(plane, table, rng, sorted(by_port))
                sender, category = rng.choice(clients), rng.randrange(1, 4)
                few = [rng.randrange(16) for _ in range(rng.randrange(1, 4))]
                count = rng.randrange(1, 3 * TOGETHER)
                sent = [packet(sender, number + i, category, rng.choice(few)) for i in range(count)]
                number += count
                want = Counter()
                for some in in_datagrams(sent):
                    ports = {p for each in some for p in table.ports(category, each.code, sender.port)}
                    want.update((by_port[port].client, each.sequence) for port in ports for each in some)
                await harness.send(sender, burst(sent))
                await harness.settle()
                got = Counter((c.client, p.sequence) for c in clients for p in harness.received(c))
                for client in clients:
                    came = [each.sequence for each in harness.received(client)]
                    assert came == sorted(came)
                    harness.received(client).clear()
                assert got == want
            assert not network.switches["s1"].reasons()["unsent"]

    asyncio.run(main())


def test_flows_and_ports_count_events(network):
    async def main():
        async with on_kernel(network) as harness:
            plane, switch = harness.plane, network.switches["s1"]
            a, b, c = [await plane.attach(f"h{i}", name) for i, name in ((1, "a"), (2, "b"), (3, "c"))]
            one, other = Flow.of(1, Dz(0, 1), b.port), Flow.of(1, Dz(3, 2), c.port)
            await plane.apply("s1", [Add(one), Add(other)])
            await harness.send(a, burst([packet(a, i, 1, bits) for i, bits in enumerate([0] * 5 + [15] * 7 + [8])]))
            await harness.settle()
            counted = switch.counters()
            assert counted.flows[one.key].packets == 5
            assert counted.flows[other.key].packets == 7
            assert [counted.ports[each.port].sent.packets for each in (b, c)] == [13, 13]
            assert counted.ports[a.port].received.packets == 13
            assert [len(harness.received(each)) for each in (a, b, c)] == [0, 13, 13]
            # What no flow wants goes nowhere, as ever.
            await harness.send(a, burst([packet(a, 50 + i, 1, 8) for i in range(4)]))
            assert switch.counters().unmatched == 4

    asyncio.run(main())


def test_over_several_switches(network):
    """Links are taken once, and the hop limit falls, whatever the number of events."""
    line = make_network(LINE, kind="svu")

    async def main():
        async with on_kernel(line) as harness:
            plane = harness.plane
            a, b, c = [await plane.attach(f"h{i}", name) for i, name in ((1, "a"), (2, "b"), (3, "c"))]
            right = [LINE.port("s1", "s2"), LINE.port("s2", "s3")]
            await plane.apply("s1", [Add(Flow.of(1, ROOT, right[0]))])
            await plane.apply("s2", [Add(Flow.of(1, Dz(0, 1), b.port)), Add(Flow.of(1, Dz(1, 1), right[1]))])
            await plane.apply("s3", [Add(Flow.of(1, Dz(1, 1), c.port))])
            await harness.send(a, burst([packet(a, i, 1, i * 5 % 16) for i in range(40)]))
            await harness.send(a, burst([packet(a, 40 + i, 1, 15) for i in range(3)]))
            await harness.settle()
            assert [each.sequence for each in harness.received(b)] == list(range(40))
            assert [each.sequence for each in harness.received(c)] == list(range(43))
            counted = (await plane.counters("s2")).ports
            assert counted[right[1]].sent.packets == 43

    try:
        asyncio.run(main())
    finally:
        remove_network(line)


def test_as_many_outputs_as_flows_can_have(network):
    """Every event has its own flow with as many outputs as fit, of which the last one alone leads to somebody."""

    async def main():
        async with on_kernel(network) as harness:
            plane, switch = harness.plane, network.switches["s1"]
            a = await plane.attach("h1", "a", 1024)
            ends = [await plane.attach(f"h{1 + i % 3}", f"e{i}", 0x7FFF - i) for i in range(TOGETHER)]
            nobody = list(range(2000, 2000 + MOST + TOGETHER))
            flows = [Flow.of(1, Dz(i, 4), *nobody[i : i + MOST - 1], end.port) for i, end in enumerate(ends)]
            await plane.apply("s1", [Add(flow) for flow in flows])
            await harness.send(a, burst([packet(a, i, 1, i) for i in range(TOGETHER)]))
            await harness.settle()
            assert [[p.sequence for p in harness.received(end)] for end in ends] == [[*range(TOGETHER)]] * TOGETHER
            assert not switch.reasons()["unsent"]

    asyncio.run(main())


def test_clients_that_may_not_send_more_at_once_do_not(network):
    """With several trees for a category the plane says so, and every event travels alone."""

    async def main():
        async with on_kernel(network, together=False) as harness:
            plane = harness.plane
            a, b, c = [await plane.attach(f"h{i}", name) for i, name in ((1, "a"), (2, "b"), (3, "c"))]
            await plane.apply("s1", [Add(Flow.of(1, Dz(0, 1), b.port)), Add(Flow.of(1, Dz(1, 1), c.port))])
            await harness.send(a, burst([packet(a, i, 1, i % 2 * 15) for i in range(40)]))
            await harness.settle()
            assert [each.sequence for each in harness.received(b)] == list(range(0, 40, 2))
            assert [each.sequence for each in harness.received(c)] == list(range(1, 40, 2))

    asyncio.run(main())


def test_long_events_share_as_far_as_they_fit(network):
    """A datagram is never longer than links take."""

    async def main():
        async with on_kernel(network) as harness:
            a, b = await harness.plane.attach("h1", "a"), await harness.plane.attach("h2", "b")
            await harness.plane.apply("s1", [Add(Flow.of(1, ROOT, b.port))])
            number = 0
            for size in (500, 2_000, 4_500, harness.plane.max_body):
                some = [Packet(1, i << (CODE_BITS - 4), a.publisher, number + i, 17, 0, bytes(size)) for i in range(9)]
                number += len(some)
                await harness.send(a, burst(some))
            await harness.settle()
            assert [each.sequence for each in harness.received(b)] == list(range(number))
            assert not network.switches["s1"].reasons()["malformed"]

    asyncio.run(main())
