"""Placement of caches: scores against simulated traffic, and Spark against a single process.

Every switch of a network is scored over random host states, as a place for a cache. Then other states are simulated:
each publisher's events of a second, drawn at random, walk the tree link by link, to the subscribers and the cache, and
from the cache to every subscriber. What each position makes the network carry is compared with its score, position by
position (Spearman's rank correlation).
"""

from __future__ import annotations

import itertools
from statistics import mean

import numpy as np
import numpy.typing as npt

from benchmarks.harness import Bench, Report, best_of
from sievenet.cache.placement import Placement, random_states
from sievenet.network import parse_topology
from sievenet.network.topology import Topology
from sievenet.network.tree import SpanningTree
from sievenet.pipeline.placement import place, place_alone
from sievenet.pipeline.spark import spark_session

#: The thesis's network, and others: two layers more, a ring, a line.
TOPOLOGIES = {
    "testbed": "testbed",
    "fattree": "fattree,k=4",
    "line": "line,switches=9,hosts=2",
    "ring": "ring,switches=8",
}
GOALS = {f"spearman_{name}": ">= 0.8" for name in TOPOLOGIES}
RATE = 100.0


def run(bench: Bench) -> Report:
    report = Report(GOALS)
    states, rows = bench.size(2_000, quick=100), []
    for name in bench.track(list(TOPOLOGIES), "networks"):
        topology = parse_topology(TOPOLOGIES[name])
        placement = Placement(topology, link_rate=10 * RATE)
        scores = place_alone(topology, states, 1, RATE, 10 * RATE)
        ranked = placement.ranked(scores)
        traffic = simulated(topology, bench.size(40, quick=4), seed=99)
        values = dict(ranked)
        order = [values[switch] for switch in topology.switches]
        found = spearman(np.array(order), -np.array([traffic[switch] for switch in topology.switches]))
        report.goal(f"spearman_{name}", found)
        best, middle, worst = ranked[0][0], ranked[len(ranked) // 2][0], ranked[-1][0]
        rows.append(
            [name, *(f"{each} {values[each]:.3f} {traffic[each]:,.0f}/s" for each in (best, middle, worst)), found]
        )
    report.table("switch, score and transmissions", ["network", "best", "median", "worst", "Spearman"], rows)
    _spark(bench, report)
    return report


def simulated(topology: Topology, states: int, seed: int) -> dict[str, float]:
    """Transmissions per second for a cache at each switch, event by event."""
    rng, tree = np.random.default_rng(seed), SpanningTree.shortest(topology)
    homes = {host: topology.attachment(host).switch for host in topology.hosts}
    drawn = random_states(len(topology.hosts), states, seed, RATE)
    found: dict[str, list[int]] = {switch: [] for switch in topology.switches}
    for state in range(states):
        wanting = [host for host, wants in zip(topology.hosts, drawn.subscribes[state], strict=True) if wants]
        events = {
            host: int(rng.poisson(rate)) for host, rate in zip(topology.hosts, drawn.rates[state], strict=True) if rate
        }
        for cache, counts in found.items():
            carried = 0
            for publisher, count in events.items():
                links = {(publisher, homes[publisher]), (cache, "cache")}
                for goal in (*(homes[each] for each in wanting if each != publisher), cache):
                    path = tree.path(homes[publisher], goal)
                    links |= {*itertools.pairwise(path)}
                links |= {(homes[each], each) for each in wanting if each != publisher}
                again = sum(len(tree.path(cache, homes[each])) + 1 for each in wanting)
                carried += count * (len(links) + again)
            counts.append(carried)
    return {switch: mean(counts) for switch, counts in found.items()}


def spearman(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> float:
    """Spearman's rank correlation; equals share their rank."""
    ranks = []
    for values in (a, b):
        rounded = np.round(values, 9)
        ranks.append(np.array([(rounded < each).sum() + ((rounded == each).sum() - 1) / 2 for each in rounded]))
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _spark(bench: Bench, report: Report) -> None:
    topology = parse_topology("fattree,k=6" if not bench.quick else "testbed")
    states = bench.size(10_000, quick=500)
    with spark_session(small=True) as spark:
        spread = best_of(lambda: place(spark, topology, states, 1, RATE, 10 * RATE), repeats=bench.size(3, quick=1))
        alone = best_of(lambda: place_alone(topology, states, 1, RATE, 10 * RATE), repeats=bench.size(3, quick=1))
    report.figure("states", states)
    report.figure("switches", len(topology.switches))
    report.figure("spark_s", spread.best, "s")
    report.figure("alone_s", alone.best, "s")
    report.figure("spark_over_alone", alone.best / spread.best, "times as fast")
