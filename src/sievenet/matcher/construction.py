"""Kernels that build a level: where buckets end, what a filter is clustered by, bitmaps and checks.

The arrays they fill are described where they are read, in `records` and `blocks`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sievenet.jit import compiled
from sievenet.matcher.bitrow import SLOTS, WORDS
from sievenet.matcher.blocks import (
    ATTR,
    BASE,
    BEHIND,
    FILLED,
    FIRST,
    HI,
    LO,
    S_ATTR,
    S_ROW,
    S_SHIFT,
    SHIFT,
    SORTED,
)
from sievenet.matcher.narrow import BEGIN, GROUP, KEY, LAST, NUMBER, TOP, numbered
from sievenet.matcher.records import BUCKETS, LENGTH_MASK, LOW, MAX, MIN, Array, bucket_of

#: Words of a record with one constraint of one stretch.
SINGLE: Final = 5


@compiled
def count_ends(words: Array, places: Array, stride: int, attributes: int) -> Array:
    """How many ends of stretches each attribute has among every stride-th record."""
    counts = np.zeros(attributes, np.int64)
    for r in range(0, len(places), stride):
        p = places[r]
        end = p + (words[p + 1] & LENGTH_MASK)
        q = p + 2
        while q < end:
            n = words[q] & LOW
            counts[words[q] >> 32] += 2 * n
            q += 1 + 2 * n
    return counts


@compiled
def gather_ends(words: Array, places: Array, stride: int, starts: Array) -> Array:
    """Those ends, grouped by attribute, each as the last key before the cut."""
    at = starts.copy()
    ends = np.empty(starts[-1], np.int64)
    for r in range(0, len(places), stride):
        p = places[r]
        end = p + (words[p + 1] & LENGTH_MASK)
        q = p + 2
        while q < end:
            attr = words[q] >> 32
            n = words[q] & LOW
            for j in range(n):
                lo = words[q + 1 + 2 * j]
                ends[at[attr]] = lo - 1 if lo > MIN else lo
                ends[at[attr] + 1] = words[q + 2 + 2 * j]
                at[attr] += 2
            q += 1 + 2 * n
    return ends


@compiled
def choose(words: Array, places: Array, edges: Array, sizes: Array, most: int, copy_cost: float, out: Array) -> int:
    """Choose for each record the constraint it is clustered by; the number of copies that takes in all.

    `out[r]` gets the attribute (-1: none), the offset of its constraint, the copies, and the buckets the widest
    copy touches.  A constraint of several stretches is split into copies, one per run of buckets, if there are at most
    `most`; else its hull counts.
    """
    total = 0
    for r in range(len(places)):
        p = places[r]
        end = p + (words[p + 1] & LENGTH_MASK)
        q = p + 2
        best = 1.0
        out[r, 0], out[r, 1], out[r, 2], out[r, 3] = -1, 0, 1, BUCKETS
        while q < end:
            attr = words[q] >> 32
            n = words[q] & LOW
            lowest = bucket_of(edges, attr, words[q + 1])
            runs = span = widest = 0
            first, last = lowest, lowest - 2
            for j in range(n):
                lo = bucket_of(edges, attr, words[q + 1 + 2 * j])
                hi = bucket_of(edges, attr, words[q + 2 + 2 * j])
                if lo > last + 1:
                    runs += 1
                    first = lo
                    span += hi - lo + 1
                elif hi > last:
                    span += hi - last
                last = max(last, hi)
                widest = max(widest, last - first + 1)
            hull = last - lowest + 1
            cost = span / sizes[attr] + copy_cost * runs
            split = runs <= most and cost < hull / sizes[attr] + copy_cost
            if not split:
                cost = hull / sizes[attr] + copy_cost
            if cost < best:
                best = cost
                out[r, 0], out[r, 1] = attr, q - p
                out[r, 2] = runs if split else 1
                out[r, 3] = widest if split else hull
            q += 1 + 2 * n
        total += out[r, 2]
    return total


@compiled
def make_copies(words: Array, places: Array, edges: Array, chosen: Array, copies: Array) -> None:
    """Fill `copies` with attribute, first and last bucket, and record number of every copy."""
    at = 0
    for r in range(len(places)):
        attr = chosen[r, 0]
        if attr < 0:
            copies[at, 0], copies[at, 1], copies[at, 2], copies[at, 3] = -1, 0, BUCKETS - 1, r
            at += 1
            continue
        q = places[r] + chosen[r, 1]
        begin = at
        last = -2
        for j in range(words[q] & LOW):
            lo = bucket_of(edges, attr, words[q + 1 + 2 * j])
            hi = bucket_of(edges, attr, words[q + 2 + 2 * j])
            if at == begin or (lo > last + 1 and chosen[r, 2] > 1):
                copies[at, 0], copies[at, 1], copies[at, 3] = attr, lo, r
                at += 1
            last = max(last, hi)
            copies[at - 1, 2] = last


@compiled
def sort_narrow(
    words: Array, places: Array, slots: Array, copies: Array, blocks: Array, most: float, marks: Array, entries: Array
) -> int:
    """Sort the slots of blocks of narrow filters by where these begin; how many such blocks there are.

    They are narrow if an event that lies where one of them begins has to look at no more than ``most`` on average.
    `copies[slot]`, the first and last bucket of the slot's copy, is sorted with the slots.
    """
    count = 0
    keys, lasts, reach = np.empty(SLOTS, np.int64), np.empty(SLOTS, np.int64), np.empty(SLOTS, np.int64)
    for block in range(len(blocks)):
        blocks[block, SORTED] = -1
        attr, filled, first = blocks[block, ATTR], blocks[block, FILLED], block * SLOTS
        if attr < 0:
            continue
        single = True
        for j in range(filled):
            p = places[slots[first + j]]
            q = p + 2
            while words[q] >> 32 != attr:
                q += 1 + 2 * (words[q] & LOW)
            single &= words[q] & LOW == 1
            keys[j], lasts[j] = words[q + 1], words[q + 2]
        if not single:
            continue
        order = np.argsort(keys[:filled])
        at, looks = count * SLOTS, 0
        for j in range(filled):
            begin, last = keys[order[j]], lasts[order[j]]
            entries[at + j, BEGIN], entries[at + j, LAST] = begin, last
            reach[j] = max(last, reach[j - 1]) if j else last
            back = 0
            while back < j and reach[j - back - 1] >= begin:
                back += 1
            entries[at + j, NUMBER] = back
            looks += 1 + back
        if looks > most * filled:
            continue
        base = entries[at, BEGIN]
        span, shift = np.uint64(entries[at + filled - 1, BEGIN]) - np.uint64(base), np.uint64(0)
        while span >> shift > np.uint64(TOP):
            shift += np.uint64(1)
        before, spans = slots[first : first + filled].copy(), copies[first : first + filled].copy()
        for j in range(filled):
            slots[first + j] = before[order[j]]
            copies[first + j, 0], copies[first + j, 1] = spans[order[j], 0], spans[order[j], 1]
            p = places[slots[first + j]]
            more = 1 if (words[p + 1] & LENGTH_MASK) > SINGLE else 0
            marks[count, GROUP + j] = np.uint16((np.uint64(entries[at + j, BEGIN]) - np.uint64(base)) >> shift)
            entries[at + j, KEY] = words[p]
            entries[at + j, NUMBER] = numbered(np.int64(slots[first + j]), entries[at + j, NUMBER], more)
        marks[count, GROUP + filled :] = TOP + 1
        for group in range(GROUP):
            marks[count, group] = marks[count, GROUP * (group + 2) - 1]
        entries[at + filled : at + SLOTS] = 0
        blocks[block, SORTED], blocks[block, BASE], blocks[block, SHIFT] = at, base, np.int64(shift)
        count += 1
    return count


@compiled
def count_constraints(words: Array, places: Array, slots: Array, blocks: Array, counts: Array) -> int:
    """`counts[block, attr]`: how many slots of a block constrain an attribute; the sum of all."""
    total = 0
    for block in range(len(blocks)):
        for j in range(blocks[block, FILLED]):
            p = places[slots[block * SLOTS + j]]
            end = p + (words[p + 1] & LENGTH_MASK)
            q = p + 2
            while q < end:
                counts[block, words[q] >> 32] += 1
                total += 1
                q += 1 + 2 * (words[q] & LOW)
    return total


@compiled
def fill_slices(
    words: Array,
    places: Array,
    slots: Array,
    copies: Array,
    blocks: Array,
    slices: Array,
    sizes: Array,
    edges: Array,
    rows: Array,
) -> None:
    """Write the bitmaps.  `copies[slot]` are the first and last bucket of the slot's copy."""
    here = np.full(len(sizes), -1, np.int64)
    free = np.empty((len(sizes), WORDS), np.uint64)
    for block in range(len(blocks)):
        first, behind, filled = blocks[block, FIRST], blocks[block, BEHIND], blocks[block, FILLED]
        for s in range(first, behind):
            here[slices[s, S_ATTR]] = s - first
            for part in range(WORDS):
                bits = min(max(filled - 64 * part, 0), 64)
                full = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
                free[s - first, part] = full >> np.uint64(64 - bits) if bits else np.uint64(0)
        # A slot that does not constrain an attribute admits every bucket of it.
        for j in range(filled):
            p = places[slots[block * SLOTS + j]]
            end = p + (words[p + 1] & LENGTH_MASK)
            q = p + 2
            while q < end:
                s = here[words[q] >> 32]
                if s >= 0:
                    free[s, j >> 6] &= ~(np.uint64(1) << np.uint64(j & 63))
                q += 1 + 2 * (words[q] & LOW)
        for s in range(first, behind):
            attr = slices[s, S_ATTR]
            lo, hi = 0, sizes[attr] - 1
            if attr == blocks[block, ATTR]:
                lo, hi = blocks[block, LO], blocks[block, HI]
            for v in range(lo >> slices[s, S_SHIFT], (hi >> slices[s, S_SHIFT]) + 1):
                for part in range(WORDS):
                    rows[slices[s, S_ROW] + v, part] = free[s - first, part]
        for j in range(filled):
            slot = block * SLOTS + j
            part, bit = j >> 6, np.uint64(1) << np.uint64(j & 63)
            p = places[slots[slot]]
            end = p + (words[p + 1] & LENGTH_MASK)
            q = p + 2
            while q < end:
                attr = words[q] >> 32
                n = words[q] & LOW
                if here[attr] >= 0:
                    shift, row = slices[first + here[attr], S_SHIFT], slices[first + here[attr], S_ROW]
                    least, most = 0, BUCKETS - 1
                    if attr == blocks[block, ATTR]:
                        least, most = copies[slot, 0], copies[slot, 1]
                    for m in range(n):
                        lo = max(bucket_of(edges, attr, words[q + 1 + 2 * m]), least)
                        hi = min(bucket_of(edges, attr, words[q + 2 + 2 * m]), most)
                        if lo <= hi:
                            for v in range(lo >> shift, (hi >> shift) + 1):
                                rows[row + v, part] |= bit
                q += 1 + 2 * n
        for s in range(first, behind):
            here[slices[s, S_ATTR]] = -1


