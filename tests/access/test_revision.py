"""Rules that change under traffic: what stays allowed goes on without a gap, what is not ends with the rule's name."""

import asyncio
import contextlib

import pytest

from sievenet.access.doorkeeper import Doorkeeper
from sievenet.access.identity import Role
from sievenet.access.login import load_login
from sievenet.cachehost import CacheHost
from sievenet.content.parser import parse_subscription
from sievenet.errors import Rejected
from sievenet.routers.server import RouterServer
from tests.access.harness import folder, guarded, join, now
from tests.fabric.harness import SCHEMA, eventually, reading, run, take

ALL, HOT = '"subscribe reading: x < 100"', """'subscribe reading: kind = "hot" narrow'"""
RULES = f"""
[members.alice]
role = "client"
rules = ["publish reading: x < 500 narrow"]
[members.bob]
role = "client"
rules = [{ALL}, {HOT}]
[members.olga]
role = "operator"
rules = ["publish *: any", "subscribe *: any"]
"""


def want(text):
    return parse_subscription(text, SCHEMA)


def change(access, old, new):
    members = access.path / "members.toml"
    text = members.read_text()
    assert old in text
    members.write_text(text.replace(old, new))


@contextlib.asynccontextmanager
async def fabric_of(access, **changes):
    async with guarded(access, **changes) as daemon:
        yield daemon, daemon


@contextlib.asynccontextmanager
async def routers_of(access):
    for name in ("a", "b"):
        access.certificate(name, Role.COMPONENT, 3, now())
    async with (
        RouterServer("a", keeper=Doorkeeper(access, "a")) as a,
        RouterServer("b", keeper=Doorkeeper(access, "b"), neighbours=[a.address]) as b,
    ):
        await eventually(lambda: a._registry.routers and b._registry.routers)
        yield a, b


def numbered(number, kind):
    return reading(x=number * 37 % 1000, kind=kind, payload=number.to_bytes(4, "big"))


def numbers(events):
    return [int.from_bytes(event.payload, "big") for event in events]


@pytest.mark.parametrize("network", [fabric_of, routers_of])
def test_a_reader_keeps_what_stays_allowed_and_is_told_of_the_rest(tmp_path, network, caplog):
    """An oracle of all that was published says what is due at each reader; one has a rule taken away, one a part."""
    access = folder(tmp_path, RULES)

    async def main():
        async with (
            network(access) as (near, far),
            join(near, access, "olga") as olga,
            join(far, access, "bob") as bob,
        ):
            await olga.advertise(SCHEMA)
            few = await bob.subscribe(want("x < 100 and kind = cold"), queue=1_000_000)
            hot = await bob.subscribe(want("kind = hot"), queue=1_000_000)
            sent, stop = [], asyncio.Event()

            async def publish():
                while not stop.is_set():
                    sent.append(numbered(len(sent), ("hot", "cold")[len(sent) % 2]))
                    await olga.publish(sent[-1])
                    await asyncio.sleep(0.001)

            traffic = asyncio.create_task(publish())
            await eventually(lambda: len(sent) > 200)
            change(access, f"{ALL}, {HOT}", HOT.replace(" narrow", " and x < 500 narrow"))
            with pytest.raises(Rejected, match="x < 500 narrow` does not let bob subscribe"):
                await take(few, 1_000_000, timeout=20)
            await eventually(lambda: any("is narrowed to what is allowed" in each.message for each in caplog.records))
            told = len(sent)
            await eventually(lambda: len(sent) > told + 300)
            stop.set()
            await traffic
            await olga.publish(last := numbered(len(sent) * 2000, "hot"))
            got = []
            while last not in got:
                got += await take(hot, 1)
            got.remove(last)
            throughout = [event for event in sent if event["kind"] == "hot" and event["x"] < 500]
            assert [each for each in numbers(got) if sent[each]["x"] < 500] == numbers(throughout)
            beyond = [each for each in numbers(got) if sent[each]["x"] >= 500]
            assert beyond
            assert max(beyond) < told
            assert bob.statistics().losses == olga.statistics().losses == 0
            with pytest.raises(Rejected, match="does not let bob subscribe"):
                await bob.subscribe(want("kind = cold"))
            # More rights again: nothing has to be connected anew for them.
            change(access, 'kind = "hot" and x < 500 narrow', "x > 0")
            await asyncio.sleep(2.5)
            everything = await bob.subscribe(want("x > 0"))
            await olga.publish(numbered(0, "cold"))
            await olga.publish(numbered(7, "cold"))
            assert numbers(await take(everything, 1)) == [7]

    run(main(), timeout=60)


