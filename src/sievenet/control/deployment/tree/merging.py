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
    MERGE,
    MERGES,
    ONE,
    PARENT,
    WANT,
    WANTED,
    WANTS,
    ZERO,
)
from sievenet.control.deployment.tree.nodes import (
    around,
    collected,
    count_merge,
    find,
    following,
    give,
    insert,
    note,
    outside,
)
from sievenet.jit import compiled

__all__ = ["STACK", "arrange", "belonging", "merge_at", "merge_inside", "put_all", "put_each"]

#: Nodes that wait while a tree is walked through: two for each bit at most.
STACK = 264

_NONE = np.uint64(0)


@compiled
def _put(a: Any, hi: Any, lo: Any, length: Any, wanted: Any, row: Any, lost: Any) -> Any:
    """An entry of the ideal table comes, gets other ports, or goes; there must be room for two nodes.

    Returns a merge that is to be gathered anew, or -1, and in `lost` the ports that the entry has no more.
    """
    nodes, masks, words = a.nodes, a.masks, a.masks.shape[2]
    node = insert(a, hi, lo, length)
    had, same, more = nodes[node, WANTED], nodes[node, WANTED] == wanted, True
    for w in range(words):
        ports = row[w] if wanted else _NONE
        lost[w] = masks[node, WANT, w] & ~ports
        more &= not lost[w]
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
        for w in range(words):
            masks[merge, INNER, w] |= masks[node, WANT, w]
    if nodes[node, MERGES] > nodes[node, MERGE]:  # entries around merges count for them
        for child in (nodes[node, ZERO], nodes[node, ONE]):
            _refresh_below(a, np.int64(child))
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
def _refresh_below(a: Any, node: Any) -> None:
    """The entries of all merges at and below a node."""
    at = node
    while at >= 0:
        if a.nodes[at, MERGE]:
            _refresh(a, at)
        at = following(a, at, node, a.nodes[at, MERGES] > 0)


@compiled
def belonging(a: Any, merge: int) -> Any:
    """The nodes of the entries that belong to a merge, in order."""
    nodes, at = a.nodes, merge
    found, count = np.empty(16, np.int64), 0
    while at >= 0:
        mine = at == merge or not nodes[at, MERGE]
        if mine and nodes[at, WANTED]:
            found = collected(found, count, at)
            count += 1
        at = following(a, at, merge, mine)
    return found[:count]


@compiled
def _some(a: Any, node: Any) -> Any:
    """Whether entries at or below a node belong to the merge around it."""
    nodes, at = a.nodes, node
    while at >= 0:
        mine = not nodes[at, MERGE]
        if mine and nodes[at, WANTED]:
            return True
        at = following(a, at, node, mine)
    return False


@compiled
def _extent(a: Any, merge: int) -> Any:
    """The smallest node around all entries that belong to a merge, or -1, and whether they are several."""
    nodes, at = a.nodes, merge
    while True:
        left, right = _some(a, np.int64(nodes[at, ZERO])), _some(a, np.int64(nodes[at, ONE]))
        if nodes[at, WANTED]:
            return at, left or right
        if left and right:
            return at, True
        if not left and not right:
            return -1, False
        at = nodes[at, ZERO] if left else nodes[at, ONE]


@compiled
def _left(a: Any, merge: int, lost: Any, row: Any) -> None:
    """The ports of a merge, of whose entries some have lost some ports: others may have these."""
    nodes, masks, at, open_ = a.nodes, a.masks, merge, False
    for w in range(row.size):
        row[w] = masks[merge, INNER, w] & ~lost[w]
        open_ |= row[w] != masks[merge, INNER, w]
    while at >= 0 and open_:
        mine = at == merge or not nodes[at, MERGE]
        if mine and nodes[at, WANTED]:
            open_ = False
            for w in range(row.size):
                row[w] |= masks[at, WANT, w]
                open_ |= row[w] != masks[merge, INNER, w]
        at = following(a, at, merge, mine)


