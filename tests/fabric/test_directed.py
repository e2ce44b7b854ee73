"""Directed delivery in a real fabric: a component takes packets and sends them to recipients by number."""

import asyncio

import pytest

import sievenet
from sievenet.client.component import ComponentNode
from sievenet.control.directed import everybody, twin_schema
from sievenet.errors import Rejected
from tests.fabric.harness import SCHEMA, eventually, fabric, publisher, reading, run, take


class Relay:
    """A component that sends every packet of a category to some recipients."""

    def __init__(self, daemon, **settings):
        self.packets = []
        self.node = ComponentNode(daemon.url, lambda some: self.packets.extend(some), **settings)


def test_a_component_sends_events_to_clients_that_never_subscribed_to_its_way():
    async def main():
        async with (
            fabric() as daemon,
            publisher(daemon, name="pub", host="h1") as pub,
            sievenet.connect(daemon.url, name="a", host="h2") as a,
            sievenet.connect(daemon.url, name="b", host="h3") as b,
            sievenet.connect(daemon.url, name="c", host="h3") as c,
        ):
            # They want what the component passes on, and get it by content too: once each.
            feeds = [await each.subscribe("reading: x < 100") for each in (a, b, c)]
            relay = Relay(daemon, name="relay", host="h2")
            async with relay.node as node:
                await node.want((await a.subscribe("reading: x < 100")).registration.wanted)
                sender = await node.directed("reading")
                number, absent = await sender.recipient(["a", "b", "nobody"])
                assert absent == ["nobody"]
                again, _ = await sender.recipient(["nobody", "b", "a"])
                assert again == number
                for i in range(20):
                    await pub.publish(reading(i, payload=b"%d" % i))
                await eventually(lambda: len(relay.packets) == 20)
                await sender.send([(number, each) for each in relay.packets])
                for feed in feeds:
                    assert [e.payload for e in await take(feed, 20)] == [b"%d" % i for i in range(20)]
                await eventually(lambda: a.statistics().received.directed == 20)
                assert a.statistics().received.duplicates == 20
                assert b.statistics().received.directed == 20
                assert c.statistics().received.directed == 0
                # A number that nobody needs is given up, with its flows.
                await sender.release(number)
                await eventually(lambda: all(len(each._ledger) == 1 for each in (b, c)))

    run(main())


def test_many_events_at_once_and_what_was_lost_by_content_is_delivered():
    async def main():
        async with (
            fabric() as daemon,
            publisher(daemon, name="pub", host="h1") as pub,
            sievenet.connect(daemon.url, name="a", host="h3") as a,
        ):
            held = []

            def keep(packets):
                held.append(packets)

            async with ComponentNode(daemon.url, keep, name="relay", host="h2") as node:
                sender = await node.directed("reading")
                number, _ = await sender.recipient(["a"])
                await node.want(everybody(SCHEMA))
                await pub.publish_many([reading(i % 1000) for i in range(2000)])
                await eventually(lambda: sum(map(len, held)) == 2000)
                # The subscriber comes too late for the network, but not for the component.
                feed = await a.subscribe("reading: x >= 500", queue=10_000)
                for some in held:
                    await sender.send([(number, each) for each in some])
                got = await take(feed, 1000)
                assert [e["x"] for e in got] == [i % 1000 for i in range(2000) if i % 1000 >= 500]

    run(main())


def test_only_components_send_in_twins_and_only_recipients_listen():
    async def main():
        async with fabric() as daemon, sievenet.connect(daemon.url, name="a", host="h1") as a:
            await a.schema(SCHEMA)
            twin = twin_schema("reading")
            with pytest.raises(Rejected, match="daemon's own"):
                await a.schema(twin)
            async with ComponentNode(daemon.url, lambda some: None, name="m", host="h2") as node:
                sender = await node.directed("reading")
                with pytest.raises(Rejected, match="no twin"):
                    await a.advertise(f"{twin.name}: any")
                with pytest.raises(Rejected, match="a number of its own"):
                    await a.subscribe(f"{twin.name}: any")
                number, _ = await sender.recipient(["a"])
                await node.category("reading")
                with pytest.raises(Rejected, match="a twin of a category"):
                    await node.advertise("reading: any")
                assert number >= 0

    run(main())


def test_a_daemon_that_returns(tmp_path):
    async def main():
        async with fabric(state=str(tmp_path)) as daemon:
            port = daemon.server.port
            pub = await sievenet.connect(daemon.url, name="pub", host="h1")
            await pub.advertise(SCHEMA)
            a = await sievenet.connect(daemon.url, name="a", host="h3")
            feed = await a.subscribe("reading: x < 100")
            relay = Relay(daemon, name="relay", host="h2")
            await relay.node.start()
            sender = await relay.node.directed("reading")
            await relay.node.want(everybody(SCHEMA))
            before, _ = await sender.recipient(["a"])
        async with fabric(state=str(tmp_path), listen__port=port):
            await eventually(lambda: a.connected and pub.connected and relay.node.connected)
            after, absent = await sender.recipient(["a"])
            assert absent == []
            assert after != before
            await pub.publish(reading(1))
            await eventually(lambda: relay.packets)
            await sender.send([(after, each) for each in relay.packets])
            assert [e["x"] for e in await take(feed, 1)] == [1]
            await eventually(lambda: a.statistics().received.directed == 1)
            # The number of the first life is given up.
            await eventually(lambda: sum(e.category == sender._twin for e in a._ledger) == 1)
            for node in (relay.node, a, pub):
                await node.close()

    run(main())


def test_a_handover_keeps_order_under_traffic():
    async def main():
        async with (
            fabric() as daemon,
            publisher(daemon, name="pub", host="h1") as pub,
            sievenet.connect(daemon.url, name="a", host="h3") as a,
        ):
            relay = Relay(daemon, name="relay", host="h2")
            async with relay.node as node:
                sender = await node.directed("reading")
                number, _ = await sender.recipient(["a"])
                await node.want(everybody(SCHEMA))
                for i in range(100):
                    await pub.publish(reading(i))
                await eventually(lambda: len(relay.packets) == 100)
                category = (await node.category("reading")).number
                await a.subscribe("reading: x = 1023")
                way = await sender.begin([number], category)
                feed = await a.subscribe("reading: x < 1000")  # by content from now on
                await eventually(lambda: bool(a._receiver.handovers))
                for i in range(100, 200):
                    await pub.publish(reading(i))
                await eventually(lambda: a.statistics().received.received >= 100)
                assert a.statistics().delivered == 0
                await sender.send([(number, each) for each in relay.packets[:100]])
                await sender.end(way, category)
                assert [e["x"] for e in await take(feed, 200)] == list(range(200))
                assert a.statistics().received.hasty == 0
                # If the component dies in between, the clock ends it.
                await sender.begin([number], category, patience=0.2)
                await eventually(lambda: bool(a._receiver.handovers))
                await asyncio.gather(*(pub.publish(reading(i)) for i in range(200, 210)))
                assert [e["x"] for e in await take(feed, 10)] == list(range(200, 210))
                assert a.statistics().received.hasty == 1

    run(main())
