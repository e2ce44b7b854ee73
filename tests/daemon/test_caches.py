"""Caches at the daemon: who is responsible for what, standbys, deaths, and responsibilities that move."""

import asyncio

import pytest

from sievenet.cli.cache import _text
from sievenet.content.filter import Filter, Subscription
from sievenet.control import caching as c
from sievenet.daemon import caches as module
from sievenet.daemon.caches import Caches
from sievenet.errors import Rejected, Unavailable
from tests.fabric.harness import SCHEMA, eventually, run

WANTED = Subscription([Filter(SCHEMA)], SCHEMA)


class World:
    """Caches that become responsible at once, unless they are dumb; everything that anybody is told."""

    def __init__(self):
        self.told = []
        self.dumb, self.gone = set(), set()
        #: Seconds of the past that each of them has all of.
        self.whole = {}
        self.caches = Caches(self.tell)

    def tell(self, name, message):
        if name in self.gone:
            return False
        self.told.append((name, message))
        if isinstance(message, c.Assign) and name not in self.dumb:
            asyncio.get_running_loop().call_soon(
                self.caches.handle, name, c.Assumed(message.number, whole=self.whole.get(name, 0.0))
            )
        return True

    def serve(self, *names, durable=False):
        for name in names:
            self.caches.handle(name, c.ServeCache(1, durable))

    async def assign(self, client, id=1, content=b"all", past=False, limit=0.0, back=0.0):
        return await self.caches.assign(client, id, WANTED, content, past, limit=limit, back=back)

    def responsible(self):
        return {(each.client, each.id): (each.cache, each.standby) for each in self.caches._assignments.values()}

    def of(self, name, kind):
        return [message for who, message in self.told if who == name and isinstance(message, kind)]


def test_each_subscription_has_a_cache_and_a_standby():
    async def main():
        world = World()
        with pytest.raises(Unavailable, match="no cache serves"):
            await world.assign("a")
        world.serve("x", "y")
        answer = await world.assign("a")
        assert answer["cache"] == "x"
        await eventually(lambda: world.responsible().get(("a", 1)) == ("x", "y"))
        # The same again is the same; the words go to the first only.
        assert await world.assign("a") == answer
        world.caches.handle("a", c.ToCache(1, b"word"))
        assert world.of("x", c.FromSubscriber) == [c.FromSubscriber(answer["number"], b"word")]
        assert not world.of("y", c.FromSubscriber)
        world.caches.handle("y", c.ToSubscriber(answer["number"], b"no"))
        world.caches.handle("x", c.ToSubscriber(answer["number"], b"yes"))
        assert world.of("a", c.CacheSays) == [c.CacheSays(1, b"yes")]
        world.caches.handle("a", c.Uncache(1))
        assert world.of("x", c.Unassign)
        assert world.of("y", c.Unassign)
        assert world.responsible() == {}

    run(main())


def test_nobody_has_more_of_them_than_it_may():
    async def main():
        world = World()
        world.serve("x")
        for id in range(3):
            await world.caches.assign("a", id, WANTED, b"all", False, 3)
        await world.caches.assign("a", 1, WANTED, b"other", False, 3)  # instead of the one before
        with pytest.raises(Rejected, match="at most 3 subscriptions of a with a cache"):
            await world.caches.assign("a", 3, WANTED, b"all", False, 3)
        await world.caches.assign("b", 3, WANTED, b"all", False, 3)
        world.caches.handle("a", c.Uncache(0))
        await world.caches.assign("a", 3, WANTED, b"all", False, 3)
        world.caches.left("a")
        assert list(world.responsible()) == [("b", 3)]
        assert world.caches._held == {"b": 1}

    run(main())


