"""Anything may happen while events go through matchers: an oracle knows who should have got what.

The same on every data plane: `test_hybrid_stateful` here and in tests/openflow.
"""

import asyncio
import contextlib
import random
from math import inf

import msgspec

import sievenet
from sievenet.client.matcher import MatcherNode
from sievenet.errors import SievenetError
from sievenet.index import Dz, Plan
from tests.fabric.harness import SCHEMA, eventually, reading

#: Reports come often, and choices are made when the world wants one.
SETTINGS = {
    "topology": "line,switches=4",
    "listen__heartbeat": 0.2,
    "hybrid__latency_bound": 0.003,
    "hybrid__interval": 3600.0,
    "hybrid__clusters": 4,  # of three bits at most, as all subspaces here
}
HOSTS = ("h1", "h2", "h3", "h4")
#: Events of each publisher, and of all: numbers of events are written as `y`, in the lower half of its range, so that
#: the subspaces here, of three bits at most, are told apart by the first bit of `x` alone.
EACH, SPAN = 1 << 16, 1 << 21
#: Seconds that an event is under way at most: what is older when a subscription begins is not for it.
OLD = 1.0


class World:
    """Publishers, subscribers and matchers, and what each subscriber should have got."""

    def __init__(self, daemon, rng, ordered=True):
        self.daemon, self.rng, self.ordered = daemon, rng, ordered
        self.hybrid, self.selector = daemon.service.components.hybrid, daemon.service.components.selector
        self.number = daemon.control.category("reading").number
        self.publishers, self.nodes, self.matchers = {}, {}, {}
        #: By subscription: what is wanted, since when and until when of each publisher, and what came.
        self.subscriptions = {}
        self.counts, self.sent = {}, {}
        self.made = 0
        #: When each event was published, and each subscription made.
        self.published, self.begun = {}, {}

    async def add_publisher(self):
        name = f"p{len(self.publishers)}"
        node = await sievenet.connect(self.daemon.url, name=name, host=self.rng.choice(HOSTS))
        await node.schema(SCHEMA)
        await node.advertise(SCHEMA)
        self.sent[name] = []
        self.publishers[name] = node

    async def add_node(self):
        name = f"s{len(self.nodes)}"
        self.nodes[name] = await sievenet.connect(self.daemon.url, name=name, host=self.rng.choice(HOSTS))
        await self.nodes[name].schema(SCHEMA)

    async def add_subscription(self):
        name = self.rng.choice(sorted(self.nodes))
        lo = self.rng.randrange(1000)
        hi = min(1023, lo + self.rng.randrange(200))
        got, self.made = [], self.made + 1
        number = self.made
        self.begun[number] = asyncio.get_running_loop().time()
        feed = await self.nodes[name].subscribe(f"reading: x in [{lo}, {hi}]", lambda e, got=got: got.append(e["y"]))
        since = {p: len(s) for p, s in self.sent.items()}
        self.subscriptions[number] = [lo, hi, since, None, got, feed]

    async def drop_subscription(self):
        live = [key for key, each in self.subscriptions.items() if each[3] is None]
        if len(live) > 2:
            each = self.subscriptions[self.rng.choice(live)]
            await asyncio.sleep(0.3)  # what is under way may still come
            each[3] = {p: len(s) for p, s in self.sent.items()}
            await asyncio.sleep(0.3)
            await each[5].close()

    async def add_matcher(self):
        name = f"m{len(self.matchers)}"
        node = MatcherNode(self.daemon.url, name=name, host=self.rng.choice(HOSTS))
        await node.start()
        self.matchers[name] = node

    def alive(self):
        return [m for name, m in self.hybrid.matchers.items() if self.matchers.get(name) is not None]

    async def divert(self):
        if self.alive():
            matcher = self.rng.choice(self.alive())
            length = self.rng.randrange(4)
            with contextlib.suppress(SievenetError):  # not now: a matcher rests, a plan changes
                await self.hybrid.divert(self.number, Dz(self.rng.randrange(1 << length), length), matcher.switch)

    async def release(self):
        for matcher in self.alive():
            for dz in sorted(matcher.live(self.number), key=str)[:2]:
                await self.hybrid.release(self.number, dz, matcher.switch)

    async def reselect(self):
        """The fabric chooses by itself, from what subscribers have reported, under another bound than before."""
        bound = self.rng.choice((inf, inf, 0.003, 1e-6))
        self.selector.config = msgspec.structs.replace(self.selector.config, latency_bound=bound)
        await asyncio.sleep(0.5)  # reports come with heartbeats
        await self.selector.choose()

    async def crash(self):
        """A matcher loses its connection, or hangs."""
        names = [name for name, node in self.matchers.items() if node is not None and name in self.hybrid.matchers]
        if len(names) < 2:
            return
        name = self.rng.choice(names)
        node, self.matchers[name] = self.matchers[name], None
        for task in node._tasks:
            task.cancel()
        if self.rng.random() < 0.5:
            node.node._session._link.writer.transport.abort()
        await eventually(lambda: name not in self.hybrid.matchers or not self.hybrid.matchers[name].load)
        await node.close()

    async def change_plan(self):
        plan = Plan.regular(SCHEMA, self.rng.choice((6, 8, 32)))
        await self.daemon.control.apply_plan("reading", plan)

    async def publish(self):
        for name, node in list(self.publishers.items()):
            await self._publish(name, node, self.rng.randrange(1, 30))

    async def _publish(self, name, node, count):
        """Events without payloads, so that several at a time are rows of bytes; `y` says which they are."""
        count = min(count, EACH - len(self.sent[name]))  # beyond that numbers would be those of the next publisher
        first = list(self.sent).index(name) * EACH + len(self.sent[name])
        events = [reading(self.rng.randrange(1024), y=(first + i) / SPAN) for i in range(count)]
        self.sent[name] += [(e["x"], e["y"]) for e in events]
        self.published |= dict.fromkeys((e["y"] for e in events), asyncio.get_running_loop().time())
        await node.publish_many(events)

    async def visit(self):
        """A publisher comes, publishes and leaves, perhaps in the moment in which a matcher dies."""
        name = f"v{len(self.sent)}"
        node = await sievenet.connect(self.daemon.url, name=name, host=self.rng.choice(HOSTS))
        await node.schema(SCHEMA)
        await node.advertise(SCHEMA)
        self.sent[name] = []
        await self._publish(name, node, self.rng.randrange(1, 200))
        both = (node.close(), self.crash()) if self.rng.random() < 0.5 else (node.close(),)
        await asyncio.gather(*both)

    async def newcomers(self):
        """A matcher dies, a publisher takes its time to do what it is told, and others come in that moment."""
        name = self.rng.choice(sorted(self.publishers))
        publisher, turn, slowly = self.publishers[name]._publisher, asyncio.Lock(), self.rng.random() * 0.15
        obey = publisher._obey

        async def late(*word):
            async with turn:  # one after the other, as ever
                await asyncio.sleep(slowly)
            await obey(*word)

        async def comes():
            await self.add_publisher()
            name = max(self.publishers, key=lambda each: int(each[1:]))
            await self._publish(name, self.publishers[name], self.rng.randrange(1, 100))

        publisher._obey = late
        await asyncio.gather(self.crash(), self.add_subscription(), comes(), self.add_subscription())
        slowly = 0.0

    def disorder(self, got):
        """Events that came after newer ones of their publisher and subspace."""
        xs = {y: x for sent in self.sent.values() for x, y in sent}
        last, found = {}, []
        for y in got:
            group = int(y * SPAN) // EACH, xs[y] >> 9
            if y < last.get(group, 0.0):
                found.append(y * SPAN)
            last[group] = max(y, last.get(group, 0.0))
        return found

    def wanted(self, key):
        lo, hi, since, until, _, _ = self.subscriptions[key]
        return {
            payload
            for name, sent in self.sent.items()
            for x, payload in sent[since.get(name, 0) : None if until is None else until.get(name, 0)]
            if lo <= x <= hi
        }

    def states(self):
        """What matchers do, for whoever looks for a mistake."""
        return [
            (
                *(name, node.received, node.sent, node.unwanted, node.strangers, node.malformed, node._waiting),
                [task for task in node._tasks if task.done()],
                {number: sorted(map(str, self.hybrid.matchers[name].regions(number))) for number in (self.number,)},
                self.hybrid.matchers[name].switch,
            )
            for name, node in self.matchers.items()
            if node is not None and name in self.hybrid.matchers
        ]

    def check(self, trail):
        for key, (*_, got, _feed) in self.subscriptions.items():
            wanted = self.wanted(key)
            assert len(got) == len(set(got)), f"subscription {key} after {trail}: duplicates"
            late = self.disorder(got) if self.ordered else []
            assert not late, f"subscription {key} after {trail}: {late[:5]} came late"
            old = [y for y in got if self.published[y] < self.begun[key] - OLD]
            assert not old, f"subscription {key} after {trail}: {len(old)} are from before it, such as {old[:3]}"
            missing = wanted - set(got)
            assert not missing, (
                f"subscription {key} after {trail}: {len(missing)} of {len(wanted)} are missing, such as "
                f"{sorted(missing)[:3]} and {sorted(missing)[-3:]}; {self.daemon.plane.statistics()}; "
                f"{[node.statistics().received for node in self.nodes.values()]}; failures: {self.hybrid.failures} "
                f"({self.hybrid.last_failure}); {self.states()}; "
                f"forgotten: {[node._publisher.retention.forgotten for node in self.publishers.values()]}"
            )


