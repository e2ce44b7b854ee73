"""What a user may rely on, whichever network a node is in: one suite for the fabric and for routers."""

import asyncio
import contextlib

import pytest

import sievenet
from sievenet.client.transport.fabric_host import FabricHost
from sievenet.client.transport.overlay_host import OverlayHost
from sievenet.content import Attribute, Schema
from sievenet.daemon.daemon import Daemon
from sievenet.errors import InvalidInput, ParseError, Rejected, SchemaError, SievenetError, Unavailable
from sievenet.routers.routing import Settings
from sievenet.routers.server import RouterServer
from sievenet.transport import Publishing, Recover
from tests.fabric.harness import SCHEMA, config, eventually, reading
from tests.proxy import Proxy


def losing(emit, every):
    """A way out of a node that loses some events of `SCHEMA`."""
    sent = 0

    def some(host, events):
        nonlocal sent
        sent += events[0].schema == SCHEMA
        return emit(host, events) if sent % every or events[0].schema != SCHEMA else True

    return some


def abort(listener, polite):
    """As `kill -9` would, unless it is to be polite: connections end without a word."""
    for connection in () if polite else list(listener.connections):
        connection.abort()


class Fabric:
    """A fabric of three switches."""

    lease = 30.0

    async def __aenter__(self):
        self._daemon = await Daemon(config(control__lease=self.lease)).__aenter__()
        self.here = self.there = self._daemon.url
        return self

    async def __aexit__(self, *error):
        await self._daemon.__aexit__(*error)

    async def restart(self, polite=True):
        abort(self._daemon.server, polite)
        port = int(self.here.rsplit(":", 1)[1])
        await self._daemon.__aexit__(None, None, None)
        self._daemon = await Daemon(config(listen__port=port)).__aenter__()


class Routers:
    """Two routers; publishers are at one and subscribers at the other."""

    lease = 8.0

    async def __aenter__(self):
        self._settings = Settings(lease=self.lease)
        self._near = await RouterServer("near", self._settings).__aenter__()
        self._far = await RouterServer("far", self._settings, neighbours=[self._near.address]).__aenter__()
        self.here, self.there = self._near.url, self._far.url
        await self._joined()
        return self

    async def _joined(self):
        await eventually(lambda: all(len(r.router.states.overlay.links) == 2 for r in (self._near, self._far)))

    async def __aexit__(self, *error):
        await self._far.__aexit__(*error)
        await self._near.__aexit__(*error)

    async def restart(self, polite=True):
        abort(self._far.listener, polite)
        port = self._far.address[1]
        await self._far.__aexit__(None, None, None)
        self._far = RouterServer("far", self._settings, port=port, neighbours=[self._near.address])
        await self._far.__aenter__()
        await self._joined()


@pytest.fixture(params=[Fabric, Routers], ids=["fabric", "routers"])
def network(request):
    return request.param()


def contract(test):
    """Run a test in its network, with a publisher that may publish everything of `SCHEMA` and a subscriber."""

    def run(network):
        async def main():
            async with (
                network,
                asyncio.timeout(60),
                sievenet.connect(network.here, name="publisher") as publisher,
                sievenet.connect(network.there, name="subscriber") as subscriber,
            ):
                await publisher.advertise(SCHEMA)
                await subscriber.schema(SCHEMA)
                await test(network, publisher, subscriber)

        asyncio.run(main())

    run.__doc__, run.__name__ = test.__doc__, test.__name__
    return run


async def xs(feed, count):
    return [(await feed.next()).event["x"] for _ in range(count)]


@contract
async def test_what_is_published_after_subscribe_returns_is_delivered(network, publisher, subscriber):
    """At once: there is nothing to wait for."""
    for x in range(5):
        feed = await subscriber.subscribe(f"reading: x = {x}")
        await publisher.publish_many([reading(x=i) for i in range(10)])
        await publisher.publish(reading(x=x))
        assert await xs(feed, 2) == [x, x]


@contract
async def test_events_of_a_publisher_come_in_order_and_once(network, publisher, subscriber):
    feed = await subscriber.subscribe("reading: x >= 0")
    for first in range(0, 300, 3):
        await publisher.publish(reading(x=first))
        await publisher.publish_many([reading(x=first + 1), reading(x=first + 2)])
    assert await xs(feed, 300) == list(range(300))
    assert feed.statistics().delivered == 300


@contract
async def test_each_feed_gets_its_own(network, publisher, subscriber):
    """Two feeds of a node overlap: what both want comes to both, once each; what neither wants to none."""
    low, high = await subscriber.subscribe("reading: x < 6"), await subscriber.subscribe("reading: x in 4..8")
    await publisher.publish_many([reading(x=x) for x in range(12)])
    assert await xs(low, 6) == list(range(6))
    assert await xs(high, 5) == list(range(4, 9))
    again = await subscriber.subscribe("reading: x < 6")
    await publisher.publish(reading(x=5))
    assert await xs(low, 1) == await xs(high, 1) == await xs(again, 1) == [5]
    # Closing one leaves its twin.
    await low.close()
    await publisher.publish(reading(x=3))
    assert await xs(again, 1) == [3]
    assert len(high._inbox) == len(low._inbox) == 0