def test_what_one_client_says_and_wants_is_bounded_in_bytes(monkeypatch):
    monkeypatch.setattr(module, "_MOST_BYTES", 1000)

    async def main():
        world = World()
        world.serve("x")
        for id in (1, 2):
            await world.assign("a", id, bytes(400))
        with pytest.raises(Rejected, match="of subscriptions of a with a cache"):
            await world.assign("a", 3, bytes(400))
        await world.assign("b", 3, bytes(400))
        world.caches.handle("a", c.Uncache(1))
        await world.assign("a", 3, bytes(400))
        # Words: others' are not behind a flood of them.
        word = bytes(1 << 18)

        def flood():
            for _ in range(1000):
                world.caches.handle("a", c.ToCache(2, word))

        with pytest.raises(Rejected, match="of words to caches per second"):
            flood()
        assert 32 <= len(world.of("x", c.FromSubscriber)) <= 128
        world.told.clear()
        world.caches.handle("b", c.ToCache(3, word))
        assert len(world.of("x", c.FromSubscriber)) == 1
        world.caches.left("a")
        world.caches.left("b")
        assert not world.caches._bytes
        assert not world.caches._words

    run(main())


def test_a_cache_that_is_gone_is_replaced_and_its_subscribers_are_told():
    async def main():
        world = World()
        world.serve("x", "y", "z")
        first = (await world.assign("a"))["cache"]
        await eventually(lambda: world.responsible()["a", 1][1] is not None)
        standby = world.responsible()["a", 1][1]
        world.caches.lost(first)
        assert world.of("a", c.CacheLost) == [c.CacheLost(1)]
        await eventually(lambda: world.responsible()["a", 1][0] == standby and world.responsible()["a", 1][1])
        for name in ("x", "y", "z"):
            world.caches.lost(name)
        assert world.responsible()["a", 1] == (None, None)
        world.caches.handle("a", c.ToCache(1, b"word"))
        assert len(world.of("a", c.CacheLost)) >= 3
        # The next one that comes is responsible.
        world.serve("w")
        await eventually(lambda: world.responsible()["a", 1][0] == "w")
        world.caches.left("a")
        assert world.responsible() == {}

    run(main())


def test_a_cache_that_does_not_answer_is_passed_over(monkeypatch):
    async def main():
        world = World()
        world.serve("x", "y")
        world.dumb.add("x")
        monkeypatch.setattr(module, "_PATIENCE", 0.05)
        assert (await world.assign("a"))["cache"] == "y"
        world.gone.add("y")
        with pytest.raises(Unavailable, match="not connected"):
            await world.assign("b", content=b"other")

    run(main())


def test_who_wants_the_past_gets_it_from_the_cache_that_lacks_less(monkeypatch):
    async def main():
        world = World()
        world.serve("x", "y", durable=True)
        world.whole = {"x": 20.0, "y": 3600.0}
        assert (await world.assign("a", past=True, back=60.0))["cache"] == "y"
        assert world.responsible()["a", 1] == ("y", "x")
        assert (await world.assign("a", past=True, back=60.0))["cache"] == "y"
        # Its words go to that one.
        world.caches.handle("a", c.ToCache(1, b"word"))
        assert world.of("y", c.FromSubscriber)
        assert not world.of("x", c.FromSubscriber)
        # What the first one has is enough.
        assert (await world.assign("b", past=True, back=10.0))["cache"] == "x"
        # One that does not answer is not waited for beyond its patience, and one alone serves as it can.
        monkeypatch.setattr(module, "_PATIENCE", 0.05)
        world.dumb.add("y")
        assert (await world.assign("d", past=True, back=60.0))["cache"] == "x"
        world.caches.lost("y")
        assert (await world.assign("e", past=True, back=60.0))["cache"] == "x"

    run(main())


def test_a_cache_that_goes_while_another_is_asked_for_the_past_is_not_chosen():
    async def main():
        world = World()
        world.serve("x", "y", durable=True)
        world.dumb.add("y")
        asked = asyncio.create_task(world.assign("a", past=True, back=60.0))
        await eventually(lambda: world.of("y", c.Assign))
        world.caches.lost("x")
        world.dumb.clear()
        world.caches.handle("y", c.Assumed(world.of("y", c.Assign)[0].number))
        assert (await asked)["cache"] == "y"

    run(main())


