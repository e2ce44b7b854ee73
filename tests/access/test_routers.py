"""Routers whose members are known: neighbours and clients over TLS, rules for events and filters, rotation."""

import asyncio
import contextlib
import random
import shutil
import time

import pytest

import sievenet
from sievenet.access.doorkeeper import Doorkeeper
from sievenet.access.folder import Folder
from sievenet.access.identity import Role
from sievenet.content import Record
from sievenet.content.parser import parse_subscription
from sievenet.errors import Dropped, Rejected, SievenetError, Unavailable
from sievenet.routers.routing import Settings
from sievenet.routers.server import RouterServer
from tests.access.harness import RULES, folder, now
from tests.access.test_hostile import random_filter, random_rules
from tests.fabric.harness import SCHEMA, eventually, reading, run, take
from tests.routers.wire import a_peer
from tests.seeds import seeds

MORE = """
[members.a]
role = "component"
[members.b]
role = "component"
"""


def access_folder(path):
    access = folder(path, RULES + MORE)
    for name in ("a", "b"):
        access.certificate(name, None, 5, now())
    return access


@contextlib.asynccontextmanager
async def two(access):
    """Routers a and b, linked."""
    settings = Settings(lease=4.0)
    async with (
        RouterServer("a", settings, keeper=Doorkeeper(access, "a")) as a,
        RouterServer("b", settings, neighbours=[a.address], keeper=Doorkeeper(access, "b")) as b,
    ):
        await eventually(lambda: all(len(each.router.states.overlay.links) == 2 for each in (a, b)))
        yield a, b


def join(router, access, member, **settings):
    return sievenet.connect(router.url, login=access.login(member), **settings)


def want(text):
    return parse_subscription(text, SCHEMA)


def test_members_at_two_routers(tmp_path):
    access = access_folder(tmp_path)

    async def main():
        async with two(access) as (a, b):
            assert a.url.startswith("sievenet+routers://")
            async with (
                join(a, access, "alice") as alice,
                join(b, access, "olga") as olga,
                join(b, access, "bob") as bob,
            ):
                assert alice.name.startswith("alice.")
                await alice.advertise(want("x < 500"))
                await alice.advertise(want("x = 3"))
                everything = await olga.subscribe(SCHEMA)
                with pytest.raises(Rejected, match="does not let bob subscribe"):
                    await bob.subscribe(want("kind = cold"))
                some = await bob.subscribe(want("x > 50"))
                for x, kind in ((10, "hot"), (60, "cold"), (99, "hot"), (200, "cold"), (300, "hot")):
                    await alice.publish(reading(x=x, kind=kind))
                assert [each["x"] for each in await take(everything, 5)] == [10, 60, 99, 200, 300]
                assert [each["x"] for each in await take(some, 3)] == [60, 99, 300]
                with pytest.raises(Rejected, match="does not let alice publish"):
                    await alice.advertise(SCHEMA)
                with pytest.raises(Rejected, match="No rule lets alice publish records"):
                    await alice.advertise("price > 3")

    run(main())


def test_what_a_client_publishes_is_held_to_the_rules_whatever_it_says(tmp_path):
    access = access_folder(tmp_path)

    async def main():
        async with two(access) as (a, b), join(a, access, "alice") as alice, join(b, access, "olga") as olga:
            feed = await olga.subscribe(SCHEMA)
            await alice.schema(SCHEMA)
            # Our own check is switched off, as a stranger's library has none.
            alice._offers.check = lambda category, events: None
            await alice.publish_many([reading(x=x) for x in (1, 900, 2, 700, 3)])
            assert [each["x"] for each in await take(feed, 3)] == [1, 2, 3]
            await eventually(lambda: alice._link.allowance.refusal is not None)
            with pytest.raises(Rejected, match="2 events were dropped: the rules do not let"):
                await alice.publish(reading(x=4))
            await alice.publish(reading(x=5))
            assert (await take(feed, 1))[0]["x"] == 5
            assert alice._link.losses == 0
            alice._categories[""] = 0
            await alice.publish(Record({"x": 1}))
            await eventually(lambda: alice._link.allowance.refusal is not None)
            with pytest.raises(Rejected, match="records"):
                await alice.publish(reading(x=4))

    run(main())


