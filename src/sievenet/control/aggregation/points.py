"""Merge points: every dz at which entries of a table could be made one, and what each would cost.

The points of a table are its entries and the common dz of neighbours, in a tree:

                 (root)                 entries  ●      points that are no entries  ○
                ╱      ╲
             ○ 00       ● 1            benefit of a point: entries below it, less one
            ╱    ╲        ╲            cost: what arrives below it, times the ports that it goes to
        ● 000    ● 001     ● 110             by the merge and did not before, each weighted by its links

For packets that arrive below a point m, U being all ports of the entries below it (and of the entry around it), W(e)
the ports that a packet e goes to by the table as it is, and w the weight of ports:

    cost(m) = Σ w(U) - w(W(e)) - w(the port that e came in by, if the merge alone would send it there)

The sums are numbers per point and port (`needs`), added up from the leaves.  So the costs of all points take one pass
over what arrives, and one over the tree.

Positions are the first 64 bits of codes.  Entries that are longer stand for their first 64 bits together; which only
blurs costs, for whatever points are chosen, the deployed table follows its own definition.
"""

from __future__ import annotations

import heapq
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sievenet.control.registrations.trie.kernels import leading
from sievenet.jit import compiled

__all__ = ["Points", "Spots", "choose", "costs", "locate", "needs", "points_of", "take"]

_Words = npt.NDArray[np.uint64]
_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Flags = npt.NDArray[np.bool_]


class Points(NamedTuple):
    """The merge points of a table, each before those below it."""

    #: The first code of each, and its length in bits.
    code: _Words
    length: _Ints
    #: The point around it, or -1.
    parent: _Ints
    #: How many points it has below it, itself counted.
    size: _Ints
    #: How many entries it is, and how many are below, itself counted.
    own: _Ints
    entries: _Ints
    #: The point whose entry decides about what lies here and below no other: itself, one around it, or -1.
    decider: _Ints
    #: The ports of its entry, and those of a merge here.
    ports: _Flags
    union: _Flags

    def __len__(self) -> int:
        return self.code.size


class Spots(NamedTuple):
    """Dz: the first code of each, and its length in bits."""

    code: _Words
    length: _Ints


def points_of(code: _Words, length: _Ints, ports: _Flags, spots: Spots | None = None) -> Points:
    """The merge points of entries: first codes (of 64 bits), lengths, and a row of ports for each.

    Spots are points beside those: no entries, but dz that might be carved out of a merge.
    """
    count = code.size
    if spots is not None:
        code, length = np.concatenate([code, spots.code]), np.concatenate([length, spots.length])
        ports = np.concatenate([ports, np.zeros((spots.code.size, ports.shape[1]), np.bool_)])
    order = np.lexsort((length, code))
    code, length = code[order], np.minimum(length[order], 64)
    found: Points = Points(*_build(code, length, ports[order], (order < count).astype(np.int64)))
    return found


@compiled
def _clz(value: Any) -> Any:
    return leading(value) if value else 64


@compiled
def _prefix(code: Any, length: Any) -> Any:
    if length == 0:
        return np.uint64(0)
    return code & (np.uint64(0xFFFFFFFFFFFFFFFF) << np.uint64(64 - length))


@compiled
def _last(code: Any, length: Any) -> Any:
    """The last code of a dz."""
    if length == 0:
        return np.uint64(0xFFFFFFFFFFFFFFFF)
    if length == 64:
        return code
    return code | (np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(length))