def test_a_durable_cache_that_cannot_write_is_not_called_durable():
    async def main():
        world = World()
        world.serve("x", durable=True)
        world.caches.handle("x", c.CacheLoad(disk=9, trouble="No space left", unwritten=100.0))
        [row] = world.caches.status()
        assert (row["durable"], row["trouble"], row["unwritten"], row["disk"]) == (False, "No space left", 100.0, 9)
        assert _text(row).endswith("MB on disk, not durable for 100 s: No space left")
        world.caches.handle("x", c.CacheLoad(disk=9))
        [row] = world.caches.status()
        assert (row["durable"], row["trouble"], row["unwritten"]) == (True, "", 0.0)
        assert _text(row).endswith("MB on disk, durable")

    run(main())


def test_responsibilities_move_to_a_cache_with_less(monkeypatch):
    async def main():
        monkeypatch.setattr(module, "_OVERLAP", 0.05)
        world = World()
        world.serve("x")
        for i in range(6):
            await world.assign("a", i, b"%d" % i)
        world.serve("y")
        await eventually(lambda: all(None not in each for each in world.responsible().values()))
        assert {cache for cache, _ in world.responsible().values()} == {"x"}
        for second in range(1, 40):
            # Much comes for the last one, and for the others together as much.
            rates = (*((number, 20.0, 0.0) for number in range(1, 6)), (6, 100.0, 500.0))
            world.caches.handle("x", c.CacheLoad(7 * second, 0, active=(1, 2), rates=rates))
            world.caches.handle("y", c.CacheLoad())
            world.caches.handle("a", c.ToCache(3, b"word"))
            await asyncio.sleep(0.01)
        first = {id: cache for (_, id), (cache, _) in world.responsible().items()}
        # The other one keeps the events as a standby, and takes over; those that are being served stay, and those that
        # have just said something.
        assert first[5] == "y"
        assert first[0] == first[1] == first[3] == "x"
        rows = {row["cache"]: row for row in world.caches.status()}
        assert rows["x"]["active"] == 2
        assert {(row["assigned"], row["standby"]) for row in rows.values()} == {(4, 2), (2, 4)}
        assert not rows["y"]["durable"]

    run(main())


def test_who_is_overrun_by_counters_is_told_unless_it_reports():
    async def main():
        world = World()
        world.serve("x", "y")
        number = (await world.assign("a", limit=100.0))["number"]
        await world.assign("a", 2, b"other", limit=50.0)
        await world.assign("b", 1)
        await eventually(lambda: all(None not in each for each in world.responsible().values()))
        assert world.caches.watched() == {"a": 150.0, "b": None, "x": None, "y": None}
        assert (world.caches.count("a"), world.caches.count("nobody")) == (2, 0)
        now = asyncio.get_running_loop().time()
        world.caches.handle("a", c.ToCache(2, b"word"))
        # Subscription 2 reports by itself.
        world.caches.overran("a", 0, now)
        assert world.of("a", c.PortOverran) == [c.PortOverran(1, 0.0)]
        first, second = world.responsible()["a", 1]
        assert [each.number for name in (first, second) for each in world.of(name, c.Hold)] == [number, number]
        # Drops concern all of them.
        world.caches.overran("a", 3, now)
        assert [each.id for each in world.of("a", c.PortOverran)] == [1, 1, 2]
        assert all(each.back > 0 for each in world.of("a", c.PortOverran)[1:])
        world.caches.overran("x", 0, now)
        assert not world.of("x", c.PortDropped)
        world.caches.overran("x", 5, now)
        assert len(world.of("x", c.PortDropped)) == 1

    run(main())
