"""Covering: ends in bounded work whatever it is given, is exact about floats, and stays fast with many values."""

import itertools
import math
import time

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievenet.content import Attribute, EventBatch, Filter, Schema, Subscription, ValueSet, parse_filter
from sievenet.errors import PlanError
from sievenet.index import Plan
from sievenet.index.cover import Boxes, cover_pieces, cover_words
from sievenet.index.cover.boxes import boxes_of, layout_of
from sievenet.index.cover.grain import grained
from sievenet.testing.strategies import near_floats
from sievenet.workload import Uniform, grid
from tests.index import strategies as own
from tests.seeds import examples

PRICE = Schema("stock", (Attribute("price", "float", lo=0, hi=1000), Attribute("volume", "int", lo=0, hi=99)))
FAR = (1 << 62) + 5


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_any_boxes_are_covered_in_bounded_work(data):
    """Boxes that are empty, inverted or outside of the grid too; a search that does not end fails by its time limit."""
    plan = data.draw(own.plans(data.draw(own.schemas())))
    plan = msgspec.structs.replace(plan, grain=data.draw(st.sampled_from([0.0, 1e-9, 1e-4, 0.01, 0.3])))
    layout = layout_of(plan)
    axes = layout.bits.shape[1]
    offsets, rows = [0], []
    for bits in layout.bits.tolist():
        tops = [(1 << b) - 1 for b in bits]
        for _ in range(data.draw(st.integers(0, 3))):
            ends = [(st.integers(0, top) | st.sampled_from([0, top, top + 1, -1, FAR, -FAR])) for top in tops]
            rows.append([(data.draw(e), data.draw(e)) for e in ends])
        offsets.append(len(rows))
    array = np.array(rows, np.int64).reshape(len(rows), axes, 2)
    boxes = Boxes(layout, array[:, :, 0].copy(), array[:, :, 1].copy(), np.array(offsets, np.int64))
    budget = data.draw(st.integers(1, 40))
    kind = data.draw(st.sampled_from(["dz", "cells"]))
    region, start, size = cover_pieces(plan, boxes, budget, kind=kind)
    assert len(region) <= max(plan.most(budget), len(plan.regions))
    for r, (first, behind) in enumerate(itertools.pairwise(offsets)):
        mine = region == r
        for box in rows[first:behind]:
            clipped = [(max(a, 0), min(b, (1 << bits) - 1)) for (a, b), bits in zip(box, layout.bits[r], strict=True)]
            if any(a > b for a, b in box) or any(a > b for a, b in clipped):
                continue
            for point in range(4):  # two corners, and two others
                at = np.array([ends[point] if point < 2 else data.draw(st.integers(*ends)) for ends in clipped])
                inside = (at >= start[mine]) & (at - start[mine] < np.left_shift(1, size[mine]))
                assert inside.all(axis=1).any()
    cover_words(plan, boxes, budget, kind=kind)


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_covers_with_a_grain_are_nested_and_hold_every_coordinate(data):
    """All coordinates of a small grid; and more entries continue the same splits."""
    axes = data.draw(st.integers(1, 3))
    schema = Schema("g", tuple(Attribute(f"a{i}", "int", lo=0, hi=15) for i in range(axes)))
    gray = data.draw(st.booleans())
    plan = Plan.regular(schema, 4 * axes, kind="cells", gray=gray)
    plan = msgspec.structs.replace(plan, grain=data.draw(st.floats(1e-6, 0.05)))
    spans = [sorted(data.draw(st.tuples(st.integers(0, 15), st.integers(0, 15)))) for _ in range(axes)]
    wanted = Filter(schema, {f"a{i}": ValueSet.interval(*span) for i, span in enumerate(spans)})
    found = plan.cover(wanted, 1)
    assert len(found) <= 16
    assert found.covers(plan.cover(wanted, data.draw(st.integers(2, 9))))
    points = np.array(list(itertools.product(*(range(a, b + 1) for a, b in spans))))
    codes = plan.encode_batch(EventBatch.of(schema, {f"a{i}": points[:, i] for i in range(axes)}))
    values, masks = (np.array([getattr(c, name) for c in found]) for name in ("value", "mask"))
    at = np.array([int(codes[i]) >> 128 - plan.bits for i in range(len(points))])
    assert ((at[:, None] & masks) == values).any(axis=1).all()


def test_a_grain_weighs_what_later_splits_save():
    """Under a price per entry covers come to less volume and price than where each split has to pay at once.

    That is what a search does that splits wherever this saves most at once, and stops at the same price.
    """
    load = Uniform(schema=grid(4, hi=255), selectivity=0.4, seed=2)
    plan = Plan.regular(load.schema, 32, kind="cells")
    filters = load.subscriptions(60).filters()
    grainy = msgspec.structs.replace(plan, grain=0.001)
    priced = at_once = 0.0
    for each in filters:
        found = grainy.cover(each, 8)
        priced += found.volume() + 0.001 * len(found)
        plain = (plan.cover(each, n) for n in range(1, 60))
        at_once += min(cover.volume() + 0.001 * len(cover) for cover in plain)
    assert priced < 0.97 * at_once


