"""Schemas change under traffic: a new version beside the old one, and categories that end."""

import asyncio

import pytest

import sievenet
from sievenet.content import Attribute, Schema
from sievenet.errors import Rejected, SchemaError
from tests.fabric.harness import SCHEMA, eventually, fabric, reading, run, take

NEWER = Schema(
    "reading",
    (
        *(a for a in SCHEMA.attributes if a.name != "kind"),
        Attribute("kind", "str", values=("boiling", "cold", "hot", "warm")),
        Attribute("place", "str", values=("east", "west")),
    ),
    2,
)


def newer(x=1, kind="hot", place="east", payload=b""):
    return NEWER.event(payload, x=x, y=0.5, kind=kind, ok=True, place=place)


def test_old_and_new_pairs_all_work_while_a_version_comes_under_traffic():
    async def main():
        async with (
            fabric() as daemon,
            sievenet.connect(daemon.url, name="old-pub", host="h1") as old_pub,
            sievenet.connect(daemon.url, name="old-sub", host="h3") as old_sub,
            sievenet.connect(daemon.url, name="new-pub", host="h2") as new_pub,
            sievenet.connect(daemon.url, name="new-sub", host="h3") as new_sub,
        ):
            await old_pub.advertise(SCHEMA)
            old_feed = await old_sub.subscribe("reading: x < 1000", queue=100_000)
            sent = 0
            going = True

            async def traffic():
                nonlocal sent
                while going:
                    await old_pub.publish(reading(sent % 1000, payload=b"old %d" % sent))
                    sent += 1
                    await asyncio.sleep(0)

            task = asyncio.create_task(traffic())
            await eventually(lambda: sent > 50)
            await new_pub.schema(NEWER)
            await new_pub.advertise(NEWER)
            # The very first event of the new version reaches the old subscriber.
            for i in range(50):
                await new_pub.publish(newer(i, kind="boiling", payload=b"new %d" % i))
            new_feed = await new_sub.subscribe("reading: x < 1000", queue=100_000)
            picky = await new_sub.subscribe("reading: place = east")
            since = sent
            for i in range(50, 100):
                await new_pub.publish(newer(i, place="west", payload=b"new %d" % i))
            await new_pub.publish(newer(7, payload=b"new picky"))
            await eventually(lambda: sent > since + 50)
            going = False
            await task
            everything = {b"old %d" % i for i in range(sent)} | {b"new %d" % i for i in range(100)} | {b"new picky"}
            got = await take(old_feed, len(everything))
            assert {e.payload for e in got} == everything
            late = {b"old %d" % i for i in range(since + 1, sent)} | {b"new %d" % i for i in range(50, 100)}
            seen = set()
            while not late <= seen:
                seen.add((await asyncio.wait_for(anext(new_feed), 30)).payload)
            # What was published before may still have been on its way; of what came after only one is wanted.
            before = {b"new %d" % i for i in range(50)}
            while (first := (await take(picky, 1))[0].payload) in before:
                pass
            assert first == b"new picky"
            assert old_sub.statistics().received.malformed == new_sub.statistics().received.malformed == 0
            # A filter of the old version speaks of the old values, whatever is added.
            tepid = await old_sub.subscribe('reading: kind != "hot"')
            await new_pub.publish(newer(1, kind="boiling"))
            await new_pub.publish(newer(2, kind="cold"))
            assert [e["x"] for e in await take(tepid, 1)] == [2]
            status = await new_pub.ask("status")
            assert [(c["name"], c["version"], c["subscriptions"]) for c in status["categories"]] == [
                ("reading", 1, 3),
                ("reading", 2, 4),
            ]
            await old_feed.close()
            await tepid.close()
            assert not list(daemon.control.member("old-sub").subscriptions)

    run(main())


def test_versions_survive_a_restart_and_clients_find_theirs_again(tmp_path):
    async def main():
        port = 0
        async with fabric(state=str(tmp_path / "a")) as daemon:
            port = daemon.server.port
            old = await sievenet.connect(daemon.url, name="old", host="h1")
            feed = await old.subscribe(SCHEMA)
            pub = await sievenet.connect(daemon.url, name="pub", host="h3")
            await pub.advertise(NEWER)
            await pub.publish(newer(1))
            assert [e["x"] for e in await take(feed, 1)] == [1]
        async with fabric(state=str(tmp_path / "a"), listen__port=port):
            await eventually(lambda: old.connected and pub.connected)
            await pub.publish(newer(2))
            assert [e["x"] for e in await take(feed, 1)] == [2]
        # A daemon that knows nothing, and hears of the newer version first.
        async with fabric(listen__port=port) as daemon:
            await eventually(lambda: old.connected and pub.connected)
            await pub.publish(newer(3))
            assert [e["x"] for e in await take(feed, 1)] == [3]
            assert [c.schema.version for c in daemon.control.versions("reading")] == [1, 2]
            await old.close()
            await pub.close()

    run(main())


def test_what_is_no_newer_version_is_refused():
    async def main():
        async with fabric() as daemon, sievenet.connect(daemon.url) as node:
            await node.schema(SCHEMA)
            other = Schema("reading", (Attribute("x", "int", lo=0, hi=9),))
            with pytest.raises(Rejected, match="higher version"):
                await node.schema(other)
            with pytest.raises(SchemaError, match="int in \\[0, 1023\\] for x, as in version 1"):
                await node.schema(Schema("reading", other.attributes, 2))

    run(main())


def test_a_category_is_removed_when_nobody_uses_it_or_by_force():
    async def main():
        async with (
            fabric() as daemon,
            sievenet.connect(daemon.url, name="user", host="h1") as user,
            sievenet.connect(daemon.url, name="boss", host="h3") as boss,
        ):
            feed = await user.subscribe(SCHEMA)
            await user.advertise(SCHEMA)
            await boss.advertise(SCHEMA)
            number = daemon.control.category("reading").number
            with pytest.raises(Rejected, match="used by boss, user"):
                await boss.remove_schema("reading")
            with pytest.raises(SchemaError, match="a version of reading"):
                await boss.remove_schema("reading", 7)
            await boss.remove_schema("reading", force=True)
            with pytest.raises(SchemaError, match="removed"):
                await asyncio.wait_for(anext(feed), 30)
            with pytest.raises(SchemaError):
                await user.publish(reading(1))
            assert not list(daemon.control.categories())
            assert (await boss.ask("check"))["ok"]
            for switch in daemon.plane.topology.switches:
                assert not list(await daemon.plane.table(switch))
            # It comes back as something new, and never under the number of before.
            again = await user.subscribe(SCHEMA)
            await boss.advertise(SCHEMA)
            assert daemon.control.category("reading").number != number
            await boss.publish(reading(5))
            assert [e["x"] for e in await take(again, 1)] == [5]

    run(main())


def test_one_version_is_removed_and_the_others_go_on():
    async def main():
        async with (
            fabric() as daemon,
            sievenet.connect(daemon.url, name="old", host="h1") as old,
            sievenet.connect(daemon.url, name="other", host="h2") as other,
            sievenet.connect(daemon.url, name="new", host="h3") as new,
        ):
            feed = await old.subscribe(SCHEMA)
            await other.advertise(SCHEMA)
            await new.advertise(NEWER)
            with pytest.raises(SchemaError, match="1, 2"):
                await new.remove_schema("reading")
            await new.remove_schema("reading", 2, force=True)
            await other.publish(reading(1))
            assert [e["x"] for e in await take(feed, 1)] == [1]
            with pytest.raises(SchemaError):
                await new.publish(newer(1))

    run(main())