@pytest.mark.parametrize("seed", seeds(2))
def test_what_is_delivered_is_within_the_permissions(tmp_path, seed):
    """Of publisher and subscriber both, with random rules and wishes; the publisher's library checks nothing."""
    rng = random.Random(seed)
    may_publish, may_read = random_rules(rng)
    rules = "".join(
        f"[members.{name}]\nrole = 'client'\nrules = [{', '.join(chr(39) * 3 + each + chr(39) * 3 for each in said)}]\n"
        for name, said in (
            ("pub", [f"publish reading: {each} narrow" for each in may_publish]),
            ("sub", [f"subscribe reading: {each} narrow" for each in may_read]),
        )
    )
    access = folder(tmp_path, rules + MORE)
    for name in ("a", "b"):
        access.certificate(name, None, 5, now())

    async def main():
        # What was dropped of all that it may not publish is told when it leaves.
        with contextlib.suppress(Dropped, Rejected):
            async with two(access) as (a, b), join(a, access, "pub") as pub, join(b, access, "sub") as sub:
                await pub.schema(SCHEMA)
                await sub.schema(SCHEMA)
                feed = None
                while feed is None:
                    wish = random_filter(rng)
                    with contextlib.suppress(Rejected):  # nothing of it may be allowed: then another wish
                        feed = await sub.subscribe(want(wish))
                pub._offers.check = lambda category, events: None
                sent = []
                for _ in range(200):
                    event = reading(x=rng.randrange(1024), kind=rng.choice(("cold", "hot", "warm")))
                    with contextlib.suppress(SievenetError):  # it is told what was dropped before, and not sent
                        await pub.publish(event)
                        sent.append(event)
                published, allowed = (want(" or ".join(each)) for each in (may_publish, may_read))
                within, wanted = published.intersect(allowed), want(wish)
                due = [each for each in sent if within.matches(each) and wanted.matches(each)]
                got = await take(feed, len(due))
                with pytest.raises(TimeoutError):
                    await take(feed, 1, timeout=0.5)
                found.append(got == due)

    found = []
    run(main())
    assert found == [True]


def test_strangers_are_neither_clients_nor_neighbours(tmp_path, caplog):
    access = access_folder(tmp_path)
    other = access_folder(tmp_path / "other")
    access.certificate("carol", None, 3, now())

    async def main():
        async with two(access) as (a, _):
            plain = a.url.replace("routers", "router")
            with pytest.raises(Unavailable):
                await sievenet.connect(plain, timeout=2, reconnect=False)
            with pytest.raises(Unavailable, match="cannot be trusted"):
                await join(a, other, "alice", timeout=2, reconnect=False)
            access.certificate("r9", Role.COMPONENT, 3, now())
            with pytest.raises(Rejected, match=r"names r9: no member here|may not be a client"):
                await join(a, access, "r9", reconnect=False)
            # A router of another authority, one without the role, and one under another's name.
            for keeper, name in ((Doorkeeper(other, "b"), "b"), (Doorkeeper(access, "daemon"), "b")):
                async with RouterServer(name, Settings(lease=4.0), neighbours=[a.address], keeper=keeper) as stranger:
                    await eventually(lambda: any("no link to the neighbour" in each.message for each in caplog.records))
                    caplog.clear()
                    assert len(stranger.router.states.overlay.links) == 1

    run(main())