@pytest.mark.parametrize("network", [fabric_of, routers_of])
def test_a_publisher_keeps_what_stays_allowed_and_is_told_of_the_rest(tmp_path, network, caplog):
    access = folder(tmp_path, RULES)

    async def main():
        async with (
            network(access) as (near, far),
            join(near, access, "alice") as alice,
            join(far, access, "olga") as olga,
        ):
            await olga.schema(SCHEMA)
            feed = await olga.subscribe(SCHEMA)
            await alice.advertise(want("x < 500"))
            await alice.publish(reading(x=300))
            change(access, "publish reading: x < 500 narrow", "publish reading: x < 200 narrow")
            await eventually(lambda: any("is narrowed to what is allowed" in each.message for each in caplog.records))
            with pytest.raises(Rejected, match="within what this node advertises"):
                await alice.publish(reading(x=301))
            await alice.publish(reading(x=100))
            assert [each["x"] for each in await take(feed, 2)] == [300, 100]
            change(access, '"publish reading: x < 200 narrow"', "")
            await eventually(lambda: alice._allowance.refusal is not None)
            with pytest.raises(Rejected, match="No rule lets alice publish in reading"):
                await alice.publish(reading(x=100))
            with pytest.raises(Rejected, match="Expected an advertisement of reading"):
                await alice.publish(reading(x=100))
            assert alice.statistics().losses == 0

    run(main(), timeout=60)


def test_a_client_that_was_away_is_told_when_it_is_back(tmp_path, caplog):
    access = folder(tmp_path, RULES)

    async def main():
        async with guarded(access) as daemon, join(daemon, access, "bob", name="bob") as bob:
            await daemon.control.register_schema(SCHEMA)
            few, hot = [await bob.subscribe(want(text)) for text in ("x < 100 and kind = cold", "kind = hot")]
            server = daemon.server.address
            bob._session.address = ("127.0.0.1", 9)  # nobody listens there
            bob._session._link.writer.transport.abort()
            await eventually(lambda: not bob.connected)
            change(access, f"{ALL}, {HOT}", HOT.replace(" narrow", " and x < 500 narrow"))
            await eventually(lambda: len(daemon.control.registrations_of("bob")[1]) == 1)
            bob._session.address = server
            await eventually(lambda: bob.connected, timeout=20)
            with pytest.raises(Rejected, match="does not let bob subscribe"):
                await take(few, 1)
            await eventually(lambda: any("is narrowed to what is allowed" in each.message for each in caplog.records))
            # Nothing of the change is left: one subscription, under its own id.
            await eventually(lambda: [*daemon.control.registrations_of("bob")[1]] == [hot.registration.id])

    run(main(), timeout=60)


