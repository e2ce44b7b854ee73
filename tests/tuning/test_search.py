"""The search finds what there is to find, and judges by what a network truly carries."""

import functools
import itertools
from unittest import mock

import msgspec
import numpy as np
import pytest

from sievenet.index import Plan
from sievenet.network import parse_topology
from sievenet.pipeline.deployment import assumed
from sievenet.pipeline.interests import Wanted
from sievenet.tuning import search as searching
from sievenet.tuning.bits import greedy_bits
from sievenet.tuning.clusters import local_clustering, rectangles
from sievenet.tuning.cost import OBJECTIVES, Needed
from sievenet.tuning.covers import Interests
from sievenet.tuning.deliveries import Wants
from sievenet.tuning.judge import LocalJudge
from sievenet.tuning.profile import profile_batches
from sievenet.tuning.search import random_sets, search
from sievenet.tuning.splits import split_points
from sievenet.workload import Hotspots, grid

LOAD = Hotspots(schema=grid(5, hi=4095), spread=0.05, selectivity=(0.02, 0.95, 0.03, 0.9, 0.95), popularity=0.5, seed=3)
BATCH = LOAD.events(2000)
SUBS = LOAD.subscriptions(300).filters()
INTERESTS = Interests.of(LOAD.schema, SUBS)
CLIENTS = tuple(f"c{i % 9}" for i in range(len(SUBS)))
SITES = assumed(Wanted(LOAD.schema, tuple(SUBS), CLIENTS, ("",) * len(SUBS)), parse_topology("testbed")).sites()


def test_split_points_are_those_of_the_index():
    known = profile_batches([BATCH.take(slice(0, 1000)), BATCH.take(slice(1000, 2000))], LOAD.schema, SUBS)
    assert known.splits(4) == split_points(BATCH, Wants(LOAD.schema, SUBS).per_event(BATCH), 4)


@pytest.mark.parametrize("once", [False, True])
def test_cost_equals_plain_counting(once):
    """Every packet is walked along the tree by hand, and once more with an exact filter."""
    deployment = assumed(Wanted(LOAD.schema, tuple(SUBS), CLIENTS, ("",) * len(SUBS)), parse_topology("testbed"))
    topology, (tree,) = deployment.topology, deployment.trees
    batch = BATCH.take(slice(0, 60))
    plan = msgspec.structs.replace(
        Plan.combined(LOAD.schema, 14, mbrs=rectangles(LOAD.schema, SUBS, 3), rest=True), once=once
    )
    publishers = ["c1" if i % 2 else "elsewhere" for i in range(60)]
    judge = LocalJudge(batch, INTERESTS, 4, SITES, SITES.located(publishers))
    (found,) = judge.costs([plan])
    covers = [plan.cover_dz(w, 4) for w in SUBS]

    def crossed(publisher, clients):
        start = topology.attachment(deployment.hosts.get(publisher, topology.hosts[0])).switch
        links = {(publisher, start)}
        for client in clients - {publisher}:
            end = topology.attachment(deployment.hosts[client]).switch
            links |= {*itertools.pairwise(tree.path(start, end)), (end, client)}
        return len(links), len(clients - {publisher})

    expected, needed = np.zeros(3, int), np.zeros(3, int)
    for event, publisher in zip(batch, publishers, strict=True):
        wanting = [i for i, w in enumerate(SUBS) if w.matches(event)]
        needed += (*crossed(publisher, {CLIENTS[i] for i in wanting}), len(wanting))
        for code in plan.encode(event):
            getting = [i for i, cover in enumerate(covers) if any(dz.covers(code) for dz in cover)]
            expected += (*crossed(publisher, {CLIENTS[i] for i in getting}), len(getting))
    assert [found.transmissions, found.received, found.delivered] == expected.tolist()
    assert found.needed == Needed(*needed.tolist())
    assert found.events == 60
    assert found.packets == len(plan.encode_batch(batch))
    assert found.per_link == (expected[0] - needed[0]) / expected[0]
    assert 0 <= found.per_host <= 1


