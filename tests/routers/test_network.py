"""Routers on random graphs, in virtual time: everybody gets exactly what is wanted, once."""

import random
from dataclasses import replace

import msgspec
import networkx as nx
import numpy as np
import pytest

from sievenet.content import Attribute, Event, EventBatch, Filter, Record, Schema, Subscription, ValueSet
from sievenet.errors import InvalidInput, Rejected
from sievenet.routers.routing import Settings
from sievenet.routers.shipment import Shipment
from sievenet.routers.simulation import Network
from tests.seeds import seeds

SPACE = Schema("space", (Attribute("x", "int", lo=0, hi=99), Attribute("y", "int", lo=0, hi=99)))
LEASE = 8.0

VARIANTS = {
    "simple": Settings("simple", lease=LEASE),
    "identity": Settings("identity", lease=LEASE),
    "covering": Settings("covering", lease=LEASE),
    "merging": Settings("merging", lease=LEASE),
    "imperfect": Settings("merging", bound=0.3, lease=LEASE),
    "cbcb": Settings("cbcb", lease=LEASE),
    "cbcb-asking": Settings("cbcb", lease=LEASE, ask_every=LEASE / 2),
    "bdrp": Settings("bdrp", lease=LEASE),
    "edge": Settings("edge", lease=LEASE),
    "edge-narrow": Settings("edge", lease=LEASE, width=64, height=8),
    "edge-advertised": Settings("edge", advertisements=True, lease=LEASE),
    "simple-advertised": Settings("simple", advertisements=True, lease=LEASE),
    "covering-advertised": Settings("covering", advertisements=True, lease=LEASE),
    "merging-advertised": Settings("merging", advertisements=True, lease=LEASE),
    "covering-lean": Settings("covering", forest="lean", lease=LEASE),
    "merging-balanced": Settings("merging", forest="balanced", lease=LEASE),
}


def graph(seed, routers=8, extra=5):
    """A random connected graph with cycles."""
    rng = random.Random(seed)
    tree = nx.random_labeled_tree(routers, seed=seed)
    links = {tuple(sorted(e)) for e in tree.edges}
    while len(links) < routers - 1 + extra:
        links.add(tuple(sorted(rng.sample(range(routers), 2))))
    return [(f"r{a}", f"r{b}") for a, b in sorted(links)]


def box(rng):
    sides = {}
    for name in ("x", "y"):
        if rng.random() < 0.8:
            # On a coarse grid filters meet, nest and repeat.
            lo, hi = sorted(rng.sample(range(0, 101, 10), 2))
            sides[name] = ValueSet.interval(lo, hi - 1)
    return Filter(SPACE, sides)


def wish(rng):
    return Subscription([box(rng) for _ in range(rng.choice((1, 1, 2)))])


