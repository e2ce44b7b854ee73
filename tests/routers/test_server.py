"""Routers and clients over real sockets on loopback."""

import asyncio
import contextlib
import subprocess
import sys

import pytest
from click.testing import CliRunner

import sievenet
from sievenet.cli import main as command
from sievenet.client.url import parse_router_url
from sievenet.content import Attribute, Event, EventBatch, Filter, Record, Schema, ValueSet
from sievenet.errors import CodecError, InvalidInput, Rejected, SchemaError, Unavailable
from sievenet.routers import protocol as p
from sievenet.routers.core import Router
from sievenet.routers.routing import Settings
from sievenet.routers.server import RouterServer
from sievenet.routers.shipment import Shipment
from sievenet.session.framing import frame
from tests.fabric.harness import eventually

STOCK = Schema(
    "ticks",
    (
        Attribute("symbol", "str"),
        Attribute("price", "float", lo=0.0, hi=1e6),
        Attribute("volume", "int", lo=0, hi=10**9),
    ),
)


def tick(symbol="IBM", price=1.0, volume=1, payload=b""):
    return Event(STOCK, (symbol, price, volume), payload)


@contextlib.asynccontextmanager
async def chain(count, settings=None, **options):
    """Routers in a row; each dials the one before."""
    async with contextlib.AsyncExitStack() as stack:
        routers = []
        for i in range(count):
            near = [routers[-1].address] if routers else []
            server = RouterServer(f"r{i}", settings or Settings(lease=4.0), neighbours=near, **options)
            routers.append(await stack.enter_async_context(server))
        await eventually(lambda: all(len(r.router.states.overlay.links) == count for r in routers))
        await eventually(
            lambda: all(r.router.states.overlay.tree_neighbours(r.router.name) or count == 1 for r in routers)
        )
        yield routers


@pytest.mark.parametrize("scheme", ["covering", "cbcb", "bdrp", "edge"])
def test_events_cross_a_chain(scheme):
    async def main():
        async with (
            chain(3, Settings(scheme, lease=4.0)) as routers,
            sievenet.connect(routers[0].url, name="pub") as pub,
            sievenet.connect(routers[2].url) as sub,
        ):
            await pub.schema(STOCK)
            await pub.advertise("ticks")
            await sub.schema(STOCK)
            feed = await sub.subscribe('ticks: price > 10 and symbol = "IBM"')
            other = await sub.subscribe(Filter(STOCK, {"volume": ValueSet.interval(5, None)}))
            events = [tick(price=5.0 + i, volume=i, payload=b"x" * i) for i in range(10)]
            await pub.publish(events[0])
            assert await pub.publish_many(events[1:]) == 9
            got = [await feed.__anext__() for _ in range(4)]
            assert got == events[6:]
            assert [await other.__anext__() for _ in range(5)] == events[5:]
            assert other.statistics().delivered == 5
            assert pub.name == "pub"
            assert pub.host == "r0"
            assert sub.connected
            assert sub.statistics().delivered == 9
            assert pub.statistics().published == 10
            await feed.close()
            status = await sub.ask("status")
            assert status["routers"] == ["r0", "r1", "r2"]

    asyncio.run(main())


def test_schemaless_records_and_callbacks():
    async def main():
        async with chain(2) as routers:
            got = []
            async with sievenet.connect(routers[1].url) as sub, sievenet.connect(routers[0].url) as pub:
                feed = await sub.subscribe("price > 3 and name exists", got.append)
                advertisement = await pub.advertise(Filter(None))
                records = [Record({"price": 4}), Record({"price": 5, "name": "x"}), Record({"price": 1, "name": "y"})]
                await pub.publish_many(records)
                await pub.publish(Record({"price": 9.5, "name": "z"}))
                await eventually(lambda: len(got) == 2)
                assert got == [records[1], Record({"price": 9.5, "name": "z"})]
                await advertisement.close()
                with pytest.raises(Rejected, match="advertisement of records without a schema"):
                    await pub.publish(records[0])
                await sub.unsubscribe(feed)

    asyncio.run(main())


@pytest.mark.parametrize("name", ["a b", "", "x" * 65, "-a"])
def test_a_router_whose_name_nobody_could_hear_does_not_start(name):
    with pytest.raises(InvalidInput, match="a name of letters"):
        RouterServer(name)


