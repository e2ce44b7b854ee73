"""The transport over a real fabric with real sockets: lossy, jittery, reordering links on loopback."""

import asyncio
import contextlib
from itertools import pairwise

import pytest
from msgspec import structs

import sievenet
from sievenet.client.transport import exchange
from sievenet.client.transport.shim import MARK, stamped
from sievenet.content import Event, EventBatch
from sievenet.errors import EventError, InvalidInput, Rejected, Unavailable
from sievenet.transport import Order, Publishing, RateControl, Recover
from sievenet.transport.actions import Channel, Send
from sievenet.transport.codec import Header, encode_header
from sievenet.transport.control import Echo, Feedback, FlowRequest, Gone, Repair, Request, encode
from sievenet.workload.samples import load_schema
from tests.fabric.harness import SCHEMA, eventually, fabric, reading, run
from tests.fabric.harness import take as take_in_time

#: Lost with probability 0.02 on each of four links, overtaken now and then.
BAD = {"links__loss": 0.02, "links__delay": 0.001, "links__jitter": 0.001, "links__reorder": 0.05, "seed": 11}
SURE = Publishing(record=5, digest=0.03, log=5000)
QUICK = Recover(distance=0.01)


async def take(feed, count):
    """The next events; machines can be busy, and what is lost four times takes a while."""
    return await take_in_time(feed, count, timeout=45.0)


@contextlib.asynccontextmanager
async def pair(daemon, transport=SURE):
    """A publisher and a subscriber at both ends of the line."""
    async with (
        sievenet.connect(daemon.url, host="h1", transport=transport) as source,
        sievenet.connect(daemon.url, host="h3") as node,
    ):
        await source.schema(SCHEMA)
        yield source, node


async def publish(source, numbers):
    """In bursts, so that links have something to reorder."""
    for x in numbers:
        await source.publish(reading(x, payload=b"p%d" % x))
        if x % 16 == 0:
            await asyncio.sleep(0)


@pytest.mark.parametrize("subscriber_first", [False, True])
def test_everything_arrives_in_order_over_bad_links(subscriber_first):
    async def main():
        async with fabric(**BAD) as daemon, pair(daemon) as (source, node):
            gaps = []
            wishes = {"order": True, "recover": QUICK, "rate_control": True, "on_gap": gaps.append}
            if subscriber_first:
                feed = await node.subscribe("reading: x >= 100", **wishes)
                await source.advertise(SCHEMA)
            else:
                await source.advertise(SCHEMA)
                feed = await node.subscribe("reading: x >= 100", **wishes)
            await publish(source, range(700))
            got = await take(feed, 600)
            assert [event["x"] for event in got] == list(range(100, 700))
            assert all(event.payload == b"p%d" % event["x"] for event in got)
            done = feed.statistics().transport
            assert done.delivered == 600
            assert 0 < done.recovered <= done.lost
            assert done.held > 0
            assert done.rate is not None
            assert gaps == []
            (stream,) = source._transport.sources.values()
            assert stream.statistics().repairs >= 1

    run(main())


def test_order_alone_needs_no_control_messages():
    async def main():
        links = {"links__delay": 0.001, "links__reorder": 0.2, "seed": 3}
        async with fabric(**links) as daemon, pair(daemon, Publishing(record=8)) as (source, node):
            await source.advertise(SCHEMA)
            ordered = await node.subscribe(SCHEMA, order=Order(late="drop"))
            plain = await node.subscribe(SCHEMA)
            await publish(source, range(400))
            in_order = [event["x"] for event in await take(ordered, 380)]
            as_it_came = [event["x"] for event in await take(plain, 400)]
            assert all(a < b for a, b in pairwise(in_order))
            assert as_it_came != sorted(as_it_came)
            assert plain.statistics().transport is None
            assert all(lane.spoken == 0 for lane in node._transport._lanes.values())

    run(main())


def test_without_a_transport_nothing_is_added_and_nothing_is_kept():
    async def main():
        async with fabric() as daemon, pair(daemon, None) as (source, node):
            advertisement = await source.advertise(SCHEMA)
            plain, asking = await node.subscribe(SCHEMA), await node.subscribe(SCHEMA, order=True, recover=True)
            sent = []
            send = source._session.port.send
            source._session.port.send = lambda packets: sent.extend(packets) or send(packets)
            await source.publish(reading(1, payload=b"abc"))
            for feed in (plain, asking):
                delivery = await feed.next()
                assert (delivery.event.payload, delivery.stamp) == (b"abc", None)
            (packet,) = sent
            assert packet.body.endswith(b"\x03abc")
            assert source._transport is None
            assert advertisement.transport is None
            assert asking.statistics().transport.sessions == 0

    run(main())