class World:
    """A network, its clients, and what each of them should get."""

    def __init__(self, settings, seed, routers=8):
        self.rng = random.Random(seed)
        self.network = Network(graph(seed, routers), settings, seed=seed)
        self.network.run(1.0)
        self.wishes = {}
        self.numbers = 0
        self.clients = 0

    def attach(self, router=None):
        self.clients += 1
        name = f"c{self.clients}"
        self.network.attach(name, router or self.rng.choice(sorted(self.network.routers)))
        self.wishes[name] = {}
        # Everybody may publish anything.
        self.network.advertise(name, 0, Subscription([Filter(SPACE)]))
        return name

    def churn(self, steps):
        for _ in range(steps):
            name = self.rng.choice(sorted(self.wishes))
            mine = self.wishes[name]
            if mine and self.rng.random() < 0.45:
                number = self.rng.choice(sorted(mine))
                del mine[number]
                self.network.unsubscribe(name, number)
            else:
                self.numbers += 1
                mine[self.numbers] = wish(self.rng)
                self.network.subscribe(name, self.numbers, mine[self.numbers])
            if self.rng.random() < 0.3:
                self.network.run(self.rng.random() * 0.1)

    def check(self, events=60):
        """Publish from several places; exactly those who want an event get it, once."""
        network = self.network
        network.delivered.clear()
        expected = {name: [] for name in self.wishes}
        for publisher in self.rng.sample(sorted(self.wishes), min(5, len(self.wishes))):
            points = [Event(SPACE, (self.rng.randrange(100), self.rng.randrange(100))) for _ in range(events)]
            named = network.publish(publisher, EventBatch.from_events(SPACE, points))
            for name, mine in self.wishes.items():
                wanted = [w for w in mine.values() if w.filters]
                expected[name] += [n for n, e in zip(named, points, strict=True) if any(w.matches(e) for w in wanted)]
        network.drain()
        for name, names in expected.items():
            assert sorted(network.delivered.get(name, [])) == sorted(names), name
        return sum(map(len, expected.values()))


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("seed", seeds(1, 2))
def test_exact_delivery_under_churn(name, seed):
    """No loss, no crash: once settled, exact."""
    world = World(VARIANTS[name], seed)
    for _ in range(10):
        world.attach()
    total = 0
    for _ in range(3):
        world.churn(25)
        for client in world.wishes:
            assert world.network.settle(client)
        total += world.check()
    assert total > 100
    # Everybody takes everything back; nothing is left in the tables.
    for client in sorted(world.wishes):
        world.network.detach(client)
    world.network.run(1.5 * LEASE)
    assert world.network.totals()["table"] == 0


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("seed", seeds(1))
def test_stable_subscribers_miss_nothing_while_others_come_and_go(name, seed):
    """Covering filters that vanish uncover what they covered, without a gap."""
    world = World(VARIANTS[name], seed)
    steady = [world.attach() for _ in range(4)]
    fickle = [world.attach() for _ in range(6)]
    network, rng = world.network, world.rng
    mine = {}
    for number, client in enumerate(steady):
        mine[client] = wish(rng)
        network.subscribe(client, number, mine[client])
        assert network.settle(client)
    expected = {client: [] for client in steady}
    numbers = {}
    for step in range(120):
        client = rng.choice(fickle)
        if client in numbers:
            network.unsubscribe(client, numbers.pop(client))
        else:
            numbers[client] = 1000 + step
            wide = Subscription([Filter(SPACE)]) if rng.random() < 0.4 else wish(rng)
            network.subscribe(client, numbers[client], wide)
        event = Event(SPACE, (rng.randrange(100), rng.randrange(100)))
        (named,) = network.publish(rng.choice(steady), EventBatch.from_events(SPACE, [event]))
        for each in steady:
            if mine[each].matches(event):
                expected[each].append(named)
        network.run(rng.random() * 0.02)
    network.drain()
    for client in steady:
        assert sorted(network.delivered.get(client, [])) == sorted(expected[client])
    assert sum(map(len, expected.values())) > 50


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("seed", seeds(1, 2))
def test_heals_after_loss_and_crashes(name, seed):
    """A quarter of all messages is lost, routers crash and come back: exact again after a lease or two."""
    world = World(VARIANTS[name], seed)
    network, rng = world.network, world.rng
    for _ in range(10):
        world.attach()
    network.loss = 0.25
    for round in range(3):
        world.churn(15)
        victim = rng.choice(sorted(network.routers))
        gone = [c for c, home in network._homes.items() if home == victim]
        network.crash(victim)
        for client in gone:
            del world.wishes[client]
        world.churn(5)
        network.run(rng.random() * LEASE)
        if round != 1 or not nx.is_connected(nx.Graph(network.links).subgraph(network.routers)):
            network.start(victim)
        world.attach()
        world.churn(5)
    network.loss = 0.0
    network.run(2.5 * LEASE)
    world.check()
    assert network.totals()["repeated"] >= 0
    world.churn(10)
    for client in world.wishes:
        assert network.settle(client)
    world.check()


def test_no_event_circles():
    """On a graph full of cycles, every router handles an event once at most."""
    names = [f"r{i}" for i in range(6)]
    links = [(a, b) for a in names for b in names if a < b]
    for settings in (VARIANTS["covering"], VARIANTS["cbcb"], VARIANTS["bdrp"]):
        network = Network(links, settings, seed=5)
        network.run(1.0)
        for i, name in enumerate(names):
            network.attach(f"c{i}", name)
            network.subscribe(f"c{i}", 1, Subscription([Filter(SPACE)]))
            assert network.settle(f"c{i}")
        named = network.publish("c0", EventBatch.from_events(SPACE, [Event(SPACE, (1, 1))]))
        network.drain()
        assert all(network.delivered[f"c{i}"] == named for i in range(6))
        assert network.totals()["events"] == 6
        assert network.totals()["repeated"] == 0


