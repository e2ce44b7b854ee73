"""What lasts: subscriptions over lost connections and restarted daemons, leases, and plan changes under traffic."""

import asyncio
import contextlib

import pytest

import sievenet
from sievenet.content import parse_filter
from sievenet.daemon.daemon import Daemon
from sievenet.errors import Rejected, Unavailable
from sievenet.index import Plan
from tests.fabric.harness import SCHEMA, config, eventually, fabric, publisher, reading, run, take


def cut(daemon, name):
    """Break a client's control connection as a network would."""
    daemon.service._peers[name].abort()


def test_a_lost_connection_is_made_again_and_nothing_is_missed():
    async def main():
        async with fabric() as daemon, sievenet.connect(daemon.url, name="n") as node, publisher(daemon) as source:
            feed = await node.subscribe("reading")
            for x in range(3):
                await source.publish(reading(x))
                cut(daemon, "n")
                await eventually(lambda losses=x + 1: node.statistics().losses == losses and node.connected)
            assert [e["x"] for e in await take(feed, 3)] == list(range(3))
            assert node.statistics().received.duplicates == 0
            second = await node.subscribe("reading: x = 3")
            await source.publish(reading(3))
            assert (await take(second, 1))[0]["x"] == 3

    run(main())


def test_events_flow_while_the_control_connection_is_down():
    async def main():
        async with fabric() as daemon, sievenet.connect(daemon.url, name="n") as node, publisher(daemon) as source:
            feed = await node.subscribe("reading")
            real, daemon.service.hello = daemon.service.hello, None
            cut(daemon, "n")
            await eventually(lambda: not node.connected)
            await source.publish(reading(5))
            assert (await take(feed, 1))[0]["x"] == 5
            daemon.service.hello = real
            await eventually(lambda: node.connected)

    run(main())


def test_requests_in_flight_are_asked_again():
    async def main():
        async with fabric() as daemon, sievenet.connect(daemon.url, name="n") as node, publisher(daemon) as source:
            await node.schema(SCHEMA)
            calls = [asyncio.create_task(node.subscribe(f"reading: x = {x}")) for x in range(50)]
            await asyncio.sleep(0)
            cut(daemon, "n")
            feeds = await asyncio.gather(*calls)
            _, subscriptions = daemon.control.registrations_of("n")
            assert len(subscriptions) == 50
            await source.publish_many([reading(x) for x in range(50)])
            for x, feed in enumerate(feeds):
                assert (await take(feed, 1))[0]["x"] == x

    run(main())


@contextlib.asynccontextmanager
async def restarting(**changes):
    """A daemon that can be restarted at the same address: yields (daemon of now, restart)."""
    box = {}

    async def start(**more):
        box["daemon"] = await Daemon(config(**{**changes, **more})).start()

    await start()
    port = int(box["daemon"].url.rsplit(":", 1)[1])

    async def restart(**more):
        await box["daemon"].close()
        await start(listen__port=port, **more)

    try:
        yield box, restart
    finally:
        await box["daemon"].close()


@pytest.mark.parametrize("kept", [True, False], ids=["with its journal", "without anything"])
def test_a_subscription_survives_a_restarted_daemon(kept, tmp_path):
    async def main():
        state = str(tmp_path) if kept else None
        async with restarting(state=state) as (box, restart):
            node = await sievenet.connect(box["daemon"].url, name="n")
            source = await sievenet.connect(box["daemon"].url, name="source")
            offer = await source.advertise(SCHEMA)
            feed = await node.subscribe("reading: x < 100")
            gone = await node.subscribe("reading: x < 200")
            for round in range(3):
                await restart()
                if round == 0:
                    # Given up while the daemon is away: taken back as soon as it is there.
                    await gone.close()
                await eventually(lambda: node.connected and source.connected)
                await source.publish(reading(round))
                assert (await take(feed, 1))[0]["x"] == round
                _, subscriptions = box["daemon"].control.registrations_of("n")
                assert set(subscriptions) == {feed.registration.id}
                assert (await node.ask("check"))["ok"]
            await offer.close()
            with pytest.raises(Rejected):
                await source.publish(reading(1))
            await node.close()
            await source.close()

    run(main())


def test_publishing_waits_for_the_daemon_and_gives_up_in_time(tmp_path):
    async def main():
        async with restarting(state=str(tmp_path)) as (box, restart):
            source = await sievenet.connect(box["daemon"].url, timeout=0.2)
            await source.advertise(SCHEMA)
            await box["daemon"].close()
            await eventually(lambda: not source.connected)
            with pytest.raises(Unavailable, match="No connection to"):
                await source.publish(reading())
            with pytest.raises(Unavailable):
                await source.ask("status")
            await restart()
            source._session.timeout = 10.0
            await source.publish(reading())
            await source.close()

    run(main())


def test_without_reconnect_a_loss_is_final():
    async def main():
        async with fabric() as daemon, publisher(daemon, name="n", reconnect=False) as node:
            cut(daemon, "n")
            await eventually(lambda: not node.connected)
            with pytest.raises(Unavailable):
                await node.publish(reading())

    run(main())


