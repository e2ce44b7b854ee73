"""Counting on plain batches: equal to brute force, whatever the plan."""

import functools
import math
import operator

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievenet.content import Attribute, Event, EventBatch, Filter, Schema, Subscription, ValueSet, parse_filter
from sievenet.index import Plan
from sievenet.matcher import Matcher
from sievenet.testing.strategies import batches, near_floats, schemas, subscriptions
from sievenet.tuning import spans
from sievenet.tuning.clusters import rectangles
from sievenet.tuning.covers import Covers, Interests
from sievenet.tuning.deliveries import Deliveries, Wants, fpr
from sievenet.tuning.subspace import subspace_plan
from sievenet.workload import Hotspots, Mixed, Ticks, grid
from tests.seeds import examples
from tests.tuning import oracle

LOAD = Hotspots(schema=grid(4, hi=255), selectivity=0.3, seed=2)
BATCH = LOAD.events(2000)
SUBS = LOAD.subscriptions(300).filters()


@functools.cache
def plans():
    """One of every kind."""
    schema, areas = LOAD.schema, rectangles(LOAD.schema, SUBS, 3)
    return [
        Plan.regular(schema, 12),
        Plan.regular(schema, 12, kind="cells"),
        Plan.combined(schema, 14, mbrs=areas, rest=True),
        Plan.combined(schema, 14, mbrs=areas),
        Plan.regular(schema, 12, list(schema.positions)[:2]),
        msgspec.structs.replace(Plan.combined(schema, 14, mbrs=areas, rest=True), once=True),
        msgspec.structs.replace(Plan.combined(schema, 14, mbrs=areas), once=True),
        subspace_plan(BATCH, np.ones(len(BATCH), np.int64), 14, 4),
    ]


@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("budget", [1, 2, 8])
def test_deliveries_equal_the_simple_count(number, budget):
    plan = plans()[number]
    deliveries = Deliveries(plan, Covers.of(plan, Interests.of(LOAD.schema, SUBS), budget), len(SUBS))
    some = BATCH.take(slice(0, 40))
    packets, each = deliveries.per_subscription(some)
    expected, found = oracle.delivered(plan, some, SUBS, budget)
    assert packets == expected
    assert each.tolist() == found.tolist()
    assert deliveries.total(some) == (packets, int(each.sum()))
    # Neighbours of one cover can be joined to one entry later.
    assert sum(len(plan.cover(w, budget)) for w in SUBS) <= deliveries.entries <= budget * len(SUBS)


@pytest.mark.parametrize("number", range(8))
def test_without_a_budget_nothing_can_be_better(number):
    plan = plans()[number]
    interests = Interests.of(LOAD.schema, SUBS)
    whole = Deliveries(plan, Covers.of(plan, interests), len(SUBS)).per_subscription(BATCH)[1]
    large = Deliveries(plan, Covers.of(plan, interests, 4096), len(SUBS)).per_subscription(BATCH)[1]
    wanted = Wants(LOAD.schema, SUBS).per_subscription(BATCH)
    assert (wanted <= whole).all()
    assert np.array_equal(whole, large)


@settings(max_examples=30)
@given(st.data())
def test_any_content(data):
    schema = data.draw(schemas(small=True))
    wanted = data.draw(st.lists(subscriptions(schema, small=True), min_size=1, max_size=6))
    batch = data.draw(batches(schema))
    plan = Plan.regular(schema, data.draw(st.integers(0, 10)))
    interests = Interests.of(schema, wanted)
    exact = np.array([[s.matches(e) for s in wanted] for e in batch], bool).reshape(len(batch), len(wanted))
    assert np.array_equal(Wants(schema, wanted).per_subscription(batch), exact.sum(axis=0))
    assert np.array_equal(Wants(schema, wanted).per_event(batch), exact.sum(axis=1))
    for budget in (None, 1, 4):
        covers = Covers.of(plan, interests, budget)
        packets, delivered = Deliveries(plan, covers, len(wanted)).per_subscription(batch)
        assert packets == len(batch)
        assert (delivered >= exact.sum(axis=0)).all()
        # Made in two parts it is the same.
        half = len(wanted) // 2
        first, second = interests.take(range(half)), interests.take(range(half, len(wanted)))
        parts = [Covers.of(plan, second, budget, start=half), Covers.of(plan, first, budget)]
        again = Deliveries(plan, Covers.joined(plan, parts), len(wanted)).per_subscription(batch)[1]
        assert np.array_equal(again, delivered)


def test_strings_and_sets():
    load = Mixed(seed=5)
    batch, subs = load.events(500), load.subscriptions(200).filters()
    plan = Plan.regular(load.schema, 24)
    for budget in (None, 4):
        covers = Covers.of(plan, Interests.of(load.schema, subs), budget)
        delivered = Deliveries(plan, covers, len(subs)).per_subscription(batch)[1]
        assert (delivered >= Wants(load.schema, subs).per_subscription(batch)).all()


@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("budget", [1, 8, None])
def test_places_that_packets_reach(number, budget):
    plan = plans()[number]
    place = np.arange(len(SUBS)) % 70
    deliveries = Deliveries(plan, Covers.of(plan, Interests.of(LOAD.schema, SUBS), budget), len(SUBS))
    events, reached = deliveries.reached(BATCH.take(slice(0, 50)), place, 70)
    assert reached.shape == (len(events), 2)
    bits = np.unpackbits(reached.view(np.uint8), axis=1, bitorder="little")[:, :70].astype(bool)
    for event in range(50):
        alone = BATCH.take([event])
        owners = deliveries.per_subscription(alone)[1]
        expected = np.zeros(70, bool)
        expected[place[owners > 0]] = True
        assert np.array_equal(bits[events == event].any(axis=0), expected)


