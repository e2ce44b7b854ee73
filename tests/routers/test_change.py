"""While the overlay changes, events reach every settled subscriber to whom there is a way, exactly once.

The property, for every scheme: an event arrives exactly once at each client that wants it, if its subscription and the
publisher's advertisement had settled before, and some path between both was up since before the earlier of the two and
stays up. Routers join, die and return, links break and come back, subscriptions and advertisements come and go
meanwhile; delays and interleavings are random.
"""

import random
from dataclasses import dataclass, field

import networkx as nx
import pytest

from sievenet.content import Event, EventBatch, Filter, Subscription
from sievenet.routers.overlay import MEMORY
from sievenet.routers.routing import Settings
from sievenet.routers.simulation import Network
from tests.routers.test_network import LEASE, SPACE, box
from tests.routers.test_network import VARIANTS as STEADY
from tests.seeds import seeds

EVERYTHING = Subscription([Filter(SPACE)])

#: As in a network that stays; and some in which more goes wrong.
COMMON = ("simple", "identity", "covering", "merging", "imperfect", "cbcb", "bdrp", "edge")
ADVERTISED = ("edge-advertised", "simple-advertised", "covering-advertised")
VARIANTS = {
    **{name: STEADY[name] for name in (*COMMON, *ADVERTISED)},
    "cbcb-asking": Settings("cbcb", lease=LEASE, ask_every=LEASE / 40),
    "bdrp-narrow": Settings("bdrp", lease=LEASE, width=32),
    "edge-bftree": STEADY["edge-narrow"],
    "imperfect-advertised": Settings("merging", bound=0.3, advertisements=True, lease=LEASE),
}


@dataclass
class Wish:
    """A subscription or advertisement: when it was made, and when it had settled."""

    client: str
    number: int
    wanted: Subscription
    made: float
    wave: int
    settled: float | None = None


@dataclass
class Client:
    name: str
    router: str
    life: int
    offers: bool
    wishes: dict[int, Wish] = field(default_factory=dict)


