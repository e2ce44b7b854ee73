"""Dimension selection, clustering, splitting and evaluation against simple reference implementations."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievenet.content import Attribute, EventBatch, Filter, Schema, Subscription, ValueSet
from sievenet.errors import InvalidInput
from sievenet.index import Plan
from sievenet.tuning import dimensions as dim
from sievenet.tuning.arrays import bounds, domains, each_filter, points
from sievenet.tuning.clusters import cluster, hulls, local_clustering, rectangles
from sievenet.tuning.cost import Cost
from sievenet.tuning.covers import Interests
from sievenet.tuning.deliveries import Wants
from sievenet.tuning.judge import LocalJudge, evaluate
from sievenet.tuning.profile import profile_batches
from sievenet.tuning.search import search
from sievenet.tuning.similarity import Similarity
from sievenet.tuning.splits import edges, histogram, split_points, splits
from tests.index import strategies as own
from tests.seeds import examples
from tests.tuning import oracle


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


@settings(max_examples=examples(80), deadline=None)
@given(st.data())
def test_evaluation_equals_the_simple_count(data):
    schema = data.draw(own.schemas())
    plan = data.draw(own.plans(schema)).with_rest()
    batch = EventBatch.from_events(schema, data.draw(st.lists(own.events(schema), max_size=6)))
    one = own.filters(schema)
    union = st.lists(one, max_size=3).map(lambda f: Subscription(f, schema))
    wanted = data.draw(st.lists(one | union, max_size=5))
    budget = data.draw(st.integers(1, 5))
    cost = evaluate(plan, batch, wanted, budget)
    packets, delivered = oracle.delivered(plan, batch, wanted, budget)
    assert (cost.events, cost.packets, cost.delivered) == (len(batch), packets, delivered.sum())
    assert cost.needed.delivered == oracle.matched(batch, wanted).sum() <= cost.delivered
    # Everybody is a host of its own at one switch: what is delivered is received, and sent once more before.
    assert (cost.received, cost.transmissions) == (cost.delivered, packets + cost.delivered)
    assert 0 <= cost.per_subscription <= 1


def test_costs_of_batches_add_up():
    _, batch, wanted = workload()
    plan = Plan.regular(batch.schema, 20)
    parts = [evaluate(plan, batch.take(part), wanted, 4) for part in (slice(0, 150), slice(150, None))]
    assert parts[0] + parts[1] == evaluate(plan, batch, wanted, 4)
    assert Cost().per_subscription == Cost().per_link == Cost().per_host == 0


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
    both = profile_batches([batch], schema, wanted).pairs
    assert dim.emcs(np.diagonal(both), 60, 30) == pytest.approx(1 - inside.mean(axis=(0, 1)))
    expected = np.einsum("efi,efj->ij", inside.astype(int), inside.astype(int))
    assert both.tolist() == expected.tolist()
    matrix = 1 - expected / (60 * 30)
    values, vectors = np.linalg.eigh(matrix)
    assert dim.cs(both, 60, 30) == pytest.approx(np.abs(vectors[:, np.argmax(values)]))


@settings(max_examples=examples(60), deadline=None)
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
    expected = np.einsum("efi,efj->ij", inside, inside).tolist()
    # Whatever the filters are, and for those that are boxes by their bitmaps too.
    similarity = Similarity(schema, filters)
    assert similarity.pairs(batch).tolist() == expected
    assert similarity.matches(batch).tolist() == inside.sum(axis=(0, 1)).tolist()
    assert profile_batches([batch], schema, wanted).pairs.tolist() == expected


def test_a_set_is_as_selective_as_it_is():
    schema = Schema("s", (Attribute("x", "int", lo=0, hi=999), Attribute("y", "int", lo=0, hi=9)))
    batch = EventBatch.of(schema, {"x": np.arange(1000), "y": np.arange(1000) % 10})
    wanted = [Filter(schema, {"x": ValueSet.of(0, 500, 999)})]
    assert profile_batches([batch], schema, wanted).emcs.tolist() == [0.997, 0.0]


def test_ranking():
    assert dim.ranked(np.array([0.1, 0.5, 0.5, 0.2])) == (1, 2, 3, 0)
    assert dim.ranked(np.array([0.1, 0.5, 0.4]), 2) == (1, 2)


def test_the_dull_dimension_is_ranked_last():
    schema, batch, wanted = workload()
    known = profile_batches([batch], schema, wanted)
    assert [dim.ranked(factors)[-1] for factors in (known.evs, known.emcs, known.cs)] == [3, 3, 3]


def test_greedy_nearly_finds_the_best_subset():
    hits = 0
    for seed in range(5):
        schema, batch, wanted = workload(seed, events=200, filters=20)
        judge = LocalJudge(batch, Interests.of(schema, wanted), 4)
        known = profile_batches([batch], schema, wanted)
        clusters = local_clustering(schema, wanted)
        found = search(judge, known, clusters, 10, methods=("RI", "GS", "BRS"), objective="subscription")
        gs, brs, regular = (found.of(name) for name in ("GS", "BRS", "RI"))
        assert brs.fpr <= gs.fpr <= regular.fpr
        assert sum(t.name == "BRS" for t in found.tried) == 15
        assert sum(t.name == "GS" for t in found.tried) == 1 + 4 + 3 + 2
        assert "a3" not in brs.dimensions
        hits += gs.fpr <= brs.fpr * 1.05
    assert hits >= 4


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


@settings(max_examples=examples(50), deadline=None)
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


def test_hulls():
    lo, hi = np.array([[0.0, 1.0], [2.0, 0.0], [5.0, 5.0]]), np.array([[1.0, 2.0], [3.0, 9.0], [6.0, 6.0]])
    lower, upper = hulls(lo, hi, np.array([0, 0, 1]))
    assert lower.tolist() == [[0, 0], [5, 5]]
    assert upper.tolist() == [[3, 9], [6, 6]]


def test_selective_indexing_lowers_the_false_positive_rate():
    schema, batch, wanted = workload(events=1000, filters=60)
    regular = evaluate(Plan.regular(schema, 12), batch, wanted, 4).per_subscription
    areas = rectangles(schema, wanted, 4)
    assert evaluate(Plan.selective(schema, areas, 12), batch, wanted, 4).per_subscription < regular


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


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_split_points_fit_plans(data):
    schema = data.draw(own.schemas())
    batch = EventBatch.from_events(schema, data.draw(st.lists(own.events(schema), max_size=6)))
    wanted = data.draw(st.lists(own.filters(schema), max_size=4))
    matching = Wants(schema, wanted).per_event(batch)
    plan = Plan.adaptive(schema, split_points(batch, matching, data.draw(st.integers(0, 5))), 24)
    for event in batch:
        for each in wanted:
            if each.matches(event):
                assert any(m.covers(plan.encode(event)[0]) for m in plan.cover(each, 4))


def test_adaptive_indexing_lowers_the_false_positive_rate():
    schema, batch, wanted = workload(events=1000, filters=60)
    names = [f"a{i}" for i in range(3)]
    matching = Wants(schema, wanted).per_event(batch)
    regular = evaluate(Plan.regular(schema, 9, names), batch, wanted, 16).per_subscription
    adaptive = Plan.adaptive(schema, split_points(batch, matching, 3, names), 9, names)
    assert evaluate(adaptive, batch, wanted, 16).per_subscription < regular
    areas = rectangles(schema, wanted, 2)
    inside = [split_points(batch, matching, {"a0": 3, "a1": 2}, names, bounds=a) for a in areas]
    both = Plan.selective(schema, areas, 9, names, splits=inside)
    assert evaluate(both, batch, wanted, 16).per_subscription < regular


def test_edges_of_wide_lines():
    assert len(edges(Attribute("x", "int", lo=0, hi=1 << 40))) == 4096 + 1
    assert edges(Attribute("x", "float", lo=0, hi=1), bins=4).tolist() == [0, 0.25, 0.5, 0.75, 1]
