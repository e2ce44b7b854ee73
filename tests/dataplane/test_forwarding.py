"""Forwarding: what is remembered must never be wrong, whatever changes in between."""

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievenet.dataplane import Packet, Simulator, classes, forwarding, trace
from sievenet.errors import InvalidInput
from sievenet.index import CODE_BITS, Cell, Dz
from sievenet.index.code import word_arrays as words
from sievenet.network import (
    Add,
    Attachment,
    Delete,
    Flow,
    Line,
    LinkSettings,
    Match,
    Modify,
    Random,
    Ring,
    SpanningTree,
    Star,
    parse_topology,
)
from tests.seeds import examples, seeds

BITS = 4
CODES = [code << (CODE_BITS - BITS) for code in range(1 << BITS)]

dzs = st.integers(0, BITS).flatmap(lambda n: st.builds(Dz, st.integers(0, (1 << n) - 1), st.just(n)))


@st.composite
def cells(draw):
    mask = draw(st.integers(0, (1 << BITS) - 1))
    return Cell(draw(st.integers(0, (1 << BITS) - 1)) & mask, mask, BITS)


def reached(sim, client, category, code):
    """Who gets a packet, by looking at every flow of every table."""
    clients = {Attachment(a.switch, a.port): name for name, a in sim.clients().items()}
    place = sim.clients()[client].attachment
    switches, links = sim.down()
    way = trace(
        sim.topology,
        lambda s: sim.forwarding.switches[s].table(),
        clients,
        place,
        category,
        code,
        down_switches=switches,
        down_links=links,
    )
    return sorted(name for name in way.reached if name in sim.clients())


class Net:
    """A simulator whose clients keep what they get."""

    def __init__(self, topology, clients, **options):
        self.sim = Simulator(topology, **options)
        self.got = []
        for name, host in clients.items():
            self.attach(name, host)

    def attach(self, name, host):
        self.sim.attach_now(host, name)
        self.sim.listen(name, lambda _packet, name=name: self.got.append(name))

    def deliver(self, client, category, code):
        self.got.clear()
        self.sim.send(client, Packet(category, code, 1, 1, 0))
        self.sim.run()
        return sorted(self.got)


flow_changes = st.builds(
    lambda kind, category, cell, ports, in_port, table: kind(
        Flow(Match(category, cell), ports, 4 if in_port else getattr(cell, "length", 2), in_port, table)
    ),
    st.sampled_from([Add, Add, Delete]),
    st.integers(1, 2),
    dzs | dzs | cells(),
    st.frozensets(st.sampled_from([1, 2, 3, 1000, 1001]), max_size=3),
    st.none() | st.none() | st.just(1),
    st.sampled_from([0, 0, 1, 2]),
)
steps = st.one_of(
    st.tuples(st.just("change"), st.sampled_from(["s1", "s2", "s3"]), flow_changes),
    st.tuples(st.just("send"), st.sampled_from(["a", "b", "c"]), st.integers(1, 2), st.sampled_from(CODES)),
    st.tuples(st.just("send"), st.sampled_from(["a", "b", "c"]), st.integers(1, 2), st.sampled_from(CODES)),
    st.tuples(st.just("link"), st.sampled_from([("s1", "s2"), ("s2", "s3"), ("s1", "s3")]), st.booleans()),
    st.tuples(st.just("switch"), st.sampled_from(["s1", "s2", "s3"]), st.booleans(), st.booleans()),
    st.tuples(st.just("leave"), st.sampled_from(["b", "c"])),
)


