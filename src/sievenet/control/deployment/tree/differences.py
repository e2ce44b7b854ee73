"""What to tell a switch: the changes of its table since the last time, in an order that loses nothing.

The same as `passage.passage`, for what changed in the tree: additions with the longest first; ports that grow, then
those that are fewer; deletions with the shortest first.  If there is no room for all that comes beside all that goes,
region by region, with an umbrella over those that need one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sievenet.control.deployment.tree.layout import (
    ADD,
    AS_ONE,
    BEFORE,
    CHANGED,
    CLOSE,
    DELETE,
    ENTRIES,
    LENGTH,
    MERGE,
    MERGES,
    MODIFY,
    NOTED,
    ONE,
    OPEN,
    PARENT,
    THERE,
    TOLD,
    WAS,
    ZERO,
)
from sievenet.control.deployment.tree.merging import STACK
from sievenet.control.deployment.tree.nodes import collected, equal, prune
from sievenet.control.registrations.columns import key
from sievenet.control.registrations.trie.kernels import shared
from sievenet.jit import compiled

__all__ = ["changes", "forget", "listed", "steps", "write_steps"]

_NONE = np.uint64(0)
#: Numbers that are sorted one by one.
_FEW = 32


@compiled
def changes(a: Any) -> Any:
    """The nodes where the table is another than it was."""
    nodes = a.nodes
    found, count = np.empty(a.meta[NOTED], np.int64), 0
    for i in range(a.meta[NOTED]):
        node = a.changed[i]
        if nodes[node, BEFORE] != nodes[node, THERE] or (nodes[node, THERE] and not equal(a, node, AS_ONE, node, WAS)):
            found[count] = node
            count += 1
    return found[:count]


@compiled
def forget(a: Any) -> None:
    """What changed has been told, or is not to be."""
    count, a.meta[NOTED] = a.meta[NOTED], 0
    for i in range(count):
        a.nodes[a.changed[i], CHANGED] = 0
    for i in range(count):
        prune(a, a.changed[i])
    a.meta[TOLD] = a.nodes[0, ENTRIES]


@compiled
def steps(a: Any, room: int) -> Any:
    """Rows of what to do and a dz (its key in two words, its length), the ports of each, the most entries on the way.

    There is room for so many entries (-1: any number).
    """
    rows = np.empty((3 * a.meta[NOTED], 4), np.uint64)
    ports = np.empty((3 * a.meta[NOTED], a.masks.shape[2]), np.uint64)
    at, most = write_steps(a, room, rows, ports, 0)
    return rows[:at], ports[:at], most


@compiled
def write_steps(a: Any, room: int, rows: Any, ports: Any, first: int) -> Any:
    """The same, written from a row on; returns where they end, and the most entries."""
    found, size = changes(a), a.meta[TOLD]
    nodes, count = a.nodes, found.size
    new = 0
    for i in range(count):
        new += not nodes[found[i], BEFORE]
    if room < 0 or size + new <= room:
        at = _in_order(a, found, rows, ports, first, False)
    else:
        at = _by_regions(a, found, size, room, rows, ports, first)
    most = held = size
    for i in range(first, at):
        what = np.int64(rows[i, 0])
        held += (what in (ADD, OPEN)) - (what in (DELETE, CLOSE))
        most = max(most, held)
    forget(a)
    return at, most


@compiled
def _before(a: Any, one: int, other: int) -> Any:
    """Whether a dz comes before another: each does before all that it covers, and those before all others."""
    for w in range(2):
        if a.keys[one, w] != a.keys[other, w]:
            return a.keys[one, w] < a.keys[other, w]
    return a.nodes[one, LENGTH] < a.nodes[other, LENGTH]


@compiled
def _sort(numbers: Any) -> None:
    """Sort numbers; mostly they are few."""
    if numbers.size > _FEW:
        numbers.sort()
        return
    for i in range(1, numbers.size):
        each, j = numbers[i], i
        while j and numbers[j - 1] > each:
            numbers[j] = numbers[j - 1]
            j -= 1
        numbers[j] = each


@compiled
def _by_regions(a: Any, found: Any, size: int, room: int, rows: Any, ports: Any, at: int) -> Any:
    nodes, count, gap = a.nodes, found.size, 1
    while 3 * gap < count:
        gap = 3 * gap + 1
    while gap:  # in the order of dz
        for i in range(gap, count):
            node, j = found[i], i
            while j >= gap and _before(a, node, found[j - gap]):
                found[j] = found[j - gap]
                j -= gap
            found[j] = node
        gap //= 3
    first, growth, regions = np.empty(count + 1, np.int64), np.zeros(count, np.int64), 0
    top = -1
    for i in range(count):
        node = found[i]
        inside = top >= 0
        if inside:
            same = shared(a.keys[top, 0], a.keys[top, 1], a.keys[node, 0], a.keys[node, 1])
            inside = same >= nodes[top, LENGTH]
        if not inside:
            top = node
            first[regions] = i
            regions += 1
        growth[regions - 1] += nodes[node, THERE] - nodes[node, BEFORE]
    first[regions] = count
    turn = np.empty(regions, np.int64)
    for i in range(regions):
        turn[i] = (growth[i] + count) * regions + i
    _sort(turn)
    for each in turn:
        region = each % regions
        some = found[first[region] : first[region + 1]]
        new = 0
        for node in some:
            new += not nodes[node, BEFORE]
        if size + new > room and new < some.size:  # there is something to protect
            for what in (OPEN, CLOSE):
                if what == CLOSE:
                    at = _in_order(a, some, rows, ports, at, True)
                _row(a, some[0], what, rows, at)
                _in_use(a, some[0], ports[at, : a.masks.shape[2]])
                at += 1
        else:
            at = _in_order(a, some, rows, ports, at, False)
        size += growth[region]
    return at


@compiled
def _row(a: Any, node: int, what: int, rows: Any, at: int) -> None:
    rows[at, 0], rows[at, 3] = np.uint64(what), np.uint64(a.nodes[node, LENGTH])
    rows[at, 1], rows[at, 2] = key(a.keys[node, 0], a.keys[node, 1], a.nodes[node, LENGTH])


@compiled
def _in_order(a: Any, some: Any, rows: Any, ports: Any, at: int, deletions_first: bool) -> Any:
    nodes, words, count = a.nodes, a.masks.shape[2], some.size
    turn = np.empty(count, np.int64)
    for i in range(count):
        node = some[i]
        if not nodes[node, BEFORE]:
            when = 400 - nodes[node, LENGTH]
        elif not nodes[node, THERE]:
            when = nodes[node, LENGTH] + (0 if deletions_first else 1000)
        else:
            when = 500
            for w in range(words):
                if a.masks[node, WAS, w] & ~a.masks[node, AS_ONE, w]:
                    when = 501
        turn[i] = when * count + i
    _sort(turn)
    for each in turn:
        node = some[each % count]
        there = nodes[node, THERE]
        _row(a, node, (MODIFY if nodes[node, BEFORE] else ADD) if there else DELETE, rows, at)
        for w in range(words):
            ports[at, w] = a.masks[node, AS_ONE if there else WAS, w]
        at += 1
    return at


@compiled
def _in_use(a: Any, node: int, row: Any) -> None:
    """The ports that the table and what it was before use in a dz."""
    nodes, stack = a.nodes, np.empty(STACK, np.int64)
    for w in range(row.size):
        row[w] = _NONE
    stack[0], top = node, 1
    while top:
        top -= 1
        at = stack[top]
        if at >= 0:
            _unite(a, at, row, True, True)
            stack[top], stack[top + 1] = nodes[at, ONE], nodes[at, ZERO]
            top += 2
    now = before = True
    while (now or before) and nodes[node, PARENT] >= 0:  # and what is around it
        node = nodes[node, PARENT]
        there, was = _unite(a, node, row, now, before)
        now, before = now and not there, before and not was


@compiled
def _unite(a: Any, node: int, row: Any, now: bool, before: bool) -> Any:
    there = a.nodes[node, THERE]
    was = a.nodes[node, BEFORE] if a.nodes[node, CHANGED] else there
    for w in range(row.size):
        if now and there:
            row[w] |= a.masks[node, AS_ONE, w]
        if before and was:
            row[w] |= a.masks[node, WAS if a.nodes[node, CHANGED] else AS_ONE, w]
    return there, was


@compiled
def listed(a: Any, node: int, column: int) -> Any:
    """The nodes at and below one with an entry in the table, in the ideal table, or with a merge, in order."""
    nodes, stack = a.nodes, np.empty(STACK, np.int64)
    found, count = np.empty(64, np.int64), 0
    stack[0], top = node, 1
    while top:
        top -= 1
        at = stack[top]
        if at < 0 or (column == MERGE and not nodes[at, MERGES]):
            continue
        if nodes[at, column]:
            found = collected(found, count, at)
            count += 1
        stack[top], stack[top + 1] = nodes[at, ONE], nodes[at, ZERO]
        top += 2
    return found[:count]
