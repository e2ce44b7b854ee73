"""Caches in a real fabric: subscribers that are overrun lose nothing, see nothing twice, and keep their pace."""

import asyncio
import itertools
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

import sievenet
from sievenet.access.identity import Role
from sievenet.cache.ring import Ring
from sievenet.cache.spill import Spill
from sievenet.cachehost import CacheHost, CacheSettings, disks
from sievenet.client.cacheoptions import CacheOptions
from sievenet.errors import InvalidInput, Rejected, Unavailable
from sievenet.transport import Publishing
from tests.access.harness import now
from tests.fabric.harness import SCHEMA, eventually, fabric, publisher, reading, run


async def flood(node, count, rate, start=0):
    """Publish at a rate; the payload is the number."""
    begin = time.monotonic()
    for i in range(start, start + count):
        await node.publish(reading(i % 1000, payload=b"%d" % i))
        ahead = (i - start + 1) / rate - (time.monotonic() - begin)
        if ahead > 0.002:
            await asyncio.sleep(ahead)


@asynccontextmanager
async def scene(settings=None, **cache):
    """A fabric with a publisher, a cache and a node that subscribes, each at a host of its own."""
    async with (
        fabric() as daemon,
        publisher(daemon, name="pub", host="h1") as pub,
        CacheHost(daemon.url, settings, name="cache", host="h2", **cache) as found,
        sievenet.connect(daemon.url, name="sub", host="h3") as sub,
    ):
        yield daemon, pub, found, sub


class Slow:
    """An application that takes its events at a rate."""

    def __init__(self, feed, rate):
        self.feed, self.rate = feed, rate
        self.got, self.times = [], []
        self.task = asyncio.create_task(self._run())

    async def _run(self):
        begin = time.monotonic()
        for taken in itertools.count(1):
            event = await anext(self.feed, None)
            if event is None:
                return
            self.got.append(int(event.payload))
            self.times.append(time.monotonic())
            ahead = taken / self.rate - (time.monotonic() - begin)
            if ahead > 0.002:
                await asyncio.sleep(ahead)
            elif ahead < -0.1:
                begin = time.monotonic() - taken / self.rate

    def caches(self):
        return self.feed.statistics().caches


@pytest.mark.slow
def test_a_subscriber_that_is_overrun_gets_everything_once_and_in_order():
    async def main():
        async with scene() as (daemon, pub, _, sub):
            feed = await sub.subscribe("reading", max_rate=500, queue=1000)
            assert feed.statistics().caches.cache == "cache"
            slow = Slow(feed, 600)
            await flood(pub, 200, 200)
            await flood(pub, 3000, 2000, 200)
            assert slow.caches().state == "active"
            # The daemon knows how much the cache has to do, and for whom.
            load = daemon.service.caches._loads["cache"]
            await eventually(lambda: load.rate > 100 and all(rate > 50 for rate in load.rates[next(iter(load.rates))]))
            await eventually(lambda: len(slow.got) == 3200, 20)
            assert slow.got == list(range(3200))
            await eventually(lambda: slow.caches().state == "idle")
            await flood(pub, 100, 200, 3200)
            await eventually(lambda: len(slow.got) == 3300)
            assert slow.got == list(range(3300))
            assert slow.caches().activations == 1
            assert slow.caches().cached > 2000
            assert feed.statistics().dropped == 0

    run(main())


@pytest.mark.slow
def test_subscribers_with_the_same_need_share_one_transmission():
    async def main():
        async with (
            fabric() as daemon,
            publisher(daemon, name="pub", host="h1") as pub,
            CacheHost(daemon.url, name="cache", host="h2") as cache,
            sievenet.connect(daemon.url, name="a", host="h3") as a,
            sievenet.connect(daemon.url, name="b", host="h3") as b,
            sievenet.connect(daemon.url, name="c", host="h2") as c,
        ):
            slows = [Slow(await each.subscribe("reading: x < 900", max_rate=500), 700) for each in (a, b, c)]
            await flood(pub, 3000, 2000)
            wanted = [i for i in range(3000) if i % 1000 < 900]
            await eventually(lambda: all(len(each.got) == len(wanted) for each in slows), 25)
            assert all(each.got == wanted for each in slows)
            assert cache.statistics().sent < 0.6 * sum(each.caches().cached for each in slows)
            await eventually(lambda: not cache.core.active)

    run(main())


