"""Publish and subscribe through a daemon on loopback: everybody gets exactly what they want, once."""

import asyncio
import random

import pytest

import sievenet
from sievenet.content import EventBatch, Filter, Subscription, parse_filter, parse_subscription
from sievenet.errors import Rejected, SchemaError, Unavailable
from tests.fabric.harness import SCHEMA, eventually, fabric, publisher, reading, run, take
from tests.seeds import seeds


def test_an_event_reaches_those_who_want_it_and_nobody_else():
    async def main():
        async with (
            fabric() as daemon,
            sievenet.connect(daemon.url, host="h3") as node,
            publisher(daemon, name="source", host="h1") as source,
        ):
            low = await node.subscribe(SCHEMA)
            high = await node.subscribe("reading: x > 500")
            for x in (1, 501, 1000):
                await source.publish(reading(x))
            assert [e["x"] for e in await take(low, 3)] == [1, 501, 1000]
            assert [e["x"] for e in await take(high, 2)] == [501, 1000]
            assert node.host == "h3"
            assert source.name == "source"

    run(main())


@pytest.mark.parametrize("seed", seeds(1))
def test_random_filters_and_events_against_brute_force(seed):
    rng = random.Random(seed)

    def some_filter():
        lo = rng.randrange(1024)
        parts = [f"x in [{lo}, {min(1023, lo + rng.randrange(300))}]"]
        if rng.random() < 0.5:
            parts.append(f"kind in {{{rng.choice(['cold', 'hot'])}, warm}}")
        if rng.random() < 0.3:
            parts.append(f"ok = {rng.choice(['true', 'false'])}")
        if rng.random() < 0.3:
            parts.append(f"y < {rng.random():.3f}")
        return parse_filter(" and ".join(parts), SCHEMA)

    async def main():
        async with fabric(topology="testbed") as daemon:
            sources = [await sievenet.connect(daemon.url) for _ in range(3)]
            for source in sources:
                await source.advertise(SCHEMA)
            nodes = [await sievenet.connect(daemon.url) for _ in range(5)]
            feeds = [
                (wanted, await node.subscribe(wanted))
                for node in nodes
                for wanted in (Subscription([some_filter() for _ in range(rng.randint(1, 3))]) for _ in range(8))
            ]
            events = [
                reading(rng.randrange(1024), rng.random(), rng.choice(["cold", "hot", "warm"]), rng.random() < 0.5)
                for _ in range(150)
            ]
            for i, event in enumerate(events):
                await sources[i % 3].publish(event)
            for wanted, feed in feeds:
                expected = sorted(e.values for e in events if wanted.matches(e))
                got = await take(feed, len(expected))
                assert sorted(e.values for e in got) == expected
            for node in nodes:
                counts = node.statistics().received
                assert counts.duplicates == counts.malformed == counts.late == 0
                assert counts.received == counts.matched + counts.false_positives
            await asyncio.gather(*(node.close() for node in (*sources, *nodes)))
            assert all(feed.statistics().waiting == 0 for _, feed in feeds)
            # All are gone, and with them every flow.
            status = await daemon.answers.status()
            assert [switch["flows"] for switch in status["switches"]] == [0] * 10
            assert status["clients"] == []

    run(main())


def test_delivery_is_guaranteed_from_the_moment_subscribe_returns():
    async def main():
        async with fabric() as daemon, sievenet.connect(daemon.url) as node, publisher(daemon) as source:
            for x in range(30):
                feed = await node.subscribe(f"reading: x = {x}")
                await source.publish(reading(x))
                assert (await take(feed, 1))[0]["x"] == x

    run(main())


def test_publish_many_keeps_order_and_payloads():
    async def main():
        async with fabric() as daemon, sievenet.connect(daemon.url) as node, publisher(daemon) as source:
            feed = await node.subscribe(SCHEMA)
            events = [reading(i % 1024, payload=b"%d" % i) for i in range(1500)]
            assert await source.publish_many(events) == 1500
            assert [e.payload for e in await take(feed, 1500)] == [e.payload for e in events]
            batch = EventBatch.from_events(SCHEMA, events[:300])
            assert await source.publish_many(batch) == 300
            assert [e["x"] for e in await take(feed, 300)] == list(range(300))
            assert await source.publish_many([]) == 0
            assert source.statistics().published == 1800

    run(main())


def test_many_events_use_the_batch_encoder_with_the_same_result(monkeypatch):
    monkeypatch.setattr("sievenet.client.outbox._WORTHWHILE", 100)

    async def main():
        async with fabric() as daemon, sievenet.connect(daemon.url) as node, publisher(daemon) as source:
            feed = await node.subscribe("reading: x < 512")
            events = [reading(i) for i in range(1024)]
            await source.publish_many(events)
            assert [e["x"] for e in await take(feed, 512)] == list(range(512))

    run(main())