@compiled
def _build(code: Any, length: Any, ports: Any, there: Any) -> Any:
    n, width = code.size, ports.shape[1]
    most = max(1, 2 * n)
    codes, lengths = np.empty(most, np.uint64), np.empty(most, np.int64)
    parent, own = np.full(most, -1, np.int64), np.zeros(most, np.int64)
    rows = np.zeros((most, width), np.bool_)
    # First the points, with the stack of those around the last one; a point may come after those below it.
    stack, top, count = np.empty(130, np.int64), 0, 0
    for i in range(n):
        c, length_i = code[i], length[i]
        if count and top and codes[stack[top - 1]] == c and lengths[stack[top - 1]] == length_i:
            at = stack[top - 1]  # the same first 64 bits
        else:
            while top:
                node = stack[top - 1]
                shared = min(_clz(codes[node] ^ c), lengths[node], length_i)
                if shared == lengths[node]:
                    break
                top -= 1
                below = lengths[stack[top - 1]] if top else -1
                if below < shared:  # a point between
                    codes[count], lengths[count] = _prefix(c, shared), shared
                    parent[node] = count
                    parent[count] = stack[top - 1] if top else -1
                    stack[top] = count
                    top += 1
                    count += 1
                    break
            at = count
            codes[at], lengths[at] = c, length_i
            parent[at] = stack[top - 1] if top else -1
            stack[top] = at
            top += 1
            count += 1
        own[at] += there[i]
        for p in range(width):
            rows[at, p] |= ports[i, p]
    # Then in order, each before those below it: by code and length.
    place = np.argsort(lengths[:count], kind="mergesort")
    place = place[np.argsort(codes[:count][place], kind="mergesort")]
    at_of = np.empty(count, np.int64)
    for i in range(count):
        at_of[place[i]] = i
    o_code, o_length = codes[:count][place], lengths[:count][place]
    o_parent, o_own, o_rows = np.empty(count, np.int64), own[:count][place], np.empty((count, width), np.bool_)
    for i in range(count):
        up = parent[place[i]]
        o_parent[i] = at_of[up] if up >= 0 else -1
        o_rows[i] = rows[place[i]]
    size, entries = np.ones(count, np.int64), o_own.copy()
    decider = np.empty(count, np.int64)
    union = o_rows.copy()
    for i in range(count):
        up = o_parent[i]
        decider[i] = i if o_own[i] else (decider[up] if up >= 0 else -1)
    for i in range(count - 1, -1, -1):
        up = o_parent[i]
        if up >= 0:
            size[up] += size[i]
            entries[up] += entries[i]
            for p in range(width):
                union[up, p] |= union[i, p]
    for i in range(count):
        up = o_parent[i]
        if up >= 0 and decider[up] >= 0:
            for p in range(width):
                union[i, p] |= o_rows[decider[up], p]
    return o_code, o_length, o_parent, size, o_own, entries, decider, o_rows, union


@compiled
def locate(code: Any, length: Any, what: Any) -> Any:
    """The innermost point around each of some codes in ascending order, or -1."""
    found = np.empty(what.size, np.int64)
    stack, top, at = np.empty(130, np.int64), 0, 0
    for i in range(what.size):
        c = what[i]
        while at < code.size and code[at] <= c:
            while top and _last(code[stack[top - 1]], length[stack[top - 1]]) < code[at]:
                top -= 1
            stack[top] = at
            top += 1
            at += 1
        while top and _last(code[stack[top - 1]], length[stack[top - 1]]) < c:
            top -= 1
        found[i] = stack[top - 1] if top else -1
    return found


def needs(
    points: Points, where: _Ints, came: _Ints, weight: _Floats, beyond: npt.NDArray[np.float32] | None = None
) -> _Floats:
    """What it costs to send what lies at each point, and below no other, to each port that it should not go to.

    By where packets arrive and the port each came in by, where it costs nothing.  `beyond` is how often each packet is
    sent by those behind each port, if a merge sends it there.
    """
    further = np.zeros((0, 0), np.float32) if beyond is None else beyond
    found: _Floats = _needs(points.parent, points.decider, points.ports, where, came, weight, points.length, further)
    return found


