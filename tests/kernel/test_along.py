"""Packets that pass several switches in one go: everything is as if they had crossed each link."""

import asyncio
import random
from collections import Counter

import pytest

from sievenet.dataplane import namespaces as ns
from sievenet.dataplane.packet import Packet
from sievenet.index import CODE_BITS, ROOT, Cell, Dz
from sievenet.network import Add, Flow, FlowTable, Match, parse_topology
from tests.kernel.harness import make_network, on_kernel, remove_network
from tests.kernel.test_tables import burst, packet, random_flow
from tests.seeds import seeds

pytestmark = [pytest.mark.root]

RING = parse_topology("ring,switches=4,hosts=1")
LINE = parse_topology("line,switches=20,hosts=1")
#: What a socket of the system writes into a packet, and every switch takes one from.
HOPS = 64


@pytest.fixture(scope="module", params=[RING, LINE], ids=["ring", "line"])
def network(request):
    network = make_network(request.param, kind="sva")
    yield network
    remove_network(network)


class Walk:
    """Where packets go, and what switches count, by tables as values."""

    def __init__(self, topology, tables, clients):
        self.topology, self.tables = topology, tables
        self.publishers = {client.port: client.publisher for client in clients}
        self.got, self.flows, self.received, self.sent = Counter(), Counter(), Counter(), Counter()
        self.unmatched, self.expired = Counter(), Counter()

    def arrive(self, switch, in_port, some, hops=HOPS):
        """Events of one packet come in at a port; the packet leaves by every port that one of them wants."""
        if hops <= 1:
            self.expired[switch] += len(some)
            return
        table, ports, met = self.tables[switch], set(), False
        for each in some:
            for flow in table.decide(each.category, each.code, in_port):
                self.flows[switch, flow.key] += not flow.table
                met = True
            ports |= table.ports(each.category, each.code, in_port)
        if not met:
            self.unmatched[switch] += len(some)
        for port in ports - {in_port}:
            self.sent[switch, port] += len(some)
            if port >= 1000:
                # A host takes nothing that says it is from itself.
                self.got.update((port, each.sequence) for each in some if each.publisher != self.publishers[port])
                continue
            peer, number = self.topology.peer_port(switch, port)
            self.received[peer, number] += len(some)
            self.arrive(peer, number, some, hops - 1)


def counted(network):
    """The same as the switches have it."""
    flows, received, sent, unmatched, expired = Counter(), Counter(), Counter(), Counter(), Counter()
    for name, switch in network.switches.items():
        counters = switch.counters()
        links = [p for p, peer in network.topology.ports(name).items() if network.topology.is_switch(peer)]
        flows.update({(name, key): count.packets for key, count in counters.flows.items() if not key.table})
        received.update({(name, p): counters.ports[p].received.packets for p in links})
        sent.update({(name, p): n.sent.packets for p, n in counters.ports.items() if p in links or p >= 1000})
        unmatched[name], expired[name] = counters.unmatched, switch.reasons()["expired"]
        assert not switch.reasons()["unsent"] + switch.reasons()["malformed"]
    return [+each for each in (flows, received, sent, unmatched, expired)]


def random_table(rng, ports, odd):
    """Flows that lead on more often than not."""
    flows = []
    for _ in range(rng.randrange(1, 9)):
        flow = random_flow(rng, ports)
        ordinary = not flow.table and flow.in_port is None and not isinstance(flow.match.cell, Cell)
        if odd or (ordinary and flow.priority == flow.match.cell.length):
            flows.append(flow)
    out = rng.sample(ports, rng.choice([1, 1, 1, min(2, len(ports))]))
    return FlowTable([Flow.of(category, ROOT, *out) for category in (1, 2) if rng.random() < 0.9] + flows)


@pytest.mark.parametrize("together", [False, True], ids=["alone", "together"])
@pytest.mark.parametrize("seed", seeds(10, 40))
def test_as_if_every_link_had_been_crossed(network, seed, together):
    """Random tables, circles among them: what arrives, and every counter of every switch."""
    topology = network.topology

    async def main():
        rng = random.Random(seed)
        async with on_kernel(network) as harness:
            plane = harness.plane
            clients = [await plane.attach(host, f"c{i}") for i, host in enumerate(topology.hosts)]
            # With circles a packet comes by the same link again and again: few outputs keep that small.
            tables = {}
            for client in clients:
                switch = topology.attachment(client.host).switch
                links = [topology.port(switch, peer) for peer in topology.neighbours(switch)]
                table = random_table(rng, [client.port, *links], odd=rng.random() < 0.3)
                await plane.apply(switch, [Add(flow) for flow in table])
                tables[switch] = table
            walk = Walk(topology, tables, clients)
            for first in range(0, 60, 6):
                sender, category = rng.choice(clients), rng.randrange(1, 4)
                some = [packet(sender, first + i, category, rng.randrange(16)) for i in range(6)]
                switch = topology.attachment(sender.host).switch
                for part in [some] if together else [[each] for each in some]:
                    walk.arrive(switch, sender.port, part)
                await harness.send(sender, burst(some) if together else some)
            await harness.settle()
            got = Counter((client.port, p.sequence) for client in clients for p in harness.received(client))
            assert got == walk.got
            assert counted(network) == [
                +each for each in (walk.flows, walk.received, walk.sent, walk.unmatched, walk.expired)
            ]

    asyncio.run(main())


