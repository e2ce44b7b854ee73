"""Registering many dz at once, and keeping the tree in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sievenet.control.registrations.trie.layout import (
    COUNT,
    FREE,
    FREE_ITEM,
    FRM,
    IDLE,
    ITEMS,
    LENGTH,
    LIVE,
    MADE,
    NEXT,
    OFFERS,
    ONE,
    PARENT,
    REMEMBERED,
    STALE,
    TO,
    WANTS,
    WAS,
    WIRE,
    ZERO,
    Arrays,
)
from sievenet.jit import compiled

__all__ = [
    "bit",
    "clear",
    "copy",
    "forget",
    "leading",
    "own",
    "prune",
    "register",
    "remember_all",
    "shared",
    "sum_up_all",
    "tally",
]

_Longs = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]

_NONE = np.uint64(0)
_ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_LOW = np.uint64(1)


# -- masks -----------------------------------------------------------------------------------
# In loops, since array assignments bring seconds of compiling with them.


@compiled
def clear(row: _Words) -> None:
    """No wire."""
    for w in range(row.shape[0]):
        row[w] = _NONE


@compiled
def copy(row: _Words, into: _Words) -> None:
    """The same wires."""
    for w in range(row.shape[0]):
        into[w] = row[w]


# -- keys ------------------------------------------------------------------------------------


@compiled
def leading(word: np.uint64) -> int:
    """How many zeros a word that is not zero begins with."""
    count = 0
    for step in (32, 16, 8, 4, 2, 1):
        if word >> np.uint64(64 - step) == _NONE:
            count += step
            word = word << np.uint64(step)
    return count


@compiled
def shared(hi: np.uint64, lo: np.uint64, other_hi: np.uint64, other_lo: np.uint64) -> int:
    """With how many equal bits two keys begin."""
    if hi != other_hi:
        return leading(hi ^ other_hi)
    return 64 + leading(lo ^ other_lo) if lo != other_lo else 128


@compiled
def bit(hi: np.uint64, lo: np.uint64, at: int) -> Any:
    """A bit of a key."""
    word = hi >> np.uint64(63 - at) if at < 64 else lo >> np.uint64(127 - at)
    return np.int64(word & _LOW)


@compiled
def _aligned(hi: np.uint64, lo: np.uint64) -> tuple[np.uint64, np.uint64, int]:
    """The bits behind the leading one of a key, left-aligned, and how many they are."""
    length = 127 - leading(hi) if hi else 63 - leading(lo)
    shift = 128 - length
    if shift < 64:
        return (hi << np.uint64(shift)) | (lo >> np.uint64(64 - shift)), lo << np.uint64(shift), length
    return (lo << np.uint64(shift - 64) if shift < 128 else _NONE), _NONE, length


@compiled
def _hang(a: Arrays, above: int, hi: np.uint64, lo: np.uint64, length: int) -> int:
    """A new node on the proper side of `above`, with the first bits of a key."""
    meta, nodes = a.meta, a.nodes
    node = meta[FREE]
    if node >= 0:
        meta[FREE] = nodes[node, PARENT]
    else:
        node = meta[MADE]
        meta[MADE] += 1
    meta[LIVE] += 1
    nodes[node, PARENT], nodes[node, LENGTH], nodes[node, STALE] = above, length, 0
    for column in (ZERO, ONE, WANTS, OFFERS, WAS):
        nodes[node, column] = -1
    a.keys[node, 0] = hi if length >= 64 else (hi & ~(_ALL >> np.uint64(length)))
    a.keys[node, 1] = _NONE if length <= 64 else (lo & ~(_ALL >> np.uint64(length - 64)))
    for side in (TO, FRM):
        clear(a.sub[node, side])
    nodes[above, ZERO + bit(hi, lo, nodes[above, LENGTH])] = node
    return node


@compiled
def _place(a: Arrays, hi: np.uint64, lo: np.uint64, length: int) -> int:
    """The node of a dz, made if there is none."""
    nodes, keys = a.nodes, a.keys
    node = 0
    while nodes[node, LENGTH] < length:
        child = nodes[node, ZERO + bit(hi, lo, nodes[node, LENGTH])]
        if child < 0:
            return _hang(a, node, hi, lo, length)
        same = min(shared(hi, lo, keys[child, 0], keys[child, 1]), length, nodes[child, LENGTH])
        if same == nodes[child, LENGTH]:
            node = child
            continue
        fork = _hang(a, node, hi, lo, same)
        for side in (TO, FRM):
            copy(a.sub[child, side], a.sub[fork, side])
        nodes[fork, STALE] = nodes[child, STALE]
        nodes[child, PARENT] = fork
        nodes[fork, ZERO + bit(keys[child, 0], keys[child, 1], same)] = child
        node = fork
    return node


# -- registering -----------------------------------------------------------------------------


@compiled
def own(a: Arrays, node: int, side: int, row: _Words) -> None:
    """Add the ways of those registered exactly here."""
    item = a.nodes[node, WANTS + side]
    while item >= 0:
        way = a.ways[a.items[item, WIRE], side]
        for w in range(row.shape[0]):
            row[w] |= way[w]
        item = a.items[item, NEXT]


@compiled
def _item(a: Arrays, node: int, side: int, wire: int) -> int:
    """What is registered here for a wire, or -1."""
    item = a.nodes[node, WANTS + side]
    while item >= 0 and a.items[item, WIRE] != wire:
        item = a.items[item, NEXT]
    return item


@compiled
def _touch(a: Arrays, node: int) -> None:
    """Remember what was, before it changes for the first time."""
    nodes = a.nodes
    if nodes[node, WAS] >= 0:
        return
    slot = a.meta[REMEMBERED]
    a.meta[REMEMBERED] += 1
    nodes[node, WAS] = slot
    for side in (TO, FRM):
        row = a.was[slot, side]
        clear(row)
        own(a, node, side, row)
    while node >= 0 and not nodes[node, STALE]:
        nodes[node, STALE] = 1
        node = nodes[node, PARENT]


@compiled
def _covered(a: Arrays, node: int, side: int, wire: int) -> bool:
    """Whether the wire is registered above, at a node that has not changed: then this one makes no difference."""
    above = a.nodes[node, PARENT]
    while above >= 0:
        if a.nodes[above, WAS] < 0 and _item(a, above, side, wire) >= 0:
            return True
        above = a.nodes[above, PARENT]
    return False


@compiled
def _add(a: Arrays, node: int, side: int, wire: int) -> None:
    items, meta = a.items, a.meta
    item = _item(a, node, side, wire)
    if item >= 0:
        items[item, COUNT] += 1
        return
    if not _covered(a, node, side, wire):
        _touch(a, node)
    item = meta[FREE_ITEM]
    if item >= 0:
        meta[FREE_ITEM] = items[item, NEXT]
    else:
        item = meta[ITEMS]
        meta[ITEMS] += 1
    items[item, WIRE], items[item, COUNT], items[item, NEXT] = wire, 1, a.nodes[node, WANTS + side]
    a.nodes[node, WANTS + side] = item
    way = a.ways[wire, side]
    wider = True
    while wider and node >= 0:  # tell those above
        wider = False
        sub = a.sub[node, side]
        for w in range(way.shape[0]):
            if way[w] & ~sub[w]:
                sub[w] |= way[w]
                wider = True
        node = a.nodes[node, PARENT]


@compiled
def _remove(a: Arrays, node: int, side: int, wire: int, row: _Words) -> None:
    nodes, items, meta = a.nodes, a.items, a.meta
    item = _item(a, node, side, wire)
    if item < 0:
        raise KeyError("nothing is registered there")
    items[item, COUNT] -= 1
    if items[item, COUNT]:
        return
    if not _covered(a, node, side, wire):
        _touch(a, node)
    before, at = np.int64(-1), nodes[node, WANTS + side]
    while at != item:
        before, at = at, items[at, NEXT]
    if before < 0:
        nodes[node, WANTS + side] = items[item, NEXT]
    else:
        items[before, NEXT] = items[item, NEXT]
    items[item, NEXT] = meta[FREE_ITEM]
    meta[FREE_ITEM] = item
    if nodes[node, WANTS] < 0 and nodes[node, OFFERS] < 0:
        a.idle[meta[IDLE]] = node
        meta[IDLE] += 1
    while node >= 0 and _sum_up(a, node, side, row):  # tell those above
        node = nodes[node, PARENT]


@compiled
def _sum_up(a: Arrays, node: int, side: int, row: _Words) -> bool:
    """Bring `sub` in line with the children's; whether that changed anything."""
    clear(row)
    own(a, node, side, row)
    for child in (a.nodes[node, ZERO], a.nodes[node, ONE]):
        if child >= 0:
            for w in range(row.shape[0]):
                row[w] |= a.sub[child, side, w]
    sub = a.sub[node, side]
    changed = False
    for w in range(row.shape[0]):
        changed |= sub[w] != row[w]
        sub[w] = row[w]
    return changed