@contract
async def test_a_closed_feed_ends(network, publisher, subscriber):
    """What was queued can be read; then iteration ends, also for whoever waits already."""
    feed = await subscriber.subscribe("reading")
    await publisher.publish(reading(x=1))
    await eventually(lambda: len(feed._inbox) == 1)
    await feed.close()
    await publisher.publish(reading(x=2))
    assert [event["x"] async for event in feed] == [1]
    waiting = await subscriber.subscribe("reading: x > 1000")
    reader = asyncio.create_task(waiting.next())
    await asyncio.sleep(0)
    await waiting.close()
    with pytest.raises(StopAsyncIteration):
        await reader


@contract
async def test_own_events(network, publisher, subscriber):
    feed = await publisher.subscribe("reading: x < 5")
    other = await subscriber.subscribe("reading: x < 5")
    await publisher.publish(reading(x=1))
    assert await xs(other, 1) == [1]
    assert await xs(feed, 1) == [1]
    assert feed.statistics().waiting == 0


@contract
async def test_a_publisher_returns_under_its_name(network, publisher, subscriber):
    feed = await subscriber.subscribe("reading")
    for life in range(3):
        async with sievenet.connect(network.here, name="market") as market:
            await market.advertise(SCHEMA)
            await market.publish_many([reading(x=10 * life + i) for i in range(3)])
            assert await xs(feed, 3) == [10 * life + i for i in range(3)]


@contract
async def test_a_restart_ends_no_feed(network, publisher, subscriber):
    """The daemon, or the subscriber's router, starts anew with nothing: nodes register again, and events flow."""
    feed = await subscriber.subscribe("reading: x < 50")
    gone = await subscriber.subscribe("reading: x > 50")
    for life in range(2):
        await network.restart(polite=life == 0)
        await eventually(lambda: subscriber.statistics().losses > life and subscriber.connected, timeout=20)  # noqa: B023
        await eventually(lambda: publisher.connected, timeout=20)
        if life == 0:
            await gone.close()
        # A wave, or a round of the daemon: what stands now stands everywhere.
        await (await subscriber.subscribe("reading: x = 99")).close()
        await publisher.publish_many([reading(x=life), reading(x=60)])
        assert await xs(feed, 1) == [life]
    assert len(gone._inbox) == 0


@contract
async def test_errors(network, publisher, subscriber):
    """Wrong requests raise at whoever made them, of the same kinds in both networks, and nothing else happens."""
    feed = await subscriber.subscribe("reading: x = 7")
    with pytest.raises(SchemaError, match="nosuch"):
        await subscriber.subscribe("nosuch: x > 1")
    with pytest.raises(SchemaError):
        await subscriber.advertise("nosuch")
    with pytest.raises(ParseError):
        await subscriber.subscribe("reading: x >")
    with pytest.raises(SievenetError, match="nothing"):
        await subscriber.subscribe("reading: nothing = 1")
    with pytest.raises(InvalidInput):
        await subscriber.subscribe(17)
    with pytest.raises(InvalidInput):
        await subscriber.ask("nonsense")
    with pytest.raises(Rejected):
        await subscriber.publish(reading(x=7))
    with pytest.raises(SievenetError):
        await subscriber.publish(Schema("stranger", (Attribute("z", "int", lo=0, hi=9),)).event(z=1))
    with pytest.raises(Rejected, match="taken"):
        await sievenet.connect(network.there, name="subscriber", reconnect=False)
    async with await subscriber.advertise("reading: x < 5"):
        with pytest.raises(Rejected):
            await subscriber.publish(reading(x=7))
        await subscriber.publish(reading(x=4))
    with pytest.raises(Rejected):
        await subscriber.publish(reading(x=4))
    await publisher.publish(reading(x=7))
    assert await xs(feed, 1) == [7]
    assert subscriber.statistics().losses == 0


@contract
async def test_a_closed_node_says_so(network, publisher, subscriber):
    node = await sievenet.connect(network.there)
    feed = await node.subscribe("reading")
    await node.advertise(SCHEMA)
    await node.close()
    assert [event async for event in feed] == []
    for wrong in (node.publish(reading()), node.subscribe("reading"), node.ask("status")):
        with pytest.raises(Unavailable):
            await wrong
    with contextlib.suppress(SievenetError):
        await node.close()


@contract
async def test_a_subscription_given_up_half_way_is_taken_back(network, publisher, subscriber):
    """Cancelled at any moment, `subscribe` leaves nothing behind, and later ones work."""
    for steps in range(5):
        task = asyncio.create_task(subscriber.subscribe("reading: x = 3"))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    feed = await subscriber.subscribe("reading: x = 3")
    await publisher.publish(reading(x=3))
    assert await xs(feed, 1) == [3]
    await feed.close()
    await eventually(lambda: not subscriber._chores)
    assert list(subscriber._ledger) == []


