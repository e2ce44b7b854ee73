"""Carvings: merges inside merges, so that a table fits and yet is exact where most packets are.

A merge that covers hot content costs much, even if nearly all of what it makes one is cold.  The longest dz decides,
so there is another way: leave the hot part as an entry of its own, *inside* the merge.  What is carved out does not
cost, and its ports need not be ports of the merge:

    merge at 1, entries 100 → a, 101 → a, 11 → b (hot)        1 → a, b      every packet in 11 goes to a in vain
    the same, with 11 carved out                              1 → a,  11 → b

Which points to choose is a trade: each costs an entry, at a price λ.  For a given price the best choice follows from
the leaves upwards.  Let U be the ports of the merge around a point v, need(v, U) what it costs to send there what lies
at v and at no point below it (`points.needs`), and under(v, U) the least for all at and below v:

    under(v, U) = min( best(v),  need(v, U) + Σ under(child, U) )     stay below the merge around; never if v is an
                                                                      entry with ports that U has not
    merge(v)    = λ + min over U of ( need(v, U) + Σ under(child, U) )
    best(v)     = min( merge(v),  λ if v is an entry + Σ best(child) )

(A point that is no entry has nothing to decide with, so below a merge its best is to be merged.)  For U there is a
*chain* of a few candidates at each point: the ports of all entries below it, then without the port that fewest of them
have, and so on.  An entry that has a port which U lacks is carved out.  The price is found by bisection, so that
just about as many entries are used as there are.

Tables that are much larger than what a switch holds are merged by cost per benefit first (`points.choose`), down to
a few times as many entries: those merges cost next to nothing.

Departure from the paper, which only knows merges side by side.  On hotspots with half of all flows merged, what
merging adds to the traffic falls by more than half.

Cost: O(n · depth · chain) numbers per price, some twenty prices; chains are as long as that stays below a bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sievenet.control.aggregation.points import Points, choose, costs
from sievenet.jit import compiled

__all__ = ["carve"]

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Flags = npt.NDArray[np.bool_]

#: Entries that are looked at in this way, for each that there is room for; and if it is worth more time.
_TIMES: Final = (3, 6)
#: Most pairs of a point and a candidate for the ports around it.
_PAIRS: Final = (200_000, 1_000_000)
#: Prices below this are all the same.
_LEAST: Final = 1e-9
#: Most candidates at a point.
_CHAIN: Final = 12


class _Tree(NamedTuple):
    """What is left of the points of all lanes at a switch, as one forest."""

    parent: _Ints
    #: Whether it is an entry, or stands for all below a merge that is taken for granted.
    own: _Ints
    ports: _Flags
    decider: _Ints
    need: _Floats
    #: Where each point comes from, and whether it must be merged if it is to be an entry.
    origin: _Ints
    merged: _Flags


def carve(here: Sequence[tuple[Points, _Floats]], limit: int, careful: bool = True) -> tuple[list[_Flags], float]:
    """The points to merge at, in several trees that share the room of one switch; merges may lie in each other.

    And what an entry is worth there.
    """
    at = np.cumsum([0, *(len(points) for points, _ in here)])
    chosen = np.zeros(int(at[-1]), np.bool_)
    tree = _joined(here, _TIMES[careful] * limit)
    known = tree.parent, tree.own, tree.ports, tree.decider, tree.need, tree.merged
    found, price = _carve(*known, limit, _PAIRS[careful])
    chosen[tree.origin[found]] = True
    return np.split(chosen, at[1:-1]), price


def _joined(here: Sequence[tuple[Points, _Floats]], most: int) -> _Tree:
    """One forest of all points, without those below merges that are taken for granted."""
    at = np.cumsum([0, *(len(points) for points, _ in here)])
    width = max(points.ports.shape[1] for points, _ in here)
    parent = np.concatenate([np.where(p.parent >= 0, p.parent + first, -1) for (p, _), first in _each(here, at)])
    decider = np.concatenate([np.where(p.decider >= 0, p.decider + first, -1) for (p, _), first in _each(here, at)])
    size, own = (np.concatenate(each) for each in ([p.size for p, _ in here], [p.own for p, _ in here]))
    entries = np.concatenate([points.entries for points, _ in here])
    ports, union = (
        np.concatenate([_wide(each, width) for each in some])
        for some in ([p.ports for p, _ in here], [p.union for p, _ in here])
    )
    need = np.concatenate([_wide(each, width) for _, each in here])
    merged = np.zeros(parent.size, np.bool_)
    if int(own.sum()) > most:
        cost = np.concatenate([costs(points, each) for points, each in here])
        merged = choose(parent, size, entries, cost, most)
    return _Tree(*_contracted(parent, size, own, ports, union, decider, need, merged))


def _each(here: Any, at: Any) -> Any:
    return zip(here, at[:-1], strict=True)


def _wide(rows: Any, width: int) -> Any:
    return np.pad(rows, ((0, 0), (0, width - rows.shape[1])))


@compiled
def _contracted(parent: Any, size: Any, own: Any, ports: Any, union: Any, decider: Any, need: Any, merged: Any) -> Any:
    count, width = ports.shape
    place, left, at = np.full(count, -1, np.int64), 0, 0
    while at < count:
        place[at] = left
        left += 1
        at += size[at] if merged[at] else 1
    o_parent, o_own, o_decider = np.full(left, -1, np.int64), np.zeros(left, np.int64), np.full(left, -1, np.int64)
    o_ports, o_need = np.zeros((left, width), np.bool_), np.zeros((left, width))
    origin, o_merged = np.zeros(left, np.int64), np.zeros(left, np.bool_)
    for i in range(count):
        to = place[i]
        if to < 0:
            continue
        origin[to], o_merged[to] = i, merged[i]
        o_parent[to] = place[parent[i]] if parent[i] >= 0 else -1
        if not merged[i]:
            o_own[to], o_ports[to], o_need[to] = own[i], ports[i], need[i]
            o_decider[to] = place[decider[i]] if decider[i] >= 0 else -1
            continue
        o_own[to], o_ports[to], o_decider[to] = 1, union[i], to
        for j in range(i, i + size[i]):
            o_need[to] += need[j]
        for p in range(width):
            if union[i, p]:
                o_need[to, p] = 0.0  # paid in any case
    return o_parent, o_own, o_ports, o_decider, o_need, origin, o_merged


@compiled
def _carve(parent: Any, own: Any, ports: Any, decider: Any, need: Any, merged: Any, limit: int, pairs: int) -> Any:
    """The points at which there is a merge."""
    first, candidates = _chains(parent, own, ports, decider, need, pairs)
    start, cost = _pairs(parent, own, ports, need, first, candidates)
    count = parent.size
    low, high = 0.0, 1.0
    kind, used = _solve(parent, own, first, start, cost, low, high, 0)
    while used > limit and high < 1e18:
        low, high = high, 8.0 * high
        kind, used = _solve(parent, own, first, start, cost, low, high, 0)
    while used != limit and high - low > max(1e-3 * high, _LEAST):
        middle = (low + high) / 2.0
        other, more = _solve(parent, own, first, start, cost, low, middle, 0)
        if more <= limit:
            kind, used, high = other, more, middle
        else:
            low = middle
    # The last few entries: the lower price for the first points, as many as it can be.
    few, many = 0, count
    while used != limit and many - few > 1:
        half = (few + many) // 2
        other, more = _solve(parent, own, first, start, cost, low, high, half)
        if more <= limit:
            kind, used, few = other, more, half
        else:
            many = half
    # Entries inside merges stand for themselves only if they are merges too.
    inside = np.zeros(parent.size, np.bool_)
    chosen = np.zeros(parent.size, np.bool_)
    for v in range(parent.size):
        inside[v] = parent[v] >= 0 and (inside[parent[v]] or kind[parent[v]] == 2)
        chosen[v] = kind[v] == 2 or (kind[v] == 1 and (inside[v] or merged[v]))
    # A merge to which no entry belongs is none, unless it is carved out of another.
    some, nearest = np.zeros(parent.size, np.bool_), np.full(parent.size, -1, np.int64)
    for v in range(parent.size):
        around = nearest[parent[v]] if parent[v] >= 0 else -1
        nearest[v] = v if chosen[v] else around
        some[v] |= around >= 0
        if own[v] and nearest[v] >= 0:
            some[nearest[v]] = True
    return chosen & some, high


@compiled
def _chains(parent: Any, own: Any, ports: Any, decider: Any, need: Any, pairs: int) -> Any:
    """Candidates for the ports of a merge at each point: where those of each begin, and all of them."""
    count, width = ports.shape
    times, entries, saved = np.zeros((count, width), np.int64), own.copy(), need.copy()
    depth, base = np.zeros(count, np.int64), 0
    for v in range(count):
        depth[v] = depth[parent[v]] + 1 if parent[v] >= 0 else 1
        base += depth[v]
    for v in range(count - 1, -1, -1):
        for p in range(width):
            if own[v] and ports[v, p]:
                times[v, p] += 1
            if parent[v] >= 0:
                times[parent[v], p] += times[v, p]
                saved[parent[v], p] += saved[v, p]
        if parent[v] >= 0:
            entries[parent[v]] += entries[v]
    chain = min(max(pairs // max(base, 1), 1), _CHAIN)
    first = np.zeros(count + 1, np.int64)
    found = np.zeros((count * chain, width), np.bool_)
    at = 0
    for v in range(count):
        first[v] = at
        if own[v] and entries[v] < 2:
            continue  # nothing to make one
        up = decider[parent[v]] if parent[v] >= 0 else -1
        row = np.zeros(width, np.bool_)
        free = 0
        for p in range(width):
            row[p] = times[v, p] > 0 or (up >= 0 and ports[up, p])
            if row[p] and not (own[v] and ports[v, p]) and not (up >= 0 and ports[up, p]):
                free += 1
        found[at] = row
        at += 1
        for _ in range(min(free, chain - 1)):
            least = -1
            for p in range(width):
                must = (own[v] and ports[v, p]) or (up >= 0 and ports[up, p])
                if row[p] and not must and (least < 0 or saved[v, p] * times[v, least] > saved[v, least] * times[v, p]):
                    least = p
            row[least] = False
            found[at] = row
            at += 1
    first[count] = at
    return first, found[:at]


@compiled
def _pairs(parent: Any, own: Any, ports: Any, need: Any, first: Any, candidates: Any) -> Any:
    """What lies at a point costs below each candidate of the points around it and of itself, from the outermost."""
    count, width = ports.shape
    start = np.zeros(count + 1, np.int64)
    for v in range(count):
        above = start[parent[v] + 1] - start[parent[v]] if parent[v] >= 0 else 0
        start[v + 1] = start[v] + above + first[v + 1] - first[v]
    cost, which = np.empty(start[count]), np.empty(start[count], np.int64)
    for v in range(count):
        at = start[v]
        if parent[v] >= 0:
            for j in range(start[parent[v]], start[parent[v] + 1]):
                which[at] = which[j]
                at += 1
        for x in range(first[v], first[v + 1]):
            which[at] = x
            at += 1
        for j in range(start[v], at):
            row, total = candidates[which[j]], 0.0
            for p in range(width):
                if row[p]:
                    total += need[v, p]
                elif own[v] and ports[v, p]:
                    total = np.inf
                    break
            cost[j] = total
    return start, cost


@compiled
def _solve(parent: Any, own: Any, first: Any, start: Any, cost: Any, low: float, high: float, lower: int) -> Any:
    """The best choice at a high price, of the first points at a low one.

    Of each point, whether it is an entry (1), a merge (2) or neither (0); and how many are either.
    """
    count = parent.size
    under, kids = cost.copy(), np.zeros(count)
    merge, kept = np.full(count, -1, np.int64), np.zeros(count, np.bool_)
    stay = np.zeros(cost.size, np.bool_)
    for v in range(count - 1, -1, -1):
        above = start[v + 1] - start[v] - first[v + 1] + first[v]
        price = low if v < lower else high
        as_merge = np.inf
        for j in range(start[v] + above, start[v + 1]):
            if under[j] + price < as_merge:
                as_merge, merge[v] = under[j] + price, j - start[v]
        as_kept = price * own[v] + kids[v]
        kept[v] = as_kept <= as_merge
        best = min(as_merge, as_kept)
        alone = best if own[v] else as_merge
        up = parent[v]
        if up >= 0:
            kids[up] += best
            to = start[up]
            for j in range(above):
                here = under[start[v] + j]
                if here <= alone:
                    stay[start[v] + j] = True
                    under[to + j] += here
                else:
                    under[to + j] += alone
    kind, over, used = np.zeros(count, np.int64), np.full(count, -1, np.int64), 0
    for v in range(count):
        # The candidate of the merge around, if there is one.
        around = over[parent[v]] if parent[v] >= 0 else -1
        if around >= 0 and stay[start[v] + around]:
            over[v] = around
        elif not kept[v] or (around >= 0 and not own[v]):
            kind[v], over[v] = 2, merge[v]
            used += 1
        elif own[v]:
            kind[v] = 1
            used += own[v]
    return kind, used
