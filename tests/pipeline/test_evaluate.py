"""Evaluation on Spark equals the single-machine kernels, to the event."""

import numpy as np
import pytest

from sievenet.content import Schema
from sievenet.errors import InvalidInput
from sievenet.index import Plan
from sievenet.index.clustering import rectangles
from sievenet.index.evaluate import Evaluation
from sievenet.pipeline.evaluate import evaluate
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
        reference = Evaluation(plan, subs, 4)
        assert (result.packets, int(result.delivered.sum())) == reference.delivered(batch)
        assert result.events == 1000
        assert result.entries == reference.entries
        assert np.array_equal(result.wanted, matrix.sum(axis=0))
        assert result.fpr == reference.counts(batch).fpr
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
