"""Merges in the tree: which entries belong to which, and what follows when either change.

An entry of the ideal table belongs to the smallest merge at or around it; all that belong to a merge are one entry,
with the ports of all of them and of the entry around the merge.  A walk below a merge leaves out other merges in it:
what belongs to those is carved out.  One to which nothing belongs is an entry as long as it lies in another, with the
ports of the entry around it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sievenet.control.deployment.tree.layout import (
    GIVEN,
    INNER,
    LENGTH,
    MERGE,
    MERGES,
    ONE,
    PARENT,
    WANT,
    WANTED,
    WANTS,
    ZERO,
)
from sievenet.control.deployment.tree.nodes import around, collected, count_merge, find, give, insert, note, outside
from sievenet.jit import compiled

__all__ = ["STACK", "arrange", "belonging", "merge_at", "merge_inside", "put_all", "put_each"]

#: Nodes that wait while a tree is walked through: two for each bit at most.
STACK = 264

_NONE = np.uint64(0)


@compiled
def _put(a: Any, hi: Any, lo: Any, length: Any, wanted: Any, row: Any) -> Any:
    """An entry of the ideal table comes, gets other ports, or goes; there must be room for two nodes.

    Returns a merge that is to be gathered anew, or -1.
    """
    nodes, masks, words = a.nodes, a.masks, a.masks.shape[2]
    node = insert(a, hi, lo, length)
    had, same, more = nodes[node, WANTED], nodes[node, WANTED] == wanted, True
    for w in range(words):
        ports = row[w] if wanted else _NONE
        more &= not masks[node, WANT, w] & ~ports
        same &= masks[node, WANT, w] == ports
    note(a, node)  # if nobody needs it, it goes when changes are next told
    if same:
        return -1
    nodes[node, WANTED] = wanted
    a.meta[WANTS] += wanted - had
    for w in range(words):
        masks[node, WANT, w] = row[w] if wanted else _NONE
    merge, stale = around(a, node), -1
    if merge < 0:
        give(a, node, wanted, masks[node, WANT])
    elif wanted and (more or not had):
        known = True
        for w in range(words):
            known &= not row[w] & ~masks[merge, INNER, w]
            masks[merge, INNER, w] |= row[w]
        if not known:
            _refresh(a, merge)
    else:
        stale = merge
    if nodes[node, MERGES] > nodes[node, MERGE]:  # entries around merges count for them
        for child in (nodes[node, ZERO], nodes[node, ONE]):
            _refresh_below(a, child)
    return stale


@compiled
def _refresh(a: Any, merge: int) -> None:
    """The entry of a merge."""
    words, beyond = a.masks.shape[2], outside(a, merge)
    row = np.empty(words, np.uint64)
    for w in range(words):
        row[w] = a.masks[merge, INNER, w] | (a.masks[beyond, WANT, w] if beyond >= 0 else _NONE)
    give(a, merge, 1, row)


@compiled
def _refresh_below(a: Any, node: int) -> None:
    """The entries of all merges at and below a node."""
    nodes, stack = a.nodes, np.empty(STACK, np.int64)
    stack[0], top = node, 1
    while top:
        top -= 1
        at = stack[top]
        if at < 0 or not nodes[at, MERGES]:
            continue
        if nodes[at, MERGE]:
            _refresh(a, at)
        stack[top], stack[top + 1] = nodes[at, ONE], nodes[at, ZERO]
        top += 2


@compiled
def belonging(a: Any, merge: int) -> Any:
    """The nodes of the entries that belong to a merge, in order."""
    nodes, stack = a.nodes, np.empty(STACK, np.int64)
    found, count = np.empty(16, np.int64), 0
    stack[0], top = merge, 1
    while top:
        top -= 1
        at = stack[top]
        if at < 0 or (nodes[at, MERGE] and at != merge):
            continue
        if nodes[at, WANTED]:
            found = collected(found, count, at)
            count += 1
        stack[top], stack[top + 1] = nodes[at, ONE], nodes[at, ZERO]
        top += 2
    return found[:count]


@compiled
def _gather(a: Any, merge: int) -> None:
    """What belongs to a merge has changed: its ports are others, or it is smaller, or there is none.

    One that is carved out of another stays as large as it is: what it gave up would go to the ports of the other.
    """
    nodes, masks, words = a.nodes, a.masks, a.masks.shape[2]
    mine = belonging(a, merge)
    tight = -1
    if mine.size:
        tight, last = mine[0], mine[mine.size - 1]
        while tight != last:
            if nodes[tight, LENGTH] >= nodes[last, LENGTH]:
                tight = nodes[tight, PARENT]
            else:
                last = nodes[last, PARENT]
    row = np.zeros(words, np.uint64)
    for node in mine:
        for w in range(words):
            row[w] |= masks[node, WANT, w]
    carved = merge > 0 and around(a, nodes[merge, PARENT]) >= 0
    if carved:
        tight = merge
    if tight != merge:
        _drop(a, merge)
        if mine.size > 1:
            count_merge(a, tight, 1)
        elif mine.size:
            give(a, tight, 1, row)
    if (mine.size or carved) and nodes[tight, MERGE]:
        for w in range(words):
            masks[tight, INNER, w] = row[w]
        _refresh(a, tight)
    if tight != merge:
        _close(a, merge)


@compiled
def _holds(a: Any, merge: int) -> Any:
    """Whether a merge is an entry: something belongs to it, or it is carved out of another."""
    some = merge > 0 and around(a, a.nodes[merge, PARENT]) >= 0
    for w in range(a.masks.shape[2]):
        some |= a.masks[merge, INNER, w] != _NONE
    return some


@compiled
def _close(a: Any, node: int) -> None:
    """There is no merge here any more: below it, those to which nothing belongs are carved out of nothing."""
    nodes, stack = a.nodes, np.empty(STACK, np.int64)
    stack[0], top = node, 1
    while top:
        top -= 1
        at = stack[top]
        if at < 0 or not nodes[at, MERGES]:
            continue
        if nodes[at, MERGE]:
            if _holds(a, at):
                continue  # and so are those in it
            _drop(a, at)
        stack[top], stack[top + 1] = nodes[at, ONE], nodes[at, ZERO]
        top += 2


@compiled
def _drop(a: Any, merge: int) -> None:
    """There is no merge here any more, and nothing takes its place."""
    count_merge(a, merge, -1)
    for w in range(a.masks.shape[2]):
        a.masks[merge, INNER, w] = _NONE
    give(a, merge, 0, a.masks[merge, INNER])


@compiled
def merge_at(a: Any, node: int) -> None:
    """Make all at and below a node one entry; there must be some."""
    nodes, masks, words = a.nodes, a.masks, a.masks.shape[2]
    outer = around(a, nodes[node, PARENT]) if node else -1
    row, stack = np.zeros(words, np.uint64), np.empty(STACK, np.int64)
    stack[0], top = node, 1
    while top:
        top -= 1
        at = stack[top]
        if at < 0:
            continue
        if nodes[at, MERGE]:  # what belongs to it is known
            for w in range(words):
                row[w] |= masks[at, INNER, w]
            if at != node:
                _drop(a, at)
            if not nodes[at, MERGES] - nodes[at, MERGE]:
                continue
        elif nodes[at, WANTED]:
            for w in range(words):
                row[w] |= masks[at, WANT, w]
            if at != node and nodes[at, GIVEN]:
                give(a, at, 0, row)
        stack[top], stack[top + 1] = nodes[at, ONE], nodes[at, ZERO]
        top += 2
    if not nodes[node, MERGE]:
        count_merge(a, node, 1)
    for w in range(words):
        masks[node, INNER, w] = row[w]
    _refresh(a, node)
    if outer >= 0:
        _gather(a, outer)


@compiled
def merge_inside(a: Any, hi: Any, lo: Any, length: int) -> Any:
    """The same for a dz, if there is anything in it; there must be room for two nodes."""
    below = find(a, hi, lo, length)[1]
    if below >= 0:
        merges = np.empty((1, 3), np.uint64)
        merges[0, 0], merges[0, 1], merges[0, 2] = hi, lo, np.uint64(length)
        arrange(a, hi, lo, length, merges)


@compiled
def arrange(a: Any, hi: Any, lo: Any, length: int, merges: Any) -> None:
    """Have these merges at a dz and below it, and no others there; there must be room for two nodes each, and two."""
    nodes, masks, words = a.nodes, a.masks, a.masks.shape[2]
    first = insert(a, hi, lo, length)
    note(a, first)
    stack, whose = np.empty(STACK, np.int64), np.empty(STACK, np.int64)
    stack[0], top = first, 1
    while top:  # those that there were
        top -= 1
        at = stack[top]
        if at < 0 or not nodes[at, MERGES]:
            continue
        stack[top], stack[top + 1] = nodes[at, ONE], nodes[at, ZERO]
        top += 2
        if nodes[at, MERGE]:
            count_merge(a, at, -1)
            for w in range(words):
                masks[at, INNER, w] = _NONE
    outer = around(a, first)
    for i in range(merges.shape[0]):
        node = insert(a, merges[i, 0], merges[i, 1], np.int64(merges[i, 2]))
        if not nodes[node, MERGE]:
            count_merge(a, node, 1)
    stack[0], whose[0], top = first, outer, 1
    while top:  # whose is what; an entry of no merge is one of the merged table
        top -= 1
        at, owner = stack[top], whose[top]
        if at < 0:
            continue
        if nodes[at, MERGE]:
            owner = at
        if nodes[at, WANTED] and owner >= 0 and owner != outer:
            for w in range(words):
                masks[owner, INNER, w] |= masks[at, WANT, w]
        if owner != at:
            if nodes[at, WANTED] and owner < 0:
                give(a, at, 1, masks[at, WANT])
            elif nodes[at, GIVEN]:
                give(a, at, 0, masks[at, WANT])
        stack[top], stack[top + 1] = nodes[at, ONE], nodes[at, ZERO]
        whose[top], whose[top + 1] = owner, owner
        top += 2
    stack[0], top = first, 1
    while top:  # the entries of merges
        top -= 1
        at = stack[top]
        if at < 0 or not nodes[at, MERGES]:
            continue
        stack[top], stack[top + 1] = nodes[at, ONE], nodes[at, ZERO]
        top += 2
        if nodes[at, MERGE]:
            if _holds(a, at):
                _refresh(a, at)
            else:
                _drop(a, at)
    if outer >= 0:
        _gather(a, outer)


@compiled
def put_each(a: Any, rows: Any, sets: Any) -> None:
    """Entries of the ideal table change: rows of a key, its length and whether there is one; there must be room."""
    stale, count = np.empty(rows.shape[0], np.int64), 0
    for i in range(rows.shape[0]):
        merge = _put(a, rows[i, 0], rows[i, 1], np.int64(rows[i, 2]), np.int64(rows[i, 3]), sets[i])
        known = merge < 0
        for j in range(count):
            known |= stale[j] == merge
        if not known:
            stale[count] = merge
            count += 1
    for i in range(count):  # each once, whatever it lost
        if a.nodes[stale[i], MERGE]:
            _gather(a, stale[i])


@compiled
def put_all(a: Any, rows: Any, sets: Any) -> None:
    """The same, to be called from outside."""
    put_each(a, rows, sets)