def test_covering_tells_less_than_identity_than_simple():
    sizes = {}
    for name in ("simple", "identity", "covering", "merging"):
        network = Network(graph(11), VARIANTS[name], seed=11)
        network.run(1.0)
        rng = random.Random(11)
        for client in range(10):
            network.attach(f"c{client}", f"r{client % 8}")
            for number in range(12):
                # Cells of a grid, some of them halved: equal, nested and adjacent ones are frequent.
                x, y = 10 * rng.randrange(5), 10 * rng.randrange(3)
                sides = {"x": ValueSet.interval(x, x + rng.choice((4, 9))), "y": ValueSet.interval(y, y + 9)}
                network.subscribe(f"c{client}", number, Subscription([Filter(SPACE, sides)]))
        network.run(1.0)
        sizes[name] = network.totals()["table"]
    assert sizes["simple"] > sizes["identity"] > sizes["covering"] > sizes["merging"]


def test_advertisements_keep_subscriptions_away():
    """A subscription goes only where an overlapping advertisement came from."""
    settings = Settings("covering", advertisements=True, lease=LEASE)
    network = Network([("a", "b"), ("b", "c"), ("b", "d")], settings)
    network.run(1.0)
    low = Subscription([Filter(SPACE, {"x": ValueSet.interval(0, 49)})])
    high = Subscription([Filter(SPACE, {"x": ValueSet.interval(50, 99)})])
    for name in "acd":
        network.attach(f"at-{name}", name)
    network.advertise("at-c", 1, low)
    network.advertise("at-d", 1, high)
    network.run(1.0)
    network.subscribe("at-a", 1, low)
    network.run(1.0)
    category = network.routers["c"].register(SPACE)
    at_b = network.routers["b"].explain(category, low.filters[0])
    assert at_b["neighbours"]["c"] == "forwarded"
    assert at_b["neighbours"]["d"] == "not forwarded: no advertisement from there overlaps it"
    assert network.routers["d"].routing.size() == 2  # two advertisements, c's and its own; no subscription
    (named,) = network.publish("at-c", EventBatch.from_events(SPACE, [Event(SPACE, (7, 7))]))
    network.drain()
    assert network.delivered == {"at-a": [named]}


def test_sender_requests_undo_inflation():
    """After an unsubscription CBCB's predicates are too wide, until a sender request."""
    settings = Settings("cbcb", lease=LEASE)
    network = Network([("a", "b"), ("b", "c")], settings)
    network.run(1.0)
    network.attach("s", "c")
    network.attach("p", "a")
    network.subscribe("s", 1, Subscription([Filter(SPACE)]))
    network.run(0.2)
    network.unsubscribe("s", 1)
    network.run(0.2)
    event = EventBatch.from_events(SPACE, [Event(SPACE, (1, 1))])
    network.publish("p", event)
    network.drain()
    assert network.totals()["forwarded"] == 2
    assert network.totals()["false_positives"] == 1
    router = network.routers["a"]
    router.routing.ask()
    network.run(1.0)
    network.publish("p", event)
    network.drain()
    assert network.totals()["forwarded"] == 2
    # A subscription made while a request is under way is not lost with it.
    router.routing.ask()
    network._do("a", router._flush())
    network.subscribe("s", 2, Subscription([Filter(SPACE)]))
    network.run(1.0)
    network.delivered.clear()
    named = network.publish("p", event)
    network.drain()
    assert network.delivered == {"s": named}


def test_ingress_filtering_drops_what_is_covered():
    network = Network([("a", "b"), ("b", "c"), ("c", "d")], Settings("cbcb", lease=LEASE))
    network.run(1.0)
    wide, narrow = Filter(SPACE), Filter(SPACE, {"x": ValueSet.of(3)})
    network.attach("wide", "a")
    network.attach("narrow", "b")
    network.subscribe("wide", 1, Subscription([wide]))
    assert network.settle("wide")
    before = network.totals()["Receivers"]
    network.subscribe("narrow", 1, Subscription([narrow]))
    assert network.settle("narrow")
    # b tells a and c; c drops it, since what a wants comes the same way and covers it.
    assert network.totals()["Receivers"] == before + 2
    assert network.routers["c"].routing.dropped == 1


