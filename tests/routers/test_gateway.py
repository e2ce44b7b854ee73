"""Two fabrics connected through two routers: each side gets what it wants of the other, and no more."""

import asyncio
import contextlib

import sievenet
from sievenet.client.gateway import Gateway
from sievenet.routers.routing import Settings
from sievenet.routers.server import RouterServer
from tests.fabric.harness import SCHEMA, eventually, fabric, reading


def test_two_fabrics_through_routers():
    async def main():
        async with contextlib.AsyncExitStack() as stack:
            daemons = [await stack.enter_async_context(fabric()) for _ in range(2)]
            one = await stack.enter_async_context(RouterServer("one", Settings(lease=8.0)))
            two = await stack.enter_async_context(RouterServer("two", Settings(lease=8.0), neighbours=[one.address]))
            nodes = [
                await stack.enter_async_context(sievenet.connect(d.url, name=f"gw{i}")) for i, d in enumerate(daemons)
            ]
            gates = [
                await stack.enter_async_context(Gateway(node, server, [SCHEMA]))
                for node, server in zip(nodes, (one, two), strict=True)
            ]
            await eventually(lambda: all(len(s.router.states.overlay.links) == 2 for s in (one, two)))
            publisher = await stack.enter_async_context(sievenet.connect(daemons[0].url))
            await publisher.advertise(SCHEMA)
            far = await stack.enter_async_context(sievenet.connect(daemons[1].url))
            feed = await far.subscribe("reading: x > 500")
            # Each gateway lets everything of the schema in, so each fabric's gateway subscribes to all of it.
            await eventually(lambda: all(gate._feeds for gate in gates))
            events = [reading(x=100 * i, payload=b"p") for i in range(10)]
            await publisher.publish_many(events)
            got = [(await feed.next()).event for _ in range(4)]
            assert got == events[6:]
            await eventually(lambda: gates[0].exported == 10)
            assert gates[0].statistics()["imported"] == 0
            # A client of a router wants something too.
            asker = await stack.enter_async_context(sievenet.connect(two.url))
            await asker.schema(SCHEMA)
            own = await asker.subscribe("reading: x < 150")
            await publisher.publish(reading(x=3))
            assert (await own.next()).event == reading(x=3)
            assert len(own._inbox) == 0
            # And may publish into both fabrics.
            await asker.advertise(SCHEMA)
            near = await publisher.subscribe("reading: x = 1000")
            await asker.publish(reading(x=1000))
            assert (await near.next()).event == reading(x=1000)
            assert (await feed.next()).event == reading(x=1000)

    asyncio.run(main())


def test_a_gateway_takes_out_only_what_is_wanted():
    async def main():
        async with contextlib.AsyncExitStack() as stack:
            daemon = await stack.enter_async_context(fabric())
            server = await stack.enter_async_context(RouterServer("r", Settings(lease=8.0)))
            node = await stack.enter_async_context(sievenet.connect(daemon.url, name="gw"))
            gate = await stack.enter_async_context(Gateway(node, server, [SCHEMA]))
            publisher = await stack.enter_async_context(sievenet.connect(daemon.url))
            await publisher.advertise(SCHEMA)
            await publisher.publish_many([reading(x=i) for i in range(100)])
            asker = await stack.enter_async_context(sievenet.connect(server.url))
            await asker.schema(SCHEMA)
            feed = await asker.subscribe("reading: x in 10..19")
            await eventually(lambda: gate._feeds)
            wider = await asker.subscribe("reading: x in 10..29")
            await eventually(lambda: [w for w, _ in gate._feeds.values()] == [wider.subscription])
            await publisher.publish_many([reading(x=i) for i in range(100)])
            for _ in range(10):
                await feed.next()
            for _ in range(20):
                await wider.next()
            await eventually(lambda: gate.exported >= 20)
            assert gate.exported < 40
            await asker.unsubscribe(feed)
            await asker.unsubscribe(wider)
            await eventually(lambda: not gate._feeds)

    asyncio.run(main())
