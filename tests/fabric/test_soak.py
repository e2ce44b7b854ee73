"""Everything at once, over real sockets: random joins, leaves, subscriptions, cuts, restarts and plan changes.

After every step events are published, and every feed must have exactly what its filter matches: no more, no less, no
copy, whatever has happened in between.
"""

import random
from collections import Counter

import pytest

import sievenet
from sievenet.content import Subscription, parse_filter
from sievenet.daemon.daemon import Daemon
from sievenet.index import Plan
from tests.fabric.harness import SCHEMA, config, eventually, reading, run
from tests.seeds import seeds

STEPS = 120


class World:
    def __init__(self, rng, state):
        self.rng = rng
        self.settings = {
            "topology": "testbed", "state": state, "control__forwarding_delay": 0.01, "control__partitions": 4,
        }  # fmt: skip
        self.nodes = {}
        #: feed → (its filter, what must have come, what has come)
        self.feeds = {}
        self.plans = 1
        #: Deliveries that were due, also to feeds that have been closed since.
        self.due = 0

    async def start(self, port=0):
        self.daemon = await Daemon(config(**{**self.settings, "listen__port": port})).start()

    async def join(self):
        if len(self.nodes) < 6:
            node = await sievenet.connect(self.daemon.url, host=self.rng.choice(self.daemon.plane.topology.hosts))
            node._session._backoff._first, node._session._backoff._most = 0.005, 0.02
            await node.schema(SCHEMA)
            self.nodes[node.name] = node

    async def leave(self):
        if len(self.nodes) > 2:
            node = self.nodes.pop(self.rng.choice(sorted(self.nodes)))
            self.feeds = {feed: each for feed, each in self.feeds.items() if feed._owner is not node}
            await node.close()

    def some_filter(self):
        lo = self.rng.randrange(1000)
        text = f"x in [{lo}, {min(1023, lo + self.rng.choice([3, 50, 400]))}]"
        if self.rng.random() < 0.4:
            text += f" and kind = {self.rng.choice(['cold', 'hot'])}"
        return parse_filter(text, SCHEMA)

    async def subscribe(self):
        node = self.nodes[self.rng.choice(sorted(self.nodes))]
        wanted = Subscription([self.some_filter() for _ in range(self.rng.randint(1, 2))])
        came = Counter()
        feed = await node.subscribe(wanted, lambda event: came.update([event.payload]))
        self.feeds[feed] = (wanted, Counter(), came)

    async def unsubscribe(self):
        if len(self.feeds) > 3:
            feed = self.rng.choice(sorted(self.feeds, key=lambda f: (f._owner.name, f.registration.id)))
            del self.feeds[feed]
            await feed.close()

    async def cut(self):
        node = self.nodes[self.rng.choice(sorted(self.nodes))]
        losses = node.statistics().losses
        self.daemon.service._peers[node.name].abort()
        await eventually(lambda: node.statistics().losses > losses)

    async def restart(self):
        port = int(self.daemon.url.rsplit(":", 1)[1])
        await self.daemon.close()
        await self.start(port)

    async def plan(self):
        self.plans += 1
        dimensions = self.rng.choice([None, ["x"], ["kind", "x"]])
        bits, kind = self.rng.choice([6, 12, 24]), self.rng.choice(["dz", "cells"])
        plan = Plan.regular(SCHEMA, bits, dimensions=dimensions, kind=kind, version=self.plans)
        await self.nodes[self.rng.choice(sorted(self.nodes))].apply_plan("reading", plan.to_json())

    async def publish(self, step):
        await eventually(lambda: all(node.connected for node in self.nodes.values()))
        source = self.nodes[self.rng.choice(sorted(self.nodes))]
        async with await source.advertise(SCHEMA):
            events = [
                reading(
                    self.rng.randrange(1024),
                    0.5,
                    self.rng.choice(["cold", "hot", "warm"]),
                    payload=b"%d.%d" % (step, i),
                )
                for i in range(8)
            ]
            await source.publish_many(events)
            for wanted, expected, _ in self.feeds.values():
                due = [e.payload for e in events if wanted.matches(e)]
                expected.update(due)
                self.due += len(due)
            await eventually(lambda: all(came == expected for _, expected, came in self.feeds.values()))


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(2))
def test_every_feed_has_exactly_what_it_wants_whatever_happens(seed, tmp_path):
    async def main():
        world = World(random.Random(seed), str(tmp_path))
        await world.start()
        for _ in range(3):
            await world.join()
        actions = [world.subscribe] * 6 + [world.unsubscribe] * 3 + [world.join, world.leave, world.cut] * 2
        actions += [world.restart, world.plan]
        for step in range(STEPS):
            action = world.rng.choice(actions)
            await action()
            await world.publish(step)
            if step % 10 == 0:
                assert (await next(iter(world.nodes.values())).ask("check"))["ok"]
        assert world.due > 50
        for node in world.nodes.values():
            assert node.statistics().received.malformed == 0
            await node.close()
        status = await world.daemon.answers.status()
        assert sum(switch["flows"] for switch in status["switches"]) == 0
        await world.daemon.close()

    run(main(), timeout=200)