def test_payloads_that_look_like_headers_are_left_alone():
    async def main():
        async with fabric() as daemon, pair(daemon, None) as (source, node):
            await source.advertise(SCHEMA)
            feed = await node.subscribe(SCHEMA)
            strange = [MARK, MARK + b"\x00", MARK + b"\x21" + bytes(50), MARK + MARK, b"\x00sv"]
            await source.publish(reading(0, payload=strange[0]))
            await source.publish_many([reading(i, payload=strange[i]) for i in (1, 2)])
            await source.publish_many(EventBatch.from_events(SCHEMA, [reading(i, payload=strange[i]) for i in (3, 4)]))
            assert [event.payload for event in await take(feed, 5)] == strange

    run(main())


def test_those_without_a_transport_get_events_as_they_were_published():
    async def main():
        async with fabric() as daemon, pair(daemon) as (source, node):
            await source.advertise(SCHEMA)
            feed = await node.subscribe(SCHEMA)
            await source.publish(reading(1, payload=MARK + b"\x00abc"))
            assert await source.publish_many([reading(i) for i in range(2, 400)]) == 398
            got = await take(feed, 399)
            assert got[0].payload == MARK + b"\x00abc"
            assert [event["x"] for event in got] == list(range(1, 400))
            assert source.statistics().published == 399

    run(main())


def test_peers_repair_what_the_publisher_does_not_keep():
    async def main():
        async with fabric(topology="star,arms=4", **BAD) as daemon, contextlib.AsyncExitStack() as stack:
            source = await stack.enter_async_context(sievenet.connect(daemon.url, host="h1"))
            nodes = [await stack.enter_async_context(sievenet.connect(daemon.url, host=f"h{i}")) for i in (2, 3, 4)]
            await source.schema(SCHEMA)
            await source.advertise(SCHEMA, transport=Publishing(record=8, digest=0.03))
            gaps = [[] for _ in nodes]
            feeds = [
                await node.subscribe(SCHEMA, recover=QUICK, on_gap=own.append)
                for node, own in zip(nodes, gaps, strict=True)
            ]
            await publish(source, range(300))
            told = [set() for _ in feeds]

            async def read(feed, seen):
                async for delivery in feed.deliveries():
                    assert delivery.event["x"] not in seen
                    seen.add(delivery.event["x"])

            def settled():
                """Everything came or is told to be gone (and some of that may still have come from a slow peer)."""
                return all(
                    seen | {x for gap in own for x in range(gap.first, gap.last + 1)} == set(range(300))
                    for seen, own in zip(told, gaps, strict=True)
                )

            readers = [asyncio.create_task(read(feed, seen)) for feed, seen in zip(feeds, told, strict=True)]
            await eventually(settled, timeout=30.0)
            assert sum(feed.statistics().transport.recovered for feed in feeds) > 0
            for reader in readers:
                reader.cancel()

    run(main())


def test_gaps_are_told():
    async def main():
        async with fabric(links__loss=0.1, seed=5) as daemon, pair(daemon, Publishing(record=8)) as (source, node):
            await source.advertise(SCHEMA)
            gaps = []
            feed = await node.subscribe(SCHEMA, order=True, on_gap=gaps.append)
            await publish(source, range(300))
            await eventually(lambda: feed.statistics().waiting + sum(g.last - g.first + 1 for g in gaps) > 285)
            assert str(gaps[0]).startswith("gap: publisher ")
            assert gaps[0].publisher == source._outbox.publisher
            missed = {x for gap in gaps for x in range(gap.first, gap.last + 1)}
            got = {event["x"] for event in await take(feed, feed.statistics().waiting)}
            assert not missed & got

    run(main())