@pytest.mark.parametrize("kind", ["dz", "cells"])
def test_a_filter_without_any_float_is_empty_and_covered_by_nothing(kind):
    plan = Plan.regular(PRICE, 40)
    nothing = parse_filter("price > 499.99999999999994 and price < 500", PRICE)
    assert nothing.empty
    assert len(plan.cover(nothing, 32, kind=kind)) == 0
    beside = parse_filter("price >= 499.99999999999994 and price < 500", PRICE)
    assert len(plan.cover(beside, 32, kind=kind)) >= 1


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_covers_hold_exactly_the_coordinates_of_wanted_floats(data):
    """With a budget that suffices, a cover holds what shares a coordinate with a wanted float, and hardly more.

    A part that lacks less than 1e-12 of its volume is not split.
    """
    lo, hi = data.draw(st.sampled_from([(0.0, 1000.0), (0.0, 5e-323), (-1e-300, 1e-300), (0.0, 1.7e308)]))
    schema = Schema("s", (Attribute("x", "float", lo=lo, hi=hi),))
    ends = data.draw(st.lists(near_floats(lo, hi), min_size=2, max_size=4))
    a, b = min(ends), max(ends)
    wanted = Filter(
        schema, {"x": ValueSet.interval(a, b, open_lo=data.draw(st.booleans()), open_hi=data.draw(st.booleans()))}
    )
    plan = Plan.regular(schema, bits := data.draw(st.integers(1, 52)))
    points = {lo, hi, *ends, *(math.nextafter(e, s) for e in ends for s in (-math.inf, math.inf))}
    points = sorted(p for p in points if lo <= p <= hi)
    batch = EventBatch.of(schema, {"x": points})
    codes = plan.encode_batch(batch)
    coordinates = [int(codes[i]) for i in range(len(points))]
    assert coordinates == sorted(coordinates)
    inside = [c for c, p in zip(coordinates, points, strict=True) if wanted.matches(schema.event(x=p))]
    found = plan.cover_dz(wanted, 256)
    held = [any(d.interval(128)[0] <= c < d.interval(128)[1] for d in found) for c in coordinates]
    assert all(held[i] for i, c in enumerate(coordinates) if c in inside)
    if inside:
        first, last, cell = min(inside), max(inside), 1 << 128 - bits
        room = (last - first + cell) // 10**12
        assert all(held[i] for i, c in enumerate(coordinates) if first <= c <= last)
        assert not any(held[i] for i, c in enumerate(coordinates) if c < first - room or c > last + room)
    else:
        assert wanted.empty
        assert len(found) == 0


def test_many_values_are_covered_in_near_linear_time():
    """Twice the values take at most about twice the time; quadratic work would take four times as long."""
    plan = Plan.regular(PRICE, 40)

    def spent(count):
        wanted = Filter(PRICE, {"price": ValueSet.of(*(i * 1000 / count for i in range(count)))})
        best = math.inf
        for _ in range(3):
            begun = time.process_time()
            boxes_of(plan, wanted)
            best = min(best, time.process_time() - begun)
        return best

    spent(10)
    assert spent(16_000) < 12 * spent(4_000) + 0.02


@given(st.data())
def test_joining_spans_encloses_them(data):
    schema = data.draw(own.schemas(2))
    plan = Plan.regular(schema, data.draw(st.integers(3, 40)))
    numbers = [a for a in schema.attributes if a.type in ("int", "float")]
    some = {
        a.name: ValueSet.of(*data.draw(st.lists(own.values(a), min_size=1, max_size=120)))
        for a in numbers
        if data.draw(st.booleans())
    }
    wanted = Filter(schema, some)
    boxes = boxes_of(plan, Subscription([wanted], schema))
    assert 1 <= len(boxes.lo) <= 64
    for name, values in wanted.constraints.items():
        region = plan.encoder.regions[0]
        d = [s.attribute.name for s in region.scales].index(name)
        for first, last in region.scales[d].spans(values):
            assert any(boxes.lo[i, d] <= first and last <= boxes.hi[i, d] for i in range(len(boxes.lo)))


LOAD = Uniform(schema=grid(3, hi=255), selectivity=0.3, seed=4)


@pytest.mark.parametrize("kind", ["dz", "cells"])
def test_a_grain_gives_large_filters_more_entries_than_small_ones_and_wastes_less(kind):
    plan = Plan.regular(LOAD.schema, 24, kind=kind)
    wanted = LOAD.subscriptions(80).filters()
    grainy = grained(plan, wanted, 6)
    assert grainy.grain > 0
    assert msgspec.structs.replace(grainy, grain=0.0) == plan
    covers = [(plan.cover(each, 6), grainy.cover(each, 6)) for each in wanted]
    counts = [len(cover) for _, cover in covers]
    assert 5 < sum(counts) / len(counts) <= 6
    assert max(counts) > 12
    assert max(counts) <= grainy.most(6) == 96
    assert sum(cover.volume() for _, cover in covers) < 0.85 * sum(cover.volume() for cover, _ in covers)
    for each, (_, cover) in zip(wanted, covers, strict=True):
        assert cover.covers(plan.cover(each, 4096, kind=kind))  # and so nothing is missed


def test_few_filters_have_no_grain():
    plan = Plan.regular(LOAD.schema, 24, kind="cells")
    assert grained(plan, (), 6) == plan
    assert grained(plan, LOAD.subscriptions(1).filters(), 6).grain == 0
    with pytest.raises(PlanError, match="grain"):
        msgspec.structs.replace(plan, grain=-0.1)
