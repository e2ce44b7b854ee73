"""Nodes of the tree: finding and making them, and what follows from an entry that changes.

`give` is the heart: an entry of the merged table changes, and what is *whole* climbs from there as long as something
is different.  A dz is whole if it is an entry, or if both its halves are; then it has one set of ports if its halves
have the same.  It is in the table iff it is whole with one set of ports and its other half is not the same, for then
the dz around both is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sievenet.control.deployment.tree.layout import (
    AS_ONE,
    BEFORE,
    CHANGED,
    DIRTY,
    ENTRIES,
    FREE,
    GIVEN,
    GIVES,
    LENGTH,
    MADE,
    MERGE,
    MERGES,
    NOTED,
    ONE,
    PARENT,
    SETS,
    THERE,
    WANTED,
    WAS,
    WHOLE,
    ZERO,
)
from sievenet.control.registrations.trie.kernels import bit, shared
from sievenet.jit import compiled

__all__ = [
    "around",
    "collected",
    "count_merge",
    "equal",
    "find",
    "following",
    "give",
    "insert",
    "note",
    "outside",
    "prune",
]

_NONE = np.uint64(0)
_ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


@compiled
def equal(a: Any, one: int, mine: int, other: int, its: int) -> Any:
    """Whether a set of one node is that of another."""
    same = True
    for w in range(a.masks.shape[2]):
        same &= a.masks[one, mine, w] == a.masks[other, its, w]
    return same


@compiled
def _new(a: Any, above: int, hi: Any, lo: Any, length: Any) -> Any:
    """A node with the first bits of a key, on the proper side of another."""
    nodes, node = a.nodes, a.meta[FREE]
    if node >= 0:
        a.meta[FREE] = nodes[node, PARENT]
    else:
        node = a.meta[MADE]
        a.meta[MADE] += 1
    for column in range(nodes.shape[1]):
        nodes[node, column] = 0
    nodes[node, PARENT], nodes[node, ZERO], nodes[node, ONE] = above, -1, -1
    nodes[node, LENGTH], nodes[node, DIRTY] = length, 1
    a.keys[node, 0] = hi if length >= 64 else (hi & ~(_ALL >> np.uint64(length)))
    a.keys[node, 1] = _NONE if length <= 64 else (lo & ~(_ALL >> np.uint64(length - 64)))
    for each in range(SETS):
        for w in range(a.masks.shape[2]):
            a.masks[node, each, w] = _NONE
    nodes[above, ZERO + bit(hi, lo, nodes[above, LENGTH])] = node
    return node


@compiled
def find(a: Any, hi: Any, lo: Any, length: Any) -> Any:
    """The innermost node at or around a dz, and the first one at or below it, if there is any (else -1)."""
    nodes, at = a.nodes, 0
    while nodes[at, LENGTH] < length:
        child = nodes[at, ZERO + bit(hi, lo, nodes[at, LENGTH])]
        if child < 0:
            return at, -1
        same = shared(hi, lo, a.keys[child, 0], a.keys[child, 1])
        if nodes[child, LENGTH] > length or same < nodes[child, LENGTH]:
            return at, (child if same >= length else -1)
        at = child
    return at, at


@compiled
def insert(a: Any, hi: Any, lo: Any, length: Any) -> Any:
    """The node of a dz, made if there is none; there must be room for two.

    Keys are looked at where the way down ends: as far as that one has the same bits, all on the way have them.
    """
    nodes, at = a.nodes, 0
    while nodes[at, LENGTH] < length:
        child = nodes[at, ZERO + bit(hi, lo, nodes[at, LENGTH])]
        if child < 0:
            break
        at = child
    end_hi, end_lo, below = a.keys[at, 0], a.keys[at, 1], -1
    same = min(shared(hi, lo, end_hi, end_lo), length)
    while at and nodes[at, LENGTH] > same:
        below = at
        at = nodes[at, PARENT]
    if nodes[at, LENGTH] >= length:
        return at
    if below >= 0:  # a node between
        at = _new(a, at, hi, lo, same)
        nodes[at, ZERO + bit(end_hi, end_lo, same)] = below
        nodes[below, PARENT] = at
        nodes[at, MERGES], nodes[at, ENTRIES] = nodes[below, MERGES], nodes[below, ENTRIES]
    return at if same == length and below >= 0 else _new(a, at, hi, lo, length)


@compiled
def prune(a: Any, node: int) -> None:
    """Take out a node that nothing needs, and those above it that were needed only for it."""
    nodes = a.nodes
    while node > 0 and nodes[node, LENGTH] >= 0:  # else it is gone already
        child, other = nodes[node, ZERO], nodes[node, ONE]
        if nodes[node, WANTED] or nodes[node, MERGE] or nodes[node, CHANGED] or (child >= 0 and other >= 0):
            return
        child = max(child, other)
        above = nodes[node, PARENT]
        if nodes[above, ZERO] == node:
            nodes[above, ZERO] = child
        else:
            nodes[above, ONE] = child
        if child >= 0:
            nodes[child, PARENT] = above
        for each in range(SETS):
            for w in range(a.masks.shape[2]):
                a.masks[node, each, w] = _NONE
        nodes[node, PARENT], nodes[node, LENGTH] = a.meta[FREE], -1
        a.meta[FREE] = node
        if child >= 0:
            return
        node = above


# -- what follows from a change --------------------------------------------------------------


@compiled
def note(a: Any, node: int) -> None:
    """Remember what the table has here, before that changes."""
    nodes = a.nodes
    if not nodes[node, CHANGED]:
        nodes[node, CHANGED] = 1
        nodes[node, BEFORE] = nodes[node, THERE]
        for w in range(a.masks.shape[2]):
            a.masks[node, WAS, w] = a.masks[node, AS_ONE, w]
        a.changed[a.meta[NOTED]] = node
        a.meta[NOTED] += 1


@compiled
def _twin(a: Any, node: int) -> Any:
    """The node of the other half, or -1."""
    nodes = a.nodes
    above = nodes[node, PARENT]
    if above < 0 or nodes[above, LENGTH] + 1 != nodes[node, LENGTH]:
        return -1
    other = nodes[above, ONE] if nodes[above, ZERO] == node else nodes[above, ZERO]
    return other if other >= 0 and nodes[other, LENGTH] == nodes[node, LENGTH] else -1


@compiled
def _place(a: Any, node: int) -> Any:
    """Whether a dz is in the table; how many entries that makes more."""
    nodes = a.nodes
    there = 0
    if nodes[node, WHOLE] == 1:
        other = _twin(a, node)
        there = 0 if other >= 0 and nodes[other, WHOLE] == 1 and equal(a, node, AS_ONE, other, AS_ONE) else 1
    more = there - nodes[node, THERE]
    if more:
        note(a, node)
        nodes[node, THERE] = there
    return more


@compiled
def give(a: Any, node: int, given: int, row: Any) -> None:
    """An entry of the merged table changes, or goes: climb as long as something is different."""
    nodes, masks, words = a.nodes, a.masks, a.masks.shape[2]
    same = nodes[node, GIVEN] == given
    for w in range(words):
        ports = row[w] if given else _NONE
        same &= masks[node, GIVES, w] == ports
        masks[node, GIVES, w] = ports
    if same:
        return
    nodes[node, GIVEN] = given
    at, more, climbed = node, 0, False
    while True:
        left, right = nodes[at, ZERO], nodes[at, ONE]
        inner = nodes[at, LENGTH] + 1
        halves = left >= 0 and right >= 0 and nodes[left, LENGTH] == inner and nodes[right, LENGTH] == inner
        if halves and nodes[left, WHOLE] and nodes[right, WHOLE]:
            alike = nodes[left, WHOLE] == 1 and nodes[right, WHOLE] == 1 and equal(a, left, AS_ONE, right, AS_ONE)
            whole, source, column = (1 if alike else 2), left, AS_ONE
        else:
            whole, source, column = nodes[at, GIVEN], at, GIVES
        same = nodes[at, WHOLE] == whole
        for w in range(words):
            ports = masks[source, column, w] if whole == 1 else _NONE
            same &= masks[at, AS_ONE, w] == ports
        if same:
            break
        climbed = True
        note(a, at)
        nodes[at, WHOLE] = whole
        for w in range(words):
            masks[at, AS_ONE, w] = masks[source, column, w] if whole == 1 else _NONE
        more += _place(a, at)
        nodes[at, ENTRIES] += more
        nodes[at, DIRTY] = 1
        other, above = _twin(a, at), nodes[at, PARENT]
        if other >= 0:
            its = _place(a, other)
            nodes[other, ENTRIES] += its
            nodes[other, DIRTY] = 1
            more += its
        adjacent = above >= 0 and nodes[above, LENGTH] + 1 == nodes[at, LENGTH]
        at = above
        if not adjacent:
            break
    while climbed and at >= 0:
        nodes[at, ENTRIES] += more
        nodes[at, DIRTY] = 1
        at = nodes[at, PARENT]


@compiled
def following(a: Any, node: Any, top: Any, inside: Any) -> Any:
    """The next node on a walk through all at and below another, in order, with those inside of this one or not; or -1.

    It needs no list of those that wait: to ask for memory takes longer than most walks.
    """
    nodes = a.nodes
    if inside:
        for child in (nodes[node, ZERO], nodes[node, ONE]):
            if child >= 0:
                return np.int64(child)
    while node != top:
        above = np.int64(nodes[node, PARENT])
        other = nodes[above, ONE]
        if other >= 0 and other != node:
            return np.int64(other)
        node = above
    return np.int64(-1)


@compiled
def collected(found: Any, count: int, node: int) -> Any:
    """A list of so many nodes with one more behind them; a larger one if there was no room."""
    if count == found.size:
        larger = np.empty(2 * count, np.int64)
        larger[:count] = found
        found = larger
    found[count] = node
    return found


@compiled
def count_merge(a: Any, node: int, more: int) -> None:
    """A merge comes, or goes."""
    a.nodes[node, MERGE] += more
    note(a, node)
    while node >= 0:
        a.nodes[node, MERGES] += more
        node = a.nodes[node, PARENT]


@compiled
def around(a: Any, node: int) -> Any:
    """The smallest merge at or around a node, or -1."""
    while node >= 0 and not a.nodes[node, MERGE]:
        node = a.nodes[node, PARENT]
    return node


@compiled
def outside(a: Any, node: int) -> Any:
    """The smallest entry of the ideal table around a node, or -1."""
    node = a.nodes[node, PARENT]
    while node >= 0 and not a.nodes[node, WANTED]:
        node = a.nodes[node, PARENT]
    return node
