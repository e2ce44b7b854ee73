"""Fabrics connected through routers, without configuration: each side gets what it wants of the other, and no more."""

import asyncio
import contextlib
import os
import subprocess
import sys

import pytest

import sievenet
from sievenet.content import Attribute, Filter, Schema, Subscription, ValueSet, parse_filter
from sievenet.errors import InvalidInput
from sievenet.gateway.gateway import Gateway
from sievenet.routers.routing import Settings
from sievenet.routers.server import RouterServer
from tests.fabric.harness import SCHEMA, eventually, fabric, reading

OTHER = Schema("other", (Attribute("x", "int", lo=0, hi=9),))


@contextlib.asynccontextmanager
async def joined(stack, server, name, **options):
    """A fabric, and its gateway at a router."""
    daemon = await stack.enter_async_context(fabric())
    node = await stack.enter_async_context(sievenet.connect(daemon.url, name=name))
    gate = await stack.enter_async_context(Gateway(node, server, every=0.01, **options))
    yield daemon, gate


@pytest.mark.parametrize("scheme", ["covering", "cbcb", "bdrp", "edge"])
def test_two_fabrics_through_routers(scheme):
    async def main():
        async with contextlib.AsyncExitStack() as stack:
            one = await stack.enter_async_context(RouterServer("one", Settings(scheme, lease=8.0, ask_every=0.1)))
            two = await stack.enter_async_context(
                RouterServer("two", Settings(scheme, lease=8.0, ask_every=0.1), neighbours=[one.address])
            )
            here, out = await stack.enter_async_context(joined(stack, one, "gw1"))
            there, into = await stack.enter_async_context(joined(stack, two, "gw2"))
            await eventually(lambda: all(len(s.router.states.overlay.links) == 2 for s in (one, two)))
            publisher = await stack.enter_async_context(sievenet.connect(here.url))
            await publisher.advertise(SCHEMA)
            far = await stack.enter_async_context(sievenet.connect(there.url))
            await far.schema(SCHEMA)
            feed = await far.subscribe("reading: x > 500")
            # The wish crosses to the other fabric, where the gateway subscribes on its behalf.
            await eventually(lambda: out._feeds)
            events = [reading(x=100 * i, payload=b"p") for i in range(10)]
            await publisher.publish_many(events)
            assert [(await feed.next()).event for _ in range(4)] == events[6:]
            await eventually(lambda: into.imported == 4)
            # Bits do not say what is wanted, filters do.
            assert out.exported == (10 if scheme == "bdrp" else 4)
            # And the other way round, with another category, which this fabric has never heard of.
            await publisher.schema(OTHER)
            back = await publisher.subscribe("other: x = 7")
            await far.advertise(OTHER)
            await eventually(lambda: len(into._feeds) == 1)
            for x in (6, 7):
                await far.publish(OTHER.event(x=x))
            assert (await back.next()).event == OTHER.event(x=7)
            # Nobody wants anything any more: nothing crosses.
            await far.unsubscribe(feed)
            await publisher.unsubscribe(back)
            await eventually(lambda: not out._feeds and not into._feeds)
            assert into.statistics() == {"exported": into.exported, "imported": 4, "dropped": 0, "wishes": 0}

    asyncio.run(main())


def test_one_router_between_two_fabrics_and_clients_of_its_own():
    async def main():
        async with contextlib.AsyncExitStack() as stack:
            server = await stack.enter_async_context(RouterServer("r", Settings(lease=8.0)))
            here, gate = await stack.enter_async_context(joined(stack, server, "gw1"))
            there, _ = await stack.enter_async_context(joined(stack, server, "gw2"))
            publisher = await stack.enter_async_context(sievenet.connect(here.url))
            await publisher.advertise(SCHEMA)
            far = await stack.enter_async_context(sievenet.connect(there.url))
            await far.schema(SCHEMA)
            feed = await far.subscribe("reading: x > 500")
            asker = await stack.enter_async_context(sievenet.connect(server.url))
            await asker.schema(SCHEMA)
            own = await asker.subscribe("reading: x < 150")
            await eventually(lambda: [len(w.filters) for w, _ in gate._feeds.values()] == [2])
            await publisher.publish(reading(x=3))
            await publisher.publish(reading(x=501))
            assert (await own.next()).event == reading(x=3)
            assert (await feed.next()).event == reading(x=501)
            # A client of the router publishes into both fabrics.
            await asker.advertise(SCHEMA)
            near = await publisher.subscribe("reading: x = 1000")
            await eventually(lambda: gate.statistics()["wishes"] == 1)
            await asker.publish(reading(x=1000))
            assert (await near.next()).event == reading(x=1000)
            assert (await feed.next()).event == reading(x=1000)
            assert len(feed._inbox) == len(near._inbox) == len(own._inbox) == 0

    asyncio.run(main())


