"""Profiles, clusters and plans of Spark equal those of a single machine."""

import numpy as np
import pytest

from sievenet.errors import InvalidInput
from sievenet.index import Plan
from sievenet.network import parse_topology
from sievenet.pipeline.clusters import spark_clustering
from sievenet.pipeline.deployment import assumed
from sievenet.pipeline.interests import Wanted
from sievenet.pipeline.judge import SparkJudge
from sievenet.pipeline.planner import plan_for
from sievenet.pipeline.profile import profile
from sievenet.tuning import search as searching
from sievenet.tuning.arrays import domains, points
from sievenet.tuning.covers import Interests
from sievenet.tuning.judge import LocalJudge
from sievenet.tuning.profile import CELL_BITS, profile_batches
from sievenet.tuning.search import METHODS
from sievenet.tuning.similarity import Similarity
from sievenet.workload import Hotspots, Mixed, grid

pytestmark = pytest.mark.spark

LOAD = Hotspots(schema=grid(5, hi=4095), spread=0.05, selectivity=(0.02, 0.95, 0.03, 0.9, 0.95), popularity=0.5, seed=3)
BATCH = LOAD.events(2000)
SUBS = LOAD.subscriptions(300).filters()
INTERESTS = Interests.of(LOAD.schema, SUBS)
CLIENTS = tuple(f"c{i % 9}" for i in range(len(SUBS)))
SITES = assumed(Wanted(LOAD.schema, tuple(SUBS), CLIENTS, ("",) * len(SUBS)), parse_topology("testbed")).sites()


@pytest.mark.parametrize("load", [LOAD, Mixed(seed=3)], ids=["numbers", "mixed"])
def test_profiles_equal_the_kernels(events_table, load):
    batch, subs = load.events(900), load.subscriptions(100).filters()
    found = profile(events_table(batch), load.schema, subs)
    alone = profile_batches([batch], load.schema, subs)
    places = points(batch)
    assert np.array_equal(found.pairs, Similarity(load.schema, subs).pairs(batch))
    assert np.array_equal(found.pairs, alone.pairs)
    assert np.allclose(found.moments, alone.moments, rtol=1e-12)
    low, high = domains(load.schema)
    assert np.allclose(found.evs, places.var(axis=0) / (high - low) ** 2)
    assert (found.events, found.wanted) == (900, int(load.subscriptions(100).matrix(batch).sum()))
    assert {n: m.tolist() for n, m in found.workload.items()} == {n: m.tolist() for n, m in alone.workload.items()}
    assert found.cells == alone.cells
    assert sum(found.cells.values()) == 900
    for dz, count in list(found.cells.items())[:5]:
        codes = Plan.regular(load.schema, CELL_BITS).encode_batch(batch)
        assert count == sum(codes.dz(i, dz.length) == dz for i in range(len(codes)))
    assert found.report()["attributes"].keys() == load.schema.positions.keys()


def test_judges_agree(spark):
    plans = [Plan.regular(LOAD.schema, 12), Plan.regular(LOAD.schema, 12, ["x0", "x2"])]
    for budget in (None, 4):
        for sites in (None, SITES):
            source = None if sites is None else sites.located(["c1", "elsewhere"] * 1000)
            local = LocalJudge(BATCH, INTERESTS, budget, sites, source).costs(plans)
            assert SparkJudge(spark, LocalJudge(BATCH, INTERESTS, budget, sites, source)).costs(plans) == local
    assert SparkJudge(spark, LocalJudge(BATCH, INTERESTS, 4)).costs([]) == []


@pytest.mark.parametrize("kind", ["kmeans", "bisecting"])
def test_clusters_hold_every_subscription(spark, kind):
    areas = spark_clustering(spark, LOAD.schema, SUBS, kind=kind)(3, ["x0", "x2"])
    assert 2 <= len(areas) <= 3
    plan = Plan.combined(LOAD.schema, 16, mbrs=areas)
    assert all(plan.admits(s) for s in SUBS)
    assert spark_clustering(spark, LOAD.schema, SUBS)(1, ["x0"])[0].keys() == LOAD.schema.positions.keys()
    assert spark_clustering(spark, LOAD.schema, [])(3, ["x0"]) == [{}]


def test_plan_for_a_workload(events_table, monkeypatch):
    # Clusters by Spark ML are what takes the time.
    monkeypatch.setattr(searching, "RECTANGLES", (4,))
    monkeypatch.setattr(searching, "_ALL", 4)
    planned = plan_for(
        events_table(BATCH), LOAD.schema, SUBS, 16, budget=8, methods=("RI", "SI1", "GB"), seconds=60.0, version=7
    )
    assert planned.found.complete
    assert planned.predicted.plan.version == 7
    assert planned.predicted.plan.complete
    assert planned.predicted.events == 2000
    assert planned.predicted.fpr < planned.regular.fpr / 2
    assert planned.better
    record = planned.record()
    assert record["predicted"]["per_subscription"] == planned.predicted.fpr
    assert (
        record["predicted"]["transmissions"] < record["present"]["transmissions"] == record["regular"]["transmissions"]
    )
    assert record["tried"][0]["name"] == "RI"
    assert Plan.from_json(planned.predicted.plan.to_json()) == planned.predicted.plan


def test_nothing_to_plan_for(events_table):
    with pytest.raises(InvalidInput, match="at least one subscription"):
        plan_for(events_table(BATCH), LOAD.schema, [], 16)
    with pytest.raises(InvalidInput, match="at least one event"):
        plan_for(events_table(LOAD.events(0)), LOAD.schema, SUBS, 16)
    with pytest.raises(InvalidInput, match=f"methods of {METHODS[0]}"):
        plan_for(events_table(BATCH), LOAD.schema, SUBS, 16, methods=("magic",))