def test_events_that_only_look_wanted_are_no_gaps():
    """A range finer than the Bloom filters' cells, and no log: the publisher still knows what its events said."""

    async def main():
        stock = load_schema("stock")
        async with fabric() as daemon, sievenet.connect(daemon.url, host="h3") as node:
            await node.schema(stock)
            async with sievenet.connect(daemon.url, host="h1") as source:
                await source.advertise(stock, transport=Publishing(record=8))
                gaps = []
                wanted = "stock: price >= 5.0001 and price <= 5.0002"
                feed = await node.subscribe(wanted, order=True, recover=QUICK, on_gap=gaps.append)
                port = source._session.port
                send = port.send
                for i in range(60):
                    price = 5.00015 if i % 5 == 0 else 5.0003 + i * 1e-6
                    port.send = (lambda packets: True) if i == 30 else send  # one that is wanted gets lost
                    await source.publish(stock.event(symbol="GE", price=price, volume=i))
                got = [event["volume"] for event in await take(feed, 11)]
                assert got == [i for i in range(0, 60, 5) if i != 30]

                def settled():
                    seen = feed.statistics().transport
                    return seen.gaps == 1 and not len(node._transport._sinks[feed.registration.id].receiver.requests)

                await eventually(settled, timeout=20.0)
                assert [(gap.first, gap.last) for gap in gaps] == [(30, 30)]
                assert feed.statistics().transport.lost == 1

    run(main())


def test_a_full_queue_of_the_application_loses_nothing():
    async def main():
        async with fabric(**BAD) as daemon, pair(daemon) as (source, node):
            await source.advertise(SCHEMA)
            feed = await node.subscribe(SCHEMA, order=True, recover=QUICK, queue=8, when_full="wait")
            task = asyncio.create_task(publish(source, range(200)))
            got = []
            for _ in range(200):
                got += [event["x"] for event in await take(feed, 1)]
            await task
            assert got == list(range(200))

    run(main())


def test_rate_control_slows_publish_down():
    async def main():
        narrow = {"links__bandwidth": 400_000.0, "links__queue": 20, "links__delay": 0.002, "seed": 2}
        options = Publishing(record=4, rate_control=True, queue=10, flow_timeout=1.0)
        async with fabric(**narrow) as daemon, pair(daemon, options) as (source, node):
            advertisement = await source.advertise(SCHEMA)
            feed = await node.subscribe("reading: x >= 0", rate_control=RateControl(round_trip=0.02, interval=0.02))
            stop = asyncio.Event()

            async def flood():
                x = 0
                while not stop.is_set():
                    await source.publish(reading(x % 1024, payload=bytes(200)))
                    x += 1
                    await asyncio.sleep(0)

            task = asyncio.create_task(flood())
            # The queue fills, and publish waits for the network.
            await eventually(lambda: advertisement.transport.flows == 1 and advertisement.transport.waiting == 10)
            assert feed.statistics().transport.allowed > 0
            stop.set()
            async with asyncio.timeout(30):
                await task
            assert advertisement.transport.feedbacks > 0

    run(main())


def test_rate_control_can_refuse_instead():
    async def main():
        narrow = {"links__bandwidth": 400_000.0, "links__queue": 20, "links__delay": 0.002, "seed": 2}
        options = Publishing(record=4, rate_control=True, queue=5, when_full="error")
        async with fabric(**narrow) as daemon, pair(daemon, options) as (source, node):
            advertisement = await source.advertise(SCHEMA)
            await node.subscribe(SCHEMA, rate_control=RateControl(round_trip=0.02, interval=0.02))

            async def flood():
                while True:
                    await source.publish(reading(1, payload=bytes(200)))
                    await asyncio.sleep(0)

            with pytest.raises(Rejected, match="slow down"):
                await flood()
            assert advertisement.transport.refused == 1

    run(main())


def test_what_was_lost_before_the_first_message_is_noticed():
    async def main():
        async with fabric() as daemon, pair(daemon) as (source, node):
            await source.advertise(SCHEMA)
            await source.publish(reading(1))  # before the subscription: not for it
            feed = await node.subscribe(SCHEMA, order=True, recover=QUICK)
            port = source._session.port
            send, port.send = port.send, lambda packets: True
            await source.publish(reading(2))
            await source.publish(reading(3))
            port.send = send
            await source.publish(reading(4))
            deliveries = [await feed.next() for _ in range(3)]
            assert [d.event["x"] for d in deliveries] == [2, 3, 4]
            assert [d.recovered for d in deliveries] == [True, True, False]
            assert deliveries[0].publisher == deliveries[2].publisher
            assert abs(deliveries[0].latency) < 10

    run(main())