@settings(max_examples=examples(150))
@given(st.lists(steps, max_size=40))
def test_remembered_walks_are_never_wrong(sequence):
    net = Net(Ring.build(switches=3), {"a": "h1", "b": "h2", "c": "h3"})
    sim = net.sim
    homes = {"b": "h2", "c": "h3"}
    for step in sequence:
        match step:
            case ("change", switch, change):
                if switch not in sim.down()[0]:
                    sim.apply_now(switch, [change])
            case ("send", client, category, code):
                if client in sim.clients():
                    assert net.deliver(client, category, code) == reached(sim, client, category, code)
            case ("link", ends, up):
                (sim.link_up if up else sim.link_down)(*ends)
            case ("switch", switch, up, keep):
                sim.switch_up(switch) if up else sim.switch_down(switch, keep_table=keep)
            case ("leave", client):
                if client in sim.clients():
                    sim.detach_now(client)
                elif "s" + client not in sim.down()[0] and not sim.down()[0]:
                    net.attach(client, homes[client])


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from([Add, Delete]), dzs), min_size=20, max_size=60), st.randoms())
def test_sweeping_boundaries_changes_nothing(changes, rng):
    few = classes.FEW_BOUNDARIES
    classes.FEW_BOUNDARIES = 3
    try:
        net = Net(Line.build(switches=2), {"a": "h1", "b": "h2"})
        port = net.sim.clients()["b"].port
        net.sim.apply_now("s1", [Add(Flow.of(1, Dz(0, 0), net.sim.topology.port("s1", "s2")))])
        for kind, dz in changes:
            net.sim.apply_now("s2", [kind(Flow.of(1, dz, port))])
            code = rng.choice(CODES)
            assert net.deliver("a", 1, code) == reached(net.sim, "a", 1, code)
    finally:
        classes.FEW_BOUNDARIES = few


def test_a_narrow_change_leaves_other_walks_alone():
    net = Net(Line.build(switches=2), {"a": "h1", "b": "h1"})
    port = net.sim.clients()["b"].port
    net.sim.apply_now("s1", [Add(Flow.of(1, Dz(i, 8), port)) for i in range(256)])
    for i in range(256):
        assert net.deliver("a", 1, i << 120) == ["b"]
    walks = net.sim.port_of("a").walks
    assert len(walks) == 256
    net.sim.apply_now("s1", [Delete(Flow.of(1, Dz(7, 8), port))])
    assert len(walks) == 255
    net.sim.apply_now("s1", [Delete(Flow.of(1, Dz(9, 8), port)), Add(Flow.of(1, Dz(0, 0), port))])
    assert len(walks) == 0
    assert net.deliver("a", 1, 7 << 120) == ["b"]


def test_walks_are_bounded(monkeypatch):
    monkeypatch.setattr(forwarding, "_MAX_WALKS", 8)
    net = Net(Line.build(switches=1), {"a": "h1", "b": "h1"})
    port = net.sim.clients()["b"].port
    net.sim.apply_now("s1", [Add(Flow.of(1, Dz(i, 6), port)) for i in range(64)])
    for i in range(64):
        assert net.deliver("a", 1, i << 122) == ["b"]
        assert len(net.sim.port_of("a").walks) <= 8
    # What was forgotten had been counted.
    assert sum(c.packets for c in net.sim.counters_now("s1").flows.values()) == 64


def circle(link):
    net = Net(Ring.build(switches=3, link=link), {"a": "h1", "b": "h2"})
    top = net.sim.topology
    for here, there in (("s1", "s2"), ("s2", "s3"), ("s3", "s1")):
        ports = {top.port(here, there)} | ({net.sim.clients()["b"].port} if here == "s2" else set())
        net.sim.apply_now(here, [Add(Flow.of(1, Dz(0, 0), *ports))])
    return net


def test_circles_end():
    assert circle(LinkSettings()).deliver("a", 1, 0) == ["b"]
    net = circle(LinkSettings(delay=0.001))
    assert len(net.deliver("a", 1, 0)) >= 1
    assert net.sim.forwarding.looped == 1
    assert net.sim.now < 1


def test_too_many_packets_under_way_are_dropped(monkeypatch):
    monkeypatch.setattr(forwarding, "MAX_IN_FLIGHT", 5)
    net = Net(Line.build(switches=1, link=LinkSettings(delay=1.0)), {"a": "h1", "b": "h1"})
    net.sim.apply_now("s1", [Add(Flow.of(1, Dz(0, 0), net.sim.clients()["b"].port))])
    net.sim.send_many("a", [Packet(1, 0, 1, i, 0) for i in range(9)])
    net.sim.run()
    assert len(net.got) == 5
    assert net.sim.forwarding.overflowed == 4
    assert net.sim.counters_now("s1").ports[net.sim.clients()["a"].port].dropped == 4


