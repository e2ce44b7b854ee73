"""Partitions of an event space: every key finds its own, and balanced ones have about as much to do."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.control.config import ControlConfig
from sievenet.control.tiling import Tiling, balanced
from sievenet.errors import PlanError
from sievenet.index import Dz, Plan
from sievenet.index.tiles import MAX_TILE, check_tiles
from sievenet.workload import grid
from tests.control.world import cut_dz

keys = st.integers(0, 20).flatmap(lambda n: st.integers(1 << n, (2 << n) - 1))
tilings = st.tuples(st.lists(keys, max_size=40), st.integers(0, 5), st.integers(0, 5)).map(
    lambda each: balanced(each[0], 1 << max(each[1:]), 1 << min(each[1:]))
)


@given(tilings, st.lists(keys, max_size=8))
def test_every_key_is_cut_at_the_borders(tiles, some):
    check_tiles(tiles)
    expected: dict[int, list[Dz]] = {}
    every = Dz.of_keys(tiles)
    for dz in Dz.of_keys(some):
        for piece in cut_dz(dz, every):
            expected.setdefault(next(i for i, tile in enumerate(every) if tile.covers(piece)), []).append(piece)
    assert {i: Dz.of_keys(mine) for i, mine in Tiling(tiles).split(some)} == expected


@pytest.mark.parametrize("count", [16, 64])
def test_balanced_partitions_have_about_as_much_each(count):
    """Half of all keys in an eighth of the space, and half of those in an eighth of that."""
    r = random.Random(3)
    shares = [r.choice((0, 0, 3, 6)) for _ in range(4000)]
    some = [1 << 30 | ((0b101_011 >> 6 - n) << 30 - n) | r.getrandbits(30 - n) for n in shares]
    tiles = balanced(some, count)
    most, before = (max(len(mine) for _, mine in each.split(some)) for each in (Tiling(tiles), Tiling.equal(count)))
    assert len(tiles) == count
    assert most <= min(before / 2, 2.5 * len(some) / count)


def test_no_tile_is_smaller_than_the_smallest_nor_larger_than_trees_allow():
    tiles = balanced([1 << 40] * 9, 64, 4)
    assert max(tile.bit_length() for tile in tiles) == MAX_TILE + 1
    assert min(tile.bit_length() for tile in tiles) >= 3
    check_tiles(tiles)
    check_tiles(balanced([], 8))


@pytest.mark.parametrize(
    "tiles",
    [(2,), (3,), (3, 2), (2, 3, 3), (1, 1), (0,), (-1,), (2, 2), (2, 6), (1 << 17 | 1,), tuple(range(8192, 16384))],
)
def test_a_plan_with_other_tiles_is_refused(tiles):
    plan = Plan.regular(grid(2, hi=255), 8)
    with pytest.raises(PlanError):
        msgspec.structs.replace(plan, tiles=tiles)


def test_tiles_are_used_where_the_settings_say_so():
    plan = msgspec.structs.replace(Plan.regular(grid(2, hi=255), 8), tiles=(2, 6, 7))
    assert Plan.from_json(plan.to_json()) == plan
    for config, tiles in (
        (ControlConfig(partitions=4, tiling="balanced"), (2, 6, 7)),
        (ControlConfig(partitions=4, spread=2, tiling="balanced"), (2, 6, 7)),
        (ControlConfig(partitions=4, spread=4, tiling="balanced"), (4, 5, 6, 7)),  # a tile would have two trees
        (ControlConfig(partitions=4), (4, 5, 6, 7)),
    ):
        assert Tiling.of(config, plan).tiles == tiles
