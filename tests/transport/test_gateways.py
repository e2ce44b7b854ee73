"""The transport through gateways: a publisher in a fabric, subscribers behind routers and in another fabric."""

import asyncio
import contextlib

import sievenet
from sievenet.client.overlay.gateway import Gateway
from sievenet.client.transport.shim import MARK
from sievenet.routers.routing import Settings
from sievenet.routers.server import RouterServer
from sievenet.transport import Publishing
from tests.fabric.harness import SCHEMA, eventually, fabric, reading, run
from tests.transport.test_shell import QUICK, take

OPTIONS = Publishing(record=5, digest=0.05, log=1000, rate_control=True)


async def joined(stack, server, name):
    """A fabric, and its gateway at a router."""
    daemon = await stack.enter_async_context(fabric())
    node = await stack.enter_async_context(sievenet.connect(daemon.url, name=name))
    return daemon, await stack.enter_async_context(Gateway(node, server, every=0.02))


def test_order_recovery_and_rate_control_work_through_gateways():
    async def main():
        async with contextlib.AsyncExitStack() as stack:
            enter = stack.enter_async_context
            one = await enter(RouterServer("one", Settings(lease=8.0)))
            two = await enter(RouterServer("two", Settings(lease=8.0), neighbours=[one.address]))
            here, out = await joined(stack, one, "gw1")
            there, into = await joined(stack, two, "gw2")
            await eventually(lambda: all(len(s.router.states.overlay.links) == 2 for s in (one, two)))
            publisher = await enter(sievenet.connect(here.url, transport=OPTIONS))
            await publisher.schema(SCHEMA)
            advertisement = await publisher.advertise(SCHEMA)
            behind = await enter(sievenet.connect(two.url))
            far = await enter(sievenet.connect(there.url))
            gaps, feeds = [], []
            wishes = {"order": True, "recover": QUICK, "rate_control": True, "on_gap": gaps.append}
            for node in (behind, far):
                await node.schema(SCHEMA)
                feeds.append(await node.subscribe("reading: x >= 50", **wishes))
            plain = await far.subscribe("reading: x >= 50")
            # Both gateways want the events and the control messages of the other side.
            await eventually(lambda: len(out._feeds) == 2 and len(into._feeds) >= 1, timeout=20.0)
            await asyncio.sleep(0.2)
            leave, count = out._leave_fabric, 0

            async def losing(*arguments):
                nonlocal count
                count += 1
                if count % 7:
                    await leave(*arguments)

            out._leave_fabric = losing
            for x in range(200):
                await publisher.publish(reading(x, payload=b"p%d" % x))
            for feed in feeds:
                got = await take(feed, 150)
                assert [event["x"] for event in got] == list(range(50, 200))
                assert all(event.payload == b"p%d" % event["x"] for event in got)
                assert feed.statistics().transport.recovered > 0
            assert gaps == []
            assert advertisement.transport.repairs > 0
            # Who did not ask for it gets events as they were published, also one that looks like a header.
            await publisher.publish(reading(999, payload=MARK + b"\x11"))
            while (event := (await plain.next()).event)["x"] < 999:
                assert event.payload == b"p%d" % event["x"]
            assert event.payload == MARK + b"\x11"

    run(main())
