"""The overlay as one router knows it: who is linked with whom, the tree, and shortest paths.

Routers form a general graph. Each floods its *link state* (the neighbours it hears), numbered so that newer replaces
older; a link counts when both ends tell of it. From equal link states every router computes the same things, without
asking:

    tree        breadth first from the graph's centre: subscriptions and events of the tree schemes go along it
    paths       shortest by (hops, a hash of the links), hence unique: the path from a to b is that from b to a
                backwards, and parts of paths are paths. Per-source trees (CBCB) and destinations (B-DRP) rest on it.

A router that is silent for a lease is forgotten with what it said. That there was a way to it is remembered for longer
(`MEMORY`): a publisher is told whom it may not have reached. Everything derived is computed when first asked for and
kept until the graph changes: O(n·m) for the centre, O(m log n) per source.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

__all__ = ["MAX_ROUTERS", "MEMORY", "LinkStates", "Overlay", "Record"]

#: Routers of an overlay; link states of more are not taken.
MAX_ROUTERS: Final = 4096
#: Seconds for which a router that cannot be reached any more is missed; as long as receivers wait for a publisher.
MEMORY: Final = 120.0


@dataclass(frozen=True, slots=True)
class Record:
    """What a router says of its links."""

    origin: str
    number: int
    neighbours: tuple[str, ...]


class Overlay:
    """A graph of routers, and the trees and paths of it. Immutable; results are kept."""

    def __init__(self, records: dict[str, tuple[str, ...]]) -> None:
        self._said = records
        self.links: dict[str, tuple[str, ...]] = {
            name: tuple(sorted(n for n in said if name in records.get(n, ()))) for name, said in records.items()
        }
        self._parents: dict[str, dict[str, str]] = {}
        self._reaches: dict[tuple[str, str], frozenset[str]] = {}
        self._trees: dict[str, dict[str, tuple[str, ...]]] = {}

    def tree_neighbours(self, name: str) -> tuple[str, ...]:
        """The neighbours of a router on the one tree of its part of the network."""
        if name not in self._trees:
            self._trees.update(self._component_tree(name))
        return self._trees[name].get(name, ())

    def _component_tree(self, name: str) -> dict[str, dict[str, tuple[str, ...]]]:
        part = sorted(_distances(self.links, name))
        centre = min(part, key=lambda n: (max(_distances(self.links, n).values()), n))
        near: dict[str, set[str]] = {n: set() for n in part}
        for child, parent in _breadth_first(self.links, centre).items():
            near[child].add(parent)
            near[parent].add(child)
        tree = {n: tuple(sorted(found)) for n, found in near.items()}
        return dict.fromkeys(part, tree)

    def part(self, name: str) -> frozenset[str]:
        """The routers to which there is a way, and the router itself."""
        return frozenset(_distances(self.links, name))

    def graph(self, name: str) -> int:
        """A number that is equal at two routers that know the same of their part of the network."""
        part = sorted(self.part(name))
        return _hash(";".join(f"{n}:{','.join(sorted(self._said.get(n, ())))}" for n in part)) or 1

    def parents(self, source: str) -> dict[str, str]:
        """The tree of unique shortest paths from a source: each router's next hop towards it."""
        found = self._parents.get(source)
        if found is None:
            found = self._parents[source] = _shortest(self.links, source)
        return found

    def next_hop(self, here: str, to: str) -> str | None:
        """Where to go first on the way from here; ``None`` if there is none."""
        return self.parents(to).get(here)

    def children(self, source: str, here: str) -> list[str]:
        """The neighbours that a router serves on the tree of a source."""
        parents = self.parents(source)
        return [n for n in self.links.get(here, ()) if parents.get(n) == here]

    def reach(self, source: str, here: str) -> frozenset[str]:
        """All routers behind a router on the tree of a source."""
        key = (source, here)
        found = self._reaches.get(key)
        if found is None:
            below: set[str] = set()
            waiting = [here]
            while waiting:
                children = self.children(source, waiting.pop())
                below.update(children)
                waiting += children
            found = self._reaches[key] = frozenset(below)
        return found


