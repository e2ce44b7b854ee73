"""Evaluation on Spark equals the single-machine kernels, to the event."""

import math

import numpy as np
import pytest

from sievenet.content import Attribute, EventBatch, Schema, parse_filter
from sievenet.errors import InvalidInput
from sievenet.index import Plan
from sievenet.pipeline.evaluate import evaluate
from sievenet.tuning.clusters import rectangles
from sievenet.tuning.judge import evaluate as evaluated
from sievenet.workload import Hotspots, Mixed, grid

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("load", [Hotspots(schema=grid(4, hi=255), selectivity=0.3, seed=2), Mixed(seed=3)])
def test_equal_to_the_single_machine(events_table, load):
    batch, subs = load.events(1000), load.subscriptions(300).filters()
    areas = rectangles(load.schema, subs, 3)
    plans = [
        Plan.regular(load.schema, 14),
        Plan.combined(load.schema, 14, mbrs=areas, rest=True),
        Plan.regular(load.schema, 20, kind="cells"),
    ]
    matrix = load.subscriptions(300).matrix(batch)
    for result, plan in zip(evaluate(events_table(batch), load.schema, subs, plans, 4), plans, strict=True):
        assert result.cost == evaluated(plan, batch, subs, 4)
        assert result.events == 1000
        assert sum(len(plan.cover(w, 4)) for w in subs) <= result.entries <= 4 * len(subs)
        assert np.array_equal(result.wanted, matrix.sum(axis=0))
        assert result.summary()["unmatched"] == int((matrix.sum(axis=0) == 0).sum())


def test_nothing_and_nobody(events_table):
    load = Hotspots(schema=grid(2), seed=1)
    plan = Plan.regular(load.schema, 8)
    (empty,) = evaluate(events_table(load.events(0)), load.schema, load.subscriptions(5).filters(), [plan])
    assert (empty.events, empty.fpr) == (0, 0.0)
    (alone,) = evaluate(events_table(load.events(10)), load.schema, [], [plan])
    assert (alone.events, alone.packets, alone.fpr, len(alone.wanted)) == (10, 10, 0.0, 0)


def test_plans_for_others_are_refused(events_table):
    load = Hotspots(schema=grid(2), seed=1)
    with pytest.raises(InvalidInput, match=r"a plan for grid version 1, got `?a plan for other version 1"):
        evaluate(events_table(load.events(10)), load.schema, [], [Plan.regular(grid(2, name="other"), 8)])
    newer = Schema("grid", load.schema.attributes, version=2)
    with pytest.raises(InvalidInput, match=r"a plan for grid version 1, got `?a plan for grid version 2"):
        evaluate(events_table(load.events(10)), load.schema, [], [Plan.regular(newer, 8)])


def test_open_ends_of_floats_by_brute_force(events_table):
    """`x > 5` does not want 5.0: rates are those that explicit events, filters and covers give."""
    schema = Schema("s", (Attribute("x", "float", lo=0, hi=10), Attribute("n", "int", lo=0, hi=(1 << 62) + 1)))
    near = [p for v in range(11) for p in (v, math.nextafter(v, 99), math.nextafter(v, -99), v + 0.5) if 0 <= p <= 10]
    batch = EventBatch.of(schema, {"x": [float(p) for p in near], "n": [(1 << 62) + i % 2 for i in range(len(near))]})
    texts = [
        "x > 5",
        "x < 5",
        "x >= 5",
        "x in (2, 3)",
        "x in [2, 3)",
        "x in (2, 3]",
        "x != 7",
        f"n > {1 << 62}",
        "x > 0",
    ]
    wanted = [parse_filter(text, schema) for text in texts]
    events = list(batch)
    plan = Plan.regular(schema, 12)
    (result,) = evaluate(events_table(batch), schema, wanted, [plan], 4)
    exact = [sum(w.matches(e) for e in events) for w in wanted]
    assert exact[0] == sum(p > 5 for p in near)
    assert result.wanted.tolist() == exact
    held = [sum(any(dz.covers(plan.encode(e)[0]) for dz in plan.cover_dz(w, 4)) for e in events) for w in wanted]
    assert result.delivered.tolist() == held
    assert result.fpr == (sum(held) - sum(exact)) / sum(held) > 0
