"""A node's own events reach its own feeds, on every network alike: once, in order, and not with `own=False`."""

import asyncio
import contextlib

import pytest

import sievenet
from sievenet.content import Record
from sievenet.routers.server import RouterServer
from sievenet.tap import read_segment
from sievenet.transport import Order, Publishing, Recover
from tests.fabric.harness import SCHEMA, eventually, fabric, reading, run, take


@contextlib.asynccontextmanager
async def embedded():
    async with fabric() as daemon:
        yield daemon.url


@contextlib.asynccontextmanager
async def routers():
    async with RouterServer("r") as router:
        yield router.url


@contextlib.asynccontextmanager
async def open_vswitch():
    from tests.openflow.harness import unique_name

    settings = {"dataplane": "ovs", "openflow__name": unique_name("svo"), "openflow__links": "patch"}
    async with fabric(**settings) as daemon:
        yield daemon.url


NETWORKS = [
    embedded,
    routers,
    pytest.param(open_vswitch, marks=[pytest.mark.ovs, pytest.mark.root, pytest.mark.slow]),
]
every_network = pytest.mark.parametrize("network", NETWORKS, ids=lambda n: n.__name__)


@every_network
def test_own_events_come_once_and_in_order(network):
    async def main():
        async with network() as url, sievenet.connect(url, name="a") as a, sievenet.connect(url, name="b") as b:
            for node in (a, b):
                await node.schema(SCHEMA)
                await node.advertise(SCHEMA)
            mine = await a.subscribe("reading: x < 500")
            others = await a.subscribe("reading: x < 500", own=False)
            seen = await b.subscribe("reading: x < 500")
            for x in range(5):
                await a.publish(reading(x=x))
            await a.publish_many([reading(x=x) for x in (*range(5, 40), 900)])
            assert [e["x"] for e in await take(mine, 40)] == list(range(40))
            assert sorted([e["x"] for e in await take(seen, 40)]) == list(range(40))
            await b.publish(reading(x=77))
            assert [e["x"] for e in await take(others, 1)] == [77]
            assert [e["x"] for e in await take(mine, 1)] == [77]
            assert [e["x"] for e in await take(seen, 1)] == [77]
            # Whatever would still come has had its time: the other node's event was later than all.
            for feed in (mine, others, seen):
                assert feed.statistics().waiting == 0

    run(main())


@every_network
def test_own_deliveries_say_so(network):
    async def main():
        async with network() as url, sievenet.connect(url) as node:
            await node.schema(SCHEMA)
            await node.advertise(SCHEMA)
            feed = await node.subscribe(SCHEMA)
            await node.publish_many([reading(x=1, payload=b"p"), reading(x=2)])
            first, second = await feed.next(), await feed.next()
            assert first.own
            assert second.own
            assert first.event == reading(x=1, payload=b"p")
            assert (first.publisher, first.incarnation) == (second.publisher, second.incarnation)
            assert second.sequence == first.sequence + 1

    run(main())


@pytest.mark.parametrize("network", NETWORKS[:2], ids=lambda n: n.__name__)
def test_with_a_transport_too(network):
    """Nothing to order or to recover: what was just said here is given at once, and no gap is told."""
    gaps = []

    async def main():
        async with network() as url, sievenet.connect(url) as node:
            await node.schema(SCHEMA)
            await node.advertise(SCHEMA, transport=Publishing(log=100, digest=0.05))
            feed = await node.subscribe(SCHEMA, order=Order(), recover=Recover(), on_gap=gaps.append)
            for x in range(20):
                await node.publish(reading(x=x))
            assert [e["x"] for e in await take(feed, 20)] == list(range(20))
            await asyncio.sleep(0.2)  # some digests
            assert feed.statistics().waiting == 0

    run(main())
    assert gaps == []


@pytest.mark.parametrize("network", NETWORKS[:2], ids=lambda n: n.__name__)
def test_a_full_queue_that_waits_makes_its_own_publisher_wait(network):
    async def main():
        async with network() as url, sievenet.connect(url) as node:
            await node.schema(SCHEMA)
            await node.advertise(SCHEMA)
            feed = await node.subscribe(SCHEMA, queue=4, when_full="wait")
            publishing = asyncio.create_task(node.publish_many([reading(x=x) for x in range(50)]))
            await eventually(lambda: feed.statistics().waits > 0)
            assert not publishing.done()
            assert [e["x"] for e in await take(feed, 50)] == list(range(50))
            await publishing
            # A feed that ends lets its publisher go.
            publishing = asyncio.create_task(node.publish_many([reading(x=x) for x in range(50)]))
            await eventually(lambda: feed.statistics().waiting == 4)
            await feed.close()
            await publishing

    run(main())


def test_records_without_a_schema():
    async def main():
        async with routers() as url, sievenet.connect(url) as node:
            await node.advertise("x > 0")
            feed = await node.subscribe("x > 1")
            for x in (1, 2):
                await node.publish(Record({"x": x}))
            assert await take(feed, 1) == [Record({"x": 2})]
            assert feed.statistics().waiting == 0

    run(main())


def test_a_tap_at_a_router_samples_too(tmp_path):
    async def main():
        async with routers() as url, sievenet.connect(url, name="p", tap=tmp_path, tap_factor=1) as node:
            await node.schema(SCHEMA)
            await node.advertise(SCHEMA, transport=Publishing(log=100, digest=0.02))
            await node.publish_many([reading(x=x) for x in range(30)])
            await asyncio.sleep(0.1)

    run(main())
    # One schema, that of the application: what the transport says besides is not sampled.
    (path,) = tmp_path.glob("*.tap")
    segment = read_segment(path.read_bytes())
    assert [event["x"] for part in segment.parts for event in part.batch] == list(range(30))