def test_unsubscribing_ends_the_feed_and_removes_the_flows():
    async def main():
        async with (
            fabric() as daemon,
            sievenet.connect(daemon.url, host="h3") as node,
            publisher(daemon, host="h1") as source,
        ):
            feed = await node.subscribe("reading: x < 10")
            async with await node.subscribe("reading: x < 10") as second:
                await source.publish(reading(1))
                await take(feed, 1)
                await take(second, 1)
            await feed.close()
            with pytest.raises(StopAsyncIteration):
                await anext(feed)
            await feed.close()
            status = await daemon.answers.status()
            assert sum(switch["flows"] for switch in status["switches"]) == 0

    run(main())


def test_callbacks():
    async def main():
        async with fabric() as daemon, sievenet.connect(daemon.url) as node, publisher(daemon) as source:
            seen = []
            feed = await node.subscribe("reading: ok = true", seen.append)
            for x in range(5):
                await source.publish(reading(x, ok=x % 2 == 0))
            await eventually(lambda: len(seen) == 3)
            assert [e["x"] for e in seen] == [0, 2, 4]
            await feed.close()

    run(main())


def test_a_node_hears_itself_through_the_network():
    async def main():
        async with fabric() as daemon, sievenet.connect(daemon.url) as node:
            await node.advertise(SCHEMA)
            other = await sievenet.connect(daemon.url, host=node.host)
            feed = await other.subscribe(SCHEMA)
            await node.publish(reading(3))
            assert (await take(feed, 1))[0]["x"] == 3
            await other.close()

    run(main())


@pytest.mark.parametrize(
    "what",
    [
        "reading: x >= 7 or x < 3",
        parse_subscription("x >= 7 or x < 3", SCHEMA),
        parse_filter("x >= 7", SCHEMA),
        "reading",
        SCHEMA,
        Filter(SCHEMA),
    ],
    ids=["text", "subscription", "filter", "name", "schema", "everything"],
)
def test_what_can_be_subscribed_to(what):
    async def main():
        async with fabric() as daemon, sievenet.connect(daemon.url) as node, publisher(daemon) as source:
            feed = await node.subscribe(what)
            await source.publish(reading(8))
            assert (await take(feed, 1))[0]["x"] == 8
            assert feed.subscription.matches(reading(8))

    run(main())


def test_schemas_are_registered_once_and_looked_up_by_name():
    async def main():
        async with fabric() as daemon, sievenet.connect(daemon.url) as node, sievenet.connect(daemon.url) as other:
            assert await node.schema(SCHEMA) == SCHEMA
            assert await other.schema("reading") == SCHEMA
            assert await node.schema("reading") is await node.schema(SCHEMA)
            with pytest.raises(SchemaError):
                await other.schema("writing")

    run(main())


def test_observers_ask_and_do_nothing_else():
    async def main():
        async with fabric() as daemon, sievenet.connect(daemon.url, observer=True) as node:
            with pytest.raises(Rejected, match="observer"):
                await node.schema(SCHEMA)
            await daemon.control.register_schema(SCHEMA)
            assert (await node.ask("status"))["clients"] == []
            with pytest.raises(Rejected, match="observer"):
                await node.subscribe("reading")
            with pytest.raises(Rejected, match="observer"):
                await node.advertise("reading")

    run(main())


def test_a_closed_node_says_so():
    async def main():
        async with fabric() as daemon:
            node = await sievenet.connect(daemon.url)
            await node.advertise(SCHEMA)
            feed = await node.subscribe(SCHEMA)
            await node.close()
            assert [e async for e in feed] == []
            with pytest.raises(Unavailable):
                await node.publish(reading())
            with pytest.raises(Unavailable):
                await node.subscribe(SCHEMA)

    run(main())


def test_nobody_there():
    async def main():
        with pytest.raises(Unavailable, match=r"No daemon at sievenet://127.0.0.1:1"):
            await sievenet.connect("sievenet://127.0.0.1:1")

    run(main())


def test_a_full_queue_that_waits_loses_nothing_that_fits_the_buffers_below():
    async def main():
        async with fabric() as daemon, sievenet.connect(daemon.url) as node, publisher(daemon) as source:
            slow = await node.subscribe("reading", queue=10, when_full="wait")
            quick = await node.subscribe("reading")
            await source.publish_many([reading(i) for i in range(500)])
            got = []
            for _ in range(500):
                got += [e["x"] for e in await take(slow, 1)]
            assert got == list(range(500))
            assert [e["x"] for e in await take(quick, 500)] == got
            assert slow.statistics().waits > 0
            assert slow.statistics().dropped == 0

    run(main())


@pytest.mark.parametrize(("policy", "kept"), [("drop_oldest", range(90, 100)), ("drop_newest", range(10))])
def test_full_queues_that_drop_say_so(policy, kept):
    async def main():
        told = []
        async with fabric() as daemon, sievenet.connect(daemon.url) as node, publisher(daemon) as source:
            last = await node.subscribe("reading: x = 99")
            feed = await node.subscribe("reading", queue=10, when_full=policy, on_overflow=told.append)
            await source.publish_many([reading(i) for i in range(100)])
            await take(last, 1)
            assert [e["x"] for e in await take(feed, 10)] == list(kept)
            assert feed.statistics().dropped == 90 == told[-1].total == sum(o.dropped for o in told)

    run(main())