@pytest.mark.parametrize("name", ["simple", "covering", "merging", "cbcb", "bdrp", "edge"])
def test_schemaless_records(name):
    network = Network(graph(9), VARIANTS[name], seed=9)
    network.run(1.0)
    wanted = {
        "c0": Filter(None, {"price": ValueSet.interval(10, 20)}),
        "c1": Filter(None, {"name": ValueSet.prefix("IB")}),
        "c2": Filter(None),
    }
    for i, (client, f) in enumerate(wanted.items()):
        network.attach(client, f"r{i * 2}")
        network.subscribe(client, 1, Subscription([f]))
        assert network.settle(client)
    network.attach("p", "r7")
    records = [Record({"price": 15}), Record({"name": "IBM", "price": 99.5}), Record({"other": True}), Record({})]
    named = network.publish("p", records)
    network.drain()
    for client, f in wanted.items():
        assert network.delivered.get(client, []) == [n for n, r in zip(named, records, strict=True) if f.matches(r)]


def test_names_and_contents_are_checked():
    network = Network([("a", "b")])
    network.attach("x", "a")
    with pytest.raises(Rejected, match="taken"):
        network.attach("x", "a")
    network.subscribe("x", 1, Subscription([Filter(SPACE)]))
    network.subscribe("x", 1, Subscription([Filter(SPACE)]))
    with pytest.raises(Rejected, match="other content"):
        network.subscribe("x", 1, Subscription([Filter(SPACE, {"x": ValueSet.of(1)})]))
    network.unsubscribe("x", 99)
    with pytest.raises(InvalidInput, match="one of simple"):
        Settings("magic")
    with pytest.raises(InvalidInput, match="lease"):
        Settings(lease=0)
    with pytest.raises(InvalidInput, match="bound"):
        Settings(bound=1.5)
    with pytest.raises(InvalidInput, match="width"):
        Settings("edge", width=100)
    with pytest.raises(InvalidInput, match="height"):
        Settings("edge", height=7)


def test_edge_routing_matches_once_and_bits_do_the_rest():
    """Routers on the way hold no filter in their matcher; narrow bits cost hops, not wrong deliveries."""
    counted = {}
    for width in (16, 1024):
        network = Network([("a", "b"), ("b", "c"), ("b", "d")], Settings("edge", lease=LEASE, width=width), seed=3)
        network.run(1.0)
        rng = random.Random(3)
        for client, home in (("p", "a"), ("s", "c"), ("t", "d")):
            network.attach(client, home)
        for number in range(40):
            x, y = 10 * rng.randrange(10), 10 * rng.randrange(10)
            sides = {"x": ValueSet.interval(x, x + 9), "y": ValueSet.interval(y, y + 9)}
            network.subscribe(rng.choice("st"), number, Subscription([Filter(SPACE, sides)]))
        assert network.settle("s")
        assert network.settle("t")
        assert not len(network.routers["b"]._context.forwarding(network.routers["b"].register(SPACE)))
        points = [Event(SPACE, (rng.randrange(100), rng.randrange(100))) for _ in range(200)]
        network.publish("p", EventBatch.from_events(SPACE, points))
        network.drain()
        counted[width] = network.totals()
    assert counted[16]["delivered"] == counted[1024]["delivered"] > 50
    assert counted[16]["false_positives"] > counted[1024]["false_positives"]
    # Bits of another width, or of events that lack them, go nowhere.
    router = network.routers["b"]
    shipment = Shipment.publish("a", 9, router.register(SPACE), 0, 0, EventBatch.from_events(SPACE, points[:2]))
    before = network.totals()["forwarded"]
    for bits in (None, np.zeros((2, 3), np.uint8)):
        message = replace(shipment, bits=bits, sequences=shipment.sequences + 10 * (bits is None)).message()
        network._do("b", router.receive("a", message, network.now))
    assert network.totals()["forwarded"] == before
    odd = msgspec.structs.replace(shipment.message(), bits=b"xyz")
    network._do("b", router.receive("a", odd, network.now))
    assert network.routers["b"].counts.malformed == 1
