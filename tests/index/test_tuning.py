"""Dimension selection, clustering, splitting and evaluation against simple reference implementations."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievenet.content import Attribute, EventBatch, Filter, Schema, Subscription, ValueSet
from sievenet.errors import InvalidInput
from sievenet.index import Dz, DzSet, Plan
from sievenet.index import dimensions as dim
from sievenet.index.arrays import bounds, domains, each_filter, points
from sievenet.index.clustering import choose, cluster, hulls, rectangles
from sievenet.index.evaluate import Counts, Evaluation, Matching, evaluate
from sievenet.index.splitting import edges, histogram, split_points, splits
from sievenet.pipeline.profile import profile_batches
from tests.index import strategies as own


def workload(seed=1, axes=4, events=400, filters=40, high=255):
    """Events and boxes around two hotspots; the last attribute hardly varies."""
    rng = np.random.default_rng(seed)
    schema = Schema("w", tuple(Attribute(f"a{i}", "int", lo=0, hi=high) for i in range(axes)))
    centres = rng.integers(0, high, (2, axes))

    def draw(count):
        near = centres[rng.integers(0, 2, count)] + rng.normal(0, high / 12, (count, axes))
        near[:, -1] = high // 2 + rng.integers(0, 2, count)
        return np.clip(np.rint(near), 0, high).astype(np.int64)

    values = draw(events)
    batch = EventBatch.of(schema, {f"a{i}": values[:, i] for i in range(axes)})
    wanted = []
    for middle in draw(filters).tolist():
        half = rng.integers(2, high // 8, axes).tolist()
        wanted.append(
            Filter(schema, {f"a{i}": ValueSet.interval(middle[i] - half[i], middle[i] + half[i]) for i in range(axes)})
        )
    return schema, batch, wanted


def reference(plan, batch, wanted, budget, kind=None):
    """Delivered and wanted, event by event."""
    covers = [plan.cover(w, budget, kind=kind) for w in wanted]
    delivered = 0
    for event in batch:
        for code in plan.encode(event):
            number = code.bits << (plan.bits - code.length)
            for found in covers:
                if isinstance(found, DzSet):
                    delivered += any(m.covers(Dz(number, plan.bits)) for m in found)
                else:
                    delivered += any(number in m for m in found)
    return delivered, sum(w.matches(e) for w in wanted for e in batch)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_evaluation_equals_the_simple_count(data):
    schema = data.draw(own.schemas())
    plan = data.draw(own.plans(schema)).with_rest()
    batch = EventBatch.from_events(schema, data.draw(st.lists(own.events(schema), max_size=6)))
    one = own.filters(schema)
    union = st.lists(one, max_size=3).map(lambda f: Subscription(f, schema))
    wanted = data.draw(st.lists(one | union, max_size=5))
    budget = data.draw(st.integers(1, 5))
    counts = evaluate(plan, batch, wanted, budget)
    delivered, matched = reference(plan, batch, wanted, budget)
    assert (counts.delivered, counts.wanted) == (delivered, matched)
    assert counts.events == len(batch)
    assert counts.codes == sum(len(plan.encode(e)) for e in batch)
    assert counts.wanted <= counts.delivered
    assert 0 <= counts.fpr <= 1


def test_counts_of_batches_add_up():
    _, batch, wanted = workload()
    plan = Plan.regular(batch.schema, 20)
    ready = Evaluation(plan, wanted, 4)
    whole = ready.counts(batch)
    parts = ready.counts(batch.take(slice(0, 150))) + ready.counts(batch.take(slice(150, None)))
    assert parts == whole
    assert (whole.delivered, whole.wanted) == reference(plan, batch, wanted, 4)
    assert Counts().fpr == 0


def test_many_filters_fall_into_groups(monkeypatch):
    monkeypatch.setattr("sievenet.index.evaluate.GROUP", 7)
    _, batch, wanted = workload()
    unions = [Subscription(wanted[i : i + 3]) for i in range(0, 30, 3)] + [Subscription(wanted[:12])]
    expected = [sum(u.matches(e) for u in unions) for e in batch]
    assert Matching(batch.schema, unions).per_event(batch).tolist() == expected
    plan = Plan.regular(batch.schema, 20, kind="cells")
    counts = evaluate(plan, batch, unions, 3)
    assert (counts.delivered, counts.wanted) == reference(plan, batch, unions, 3)


def test_a_filter_without_constraints_matches_everything():
    schema, batch, _ = workload()
    assert Matching(schema, [Filter(schema), Filter.nothing(schema)]).per_event(batch).tolist() == [1] * len(batch)


def test_the_ends_of_the_largest_domain_are_matched():
    schema = Schema("h", (Attribute("x", "int", lo=-own.HUGE, hi=own.HUGE),))
    wanted = [Filter(schema, {"x": ValueSet.of(v)}) for v in (-own.HUGE, own.HUGE)]
    wanted.append(Filter(schema, {"x": ValueSet.interval(0, own.HUGE)}))
    batch = EventBatch.of(schema, {"x": [-own.HUGE, -1, 0, own.HUGE]})
    assert Matching(schema, wanted).per_event(batch).tolist() == [1, 0, 1, 2]


# -- dimensions -----------------------------------------------------------------------------


def test_evs_is_the_variance_relative_to_the_domain():
    schema, batch, _ = workload()
    low, high = domains(schema)
    places = points(batch)
    sums = dim.moments(places[:100], low, high) + dim.moments(places[100:], low, high)
    assert dim.evs(sums) == pytest.approx(((places - low) / (high - low)).var(axis=0))
    scaled = Schema("w", (Attribute("a", "int", lo=0, hi=10), Attribute("b", "int", lo=0, hi=1000)))
    same = points(EventBatch.of(scaled, {"a": [0, 10], "b": [0, 1000]}))
    first, second = dim.evs(dim.moments(same, *domains(scaled)))
    assert first == second


def test_emcs_and_cs_equal_the_definitions():
    schema, batch, wanted = workload(events=60, filters=30)
    places, (lo, hi) = points(batch), bounds(schema, wanted)
    inside = (places[:, None, :] >= lo[None]) & (places[:, None, :] <= hi[None])  # event, filter, axis
    counts = dim.matches(batch, wanted)
    assert counts.tolist() == inside.sum(axis=(0, 1)).tolist()
    assert dim.emcs(counts, 60, 30) == pytest.approx(1 - inside.mean(axis=(0, 1)))
    both = dim.pairs(batch, wanted)
    expected = np.einsum("efi,efj->ij", inside.astype(int), inside.astype(int))
    assert both.tolist() == expected.tolist()
    matrix = 1 - expected / (60 * 30)
    values, vectors = np.linalg.eigh(matrix)
    assert dim.cs(both, 60, 30) == pytest.approx(np.abs(vectors[:, np.argmax(values)]))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_emcs_and_cs_count_sets_and_unions_exactly(data):
    schema = data.draw(own.schemas())
    batch = EventBatch.from_events(schema, data.draw(st.lists(own.events(schema), min_size=1, max_size=6)))
    one = own.filters(schema)
    wanted = data.draw(st.lists(one | st.lists(one, max_size=3).map(lambda f: Subscription(f, schema)), max_size=5))
    filters = each_filter(wanted)
    inside = np.zeros((len(batch), len(filters), len(schema.attributes)), np.int64)
    for e, event in enumerate(batch):
        for f, each in enumerate(filters):
            for d, name in enumerate(schema.positions):
                alone = Filter(schema, {name: each.constraints[name]} if name in each.constraints else {})
                inside[e, f, d] = alone.matches(event)
    assert dim.matches(batch, wanted).tolist() == inside.sum(axis=(0, 1)).tolist()
    assert dim.pairs(batch, wanted).tolist() == np.einsum("efi,efj->ij", inside, inside).tolist()
    found = profile_batches([batch], schema, wanted)
    assert found.pairs.tolist() == dim.pairs(batch, wanted).tolist()


def test_a_set_is_as_selective_as_it_is():
    schema = Schema("s", (Attribute("x", "int", lo=0, hi=999), Attribute("y", "int", lo=0, hi=9)))
    batch = EventBatch.of(schema, {"x": np.arange(1000), "y": np.arange(1000) % 10})
    wanted = [Filter(schema, {"x": ValueSet.of(0, 500, 999)})]
    assert dim.emcs(dim.matches(batch, wanted), 1000, 1).tolist() == [0.997, 0.0]


def test_ranking():
    assert dim.ranked(np.array([0.1, 0.5, 0.5, 0.2])) == (1, 2, 3, 0)
    assert dim.ranked(np.array([0.1, 0.5, 0.4]), 2) == (1, 2)


def test_the_dull_dimension_is_ranked_last():
    schema, batch, wanted = workload()
    places = points(batch)
    assert dim.ranked(dim.evs(dim.moments(places, *domains(schema))))[-1] == 3
    assert dim.ranked(dim.emcs(dim.matches(batch, wanted), len(batch), len(wanted)))[-1] == 3
    assert dim.ranked(dim.cs(dim.pairs(batch, wanted), len(batch), len(wanted)))[-1] == 3


def test_greedy_nearly_finds_the_best_subset():
    hits = 0
    for seed in range(5):
        _, batch, wanted = workload(seed, events=200, filters=20)
        fpr = dim.fpr_of(batch, wanted, bits=10, budget=4)
        gs, brs = dim.greedy(range(4), fpr), dim.best_subset(range(4), fpr)
        assert brs.best.fpr <= gs.best.fpr <= fpr((0, 1, 2, 3))
        assert len(brs.tried) == 15
        assert len(gs.tried) == 1 + 4 + 3 + 2
        assert 3 not in brs.best.dimensions
        hits += gs.best.fpr <= brs.best.fpr * 1.05
    assert hits >= 4


def test_fpr_of_a_subset_is_that_of_its_plan():
    schema, batch, wanted = workload(events=100, filters=20)
    fpr = dim.fpr_of(batch, wanted, bits=12, budget=3, kind="cells")
    for dims in itertools.combinations(range(4), 2):
        plan = Plan.regular(schema, 12, [f"a{i}" for i in dims], "cells")
        assert fpr(dims) == pytest.approx(evaluate(plan, batch, wanted, 3).fpr)


def test_refused_selections():
    with pytest.raises(InvalidInput):
        dim.greedy((), lambda _: 0.0)
    with pytest.raises(InvalidInput):
        dim.best_subset((), lambda _: 0.0)
    with pytest.raises(InvalidInput):
        dim.best_subset(range(17), lambda _: 0.0)
    with pytest.raises(InvalidInput):
        dim.best_subset(range(3), lambda _: 0.0, count=4)
    assert len(dim.best_subset(range(4), lambda dims: float(sum(dims)), count=2).tried) == 6


# -- clustering -----------------------------------------------------------------------------


def test_clusters_of_separate_groups():
    rng = np.random.default_rng(3)
    features = np.concatenate([rng.normal(c, 0.01, (30, 2)) for c in (0.1, 0.5, 0.9)])
    labels = cluster(features, 3, seed=1)
    assert all(len(set(labels[i : i + 30].tolist())) == 1 for i in (0, 30, 60))
    assert set(labels.tolist()) == {0, 1, 2}
    assert cluster(features, 3, seed=1).tolist() == labels.tolist()
    assert cluster(np.zeros((5, 2)), 4).tolist() == [0] * 5
    assert cluster(np.zeros((0, 2)), 4).tolist() == []
    with pytest.raises(InvalidInput):
        cluster(features, 0)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_rectangles_hold_their_filters(data):
    schema = data.draw(own.schemas())
    wanted = data.draw(st.lists(own.filters(schema), max_size=8))
    areas = rectangles(schema, wanted, data.draw(st.integers(1, 4)), seed=data.draw(st.integers(0, 9)))
    plan = Plan.selective(schema, areas, 20)
    for each in each_filter(wanted):
        assert plan.admits(each)
        assert any(r.filter(schema).covers(each) for r in plan.regions)


def test_rectangles_of_open_ends():
    schema = Schema("r", (Attribute("x", "float", lo=0, hi=1),))
    wanted = Filter(schema, {"x": ValueSet.interval(0.0, 0.5, open_lo=True, open_hi=True)})
    plan = Plan.selective(schema, rectangles(schema, [wanted], 1), 8)
    assert plan.admits(wanted)


def test_hulls_and_choice():
    lo, hi = np.array([[0.0, 1.0], [2.0, 0.0], [5.0, 5.0]]), np.array([[1.0, 2.0], [3.0, 9.0], [6.0, 6.0]])
    lower, upper = hulls(lo, hi, np.array([0, 0, 1]))
    assert lower.tolist() == [[0, 0], [5, 5]]
    assert upper.tolist() == [[3, 9], [6, 6]]
    found = choose([4, 1, 2, 2], lambda count: abs(count - 2.0))
    assert (found.rectangles, found.fpr, found.tried) == (2, 0.0, {1: 1.0, 2: 0.0, 4: 2.0})
    with pytest.raises(InvalidInput):
        choose([], lambda _: 0.0)


def test_selective_indexing_lowers_the_false_positive_rate():
    schema, batch, wanted = workload(events=1000, filters=60)
    regular = evaluate(Plan.regular(schema, 12), batch, wanted, 4).fpr
    areas = rectangles(schema, wanted, 4)
    assert evaluate(Plan.selective(schema, areas, 12), batch, wanted, 4).fpr < regular


# -- splitting ------------------------------------------------------------------------------


def test_splits_balance_the_workload():
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.integers(0, 16, 900), rng.integers(0, 256, 100)])
    attribute = Attribute("x", "int", lo=0, hi=255)
    borders = edges(attribute)
    mass = histogram(values.astype(float), np.ones(1000, np.int64), borders)
    found = splits(mass, borders, 3, whole=True, spread=0.0)
    assert len(found) == 7
    assert list(found) == sorted(found)
    parts = np.histogram(values, [0, *found, 256])[0]
    assert parts.max() < 2 * 1000 / 8
    halves = histogram(values[:500].astype(float), np.ones(500, np.int64), borders)
    assert splits(halves + (mass - halves), borders, 3, whole=True, spread=0.0) == found
    assert splits(mass, borders, 0, whole=True) == ()
    assert splits(np.zeros(256), borders, 2, whole=True) == (64, 128, 192)
    with pytest.raises(InvalidInput):
        splits(mass, borders, 13, whole=True)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_split_points_fit_plans(data):
    schema = data.draw(own.schemas())
    batch = EventBatch.from_events(schema, data.draw(st.lists(own.events(schema), max_size=6)))
    wanted = data.draw(st.lists(own.filters(schema), max_size=4))
    plan = Plan.adaptive(schema, split_points(batch, wanted, data.draw(st.integers(0, 5))), 24)
    for event in batch:
        for each in wanted:
            if each.matches(event):
                assert any(m.covers(plan.encode(event)[0]) for m in plan.cover(each, 4))


def test_adaptive_indexing_lowers_the_false_positive_rate():
    schema, batch, wanted = workload(events=1000, filters=60)
    names = [f"a{i}" for i in range(3)]
    regular = evaluate(Plan.regular(schema, 9, names), batch, wanted, 16).fpr
    adaptive = Plan.adaptive(schema, split_points(batch, wanted, 3, names), 9, names)
    assert evaluate(adaptive, batch, wanted, 16).fpr < regular
    areas = rectangles(schema, wanted, 2)
    inside = [split_points(batch, wanted, {"a0": 3, "a1": 2}, names, bounds=a) for a in areas]
    both = Plan.selective(schema, areas, 9, names, splits=inside)
    assert evaluate(both, batch, wanted, 16).fpr < regular


def test_edges_of_wide_lines():
    assert len(edges(Attribute("x", "int", lo=0, hi=1 << 40))) == (1 << 14) + 1
    assert edges(Attribute("x", "float", lo=0, hi=1), bins=4).tolist() == [0, 0.25, 0.5, 0.75, 1]
