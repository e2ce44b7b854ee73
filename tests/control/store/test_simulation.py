"""The whole protocol over a store, in virtual time: daemons and configurators that die, pause and wake up too late.

After every step the tables of all switches are those of a build from scratch, every accepted request is in effect,
no epoch of a partition had two owners, and no daemon of an older term wrote anything.
"""

from __future__ import annotations

import asyncio
import random

import msgspec
import pytest

from sievenet.content import Filter, Subscription
from sievenet.control.configurators import words
from sievenet.control.store.memory import MemoryStore
from sievenet.control.store.store import Item
from sievenet.daemon import distribution
from sievenet.errors import CodecError
from sievenet.index import Plan
from sievenet.network import Line, Ring, Testbed
from sievenet.testing.virtual_time import run_virtual
from tests.control.store.fabric import StoredWorld
from tests.control.test_stateful import DELAY, OTHER, SCHEMA, step
from tests.control.world import CONFIG
from tests.seeds import seeds


def drive(seed: int, steps: int, failures: bool) -> StoredWorld:
    shape = (Line.build(link=DELAY), Ring.build(switches=5, link=DELAY), Testbed.build(link=DELAY))[seed % 3]
    settings = {"mode": ("sna", "sna-lb")[seed % 2], "partitions": (4, 16)[seed // 2 % 2], "patience": 0.5}

    async def main() -> StoredWorld:
        world = StoredWorld(shape, seed, msgspec.structs.replace(CONFIG, **settings, look=0.05))
        await world.open(SCHEMA, OTHER)
        for _ in range(seed % 3):
            await world.hire()
        for _ in range(2):
            await world.join()
        done = []
        for _ in range(steps):
            done += [await world.fault() for _ in range(world.faults.choice((0, 0, 1, 2)))]
            requests = asyncio.ensure_future(step(world, failures))
            if world.faults.random() < 0.3:  # in the middle of it
                await asyncio.sleep(world.faults.random() / 50)
                done.append(f"{await world.fault()} meanwhile")
            try:
                async with asyncio.timeout(120):
                    done.append(await requests)
                await world.settle()
                world.check_tables()
                world.check()
                await world.check_deliveries()
            except (AssertionError, TimeoutError) as error:
                raise AssertionError(f"after {done}: {error!r}") from error
        await world.close()
        return world

    return run_virtual(main())


@pytest.mark.parametrize("seed", seeds(12, 24))
def test_nothing_shows_where_the_control_plane_is(seed):
    drive(seed, 20, failures=seed % 4 == 3)


def test_faults_happen():
    counts = sum((drive(seed, 30, failures=False).counts for seed in range(3)), start=type(drive(0, 1, False).counts)())
    for what in ("Answer", "killed", "paused", "store away", "killed daemons", "paused daemons"):
        assert counts[what] > 0, counts


def test_configurators_forget_partitions_of_plans_that_are_gone():
    async def main() -> None:
        world = StoredWorld(Line.build(link=DELAY), 1, msgspec.structs.replace(CONFIG, mode="sna", partitions=4))
        world.shelf.lost = 0.0
        await world.open(SCHEMA)
        await world.hire()
        await asyncio.sleep(1.0)
        client, other = await world.join(), await world.join()
        await world.advertise(client, Subscription([Filter(SCHEMA, {})]))
        await world.subscribe(other, Subscription([Filter(SCHEMA, {})]))
        [member] = world.members.values()
        assert len(member.delegate) == len(member.delegate.copies) == 4
        for bits in (4, 5):
            await world.control.apply_plan(SCHEMA.name, Plan.regular(SCHEMA, bits))
            await world.subscribe(other, Subscription([Filter(SCHEMA, {})]))
            await asyncio.sleep(1.0)
            assert len(member.delegate) == len(member.delegate.copies) == 4
        assert world.counts["Answer"] > 8
        assert len([name for name in world.shelf.logs if name.startswith("partition.")]) == 4
        await world.close()

    run_virtual(main())


def test_a_store_that_fails_in_a_way_of_its_own_keeps_nobody_waiting(caplog):
    async def main() -> None:
        world = StoredWorld(Line.build(link=DELAY), 1, msgspec.structs.replace(CONFIG, mode="sna", partitions=4))
        world.shelf.lost = 0.0
        await world.open(SCHEMA)
        await world.hire()
        client, other = await world.join(), await world.join()
        await world.advertise(client, Subscription([Filter(SCHEMA, {})]))
        append = world.reign.store.append

        async def failing(log, *arguments, **options):
            if log.startswith("partition."):
                raise ValueError("a reply that is no JSON")
            return await append(log, *arguments, **options)

        world.reign.store.append = failing
        begin = asyncio.get_running_loop().time()
        for _ in range(4):
            await world.subscribe(other, world.content())
        assert asyncio.get_running_loop().time() - begin < world.config.patience
        await world.settle()
        world.check_tables()
        await world.check_deliveries()
        await world.close()

    run_virtual(main())
    assert "internal error while configurators are told" in caplog.text


@pytest.mark.parametrize("seed", seeds(4))
def test_words_of_strangers_change_nothing(seed, caplog):
    """Whoever reaches the store says anything: sound words, then wrong ones, in others' names and in invented ones."""
    r = random.Random(seed)

    async def main() -> None:
        world = StoredWorld(Line.build(link=DELAY), seed, msgspec.structs.replace(CONFIG, mode="sna", partitions=4))
        world.shelf.lost = 0.0
        await world.open(SCHEMA)
        await world.hire()
        heard: list[tuple[str, bytes]] = []
        stranger, term = MemoryStore(world.shelf, limit=4096), world.reign.leadership.term
        subjects = ["beat", f"answer.{term}", "ask.configurator-0"]
        for subject in subjects:
            await stranger.hear(subject, lambda data, subject=subject: data and heard.append((subject, data)))
        client, other = await world.join(), await world.join()
        await world.advertise(client, Subscription([Filter(SCHEMA, {})]))
        for _ in range(8):
            work = asyncio.ensure_future(world.subscribe(other, world.content()))
            for _ in range(60):
                await stranger.say(*wrong(r, subjects, heard, term))
            async with asyncio.timeout(120):
                await work
        for i in range(200):  # two processes that have the name of a third
            await stranger.say("beat", words.encode(words.Beat("configurator-0", i % 2, 1)))
        for i in range(distribution._MOST + 50):
            await stranger.say("beat", words.encode(words.Beat(f"invented-{i}", 1, 1)))
        await asyncio.sleep(0.1)
        assert len(world.reign.distribution._peers) <= distribution._MOST
        await asyncio.sleep(10.0)  # they say nothing more, and are forgotten
        assert set(world.reign.distribution._peers) == {"configurator-0"}
        assert world.reign.distribution.complain.count > 100
        await world.subscribe(other, world.content())
        await world.settle()
        world.check_tables()
        await world.check_deliveries()
        assert world.reign.deposed is None
        await world.close()

    run_virtual(main())
    said = ("not a", "one too many", "names must differ")
    told = [each for each in caplog.records if any(what in each.message for what in said)]
    assert 0 < len(told) < 20


@pytest.mark.parametrize("why", ["forged", "forgotten", "broken"])
def test_a_configurator_serves_whoever_leads_whatever_term_it_heard_of_before(why):
    """One that believed a forged term, knew one of a store that has lost its data, or looked at a broken cell once."""

    async def main() -> None:
        world = StoredWorld(Line.build(link=DELAY), 1, msgspec.structs.replace(CONFIG, mode="sna", partitions=4))
        world.shelf.lost = 0.0
        await world.open(SCHEMA)
        await world.hire()
        delegate, term = world.members["configurator-0"].delegate, world.reign.leadership.term
        client, other = await world.join(), await world.join()
        await world.advertise(client, Subscription([Filter(SCHEMA, {})]))
        while not delegate.answered:
            await world.subscribe(other, world.content())
        if why != "forgotten":
            stranger, good = MemoryStore(world.shelf, limit=4096), world.shelf.cells["leader"]
            if why == "broken":  # as it is read; the leader still has the right number
                world.shelf.cells["leader"] = Item(b'{"name":"\xff"}', good.number)
            await stranger.say("ask.configurator-0", words.encode(words.Ask(term + 7, 1, 1, 1, 1, 1)))
            await asyncio.sleep(0.05)
            if world.shelf.cells["leader"].number == good.number:
                world.shelf.cells["leader"] = good
        if why != "forged":
            delegate.term += 7
        await asyncio.sleep(0.1)
        before = delegate.answered
        for _ in range(4):
            async with asyncio.timeout(60):
                await world.subscribe(other, world.content())
        assert delegate.answered > before
        assert delegate.term == term
        await world.settle()
        world.check_tables()
        await world.check_deliveries()
        await world.close()

    run_virtual(main())


def wrong(r, subjects, heard, term):
    """Something to say that nobody should say."""
    subject = r.choice(subjects)
    match r.randrange(6):
        case 0:
            return subject, r.randbytes(r.randrange(40))
        case 1:
            return subject, b"\x91" * r.choice((3, 5000))
        case 2 if heard:  # what somebody else said, with a bit that differs
            subject, data = r.choice(heard)
            at = r.randrange(len(data))
            return subject, data[:at] + bytes([data[at] ^ (1 << r.randrange(8))]) + data[at + 1 :]
        case 3 if heard:
            subject, data = r.choice(heard)
            return subject, data[: r.randrange(len(data))]
        case 4:
            size = r.randrange(1 << 30)
            reply = words.Reply("configurator-0", r.randrange(2**62), r.randrange(2**62), 0, size, r.randbytes(9))
            return f"answer.{term}", words.encode(reply)
        case _:
            return "beat", words.encode(words.Beat(f"invented-{r.randrange(30)}", r.randrange(2**62), 1))


def test_pieces_of_answers_that_never_end_are_bounded():
    pieces = words.Pieces(most=10_000)
    pieces.take(words.Reply("honest", 1, 7, 0, 2, b"x" * 100))
    for i in range(9):
        assert pieces.take(words.Reply("endless", 1, 7, i, 1 << 60, b"x" * 1000)) is None
    with pytest.raises(CodecError, match="at most 10000 bytes"):
        pieces.take(words.Reply("endless", 1, 7, 9, 1 << 60, b"x" * 1000))
    assert pieces.kept == 100
    pieces.forget("honest")
    assert pieces.kept == 0