@compiled
def _needs(parent: Any, decider: Any, rows: Any, where: Any, came: Any, weight: Any, length: Any, further: Any) -> Any:
    count, width = rows.shape
    amount, need, space = np.zeros(count), np.zeros((count, width)), np.zeros(count)
    total = 0.0
    for i in range(where.size):
        total += weight[i]
        at = where[i]
        if at < 0:
            continue
        amount[at] += weight[i]
        if came[i] >= 0:
            need[at, came[i]] -= weight[i]
        if further.size:
            for p in range(width):
                need[at, p] += weight[i] * further[i, p]
    for i in range(count):
        space[i] += 2.0 ** -length[i]
        if parent[i] >= 0:
            space[parent[i]] -= 2.0 ** -length[i]
    for i in range(count):
        # Where nothing arrives, the smaller the better.
        amount[i] += 1e-6 * (1.0 + total) * max(0.0, space[i])
        for p in range(width):
            if decider[i] >= 0 and rows[decider[i], p]:
                need[i, p] = 0.0
            else:
                need[i, p] = max(0.0, need[i, p] + amount[i])
    return need


def costs(points: Points, need: _Floats) -> _Floats:
    """What a merge at each point costs, with nothing carved out of it."""
    found: _Floats = _costs(points.parent, points.union, need)
    return found


@compiled
def _costs(parent: Any, union: Any, need: Any) -> Any:
    count, width = union.shape
    sums, cost = need.copy(), np.zeros(count)
    for i in range(count - 1, -1, -1):
        for p in range(width):
            if union[i, p]:
                cost[i] += sums[i, p]
            if parent[i] >= 0:
                sums[parent[i], p] += sums[i, p]
    return cost


def choose(parent: _Ints, size: _Ints, entries: _Ints, cost: _Floats, limit: int) -> _Flags:
    """The points to merge at, by cost per benefit, until so many entries are left."""
    chosen: _Flags = _choose(parent, size, entries, cost.copy(), limit)
    return chosen


@compiled
def _choose(parent: Any, size: Any, entries: Any, cost: Any, limit: int) -> Any:
    count = parent.size
    benefit = entries - 1
    chosen, covered = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    left = 0
    for i in range(count):
        if parent[i] < 0:
            left += entries[i]
    heap = [(0.0, 0, 0)]
    heap.clear()
    version = np.zeros(count, np.int64)
    for i in range(count):
        if benefit[i] > 0:
            heap.append((cost[i] / benefit[i], i, 0))  # noqa: PERF401  # as numba understands it
    heapq.heapify(heap)
    while left > limit and len(heap):
        _, at, seen = heapq.heappop(heap)
        if covered[at] or version[at] != seen:
            continue
        chosen[at] = True
        left -= benefit[at]
        for i in range(at, at + size[at]):
            covered[i] = True
            if i > at:
                chosen[i] = False
        up = parent[at]
        while up >= 0:
            cost[up] = max(0.0, cost[up] - cost[at])
            benefit[up] -= benefit[at]
            version[up] += 1
            if benefit[up] > 0:
                heapq.heappush(heap, (cost[up] / benefit[up], up, version[up]))
            up = parent[up]
    return chosen


def take(points: Points, chosen: _Flags) -> tuple[_Ints, _Flags]:
    """What decides at each point with these merges: the point of a merge or entry, or -1; and the ports of each."""
    decides, rows = _taken(points.parent, points.decider, points.own, points.ports, chosen)
    return decides, rows


@compiled
def _taken(parent: Any, decider: Any, own: Any, ports: Any, chosen: Any) -> Any:
    decides, rows = np.empty(parent.size, np.int64), ports.copy()
    merge = np.full(parent.size, -1, np.int64)
    for i in range(parent.size):
        up = parent[i]
        merge[i] = i if chosen[i] else (merge[up] if up >= 0 else -1)
        decides[i] = merge[i] if merge[i] >= 0 else decider[i]
        if chosen[i] and up >= 0 and decider[up] >= 0:
            rows[i] |= ports[decider[up]]
        if own[i] and merge[i] >= 0:
            rows[merge[i]] |= ports[i]
    return decides, rows
