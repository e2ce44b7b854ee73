"""Scenes of the benchmark of merging in which something is counted: each by itself, so that they run side by side.

What a scene counts does not depend on the machine, nor on what runs beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from typing import Final, NamedTuple

import numpy as np

from benchmarks._tcam_bound import Bound, bound
from benchmarks._tcam_network import Carried, Locally, Network, Table
from sievenet.control.aggregation import Sample
from sievenet.index import Plan
from sievenet.network import Random, Topology, Tree
from sievenet.workload import Hotspots, Uniform, grid

__all__ = [
    "BITS",
    "BUDGET",
    "CAPACITY",
    "PUBLISHERS",
    "SCHEMA",
    "Compared",
    "Scene",
    "compared",
    "half",
    "least_at_root",
    "loads",
    "locally",
    "merged",
    "network_of",
    "shapes",
]

#: Bits of the plan, most dz per subscription, publishers.
BITS, BUDGET, PUBLISHERS = 50, 4, 50
SCHEMA: Final = grid(5, hi=1023)
#: Entries that a switch holds, if not fewer.
CAPACITY: Final = 600
Wanted = Sequence[tuple[int, list[int]]]


class Scene(NamedTuple):
    """What is looked at: who wants what where, how much is published, and how much has to go."""

    load: str
    shape: str
    subscriptions: int
    events: int
    #: The share of all flows that has to go; without, as much as does not fit.
    share: float | None = None
    #: Whether all ways of merging are compared, or LA-B and FA-PB alone.
    all_ways: bool = True
    quick: bool = False


class Compared(NamedTuple):
    """What each way of merging carries."""

    scene: Scene
    capacity: int
    merged: float
    la_b: Carried
    la_c: Carried | None
    fa_lb: Carried | None
    fa_pb: Carried

    @property
    def removed(self) -> float:
        """What FA-PB removes of that which LA-B adds, in per cent."""
        return 100 * (1 - self.fa_pb.unneeded / self.la_b.unneeded) if self.la_b.unneeded else float("nan")


def loads(seed: int = 1) -> dict[str, Uniform | Hotspots]:
    """Uniform and Zipf, five attributes in [0, 1023]."""
    return {
        "uniform": Uniform(schema=SCHEMA, selectivity=0.05, seed=seed),
        "zipf": Hotspots(schema=SCHEMA, selectivity=0.02, seed=seed),
    }


def shapes(quick: bool) -> dict[str, Topology]:
    """A random network of 300 switches and 4,402 hosts, and a tree of 259 and 4,320."""
    return {
        "random": Random.build(switches=6 if quick else 300, degree=3.0, hosts=84 if quick else 4_402, seed=1),
        "tree": Tree.build(depth=3, fanout=2, hosts=6) if quick else Tree.build(depth=4, fanout=6, hosts=20),
    }


def network_of(topology: Topology, seed: int = 1) -> Network:
    """Some hosts publish everything, all others subscribe."""
    return Network(topology, Plan.regular(SCHEMA, BITS), BUDGET, min(PUBLISHERS, len(topology.hosts) // 2), seed)


def half(tables: Mapping[str, Sized], share: float = 0.5) -> int:
    """The capacity at which so much of all entries has to go."""
    sizes = np.array([len(table) for table in tables.values()])
    low, high = 1, int(sizes.max())
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if np.minimum(sizes, middle).sum() < (1 - share) * sizes.sum() else (low, middle)
    return low


def merged(tables: Mapping[str, Sized], limit: int) -> float:
    """The share of all entries that has to go."""
    return 1 - sum(min(len(table), limit) for table in tables.values()) / max(1, sum(map(len, tables.values())))


def locally(network: Network, wanted: Wanted, limit: int, least: bool) -> Mapping[str, Table]:
    """Tables merged at once, by LA-C (least) or LA-B."""
    local = Locally(network, limit, least=least)
    local.add(wanted, 100)
    return local.tables()


class _Set(NamedTuple):
    """A scene, ready."""

    network: Network
    wanted: Wanted
    tables: dict[str, dict[int, frozenset[int]]]
    sample: Sample
    limit: int


def _ready(scene: Scene) -> _Set:
    load, network = loads()[scene.load], network_of(shapes(scene.quick)[scene.shape])
    wanted = network.keys_of(load.subscriptions(scene.subscriptions).filters())
    tables, _ = network.build(wanted)
    share = 0.5 if scene.share is None and scene.quick else scene.share
    limit = CAPACITY if share is None else min(CAPACITY, half(tables, share))
    return _Set(network, wanted, tables, network.sample(load.events(scene.events)), limit)


def compared(scene: Scene) -> Compared:
    """What each way of merging adds."""
    network, wanted, tables, sample, limit = _ready(scene)

    def carried(deployed: Mapping[str, Table]) -> Carried:
        return network.carried(sample, deployed, tables)

    la_c = fa_lb = None
    if scene.all_ways:
        la_c = carried(locally(network, wanted, limit, least=True))
        fa_lb = carried(network.fitted(tables, limit, None)[0])
    la_b = carried(locally(network, wanted, limit, least=False))
    fa_pb = carried(network.fitted(tables, limit, sample)[0])
    return Compared(scene, limit, merged(tables, limit), la_b, la_c, fa_lb, fa_pb)


def least_at_root(scene: Scene) -> Bound:
    """What the switch with most entries sends in vain at least, whatever its table, and if no other sends any."""
    network, _, tables, sample, limit = _ready(scene)
    switch = max(tables, key=lambda each: len(tables[each]))
    which, came = network.arrived(sample, tables, switch)
    return bound(tables[switch], sample.codes[which], came, limit)