def test_rotation_and_revocation_at_routers(tmp_path):
    access = access_folder(tmp_path)

    async def main():
        async with two(access) as (a, b), join(a, access, "olga") as olga, join(b, access, "bob") as bob:
            feed = await bob.subscribe(want("x < 100"))
            await olga.advertise(SCHEMA)
            await olga.publish(reading(x=1))
            assert (await take(feed, 1))[0]["x"] == 1
            before = a.listener.tls
            for name in ("a", "b"):
                access.certificate(name, None, 5, now())
            await eventually(lambda: a.listener.tls is not before)
            await olga.publish(reading(x=2))
            assert (await take(feed, 1))[0]["x"] == 2
            assert olga._link.losses == bob._link.losses == 0
            members = access.path / "members.toml"
            text = members.read_text()
            members.write_text(
                text.replace("x < 100", "x < 9").replace(""", 'subscribe reading: kind = "hot" narrow'""", "")
            )
            with pytest.raises(Rejected, match="x < 9"):
                await take(feed, 1000, timeout=20)
            assert olga._link.losses == 0
            # Old certificates of both count no more: the link is made anew with the new ones.
            link = a._registry.routers["b"]
            for name in ("a", "b"):
                access.revoke(name, keep_newest=True)
            access.revoke("bob")
            await eventually(lambda: not bob.connected, timeout=20)
            again = await olga.subscribe(SCHEMA)
            await eventually(lambda: a._registry.routers.get("b") not in (None, link), timeout=20)
            async with join(b, access, "alice") as alice:
                await alice.advertise(want("x < 500"))
                await alice.publish(reading(x=7))
                assert (await take(again, 1))[0]["x"] == 7

    run(main())


@pytest.mark.parametrize("how", ["revoked", "expired", "no member"])
def test_a_link_ends_when_the_login_of_either_side_no_longer_counts(tmp_path, how, caplog):
    """Also of the side that was dialled; the other one, which has lost nothing of its own, makes no new link to it."""
    access = access_folder(tmp_path)
    access.certificate("b", None, 100, now())
    late = 0.0

    def clock():
        return time.time() + late

    async def main():
        nonlocal late
        settings = Settings(lease=4.0)
        # What b knows is a folder of its own, so that a itself does not learn that it is shut out.
        mine = Folder(shutil.copytree(access.path, tmp_path / "mine"))
        async with (
            RouterServer("a", settings, keeper=Doorkeeper(access, "a")) as a,
            RouterServer("b", settings, neighbours=[a.address], keeper=Doorkeeper(mine, "b", clock=clock)) as b,
        ):
            await eventually(lambda: "a" in b._registry.routers)
            if how == "revoked":
                mine.revoke("a")
            elif how == "expired":
                late = 6 * 86400.0
            else:
                members = mine.path / "members.toml"
                members.write_text(members.read_text().replace("[members.a]", "[members.other]"))
            await eventually(lambda: "a" not in b._registry.routers and "b" not in a._registry.routers)
            await eventually(lambda: any("no link to the neighbour" in each.message for each in caplog.records))
            assert "a" not in b._registry.routers

    run(main())


@pytest.mark.parametrize("kind", ["token", "certificate"])
def test_a_new_login_goes_on_with_the_session_of_the_old_one(tmp_path, kind):
    """What comes between the end of a login and the return with another one arrives, once and in order."""
    access = access_folder(tmp_path)

    def rotate():
        if kind == "token":
            access.token("bob", None)
        else:
            access.certificate("bob", None, 5, now())
        access.revoke("bob", keep_newest=True)

    if kind == "certificate":
        access.revoke("bob")
    rotate()

    async def main():
        async with two(access) as (a, _), join(a, access, "olga") as olga, join(a, access, "bob", name="bob") as bob:
            got = []
            await bob.subscribe(want("x < 100"), callback=lambda event: got.append(event["x"]))
            await olga.advertise(SCHEMA)
            await olga.publish(reading(x=0))
            await eventually(lambda: got == [0])
            old = a._registry.clients["bob"]
            dial = bob._link._connect
            away = asyncio.Event()

            async def later():
                await away.wait()
                return await dial()

            bob._link._connect = later
            rotate()
            await eventually(lambda: old.absent, timeout=30)
            await olga.publish_many([reading(x=x) for x in range(1, 50)])
            await olga.confirmed()
            away.set()
            await eventually(lambda: len(got) == 50, timeout=30)
            assert got == list(range(50))
            assert bob.statistics().missed == 0
            assert a._registry.clients["bob"] is not old
            # Somebody else with the ticket gets nothing, and a member that is none any more is forgotten at once.
            now_at = a._registry.clients["bob"]
            stolen = a_peer()
            stolen.entered = a._registry.clients[olga.name].entered
            assert not stolen.follows(now_at, now_at.ticket)
            stolen.entered = now_at.entered
            assert stolen.follows(now_at, now_at.ticket)
            bob._link._connect = later
            away.clear()
            members = access.path / "members.toml"
            members.write_text(members.read_text().replace("[members.bob]", "[members.bobby]"))
            await eventually(lambda: "bob" not in a._registry.clients, timeout=30)

    run(main())


