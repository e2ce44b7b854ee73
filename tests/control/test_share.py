"""No client takes more than its share of the flow tables, and what it gives back it may take again."""

import asyncio
import random

import msgspec
import pytest

from sievenet.content import Filter, Subscription, ValueSet
from sievenet.errors import Rejected
from sievenet.network import Line
from sievenet.testing.virtual_time import run_virtual
from tests.control.world import CONFIG, SCHEMA, World
from tests.seeds import seeds

SHARE = 12
EVERYTHING = Subscription([Filter(SCHEMA, {})])


def part(rng):
    spans = {}
    for name in ("x", "y"):
        low = rng.randrange(16)
        spans[name] = ValueSet.interval(low, rng.randrange(low, 16))
    return Subscription([Filter(SCHEMA, spans)])


def held(world, client):
    """The dz of a client, counted one by one."""
    return sum(len(entry.keys) for entry in world.control._controller.state.clients[client].entries())


def agree(world):
    controller = world.control._controller
    taken = {wire: count for wire, count in controller.dispatcher._taken.items() if count}
    return taken == {c.wire: held(world, c.name) for c in controller.state.clients.values() if held(world, c.name)}


@pytest.mark.soak
@pytest.mark.parametrize("seed", seeds(3))
def test_whatever_comes_and_goes_nobody_has_more_than_its_share(seed):
    async def main():
        world = World(Line.build(switches=3), seed, msgspec.structs.replace(CONFIG, share=SHARE))
        await world.open()
        control, rng = world.control, random.Random(seed)
        source, *clients = [await world.join(f"h{1 + i % 3}") for i in range(4)]
        await control.advertise(source, 1, EVERYTHING)
        kept = {client: set() for client in clients}
        number = refused = 0
        for _ in range(15):
            asked = []
            for _ in range(rng.randrange(1, 6)):
                client = rng.choice(clients)
                if kept[client] and rng.random() < 0.4:
                    old = kept[client].pop()
                    asked.append((client, None, control.unsubscribe(client, old)))
                else:
                    number += 1
                    asked.append((client, number, control.subscribe(client, number, part(rng))))
            answers = await asyncio.gather(*(each for *_, each in asked), return_exceptions=True)
            for (client, new, _), answer in zip(asked, answers, strict=True):
                if isinstance(answer, Rejected):
                    refused += 1
                    assert "at most 12 entries" in str(answer)
                else:
                    assert answer is None
                    kept[client] |= {new} - {None}
            # What was refused is taken back already.
            assert all(held(world, client) <= SHARE for client in clients)
            assert {c: set(control.registrations_of(c)[1]) for c in clients} == kept
            assert agree(world)
        while not refused:  # a seed whose clients asked for little
            number += 1
            try:
                await control.subscribe(clients[0], number, part(rng))
            except Rejected:
                refused += 1
            else:
                kept[clients[0]].add(number)
            assert number < 1000
        await world.crash()  # right after a refusal, for some seeds
        assert {c: set(world.control.registrations_of(c)[1]) for c in clients} == kept
        assert agree(world)
        for client in clients:
            await world.control.leave(client)
        assert agree(world)
        assert len(world.control._controller.dispatcher._taken) == 1

    run_virtual(main())


@pytest.mark.parametrize("crash", [False, True])
def test_what_was_refused_is_gone_when_that_is_told(crash):
    """Neither does a crash bring it back, nor is somebody who asks again told that it stands."""

    async def main():
        world = World(Line.build(switches=3), 1, msgspec.structs.replace(CONFIG, share=SHARE))
        await world.open()
        client = await world.join("h1")
        rng, kept = random.Random(1), []
        while True:
            number, wanted = len(kept) + 1, part(rng)
            asked = [world.control.subscribe(client, number, wanted) for _ in range(3)]
            answers = await asyncio.gather(*asked, return_exceptions=True)
            if answers != [None, None, None]:
                break
            kept.append(number)
        assert all(isinstance(each, Rejected) for each in answers)
        if crash:
            await world.crash()
        else:
            with pytest.raises(Rejected):
                await world.control.subscribe(client, number, wanted)
        assert list(world.control.registrations_of(client)[1]) == kept
        assert agree(world)
        assert held(world, client) <= SHARE

    run_virtual(main())