def test_what_is_published_while_the_connection_of_a_subscriber_is_lost_arrives(network):
    async def main():
        async with network, asyncio.timeout(60), Proxy(("127.0.0.1", int(network.there.rsplit(":", 1)[1]))) as proxy:
            there = f"{network.there.rsplit(':', 1)[0]}:{proxy.port}"
            async with sievenet.connect(network.here) as publisher, sievenet.connect(there) as subscriber:
                await publisher.advertise(SCHEMA)
                await subscriber.schema(SCHEMA)
                feed = await subscriber.subscribe(SCHEMA)
                await publisher.publish(reading(1, 1))
                assert await xs(feed, 1) == [1]
                proxy.cut()
                await eventually(lambda: not subscriber.connected)
                await publisher.publish_many([reading(2, 1), reading(3, 1)])
                proxy.mend()
                assert await xs(feed, 2) == [2, 3]
                await eventually(lambda: subscriber.connected)
                await publisher.publish(reading(4, 1))
                assert await xs(feed, 1) == [4]

    asyncio.run(main())


@pytest.mark.parametrize("transport", [None, Publishing(record=2)], ids=["plain", "transport"])
def test_a_publisher_goes_on_whenever_its_connection_breaks(network, transport):
    """Publishing waits for the connection, whatever the moment at which it was lost; no call fails."""

    async def main():
        async with network, asyncio.timeout(60), Proxy(("127.0.0.1", int(network.here.rsplit(":", 1)[1]))) as proxy:
            here = f"{network.here.rsplit(':', 1)[0]}:{proxy.port}"
            async with (
                sievenet.connect(here, transport=transport) as publisher,
                sievenet.connect(network.there) as subscriber,
            ):
                await publisher.advertise(SCHEMA)
                await subscriber.schema(SCHEMA)
                feed = await subscriber.subscribe(SCHEMA)
                for turn in range(6):
                    for _ in range(turn):  # each time another moment: before it is known, and after
                        await asyncio.sleep(0)
                    proxy.cut()
                    asyncio.get_running_loop().call_later(0.05, proxy.mend)
                    for i in range(20):
                        await publisher.publish(reading(i, 1))
                    await publisher.publish(reading(100, 1))
                await eventually(lambda: publisher.connected)
                await publisher.publish(reading(999, 0))
                while (await anext(feed))["x"] != 999:
                    pass

    asyncio.run(main())


def test_a_node_that_dies_is_forgotten_after_its_lease(network):
    """Another may have its name then, without what the dead one had subscribed to."""
    network.lease = 2.0

    async def main():
        async with network, asyncio.timeout(60), sievenet.connect(network.here) as publisher:
            await publisher.advertise(SCHEMA)
            async with Proxy(("127.0.0.1", int(network.there.rsplit(":", 1)[1]))) as proxy:
                there = f"{network.there.rsplit(':', 1)[0]}:{proxy.port}"
                dead = await sievenet.connect(there, name="mortal", timeout=1.0)
                await dead.schema(SCHEMA)
                await dead.subscribe(SCHEMA)
                # As `kill -9` would: without a word, and it does not come back.
                proxy.cut()

                async def again():
                    with contextlib.suppress(Rejected):
                        return await sievenet.connect(network.there, name="mortal", reconnect=False)

                heir = await eventually(again, timeout=30)
                feed = await heir.subscribe("reading: x = 5")
                await publisher.publish_many([reading(x, 1) for x in range(10)])
                assert await xs(feed, 1) == [5]
                counts = heir.statistics().received
                assert counts.strangers + counts.unexplained == 0
                await heir.close()
                with contextlib.suppress(SievenetError):
                    await dead.close()

    asyncio.run(main())


@pytest.mark.parametrize("recover", [False, Recover(distance=0.01)], ids=["told", "recovered"])
def test_what_is_lost_on_the_way_is_told_or_recovered(network, recover, monkeypatch):
    """Every event is delivered once and in order, or told as missing; with a log and recovery none is missing."""
    for host in (FabricHost, OverlayHost):
        monkeypatch.setattr(host, "emit", losing(host.emit, every=7))

    async def main():
        transport = Publishing(record=8, log=1000)
        async with (
            network,
            asyncio.timeout(60),
            sievenet.connect(network.here, transport=transport) as publisher,
            sievenet.connect(network.there) as subscriber,
        ):
            await publisher.advertise(SCHEMA)
            await subscriber.schema(SCHEMA)
            gaps = []
            feed = await subscriber.subscribe(SCHEMA, order=True, recover=recover, on_gap=gaps.append)
            for x in range(100):
                await publisher.publish(reading(x, 1))

            def missing():
                return [x for gap in gaps for x in range(gap.first, gap.last + 1)]

            got = []

            async def accounted():
                got.extend(await xs(feed, feed.statistics().waiting))
                known = sorted([*got, *missing()])
                return len(known) >= 90 and known == list(range(len(known)))

            # The last few may be on their way: nobody knows yet that they are missing.
            await eventually(accounted, timeout=30)
            assert got == sorted({*got} - {*missing()})
            assert bool(gaps) is (recover is False)

    asyncio.run(main())