@pytest.mark.parametrize("together", [False, True], ids=["alone", "together"])
@pytest.mark.parametrize("odd", [False, True], ids=["ordinary", "odd"])
def test_over_twenty_switches(together, odd):
    """More than a packet passes in one go; outputs on the way; flows with masks at one of them."""
    network = make_network(LINE, kind="svw")

    async def main():
        async with on_kernel(network) as harness:
            plane = harness.plane
            clients = [await plane.attach(host, f"c{i}") for i, host in enumerate(LINE.hosts)]
            for number, client in enumerate(clients, 1):
                switch, ports = f"s{number}", [client.port] if number % 5 == 0 else []
                if number < 20:
                    ports.append(LINE.port(switch, f"s{number + 1}"))
                await plane.apply(switch, [Add(Flow.of(1, ROOT, *ports))])
                if odd and number == 7:
                    cell = Cell.parse("*1")
                    await plane.apply(switch, [Add(Flow(Match(1, cell), frozenset(ports), 1))])
            some = [packet(clients[0], i, 1, i % 16) for i in range(64)]
            await harness.send(clients[0], burst(some) if together else some)
            await harness.settle()
            for number, client in enumerate(clients, 1):
                wanted = list(range(64)) if number % 5 == 0 else []
                assert [p.sequence for p in harness.received(client)] == wanted
            for number in range(2, 21):
                counters = (await plane.counters(f"s{number}")).ports
                assert counters[LINE.port(f"s{number}", f"s{number - 1}")].received.packets == 64

    try:
        asyncio.run(main())
    finally:
        remove_network(network)


@pytest.mark.parametrize("first", ["client", "link"])
def test_cells_of_a_client_and_of_a_link(first):
    """A copy for a client has the client's UDP port; what goes on by a link still has the content's."""
    line = parse_topology("line,switches=2,hosts=2")
    network = make_network(line, kind="svz")

    async def main():
        async with on_kernel(network) as harness:
            plane = harness.plane
            a, b, c = [await plane.attach(host, name) for host, name in (("h1", "a"), ("h2", "b"), ("h3", "c"))]
            link = line.port("s1", "s2")
            cells = [Flow(Match(1, Cell.parse("*1")), frozenset({port}), 1, table=port) for port in (b.port, link)]
            await plane.apply("s1", [Add(flow) for flow in (cells if first == "client" else cells[::-1])])
            await plane.apply("s2", [Add(Flow.of(1, ROOT, c.port))])
            await harness.send(a, [Packet(1, 7 << (CODE_BITS - 4), a.publisher, i, 17, 0, b"") for i in range(3)])
            await harness.settle()
            assert [[p.sequence for p in harness.received(each)] for each in (b, c)] == [[0, 1, 2]] * 2

    try:
        asyncio.run(main())
    finally:
        remove_network(network)


def test_a_dead_link_carries_nothing():
    """As soon as the kernel has told of it, on either side."""
    line = parse_topology("line,switches=4,hosts=1")
    network = make_network(line, kind="svd")

    async def main():
        async with on_kernel(network) as harness:
            plane = harness.plane
            a, b = await plane.attach("h1", "a"), await plane.attach("h4", "b")
            for number in (1, 2, 3):
                port = line.port(f"s{number}", f"s{number + 1}")
                await plane.apply(f"s{number}", [Add(Flow.of(1, Dz(0, 0), port))])
            await plane.apply("s4", [Add(Flow.of(1, ROOT, b.port))])
            for down in (("s2", "s3"), ("s3", "s2")):
                await harness.send(a, [packet(a, 0, 1, 5)])
                device = network.device(down[0], line.port(*down))
                await asyncio.to_thread(ns.ip, network.switch_namespace("s1"), [f"link set {device} down"])
                while not plane.down()[1]:
                    await asyncio.sleep(0.002)
                await harness.send(a, [packet(a, 1, 1, 5)])
                await asyncio.to_thread(ns.ip, network.switch_namespace("s1"), [f"link set {device} up"])
                while plane.down()[1]:
                    await asyncio.sleep(0.002)
            await harness.settle()
            assert [p.sequence for p in harness.received(b)] == [0, 0]
            assert (await plane.counters("s2")).ports[line.port("s2", "s3")].dropped == 2

    try:
        asyncio.run(main())
    finally:
        remove_network(network)