def test_a_gateway_takes_out_only_what_is_wanted():
    async def main():
        async with contextlib.AsyncExitStack() as stack:
            server = await stack.enter_async_context(RouterServer("r", Settings(lease=8.0)))
            daemon, gate = await stack.enter_async_context(joined(stack, server, "gw", schemas=[SCHEMA]))
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
            # Very many wishes are not told apart.
            many = [Filter(SCHEMA, {"x": ValueSet.of(i)}) for i in range(300)]
            await asyncio.gather(*(asker.subscribe(each) for each in many))
            await eventually(lambda: [w.filters for w, _ in gate._feeds.values()] == [(Filter(SCHEMA),)])

    asyncio.run(main())


def test_imports_restrict_and_foreign_schemas_stay_outside():
    async def main():
        async with contextlib.AsyncExitStack() as stack:
            server = await stack.enter_async_context(RouterServer("r", Settings(lease=8.0)))
            policy = Subscription([parse_filter("reading: x < 100", SCHEMA)])
            daemon, gate = await stack.enter_async_context(joined(stack, server, "gw", imports={"reading": policy}))
            node = await stack.enter_async_context(sievenet.connect(daemon.url))
            await node.schema(SCHEMA)
            await node.subscribe("reading: x in 50..150")
            await node.subscribe("reading: x > 500")
            await eventually(lambda: gate.statistics()["wishes"] == 1)
            (mine,) = gate._wishes.values()
            assert list(mine) == [parse_filter("reading: x in 50..99", SCHEMA)]
            # The overlay has another schema of the same name.
            clash = Schema("reading", (Attribute("z", "int", lo=0, hi=9),))
            asker = await stack.enter_async_context(sievenet.connect(server.url))
            await asker.schema(clash)
            await asker.subscribe(Filter(clash))
            await eventually(lambda: gate._refused)
            assert not gate._feeds
            with pytest.raises(InvalidInput, match="interests"):
                await node.ask("nonsense")

    asyncio.run(main())


def test_two_daemons_and_a_router_as_processes():
    """`sievenet up` twice and `sievenet router --gateway` between them; nobody configures what crosses."""

    # Unwatched by coverage: a traced thread of CPython 3.11 spins while a signal waits for the main thread, and the
    # main thread may wait for that thread (which loads kernels) when it is told to end.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_PROCESS")}

    def start(*arguments):
        command = [sys.executable, "-m", "sievenet", *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        return subprocess.Popen(command, env=environment, **pipes)

    def url(process):
        while "://" not in (line := process.stdout.readline()):
            assert line, "the process ended"
        return next(word.strip(".,") for word in line.split() if "://" in word)

    async def main(urls):
        async with sievenet.connect(urls[0]) as publisher, sievenet.connect(urls[1]) as far:
            await publisher.advertise(SCHEMA)
            await far.schema(SCHEMA)
            feed = await far.subscribe("reading: x > 500")

            async def crosses():
                status = await publisher.ask("status")
                return sum(category["subscriptions"] for category in status["categories"])

            await eventually(crosses, timeout=20.0)
            await publisher.publish_many([reading(x=100 * i) for i in range(10)])
            assert [(await feed.next()).event for _ in range(4)] == [reading(x=100 * i) for i in range(6, 10)]

    up = ["up", "--port", "0", "--data-port", "0", "--topo", "line,switches=2"]
    running = [start(*up), start(*up)]
    try:
        urls = [url(process) for process in running]
        gates = [each for fabric_url in urls for each in ("--gateway", fabric_url)]
        running.append(start("router", "--listen", "127.0.0.1:0", *gates))
        url(running[-1])
        asyncio.run(main(urls))
    finally:
        # The router first: it takes back what it asked the fabrics for.
        for process in reversed(running):
            process.terminate()
            process.wait(timeout=20)
