"""The tables that registrations lead to, against the definition, after every step and between the two steps."""

from __future__ import annotations

import random

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievenet.control.registrations import PortRegistrations, Registrations
from sievenet.control.routes import Routes, Wires, bits
from sievenet.index import ROOT, Cell, Dz
from sievenet.network import FlowTable, Link, Random, SpanningTree, Topology
from tests.control import definition
from tests.seeds import examples

WIDTH = 4
CODES = range(1 << WIDTH)


class Network:
    """Registrations beside the plain list of what is registered, and the tables of switches that obey."""

    made = Registrations

    def __init__(self, topology: Topology, clients: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.topology = topology
        self.wires = Wires(topology)
        self.tree = SpanningTree.shortest(topology, topology.switches[0])
        self.registrations = self.made(7, self.wires, Routes(self.wires, self.tree))
        self.places = [(self.random.choice(topology.switches), 1000 + i) for i in range(clients)]
        self.leaves = [self.wires.attach(*place) for place in self.places]
        self.held = []
        self.tables = {switch: FlowTable() for switch in topology.switches}

    def register(self) -> None:
        client = self.random.randrange(len(self.places))
        dz = self.piece()
        wants = self.random.random() < 0.6
        add = self.registrations.want if wants else self.registrations.offer
        add(self.leaves[client], [dz.key])
        self.held.append((wants, client, dz))

    def piece(self):
        length = self.random.choice((0, 1, 1, 2, 2, 3, 4))
        return Dz(self.random.getrandbits(length) if length else 0, length)

    def drop(self) -> None:
        if self.held:
            wants, client, dz = self.held.pop(self.random.randrange(len(self.held)))
            remove = self.registrations.unwant if wants else self.registrations.withdraw
            remove(self.leaves[client], [dz.key])

    def expected(self) -> dict[str, FlowTable]:
        placed = [(wants, (*self.places[client], dz)) for wants, client, dz in self.held]
        return definition.tables(
            7, self.tree, [r for wants, r in placed if not wants], [r for wants, r in placed if wants]
        )

    def commit(self, dead: frozenset[tuple[str, int]] = frozenset()) -> None:
        """Carry out the changes one by one; no state in between may lose what both sides deliver."""
        changes = self.registrations.changes()
        before, after = self.tables, self.expected()
        alive = {s: frozenset(p for p in range(1, 2000) if (s, p) not in dead) for s in before}
        for step, last in ((changes.first, not changes.second), (changes.second, True)):
            for switch, of in step.items():
                for change in of:
                    self.tables = {**self.tables, switch: self.tables[switch].applied([change])}
                    for code in CODES:
                        now = self._ports(self.tables, switch, code)
                        was, will = self._ports(before, switch, code), self._ports(after, switch, code)
                        assert now >= will & was & alive[switch]
            if step is changes.first:
                for switch in self.tables:
                    for code in CODES:
                        now = self._ports(self.tables, switch, code)
                        was, will = self._ports(before, switch, code), self._ports(after, switch, code)
                        assert now >= (was & alive[switch]) | will
                for switch, flows in changes.between.items():
                    for flow in flows:
                        assert flow in self.tables[switch]
            if last:
                assert self.tables == after
        for switch in self.topology.switches:
            if switch in after:
                assert FlowTable(self.registrations.table(switch)) == after[switch]

    @staticmethod
    def _ports(tables: dict[str, FlowTable], switch: str, code: int) -> frozenset[int]:
        return tables[switch].ports(7, code << (128 - WIDTH)) if switch in tables else frozenset()


class PortNetwork(Network):
    """The same for cells, with a table per out port."""

    made = PortRegistrations

    def piece(self):
        return Cell.parse("".join(self.random.choice("01***") for _ in range(WIDTH)))

    def expected(self) -> dict[str, FlowTable]:
        placed = [(wants, (*self.places[client], cell)) for wants, client, cell in self.held]
        return definition.per_port(
            7, self.tree, [r for wants, r in placed if not wants], [r for wants, r in placed if wants]
        )

    def reached(self, switch: str, in_port: int, code: int) -> set[tuple[str, int]]:
        """Where a packet comes out that comes in here."""
        found, stack = set(), [(switch, in_port)]
        while stack:
            at, came = stack.pop()
            for port in self.tables[at].ports(7, code << (128 - WIDTH), came):
                peer = self.topology.ports(at).get(port)
                if peer is None:
                    found.add((at, port))
                else:
                    stack.append((peer, self.topology.port(peer, at)))
        return found


LAYOUTS = pytest.mark.parametrize("layout", [Network, PortNetwork])


@LAYOUTS
@settings(max_examples=examples(60), deadline=None)
@given(st.integers(1, 7), st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**32))
def test_tables_equal_the_definition_after_every_batch(layout, switches, clients, batch, seed):
    topology = Random.build(switches=switches, hosts=0, seed=seed % 1000)
    net = layout(topology, clients, seed)
    for _ in range(12):
        for _ in range(batch):
            net.register() if net.random.random() < 0.65 else net.drop()
        net.commit()
    while net.held:
        net.drop()
    net.commit()
    assert net.registrations.count == 0
    assert net.registrations.nodes() == (layout is Network)  # the root of the prefix tree stays


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(1, 6), st.integers(2, 5), st.integers(0, 2**32))
def test_with_a_table_per_port_whoever_wants_an_event_gets_it_and_nobody_else(switches, clients, seed):
    net = PortNetwork(Random.build(switches=switches, hosts=0, seed=seed % 1000), clients, seed)
    for _ in range(6):
        for _ in range(4):
            net.register() if net.random.random() < 0.7 else net.drop()
        net.commit()
        for code in CODES:
            holders = [(wants, client) for wants, client, cell in net.held if code in cell]
            for publisher in {client for wants, client in holders if not wants}:
                due = {net.places[client] for wants, client in holders if wants and client != publisher}
                assert net.reached(*net.places[publisher], code) == due


