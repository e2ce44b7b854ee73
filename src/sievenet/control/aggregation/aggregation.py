"""Aggregation: the merges for all switches that hold less than they should, by what the network carries.

Switches are gone through from publishers to subscribers.  At each one

1. what arrives there is worked out, through the tables on the way (`arrivals`): those of switches that had their turn
   as they will be, with merges; from those that come later the worst is assumed, that they let everything through;
2. every merge point of its tables gets its cost (`points`): what arrives and would be sent too far, counted per port;
3. merges are chosen by cost per benefit until the tables fit.  After each choice, points below it are done with, and
   those around it cost and save less by what it costs and saves.  With a sample, merges may be chosen inside merges
   (`carvings`), so that a table stays exact where most packets are.

With a sample, all of it is done a few times (`LOOKS`): then nothing has to be assumed of those that come later, and
what a merge sends too far is followed through the merges of other switches, which would send it further.  Where the
last look's merges send most in vain are further dz that may be carved out of them (`spots`).  Most of it is at few
switches, through which nearly everything passes: from the third look on, only those are looked at, more closely.

FA-LB and FA-PB differ in what they know of traffic: how much each publisher publishes, or a sample of what.  Without
ports to come in by, as flows here have none, all tables of one lane at a switch are one tree of merge points; those of
several categories and partitions compete for the room of the switch.

Departures from the paper: what a merge sends too far is not multiplied by all links behind a port.  The next switch
drops it, unless that one has merged too, and then it is followed.  A packet never goes back where
it came from, so a merge does not cost what it would send there.  Where nothing arrives, a tiny even traffic is assumed,
so that of merges that seem to cost nothing the smaller are taken first: a sample never has everything.  Costs of all
points are found in one pass each instead of per point.

Cost: per look and switch O(n log n) for n entries, and the packets that arrive there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from sievenet.control.aggregation.arrivals import Arrivals, Even, Recorded, Sample, Source
from sievenet.control.aggregation.carvings import carve
from sievenet.control.aggregation.points import Points, Spots, choose, costs, locate, needs, points_of, take
from sievenet.control.aggregation.spots import Packets, spots

__all__ = ["Sample", "Source", "Table", "Tables", "aggregate"]

#: Ports by dz (`Dz.key`): a table as everywhere in `deployment`.
Table: TypeAlias = Mapping[int, frozenset[int]]

_Flags = npt.NDArray[np.bool_]
_Ints = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]

#: How often switches are gone through, with a sample; more changes next to nothing.
LOOKS: Final = 8
#: How often all of them, and how many of those that send most in vain after that.
_ALL_LOOK: Final = 2
_LOUD: Final = 24


@dataclass(frozen=True)
class Tables:
    """The tables of one lane, the tree that it uses, and who publishes."""

    #: Without merges, by switch.
    tables: Mapping[str, Table]
    #: The tree: the switch behind each port that leads to one.
    links: Mapping[str, Mapping[int, str]]
    sources: Sequence[Source]
    #: Recorded packets; without, traffic is taken to be even.
    sample: Sample | None = None


def aggregate(lanes: Sequence[Tables], limits: Mapping[str, int]) -> list[dict[str, set[int]]]:
    """For each lane, by switch, the dz to merge at, so that no switch has more entries than its limit, if it can be."""
    works = [_Lane(lane) for lane in lanes]
    switches = {switch for lane in lanes for switch in lane.links}
    distance = {switch: sum(work.distance.get(switch, 0.0) for work in works) for switch in switches}
    order = sorted(switches, key=lambda each: (distance[each], each))
    found: list[dict[str, set[int]]] = [{} for _ in works]
    for number in range(LOOKS if any(lane.sample is not None for lane in lanes) else 1):
        if number == _ALL_LOOK:  # the others stay as they are
            vain = {switch: sum(work.vain.get(switch, 0.0) for work in works) for switch in order}
            loud = sorted((switch for switch in order if vain[switch]), key=lambda each: -vain[each])[:_LOUD]
            order = [switch for switch in order if switch in loud]
        before = [dict(each) for each in found]
        _look(works, order, limits, found, careful=number >= _ALL_LOOK)
        if found == before:
            break
    return found


def _look(
    works: Sequence[_Lane],
    order: Sequence[str],
    limits: Mapping[str, int],
    found: Sequence[dict[str, set[int]]],
    careful: bool,
) -> None:
    """Choose at one switch after the other."""
    sampled = any(work.lane.sample is not None for work in works)
    for switch in order:
        here = [work.arrive(switch) for work in works]
        total = sum(int(points.own.sum()) for points, _ in here)
        chosen = [np.zeros(len(points), np.bool_) for points, _ in here]
        limit, price = limits.get(switch), 0.0
        if limit is not None and total > limit:
            if sampled:
                chosen, price = carve(here, limit, careful)
            else:
                chosen = _choose(here, limit)
        for number, (work, (points, _), flags) in enumerate(zip(works, here, chosen, strict=True)):
            work.decide(switch, flags, price)
            if flags.any():
                found[number][switch] = {
                    1 << int(length) | (int(code) >> (64 - int(length)) if length else 0)
                    for code, length in zip(points.code[flags], points.length[flags], strict=True)
                }
            else:
                found[number].pop(switch, None)


def _choose(here: Sequence[tuple[Points, npt.NDArray[np.float64]]], limit: int) -> list[_Flags]:
    """Merges side by side, in several trees that share the room of one switch."""
    at = np.cumsum([0, *(len(points) for points, _ in here)])
    parent = np.concatenate(
        [
            np.where(points.parent >= 0, points.parent + first, -1)
            for (points, _), first in zip(here, at[:-1], strict=True)
        ]
    )
    size, entries = (np.concatenate(each) for each in ([p.size for p, _ in here], [p.entries for p, _ in here]))
    cost = np.concatenate([costs(points, need) for points, need in here])
    return np.split(choose(parent, size, entries, cost, limit), at[1:-1])


class _Decisions(NamedTuple):
    """What a table with merges does with a code."""

    points: Points
    decides: _Ints
    rows: _Flags
    #: The row of each port that leads to a switch, and how many other ports each point sends to.
    links: dict[int, int]
    others: _Ints

    def at(self, codes: _Words) -> _Ints:
        """What decides about codes in ascending order, or -1."""
        where = locate(self.points.code, self.points.length, codes)
        found: _Ints = np.where(where >= 0, self.decides[where], -1) if len(self.points) else where
        return found


@dataclass
class _Lane:
    """One lane while switches are gone through."""

    lane: Tables
    arrivals: Arrivals = field(init=False)
    #: How far each switch is from what is published, on average.
    distance: dict[str, float] = field(init=False)

    def __post_init__(self) -> None:
        lane = self.lane
        self.arrivals = Even(lane.sources) if lane.sample is None else Recorded(lane.sample, len(lane.sources))
        self._at: dict[str, list[int]] = {}
        for number, source in enumerate(lane.sources):
            self._at.setdefault(source.switch, []).append(number)
        self._behind = _sides(lane.links, self._at)
        traffic = {
            switch: sum(lane.sources[number].traffic for number in numbers) for switch, numbers in self._at.items()
        }
        self.distance = _distances(lane.links, traffic)
        #: Of switches that had their turn: what their tables do with what arrived, and the row of each port.
        self._settled: dict[str, tuple[Any, dict[int, int]]] = {}
        self._decisions: dict[str, _Decisions] = {}
        self._here: tuple[Points, dict[int, Any], dict[int, int]] | None = None
        self._entries: dict[str, tuple[tuple[_Words, _Ints, _Flags], dict[int, int]]] = {}
        self._published: dict[frozenset[int], Any] = {}
        #: What arrived at the switch of just now, if it is packets; and what might be carved out of merges.
        self._packets: Packets | None = None
        self._spots: dict[str, Spots] = {}
        #: How much each switch sends in vain.
        self.vain: dict[str, float] = {}

    def arrive(self, switch: str) -> tuple[Points, npt.NDArray[np.float64]]:
        """The merge points of a switch, and what it costs to send there what should not go (`points.needs`)."""
        lane = self.lane
        links = lane.links.get(switch, {})
        if switch not in self._entries:
            table = lane.tables.get(switch, {})
            others = (lane.sources[n].port for n in self._at.get(switch, ()))
            row = {port: i for i, port in enumerate(sorted({*links, *others}.union(*set(table.values()))))}
            self._entries[switch] = _entries(table, row), row
        entries, row = self._entries[switch]
        came: dict[int, Any] = {}
        for port, peer in links.items():
            known = self._settled.get(peer)
            back = next(p for p, other in lane.links[peer].items() if other == switch)
            if known is None:
                came[row[port]] = self._all_behind(switch, peer)
            else:
                came[row[port]] = self.arrivals.passed(known[0], known[1][back])
        mine: dict[int, list[int]] = {}
        for number in self._at.get(switch, ()):
            mine.setdefault(row[lane.sources[number].port], []).append(number)
        for at, numbers in mine.items():
            came[at] = self.arrivals.published(numbers)
        points = points_of(*entries, self._spots.get(switch))
        where, by, weight = self.arrivals.at(came, points)
        self._here = points, came, row
        codes = self.arrivals.codes(came)
        beyond = None
        if codes is not None and len(points) and len(self._decisions) == len(lane.links):  # not at the first look
            beyond = np.zeros((codes.size, len(row)), np.float32)
            for port, peer in links.items():
                decider = points.decider[where]
                sent = (where < 0) | (by == row[port]) | (points.ports[decider, row[port]] & (decider >= 0))
                unsent = np.flatnonzero(~sent)
                beyond[unsent, row[port]] = self._followed(switch, peer, codes[unsent])
        self._packets = None if codes is None else Packets(codes, where, by, weight, beyond)
        return points, needs(points, where, by, weight, beyond)

    def _followed(self, came: str, switch: str, codes: _Words) -> npt.NDArray[np.float32]:
        """How often packets that come to a switch from another one are sent, there and further on."""
        total = np.zeros(codes.size, np.float32)
        ways = [(came, switch, np.arange(codes.size))]
        while ways:
            came, switch, which = ways.pop()
            known = self._decisions[switch]
            decided = known.at(codes[which])
            which, decided = which[decided >= 0], decided[decided >= 0]
            total[which] += known.others[decided]
            for port, peer in self.lane.links[switch].items():
                further = which[known.rows[decided, known.links[port]]]
                if peer != came and further.size:
                    total[further] += 1
                    ways.append((switch, peer, further))
        return total

    def _all_behind(self, switch: str, peer: str) -> Any:
        behind = self._behind[switch, peer]
        if behind not in self._published:
            self._published[behind] = self.arrivals.published(sorted(behind))
        return self._published[behind]

    def decide(self, switch: str, chosen: _Flags, price: float) -> None:
        """The table of the switch of just now, with merges; and where to carve at the next look."""
        assert self._here is not None
        points, came, row = self._here
        decides, rows = take(points, chosen)
        if price and self._packets is not None:
            self._spots[switch], self.vain[switch] = spots(points, chosen, decides, rows, self._packets, price)
        links = {port: row[port] for port in self.lane.links.get(switch, {})}
        others = rows.sum(1) - rows[:, list(links.values())].sum(1)
        self._decisions[switch] = _Decisions(points, decides, rows, links, others)
        self._settled[switch] = self.arrivals.settle(came, points, decides, rows), row


def _points(table: Table, row: Mapping[int, int]) -> Points:
    return points_of(*_entries(table, row))


def _entries(table: Table, row: Mapping[int, int]) -> tuple[_Words, _Ints, _Flags]:
    """First codes, lengths, and rows of ports."""
    length = np.fromiter((key.bit_length() - 1 for key in table), np.int64, len(table))
    bits = [(key, key.bit_length() - 1) for key in table]
    first = ((key ^ 1 << n) << (64 - n) if n <= 64 else (key ^ 1 << n) >> (n - 64) for key, n in bits)
    code = np.fromiter(first, np.uint64, len(table))
    # Many entries have the same ports.
    numbers: dict[frozenset[int], int] = {}
    which = np.fromiter((numbers.setdefault(out, len(numbers)) for out in table.values()), np.int64, len(table))
    sets = np.zeros((len(numbers), len(row)), np.bool_)
    for out, number in numbers.items():
        sets[number, [row[port] for port in out]] = True
    return code, length, sets[which]


def _sides(
    links: Mapping[str, Mapping[int, str]], at: Mapping[str, list[int]]
) -> dict[tuple[str, str], frozenset[int]]:
    """The sources behind each link of a tree, in either direction."""
    behind: dict[tuple[str, str], frozenset[int]] = {}
    seen: set[str] = set()
    for start in links:
        if start in seen:
            continue
        order: list[tuple[str, str]] = []
        stack = [(start, "")]
        while stack:
            switch, above = stack.pop()
            order.append((switch, above))
            stack += [(peer, switch) for peer in links[switch].values() if peer != above]
        below = {switch: set(at.get(switch, ())) for switch, _ in order}
        for switch, above in reversed(order):
            if above:
                behind[above, switch] = frozenset(below[switch])
                below[above] |= below[switch]
        for switch, above in order:
            if above:
                behind[switch, above] = frozenset(below[start] - behind[above, switch])
        seen.update(switch for switch, _ in order)
    return behind


def _distances(links: Mapping[str, Mapping[int, str]], traffic: Mapping[str, float]) -> dict[str, float]:
    """The hops from what is published to each switch, weighted by how much that is."""
    found = dict.fromkeys(links, 0.0)
    for start, amount in traffic.items():
        hops, queue = {start: 0}, deque([start])
        while queue:
            switch = queue.popleft()
            for peer in links.get(switch, {}).values():
                if peer not in hops:
                    hops[peer] = hops[switch] + 1
                    queue.append(peer)
        for switch, number in hops.items():
            if switch in found:
                found[switch] += amount * number
    return found
