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

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
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
        below = self.cut(selected)
        open_ = np.where(self.parent >= 0, ~below[self.parent], True)
        link = np.where(open_, self.link, 0.0)
        benefit = np.where(below, 0.0, self.hosts)
        penalty = np.where(below, 0.0, self.wanted)
        for upper, level in reversed(list(pairwise(self._levels))):
            above, count = self.parent[level] - upper.start, upper.stop - upper.start
            benefit[upper] += np.bincount(above, benefit[level] + link[level], count)
            penalty[upper] += np.bincount(above, penalty[level], count)
        return np.where(below, 0.0, benefit), np.where(below, 0.0, penalty)

    def saved(self, selected: npt.NDArray[np.bool_]) -> tuple[float, float]:
        """False positives that diverting these removes, and wanted events that go through matchers."""
        below = self.cut(selected)
        gone = np.where(self.parent >= 0, below[self.parent], False)
        return float(self.link[gone].sum() + self.hosts[below].sum()), float(self.wanted[below].sum())

    def candidates(self) -> npt.NDArray[np.bool_]:
        """The switches that can be worth choosing: where ways begin, meet, or have just parted."""
        count = len(self.switches)
        roots, above = self.parent < 0, self._above()
        links = set(zip(self.node.tolist(), above.tolist(), strict=True))
        found: npt.NDArray[np.bool_] = np.bincount([node for node, _ in links], minlength=count) >= 2
        exits = np.bincount([up for _, up in links if up >= 0], minlength=count)
        exits[self.node[self.hosts + self.wanted > 0]] += 1
        found[self.node[roots | (exits[np.maximum(above, 0)] >= 2)]] = True
        return found

    def _above(self) -> Ints:
        """The switch above each row; -1 for a publisher."""
        return np.where(self.parent >= 0, self.node[self.parent], -1)

    # -- from what subscribers report --------------------------------------------------------

    @classmethod
    def of(cls, observations: Iterable[Observation], path: Callable[[str, str], Sequence[str]]) -> Model:
        """The model that reports lead to; ``path`` names the switches from one to another, both included."""
        trees: dict[tuple[str, int], dict[str, list[Any]]] = {}
        paths: dict[tuple[str, str], Sequence[str]] = {}
        for each in observations:
            way = paths.get((each.origin, each.switch))
            if way is None:
                way = paths[each.origin, each.switch] = path(each.origin, each.switch)
            tree = trees.setdefault((each.publisher, each.cell), {})
            total = each.wanted + each.unwanted
            above = None
            for depth, switch in enumerate(way):
                # parent, depth, the most that anybody behind gets, how much of it in vain, hosts, wanted
                row = tree.setdefault(switch, [above, depth, -1.0, 0.0, 0.0, 0.0])
                if total > row[2]:
                    row[2], row[3] = total, each.unwanted
                above = switch
            if way:
                row[4] += each.unwanted
                row[5] += each.wanted
        return _assembled(trees)


def _assembled(trees: Mapping[tuple[str, int], Mapping[str, list[Any]]]) -> Model:
    names = sorted({switch for tree in trees.values() for switch in tree})
    number = {name: i for i, name in enumerate(names)}
    columns: list[tuple[int, int, int, int, float, float, float]] = []
    for (_, cell), tree in trees.items():
        first = len(columns)
        where = {switch: first + i for i, switch in enumerate(tree)}
        for switch, (above, depth, _, link, hosts, wanted) in tree.items():
            parent = where[above] if above is not None else -1
            columns.append((number[switch], parent, depth, cell, link if above is not None else 0.0, hosts, wanted))
    table = list(zip(*columns, strict=True)) if columns else [()] * 7
    node, up, deep, cells = (np.array(each, np.int64) for each in table[:4])
    links, at_hosts, delivered = (np.array(each, np.float64) for each in table[4:])
    return Model(names, node, up, deep, cells, links, at_hosts, delivered)
