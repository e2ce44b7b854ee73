"""Merges for a whole running network: chosen, deployed under traffic, found again, and told."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from sievenet.content import Filter, Subscription, ValueSet
from sievenet.control.fitter import Fitter
from sievenet.control.traffic import Traffic, traffic_from
from sievenet.errors import CodecError, InvalidInput
from sievenet.index import Plan
from sievenet.network import LinkSettings, Testbed, parse_topology
from sievenet.testing.virtual_time import run_virtual
from tests.control.test_transition import Traffic as Publishing
from tests.control.world import CONFIG, SCHEMA, World
from tests.seeds import seeds

LINK = LinkSettings(delay=0.002)
EVERYTHING = Subscription([Filter(SCHEMA, {})])


async def opened(world: World) -> tuple[list[str], Publishing, Fitter]:
    """A world with six clients, three of which publish; who publishes, and who fits."""
    await world.open()
    names = [await world.join() for _ in range(6)]
    for name in names[:3]:
        await world.advertise(name, EVERYTHING)
    return names, Publishing(world), Fitter(world.control, world.plane)


@pytest.mark.parametrize("seed", seeds(3))
def test_fitting_under_traffic_loses_nothing_and_fits(seed):
    async def main() -> None:
        shape = Testbed.build(link=LINK) if seed % 2 else parse_topology("fattree,k=4,delay=0.002")
        world = World(shape, seed, CONFIG, control_delay=0.004, capacity=(4, 6, 9)[seed % 3])
        names, publishing, fitter = await opened(world)
        for round_ in range(4):
            await asyncio.gather(*(world.subscribe(name, world.content()) for name in names))
            rows = {(names[0], (5 + round_) << 60): 10.0, ("nobody", 1 << 63): 2.0}
            traffic = [Traffic.of("grid", 1, rows)] if round_ % 2 else []
            report = await fitter.fit(traffic)
            assert report.method == ("pattern" if round_ else "load")
            assert report.switches == len(shape.switches)
            assert report.deployed <= report.ideal
            await world.settle()
            world.check_tables()
        await publishing.stop()
        await world.check_deliveries()
        assert world.control.status().refused == 0
        await world.control.close()

    run_virtual(main())


@pytest.mark.parametrize("seed", seeds(2))
def test_cells_are_fitted_under_traffic_too(seed):
    async def main() -> None:
        shape = Testbed.build(link=LINK) if seed % 2 else parse_topology("fattree,k=4,delay=0.002")
        config = msgspec.structs.replace(CONFIG, kind="cells")
        world = World(shape, seed, config, control_delay=0.004, capacity=(12, 14)[seed % 2])
        names, publishing, fitter = await opened(world)
        for round_ in range(3):
            await asyncio.gather(*(world.subscribe(name, world.content()) for name in names for _ in range(3)))
            known = [Traffic.of("grid", 1, {(names[0], (5 + round_) << 60): 10.0})] if round_ % 2 else []
            report = await fitter.fit(known)
            assert report.method == ("pattern" if round_ else "load")
            await world.settle()
            world.check_tables()
            assert report.ideal == sum(world.control.merging(switch)[1] for switch in shape.switches)
            assert report.deployed < report.ideal
            assert report.merged
        assert any(world.control.merging(switch)[2] for switch in shape.switches)
        await publishing.stop()
        await world.check_deliveries()
        assert world.control.status().refused == 0
        await world.control.close()

    run_virtual(main())


@pytest.mark.parametrize("seed", seeds(2))
def test_merges_that_were_chosen_for_another_plan_are_forgotten(seed):
    async def main() -> None:
        world = World(Testbed.build(link=LINK), seed, CONFIG, control_delay=0.004, capacity=14)
        names, publishing, fitter = await opened(world)
        await asyncio.gather(*(world.subscribe(name, world.content()) for name in names for _ in range(3)))
        merge, late = world.control.merge, []
        world.control.merge = lambda chosen: (late.append(chosen), merge(chosen))  # type: ignore[method-assign]
        for version, kind in enumerate(("cells", "dz", "cells")):
            await fitter.fit()
            await world.settle()
            plan = Plan.regular(SCHEMA, 6 + version, kind=kind, version=version + 2)
            changing = asyncio.ensure_future(world.control.apply_plan("grid", plan))
            while not changing.done():  # at each of its steps what was chosen before it
                merge(late[-1])
                await asyncio.sleep(0.001)
            await changing
            merge(late[-1])
            await world.settle()
            world.check_tables()
        await publishing.stop()
        await world.check_deliveries()
        await world.control.close()

    run_virtual(main())


def test_recorded_traffic_keeps_apart_what_is_published():
    """Two pairs of neighbours for different subscribers; the pair is merged about which nothing is published."""

    async def main() -> None:
        world = World(Testbed.build(link=LINK), 1, CONFIG, capacity=4)
        await world.open()
        a, b, c = [await world.join(host) for host in ("h1", "h7", "h8")]
        await world.advertise(a, EVERYTHING)
        for x in (0, 12):
            for i, client in enumerate((b, c)):
                sides = {"x": ValueSet.interval(x, x + 1), "y": ValueSet.interval(4 * i, 4 * i + 1)}
                await world.subscribe(client, Subscription([Filter(SCHEMA, sides)]))
        plan = world.plans["grid"]
        fitter = Fitter(world.control, world.plane)
        for busy in (0, 12):
            codes = [plan.encode(SCHEMA.event(x=busy + i, y=y))[0].code >> 64 for i in (0, 1) for y in (0, 1, 4, 5)]
            await fitter.fit([Traffic.of("grid", 1, {(a, code): 10.0 for code in codes})])
            await world.settle()
            world.check_tables()
            event = SCHEMA.event(x=busy, y=0)
            sent = world.publish(a, event)
            await asyncio.sleep(0.2)
            assert world.received.pop(sent) == [b]
        await world.control.close()

    run_virtual(main())


def test_traffic_of_others_is_checked():
    good = Traffic.of("grid", 1, {("a", 5): 1.0})
    assert good.sample({"a": [3]}, 4).sources.tolist() == [3]
    assert good.sample({}, 4).sources.tolist() == [0]
    with pytest.raises(CodecError, match="traffic"):
        traffic_from(b"\x93abc")
    for wrong in (
        Traffic("grid", 1, ["a"], good.codes, good.sources, b""),
        Traffic("grid", 1, [], good.codes, good.sources, good.counts),
        Traffic("grid", 1, ["a"], good.codes, good.sources, b"\xff" * 8),
    ):
        with pytest.raises(InvalidInput, match="traffic"):
            wrong.sample({}, 1)