def test_what_a_router_keeps_for_a_client_that_is_away_is_not_given_beyond_the_rules_of_now(tmp_path):
    """It is told how many events it missed instead."""
    access = folder(tmp_path, RULES)

    async def main():
        async with (
            routers_of(access) as (a, b),
            join(a, access, "olga") as olga,
            join(b, access, "bob", name="bob") as bob,
        ):
            await olga.advertise(SCHEMA)
            feed = await bob.subscribe(want("kind = hot"))
            address = bob._link.address
            bob._link.address = ("127.0.0.1", 9)  # nobody listens there
            bob._link._link.writer.transport.abort()
            await eventually(lambda: not bob.connected and b._registry.clients["bob"].absent)
            for x in (700, 400, 800):
                await olga.publish(reading(x=x, kind="hot"))
            await eventually(lambda: b._registry.clients["bob"].session.unconfirmed == 3)
            change(access, HOT, HOT.replace(" narrow", " and x < 500 narrow"))
            await eventually(
                lambda: all(entry.wanted != feed.registration.wanted for _, entry in b.router.registrations("bob"))
            )
            bob._link.address = address
            await eventually(lambda: bob.connected, timeout=20)
            await eventually(lambda: bob.statistics().missed == 3)
            await olga.publish(reading(x=401, kind="hot"))
            assert [each["x"] for each in await take(feed, 1)] == [401]

    run(main(), timeout=60)


@pytest.mark.parametrize(
    ("left", "ends"),
    [pytest.param(HOT, False, marks=pytest.mark.slow, id="narrowed"), pytest.param("", True, id="taken away")],
)
def test_a_cache_serves_no_more_than_the_rules_of_now_allow(tmp_path, left, ends, caplog):
    """A subscriber that is slow, so that a cache serves it, gets nothing later that its rules do not allow any more."""
    everything = '"subscribe reading: any narrow"'
    access = folder(tmp_path, RULES.replace(f"{ALL}, {HOT}", everything))
    access.certificate("keep", Role.COMPONENT, 3, now())

    async def main():
        async with (
            guarded(access) as daemon,
            join(daemon, access, "olga", host="h1") as olga,
            CacheHost(daemon.url, None, name="keep", host="h2", login=load_login(access.login("keep"))),
            join(daemon, access, "bob", host="h3") as bob,
        ):
            await olga.advertise(SCHEMA)
            feed = await bob.subscribe("reading", max_rate=100, queue=10)
            got, error = [], None

            async def slowly():
                nonlocal error
                try:
                    async for event in feed:
                        got.append(event)
                        await asyncio.sleep(0.005)
                except Rejected as reason:
                    error = reason

            reader = asyncio.create_task(slowly())
            for number in range(1500):
                await olga.publish(numbered(number, ("hot", "cold")[number % 2]))
                if number % 4 == 0:
                    await asyncio.sleep(0.002)
            assert feed.statistics().caches.state == "active"
            change(access, everything, left)
            await eventually(lambda: any("its cache no longer serves" in each.message for each in caplog.records))
            await asyncio.sleep(2.0)  # what was on its way or waits in the queue is handed out
            before = len(got)
            for number in range(1500, 1800):
                await olga.publish(numbered(number, ("hot", "cold")[number % 2]))
            if ends:
                await eventually(lambda: reader.done(), 20)
                assert "bob subscribe" in str(error)
            else:
                await eventually(lambda: got and numbers(got[-1:]) == [1798], 30)
                assert numbers(got[before:])[-150:] == list(range(1500, 1800, 2))  # and nothing allowed is missing
                await feed.close()
                await reader
            assert not [each for each in got[before:] if each["kind"] == "cold"]

    run(main(), timeout=90)


def test_a_client_that_becomes_an_observer_has_no_place_in_the_network_any_more(tmp_path, caplog):
    """Its connection ends, and its session with it: its datagrams count no more, whatever it keeps sending."""
    access = folder(tmp_path, RULES)

    async def main():
        async with guarded(access) as daemon, join(daemon, access, "bob") as bob:
            assert bob.name in daemon.plane.clients()
            change(access, f'role = "client"\nrules = [{ALL}, {HOT}]', 'role = "observer"')
            await eventually(lambda: bob.name not in daemon.plane.clients())
            assert any("may be a client or component" in each.message for each in caplog.records)

    run(main(), timeout=60)
