"""Benefit, penalty and choice, against definitions that look at every event and every subset."""

import random
from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievenet.control.hybrid import Model, Observation, csa, ssa
from sievenet.control.hybrid.knapsack import EXACT, knapsack
from sievenet.control.hybrid.selection import allowed, clusters, evaluated, numbered
from sievenet.network import parse_topology, spanning_trees

TREE = spanning_trees(parse_topology("tree,depth=3,fanout=2"))[0]
SWITCHES = TREE.topology.switches
BITS = 2


def subsets(items):
    items = list(items)
    return chain.from_iterable(combinations(items, n) for n in range(len(items) + 1))


# -- the knapsack -------------------------------------------------------------------------------

items = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=10)


@given(items, st.integers(1, 60))
def test_the_knapsack_is_exact_for_few(pairs, limit):
    values, weights = [v for v, _ in pairs], [w for _, w in pairs]
    found = knapsack(values, weights, limit)
    assert sum(weights[i] for i in found) <= limit
    best = max(sum(values[i] for i in s) for s in subsets(range(len(pairs))) if sum(weights[i] for i in s) <= limit)
    assert sum(values[i] for i in found) == best


@given(st.lists(st.tuples(st.integers(1, 50), st.floats(0.01, 20)), min_size=EXACT + 1, max_size=60), st.floats(1, 99))
def test_with_many_it_is_never_too_heavy_and_at_least_as_good_as_the_best_alone(pairs, limit):
    values, weights = [v for v, _ in pairs], [w for _, w in pairs]
    found = knapsack(values, weights, limit)
    assert sum(weights[i] for i in found) <= limit * (1 + 1e-9)
    assert sum(values[i] for i in found) >= max((v for v, w in pairs if w <= limit * 0.99), default=0)


# -- the model ----------------------------------------------------------------------------------

observations = st.lists(
    st.builds(
        lambda p, o, c, s, w, u: Observation(f"p{p}", SWITCHES[(p + o) % 2], c, s, w, u),
        st.integers(0, 2),
        st.just(0),
        st.integers(0, 3),
        st.sampled_from(SWITCHES),
        st.integers(0, 20),
        st.integers(0, 20),
    ),
    max_size=12,
)


def naive(seen, pairs, cluster):
    """False positives removed and deliveries concerned, from paths alone."""
    links, wanted, hosts = {}, 0, 0
    for at, each in enumerate(seen):
        way = TREE.path(each.origin, each.switch)
        first = next((i for i, s in enumerate(way) if (s, cluster[each.cell]) in pairs), None)
        for i in range(len(way) - 1):
            key = (each.publisher, each.cell, way[i], way[i + 1])
            total = each.wanted + each.unwanted
            most = links.get(key, (-1, 0, False))
            if total > most[0]:
                links[key] = (total, each.unwanted, first is not None and i >= first)
        if first is not None:
            wanted += each.wanted
            hosts += each.unwanted
        assert at >= 0
    return hosts + sum(unwanted for _, unwanted, gone in links.values() if gone), wanted


def merged(seen):
    """Each subscriber once in each cell of each publisher, as reports are."""
    return list({(e.publisher, e.cell, e.switch): e for e in seen}.values())


@given(observations, st.sets(st.tuples(st.sampled_from(SWITCHES), st.integers(0, 1)), max_size=4))
def test_what_a_choice_is_worth_is_what_paths_say(seen, pairs):
    seen = merged(seen)
    model = Model.of(seen, TREE.path)
    cluster = [0, 0, 1, 1]
    found = evaluated(model, np.array([cluster[c] for c in model.cell], np.int64), tuple(pairs))
    assert (found.benefit, found.penalty) == naive(seen, pairs, cluster)
    assert model.deliveries == sum(each.wanted for each in seen)


@settings(deadline=None)
@given(observations, st.floats(0, 1))
def test_both_keep_the_limit_and_csa_is_at_least_as_good(seen, factor):
    seen = merged(seen)
    model = Model.of(seen, TREE.path)
    cluster = np.array([c >> 1 for c in model.cell], np.int64)
    limit = model.deliveries * factor
    whole, parts = ssa(model, limit), csa(model, cluster, 2, limit)
    for choice, numbers in ((whole, np.zeros(len(model), np.int64)), (parts, cluster)):
        assert choice.penalty <= limit + 1e-9
        again = evaluated(model, numbers, choice.pairs)
        assert (again.benefit, again.penalty) == (choice.benefit, choice.penalty)
    assert parts.benefit >= whole.benefit
    # Against every subset of the pairs there are, on few switches.
    names = sorted({(model.switches[n], int(c)) for n, c in zip(model.node, cluster, strict=True)})
    if len(names) <= 8:
        worth = [evaluated(model, cluster, pairs) for pairs in subsets(names)]
        best = max(each.benefit for each in worth if each.penalty <= limit)
        assert whole.benefit <= parts.benefit <= best
        if factor == 1:
            assert parts.benefit == best


