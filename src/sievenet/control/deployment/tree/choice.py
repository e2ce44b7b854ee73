"""Choosing a merge at once, when an entry does not fit (the local aggregation of PLEROMA).

A node is a *lowest* merge point if it has several entries of the table at and below it, and none of those below it
has: two or three entries become one there.

    00 → a
    010 → b ┐ 01   lowest         merging 00 and 010 would take 011 along: not lowest
    011 → c ┘

- **LA-B** takes the one nearest to the new entry: down from the root, towards it as long as there are several.
- **LA-C** takes the one that adds least: space sent too much, summed over ports.  Every node keeps the least of all
  below it; a change makes those around it out of date, which are looked at again when somebody asks.  What an entry
  further out has to do with it counts as it was then.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sievenet.control.deployment.tree.layout import (
    AS_ONE,
    BEST,
    DIRTY,
    ENTRIES,
    GIVES,
    LENGTH,
    MERGE,
    MERGES,
    ONE,
    PARENT,
    THERE,
    ZERO,
)
from sievenet.control.deployment.tree.merging import STACK, merge_at
from sievenet.control.registrations.trie.kernels import bit
from sievenet.jit import compiled

__all__ = ["fit", "widest"]

_NONE = np.uint64(0)
_LOW = np.uint64(1)


@compiled
def fit(a: Any, limit: int, least: bool, hi: Any, lo: Any) -> Any:
    """Merge until so many entries are left, where that adds least or beside a dz; how many merges it took."""
    nodes, count = a.nodes, 0
    if limit < 1:
        if nodes[0, ENTRIES] > nodes[0, THERE]:  # more than an entry for everything
            merge_at(a, 0)
            count = 1
        return count
    while nodes[0, ENTRIES] > limit:
        merge_at(a, _cheapest(a) if least else _nearest(a, hi, lo))
        count += 1
    return count


@compiled
def widest(a: Any, tried: Any) -> Any:
    """Of the merges that lie in no other the one with most space, summed over ports; -1 if all were tried."""
    nodes, stack = a.nodes, np.empty(STACK, np.int64)
    found, most = -1, 0.0
    stack[0], top = 0, 1
    while top:
        top -= 1
        at = stack[top]
        if at < 0 or not nodes[at, MERGES]:
            continue
        if not nodes[at, MERGE]:
            stack[top], stack[top + 1] = nodes[at, ONE], nodes[at, ZERO]
            top += 2
            continue
        ports = 0
        for w in range(a.masks.shape[2]):
            rest = a.masks[at, GIVES, w]
            while rest:
                rest &= rest - _LOW
                ports += 1
        if ports * 2.0 ** -nodes[at, LENGTH] > most:
            known = False
            for i in range(tried.shape[0]):
                same = tried[i, 2] == np.uint64(nodes[at, LENGTH])
                known |= same and tried[i, 0] == a.keys[at, 0] and tried[i, 1] == a.keys[at, 1]
            if not known:
                found, most = at, ports * 2.0 ** -nodes[at, LENGTH]
    return found


@compiled
def _nearest(a: Any, hi: Any, lo: Any) -> Any:
    nodes, at = a.nodes, 0
    beside = True
    while True:
        first = ZERO
        if beside and nodes[at, LENGTH] < 128:
            first = ZERO + bit(hi, lo, nodes[at, LENGTH])
        child, other = nodes[at, first], nodes[at, ZERO + ONE - first]
        if child >= 0 and nodes[child, ENTRIES] > 1:
            at = child
        elif other >= 0 and nodes[other, ENTRIES] > 1:
            at, beside = other, False
        else:
            return at


@compiled
def _cheapest(a: Any) -> Any:
    _appraise(a)
    nodes, best, at = a.nodes, a.best, 0
    while True:
        further = -1
        for child in (nodes[at, ZERO], nodes[at, ONE]):
            if child < 0 or nodes[child, ENTRIES] <= 1:
                continue
            if further < 0 or best[child, BEST] < best[further, BEST]:
                further = child
        if further < 0:
            return at
        at = further


@compiled
def _appraise(a: Any) -> None:
    """What the cheapest merge below each node costs, where that is out of date."""
    nodes, best, stack = a.nodes, a.best, np.empty(STACK, np.int64)
    stack[0], top = 0, 1
    while top:
        at = stack[top - 1]
        left, right = nodes[at, ZERO], nodes[at, ONE]
        several = left >= 0 and nodes[left, ENTRIES] > 1
        waits = False
        if several and nodes[left, DIRTY]:
            stack[top] = left
            top += 1
            waits = True
        if right >= 0 and nodes[right, ENTRIES] > 1:
            several = True
            if nodes[right, DIRTY]:
                stack[top] = right
                top += 1
                waits = True
        if waits:
            continue
        top -= 1
        nodes[at, DIRTY] = 0
        best[at, BEST] = np.inf
        if several:
            for child in (left, right):
                if child >= 0 and nodes[child, ENTRIES] > 1:
                    best[at, BEST] = min(best[at, BEST], best[child, BEST])
        elif nodes[at, ENTRIES] > 1:
            best[at, BEST] = _price(a, at)


@compiled
def _only(a: Any, node: int) -> Any:
    """The only entry at and below a node, or -1."""
    nodes = a.nodes
    if node < 0 or not nodes[node, ENTRIES]:
        return -1
    while not nodes[node, THERE]:
        left = nodes[node, ZERO]
        node = left if left >= 0 and nodes[left, ENTRIES] else nodes[node, ONE]
    return node


@compiled
def _beside(a: Any, node: int, union: Any) -> Any:
    """How many ports of a set an entry has not; none is an entry without ports."""
    count = 0
    for w in range(union.size):
        rest = union[w] & ~a.masks[node, AS_ONE, w] if node >= 0 else union[w]
        while rest:
            rest &= rest - _LOW
            count += 1
    return count


@compiled
def _price(a: Any, node: int) -> Any:
    """The space that a merge at a lowest merge point adds, summed over ports."""
    nodes = a.nodes
    left, right = _only(a, nodes[node, ZERO]), _only(a, nodes[node, ONE])
    over = node
    while over >= 0 and not nodes[over, THERE]:
        over = nodes[over, PARENT]
    union = np.zeros(a.masks.shape[2], np.uint64)
    gap, added = 2.0 ** -nodes[node, LENGTH], 0.0
    for entry in (left, right, node if over == node else -1):
        if entry >= 0:
            for w in range(union.size):
                union[w] |= a.masks[entry, AS_ONE, w]
    for entry in (left, right):
        if entry >= 0:
            size = 2.0 ** -nodes[entry, LENGTH]
            gap -= size
            added += size * _beside(a, entry, union)
    return added + gap * _beside(a, over, union)