@pytest.mark.unwatched
@LAYOUTS
def test_every_small_network_and_every_tree_of_it(layout):
    for number, graph in enumerate(nx.graph_atlas_g()):
        if not 1 <= graph.number_of_nodes() <= 6 or not nx.is_connected(graph):
            continue
        net = layout(topology_of(graph), 3, number)
        for _ in range(3):
            for _ in range(4):
                net.register()
            net.drop()
            net.commit()


@LAYOUTS
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_another_tree_gives_the_tables_of_that_tree(layout, seed):
    """A link dies; the tree that is left is completed by another link, and nothing that works is lost in between."""
    graph = nx.gnm_random_graph(6, 9, seed=seed % 10_000)
    if not nx.is_connected(graph):
        return
    net = layout(topology_of(graph), 5, seed)
    for _ in range(10):
        net.register()
    net.commit()
    a, b = net.random.choice(sorted(net.tree.links()))
    rest = net.topology.without(down_links=[(a, b)])
    kept = {link: 0 for link in net.tree.links() if link != (a, b)}
    tree = nx.minimum_spanning_tree(nx.Graph([(k.a, k.b, {"weight": 0 if k.id in kept else 1}) for k in rest.links]))
    assert tree.number_of_nodes() <= 6
    if tree.number_of_nodes() < 6 or not nx.is_connected(tree):
        return
    parent = dict(nx.predecessor(tree, "s1"))
    net.tree = SpanningTree(rest, "s1", {n: (p[0] if p else None) for n, p in parent.items()})
    dead = [(a, net.topology.port(a, b)), (b, net.topology.port(b, a))]
    mask = sum(1 << net.wires.number(*wire) for wire in dead)
    for _ in range(2):
        net.register()
    net.registrations.reroute(Routes(net.wires, net.tree), mask)
    for _ in range(2):
        net.register()
    net.drop()
    net.commit(frozenset(dead))


@LAYOUTS
def test_a_split_network_serves_each_part(layout):
    topology = Topology(["s1", "s2", "s3"], [], [Link("s1", 1, "s2", 1), Link("s2", 2, "s3", 1)])
    net = layout(topology, 6, 3)
    rest = topology.without(down_links=[("s1", "s2")])
    net.tree = SpanningTree.shortest(rest, "s1")
    net.registrations.reroute(Routes(net.wires, net.tree))
    for _ in range(20):
        net.register()
    net.commit()
    assert not net.registrations.routes.whole


def test_a_dz_that_is_wanted_already_changes_nothing():
    net = Network(Random.build(switches=5, hosts=0, seed=1), 2, 0)
    r, (a, b) = net.registrations, net.leaves
    r.offer(a, [ROOT.key])
    r.want(b, [Dz.parse("10").key])
    assert r.changes()
    r.want(b, [Dz.parse("101").key])
    assert not r.changes()
    r.unwant(b, [Dz.parse("101").key])
    assert not r.changes()