async def anything(daemon, seed, steps=16, ordered=True):
    """Traffic, and so many things that happen to it; at the end everybody has what is wanted, once and in order."""
    rng = random.Random(seed)
    await daemon.control.register_schema(SCHEMA)
    world = World(daemon, rng, ordered)
    for make in (world.add_publisher, world.add_node, world.add_node, world.add_matcher, world.add_matcher):
        await make()
    for _ in range(4):
        await world.add_subscription()
    stop = asyncio.Event()

    async def traffic():
        while not stop.is_set():
            await world.publish()
            await asyncio.sleep(0.005)

    task = asyncio.create_task(traffic())
    actions = [world.divert] * 6 + [world.release] * 2 + [world.add_subscription] * 3
    actions += [world.drop_subscription, world.add_publisher, world.add_node, world.add_matcher, world.crash]
    actions += [world.change_plan, world.visit, world.visit, world.reselect, world.reselect]
    actions += [world.newcomers, world.newcomers]
    trail = []
    for _ in range(steps):
        action = rng.choice(actions)
        trail.append(action.__name__)
        await action()
        await asyncio.sleep(rng.random() * 0.1)
    stop.set()
    await task
    with contextlib.suppress(TimeoutError):  # then `check` says what is missing
        async with asyncio.timeout(15):
            while any(world.wanted(key) - set(each[4]) for key, each in world.subscriptions.items()):
                await asyncio.sleep(0.02)
    world.check(trail)
    for node in (*world.matchers.values(), *world.nodes.values(), *world.publishers.values()):
        if node is not None:
            await node.close()