def test_the_last_messages_are_recovered_by_digests_alone():
    async def main():
        async with fabric() as daemon, pair(daemon, Publishing(record=0, digest=0.02, log=10)) as (source, node):
            await source.advertise(SCHEMA)
            feed = await node.subscribe("reading: x < 5", recover=QUICK)
            await source.publish(reading(0))
            port = source._session.port
            send, port.send = port.send, lambda packets: True
            for x in (9, 3, 4):
                await source.publish(reading(x))
            port.send = send
            assert sorted(event["x"] for event in await take(feed, 3)) == [0, 3, 4]

    run(main())


def test_closing_delivers_what_is_held_and_takes_everything_back():
    async def main():
        async with fabric() as daemon, pair(daemon, Publishing(record=4)) as (source, node):
            await source.advertise(SCHEMA)
            feed = await node.subscribe(SCHEMA, order=True, recover=Recover(distance=20.0))
            await source.publish(reading(1))
            port = source._session.port
            send, port.send = port.send, lambda packets: True
            await source.publish(reading(2))
            port.send = send
            await source.publish(reading(3))
            await eventually(lambda: feed.statistics().transport.waiting == 1)
            await feed.close()
            assert [event["x"] async for event in feed] == [1, 3]
            await eventually(lambda: not node._feeds)
            await source.close()
            await node.close()
            status = await daemon.answers.status()
            assert {switch["flows"] for switch in status["switches"]} == {0}

    run(main())


def test_a_closing_publisher_stays_to_answer():
    async def main():
        options = Publishing(record=2, digest=0.02, log=10, linger=2.0)
        async with fabric() as daemon, sievenet.connect(daemon.url, host="h3") as node:
            await node.schema(SCHEMA)
            feed = await node.subscribe(SCHEMA, recover=QUICK)
            async with sievenet.connect(daemon.url, host="h1") as source:
                await source.advertise(SCHEMA, transport=options)
                await source.publish(reading(1))
                port = source._session.port
                send, port.send = port.send, lambda packets: True
                await source.publish(reading(2))
                port.send = send
                waiting = asyncio.create_task(take(feed, 2))
                closing = asyncio.create_task(source.close())
                assert [event["x"] for event in await waiting] == [1, 2]
                assert not closing.done()
                source._transport.sources["reading"].options = Publishing()
                await closing

    run(main())


def test_who_still_asks_keeps_a_closing_publisher():
    """It stays for `linger` after the last question, not after its last event."""

    async def main():
        options = Publishing(record=2, digest=0.02, log=1000, linger=2.0)
        async with fabric() as daemon, sievenet.connect(daemon.url, host="h3") as node:
            await node.schema(SCHEMA)
            feed = await node.subscribe(SCHEMA, recover=Recover(distance=0.005))
            async with sievenet.connect(daemon.url, host="h1") as source:
                await source.advertise(SCHEMA, transport=options)
                await source.publish(reading(0))
                end, questions = source._transport.sources["reading"], []
                port = source._session.port
                send, port.send = port.send, lambda packets: True
                await source.publish_many([reading(i) for i in range(1, 4)])
                port.send = send
                # The first questions get lost: they are asked again, later and later.
                asked, end.sender._asked = end.sender._asked, lambda request, _: questions.append(request.attempt) or []
                closing = asyncio.create_task(source.close())
                await eventually(lambda: max(questions, default=0) >= 6, timeout=20.0)  # the next after 2.5 seconds
                end.sender._asked = asked
                assert sorted(event["x"] for event in await take(feed, 4)) == [0, 1, 2, 3]
                assert not closing.done()
                end.options = Publishing()
                await closing

    run(main())


def test_a_publisher_without_a_network_says_that_its_end_was_not_heard():
    async def main():
        options = Publishing(digest=0.05, log=100, drain=0.3)
        async with fabric() as daemon:
            source = await sievenet.connect(daemon.url, host="h1", timeout=1.0)
            await source.schema(SCHEMA)
            await source.advertise(SCHEMA, transport=options)
            await source.publish(reading(1))
        with pytest.raises(Unavailable, match="subscribers of reading may have missed events and not know it: no conn"):
            await source.close()

    run(main())


