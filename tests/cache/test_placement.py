"""Placement of caches against brute force: paths laid one by one on the tree, edges merged as the algorithms say."""

import itertools

import numpy as np
import pytest

from sievenet.cache.placement import METRICS, Placement, States, observed_states, random_states
from sievenet.cli.cache import positions
from sievenet.errors import InvalidInput
from sievenet.network import parse_topology
from sievenet.network.tree import SpanningTree
from tests.seeds import seeds


def brute(topology, rates, wants, switch, link_rate):
    """The five counts for a cache at a switch, path by path."""
    tree = SpanningTree.shortest(topology)
    homes = {host: topology.attachment(host).switch for host in topology.hosts}
    publishers = {host: rate for host, rate in zip(topology.hosts, rates, strict=True) if rate}
    subscribers = [host for host, wanted in zip(topology.hosts, wants, strict=True) if wanted]

    def path(a, b):
        nodes = [a] * (a != homes.get(a, switch)) + list(tree.path(homes.get(a, switch), homes.get(b, switch))) + [b]
        return list(itertools.pairwise(nodes))

    to_switch = lambda edges: sum(topology.is_switch(b) for _, b in edges)  # noqa: E731
    plain, with_cache, usage = set(), set(), {}
    for publisher, rate in publishers.items():
        own = {edge for each in subscribers if each != publisher for edge in path(publisher, each)}
        plain |= own
        own |= set(path(publisher, "cache"))
        with_cache |= own
        for a, b in own:
            link = tuple(sorted((a, b)))
            usage[link] = usage.get(link, 0) + rate
    from_cache = {edge for each in subscribers for edge in path("cache", each)}
    total = sum(publishers.values())
    return [
        to_switch(with_cache) - to_switch(plain),
        to_switch(from_cache),
        sum(usage.values()),
        total * sum(len(path("cache", each)) for each in subscribers),
        sum(max(0, each - link_rate) for each in usage.values()),
    ]


@pytest.mark.parametrize("seed", seeds(2, 6))
@pytest.mark.parametrize("shape", ["testbed", "line,switches=4,hosts=2", "fattree,k=4"])
def test_counts_are_those_of_paths(shape, seed):
    topology = parse_topology(shape)
    states = random_states(len(topology.hosts), 3, seed)
    found = Placement(topology, 3000.0).counts(states)
    for state in range(3):
        for at, switch in enumerate(topology.switches):
            rates, wants = states.rates[state], states.subscribes[state]
            assert found[state, at].tolist() == pytest.approx(brute(topology, rates, wants, switch, 3000.0))


def test_scores_are_between_0_and_1_and_the_middle_of_a_line_is_best():
    topology = parse_topology("line,switches=5,hosts=2")
    placement = Placement(topology)
    scores = placement.scores(random_states(len(topology.hosts), 300, 3))
    values = scores.weighted()
    assert ((values >= 0) & (values <= 1)).all()
    ranked = placement.ranked(scores)
    assert ranked[0][0] == "s3"
    assert {ranked[-1][0], ranked[-2][0]} == {"s1", "s5"}
    first, second = placement.hosts([name for name, _ in ranked], 2)
    assert (first, topology.attachment(second).switch) == ("h5", ranked[1][0])
    # Parts add up.
    states = random_states(len(topology.hosts), 100, 5)
    halves = [States(states.rates[part], states.subscribes[part]) for part in (slice(0, 50), slice(50, 100))]
    both = placement.scores(halves[0]) + placement.scores(halves[1])
    assert np.allclose(both.sums, placement.scores(states).sums)


def test_what_was_observed_decides_otherwise():
    topology = parse_topology("line,switches=5,hosts=1")
    clients = [
        {"host": "h1", "published": 500, "subscriptions": 0},
        {"host": "h2", "published": 0, "subscriptions": 3},
    ]
    placement = Placement(topology)
    ranked = placement.ranked(placement.scores(observed_states(topology, clients)))
    assert ranked[0][0] in ("s1", "s2")
    assert ranked[-1][0] == "s5"
    with pytest.raises(InvalidInput):
        observed_states(topology, [{"host": "h9", "published": 1, "subscriptions": 1}])
    with pytest.raises(InvalidInput):
        observed_states(topology, [])


def test_caches_of_up_go_where_known_clients_need_them():
    topology = parse_topology("line,switches=5,hosts=1")
    clients = [{"host": "h4", "published": 1, "subscriptions": 0}, {"host": "h5", "published": 0, "subscriptions": 1}]
    assert positions(topology, 2, False, clients) == ["h1", "h2"]
    assert positions(topology, 1, True) == ["h3"]
    assert positions(topology, 1, True, clients)[0] in ("h4", "h5")
    # Publishers alone say nothing.
    assert positions(topology, 1, True, clients[:1]) == ["h3"]


def test_weights_are_checked():
    topology = parse_topology("testbed")
    scores = Placement(topology).scores(random_states(len(topology.hosts), 5, 1))
    assert scores.weighted([1, 0, 0, 0, 0]).shape == (len(topology.switches),)
    for bad in ([1], [0] * len(METRICS), [-1, 1, 1, 1, 1]):
        with pytest.raises(InvalidInput):
            scores.weighted(bad)