def test_nobody_listening_is_a_drop():
    for link in (LinkSettings(), LinkSettings(delay=0.1)):
        sim = Simulator(Star.build(arms=2, link=link))
        a, b = sim.attach_now("h1", "a"), sim.attach_now("h1", "b")
        sim.apply_now("s2", [Add(Flow.of(1, Dz(0, 0), b.port))])
        sim.send("a", Packet(1, 0, 1, 1, 0))
        sim.run()
        counters = sim.counters_now("s2").ports
        assert counters[b.port].dropped == 1
        assert counters[a.port].received.packets == 1


def test_packets_under_way_die_with_their_link_and_their_sender():
    net = Net(Line.build(switches=2, link=LinkSettings(delay=1.0)), {"a": "h1", "b": "h2"})
    top = net.sim.topology
    net.sim.apply_now("s1", [Add(Flow.of(1, Dz(0, 0), top.port("s1", "s2")))])
    net.sim.apply_now("s2", [Add(Flow.of(1, Dz(0, 0), net.sim.clients()["b"].port))])
    net.sim.send("a", Packet(1, 0, 1, 1, 0))
    net.sim.run(until=1.5)
    net.sim.link_down("s1", "s2")
    net.sim.run()
    assert net.got == []
    assert net.sim.forwarding.link_pipes("s1", "s2")[0].lost == 1
    net.sim.link_up("s1", "s2")
    net.sim.send("a", Packet(1, 0, 1, 2, 0))
    net.sim.detach_now("a")
    net.sim.run()
    assert net.got == []
    net.sim.link_down("h2", "s2")
    net.attach("a", "h1")
    assert net.deliver("a", 1, 0) == []


# -- batches ---------------------------------------------------------------------------------------


def loaded(seed, link=None, masked=False, **options):
    """A random network with random subscriptions along a tree; with masks, in a table per port."""
    rng = random.Random(seed)
    topology = Random.build(switches=12, hosts=24, degree=3, seed=seed, link=link or LinkSettings())
    net = Net(topology, {f"c{h}": h for h in topology.hosts}, seed=seed, **options)
    tree = SpanningTree.shortest(topology)
    wanted = {s: {} for s in topology.switches}
    for client in net.sim.clients().values():
        dz = Dz(rng.getrandbits(n), n) if (n := rng.randint(0, BITS)) else Dz(0, 0)
        for switch in topology.switches:
            port = client.port if switch == client.switch else tree.next_port(switch, client.switch)
            wanted[switch].setdefault(dz, set()).add(port)
        if masked:
            cell = Cell.parse("".join(rng.choice("01***") for _ in range(BITS)))
            for switch in topology.switches:
                port = client.port if switch == client.switch else tree.next_port(switch, client.switch)
                flow = Flow(Match(1, cell), frozenset({port}), cell.checked, table=port)
                net.sim.apply_now(switch, [Add(flow)])
    for switch, by_dz in wanted.items() if not masked else ():
        for dz in by_dz:
            ports = set().union(*(p for other, p in by_dz.items() if other.covers(dz)))
            net.sim.apply_now(switch, [Add(Flow.of(1, dz, *ports))])
    return net


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("seed", seeds(4))
def test_batches_fare_like_packets(seed, masked):
    one, many = loaded(seed, masked=masked), loaded(seed, masked=masked)
    if seed % 2:
        for net in (one, many):
            net.sim.link_down(*net.sim.topology.links[0].id)
            net.sim.switch_down("s3")
    rng = random.Random(seed)
    codes = [rng.choice(CODES) | rng.getrandbits(60) for _ in range(200)]
    senders = [rng.choice(list(one.sim.clients())) for _ in codes]
    expected = [one.deliver(sender, 1, code) for sender, code in zip(senders, codes, strict=True)]
    deliveries = many.sim.send_batch(senders, 1, *words(codes), size=Packet(1, 0, 0, 0, 0).size)
    names = {(a.switch, a.port): name for name, a in many.sim.clients().items()}
    got = [[] for _ in codes]
    for row, port in zip(deliveries.row.tolist(), deliveries.port.tolist(), strict=True):
        got[row].append(names[deliveries.ports[port]])
    assert [sorted(g) for g in got] == expected
    for switch in one.sim.topology.switches:
        assert one.sim.counters_now(switch) == many.sim.counters_now(switch)
    by_port = deliveries.by_port()
    assert sum(map(len, by_port.values())) == len(deliveries)