def test_a_cache_that_is_full_ends_the_subscription_with_a_reason_or_drops():
    async def main():
        async with scene(CacheSettings(queue=300)) as (_, pub, cache, sub):
            ends = await sub.subscribe("reading", max_rate=100, on_full="end")
            drops = Slow(await sub.subscribe("reading: x >= 0", max_rate=200, on_full="oldest"), 300)
            await flood(pub, 1500, 2000)
            with pytest.raises(Unavailable, match="ended by its cache: 300 events wait"):
                async for _ in ends:
                    pass
            await eventually(lambda: drops.caches().state == "idle", 20)
            assert drops.got == sorted(set(drops.got))
            assert drops.got[-1] == 1499
            assert 0 < 1500 - len(drops.got) <= cache.statistics().dropped
            # Others go on, and the one that ended can begin anew.
            again = Slow(await sub.subscribe("reading", max_rate=100), 200)
            await flood(pub, 5, 50, 2000)
            await eventually(lambda: again.got == [2000, 2001, 2002, 2003, 2004])

    run(main())


@pytest.mark.parametrize("policy", ["oldest", "newest"])
def test_a_subscriber_is_told_exactly_what_a_full_cache_dropped(policy):
    async def main():
        async with scene(CacheSettings(queue=50)) as (_, pub, _, sub):
            gaps = []
            slow = Slow(await sub.subscribe("reading", max_rate=100, on_full=policy, on_gap=gaps.append), 150)
            await flood(pub, 300, 1000)
            await eventually(lambda: slow.caches().activations)
            await flood(pub, 1200, 1000, 300)
            await eventually(lambda: slow.caches().state == "idle", 20)
            await flood(pub, 5, 20, 1500)
            await eventually(lambda: slow.got[-1] == 1504)
            told = [number for gap in gaps for number in range(gap.first, gap.last + 1)]
            assert told
            # The numbers of a publisher's events begin with 0, as those in the payloads.
            assert sorted(told + slow.got) == list(range(1505))
            assert slow.caches().dropped == len(told)

    run(main())


def test_what_a_dead_cache_had_of_a_publisher_that_fell_silent_is_told_in_the_end():
    async def main():
        async with (
            fabric() as daemon,
            publisher(daemon, name="pub", host="h1") as pub,
            sievenet.connect(daemon.url, name="sub", host="h3") as sub,
        ):
            gaps = []
            async with CacheHost(daemon.url, name="cache", host="h2"):
                slow = Slow(await sub.subscribe("reading", max_rate=100, on_gap=gaps.append), 150)
                await flood(pub, 300, 1000)
                await eventually(lambda: slow.caches().state == "active")
                await flood(pub, 500, 1000, 300)
            await eventually(lambda: slow.caches().state == "idle", 10)
            await slow.feed.close()
            await slow.task
            assert slow.got == list(range(len(slow.got)))
            assert len(slow.got) < 800
            assert [(gap.first, gap.open) for gap in gaps] == [(len(slow.got), True)]

    run(main())


def test_a_cache_that_comes_late_serves_all_who_wait_for_one():
    async def main():
        async with (
            fabric() as daemon,
            publisher(daemon, name="pub", host="h1") as pub,
            sievenet.connect(daemon.url, name="sub", host="h3") as sub,
        ):
            async with CacheHost(daemon.url, name="first", host="h2"):
                slow = [Slow(await sub.subscribe("reading", max_rate=300), 400) for _ in range(4)]
            # All of them are assigned at the same time to a cache that has no ring yet.
            async with CacheHost(daemon.url, name="second", host="h2") as second:
                await eventually(lambda: len(second._assigned) == 4, 5)
                await flood(pub, 900, 1500)
                await eventually(lambda: all(len(each.got) == 900 for each in slow), 20)
                assert all(each.got == list(range(900)) for each in slow)
                assert all(each.caches().cache == "second" for each in slow)

    run(main())


@pytest.mark.slow
def test_without_a_limit_the_pace_is_measured():
    async def main():
        async with scene() as (_, pub, _, sub):
            slow = Slow(await sub.subscribe("reading", max_rate="measured", queue=2000), 400)
            await flood(pub, 3000, 1500)
            assert slow.caches().state == "active"
            assert slow.feed.statistics().waiting < 1000
            await eventually(lambda: len(slow.got) == 3000, 20)
            assert slow.got == list(range(3000))
            assert slow.feed.statistics().dropped == 0

    run(main())