class Storm:
    """A network that never rests, and the oracle."""

    def __init__(self, settings, seed, routers=7):
        self.rng = random.Random(seed)
        names = [f"r{i}" for i in range(routers)]
        tree = nx.random_labeled_tree(routers, seed=seed)
        self.possible = {tuple(sorted(f"r{n}" for n in e)) for e in tree.edges}
        extra = self.rng.choice((1, 3, 6))
        while len(self.possible) < routers + extra:
            self.possible.add(tuple(sorted(self.rng.sample(names, 2))))
        slow = self.rng.choice((0.005, 0.02, 0.05))
        self.network = Network(self.possible, settings, seed=seed, delay=(0.001, slow))
        #: Since when each link is up, at both ends.
        self.up = dict.fromkeys(self.possible, 0.0)
        #: Seconds between steps, at most: some storms give the network time to be ready, some do not.
        self.pace = self.rng.choice((0.01, 0.03, 0.1))
        self.clients: dict[str, Client] = {}
        self.numbers = 0
        self.lives = dict.fromkeys(names, 0)
        #: (client, event) → when it was published and from where; must arrive, unless a needed link breaks before.
        self.due: dict[tuple[str, tuple[int, int]], tuple[float, str, str, float]] = {}
        self.wanted: set[tuple[str, tuple[int, int]]] = set()
        self.network.run(1.0)

    # -- what happens ---------------------------------------------------------------------

    def attach(self, offers=True):
        name = f"c{len(self.clients)}"
        router = self.rng.choice(sorted(self.network.routers))
        self.network.attach(name, router)
        self.clients[name] = Client(name, router, self.lives[router], offers)
        if offers:
            self.register(name, "advertise", EVERYTHING)

    def register(self, client, kind, wanted):
        network = self.network
        self.numbers += 1
        number = self.numbers
        made = network.now
        getattr(network, kind)(client, number, wanted)
        home = self.clients[client].router
        wave, outputs = network.routers[home].settle(network.now)
        network._do(home, outputs)
        self.clients[client].wishes[number if kind == "subscribe" else -1] = Wish(client, number, wanted, made, wave)

    def look(self):
        """Note which waves are back."""
        for client in self.alive():
            for wish in client.wishes.values():
                if wish.settled is None and (client.router, wish.wave) in self.network._done:
                    wish.settled = self.network.now

    def alive(self):
        return [c for c in self.clients.values() if c.name in self.network._homes]

    def subscribe(self):
        client = self.rng.choice(self.alive())
        wide = self.rng.random() < 0.15
        self.register(client.name, "subscribe", EVERYTHING if wide else Subscription([box(self.rng)]))

    def unsubscribe(self):
        client = self.rng.choice(self.alive())
        numbers = [n for n in client.wishes if n >= 0]
        if numbers:
            number = self.rng.choice(numbers)
            del client.wishes[number]
            # What is on its way need not arrive any more.
            for key in [k for k, due in self.due.items() if k[0] == client.name and due[0] > self.network.now - 1.0]:
                del self.due[key]
            self.network.unsubscribe(client.name, number)

    def cut(self):
        links = sorted(self.up)
        link = self.rng.choice(links)
        self.cut_link(link)

    def cut_link(self, link):
        del self.up[link]
        self.forgive()
        self.network.cut(*link)

    def mend(self):
        missing = [e for e in sorted(self.possible - self.up.keys()) if set(e) <= self.network.routers.keys()]
        if missing:
            link = self.rng.choice(missing)
            self.network.link(*link)
            # Both ends know of it after a delay.
            self.up[link] = self.network.now + self.network._delay[1]

    def kill(self):
        name = self.rng.choice(sorted(self.network.routers))
        if len(self.network.routers) > 4:
            for link in [e for e in self.up if name in e]:
                del self.up[link]
            self.forgive(dead=name)
            self.network.kill(name)
            self.lives[name] += 1

    def restart(self):
        gone = sorted(self.lives.keys() - self.network.routers.keys())
        if gone:
            name = self.rng.choice(gone)
            # The same name comes back, with whatever neighbours.
            near = [e for e in sorted(self.possible) if name in e]
            self.network.start(name)
            for link in near:
                if set(link) <= self.network.routers.keys() and self.rng.random() < 0.7:
                    self.network.link(*link)
                    self.up[link] = self.network.now + self.network._delay[1]

    def joined(self, one, other, since):
        """Whether a path was up since then."""
        found, waiting = {one}, [one]
        while waiting and other not in found:
            here = waiting.pop()
            for link, began in self.up.items():
                if here in link and began < since:
                    there = link[here == link[0]]
                    if there not in found:
                        found.add(there)
                        waiting.append(there)
        return other in found

    def forgive(self, dead=None):
        """What has no way any more need not arrive."""
        for key, (_, source, home, since) in list(self.due.items()):
            if dead in (source, home) or not self.joined(source, home, since):
                del self.due[key]

    def publish(self):
        publisher = self.rng.choice([c for c in self.alive() if c.offers])
        self.look()
        count = self.rng.choice((1, 5, 20))
        points = [Event(SPACE, (self.rng.randrange(100), self.rng.randrange(100))) for _ in range(count)]
        named = self.network.publish(publisher.name, EventBatch.from_events(SPACE, points))
        offer = publisher.wishes[-1]
        now = self.network.now
        for client in self.alive():
            for wish in client.wishes.values():
                if wish.number not in client.wishes:
                    continue
                for name, event in zip(named, points, strict=True):
                    if not wish.wanted.matches(event):
                        continue
                    self.wanted.add((client.name, name))
                    settled = wish.settled is not None and offer.settled is not None
                    since = min(wish.made, offer.made)
                    if settled and self.joined(publisher.router, client.router, since):
                        known = self.due.get((client.name, name))
                        best = max(since, known[3]) if known else since
                        self.due[client.name, name] = (now, publisher.router, client.router, best)

    def step(self, acts):
        getattr(self, self.rng.choice(acts))()
        self.network.run(self.rng.random() ** 2 * self.pace + 1e-6)

    def settle(self):
        """Let the due arrive."""
        self.network.run(0.5)

    def check(self):
        arrived = {(c, n) for c, names in self.network.delivered.items() for n in names}
        missing = sorted(self.due.keys() - arrived)
        assert not missing, (len(missing), len(self.due), [(m, self.due[m]) for m in missing[:3]])
        for client, names in self.network.delivered.items():
            assert len(names) == len(set(names)), client
        return len(self.due)


QUIET = ["publish"] * 6 + ["subscribe"] * 2 + ["unsubscribe"]
CHANGES = ["cut", "cut", "mend", "mend", "mend", "kill", "restart", "restart"]


