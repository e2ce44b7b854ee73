"""Trees that are repaired, not replaced.

When a link or switch of a spanning tree fails, the parts that are left stay as they are,
and are joined again by the best links that still work.  When something comes back, it is
used only if it joins what is apart.  So of the links in use that still work none is ever
given up: the old and the new tree together have no cycle, and while the switches change over
one by one no packet can run in circles.  The price is a tree that may be longer than the
shortest one after a failure, until the control plane starts afresh without a journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sievenet.control.routes import Wires
from sievenet.network import SpanningTree, Topology, link_id, spanning_trees

__all__ = ["TreeKeeper"]

Links = tuple[tuple[str, str], ...]


class TreeKeeper:
    """The spanning trees of a network, and what of it works."""

    def __init__(self, topology: Topology, count: int, remembered: Sequence[Links] = ()) -> None:
        self.topology = topology
        self.down_switches: set[str] = set()
        self.down_links: set[tuple[str, str]] = set()
        fresh = spanning_trees(topology, count)
        known = {link.id for link in topology.links}
        if len(remembered) == count:
            self.links: list[frozenset[tuple[str, str]]] = [
                frozenset(link for links in each if (link := link_id(*links)) in known) for each in remembered
            ]
        else:
            self.links = [tree.links() for tree in fresh]
        self._roots = [tree.root for tree in fresh]
        self.trees: list[SpanningTree] = []
        self.mend()

    def redraw(self, topology: Topology, fresh: Iterable[str]) -> None:
        """Use a new topology; its fresh switches are not used yet.  Call `mend` next."""
        self.topology = topology
        self.down_switches |= set(fresh)
        self.down_links &= {link.id for link in topology.links}
        self.trees = []

    def mend(self) -> bool:
        """Fit the trees to what works; whether any changed."""
        alive = self.topology.without(self.down_links, self.down_switches)
        before = list(self.links)
        changed = bool(self.trees) and self.trees[0].topology.switches != alive.switches
        self.links = [_completed(alive, links) for links in self.links]
        if self.trees and not changed and self.links == before:
            return False
        self.trees = [_grown(alive, links, root) for links, root in zip(self.links, self._roots, strict=True)]
        return True

    def remembered(self) -> tuple[Links, ...]:
        """The links of each tree, for the journal."""
        return tuple(tuple(sorted(links)) for links in self.links)

    def dead(self, wires: Wires) -> int:
        """The wires that are down."""
        mask = 0
        for link in self.topology.links:
            if not (self.topology.is_switch(link.a) and self.topology.is_switch(link.b)):
                continue
            if link.id in self.down_links or link.a in self.down_switches or link.b in self.down_switches:
                mask |= 1 << wires.number(link.a, link.a_port) | 1 << wires.number(link.b, link.b_port)
        return mask


def _completed(alive: Topology, links: Iterable[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    """The given links that work, and the best others that join what they leave apart (Kruskal's algorithm)."""
    leader = {switch: switch for switch in alive.switches}

    def lead(switch: str) -> str:
        while leader[switch] != switch:
            leader[switch] = leader[leader[switch]]
            switch = leader[switch]
        return switch

    kept = set(links)
    chosen = set()
    usable = [k for k in alive.links if alive.is_switch(k.a) and alive.is_switch(k.b)]
    for link in sorted(usable, key=lambda k: (k.id not in kept, k.settings.delay)):
        a, b = lead(link.a), lead(link.b)
        if a != b:
            leader[a] = b
            chosen.add(link.id)
    return frozenset(chosen)


def _grown(alive: Topology, links: frozenset[tuple[str, str]], root: str) -> SpanningTree:
    """The tree (or forest) of the links."""
    near: dict[str, list[str]] = {switch: [] for switch in alive.switches}
    for a, b in sorted(links):
        near[a].append(b)
        near[b].append(a)
    parent: dict[str, str | None] = {}
    starts = [root, *alive.switches] if root in near else list(alive.switches)
    for start in starts:
        if start in parent:
            continue
        parent[start] = None
        row = [start]
        for switch in row:
            for peer in near[switch]:
                if peer not in parent:
                    parent[peer] = switch
                    row.append(peer)
    return SpanningTree(alive, starts[0] if starts else root, parent)