def test_batches_see_changes_and_sum_up_delays():
    net = loaded(1, link=LinkSettings(delay=0.5))
    hi, lo = words(CODES * 4)
    first = net.sim.send_batch("ch1", 1, hi, lo)
    assert len(first) > 0
    times = []
    net.sim.listen("ch5", lambda packet: times.append(net.sim.now))
    place = net.sim.clients()["ch5"].attachment
    delays = {d for p, d in zip(first.port, first.delay, strict=True) if first.ports[p] == place}
    for code in CODES:
        net.sim.send("ch1", Packet(1, code, 1, 1, 0))
    net.sim.run()
    assert {round(t, 9) for t in times} == {round(float(d), 9) for d in delays}
    assert len(net.sim.send_batch("ch1", 2, hi, lo)) == 0  # nobody wants that category
    for switch in net.sim.topology.switches:
        net.sim.apply_now(switch, [Delete(f) for f in net.sim.table_now(switch)])
    assert len(net.sim.send_batch("ch1", 1, hi, lo)) == 0
    assert net.sim.send_batch("ch1", 1, hi, lo).by_port() == {}


def test_batches_lose_their_share():
    sim = Simulator(Line.build(switches=1, link=LinkSettings(loss=0.25)), seed=3)
    sim.attach_now("h1", "a")
    b = sim.attach_now("h1", "b")
    sim.apply_now("s1", [Add(Flow.of(1, Dz(0, 0), b.port))])
    hi = np.zeros(20_000, np.uint64)
    got = sim.send_batch("a", 1, hi, hi)
    assert 0.54 < len(got) / 20_000 < 0.585  # 0.75 into the switch, 0.75 out of it
    assert len(sim.send_batch("a", 1, hi, hi)) != len(got)
    counters = sim.counters_now("s1")
    assert (
        counters.ports[b.port].sent.packets + counters.ports[b.port].dropped
        == next(iter(counters.flows.values())).packets
    )


def test_masks_come_and_go_and_so_do_signatures():
    net = Net(Line.build(switches=1), {"a": "h1", "b": "h1"})
    port = net.sim.clients()["b"].port
    wide, narrow = Flow.of(1, Dz.parse("1"), port), Flow(Match(1, Cell.parse("*1")), frozenset({port}), 1, table=port)
    net.sim.apply_now("s1", [Add(wide)])
    assert net.sim.forwarding.signatures(1) is None
    net.sim.apply_now("s1", [Add(narrow)])
    assert net.sim.forwarding.signatures(1) is not None
    assert [net.deliver("a", 1, code << 126) for code in range(4)] == [[], ["b"], ["b"], ["b"]]
    net.sim.apply_now("s1", [Delete(narrow)])
    assert net.sim.forwarding.signatures(1) is None
    assert [net.deliver("a", 1, code << 126) for code in range(4)] == [[], [], ["b"], ["b"]]


