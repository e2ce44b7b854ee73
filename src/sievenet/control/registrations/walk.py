"""The walk that finds what changed, and the tables of single switches.

What it looks for, and why it may leave most of the tree alone, is told in `registrations`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sievenet.control.registrations.trie.kernels import clear, copy, leading, own, prune
from sievenet.control.registrations.trie.layout import (
    ADDED,
    COVERED,
    DELETED,
    FRM,
    GROWN,
    IDLE,
    LENGTH,
    LESSENED,
    NOTHING,
    ONE,
    REMEMBERED,
    STALE,
    TO,
    WAS,
    ZERO,
    Arrays,
    Told,
)
from sievenet.jit import compiled

__all__ = ["table", "walk"]

_Ints = npt.NDArray[np.int32]
_Words = npt.NDArray[np.uint64]

_NONE = np.uint64(0)


@compiled
def _sphere(mask: _Words, owners: _Ints, outs: _Words, sphere: _Words) -> None:
    """All wires of the switches that some wires leave from."""
    clear(sphere)
    for w in range(mask.shape[0]):
        rest = mask[w] & ~sphere[w]
        while rest:
            switch = owners[64 * w + 63 - leading(rest)]
            out = outs[switch]
            for v in range(sphere.shape[0]):
                sphere[v] |= out[v]
            rest = rest & ~out[w]


@compiled
def _tell_apart(
    above: _Words,
    here: _Words,
    alive: _Words,
    owners: _Ints,
    outs: _Words,
    rows: _Words,
    masks: _Words,
    at: int,
    place: int,
) -> int:
    """What has to change at each switch, from T, F, T', F' above a node and at it; the number of changes so far."""
    words = alive.shape[0]
    done = np.zeros(words, np.uint64)
    for w in range(words):
        rest = ((here[0, w] & here[1, w]) ^ (above[0, w] & above[1, w])) | (
            (here[2, w] & here[3, w]) ^ (above[2, w] & above[3, w])
        )
        rest = rest & ~done[w]
        while rest:  # a switch that has a flow here before or after
            switch = owners[64 * w + 63 - leading(rest)]
            out = outs[switch]
            rest = rest & ~out[w]
            had, has, same, kept, grown = False, False, True, True, False
            between, after = masks[at, :words], masks[at, words:]
            for v in range(words):
                mask = out[v]
                done[v] |= mask
                old, now = here[0, v] & here[1, v] & mask, here[2, v] & here[3, v] & mask
                had |= old != (above[0, v] & above[1, v] & mask)
                has |= now != (above[2, v] & above[3, v] & mask)
                between[v] = (old & alive[v]) | now
                after[v] = now
                same &= old == now
                kept &= between[v] == now
                grown |= between[v] != old
            if same and had and has:
                continue
            first = NOTHING
            if has and not had:
                first = ADDED
            elif not has and kept:  # what takes over sends to at least as many: deleting adds delivery
                first = COVERED
            elif grown:
                first = GROWN
            second = NOTHING
            if not kept:
                second = LESSENED if has else DELETED
            rows[at, 0], rows[at, 1], rows[at, 2], rows[at, 3] = place, switch, first, second
            at += 1
    return at


@compiled
def walk(a: Arrays, owners: _Ints, outs: _Words, alive: _Words) -> Told:
    """What has to change; dead wires are not used even in between.

    Forgets what was, and takes out nodes that nobody needs.
    """
    nodes, words = a.nodes, a.ways.shape[2]
    places, found = np.empty((64, 3), np.uint64), 0
    some = 4 * outs.shape[0]  # a node concerns every switch at most
    rows, masks, told = np.empty((some, 4), np.uint64), np.empty((some, 2 * words), np.uint64), 0
    used = np.zeros(words, np.uint64)
    # Level by level T, F, T', F': while a node is visited, those of all above it are there.
    levels = np.zeros((131, 4, words), np.uint64)
    changed, sphere = np.empty(words, np.uint64), np.empty(words, np.uint64)
    stack, depths = np.empty(264, np.int64), np.empty(264, np.int64)
    stack[0] = depths[0] = 0
    top = 1 if nodes[0, STALE] else 0
    while top:
        top -= 1
        node, depth = stack[top], depths[top]
        above, here = levels[depth], levels[depth + 1]
        for i in range(4):
            copy(above[i], here[i])
        slot = nodes[node, WAS]
        nodes[node, STALE] = 0
        nodes[node, WAS] = -1
        for side in (TO, FRM):
            own(a, node, side, here[2 + side])
            if slot >= 0:
                for w in range(words):
                    here[side, w] |= a.was[slot, side, w]
            else:
                own(a, node, side, here[side])
        any_new, differing, same = False, False, True
        for w in range(words):
            old, now = here[0, w] & here[1, w], here[2, w] & here[3, w]
            old_new, now_new = old ^ (above[0, w] & above[1, w]), now ^ (above[2, w] & above[3, w])
            any_new |= old_new != _NONE or now_new != _NONE
            differing |= old != now or old_new != now_new
            same &= here[0, w] == here[2, w] and here[1, w] == here[3, w]
        if any_new and differing:
            while told + outs.shape[0] > rows.shape[0]:
                rows, masks = _doubled(rows), _doubled(masks)
            if found == places.shape[0]:
                places = _doubled(places)
            before, told = told, _tell_apart(above, here, alive, owners, outs, rows, masks, told, found)
            if told > before:
                places[found, 0], places[found, 1], places[found, 2] = (
                    a.keys[node, 0],
                    a.keys[node, 1],
                    nodes[node, LENGTH],
                )
                found += 1
            for w in range(words):
                used[w] |= here[2, w] & here[3, w]
        ready = False
        for child in (nodes[node, ZERO], nodes[node, ONE]):
            if child < 0:
                continue
            if not nodes[child, STALE]:  # may be nothing to see there
                if same:
                    continue
                if not ready:
                    for w in range(words):
                        changed[w] = (
                            ((here[0, w] ^ here[2, w]) | (here[1, w] ^ here[3, w]))
                            & (here[0, w] | here[2, w] | a.sub[node, TO, w])
                            & (here[1, w] | here[3, w] | a.sub[node, FRM, w])
                        )
                    _sphere(changed, owners, outs, sphere)
                    ready = True
                hit = False
                for w in range(words):
                    to, frm = a.sub[child, TO, w], a.sub[child, FRM, w]
                    flows = (here[0, w] | to) & (here[1, w] | frm) & ~(here[0, w] & here[1, w])
                    flows |= (here[2, w] | to) & (here[3, w] | frm) & ~(here[2, w] & here[3, w])
                    if flows & sphere[w]:
                        hit = True
                        break
                if not hit:
                    continue
            stack[top], depths[top] = child, depth + 1
            top += 1
    a.meta[REMEMBERED] = 0
    for i in range(a.meta[IDLE]):
        prune(a, a.idle[i])
    a.meta[IDLE] = 0
    return Told(places[:found], rows[:told], masks[:told], used)


@compiled
def _doubled(array: _Words) -> _Words:
    larger = np.empty((2 * array.shape[0], array.shape[1]), np.uint64)
    for i in range(array.shape[0]):
        copy(array[i], larger[i])
    return larger


@compiled
def table(a: Arrays, out: _Words) -> tuple[_Words, _Words]:
    """The flows of the switch with these wires: where (as `Told.places`), and the wires each uses."""
    nodes, words = a.nodes, a.ways.shape[2]
    places, masks = np.empty((64, 3), np.uint64), np.empty((64, words), np.uint64)
    found = 0
    levels = np.zeros((131, 2, words), np.uint64)
    stack, depths = np.empty(264, np.int64), np.empty(264, np.int64)
    stack[0] = depths[0] = 0
    top = 1
    while top:
        top -= 1
        node, depth = stack[top], depths[top]
        above, here = levels[depth], levels[depth + 1]
        for side in (TO, FRM):
            copy(above[side], here[side])
        own(a, node, TO, here[TO])
        own(a, node, FRM, here[FRM])
        new = False
        for w in range(words):
            new |= (here[0, w] & here[1, w] & out[w]) != (above[0, w] & above[1, w] & out[w])
        if new:
            if found == places.shape[0]:
                places, masks = _doubled(places), _doubled(masks)
            places[found, 0], places[found, 1], places[found, 2] = a.keys[node, 0], a.keys[node, 1], nodes[node, LENGTH]
            for w in range(words):
                masks[found, w] = here[0, w] & here[1, w] & out[w]
            found += 1
        for child in (nodes[node, ZERO], nodes[node, ONE]):
            if child < 0:
                continue
            for w in range(words):
                most = (here[0, w] | a.sub[child, TO, w]) & (here[1, w] | a.sub[child, FRM, w])
                if most & ~(here[0, w] & here[1, w]) & out[w]:
                    stack[top], depths[top] = child, depth + 1
                    top += 1
                    break
    return places[:found], masks[:found]
