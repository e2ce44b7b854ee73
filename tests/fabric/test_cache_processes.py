"""Caches and subscribers as processes of their own: kill -9, SIGSTOP, a durable restart, garbage."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess

import pytest

import sievenet
from sievenet.cache import messages
from sievenet.client.component import ComponentNode
from sievenet.control import caching as c
from sievenet.programs import command
from sievenet.workload.samples import load_schema
from tests.fabric.harness import eventually, run
from tests.transport.commands import Commands

STOCK = load_schema("stock")


async def flood(url, count, rate, start=0, **settings):
    """Publish numbers as volumes."""
    async with sievenet.connect(url, **settings) as node:
        await node.schema(STOCK)
        await node.advertise(STOCK)
        loop = asyncio.get_running_loop()
        begin = loop.time()
        for i in range(start, start + count):
            await node.publish(STOCK.event(b"", symbol="IBM", price=100.0, volume=i))
            if (ahead := (i - start + 1) / rate - (loop.time() - begin)) > 0.002:
                await asyncio.sleep(ahead)


def volumes(process):
    return [each["volume"] for each in process.events("event")]


async def has(process, count, timeout=40.0):
    """Wait until a subscriber has printed so many events."""
    async with asyncio.timeout(timeout):
        while process.text().count('"event"') < count:
            await asyncio.sleep(0.1)


async def started(commands, *caches):
    fabric = await commands.start("up", "--schema", "stock", "--port", "0", "--data-port", "0", "--lease", "20s")
    url = await fabric.url()
    found = []
    for options in caches:
        cache = await commands.start("cache", "--url", url, *options)
        await cache.says("serves at")
        found.append(cache)
    return url, found


@pytest.mark.slow
@pytest.mark.unwatched
def test_a_subscriber_that_is_stopped_goes_on_where_it_was(tmp_path):
    async def main():
        async with Commands.open(tmp_path) as commands:
            url, _ = await started(commands, ["--name", "c1"])
            sub = await commands.start("sub", "stock", "--url", url, "--json", "--max-rate", "1000")
            await sub.says("subscribed")
            await flood(url, 100, 500)
            publishing = asyncio.create_task(flood(url, 4000, 1500, 100))
            await has(sub, 300)
            os.kill(sub.pid, signal.SIGSTOP)
            await asyncio.sleep(2.5)
            os.kill(sub.pid, signal.SIGCONT)
            await publishing
            await has(sub, 4100)
            assert volumes(sub) == list(range(4100))

    run(main(), 120)


@pytest.mark.slow
@pytest.mark.unwatched
def test_a_cache_that_is_killed_is_replaced_and_losses_are_told(tmp_path):
    async def main():
        async with Commands.open(tmp_path) as commands:
            url, found = await started(commands, ["--name", "c1"], ["--name", "c2"])
            caches = dict(zip(("c1", "c2"), found, strict=True))
            sub = await commands.start("sub", "stock", "--url", url, "--json", "--max-rate", "500")
            await sub.says("subscribed")
            async with sievenet.connect(url, observer=True) as look:

                async def kill_active():
                    while not (active := [row["cache"] for row in await look.ask("caches") if row["active"]]):
                        await asyncio.sleep(0.1)
                    os.kill(caches[active[0]].pid, signal.SIGKILL)

                publishing = asyncio.create_task(flood(url, 3000, 1500))
                await has(sub, 400)
                await kill_active()
                await publishing
                # The ring of the other one reaches back far enough: nothing is missing.
                await has(sub, 3000)
                assert volumes(sub) == list(range(3000))
                publishing = asyncio.create_task(flood(url, 3000, 1500, 3000))
                await has(sub, 3400)
                await kill_active()
                await publishing
            # Nobody has what that one had: what comes later comes, and what is missing, if anything, is told.
            await flood(url, 50, 100, 6000)
            async with asyncio.timeout(40):
                while volumes(sub)[-1] != 6049:
                    await asyncio.sleep(0.2)
            got = volumes(sub)
            assert got == sorted(set(got))
            told = sum(gap["to"] - gap["from"] + 1 for gap in sub.events("gap"))
            assert told >= 6050 - len(got)

    run(main(), 120)


@pytest.mark.slow
@pytest.mark.unwatched
def test_up_with_caches_and_members_feeds_each_what_its_rules_allow(tmp_path):
    async def main():
        from tests.access.harness import folder

        rules = (
            '[members.alice]\nrole = "client"\nrules = ["subscribe stock: volume < 2000"]\n'
            '[members.olga]\nrole = "operator"\nrules = ["publish *: any", "subscribe *: any"]\n'
        )
        access = folder(tmp_path, rules)
        async with Commands.open(tmp_path) as commands:
            options = ["--schema", "stock", "--port", "0", "--data-port", "0", "--caches", "2"]
            fabric = await commands.start("up", *options, "--access", str(access.path))
            url = await fabric.url()
            olga, alice = (["--login", str(access.login(name))] for name in ("olga", "alice"))
            await fabric.says("caches at h1 (s")
            await fabric.says("2 clients")
            limits = ["--url", url, "--json", "--max-rate", "800"]
            sub = await commands.start("sub", "stock: volume < 2000", *limits, *alice)
            await sub.says("subscribed")
            every = await commands.start("sub", "stock", *limits, *olga)
            await every.says("subscribed")
            greedy = await commands.start("sub", "stock", *limits, *alice)
            await flood(url, 3000, 3000, login=access.login("olga"))
            await has(sub, 2000)
            await has(every, 3000)
            assert volumes(sub) == list(range(2000))
            assert volumes(every) == list(range(3000))
            await greedy.ends()
            assert "alice" in greedy.text()
            listed = await commands.start("cache", "--list", "--json", "--url", url, *olga)
            await listed.ends()
            rows = json.loads(listed.text())
            assert [row["cache"] for row in rows] == ["daemon.cache-1", "daemon.cache-2"]
            assert sum(row["sent"] for row in rows) > 1000

    run(main(), 120)


@pytest.mark.slow
@pytest.mark.unwatched
def test_a_durable_cache_that_is_killed_has_everything_when_it_comes_back(tmp_path):
    async def main():
        async with Commands.open(tmp_path) as commands:
            options = ["stock", "--durable", "--folder", str(tmp_path / "past"), "--seconds", "1h"]
            url, (cache,) = await started(commands, [*options, "--name", "c1"])
            await flood(url, 2000, 3000)
            async with sievenet.connect(url, observer=True) as look:
                await eventually(lambda: _received(look, 2000))
            os.kill(cache.pid, signal.SIGKILL)
            # What was half written is dropped, and nothing else.
            newest = max((tmp_path / "past" / "stock").iterdir())
            newest.write_bytes(newest.read_bytes() + b"half of a fra")
            again = await commands.start("cache", "--url", url, *options, "--name", "c1")
            await again.says("serves at")
            past = await commands.start("sub", "stock", "--url", url, "--json", "--since", "1h", "-n", "2000")
            await past.ends()
            assert volumes(past) == list(range(2000))
            last = next(json.loads(line) for line in past.text().splitlines() if '"volume":1899' in line)
            place = f"{last['publisher']}/{last['incarnation']}/{last['sequence']}"
            rest = await commands.start("sub", "stock", "--url", url, "--json", "--since", place, "-n", "100")
            await rest.ends()
            assert volumes(rest) == list(range(1900, 2000))
            # Only as far back as was asked for.
            await asyncio.sleep(1.5)
            recent = await commands.start("sub", "stock", "--url", url, "--json", "--since", "1s", "-n", "1")
            await recent.says("subscribed")
            await flood(url, 1, 100, 5000)
            await recent.ends()
            assert volumes(recent) == [5000]

    async def _received(look, count):
        return [row for row in await look.ask("caches") if row["received"] >= count]

    run(main(), 120)


@contextlib.contextmanager
def small_disk(folder, size):
    """A folder on a disk of its own."""
    folder.mkdir()
    subprocess.run(command("mount", "-t", "tmpfs", "-o", f"size={size}", "sievenet-test", str(folder)), check=True)
    try:
        yield folder
    finally:
        subprocess.run(command("umount", "--lazy", str(folder)), check=True)


@pytest.mark.slow
@pytest.mark.unwatched
@pytest.mark.root
def test_a_full_disk_ends_subscriptions_with_a_reason_or_drops_by_name_and_the_cache_goes_on(tmp_path):
    async def main(disk):
        async with Commands.open(tmp_path) as commands:
            options = ["--folder", str(disk), "--disk", "1G", "--memory", "1200K"]
            url, (cache,) = await started(commands, [*options, "--name", "c1"])
            limits = ["--url", url, "--json", "--max-rate", "1500"]
            ends = await commands.start("sub", "stock", *limits)
            drops = await commands.start("sub", "stock: volume >= 0", *limits, "--on-full", "oldest")
            for each in (ends, drops):
                await each.says("subscribed")
            async with sievenet.connect(url) as node:
                await node.schema(STOCK)
                await node.advertise(STOCK)
                for at in range(0, 8000, 100):
                    some = [STOCK.event(b"x" * 1000, symbol="IBM", price=1.0, volume=i) for i in range(at, at + 100)]
                    await node.publish_many(some)
                    await asyncio.sleep(0.01)
                await ends.ends()
                assert "ended by its cache: the cache had no room for what waits (Cannot write" in ends.text()
                assert "No space left on device" in ends.text()
                assert "No space left on device" in cache.text()

                def told():
                    return [n for gap in drops.events("gap") for n in range(gap["from"], gap["to"] + 1)]

                await eventually(lambda: len(volumes(drops)) + len(told()) >= 8000, 40)
                assert volumes(drops) == sorted(volumes(drops))
                assert sorted([*volumes(drops), *told()]) == list(range(8000))
                assert len(told()) > 1000
                # With room on the disk again, the cache goes on, and so can who was ended.
                subprocess.run(command("mount", "-o", "remount,size=64M", str(disk)), check=True)
                again = await commands.start("sub", "stock", *limits)
                await again.says("subscribed")
                for at in range(8000, 14000, 100):
                    some = [STOCK.event(b"x" * 1000, symbol="IBM", price=1.0, volume=i) for i in range(at, at + 100)]
                    await node.publish_many(some)
                    await asyncio.sleep(0.01)
            await has(again, 6000)
            assert volumes(again) == list(range(8000, 14000))
            assert volumes(drops)[-1] == 13_999

    with small_disk(tmp_path / "disk", "1500k") as disk:
        run(main(disk), 120)


def test_garbage_from_either_side_disturbs_nobody():
    async def main():
        from tests.fabric.harness import fabric, publisher, reading, take

        async with (
            fabric() as daemon,
            publisher(daemon, name="pub", host="h1") as pub,
            sievenet.connect(daemon.url, name="sub", host="h3") as sub,
        ):
            from sievenet.cachehost import CacheHost

            async with CacheHost(daemon.url, name="cache", host="h2") as cache:
                feed = await sub.subscribe("reading", max_rate=500)
                id, number = feed.registration.id, next(iter(cache._assigned))
                for garbage in (b"", b"\xff" * 40, messages.encoded(messages.Stop(7, 9)), b"\x81\xa3say\xa4Take"):
                    sub._session.tell(c.ToCache(id, garbage))
                    sub._session.tell(c.ToCache(4711, garbage))
                    cache._node.tell(c.ToSubscriber(number, garbage))
                    cache._node.tell(c.ToSubscriber(4711, garbage))
                cache._node.tell(c.Assumed(4711))
                # Who is no cache is refused.
                async with ComponentNode(daemon.url, lambda packets: None, name="other") as other:
                    other.tell(c.ToSubscriber(number, b"x"))
                    other.tell(c.CacheLoad())
                for i in range(5):
                    await pub.publish(reading(i))
                assert len(await take(feed, 5)) == 5
                assert sub.connected
                assert cache._node.connected

    run(main())