async def vanish(node):
    """The node's process dies: no goodbye, no more heartbeats."""
    session = node._session
    session._task.cancel()
    session._link.writer.transport.abort()
    await asyncio.gather(session._task, return_exceptions=True)
    await session._link.close()
    session.port.close()


def test_a_client_that_dies_is_cleaned_up_after_its_lease():
    async def main():
        async with fabric(control__lease=0.3) as daemon, publisher(daemon) as source:
            node = await sievenet.connect(daemon.url, name="mortal", host="h3")
            await node.subscribe("reading")
            await source.publish(reading())
            await vanish(node)
            await eventually(lambda: "mortal" not in daemon.plane.clients())
            status = await daemon.answers.status()
            assert sum(s["flows"] for s in status["switches"]) == 0
            assert sum(c["subscriptions"] for c in status["categories"]) == 0
            again = await sievenet.connect(daemon.url, name="mortal")
            await again.close()

    run(main())


def test_heartbeats_keep_the_lease_and_carry_reports():
    async def main():
        async with (
            fabric(control__lease=1, listen__heartbeat=0.05) as daemon,
            sievenet.connect(daemon.url, name="n") as node,
            publisher(daemon, name="source") as source,
        ):
            feed = await node.subscribe("reading: x < 10")
            await source.publish_many([reading(x) for x in range(12)])
            await take(feed, 10)
            loop = asyncio.get_running_loop()
            start = loop.time()
            await eventually(lambda: loop.time() > start + 2.2)
            assert node.statistics().losses == 0
            status = await node.ask("status")
            by_name = {c["name"]: c for c in status["clients"]}
            assert by_name["n"]["delivered"] == 10
            assert by_name["source"]["published"] == 12
            assert 0 < status["traffic"]["latency_p50"] < 1
            assert status["traffic"]["received"] >= 10
            await node.close()
            assert daemon.answers._reports.totals().delivered == 10

    run(main())


def test_a_client_whose_lease_ended_comes_back_with_everything(caplog):
    async def main():
        async with fabric(control__lease=30) as daemon, sievenet.connect(daemon.url, name="n") as node:
            await node.advertise(SCHEMA)
            feed = await node.subscribe("reading: x < 10", own=False)
            other = await sievenet.connect(daemon.url)
            more = await other.subscribe("reading")
            await daemon.control.leave("n")
            daemon.service._expired("n")
            await eventually(lambda: node.statistics().losses == 1 and node.connected)
            # Events of that time may be missing, and it is told so; the other one has missed nothing.
            assert node.statistics().away > 0
            assert other.statistics().away == 0
            assert "may be missing here" in caplog.text
            await node.publish(reading(1))
            assert (await take(more, 1))[0]["x"] == 1
            await other.advertise(SCHEMA)
            await other.publish(reading(2))
            assert (await take(feed, 1))[0]["x"] == 2
            await other.close()

    run(main())


# -- plans ------------------------------------------------------------------------------------


def plans():
    yield Plan.regular(SCHEMA, 12, dimensions=["x"], version=2)
    yield Plan.adaptive(SCHEMA, {"x": [20, 40, 80]}, 16, kind="cells", version=3)
    yield Plan.selective(SCHEMA, [{"x": (0, 300)}, {"x": (200, 600)}], 20, rest=True, version=4)
    yield Plan.regular(SCHEMA, 24, version=5)


def test_changing_the_plan_under_traffic_loses_nothing():
    async def main():
        async with fabric(topology="testbed", control__forwarding_delay=0.05) as daemon:
            sources = [await sievenet.connect(daemon.url) for _ in range(2)]
            nodes = [await sievenet.connect(daemon.url) for _ in range(3)]
            feeds = []
            for i, node in enumerate(nodes):
                await node.schema(SCHEMA)
                for text in (f"x < {100 * (i + 1)}", "kind = hot"):
                    wanted = parse_filter(text, SCHEMA)
                    feeds.append((wanted, await node.subscribe(wanted, queue=1_000_000)))
            stop = asyncio.Event()
            sent = []

            async def stream(source, offset):
                await source.advertise(SCHEMA)
                x = offset
                while not stop.is_set():
                    event = reading(x % 1024, kind=("hot", "cold", "warm")[x % 3])
                    await source.publish(event)
                    sent.append(event)
                    x += 2
                    await asyncio.sleep(0.0005)

            async def more():
                enough = len(sent) + 100
                await eventually(lambda: len(sent) > enough)

            streams = [asyncio.create_task(stream(source, i)) for i, source in enumerate(sources)]
            reports = []
            for plan in plans():
                await more()
                reports.append(await nodes[0].apply_plan("reading", plan.to_json()))
            await more()
            stop.set()
            await asyncio.gather(*streams)
            for wanted, feed in feeds:
                expected = sorted(e.values for e in sent if wanted.matches(e))
                assert sorted(e.values for e in await take(feed, len(expected))) == expected
                assert feed.statistics().waiting == 0
            assert [r["epoch"] for r in reports] == [2, 3, 4, 5]
            ports = max(len(daemon.plane.topology.ports(s)) for s in daemon.plane.topology.switches) + 2
            assert all(r["extra_flows"] <= ports for r in reports)
            assert (await nodes[0].ask("check"))["ok"]
            assert (await nodes[0].plan("reading")) == next(p.to_json() for p in plans() if p.version == 5)
            await asyncio.gather(*(node.close() for node in (*sources, *nodes)))

    run(main(), timeout=120)