def test_bad_requests_are_answered_and_disturb_nobody():
    async def main():
        async with chain(1) as (router,), sievenet.connect(router.url, name="a") as node:
            with pytest.raises(Rejected, match="taken"):
                await sievenet.connect(router.url, name="a", reconnect=False)
            with pytest.raises(SchemaError, match="nosuch"):
                await node.subscribe("nosuch: x > 1")
            with pytest.raises(InvalidInput, match="status, explain or reach"):
                await node.ask("nonsense")
            with pytest.raises(SchemaError):
                await node.publish_many([tick()])
            with pytest.raises(InvalidInput):
                await node.subscribe(17)
            assert await node.publish_many([]) == 0
            for plan in (node.plan("ticks"), node.apply_plan("ticks", "{}")):
                with pytest.raises(InvalidInput, match="no index plans"):
                    await plan
            link = node._link
            with pytest.raises(CodecError):
                await link.call(lambda number: p.Register(number, b"\xff\xff"))
            with pytest.raises(SchemaError, match="category"):
                await link.call(lambda number: p.Subscribe(number, 1, 12345, b""))
            with pytest.raises(Rejected, match="one hello"):
                await link.call(lambda number: p.Hello(1, "client", "b", request=number))
            assert node.connected

    asyncio.run(main())


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",
        b"\0\0\0\2\xc1\xc1",
        frame(p.Done(1)),
        frame(p.Hello(99, "client")),
        frame(p.Ask(1, "status")),
    ],
    ids=["length", "garbage", "not-hello", "version", "early"],
)
def test_strangers_are_turned_away(data):
    async def main():
        async with chain(1) as (router,):
            reader, writer = await asyncio.open_connection(*router.address)
            writer.write(data)
            async with asyncio.timeout(30):
                answer = await reader.read()
            assert b"Failure" in answer
            writer.close()

    asyncio.run(main())


def test_clients_come_back_to_a_router_that_was_restarted():
    async def main():
        first = RouterServer("r", Settings(lease=4.0))
        await first.__aenter__()
        _, port = first.address
        async with sievenet.connect(first.url) as node:
            await node.schema(STOCK)
            await node.advertise("ticks")
            feed = await node.subscribe("ticks: price > 1")
            await first.__aexit__()
            await eventually(lambda: not node.connected)
            async with RouterServer("r", Settings(lease=4.0), port=port):
                await eventually(lambda: node.connected)
                await node.publish(tick(price=2.0))
                assert (await feed.next()).event == tick(price=2.0)
                assert node.statistics().losses == 1
        with pytest.raises(Unavailable, match="No router"):
            await sievenet.connect(first.url, reconnect=False)

    asyncio.run(main())


def test_what_the_next_router_refuses_ends_with_its_reason(monkeypatch):
    async def main():
        async with chain(1) as (router,):
            port = router.address[1]
            node = await sievenet.connect(router.url, name="a")
            await node.schema(STOCK)
            feeds = [await node.subscribe(f"ticks: volume = {i}") for i in (1, 2)]
            await node.advertise("ticks")
        enter = Router._enter

        def refuse(self, kind, client, number, *rest):
            if (kind, number) in (("subscription", 1), ("advertisement", 3)):
                raise Rejected("no room")
            return enter(self, kind, client, number, *rest)

        monkeypatch.setattr(Router, "_enter", refuse)
        async with RouterServer("r0", Settings(lease=4.0), port=port) as router:
            await eventually(lambda: node.connected)
            with pytest.raises(Rejected, match="no room"):
                await feeds[0].next()
            with pytest.raises(Rejected, match="before publishing"):
                await node.publish(tick())
            async with sievenet.connect(router.url) as other:
                await other.advertise(STOCK)
                await other.publish_many([tick(volume=1), tick(volume=2)])
                assert (await feeds[1].next()).event == tick(volume=2)
            await node.close()

    asyncio.run(main())


def test_a_subscription_given_up_half_way_is_taken_back():
    async def main():
        async with chain(1) as (router,), sievenet.connect(router.url, name="a") as node:
            await node.schema(STOCK)
            for wait in range(6):
                tasks = [asyncio.create_task(node.subscribe("ticks")), asyncio.create_task(node.advertise("ticks"))]
                for _ in range(wait):
                    await asyncio.sleep(0)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            await eventually(lambda: not node._chores)
            assert router.router._clients["a"] == {}

    asyncio.run(main())


def test_neighbours_that_vanish_are_routed_around():
    """A ring of four: when one router stops, events take the other way."""

    async def main():
        settings = Settings(lease=2.0)
        async with contextlib.AsyncExitStack() as stack:
            routers = []
            for i in range(4):
                near = [routers[-1].address] if routers else []
                if i == 3:
                    near.append(routers[0].address)
                routers.append(await stack.enter_async_context(RouterServer(f"r{i}", settings, neighbours=near)))
            await eventually(lambda: all(len(r.router.states.overlay.links.get("r0", ())) == 2 for r in routers))
            pub = await stack.enter_async_context(sievenet.connect(routers[0].url))
            sub = await stack.enter_async_context(sievenet.connect(routers[2].url))
            await pub.schema(STOCK)
            await pub.advertise("ticks")
            feed = await sub.subscribe(STOCK)
            await pub.publish(tick(price=1.0))
            assert (await feed.next()).event == tick(price=1.0)
            path = routers[0].router.states.overlay
            middle = next(
                r for r in routers if r.router.name in ("r1", "r3") and r.router.name in path.tree_neighbours("r0")
            )
            await middle.__aexit__()
            left = [r for r in routers if r is not middle]
            await eventually(
                lambda: all(
                    middle.router.name not in r.router.states.overlay.tree_neighbours(r.router.name) for r in left
                )
            )
            await sub.unsubscribe(await sub.subscribe("ticks: price > 5"))  # a wave: everybody is up to date
            await asyncio.sleep(0)
            await pub.publish(tick(price=2.0))
            assert (await feed.next()).event == tick(price=2.0)

    asyncio.run(main())