def test_rate():
    assert fpr(0, 0) == 0.0
    assert fpr(10, 4) == 0.6


@pytest.mark.parametrize("most", [1, 40, 1 << 20])
@pytest.mark.parametrize("load", [LOAD, Mixed(seed=5), Ticks(seed=3)], ids=["whole", "mixed", "market"])
def test_wants_equal_the_matcher_however_boxes_are_divided(monkeypatch, load, most):
    monkeypatch.setattr(spans, "_ENDS", most)
    batch = load.events(5000)
    filters = load.subscriptions(120).filters()
    # Single filters, and unions of two of them.
    wanted = [*filters[:40], *(Subscription([a, b], load.schema) for a, b in zip(filters, filters[40:], strict=False))]
    matcher = Matcher(load.schema)
    matcher.add_many(range(len(wanted)), wanted)
    matches = matcher.match_batch(batch)
    wants = Wants(load.schema, wanted)
    assert np.array_equal(wants.per_subscription(batch), np.bincount(matches.keys, minlength=len(wanted)))
    assert np.array_equal(wants.per_event(batch), matches.counts)


def test_whole_numbers_too_large_for_doubles():
    schema = Schema("big", [Attribute("x", "int", 0, (1 << 62) + 1), Attribute("y", "int", 0, 9)])
    values = [(1 << 53), (1 << 53) + 1, (1 << 62), (1 << 62) + 1, 5]
    batch = EventBatch.from_events(schema, [Event(schema, (x, 1)) for x in values])
    wanted = [parse_filter(f"big: x = {x}", schema) for x in values] + [parse_filter("big: y < 2", schema)]
    assert Wants(schema, wanted).per_subscription(batch).tolist() == [1, 1, 1, 1, 1, 5]
    assert Wants(schema, wanted).per_event(batch).tolist() == [2] * 5


def test_whole_numbers_up_to_the_last_of_64_bits():
    top = (1 << 63) - 1
    schema = Schema("big", [Attribute("x", "int", -top, top)])
    batch = EventBatch.of(schema, {"x": [-top, -top + 1, 0, top - 1, top]})
    wanted = [parse_filter(text, schema) for text in (f"x >= {top}", f"x < {top}", f"x <= {1 - top}", "x > 0")]
    assert Wants(schema, wanted).per_subscription(batch).tolist() == [1, 4, 2, 2]


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_open_and_closed_ends_of_floats_are_told_apart(data):
    """Wanted and delivered, against explicit floats at and next to the ends."""
    lo, hi = data.draw(st.sampled_from([(0.0, 10.0), (-1.0, 1.0), (0.0, 1.7976931348623157e308), (0.0, 5e-324)]))
    schema = Schema("s", [Attribute("x", "float", lo, hi), Attribute("y", "float", 0, 1)])
    ends = data.draw(st.lists(near_floats(lo, hi), min_size=2, max_size=5))
    near = {p for e in ends for p in (e, math.nextafter(e, math.inf), math.nextafter(e, -math.inf)) if lo <= p <= hi}
    rows = [(p, y) for p in sorted(near) for y in (0.0, 0.5)]
    batch = EventBatch.from_events(schema, [Event(schema, row) for row in rows])
    wanted, tests = [], []
    for _ in range(data.draw(st.integers(1, 4))):
        a, b = sorted((data.draw(st.sampled_from(ends)), data.draw(st.sampled_from(ends))))
        above, below = (
            data.draw(st.sampled_from([operator.gt, operator.ge])),
            data.draw(st.sampled_from([operator.lt, operator.le])),
        )
        strict = data.draw(st.booleans())
        values = ValueSet.interval(a, b, open_lo=above is operator.gt, open_hi=below is operator.lt)
        wanted.append(Filter(schema, {"x": values, "y": ValueSet.interval(0.5, None, open_lo=strict)}))
        tests.append([above(x, a) and below(x, b) and (y > 0.5 if strict else y >= 0.5) for x, y in rows])
    wants = Wants(schema, wanted)
    assert wants.per_subscription(batch).tolist() == [sum(test) for test in tests]
    assert wants.per_event(batch).tolist() == np.array(tests).sum(axis=0).tolist()
    plan = Plan.regular(schema, data.draw(st.integers(2, 100)), kind=data.draw(st.sampled_from(["dz", "cells"])))
    covers = Covers.of(plan, Interests.of(schema, wanted), 8)
    packets, delivered = Deliveries(plan, covers, len(wanted)).per_subscription(batch)
    assert packets == len(batch)
    codes = [plan.encode(event)[0] for event in batch]
    for each, count, test in zip(wanted, delivered.tolist(), tests, strict=True):
        held = [any(cell.covers(code.cell(plan.bits)) for cell in plan.cover_cells(each, 8)) for code in codes]
        if plan.kind == "dz":
            held = [any(dz.covers(code) for dz in plan.cover_dz(each, 8)) for code in codes]
        assert count == sum(held)
        assert all(h or not t for h, t in zip(held, test, strict=True))