def test_a_publisher_that_comes_back_under_another_number_goes_on():
    async def main():
        async with fabric() as daemon, pair(daemon) as (source, node):
            advertisement = await source.advertise(SCHEMA)
            gaps = []
            feed = await node.subscribe(SCHEMA, order=True, recover=QUICK, on_gap=gaps.append)
            await source.publish(reading(1))
            port = source._session.port
            send, port.send = port.send, lambda packets: True
            await source.publish(reading(2))  # lost, and only the publisher has it
            port.send = send

            def renamed(delivery):
                """As if the network had given the publisher another number with its new connection."""
                return accept(structs.replace(delivery, publisher=delivery.publisher ^ 1))

            sink = node._transport._sinks[feed.registration.id]
            accept, sink.accept = sink.accept, renamed
            hear = sink._hear
            sink._hear = lambda data, speaker: hear(data, speaker ^ 1)
            await source.publish(reading(3))
            await source.publish(reading(4))
            assert [event["x"] for event in await take(feed, 4)] == [1, 2, 3, 4]
            assert gaps == []
            assert sink.foreign == 0
            assert advertisement.transport.published == 4
            await advertisement.close()
            assert advertisement.transport is None

    run(main())


def test_bad_settings_and_events():
    async def main():
        async with fabric() as daemon, pair(daemon) as (source, node):
            for wrong in ({"order": 3}, {"recover": Order()}, {"rate_control": "yes"}):
                with pytest.raises(InvalidInput, match="True, False or"):
                    await node.subscribe(SCHEMA, **wrong)
            with pytest.raises(InvalidInput, match="Publishing"):
                await source.advertise(SCHEMA, transport="yes")
            await source.advertise("reading: x < 5")
            with pytest.raises(Rejected):
                await source.publish(reading(7))
            with pytest.raises(EventError, match="beside the transport's header"):
                await source.publish(reading(1, payload=bytes(32_768)))
            with pytest.raises(EventError):
                await source.publish("no event")

    run(main())


def test_a_rogue_does_no_harm():
    async def main():
        async with (
            fabric() as daemon,
            pair(daemon, Publishing(record=4, digest=0.03, log=100, rate_control=True)) as (source, node),
            sievenet.connect(daemon.url, host="h2") as rogue,
        ):
            advertisement = await source.advertise(SCHEMA)
            gaps = []
            feed = await node.subscribe(SCHEMA, order=True, recover=QUICK, rate_control=True, on_gap=gaps.append)
            await source.publish(reading(0))
            victim, me = source._outbox.publisher, node._transport._sinks[feed.registration.id].receiver.me
            control = await rogue.schema("sievenet.transport.reading")
            await rogue.advertise(control)
            await rogue.advertise(SCHEMA)
            epoch = source._transport.sources["reading"].sender.epoch
            future = Header(victim, epoch, 1 << 40, 1e9, 0)
            said = [
                b"", b"\xff", b"\x13", bytes(range(256)),
                encode_header(future) + b"body",
                encode_header(structs.replace(future, digest=True)),
                encode(Gone(victim, epoch, 0, 1 << 62)),
                encode(Echo(me, victim, 1.0, reply=True)),
                encode(Repair(5, 0, encode_header(structs.replace(future, sequence=5)) + b"no event")),
                encode(Feedback(9, victim, 1.0, (FlowRequest(1 << 500, 64, 1e12), FlowRequest(0, 1, 0.0)))),
                encode(Request(victim, epoch, 1 << 60, 9, 200, 0.0, 0.0, (1 << 128) - 1, 16)),
                encode(Request(12345, 7, 3, 9, 0, 3600.0, 3600.0, (1 << 128) - 1, 16)),
            ]  # fmt: skip
            for data in said:
                for number in (victim, me):
                    one = Send(Channel.NODE, number, 0, data)
                    every = Send(Channel.DIGEST, number, 0, data)
                    for send in (one, every):
                        for event in exchange.events_of(control, send, 0):
                            await rogue.publish(event)
            forged = stamped(reading(999), encode_header(future))
            await rogue.publish(Event.trusted(SCHEMA, forged.values, MARK + b"\x00" + forged.payload))
            rogue._session.port.send(rogue._outbox.packets(forged, 1))
            for x in range(1, 50):
                await source.publish(reading(x))
            got = [event["x"] for event in await take(feed, 52)]
            assert sorted(got) == [*range(50), 999, 999]
            assert [x for x in got if x < 999] == list(range(50))
            assert gaps == []
            done = feed.statistics().transport
            assert done.recovered == 0
            assert done.sessions <= 2
            assert sum(lane.forged for lane in node._transport._lanes.values()) > 0
            assert advertisement.transport.flows == 0

    run(main())