def test_a_full_queue_that_waits_holds_the_publisher():
    async def main():
        async with (
            chain(2) as routers,
            sievenet.connect(routers[0].url) as pub,
            sievenet.connect(routers[1].url) as sub,
        ):
            await pub.schema(STOCK)
            await pub.advertise(STOCK)
            feed = await sub.subscribe(STOCK, queue=10, when_full="wait")
            await pub.publish_many(EventBatch.from_events(STOCK, [tick(volume=i) for i in range(500)]))
            got = [(await feed.next()).event.values[2] for _ in range(500)]
            assert got == list(range(500))

    asyncio.run(main())


def test_explain_and_status_from_the_shell():
    async def main():
        async with (
            chain(3) as routers,
            sievenet.connect(routers[0].url) as one,
            sievenet.connect(routers[0].url) as two,
        ):
            await one.schema(STOCK)
            await one.subscribe("ticks: price > 10")
            await two.subscribe("ticks: price > 20")

            def shell(*words):
                return CliRunner().invoke(command, ["router", *words])

            wide = await asyncio.to_thread(shell, "--url", routers[0].url, "--explain", "ticks: price > 10")
            narrow = await asyncio.to_thread(shell, "--url", routers[0].url, "--explain", "ticks: price > 20")
            status = await asyncio.to_thread(shell, "--url", routers[1].url, "--status", "--json")
            return wide, narrow, status

    wide, narrow, status = asyncio.run(main())
    assert wide.exit_code == narrow.exit_code == status.exit_code == 0, wide.output
    assert "to r1: forwarded" in wide.output
    assert "a root filter" in wide.output
    assert "price > 10" in narrow.output
    assert "and covers it" in narrow.output
    assert '"r0"' in status.output


@pytest.mark.slow
def test_pub_and_sub_from_the_shell():
    async def shell(*words):
        arguments = [sys.executable, "-m", "sievenet", *words]
        process = await asyncio.create_subprocess_exec(*arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output, _ = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0, output.decode()
        return output.decode()

    async def main():
        async with chain(2) as routers:
            wanted = ("--schema", "stock", "-n", "1", "stock: price > 420")
            waiting = asyncio.create_task(shell("sub", "--url", routers[1].url, *wanted))
            await eventually(lambda: routers[0].router.routing.size() or waiting.done())
            await shell("pub", "--url", routers[0].url, "stock: symbol=IBM, price=421.5, volume=1200")
            assert "421.5" in await waiting

    asyncio.run(main())


def test_commands_refuse_bad_addresses():
    result = CliRunner().invoke(command, ["router", "--listen", "nowhere"])
    assert result.exit_code != 0
    assert "HOST:PORT" in result.output
    for url in ("sievenet+router://", "sievenet+router://h:99999", "http://h", "sievenet+router://h/x"):
        with pytest.raises(InvalidInput, match="a URL such as"):
            parse_router_url(url)


def test_events_that_come_together_go_on_together():
    records = [Record({"n": i}) for i in range(6)]
    parts = [Shipment.publish("r", 1, 0, 2 * i, 5, records[2 * i : 2 * i + 2]) for i in range(3)]
    batch = EventBatch.from_events(STOCK, [tick(volume=i) for i in range(3)])
    parts += [Shipment.publish("r", 1, 7, 6 + 3 * i, 5, batch) for i in range(2)]
    parts += [Shipment.publish("r", 1, 7, 0, 5, batch)]  # numbers that do not ascend stay apart
    one, two, three = Shipment.joined(parts)
    assert one.events == tuple(records)
    assert one.sequences.tolist() == list(range(6))
    assert [e.values[2] for e in two.rows()] == [0, 1, 2, 0, 1, 2]
    assert two.sequences.tolist() == list(range(6, 12))
    assert three is parts[-1]
    assert Shipment.joined([]) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--scheme", "covering", "--height", "8"), "--height is for --scheme edge, got --scheme covering"),
        (("--scheme", "bdrp", "--ask-every", "5s"), "--ask-every is for --scheme cbcb, got --scheme bdrp"),
        (("--scheme", "cbcb", "--advertisements"), "--advertisements is for --scheme simple or"),
        (("--scheme", "edge", "--height", "7"), "Expected a height that divides 1024, got 7"),
        (("--forest", "oak"), "'oak' is not one of"),
    ],
)
def test_options_that_a_scheme_would_ignore_are_refused(options, said):
    result = CliRunner().invoke(command, ["router", "--listen", "127.0.0.1:0", *options])
    assert result.exit_code != 0
    assert said in " ".join((result.output or str(result.exception)).split()) or said in str(result.exception)