def test_on_small_networks_both_come_close_to_the_best_of_all_subsets():
    rng, found = random.Random(1), []
    for _ in range(60):
        made = [
            Observation(
                f"p{p}", SWITCHES[p], rng.randrange(4), rng.choice(SWITCHES), rng.randrange(9), rng.randrange(20)
            )
            for p in (0, 1, 0, 1, 0, 1)
        ]
        model = Model.of(merged(made), TREE.path)
        cluster = np.array([c >> 1 for c in model.cell], np.int64)
        names = sorted({(model.switches[n], int(c)) for n, c in zip(model.node, cluster, strict=True)})
        if len(names) > 10:
            continue
        limit = 0.5 * model.deliveries
        pairs = [evaluated(model, cluster, some) for some in subsets(names)]
        switches = [evaluated(model, 0 * cluster, some) for some in subsets(sorted({(s, 0) for s, _ in names}))]
        best, whole = (max(each.benefit for each in some if each.penalty <= limit) for some in (pairs, switches))
        if whole:
            found.append((csa(model, cluster, 2, limit).benefit / best, ssa(model, limit).benefit / whole))
    assert len(found) > 20
    by_cluster, by_switch = np.mean(found, axis=0)
    assert by_cluster > 0.9
    assert by_switch > 0.8


@given(observations, st.sets(st.tuples(st.sampled_from(SWITCHES), st.integers(0, 1)), max_size=4))
def test_cells_of_a_cluster_collapse_into_one_and_nothing_changes(seen, pairs):
    model = Model.of(merged(seen), TREE.path)
    cluster = np.array([c >> 1 for c in model.cell], np.int64)
    small = model.collapsed(cluster)
    assert len(small) <= len(model)
    assert evaluated(small, small.cell, tuple(pairs)) == evaluated(model, cluster, tuple(pairs))


@given(observations)
def test_without_a_bound_only_what_is_on_publishers_own_links_remains(seen):
    model = Model.of(merged(seen), TREE.path)
    assert ssa(model, model.deliveries).benefit == pytest.approx(model.removable)
    assert ssa(model, 0.0).penalty == 0


@given(observations, st.floats(0, 1))
def test_switches_that_are_pruned_are_never_needed(seen, factor):
    model = Model.of(merged(seen), TREE.path)
    limit = model.deliveries * factor
    if len(model):
        assert ssa(model, limit, model.candidates()).benefit >= ssa(model, limit).benefit


def test_the_example_of_the_source():
    """Figure 4.4: R1 within a limit of 3, then what is left of R6."""
    seen = [Observation("p", "s1", 0, "s4", 1, 10), Observation("p", "s1", 1, "s5", 1, 30)]
    model = Model.of(seen, TREE.path)
    assert ssa(model, 1.0).pairs[0][0] != "s1"
    assert ssa(model, 2.0).pairs == (("s1", 0),)


# -- clusters and bounds ------------------------------------------------------------------------


@given(st.lists(st.integers(0, 15), max_size=30), st.integers(1, 8))
def test_clusters_tile_the_space_and_every_cell_has_one(cells, count):
    array = np.array(cells, np.int64)
    found = clusters(array, np.ones(len(cells)), 4, count)
    assert 1 <= len(found) <= count
    assert sum(dz.volume() for dz in found) == 1.0
    for cell, number in zip(cells, numbered(array, 4, found).tolist(), strict=True):
        assert cell >> (4 - found[number].length) == found[number].bits


def test_how_many_deliveries_a_bound_allows():
    assert allowed(100, None, 1, 5) == 100
    assert allowed(100, 9, 1, 5) == 100
    assert allowed(100, 0, 1, 5) == 0
    assert allowed(100, 0.5, 1, 5) == 0
    assert allowed(100, 2, 1, 5) == 25
    assert allowed(100, 2, 1, 1) == 100
