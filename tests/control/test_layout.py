"""The two layouts: which lane a key belongs to, and who refuses plans with masks."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.content import Filter, Subscription
from sievenet.control.layout import PER_PORT, UNITED, check_kind, layout_of
from sievenet.errors import PlanError
from sievenet.index import Cell, Dz, Plan
from sievenet.network import Flow, Line, Match
from sievenet.testing.virtual_time import run_virtual
from tests.control.world import CONFIG, SCHEMA, World


@given(st.text("01*", max_size=6), st.sampled_from([1, 2, 4, 8]))
def test_a_cell_is_cut_at_the_borders_of_lanes(text, count):
    cell = Cell.parse(text)
    tiling = PER_PORT.tiling(
        msgspec.structs.replace(CONFIG, partitions=8, spread=count), Plan.regular(SCHEMA, 4, kind="cells")
    )
    parts = dict(tiling.split([cell.key]))
    depth = count.bit_length() - 1
    for i in range(count):
        mine = [Cell.of_key(key).masked for key in parts.get(i, ())]
        for code in range(64):
            aligned = code << 122
            inside = not cell.width or aligned & cell.masked[1] == cell.masked[0]
            assert any(aligned & m == v for v, m in mine) == (inside and code >> (6 - depth) == i)
        for key in parts.get(i, ()):
            assert PER_PORT.holds(count | i, key)
            assert not any(PER_PORT.holds(count | j, key) for j in range(count) if j != i)


def test_flows_belong_to_the_layout_that_made_them():
    one, other = Flow.of(1, Dz.parse("10"), 3), Flow(Match(1, Dz.parse("10")), frozenset({3}), 2, table=3)
    masked = Flow(Match(1, Cell.parse("1*1")), frozenset({3}), 2, table=3)
    lane = Dz.parse("1")
    assert [UNITED.owns(lane, flow) for flow in (one, other, masked)] == [True, False, False]
    assert [PER_PORT.owns(lane, flow) for flow in (one, other, masked)] == [False, True, True]
    assert not PER_PORT.owns(Dz.parse("0"), masked)
    assert layout_of(Plan.regular(SCHEMA, 4)) is UNITED
    assert layout_of(Plan.regular(SCHEMA, 4, kind="cells")) is PER_PORT


def test_planes_without_tables_per_port_refuse_masks_and_say_what_to_do():
    check_kind("cells", SimpleNamespace(per_port=True))
    plane = SimpleNamespace(per_port=False)
    check_kind("dz", plane)
    with pytest.raises(PlanError, match="Take kind dz"):
        check_kind("cells", plane)


def test_switches_with_limits_merge_cells():
    async def main() -> None:
        world = World(Line.build(switches=2), 1, msgspec.structs.replace(CONFIG, kind="cells"), capacity=5)
        await world.open()
        a, b = await world.join("h1"), await world.join("h2")
        await world.advertise(a, Subscription([Filter(SCHEMA, {})]))
        for _ in range(12):
            await world.subscribe(b, world.content())
        world.check_tables()
        lane = world.control._controller.spaces[world.control.category("grid").number].lanes[0]
        assert lane.holdings["s1"].merged()
        capacity, ideal, merging = world.control.merging("s1")
        assert capacity == 5
        assert ideal > 4
        assert sum(count for each in merging for _, count, _ in each.merges) >= 2
        await world.check_deliveries_at_least()
        for plan in (Plan.regular(SCHEMA, 6), Plan.regular(SCHEMA, 7, kind="cells")):
            await world.control.apply_plan("grid", plan)
            await world.settle()
            world.check_tables()
            await world.check_deliveries_at_least()
        await world.control.close()

    run_virtual(main())


def test_plans_of_cells_get_a_grain_by_those_who_subscribe_and_keep_it():
    async def main() -> None:
        world = World(Line.build(switches=2), 1, CONFIG)
        await world.open()
        a, b = await world.join("h1"), await world.join("h2")
        await world.advertise(a, Subscription([Filter(SCHEMA, {})]))
        await world.control.apply_plan("grid", Plan.regular(SCHEMA, 8, kind="cells"))
        assert world.control.category("grid").plan.grain == 0  # nobody subscribes
        for _ in range(30):
            await world.subscribe(b, world.content())
        await world.control.apply_plan("grid", Plan.regular(SCHEMA, 8, kind="cells", version=2))
        grain = world.control.category("grid").plan.grain
        assert grain > 0
        await world.settle()
        world.check_tables()
        await world.check_deliveries()
        await world.crash()
        assert world.control.category("grid").plan.grain == grain
        world.check_tables()
        given = msgspec.structs.replace(Plan.regular(SCHEMA, 8, kind="cells", version=3), grain=0.25)
        await world.control.apply_plan("grid", given)
        assert world.control.category("grid").plan == given
        await world.subscribe(b, world.content())
        await world.settle()
        world.check_tables()
        await world.check_deliveries()
        await world.control.apply_plan("grid", Plan.regular(SCHEMA, 8, version=4))
        assert world.control.category("grid").plan.grain == 0
        await world.control.close()

    run_virtual(main())


def test_new_categories_get_the_kind_of_the_settings():
    async def main() -> None:
        world = World(Line.build(switches=2), 1, msgspec.structs.replace(CONFIG, kind="cells"))
        await world.open()
        assert world.plans["grid"].kind == "cells"
        a, b = await world.join(), await world.join()
        await world.advertise(a, world.content())
        await world.subscribe(b, world.content())
        world.check_tables()
        await world.check_deliveries()
        await world.control.close()

    run_virtual(main())