@pytest.mark.parametrize("limit", ["measured", 400])
def test_a_small_queue_loses_nothing_that_a_cache_can_keep(limit):
    async def main():
        async with scene() as (_, pub, _, sub):
            slow = Slow(await sub.subscribe("reading", max_rate=limit, queue=20), 350)
            await flood(pub, 1000, 2000)
            await eventually(lambda: len(slow.got) >= 1000)
            assert slow.got == list(range(1000))
            assert slow.feed.statistics().dropped == 0

    run(main())


def test_what_came_before_is_replayed_then_events_are_live():
    async def main():
        async with scene(keep=["reading"]) as (_, pub, _, sub):
            await flood(pub, 500, 2000)
            publishing = asyncio.create_task(flood(pub, 1500, 1000, 500))
            past = Slow(await sub.subscribe("reading: x < 500", since=60), 1e6)
            await publishing
            wanted = [i for i in range(2000) if i % 1000 < 500]
            await eventually(lambda: len(past.got) == len(wanted), 15)
            assert past.got == wanted
            await eventually(lambda: past.caches().state == "idle")
            await flood(pub, 10, 1000, 2000)
            await eventually(lambda: past.got[-10:] == list(range(2000, 2010)))
            # From an event on.
            found = []
            first = await sub.subscribe("reading", since=60)
            async for delivery in first.deliveries():
                found.append(delivery)
                if int(delivery.event.payload) == 1990:
                    break
            await first.close()
            last = found[-1]
            named = Slow(await sub.subscribe("reading", since=(last.publisher, last.incarnation, last.sequence)), 1e6)
            rest = Slow(await sub.subscribe("reading", since=last), 1e6)
            timed = Slow(await sub.subscribe("reading", since=now() - timedelta(minutes=5)), 1e6)
            await eventually(lambda: rest.got == named.got == list(range(1991, 2010)))
            await eventually(lambda: timed.got == list(range(2010)))

    run(main())


def test_a_call_that_takes_a_minute_still_begins_where_it_was_asked_to(monkeypatch):
    of = CacheOptions.of

    def busy(*arguments):
        options = of(*arguments)
        return msgspec.structs.replace(options, called=options.called - 60)

    async def main():
        async with scene(CacheSettings(seconds=600.0), keep=["reading"]) as (_, pub, cache, sub):
            await flood(pub, 10, 1e6)
            await eventually(lambda: cache.statistics().received == 10)
            cache._offset += 30  # half a minute goes by
            monkeypatch.setattr(CacheOptions, "of", staticmethod(busy))
            past = Slow(await sub.subscribe("reading", since=1), 1e6)
            await eventually(lambda: past.got == list(range(10)))

    run(main())


@pytest.mark.parametrize("away", ["c1", "c2"])
def test_the_past_comes_from_the_cache_that_was_not_away(away):
    async def main():
        async with (
            fabric() as daemon,
            publisher(daemon, name="pub", host="h1") as pub,
            CacheHost(daemon.url, name="c1", host="h2", keep=["reading"]) as one,
            CacheHost(daemon.url, name="c2", host="h2", keep=["reading"]) as two,
            sievenet.connect(daemon.url, name="sub", host="h3") as sub,
        ):
            caches, gaps = {"c1": one, "c2": two}, []
            await flood(pub, 10, 1e6)
            await eventually(lambda: one.statistics().received == two.statistics().received == 10)
            caches[away].core.interrupted(0.0)
            await flood(pub, 10, 1e6, 10)
            await eventually(lambda: one.statistics().received == two.statistics().received == 20)
            past = Slow(await sub.subscribe("reading", since=60, on_gap=gaps.append), 1e6)
            await eventually(lambda: past.got == list(range(20)))
            assert past.caches().cache == ({"c1", "c2"} - {away}).pop()
            assert gaps == []

    run(main())