@pytest.mark.parametrize("seed", seeds(3))
def test_flows_under_masks_that_change(seed, monkeypatch):
    """Flows come, go and get other ports, so often that what is gone is swept; some ask for an in-port."""
    monkeypatch.setattr("sievenet.dataplane.signatures.FEW_BOUNDARIES", 8)
    rng = random.Random(seed)
    net = Net(Line.build(switches=3), {"a": "h1", "b": "h1", "c": "h2", "d": "h3"})
    sim, clients = net.sim, net.sim.clients()
    names = {client.attachment: name for name, client in clients.items()}
    counted = Counter()
    for step in range(120):
        switch = rng.choice(sim.topology.switches)
        held = list(sim.table_now(switch))
        ports = [*sim.topology.ports(switch), *(c.port for c in clients.values() if c.switch == switch)]
        cell, port = Cell.parse("".join(rng.choice("01**") for _ in range(BITS))), rng.choice(ports)
        new = Flow(Match(1, cell), frozenset({port}), cell.checked, table=port)
        if step % 10 == 0:
            new = Flow(Match(1, cell), frozenset(rng.sample(ports, 2)), rng.randrange(6))
        if step == 100 and seed:
            new = Flow(Match(1, cell), frozenset({port}), cell.checked, rng.choice(ports))
        changes = [Add(new), *(Delete(flow) for flow in held if rng.random() < 0.2)]
        changes += [Modify(Flow(f.match, frozenset({port}), f.priority)) for f in held if not (f.table or f.in_port)]
        sim.apply_now(switch, changes)
        for _ in range(6):
            sender, code = rng.choice(list(clients)), rng.choice(CODES)
            found = trace(sim.topology, sim.table_now, names, clients[sender].attachment, 1, code)
            assert net.deliver(sender, 1, code) == reached(sim, sender, 1, code)
            counted.update(hop.switch for hop in found.hops if not hop.flows)
    assert {s: sim.counters_now(s).unmatched for s in sim.topology.switches} == {
        s: counted[s] for s in sim.topology.switches
    }


def test_batches_cut_circles():
    net = circle(LinkSettings())
    hi = np.zeros(10, np.uint64)
    assert len(net.sim.send_batch("a", 1, hi, hi)) == 10
    assert net.sim.forwarding.looped == 10
    net.sim.apply_now("s1", [Add(Flow(Match(1, Cell.parse("*1")), frozenset(), 1))])  # classes instead of intervals
    assert len(net.sim.send_batch("a", 1, hi, hi)) == 10
    assert net.sim.forwarding.looped == 20
    with pytest.raises(InvalidInput, match="one length"):
        net.sim.send_batch("a", 2, hi, hi[:3])


def test_batches_respect_in_ports():
    sim = Simulator(Line.build(switches=1))
    a, b, c = (sim.attach_now("h1", name) for name in "abc")
    sim.apply_now(
        "s1", [Add(Flow(Match(1, Dz(0, 0)), frozenset({c.port}), 9, a.port)), Add(Flow.of(1, Dz(1, 1), b.port))]
    )
    hi, lo = words([0, 1 << 127])
    assert {p: r.tolist() for p, r in sim.send_batch("a", 1, hi, lo).by_port().items()} == {("s1", c.port): [0, 1]}
    assert {p: r.tolist() for p, r in sim.send_batch("c", 1, hi, lo).by_port().items()} == {("s1", b.port): [1]}


def test_a_large_network_runs_in_batches():
    topology = parse_topology("random,switches=300,hosts=4400,seed=2")
    sim = Simulator(topology)
    tree = SpanningTree.shortest(topology)
    clients = [sim.attach_now(host, host) for host in topology.hosts[::40]]
    for i, client in enumerate(clients):
        dz = Dz(i % 128, 7)
        for switch in tree.path(clients[0].switch, client.switch):
            port = client.port if switch == client.switch else tree.next_port(switch, client.switch)
            known = {f.match.cell: f.ports for f in sim.table_now(switch)}
            sim.apply_now(switch, [Add(Flow.of(1, dz, port, *known.get(dz, ())))])
    hi = np.arange(2000, dtype=np.uint64) << np.uint64(53)
    got = sim.send_batch("h1", 1, hi, np.zeros(2000, np.uint64))
    by_port = got.by_port()
    for i, client in enumerate(clients[1:], 1):
        want = [r for r in range(2000) if (r << 53) >> 57 == i % 128]
        assert by_port.get((client.switch, client.port), np.zeros(0)).tolist() == want