@compiled
def _gather(a: Any, merge: int, lost: Any) -> None:
    """What belongs to a merge has lost ports: it has fewer, or is smaller, or there is none.

    One that is carved out of another stays as large as it is: what it gave up would go to the ports of the other.
    INNER holds at least what it has now.
    """
    nodes, masks, words = a.nodes, a.masks, a.masks.shape[2]
    tight, several = _extent(a, merge)
    some = tight >= 0
    row = np.empty(words, np.uint64)
    _left(a, merge, lost, row)
    carved = merge > 0 and around(a, nodes[merge, PARENT]) >= 0
    if carved:
        tight = merge
    if tight != merge:
        _drop(a, merge)
        if several:
            count_merge(a, tight, 1)
        elif some:
            give(a, tight, 1, row)
    if (some or carved) and nodes[tight, MERGE]:
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
    nodes, at = a.nodes, node
    while at >= 0:
        holds = nodes[at, MERGE] > 0 and _holds(a, at)
        if nodes[at, MERGE] and not holds:
            _drop(a, at)
        at = following(a, at, node, nodes[at, MERGES] > 0 and not holds)  # those in one that holds are as they were


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
    row, at = np.zeros(words, np.uint64), node
    while at >= 0:
        further = True
        if nodes[at, MERGE]:  # what belongs to it is known
            for w in range(words):
                row[w] |= masks[at, INNER, w]
            if at != node:
                _drop(a, at)
            further = nodes[at, MERGES] > nodes[at, MERGE]
        elif nodes[at, WANTED]:
            for w in range(words):
                row[w] |= masks[at, WANT, w]
            if at != node and nodes[at, GIVEN]:
                give(a, at, 0, row)
        at = following(a, at, node, further)
    if not nodes[node, MERGE]:
        count_merge(a, node, 1)
    for w in range(words):
        masks[node, INNER, w] = row[w]
    _refresh(a, node)
    if outer >= 0:
        _gather(a, outer, masks[node, INNER])


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
    at = first
    while at >= 0:  # those that there were
        further = nodes[at, MERGES] > 0
        if nodes[at, MERGE]:
            count_merge(a, at, -1)
            for w in range(words):
                masks[at, INNER, w] = _NONE
        at = following(a, at, first, further)
    outer = around(a, first)
    for i in range(merges.shape[0]):
        node = insert(a, merges[i, 0], merges[i, 1], np.int64(merges[i, 2]))
        if not nodes[node, MERGE]:
            count_merge(a, node, 1)
    stack, whose = np.empty(STACK, np.int64), np.empty(STACK, np.int64)
    stack[0], whose[0], top = first, outer, 1
    while top:  # whose is what; an entry of no merge is one of the merged table
        top -= 1
        at, owner = stack[top], whose[top]
        if at < 0:
            continue
        if nodes[at, MERGE]:
            owner = at
        if nodes[at, WANTED] and owner >= 0:
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
    at = first
    while at >= 0:  # the entries of merges
        further = nodes[at, MERGES] > 0
        if nodes[at, MERGE]:
            if _holds(a, at):
                _refresh(a, at)
            else:
                _drop(a, at)
        at = following(a, at, first, further)
    if outer >= 0:
        _gather(a, outer, masks[outer, INNER])


@compiled
def put_each(a: Any, rows: Any, sets: Any, stale: Any, lost: Any) -> None:
    """Entries of the ideal table change: rows of a key, its length and whether there is one; there must be room.

    `stale` and `lost` are places to write to: a number for each row, a set for each and one more.
    """
    count, words = 0, a.masks.shape[2]
    for i in range(rows.shape[0]):
        its = lost[count]
        merge = _put(a, rows[i, 0], rows[i, 1], np.int64(rows[i, 2]), np.int64(rows[i, 3]), sets[i], its)
        known = merge < 0
        for j in range(count):
            if stale[j] == merge:
                known = True
                for w in range(words):
                    lost[j, w] |= its[w]
        if not known:
            stale[count] = merge
            count += 1
    for i in range(count):  # each once, whatever it lost
        if a.nodes[stale[i], MERGE]:
            _gather(a, stale[i], lost[i])


@compiled
def put_all(a: Any, rows: Any, sets: Any) -> None:
    """The same, to be called from outside."""
    put_each(a, rows, sets, np.empty(rows.shape[0], np.int64), np.empty((rows.shape[0] + 1, sets.shape[1]), np.uint64))