def test_a_durable_cache_says_that_its_disk_takes_nothing_and_when_that_is_over(tmp_path, caplog, monkeypatch):
    settings = CacheSettings(folder=tmp_path, disk=1 << 24, durable=True)

    async def main():
        async with scene(settings, keep=["reading"]) as (daemon, pub, _, _):

            def row():
                return daemon.service.caches.status()[0]

            assert row()["durable"]
            with monkeypatch.context() as broken:
                broken.setattr(Spill, "append", full)
                await flood(pub, 10, 1e6)
                await eventually(lambda: row()["trouble"] == "No space left on device")
                assert not row()["durable"]
                await eventually(lambda: row()["unwritten"] > 0)
                [trouble] = (await daemon.answers.status())["troubles"]
                assert trouble.startswith("cache cache has not been durable for ")
                assert trouble.endswith(" s: No space left on device")
            monkeypatch.setattr(disks, "_SURE", 0.0)
            await eventually(lambda: row()["durable"] and "durable again" in caplog.text)
            assert caplog.text.count("No space left") == 1
            assert (await daemon.answers.status())["troubles"] == []
        assert Ring(spill=Spill(tmp_path / "reading", 1 << 24), durable=True).next == 10

    def full(*_):
        raise Unavailable("No space left on device")

    run(main())


def test_the_past_comes_first_however_much_is_published_meanwhile():
    async def main():
        async with scene(keep=["reading"]) as (_, pub, _, sub):
            await flood(pub, 200, 2000)
            publishing = asyncio.create_task(flood(pub, 2000, 1000, 200))
            past = []
            for each in range(8):
                options = {"max_rate": 1e6} if each % 2 else {}
                past.append(
                    Slow(await sub.subscribe(f"reading: x >= 0 and x < {1000 + each}", since=60, **options), 1e6)
                )
                await asyncio.sleep(0.02)
            await publishing
            await eventually(lambda: all(len(each.got) >= 2200 for each in past))
            assert all(each.got == list(range(2200)) for each in past)

    run(main())


def test_a_cache_says_at_its_start_what_it_cannot_work_with(tmp_path, caplog):
    async def main():
        for wrong in ({"memory": 0}, {"seconds": 0.0}, {"queue": 0}, {"durable": True}):
            with pytest.raises(InvalidInput, match="cache"):
                CacheHost("sievenet://127.0.0.1:1", CacheSettings(**wrong))
        (tmp_path / "file").touch()
        own = CacheSettings(folder=tmp_path / "own", disk=1 << 24, durable=True)
        async with fabric() as daemon, publisher(daemon, host="h1") as pub:
            with pytest.raises(Unavailable, match="Cannot keep events in"):
                await CacheHost(daemon.url, CacheSettings(folder=tmp_path / "file" / "below", disk=1)).start()
            async with CacheHost(daemon.url, own, keep=["reading"]) as cache:
                with pytest.raises(Unavailable, match="that no other cache uses"):
                    await CacheHost(daemon.url, own).start()
                await flood(pub, 100, 1e6)
                await eventually(lambda: cache.statistics().received == 100)
            # One that comes later has the folder, and says what is damaged.
            [segment] = (tmp_path / "own" / "reading").iterdir()
            segment.write_bytes(segment.read_bytes()[:-1])
            async with CacheHost(daemon.url, own, keep=["reading"]):
                await eventually(lambda: "1 of 1 segments were not whole" in caplog.text)

    run(main())


def test_a_cache_that_has_the_past_because_of_somebody_else_says_so(caplog):
    async def main():
        async with scene() as (_, pub, _, sub):
            first = await sub.subscribe("reading", max_rate=1000)
            await flood(pub, 10, 1e6)
            found = [await first.next() for _ in range(10)]
            behind = Slow(await sub.subscribe("reading: x < 9", since=found[4]), 1e6)
            await eventually(lambda: behind.got == [5, 6, 7, 8])
            assert "the cache has only" not in caplog.text
            await asyncio.sleep(0.2)
            longer = Slow(await sub.subscribe("reading", since=60), 1e6)
            await eventually(lambda: longer.got == list(range(10)))
            # It has what came since the first one subscribed, which is not long ago, but some time.
            assert 0.2 <= float(caplog.text.rpartition("the cache has only the last ")[2].split()[0]) < 60

    run(main())