@compiled
def tally(uses: _Longs, kinds: _Longs, wires: _Longs) -> _Longs:
    """Count what is registered for each wire (-1: nothing ever was); the wires that come into use."""
    found, count = np.empty(wires.shape[0], np.int64), 0
    for i in range(wires.shape[0]):
        before = uses[wires[i]]
        if before <= 0:
            found[count] = wires[i]
            count += 1
        uses[wires[i]] = max(before, 0) + (1 if kinds[i] & 1 else -1)
    return found[:count]


@compiled
def register(a: Arrays, kinds: _Longs, wires: _Longs, his: _Words, los: _Words) -> None:
    """Register or take back (`kinds`: twice the side, and one to add) keys of two words, one after the other.

    There must be room: per request two nodes and one of all else.
    """
    row = np.empty(a.ways.shape[2], np.uint64)
    for i in range(kinds.shape[0]):
        hi, lo, length = _aligned(his[i], los[i])
        node = _place(a, hi, lo, length)
        side = kinds[i] >> 1
        if kinds[i] & 1:
            _add(a, node, side, wires[i])
        else:
            _remove(a, node, side, wires[i], row)


# -- everything at once ----------------------------------------------------------------------


@compiled
def remember_all(a: Arrays) -> None:
    """Every way is about to change.  There must be room in `was` for all nodes."""
    for node in range(a.meta[MADE]):
        if a.nodes[node, LENGTH] >= 0 and (a.nodes[node, WANTS] >= 0 or a.nodes[node, OFFERS] >= 0):
            _touch(a, node)


