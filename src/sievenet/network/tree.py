"""Spanning trees: the paths that events take.

All paths of a partition are embedded in one tree over the switches, so a packet
crosses a link at most once and needs no more loop protection than "never back out of
the port it came in by".  Trees are shortest-path trees (by delay, then by hops), and a
network has several, with different roots and, between equally short paths, different
links, so that partitions spread their load:

          s1    s2            s1    s2
         /  \\                      /  \\
        s3    s4   s5   …   s3   s4    s5      two trees of one fat-tree
        …

A network that failures have split has a tree per component; `path` between two
components is empty and `next_port` is None.

A tree knows its switches by an Euler tour: x is below y iff enter[y] ≤ enter[x] < leave[y].
The next hop from y to x is then the child whose interval holds x, or the parent: a binary
search, without a table of n² entries.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_right
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sievenet.errors import InvalidInput
from sievenet.network.link import link_id, natural
from sievenet.network.topology import Topology

__all__ = ["SpanningTree", "spanning_trees"]


class SpanningTree:
    """A shortest-path tree over the switches of a topology (a forest if it is split)."""

    __slots__ = ("_children", "_enter", "_leave", "_paths", "_starts", "depth", "parent", "root", "topology")

    def __init__(self, topology: Topology, root: str, parent: Mapping[str, str | None]) -> None:
        self.topology: Final = topology
        self.root: Final = root
        #: The next switch toward the root of the component; None for the roots.
        self.parent: Final = MappingProxyType(dict(parent))
        self._children: dict[str, list[str]] = {switch: [] for switch in parent}
        for child, above in parent.items():
            if above is not None:
                self._children[above].append(child)
        self._enter: dict[str, int] = {}
        self._leave: dict[str, int] = {}
        #: Hops up to the root of the component.
        self.depth: Final[dict[str, int]] = {}
        self._tour()
        if len(self._enter) != len(topology.switches):
            raise InvalidInput(expected="a tree over all switches", got=dict(parent), where=f"tree of {root}")
        self._starts = {s: [self._enter[c] for c in below] for s, below in self._children.items()}
        self._paths: dict[tuple[str, str], tuple[str, ...]] = {}

    def _tour(self) -> None:
        clock = 0
        for top, above in self.parent.items():
            if above is not None:
                continue
            stack: list[tuple[str, bool]] = [(top, False)]
            self.depth[top] = 0
            while stack:
                switch, done = stack.pop()
                if done:
                    self._leave[switch] = clock
                    continue
                self._enter[switch] = clock
                clock += 1
                stack.append((switch, True))
                for child in reversed(self._children[switch]):
                    self.depth[child] = self.depth[switch] + 1
                    stack.append((child, False))

    @classmethod
    def shortest(
        cls, topology: Topology, root: str | None = None, used: Mapping[tuple[str, str], int] | None = None
    ) -> SpanningTree:
        """The tree of shortest paths from a root; `used` counts earlier uses of links, of which the least used win."""
        if not topology.switches:
            raise InvalidInput(expected="at least one switch", got=topology, where="spanning tree")
        if root is None:
            root = by_centrality(topology)[0]
        if not topology.is_switch(root):
            raise InvalidInput(expected="a switch as root", got=root, where="spanning tree")
        used = used or {}
        parent: dict[str, str | None] = {}
        for start in (root, *topology.switches):
            if start not in parent:
                _grow(topology, start, used, parent)
        return cls(topology, root, parent)

    # -- asking ------------------------------------------------------------------------------

    def links(self) -> frozenset[tuple[str, str]]:
        """The links in use, by name."""
        return frozenset(link_id(s, above) for s, above in self.parent.items() if above is not None)

    def children(self, switch: str) -> tuple[str, ...]:
        """The switches right below a switch."""
        return tuple(self._children[switch])

    def below(self, switch: str, top: str) -> bool:
        """Whether `switch` is `top` or under it."""
        return self._enter[top] <= self._enter[switch] < self._leave[top]

    def next_hop(self, switch: str, toward: str) -> str | None:
        """The neighbour on the way; None at the destination and between components."""
        if switch == toward:
            return None
        if self.below(toward, switch):
            return self._children[switch][bisect_right(self._starts[switch], self._enter[toward]) - 1]
        return self.parent[switch]

    def next_port(self, switch: str, toward: str) -> int | None:
        """The port on the way to another switch; None at the destination and between components."""
        if switch == toward or not self.joined(switch, toward):
            return None
        hop = self.next_hop(switch, toward)
        return None if hop is None else self.topology.port(switch, hop)

    def joined(self, a: str, b: str) -> bool:
        """Whether a path leads from one switch to another."""
        return bool(self.path(a, b))

    def path(self, a: str, b: str) -> tuple[str, ...]:
        """The switches from one to another, both included; empty if none leads there."""
        known = self._paths.get((a, b))
        if known is None:
            known = self._paths[a, b] = self._climb(a, b)
        return known

    def _climb(self, a: str, b: str) -> tuple[str, ...]:
        up, down = [a], [b]
        while not self.below(b, up[-1]):
            above = self.parent[up[-1]]
            if above is None:
                return ()
            up.append(above)
        while down[-1] != up[-1]:
            above = self.parent[down[-1]]
            assert above is not None  # up[-1] is above b, so climbing from b meets it
            down.append(above)
        return (*up, *reversed(down[:-1]))

    def tree_ports(self, switch: str) -> dict[int, str]:
        """The ports of a switch that lead along the tree: ``{port: neighbour}``."""
        above = self.parent[switch]
        near = self._children[switch] if above is None else [*self._children[switch], above]
        return {self.topology.port(switch, peer): peer for peer in near}

    def __repr__(self) -> str:
        return f"<SpanningTree from {self.root}: {len(self.parent)} switches>"


def _grow(topology: Topology, root: str, used: Mapping[tuple[str, str], int], parent: dict[str, str | None]) -> None:
    """Dijkstra's algorithm by (delay, hops); among equally short ways the least used link wins."""
    cost: dict[str, tuple[float, int]] = {root: (0.0, 0)}
    uses: dict[str, int] = {root: 0}
    above: dict[str, str | None] = {root: None}
    heap = [((0.0, 0), natural(root), root)]
    done: set[str] = set()
    while heap:
        here, _, switch = heapq.heappop(heap)
        if switch in done:
            continue
        done.add(switch)
        parent[switch] = above[switch]
        for peer in topology.neighbours(switch):
            if peer in done:
                continue
            link = topology.link(switch, peer)
            there = (here[0] + link.settings.delay, here[1] + 1)
            load = used.get(link.id, 0)
            best = cost.get(peer)
            if best is None or there < best or (there == best and load < uses[peer]):
                cost[peer], uses[peer], above[peer] = there, load, switch
                heapq.heappush(heap, (there, natural(peer), peer))