def storm(settings, seed, rounds=6):
    """Changes of the overlay, some after a rest and some right behind each other, with events all the while."""
    world = Storm(settings, seed)
    for _ in range(8):
        world.attach()
    for _ in range(20):
        world.subscribe()
    world.network.run(1.0)
    for _ in range(rounds):
        getattr(world, world.rng.choice(CHANGES))()
        if len(world.alive()) < 8:
            world.attach()
        for _ in range(world.rng.randrange(12)):
            world.step(QUIET)
        if world.rng.random() < 0.5:
            world.network.run(1.0)
            for _ in range(3):
                world.step(QUIET)
    world.settle()
    return world.check()


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("seed", seeds(1))
def test_nothing_is_lost_while_the_overlay_changes(name, seed):
    storm(VARIANTS[name], seed)


def ring(name):
    """Four routers in a ring, a client at each that wants everything, and the network at rest."""
    network = Network([("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")], VARIANTS[name], seed=3)
    network.run(1.0)
    for router in "abcd":
        network.attach(f"at-{router}", router)
        network.advertise(f"at-{router}", 1, EVERYTHING)
        network.subscribe(f"at-{router}", 2, EVERYTHING)
        assert network.settle(f"at-{router}")
    network.run(1.0)
    return network


def everybody_gets(network, clients):
    """Each client publishes, and all get it, once."""
    network.delivered.clear()
    named = [n for c in clients for n in network.publish(c, EventBatch.from_events(SPACE, [Event(SPACE, (1, 1))]))]
    network.drain()
    assert {c: sorted(network.delivered.get(c, [])) for c in clients} == dict.fromkeys(clients, sorted(named))


@pytest.mark.parametrize("name", ["covering-advertised", "imperfect", "cbcb", "bdrp", "edge"])
def test_a_lease_that_ends_on_one_side_only(name):
    """A link carries nothing in one direction: one end gives it up, then the other, and back again."""
    network = ring(name)
    clients = [f"at-{router}" for router in "abcd"]
    everybody_gets(network, clients)
    flooded = sum(r.counts.flooded for r in network.routers.values())
    network.mute.add(("a", "b"))
    # Until somebody notices, b hears nothing of a: that is what a lease is for.
    network.run(1.1 * LEASE)
    assert "a" not in network.routers["b"].statistics()["neighbours"]
    for _ in range(20):
        everybody_gets(network, clients)
        network.run(LEASE / 16)
    assert "b" not in network.routers["a"].statistics()["neighbours"]
    network.mute.clear()
    for one, other in (("a", "b"), ("b", "a")):
        network._do(one, network.routers[one].connected(other, network.now))
    for _ in range(20):
        everybody_gets(network, clients)
        network.run(LEASE / 16)
    assert sum(r.counts.flooded for r in network.routers.values()) > flooded
    assert all(r.statistics()["ready"] for r in network.routers.values())


def test_who_cannot_be_reached_any_more_is_known_for_a_while():
    network = Network([("a", "b"), ("b", "c"), ("c", "d")], Settings(lease=LEASE))
    network.run(1.0)

    def missing(name="a"):
        return network.routers[name].states.missing(network.now)

    assert missing() == []
    before = network.routers["a"].states.version
    network.kill("c")
    network.run(0.1)
    assert missing() == missing("b") == ["c", "d"]  # a never had a link to them
    assert missing("d") == ["a", "b", "c"]
    assert network.routers["a"].states.version != before
    network.run(2 * LEASE)  # forgotten as parts of the graph, not as routers
    assert missing() == network.routers["a"].statistics()["missing"] == ["c", "d"]
    for other in "bd":
        network.link(other, "c")
    network.run(1.0)
    assert missing() == missing("d") == []
    network.kill("d")
    network.run(1.0)
    assert missing() == ["d"]
    network.run(MEMORY)
    assert missing() == []


@pytest.mark.parametrize("away", [0.2, 1.5])
@pytest.mark.parametrize("name", ["covering-advertised", "imperfect", "cbcb", "bdrp", "edge"])
def test_a_router_returns_with_nothing_but_its_name(name, away):
    """Killed, and back within or after a lease, with other neighbours: nobody else misses anything."""
    network = ring(name)
    rest = [f"at-{router}" for router in "bcd"]
    network.kill("a")
    for _ in range(10):
        everybody_gets(network, rest)
        network.run(away * LEASE / 10)
    # It had b and d; now it has c.
    network.link("a", "c")
    for _ in range(10):
        everybody_gets(network, rest)
        network.run(0.01)
    network.run(1.0)
    network.attach("again", "a")
    network.advertise("again", 1, EVERYTHING)
    network.subscribe("again", 2, EVERYTHING)
    assert network.settle("again")
    everybody_gets(network, [*rest, "again"])
    assert all(r.statistics()["ready"] for r in network.routers.values())
