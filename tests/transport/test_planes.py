"""The transport over the other planes: content routers, and Open vSwitch where there is one."""

import contextlib

import pytest

import sievenet
from sievenet.client.overlay.membership import RouterMembership
from sievenet.config import load_config
from sievenet.content import EventBatch, Record
from sievenet.daemon.daemon import Daemon
from sievenet.errors import InvalidInput
from sievenet.routers.routing import Settings
from sievenet.routers.server import RouterServer
from sievenet.transport import Publishing, Recover
from tests.fabric.harness import SCHEMA, eventually, fabric, reading, run
from tests.openflow.harness import unique_name
from tests.transport.test_shell import QUICK, SURE, take


@contextlib.asynccontextmanager
async def routers(scheme="covering"):
    """Two routers, one dialling the other."""
    async with (
        RouterServer("r0", Settings(scheme, lease=4.0)) as one,
        RouterServer("r1", Settings(scheme, lease=4.0), neighbours=[one.address]) as two,
    ):
        await eventually(lambda: all(r.router.states.overlay.tree_neighbours(r.router.name) for r in (one, two)))
        yield one, two


@contextlib.contextmanager
def losing(link, every):
    """Routers lose nothing, so the connection does: every so many of the messages with events."""
    publish, count = link.publish, 0

    def some(category, rows):
        nonlocal count
        count += 1
        if count % every:
            publish(category, rows)

    link.publish = some
    try:
        yield
    finally:
        link.publish = publish


@pytest.mark.parametrize("subscriber_first", [False, True])
def test_all_three_over_routers_that_lose(subscriber_first):
    async def main():
        async with (
            routers() as (one, two),
            sievenet.connect(one.url, transport=SURE) as source,
            sievenet.connect(two.url) as node,
        ):
            await source.schema(SCHEMA)
            await node.schema(SCHEMA)
            wishes = {"order": True, "recover": QUICK, "rate_control": True}
            if subscriber_first:
                feed = await node.subscribe("reading: x >= 50", **wishes)
                advertisement = await source.advertise(SCHEMA)
            else:
                advertisement = await source.advertise(SCHEMA)
                feed = await node.subscribe("reading: x >= 50", **wishes)
            plain = await node.subscribe(SCHEMA)
            with losing(source._link, 7):
                for x in range(200):
                    await source.publish(reading(x, payload=b"p"))
                got = await take(feed, 150)
            assert [event["x"] for event in got] == list(range(50, 200))
            assert {event.payload for event in got} == {b"p"}
            done = feed.statistics().transport
            assert done.recovered > 10
            assert advertisement.transport.repairs > 0
            assert {event.payload for event in await take(plain, 100)} == {b"p"}
            assert source.statistics().published == 200

    run(main())


def test_routers_carry_payloads_that_look_like_headers_and_records():
    async def main():
        async with routers() as (one, two), sievenet.connect(one.url) as source, sievenet.connect(two.url) as node:
            await node.schema(SCHEMA)
            await source.advertise(SCHEMA)
            feed = await node.subscribe("reading: x < 5", order=True)
            await source.publish_many(EventBatch.from_events(SCHEMA, [reading(1, payload=b"\x00svt\x21")]))
            assert (await feed.next()).event.payload == b"\x00svt\x21"
            with pytest.raises(InvalidInput, match="schemaless"):
                await node.subscribe("price > 3", recover=True)
            await source.advertise("price > 0", transport=True)  # records have none, and do without
            loose = await node.subscribe("price > 3")
            await source.publish(Record({"price": 5}, b"\x00svt\x21"))
            assert (await loose.next()).event.payload == b"\x00svt\x21"

    run(main())


def test_a_router_that_restarts_is_survived():
    async def main():
        async with routers() as (one, _two), sievenet.connect(one.url, transport=SURE) as source:
            await source.schema(SCHEMA)
            await source.advertise(SCHEMA)
            async with sievenet.connect(one.url) as node:
                feed = await node.subscribe(SCHEMA, order=True, recover=QUICK)
                await source.publish(reading(1))
                assert [event["x"] for event in await take(feed, 1)] == [1]
                before = source._link.publisher
                source._link._link.writer.close()  # as if the connection had broken
                await eventually(lambda: source._link.losses == 1 and source.connected)
                assert source._link.publisher != before
                await eventually(lambda: not source._transport._chores)
                link: RouterMembership = source._link
                with losing(link, 1):
                    await source.publish(reading(2))
                await source.publish(reading(3))
                assert [event["x"] for event in await take(feed, 2)] == [2, 3]

    run(main())


@pytest.mark.root
@pytest.mark.ovs
@pytest.mark.xdist_group("ovs")
def test_all_three_over_open_vswitch(tmp_path_factory):
    async def main():
        folder = tmp_path_factory.mktemp("t")
        settings = {
            "topology": "line,switches=2",
            "dataplane": "ovs",
            "openflow__name": unique_name("svt"),
            "openflow__run_dir": str(folder),
            "listen__port": 0,
        }
        async with (
            Daemon(load_config(**settings)) as daemon,
            sievenet.connect(daemon.url, host="h1") as source,
            sievenet.connect(daemon.url, host="h2") as node,
        ):
            await source.schema(SCHEMA)
            await source.advertise(SCHEMA, transport=Publishing(record=5, digest=0.03, log=500, rate_control=True))
            feed = await node.subscribe(
                "reading: x >= 50", order=True, recover=Recover(distance=0.01), rate_control=True
            )
            port = source._session.port
            send, count = port.send, 0

            def some(packets):
                nonlocal count
                count += 1
                return send(packets) if count % 7 else True

            port.send = some
            for x in range(200):
                await source.publish(reading(x))
            got = await take(feed, 150)
            assert [event["x"] for event in got] == list(range(50, 200))
            assert feed.statistics().transport.recovered > 10

    run(main())


def test_a_fabric_keeps_other_categories_out():
    async def main():
        async with fabric() as daemon, sievenet.connect(daemon.url, transport=SURE) as source:
            await source.schema(SCHEMA)
            await source.advertise(SCHEMA)
            status = await source.ask("status")
            names = {each["name"] for each in status["categories"]}
            assert {"reading", "sievenet.transport.reading"} <= names

    run(main())