def test_a_publisher_that_is_away_adopts_the_plan_when_it_comes_back():
    async def main():
        async with (
            fabric(control__forwarding_delay=0.01) as daemon,
            publisher(daemon, name="source") as source,
            sievenet.connect(daemon.url) as node,
        ):
            feed = await node.subscribe("reading: x < 10")
            # The source hears nothing of the change until it is connected again.
            real, daemon.service.hello = daemon.service.hello, None
            cut(daemon, "source")
            await eventually(lambda: not source.connected)
            change = asyncio.create_task(node.apply_plan("reading", next(plans()).to_json()))
            await eventually(lambda: daemon.control.status().transitions)
            assert not change.done()
            daemon.service.hello = real
            await eventually(lambda: source.connected)
            assert (await change)["epoch"] == 2
            await source.publish(reading(4))
            assert (await take(feed, 1))[0]["x"] == 4
            assert source._catalog["reading"].epoch == 2

    run(main())


def test_a_publisher_that_dies_does_not_hold_a_plan_up_beyond_its_lease():
    async def main():
        async with (
            fabric(control__lease=0.3, control__forwarding_delay=0.01) as daemon,
            sievenet.connect(daemon.url) as node,
        ):
            mortal = await sievenet.connect(daemon.url, name="mortal")
            await mortal.advertise(SCHEMA)
            await vanish(mortal)
            assert (await node.apply_plan("reading", next(plans()).to_json()))["epoch"] == 2
            assert "mortal" not in daemon.plane.clients()

    run(main())


# -- failures, haste ------------------------------------------------------------------------------


def test_a_link_that_fails_is_gone_round_and_used_again():
    async def main():
        async with (
            fabric(topology="ring,switches=4") as daemon,
            publisher(daemon, host="h1") as source,
            sievenet.connect(daemon.url, host="h3") as node,
        ):
            feed = await node.subscribe("reading")

            async def arrives(x):
                """Whether an event gets through now."""
                await source.publish(reading(x))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        return (await anext(feed))["x"] == x
                return False

            async def down(links):
                topology = await node.ask("topology")
                return [sorted((k["a"], k["b"])) for k in topology["links"] if not k["up"]] == links

            assert await arrives(1)
            plane = daemon.plane
            for a, b in (("s1", "s2"), ("s1", "s4")):
                plane.link_down(a, b)
                await eventually(lambda: arrives(2))
                assert (await node.ask("check"))["ok"]
                # A picture is taken seldom: the one before may be told for a while.
                await eventually(lambda: down([[a, b]]))  # noqa: B023
                plane.link_up(a, b)
                await eventually(lambda: arrives(3))
            plane.switch_down("s2")
            await eventually(lambda: arrives(4))
            status = await node.ask("status")
            assert [s["name"] for s in status["switches"] if not s["up"]] == ["s2"]
            plane.switch_up("s2")
            await eventually(lambda: arrives(5))

    run(main())


def test_many_requests_at_once_wait_their_turn():
    async def main():
        async with fabric(listen__max_open=2) as daemon, sievenet.connect(daemon.url, name="n") as node:
            await node.schema(SCHEMA)
            await asyncio.gather(*(node.subscribe(f"reading: x = {x}") for x in range(300)))
            _, subscriptions = daemon.control.registrations_of("n")
            assert len(subscriptions) == 300

    run(main())


def test_a_subscription_given_up_half_way_is_taken_back():
    async def main():
        async with fabric() as daemon, sievenet.connect(daemon.url, name="n") as node:
            await node.schema(SCHEMA)
            for wait in range(6):
                tasks = [
                    asyncio.create_task(node.subscribe("reading")),
                    asyncio.create_task(node.advertise("reading")),
                ]
                for _ in range(wait):
                    await asyncio.sleep(0)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            await eventually(lambda: not node._chores)
            assert daemon.control.registrations_of("n") == ({}, {})
            assert node.statistics().losses == 0

    run(main())


def test_what_the_next_daemon_refuses_ends_with_its_reason():
    async def main():
        async with restarting() as (box, restart):
            node = await sievenet.connect(box["daemon"].url, name="n", host="h3")
            source = await sievenet.connect(box["daemon"].url, name="source", host="h1")
            await source.advertise(SCHEMA)
            feeds = [await node.subscribe(f"reading: x = {x}") for x in (1, 500, 1000)]
            await restart(control__share=1)
            await eventually(lambda: node.connected and source.connected)
            # Who registers again first is accepted; what is more than a client's share is refused.
            await eventually(lambda: len(node._ledger) < 3 or not len(source._ledger))
            if not len(source._ledger):
                with pytest.raises(Rejected):
                    await source.publish(reading(500))
            else:
                refused = next(feed for feed in feeds if feed._error)
                with pytest.raises(Rejected):
                    await anext(refused)
            await node.close()
            await source.close()

    run(main())
