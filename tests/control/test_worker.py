"""Long calculations beside the event loop, and covering that takes its time."""

import asyncio
import threading

import pytest

from sievenet.content import Filter, Subscription, ValueSet, encode_subscription
from sievenet.control import covering
from sievenet.control.commands import Subscribe, encode_command
from sievenet.control.worker import Worker
from sievenet.errors import Rejected, Unavailable
from sievenet.index import Plan
from sievenet.network import Line, LinkSettings
from sievenet.testing.virtual_time import run_virtual
from tests.control.world import OTHER, SCHEMA, World


def test_a_worker_returns_raises_and_gives_up():
    async def main():
        worker = Worker(0.05)
        assert await worker.run(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await worker.run(divmod, 7, 0)
        end = threading.Event()
        for _ in range(4):
            with pytest.raises(Unavailable, match="longer than"):
                await worker.run(end.wait)
        with pytest.raises(Unavailable, match="4 calculations"):
            await worker.run(divmod, 7, 2)
        end.set()
        while worker.lost:
            await asyncio.sleep(0.001)
        assert await worker.run(divmod, 7, 2) == (3, 1)

    asyncio.run(main())


def test_the_loop_goes_on_while_something_takes_long():
    """Structure, not speed: the loop gets so many turns while a thread counts."""

    async def main():
        turns = 0
        busy = True

        def count():
            while turns < 100:
                pass

        async def turn():
            nonlocal turns
            while busy:
                await asyncio.sleep(0)
                turns += 1

        other = asyncio.create_task(turn())
        await Worker(30).run(count)
        busy = False
        await other

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(6))
def test_tables_are_right_when_all_covering_takes_time(seed, monkeypatch):
    """Subscribe, unsubscribe, leave, change plans, crash: all while keys are being worked out."""
    monkeypatch.setattr(covering, "_CHEAP", -1)
    monkeypatch.setattr(covering.Coverer, "_box", lambda self, wanted: None)

    async def main():
        world = World(Line.build(switches=3, link=LinkSettings(delay=0.001)), seed)
        await world.open(SCHEMA, OTHER)
        rng = world.random
        names = [await world.join(f"h{i % 3 + 1}") for i in range(4)]
        truth = {}
        for round in range(4):
            work = []
            for i in range(12):
                name = rng.choice(names)
                key = (name, round * 100 + i)
                wanted = world.content()
                (call, kind) = rng.choice(((world.control.subscribe, "s"), (world.control.advertise, "a")))
                work.append(asyncio.create_task(call(*key, wanted)))
                truth[kind, key] = wanted
                await asyncio.sleep(rng.random() / 50)
                if rng.random() < 0.4:
                    kind, key = rng.choice(list(truth))
                    undo = world.control.unsubscribe if kind == "s" else world.control.unadvertise
                    work.append(asyncio.create_task(undo(*key)))
                    del truth[kind, key]
            plan = asyncio.create_task(world.control.apply_plan("grid", Plan.regular(SCHEMA, 4 + round)))
            await asyncio.gather(*work)
            await plan
            world.subscriptions = {key: wanted for (kind, key), wanted in truth.items() if kind == "s"}
            world.advertisements = {key: wanted for (kind, key), wanted in truth.items() if kind == "a"}
            if round == 2:
                await world.crash()
            await world.settle()
            world.check_tables()
        assert world.worker.calls > 40

    run_virtual(main())


def test_a_filter_that_takes_too_long_is_refused_and_gone(monkeypatch):
    async def main():
        world = World(Line.build(switches=3), 1)
        await world.open()
        name = await world.join("h1")
        late = Unavailable("The calculation takes longer than 10 s")

        async def run(work, *arguments):
            raise late

        world.worker.run = run
        hard = Subscription(
            [Filter(SCHEMA, {"x": ValueSet.of(*range(0, 16, 2)), "y": ValueSet.of(i)}) for i in range(16)]
        )
        with pytest.raises(Unavailable, match="longer than"):
            await world.control.subscribe(name, 1, hard)
        await world.control.subscribe(name, 2, Subscription([Filter(SCHEMA, {"x": ValueSet.interval(0, 3)})]))
        assert list(world.control.member(name).subscriptions) == [2]
        await world.settle()
        del world.worker.run
        await world.crash()
        assert list(world.control.member(name).subscriptions) == [2]

    run_virtual(main())


def test_records_that_cannot_be_carried_out_are_set_aside_and_kept():
    async def main():
        world = World(Line.build(switches=3), 1)
        await world.open()
        name = await world.join("h1")
        await world.control.subscribe(name, 1, Subscription([Filter(SCHEMA, {"x": ValueSet.interval(0, 3)})]))
        number = world.control.category("grid").number
        good = encode_subscription(Subscription([Filter(SCHEMA, {})]))
        bad = encode_command(Subscribe(name, 7, number, good + b"!"))
        refused = encode_command(Subscribe("nobody", 8, number, good))
        world.journal.records += [refused, b"\xc1", bad, refused]
        await world.crash()
        assert list(world.control.member(name).subscriptions) == [1]
        assert [each.record for each in world.control.aside] == [b"\xc1", refused, bad]
        assert [each.what for each in world.control.aside] == [
            "1 bytes that are no command",
            f"subscribe client nobody id 8 category {number}",
            f"subscribe client {name} id 7 category {number}",
        ]
        assert world.journal.aside == list(world.control.aside)
        with pytest.raises(Rejected):
            await world.control.subscribe("nobody", 1, Subscription([Filter(SCHEMA, {})]))
        await world.control.subscribe(name, 7, Subscription([Filter(SCHEMA, {})]))
        await world.settle()

    run_virtual(main())