class LinkStates:
    """The link states heard, and the overlay that they make."""

    def __init__(self, me: str, lease: float) -> None:
        self.me = me
        self._lease = lease
        self._records: dict[str, Record] = {}
        self._expires: dict[str, float] = {}
        self._overlay: Overlay | None = None
        #: Changes with every change of the graph.
        self.version = 0
        #: The routers to which there is a way, and since when there is none to others that were among them.
        self._part: frozenset[str] = frozenset()
        self._missing: dict[str, float] = {}

    def take(self, record: Record, now: float) -> bool:
        """Note a link state; True if it is news, to be told to others."""
        known = self._records.get(record.origin)
        if known is not None and known.number >= record.number:
            return False
        if known is None and len(self._records) >= MAX_ROUTERS:
            return False
        self._records[record.origin] = record
        self._expires[record.origin] = now + self._lease
        if known is None or known.neighbours != record.neighbours:
            self._changed()
        return True

    def number(self, origin: str) -> int:
        """The number of the newest record of a router; -1 if there is none."""
        known = self._records.get(origin)
        return -1 if known is None else known.number

    def expire(self, now: float) -> None:
        """Forget routers that were not heard of for a lease."""
        gone = [n for n, until in self._expires.items() if until <= now and n != self.me]
        for name in gone:
            del self._records[name], self._expires[name]
        if gone:
            self._changed()

    def slept(self, seconds: float, heard: dict[str, float]) -> None:
        """Count no silence of others for so long, here and in ``heard``: it was this process that was held up."""
        heard.update({name: last + seconds for name, last in heard.items()})
        self._expires = {name: until + seconds for name, until in self._expires.items()}

    def follow(self, now: float) -> None:
        """The graph may be another one: note who cannot be reached any more."""
        before, self._part = self._part, self.overlay.part(self.me)
        for name in before - self._part:
            self._missing[name] = now
        for name in self._part:
            self._missing.pop(name, None)

    def missing(self, now: float) -> list[str]:
        """Routers that could be reached in the last `MEMORY` seconds, and cannot now."""
        self._missing = {name: since for name, since in self._missing.items() if now < since + MEMORY}
        return sorted(self._missing)

    def _changed(self) -> None:
        self._overlay = None
        self.version += 1

    @property
    def overlay(self) -> Overlay:
        """The graph of now."""
        if self._overlay is None:
            self._overlay = Overlay({n: r.neighbours for n, r in self._records.items()})
        return self._overlay

    def records(self) -> list[Record]:
        """All that is known, to be told to a new neighbour."""
        return [self._records[n] for n in sorted(self._records)]


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def _breadth_first(links: dict[str, tuple[str, ...]], start: str) -> dict[str, str]:
    parents: dict[str, str] = {}
    waiting = deque((start,))
    while waiting:
        here = waiting.popleft()
        for there in links.get(here, ()):
            if there not in parents and there != start:
                parents[there] = here
                waiting.append(there)
    return parents


def _distances(links: dict[str, tuple[str, ...]], start: str) -> dict[str, int]:
    found = {start: 0}
    for child, parent in _breadth_first(links, start).items():
        found[child] = found[parent] + 1
    return found


def _shortest(links: dict[str, tuple[str, ...]], source: str) -> dict[str, str]:
    """Dijkstra, where a link weighs one hop and a little of its own: sums differ, so shortest paths are unique."""
    done: dict[str, str] = {}
    waiting: list[tuple[int, str, str]] = [(0, source, "")]
    seen: set[str] = set()
    while waiting:
        far, here, before = heapq.heappop(waiting)
        if here in seen:
            continue
        seen.add(here)
        if before:
            done[here] = before
        for there in links.get(here, ()):
            if there not in seen:
                weight = (1 << 80) + _hash(f"{min(here, there)}|{max(here, there)}")
                heapq.heappush(waiting, (far + weight, there, here))
    return done