@pytest.mark.parametrize("length", [0, 1, 61, 62, 63, 64, 65, 111, 112])
def test_dz_of_every_length_have_their_own_flows(length):
    net = Network(Random.build(switches=3, hosts=0, seed=1), 2, 0)
    r, (a, b) = net.registrations, net.leaves
    dz = Dz((1 << length) // 3, length)
    r.offer(a, [ROOT.key])
    r.want(b, [dz.key])
    found = {str(change.flow.match.cell) for changes in r.changes().first.values() for change in changes}
    assert found == {str(dz)}
    if length:
        other = Dz(dz.bits ^ 1, length)  # parts from it at the last bit
        r.want(b, [other.key])
        r.unwant(b, [dz.key])
        net.held = [(False, 0, ROOT), (True, 1, other)]
        r.changes()
        assert all(FlowTable(r.table(s)) == t for s, t in net.expected().items())


@LAYOUTS
def test_clients_beyond_the_width_of_the_masks(layout):
    """Masks grow while registrations, and changes that nobody asked for yet, are there."""
    net = layout(Random.build(switches=3, hosts=0, seed=1), 10, 0)
    for _ in range(20):
        net.register()
    net.commit()
    for i in range(10, 300):
        net.register()
        if i % 90 == 0:
            net.registrations.table("s1")
        net.places.append((net.random.choice(net.topology.switches), 1000 + i))
        net.leaves.append(net.wires.attach(*net.places[-1]))
    net.registrations.changes()
    for _ in range(60):
        net.register()
    net.registrations.changes()
    for switch, flows in net.expected().items():
        assert FlowTable(net.registrations.table(switch)) == flows


def test_clients_that_come_between_a_registration_and_its_changes():
    net = Network(Random.build(switches=3, hosts=0, seed=1), 2, 0)
    for _ in range(20):
        net.register()
    net.registrations.table("s1")  # registered, but nobody asked for changes
    before = net.wires.outs.shape[1]
    for i in range(200):
        net.wires.attach("s1", 1100 + i)
    assert net.wires.outs.shape[1] > before
    net.commit()
    while net.held:
        net.drop()
    for i in range(800):
        net.wires.attach("s2", 2100 + i)
    net.commit()
    assert not any(net.registrations.table(switch) for switch in net.topology.switches)


def test_what_is_not_registered_cannot_be_taken_back():
    net = Network(Random.build(switches=3, hosts=0, seed=1), 2, 0)
    net.registrations.want(net.leaves[0], [Dz.parse("10").key])
    net.registrations.unwant(net.leaves[0], [Dz.parse("11").key])
    with pytest.raises(KeyError, match="registered"):
        net.registrations.changes()


def test_wires_are_shared_and_their_numbers_used_again():
    wires = Wires(Random.build(switches=2, hosts=0, seed=0))
    first = wires.attach("s1", 1000)
    assert wires.attach("s1", 1000) == first
    wires.detach(first)
    assert list(wires.clients()) == [first]
    assert wires.ports(1 << first) == {1000}
    wires.detach(first)
    second = wires.attach("s2", 1001)
    assert second == first
    assert wires.ports(1 << second) == {1001}
    assert list(wires.switches(1 << second)) == ["s2"]


@pytest.mark.parametrize("text", ["", "*", "1", "0*1", "10**", "*" * 127 + "1"])
def test_cells_have_keys_that_tell_them_from_dz(text):
    cell = Cell.parse(text)
    assert Cell.of_key(cell.key) == cell
    assert Cell.of_key(Dz.parse("0101").key) == Dz.parse("0101")
    assert cell.key > Dz(0, 128).key


def test_keys_and_masks():
    assert Dz.of_key(Dz.parse("0101").key) == Dz.parse("0101")
    assert Dz.of_key(ROOT.key) == ROOT
    assert list(bits(0b10110)) == [1, 2, 4]


def topology_of(graph: nx.Graph) -> Topology:
    names = {node: f"s{i + 1}" for i, node in enumerate(graph)}
    ports = dict.fromkeys(names.values(), 0)
    links = []
    for a, b in graph.edges:
        a, b = names[a], names[b]
        ports[a] += 1
        ports[b] += 1
        links.append(Link(a, ports[a], b, ports[b]))
    return Topology(names.values(), [], links)


if __name__ == "__main__":
    pytest.main([__file__])