def test_whoever_leaves_a_router_is_told_what_was_dropped(tmp_path):
    rules = "role = 'client'\nrules = ['publish *: any']\nquota = { events = 100 }\n"
    access = folder(tmp_path, f"{MORE}[members.small]\n{rules}")
    access.certificate("a", None, 5, now())

    async def main():
        async with RouterServer("a", keeper=Doorkeeper(access, "a")) as a:
            small = await join(a, access, "small")
            await small.advertise(SCHEMA)
            await small.publish_many([reading(x=1)] * 3000)
            with pytest.raises(Dropped, match="more than the quota of events"):
                await small.confirmed()
            await small.confirmed()
            await small.publish_many([reading(x=1)] * 3000)
            with pytest.raises(Dropped, match="more than the quota of events"):
                await small.close()

    run(main())


def test_quotas_at_routers(tmp_path):
    access = folder(
        tmp_path,
        MORE
        + """
[members.small]
role = "client"
rules = ["publish *: any", "subscribe *: any"]
quota = { connections = 1, requests = 20, subscriptions = 2, events = 100, schemas = 1 }
""",
    )
    access.certificate("a", None, 5, now())

    async def main():
        async with RouterServer("a", keeper=Doorkeeper(access, "a")) as a, join(a, access, "small") as small:
            with pytest.raises(Rejected, match=r"at most 1 connections of small \(quota\)"):
                await join(a, access, "small", reconnect=False)
            await small.advertise(SCHEMA)
            with pytest.raises(Rejected, match=r"at most 1 schemas of small \(quota\)"):
                await small.schema(sievenet.Schema("other", SCHEMA.attributes))
            await small.subscribe(SCHEMA)
            with pytest.raises(Rejected, match=r"at most 2 subscriptions of small \(quota\)"):
                await small.subscribe(SCHEMA)

            async def ask():
                for _ in range(60):
                    await small.ask("status")

            with pytest.raises(Rejected, match=r"at most 20 requests per second of small \(quota\)"):
                await ask()
            await small.publish_many([reading(x=1)] * 3000)
            await eventually(lambda: small._link.allowance.refusal is not None)
            with pytest.raises(Rejected, match="more than the quota of events"):
                await small.publish(reading(x=1))
            await asyncio.sleep(0.2)  # the quota of requests fills again
            with pytest.raises(Rejected, match="Expected an operator to ask for explain"):
                await small.ask("explain", "reading: x > 1")

    run(main())


def test_a_publisher_that_is_a_little_too_fast_waits_and_loses_nothing(tmp_path):
    """The router does not read it until its quota allows more: it has to wait, and so does whoever calls `publish`."""
    rules = "role = 'client'\nrules = ['publish *: any']\nquota = { events = 200 }\n"
    access = folder(tmp_path, f"{RULES}{MORE}[members.small]\n{rules}")
    access.certificate("a", None, 5, now())

    async def main():
        async with (
            RouterServer("a", keeper=Doorkeeper(access, "a")) as a,
            join(a, access, "olga") as reader,
            join(a, access, "small") as small,
        ):
            await small.advertise(SCHEMA)
            feed = await reader.subscribe(SCHEMA)
            begin = time.monotonic()
            for i in range(8):
                await small.publish_many([reading(x=i)] * 50)
            assert [each["x"] for each in await take(feed, 400)] == [i for i in range(8) for _ in range(50)]
            assert time.monotonic() - begin > 0.9  # 200 at once, and 200 more in a second

    run(main())