@compiled
def sum_up_all(a: Arrays) -> None:
    """Every way has changed: bring every `sub` in line, children before their parents."""
    row = np.empty(a.ways.shape[2], np.uint64)
    order = np.empty(a.meta[LIVE], np.int64)
    order[0] = 0
    count = 1
    for i in range(order.shape[0]):
        for child in (a.nodes[order[i], ZERO], a.nodes[order[i], ONE]):
            if child >= 0:
                order[count] = child
                count += 1
    for i in range(count - 1, -1, -1):
        for side in (TO, FRM):
            _sum_up(a, order[i], side, row)


@compiled
def prune(a: Arrays, node: int) -> None:
    """Take out a node that nobody registered at, if nothing parts there; then perhaps the one above."""
    nodes = a.nodes
    while nodes[node, LENGTH] > 0 and nodes[node, WANTS] < 0 and nodes[node, OFFERS] < 0:
        if nodes[node, ZERO] >= 0 and nodes[node, ONE] >= 0:
            return
        above, child = nodes[node, PARENT], max(nodes[node, ZERO], nodes[node, ONE])
        nodes[above, ZERO if nodes[above, ZERO] == node else ONE] = child
        nodes[node, LENGTH], nodes[node, PARENT] = -1, a.meta[FREE]
        a.meta[FREE] = node
        a.meta[LIVE] -= 1
        if child >= 0:
            nodes[child, PARENT] = above
            return
        node = above


@compiled
def forget(a: Arrays) -> None:
    """What is registered now is what the switches know; takes out nodes that nobody needs."""
    nodes = a.nodes
    stack = np.empty(264, np.int64)
    stack[0] = 0
    top = 1 if nodes[0, STALE] else 0
    while top:
        top -= 1
        node = stack[top]
        nodes[node, STALE], nodes[node, WAS] = 0, -1
        for child in (nodes[node, ZERO], nodes[node, ONE]):
            if child >= 0 and nodes[child, STALE]:
                stack[top] = child
                top += 1
    a.meta[REMEMBERED] = 0
    for i in range(a.meta[IDLE]):
        prune(a, a.idle[i])
    a.meta[IDLE] = 0
