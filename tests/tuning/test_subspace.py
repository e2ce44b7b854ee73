"""Subspaces of equal workload, against plain counting; regions are found without asking all of them."""

import itertools

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievenet.content import Attribute, EventBatch, Filter, Schema, ValueSet
from sievenet.errors import InvalidInput
from sievenet.index import Plan
from sievenet.tuning.clusters import rectangles
from sievenet.tuning.judge import evaluate
from sievenet.tuning.splits import split_points
from sievenet.tuning.subspace import subspace_plan
from tests.index import strategies as own
from tests.seeds import examples

SCHEMA = Schema("w", (Attribute("x", "float", lo=0, hi=100), Attribute("y", "int", lo=0, hi=9999)))


def correlated(count=4000, seed=1):
    """Values that go together: y is about 100 · x."""
    rng = np.random.default_rng(seed)
    x = np.clip(rng.gamma(2.0, 8.0, count), 0, 100)
    y = np.clip(np.rint(100 * x + rng.normal(0, 150, count)), 0, 9999).astype(np.int64)
    return EventBatch.of(SCHEMA, {"x": x, "y": y})


def shares(plan, batch, bits):
    """The part of the events in each subspace of so many bits."""
    codes = plan.encode_batch(batch)
    return np.bincount((codes.hi >> np.uint64(64 - bits)).astype(np.int64), minlength=1 << bits) / len(batch)


def test_each_subspace_is_split_by_its_own_workload():
    batch = correlated()
    ones = np.ones(len(batch), np.int64)
    found = shares(subspace_plan(batch, ones, 16, 2, spread=0.0), batch, 2)
    assert np.allclose(found, 0.25, atol=0.001)
    # Axes split by their own quantiles leave nearly nothing to two of the four.
    marginal = Plan.adaptive(SCHEMA, split_points(batch, np.ones(len(batch), np.int64), 4), 16)
    assert sorted(shares(marginal, batch, 2))[1] < 0.1
    assert np.allclose(shares(subspace_plan(batch, ones, 16, 6, spread=0.0), batch, 6), 1 / 64, atol=0.001)


def test_the_workload_counts_not_the_events():
    batch = correlated()
    weights = (np.asarray(batch.columns[0]) < 10).astype(np.int64) * 3
    plan = subspace_plan(batch, weights, 16, 2, spread=0.0)
    codes = plan.encode_batch(batch)
    mass = np.bincount((codes.hi >> np.uint64(62)).astype(np.int64), weights[codes.row], minlength=4)
    assert np.allclose(mass / mass.sum(), 0.25, atol=0.01)


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_subspaces_tile_the_event_space(data):
    schema = data.draw(own.schemas())
    plan = data.draw(own.subspace_plans(schema))
    assert plan.complete
    assert Plan.from_json(plan.to_json()) == plan
    for event in data.draw(st.lists(own.events(schema), max_size=6)):
        (code,) = plan.encode(event)
        holding = [r for r in plan.regions if all(_held(event, b) for b in r.bounds)]
        assert [str(code)[: len(r.prefix)] for r in holding] == [r.prefix for r in holding]
        assert len(holding) == 1


def _held(event, bound):
    value = event[bound.attribute]
    place = event.schema[bound.attribute].ordinals[value] if isinstance(value, str) else value
    return bound.lo <= place <= bound.hi


def test_with_a_gap_or_an_overlap_the_plan_is_not_complete():
    plan = subspace_plan(correlated(), np.ones(4000, np.int64), 16, 3)
    some = msgspec.structs.replace(plan, regions=plan.regions[:-1])
    assert plan.complete
    assert not some.complete
    assert some.with_rest().complete
    one, *others = plan.regions
    wide = msgspec.structs.replace(one, bounds=tuple(msgspec.structs.replace(b, hi=b.hi + 1) for b in one.bounds))
    assert not msgspec.structs.replace(plan, regions=(wide, *others)).complete


def test_correlated_attributes_gain_from_subspaces():
    batch = correlated()
    rng = np.random.default_rng(3)
    wanted = []
    for row in rng.choice(len(batch), 60, replace=False).tolist():
        x, y = float(batch.columns[0][row]), int(batch.columns[1][row])
        wanted.append(
            Filter(SCHEMA, {"x": ValueSet.interval(x - 0.5, x + 0.5), "y": ValueSet.interval(y - 60, y + 60)})
        )
    matching = np.array([sum(w.matches(e) for w in wanted) for e in batch])
    quantiles = Plan.adaptive(SCHEMA, split_points(batch, matching, 4), 8)
    rates = {
        "regular": evaluate(Plan.regular(SCHEMA, 8), batch, wanted, 8).per_subscription,
        "quantiles": evaluate(quantiles, batch, wanted, 8).per_subscription,
        "subspaces": evaluate(subspace_plan(batch, matching, 8, 6), batch, wanted, 8).per_subscription,
    }
    assert rates["subspaces"] < rates["quantiles"] < rates["regular"]


def test_one_code_per_event_where_rectangles_overlap():
    batch = correlated(500)
    areas = [{"x": (0.0, 40.0)}, {"x": (20.0, 60.0), "y": (0, 5000)}, {"x": (30.0, 90.0)}]
    several = Plan.combined(SCHEMA, 16, mbrs=areas, rest=True)
    once = msgspec.structs.replace(several, once=True)
    assert len(several.encode_batch(batch)) > len(batch)
    codes = once.encode_batch(batch)
    assert sorted(codes.row.tolist()) == list(range(len(batch)))
    by_row = {int(row): codes[i] for i, row in enumerate(codes.row)}
    for row, event in enumerate(batch):
        (code,) = once.encode(event)
        assert by_row[row] == code.bits << (128 - code.length)
        assert code == several.encode(event)[0]


def test_many_regions_are_found_as_by_asking_all():
    rng = np.random.default_rng(2)
    filters = [
        Filter(SCHEMA, {"x": ValueSet.interval(a, a + 5.0), "y": ValueSet.interval(int(b), int(b) + 900)})
        for a, b in zip(rng.uniform(0, 95, 300), rng.integers(0, 9000, 300), strict=True)
    ]
    plan = Plan.combined(SCHEMA, 24, mbrs=rectangles(SCHEMA, filters, 90, seed=1), rest=True)
    assert len(plan.regions) > 60
    batch = correlated(300)
    codes = plan.encode_batch(batch)
    found = {(int(row), codes[i]) for i, row in enumerate(codes.row)}
    expected = set()
    for row, event in enumerate(batch):
        holding = [r for r in plan.encoder.regions if not r.region.rest and r.holds(event)]
        holding = holding or [r for r in plan.encoder.regions if r.region.rest]
        expected |= {(row, r.code(event).bits << (128 - r.region.length)) for r in holding}
        assert set(plan.encode(event)) == {r.code(event) for r in holding}
    assert found == expected


def test_levels_are_bounded():
    for levels, bits in itertools.product((-1, 11), (16,)):
        with pytest.raises(InvalidInput, match="0 to 10 levels"):
            subspace_plan(correlated(10), np.ones(10, np.int64), bits, levels)