def by_centrality(topology: Topology) -> list[str]:
    """The switches, those first whose farthest other switch is nearest; then by mean distance, then by name.

    In a split network the largest component comes first.
    """
    ranked = []
    for rank, switch in enumerate(topology.switches):
        far, total, reached = _distances(topology, switch)
        ranked.append((-reached, far, total, rank, switch))
    return [switch for *_, switch in sorted(ranked)]


def _distances(topology: Topology, start: str) -> tuple[int, int, int]:
    """The farthest distance, the sum of distances and the number of switches reached, by hops."""
    level, seen, far, total = [start], {start}, 0, 0
    while level:
        after: list[str] = []
        for switch in level:
            for peer in topology.neighbours(switch):
                if peer not in seen:
                    seen.add(peer)
                    after.append(peer)
        if after:
            far += 1
            total += far * len(after)
        level = after
    return far, total, len(seen)


def spanning_trees(topology: Topology, count: int = 1) -> tuple[SpanningTree, ...]:
    """Several trees that share as few links as their shortest paths allow, the most central root first."""
    if count < 1 or not topology.switches:
        raise InvalidInput(expected="at least 1 tree over at least 1 switch", got=count, where="spanning trees")
    used: dict[tuple[str, str], int] = {}
    trees: list[SpanningTree] = []
    # More trees than switches go round again, then with other links.
    for root in itertools.islice(itertools.cycle(by_centrality(topology)), count):
        tree = SpanningTree.shortest(topology, root, used)
        for link in tree.links():
            used[link] = used.get(link, 0) + 1
        trees.append(tree)
    return tuple(trees)