def test_what_is_asked_for_wrongly_is_refused():
    async def main():
        async with fabric() as daemon, publisher(daemon) as pub:
            times = (-1, 1e12, "5s", datetime(2020, 1, 1), (1, 2), (1, 2, -3), (1, 2, 1 << 63))
            rates = [({"max_rate": each}, "above 0 and at most 1e9") for each in (0, "fast", 1 << 80)]
            others = [({"max_rate": 5, "on_full": "wait"}, "one of end"), ({"on_gap": 3}, "call")]
            for wrong, why in (*rates, *others, *(({"since": each}, "since") for each in times)):
                with pytest.raises(InvalidInput, match=why):
                    await pub.subscribe("reading", **wrong)
            for before in (5, datetime(1960, 1, 1, tzinfo=UTC)):
                with pytest.raises(Unavailable, match="no cache serves this fabric"):
                    await pub.subscribe("reading", since=before)
            # Without a cache a limit is no reason to fail: events come, and the next cache takes over.
            slow = Slow(await pub.subscribe("reading", max_rate=300), 400)
            assert slow.caches().cache is None
            async with CacheHost(daemon.url, name="late"):
                await eventually(lambda: slow.caches().cache == "late")

    run(main())


@pytest.mark.slow
def test_order_and_recovery_work_through_a_cache():
    async def main():
        async with (
            fabric() as daemon,
            sievenet.connect(daemon.url, name="pub", host="h1", transport=Publishing(record=5, log=20_000)) as pub,
            CacheHost(daemon.url, name="cache", host="h2"),
            sievenet.connect(daemon.url, name="sub", host="h3") as sub,
        ):
            await pub.advertise(SCHEMA)
            gaps = []
            feed = await sub.subscribe("reading", max_rate=500, order=True, recover=True, on_gap=gaps.append)
            slow = Slow(feed, 700)
            await flood(pub, 2500, 1500)
            assert slow.caches().state == "active"
            await eventually(lambda: len(slow.got) == 2500, 20)
            assert slow.got == list(range(2500))
            assert gaps == []
            await eventually(lambda: slow.caches().state == "idle")
            await flood(pub, 100, 300, 2500)
            await eventually(lambda: slow.got == list(range(2600)))
            assert feed.statistics().transport.gaps == 0

    run(main())


@asynccontextmanager
async def guarded_scene(tmp_path):
    """A fabric of members with a cache, where olga publishes: the daemon, its access folder, olga, and who joins."""
    from sievenet.access.login import load_login
    from tests.access.harness import RULES, folder, guarded, join

    access = folder(tmp_path, f'{RULES}\n[members.cache]\nrole = "component"\n')
    access.certificate("cache", Role.COMPONENT, 10, now())
    async with guarded(access) as daemon, join(daemon, access, "olga") as olga:
        await olga.schema(SCHEMA)
        await olga.advertise(SCHEMA)
        login = load_login(access.login("cache"))
        async with CacheHost(daemon.url, name="cache", login=login, keep=["reading"]):
            yield daemon, access, olga, lambda name: join(daemon, access, name)


def test_what_a_cache_keeps_for_a_member_is_held_to_rules_that_change(tmp_path):
    """A subscriber behind by seconds: what waits at its cache goes on as far as the new rules allow, without a gap."""

    async def main():
        async with guarded_scene(tmp_path) as (daemon, access, olga, join), join("alice") as alice:
            await flood(olga, 900, 3000)
            found = Slow(await alice.subscribe("reading", since=60, max_rate=100), 1e6)
            await eventually(lambda: len(found.got) > 20, 20)
            members = access.path / "members.toml"
            members.write_text(
                members.read_text().replace("subscribe reading: any", "subscribe reading: x > 700 narrow")
            )
            [assignment] = daemon.service.caches._assignments.values()
            await eventually(lambda: assignment.number not in daemon.service.caches._assignments, 20)
            # Packets that are on their way come; nothing that waits at the cache does.
            await asyncio.sleep(0.2)
            seen = len(found.got)
            assert seen < 600
            await eventually(lambda: found.got[-1] == 899, 30)
            assert found.got[seen:] == list(range(701, 900))

    run(main())


def test_members_get_from_a_cache_what_they_may_have_and_nothing_else(tmp_path):
    async def main():
        async with guarded_scene(tmp_path) as (_, _, olga, join), join("bob") as bob, join("alice") as alice:
            await flood(olga, 200, 1000)
            # Bob may have less than he asks for, of the past too.
            asked = await bob.subscribe('reading: kind = "hot"', since=60, max_rate=100)
            found = Slow(asked, 1e6)
            everything = Slow(await alice.subscribe("reading", since=60, max_rate=100), 1e6)
            await eventually(lambda: len(everything.got) == 200, 20)
            assert everything.got == list(range(200))
            await eventually(lambda: found.got == list(range(200)), 20)
            with pytest.raises(Rejected):
                await bob.subscribe('reading: x > 900 and kind = "cold"', since=60)

    run(main())