@compiled
def _exact(words: Array, q: int, edges: Array) -> bool:
    """Whether a constraint's ends are all edges, so that its buckets are exactly its values."""
    attr = words[q] >> 32
    for j in range(words[q] & LOW):
        lo, last = words[q + 1 + 2 * j], words[q + 2 + 2 * j]
        if lo != MIN:
            at = bucket_of(edges, attr, lo)
            if at == 0 or edges[attr, at - 1] != lo - 1:
                return False
        if last != MAX:
            at = bucket_of(edges, attr, last)
            if at == BUCKETS - 1 or edges[attr, at] != last:
                return False
    return True


@compiled
def fill_checks(
    words: Array,
    places: Array,
    slots: Array,
    blocks: Array,
    slices: Array,
    edges: Array,
    check_ends: Array,
    checks: Array,
) -> int:
    """Write what the slices leave open; how much that is.  `check_ends[slot + 1]` is where a slot's checks end."""
    fine = np.zeros(len(edges), np.bool_)
    at = 0
    for block in range(len(blocks)):
        for s in range(blocks[block, FIRST], blocks[block, BEHIND]):
            fine[slices[s, S_ATTR]] = slices[s, S_SHIFT] == 0
        for j in range(SLOTS):
            slot = block * SLOTS + j
            if j < blocks[block, FILLED]:
                p = places[slots[slot]]
                end = p + (words[p + 1] & LENGTH_MASK)
                q = p + 2
                whole = False
                begin = at
                while q < end:
                    attr = words[q] >> 32
                    n = words[q] & LOW
                    if not (fine[attr] and _exact(words, q, edges)):
                        whole |= n > 1
                        checks[at, 0], checks[at, 1], checks[at, 2] = attr, words[q + 1], words[q + 2]
                        at += 1
                    q += 1 + 2 * n
                if whole:
                    at = begin + 1
                    checks[begin, 0], checks[begin, 1], checks[begin, 2] = -1, p, 0
            check_ends[slot + 1] = at
        for s in range(blocks[block, FIRST], blocks[block, BEHIND]):
            fine[slices[s, S_ATTR]] = False
    return at


@compiled
def reorder(words: Array, places: Array, order: Array, out: Array, new_places: Array) -> None:
    """Copy records in a given order."""
    at = 0
    for j in range(len(order)):
        p = places[order[j]]
        length = words[p + 1] & LENGTH_MASK
        for m in range(length):
            out[at + m] = words[p + m]
        new_places[j] = at
        at += length
