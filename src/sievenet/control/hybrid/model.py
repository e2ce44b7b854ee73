"""The model: what diverting a subspace at a switch saves on links, and what it costs in latency.

Each publisher and *cell* (a small subspace) has a tree of its own, from the publisher's switch to the switches of those
who get its events.  Each place in such a tree is a *row*:

    group 0:  p ─▶ s1 ──6──▶ s2 ──6──▶ s3            numbers on links: false positives per report
                    │         └──2──▶ host           rows: s1 (root), s2, s3, s4
                    └───4──▶ s4

    benefit of a row   false positives on all links below it      s2: 6 + those of s3's hosts + 2
    penalty of a row   deliveries of wanted events below it, which from then on go through a matcher

What is diverted at a row takes benefit and penalty from all rows below it, and its share from those above.  Rows of a
switch and a *cluster* of cells are diverted together.  All of this is sums over arrays, one depth after the other.

False positives on a link are worked out from what subscribers report (`Observation`), backwards from subscriber to
publisher.  Cells do not overlap, so that those of different cells add up.  Within one cell the subscriber that gets
most stands for all behind a link: what others get in vain it gets as well, or wants.  So do broader subscriptions in
PLEROMA; a cell that two subscriptions share in part is what finer cells are for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Model", "Observation"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Observation(NamedTuple):
    """What one subscriber got of one publisher in one cell."""

    publisher: str
    #: The publisher's switch and the subscriber's.
    origin: str
    cell: int
    switch: str
    wanted: float
    unwanted: float


class Model:
    """Rows in the order of their depth; parents come before children."""

    def __init__(
        self,
        switches: Sequence[str],
        node: Ints,
        parent: Ints,
        depth: Ints,
        cell: Ints,
        link: Floats,
        hosts: Floats,
        wanted: Floats,
    ) -> None:
        order = np.argsort(depth, kind="stable")
        where = np.empty_like(order)
        where[order] = np.arange(len(order))
        self.switches = tuple(switches)
        self.node = node[order]
        #: The row above; -1 for roots.
        self.parent = np.where(parent[order] >= 0, where[parent[order]], -1)
        self.depth = depth[order]
        self.cell = cell[order]
        #: False positives on the link from the row above, and on links to hosts.
        self.link, self.hosts = link[order], hosts[order]
        #: Wanted events delivered to hosts of the row's switch.
        self.wanted = wanted[order]
        bounds = np.searchsorted(self.depth, np.arange(int(self.depth[-1]) + 2 if len(order) else 1))
        self._levels = [slice(a, b) for a, b in pairwise(bounds.tolist())]

    def __len__(self) -> int:
        return len(self.node)

    def collapsed(self, cluster: Ints) -> Model:
        """The same with one cell for each cluster: what is diverted together is counted together."""
        origin = self.node.copy()
        for level in self._levels[1:]:
            origin[level] = origin[self.parent[level]]
        width = len(self.switches)
        group = (origin * (int(cluster.max(initial=0)) + 1) + cluster) * width
        keys, first, which = np.unique(group + self.node, return_index=True, return_inverse=True)
        above = np.where(self.parent >= 0, group + self.node[self.parent], -1)[first]
        parent = np.where(above >= 0, np.searchsorted(keys, above), -1)
        link, hosts, wanted = (
            np.bincount(which, each, len(keys)).astype(np.float64) for each in (self.link, self.hosts, self.wanted)
        )
        return Model(self.switches, self.node[first], parent, self.depth[first], cluster[first], link, hosts, wanted)

    @property
    def deliveries(self) -> float:
        """Wanted events in all."""
        return float(self.wanted.sum())

    @property
    def removable(self) -> float:
        """False positives on all links but those from publishers to their switches."""
        return float(self.link.sum() + self.hosts.sum())

    def cut(self, selected: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Which rows are diverted, or lie below one that is."""
        below = selected.copy()
        for level in self._levels[1:]:
            below[level] |= below[self.parent[level]]
        return below

    def sums(self, selected: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """Benefit and penalty that each row has left, when these are diverted."""
        from sievenet.control.hybrid.kernels import sums  # brings numba

        return sums(self.parent, self.link, self.hosts, self.wanted, selected)

    def saved(self, selected: npt.NDArray[np.bool_]) -> tuple[float, float]:
        """False positives that diverting these removes, and wanted events that go through matchers."""
        below = self.cut(selected)
        gone = np.where(self.parent >= 0, below[self.parent], False)
        return float(self.link[gone].sum() + self.hosts[below].sum()), float(self.wanted[below].sum())

    def candidates(self, where: npt.NDArray[np.bool_] | None = None) -> npt.NDArray[np.bool_]:
        """The switches that can be worth choosing: where ways begin, meet, or have just parted.

        At any other one the same events could have been diverted one switch earlier, for the same penalty.  That needs
        a matcher there: with matchers at some switches only (``where``), these are the candidates.
        """
        if where is not None and not where.all():
            return where
        count = len(self.switches)
        roots, above = self.parent < 0, np.where(self.parent >= 0, self.node[self.parent], -1)
        links = np.unique(self.node * (count + 1) + above + 1)
        node, up = links // (count + 1), links % (count + 1) - 1
        found: npt.NDArray[np.bool_] = np.bincount(node, minlength=count) >= 2
        exits = np.bincount(up[up >= 0], minlength=count)
        exits[np.unique(self.node[self.hosts + self.wanted > 0])] += 1
        found[self.node[roots | (exits[np.maximum(above, 0)] >= 2)]] = True
        return found

    # -- from what subscribers report --------------------------------------------------------

    @classmethod
    def of(cls, observations: Sequence[Observation], path: Callable[[str, str], Sequence[str]]) -> Model:
        """The model that reports lead to; ``path`` names the switches from one to another, both included.

        For each switch that publishes, all cells together: a matrix of trees by places, from the leaves to the root.
        """
        if not observations:
            none, nothing = np.zeros(0, np.int64), np.zeros(0)
            return cls((), none, none, none, none, nothing, nothing, nothing)
        publisher, origin, cells, switch, wanted, unwanted = (list(map(itemgetter(i), observations)) for i in range(6))
        number: dict[str, int] = {name: i for i, name in enumerate(sorted({*switch, *origin}))}
        by, begin, at = _numbers(publisher), _numbers(origin, number), _numbers(switch, number)
        cell = np.array(cells, np.int64)
        counts = np.array((wanted, unwanted), np.float64).T
        _, tree = np.unique(by * (int(cell.max()) + 1) + cell, return_inverse=True)
        order = np.argsort(begin, kind="stable")
        bounds = np.flatnonzero(np.diff(begin[order], prepend=-1, append=-1))
        names = list(number)
        parts: list[tuple[npt.NDArray[Any], ...]] = []
        rows = 0
        for a, b in pairwise(bounds.tolist()):
            some = order[a:b]
            root = names[begin[some[0]]]
            above = _above(root, [names[i] for i in np.unique(at[some]).tolist()], path, number)
            parts.append(_rows(above, tree[some], at[some], counts[some], cell[some], rows))
            rows += len(parts[-1][0])
        columns = [np.concatenate(each) for each in zip(*parts, strict=True)]
        node, parent, depth, cell_of = (each.astype(np.int64) for each in columns[:4])
        return cls(list(number), node, parent, depth, cell_of, *columns[4:])


def _above(
    origin: str, switches: Iterable[str], path: Callable[[str, str], Sequence[str]], number: dict[str, int]
) -> dict[int, tuple[int, int]]:
    """Of each switch on a way from the origin: the one above it and its depth, the nearest first."""
    found: dict[str, tuple[str, int]] = {origin: ("", 0)}
    for switch in switches:
        way = path(origin, switch)
        for depth in range(len(way) - 1, 0, -1):
            if way[depth] in found:
                break  # and so are all above it
            found[way[depth]] = (way[depth - 1], depth)
    for name in found:
        number.setdefault(name, len(number))
    near = sorted(found.items(), key=lambda item: item[1][1])
    return {number[name]: (number.get(above, -1), depth) for name, (above, depth) in near}


def _numbers(names: Sequence[str], number: dict[str, int] | None = None) -> Ints:
    """The number of each name; of its first coming, if there are none yet."""
    known = {name: i for i, name in enumerate(dict.fromkeys(names))} if number is None else number
    return np.fromiter(map(known.__getitem__, names), np.int64, len(names))


def _rows(
    above: dict[int, tuple[int, int]],
    tree: Ints,
    at: Ints,
    counts: Floats,
    cells: Ints,
    first: int,
) -> tuple[npt.NDArray[Any], ...]:
    """The rows of all trees from one switch: node, parent, depth, cell, link, hosts, wanted."""
    places = {node: i for i, node in enumerate(above)}
    place = np.full(max(int(at.max()), max(places)) + 1, -1)
    place[list(places)] = list(places.values())
    reached = place[at] >= 0  # where no way leads nothing is delivered
    tree, place, counts, cells = tree[reached], place[at[reached]], counts[reached], cells[reached]
    _, first_of, group = np.unique(tree, return_index=True, return_inverse=True)
    groups = cells[first_of]
    shape = len(groups), len(above)
    flat = group * shape[1] + place
    size = shape[0] * shape[1]
    wanted = np.bincount(flat, counts[:, 0], size).reshape(shape)
    hosts = np.bincount(flat, counts[:, 1], size).reshape(shape)
    # The one behind each link that gets most, and what of it is in vain: sorted, the last one written stays.
    most, vain = np.full(size, -1.0), np.zeros(size)
    order = np.argsort(counts.sum(axis=1), kind="stable")
    most[flat[order]], vain[flat[order]] = counts[order].sum(axis=1), counts[order, 1]
    most, vain = most.reshape(shape), vain.reshape(shape)
    for node, (up, _) in reversed(above.items()):
        if up >= 0:
            i, j = places[node], places[up]
            more = most[:, i] > most[:, j]
            most[more, j], vain[more, j] = most[more, i], vain[more, i]
    there, where = np.nonzero(most >= 0)
    index = np.full(shape, -1)
    index[there, where] = np.arange(len(there)) + first
    upper = np.array([places.get(each, -1) for each, _ in above.values()])
    root = upper[where] < 0
    return (
        np.array(list(above))[where],
        np.where(root, -1, index[there, upper[where]]),
        np.array([depth for _, depth in above.values()])[where],
        groups[there],
        np.where(root, 0.0, vain[there, where]),
        hosts[there, where],
        wanted[there, where],
    )