def test_what_carries_more_than_the_present_plan_is_not_recommended():
    some, rows = BATCH.take(slice(0, 500)), range(100)
    subs, interests, sites = SUBS[:100], INTERESTS.take(rows), SITES.take(rows)
    given = (profile_batches([some], LOAD.schema, subs), local_clustering(LOAD.schema, subs), 16)
    methods = ("RI", "SI", "SI1", "ASI")
    for objective in OBJECTIVES:
        judge = LocalJudge(some, interests, 8, sites)
        regular = Plan.regular(LOAD.schema, 16)
        found = search(judge, *given, methods=methods, objective=objective, present=regular, seconds=2.0)
        now = next(t for t in found.tried if t.name == "present")
        assert found.best.cost.judged(objective) <= now.cost.judged(objective)
        assert found.best.cost.judged(objective) == min(t.cost.judged(objective) for t in found.tried)
        if objective == "links":
            assert found.best.cost.transmissions < now.cost.transmissions
        # The best is kept once it is in use.
        again = search(judge, *given, methods=("RI",), objective=objective, present=found.best.plan)
        assert again.best.name == "present"


def searched(**settings):
    known = profile_batches([BATCH], LOAD.schema, SUBS)
    judge = LocalJudge(BATCH, INTERESTS, settings.pop("budget", None))
    settings = {"objective": "subscription", **settings}
    return search(judge, known, local_clustering(LOAD.schema, SUBS), 16, **settings)


@functools.cache
def everything():
    """All methods, with all the time that they take, on few numbers of regions."""
    with mock.patch.multiple(searching, RECTANGLES=(16, 4), LEVELS=(4,)):
        return searched(seconds=600.0)


def test_the_search_finds_the_selective_dimensions():
    found = everything()
    regular, greedy, brute = found.of("RI"), found.of("GS"), found.of("BRS")
    assert found.complete
    assert greedy.dimensions == ("x0", "x2") == brute.dimensions
    assert brute.fpr <= greedy.fpr < regular.fpr / 3
    assert found.best.fpr <= min(t.fpr for t in found.tried)
    assert found.best.fpr < greedy.fpr
    assert {t.name for t in found.tried} >= {
        "RI",
        "EVS",
        "EMCS",
        "CS",
        "GS",
        "BRS",
        "GS+SI",
        "GS+SI1",
        "GS+ASI",
        "GS+QI",
    }
    assert any(t.name.startswith("GB") for t in found.tried)
    assert any(t.name.endswith(("+SI+QI", "+SI1+QI")) for t in found.tried)
    assert found.best.name in found.why
    assert f"{len(found.tried)} plans tried on 2000 events and 300 subscriptions" in found.why
    # Every plan can be applied: nothing that anybody might want falls outside.
    assert all(t.plan.complete for t in found.tried)


def test_without_a_rest_and_with_a_budget():
    found = searched(rest=False, methods=("RI", "GS", "SI"), budget=8)
    assert not all(t.plan.complete for t in found.tried)
    assert {t.name for t in found.tried} == {"RI", "GS", "GS+SI"}


def test_time_ends_the_search():
    ticks = iter(range(10_000))
    found = searched(seconds=5.0, clock=lambda: float(next(ticks)))
    assert not found.complete
    assert found.best in found.tried
    assert len(found.tried) < len(everything().tried)


def test_what_the_first_plan_takes_is_no_part_of_the_search():
    """On a new machine code is compiled for it; a search of a few seconds must not end with that."""
    now = [0.0]

    class Cold(LocalJudge):
        def costs(self, plans):
            now[0] += 0.01 if now[0] else 1000.0
            return super().costs(plans)

    judge = Cold(BATCH, INTERESTS, 8)
    known = profile_batches([BATCH], LOAD.schema, SUBS)
    found = search(judge, known, local_clustering(LOAD.schema, SUBS), 12, seconds=0.05, clock=lambda: now[0])
    assert len(found.tried) > 3
    assert (found.tried[0].name, found.tried[0].at) == ("RI", 0.0)
    assert found.seconds < 1.0


def test_greedy_bits_do_not_lose_events():
    plan = Plan.combined(LOAD.schema, 16, mbrs=local_clustering(LOAD.schema, SUBS)(4, ["x0"])).with_rest()
    better = greedy_bits(plan, BATCH, INTERESTS)
    before, after = LocalJudge(BATCH, INTERESTS, None).rates([plan, better])
    assert after < before
    assert better.complete
    assert max(r.length for r in better.regions) <= 16
    assert greedy_bits(plan, BATCH, INTERESTS) == better


def test_random_sets_grow():
    sets = random_sets(["a", "b", "c"], seed=1)
    assert [len(s) for s in sets] == [1, 2, 3]
    assert all(set(a) < set(b) for a, b in itertools.pairwise(sets))
