"""Blocks of 256 slots: the events that match what is in them, among many.

A *block* has 256 slots, each the number of a record.  Its *slices* are bitmaps over the slots, one row of four words
per bucket of an attribute: bit j of row v says whether slot j admits a value in bucket v.  What the slices cannot say
exactly, the *checks* of a slot do: rows of column, lo, last, where the columns are those attributes that have checks;
or of -1 and the place of a record to be checked whole.

A block of narrow filters has a sorted list in place of slices (`narrow`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sievenet.jit import compiled, inlined
from sievenet.matcher.bitrow import SLOTS, WORDS, and_row, copy_row, lowest_bit
from sievenet.matcher.narrow import BEGIN, KEY, LAST, NUMBER, back_of, mark_of, number_of, up_to
from sievenet.matcher.records import BUCKETS, Array, holds

__all__ = [
    "ATTR",
    "BASE",
    "BEHIND",
    "COLUMNS",
    "FILLED",
    "FIRST",
    "HI",
    "LO",
    "SHIFT",
    "SORTED",
    "S_ATTR",
    "S_ROW",
    "S_SHIFT",
    "match_lists",
    "match_slices",
    "passes",
]

#: Events whose bitmaps are made at a time: they stay in the nearest cache.
_TILE: Final = 256
#: Entries of sorted lists that are asked for at a time.
_ASKED: Final = 512
#: Columns of the table of blocks: the attribute it is clustered by (-1: none) and the buckets it can match,
#: the range of its slices, the number of its slots; of a sorted list: where it begins in `marks` and `entries` (-1: it
#: is none), where its first filter begins, and the steps of its marks.
ATTR, LO, HI, FIRST, BEHIND, FILLED, SORTED, BASE, SHIFT = range(9)
COLUMNS: Final = 9
#: Columns of the table of slices: attribute, buckets per row as a shift, row of bucket 0.
S_ATTR, S_SHIFT, S_ROW = range(3)


@inlined
def passes(checks: Array, first: int, behind: int, values: Array, j: int, words: Array, xs: Array, i: Any) -> bool:
    """Whether event i, whose checked values are row j, passes the checks of a slot."""
    for c in range(first, behind):
        column = checks[c, 0]
        if column < 0:
            if not holds(words, checks[c, 1], xs, i):
                return False
        else:
            x = values[j, column]
            if x < checks[c, 1] or x > checks[c, 2]:
                return False
    return True


@compiled
def sort_events(buckets: Array, n: int, attr: int, order: Array, starts: Array) -> None:
    """Order events by their bucket of an attribute; `starts[v + 1]` is the end of bucket v."""
    starts[:] = 0
    if attr < 0:
        for i in range(n):
            order[i] = i
        starts[BUCKETS] = n
        return
    for i in range(n):
        starts[np.int64(buckets[i, attr]) + 1] += 1
    for v in range(BUCKETS):
        starts[v + 1] += starts[v]
    for i in range(n):
        bucket = np.int64(buckets[i, attr])
        order[starts[bucket]] = i
        starts[bucket] += 1
    for v in range(BUCKETS, 0, -1):
        starts[v] = starts[v - 1]
    starts[0] = 0


@compiled
def intersect(
    columns: Array, begin: int, n: int, block: int, blocks: Array, slices: Array, rows: Array, acc: Array
) -> None:
    """The slots of a block that n events from `begin` on may match, as bitmaps: slice by slice over all of them."""
    first = blocks[block, FIRST]
    for s in range(first, blocks[block, BEHIND]):
        column = columns[slices[s, S_ATTR], begin : begin + n]
        shift = np.uint8(slices[s, S_SHIFT])
        row = slices[s, S_ROW]
        if s == first:
            for j in range(n):
                copy_row(acc, j, rows, row + np.int64(column[j] >> shift))
        else:
            for j in range(n):
                and_row(acc, j, rows, row + np.int64(column[j] >> shift))


@compiled
def match_lists(
    xs: Array,
    buckets: Array,
    n: int,
    words: Array,
    alive: Array,
    blocks: Array,
    begin: int,
    behind: int,
    check_ends: Array,
    checks: Array,
    checked: Array,
    marks: Array,
    entries: Array,
    found_event: Array,
    found_key: Array,
    count: int,
) -> int:
    """Append (event, key) of every match in the sorted lists among neighbours that are clustered by one attribute.

    Each bucket knows its lists, so events come as they are.  The new count, even beyond the room there is.
    """
    attr, room = blocks[begin, ATTR], len(found_key)
    # By bucket: the first and the last block whose list may have something for it.
    first, last = np.full(BUCKETS, behind, np.int64), np.full(BUCKETS, -1, np.int64)
    for block in range(behind - 1, begin - 1, -1):
        if blocks[block, SORTED] >= 0:
            for v in range(blocks[block, LO], blocks[block, HI] + 1):
                first[v] = block
                last[v] = max(last[v], block)
    # Events that may lie in an entry: which, in which entry, of which block.
    places, whose, lists = np.empty(_ASKED, np.int64), np.empty(_ASKED, np.int64), np.empty(_ASKED, np.int64)
    values, gathered = np.empty((1, len(checked)), np.int64), -1
    i, block = 0, -1
    while True:
        waiting = 0
        while i < n and waiting < _ASKED:
            v, x = int(buckets[i, attr]), xs[i, attr]
            block = max(block, first[v])
            while block <= last[v] and waiting < _ASKED:
                listed, base = blocks[block, SORTED], blocks[block, BASE]
                if listed >= 0 and x >= base:
                    # The last entry that begins at x or before, or has the same mark. No entry is looked at yet.
                    places[waiting] = listed - 1 + up_to(marks, listed >> 8, mark_of(x, base, blocks[block, SHIFT]))
                    whose[waiting], lists[waiting] = i, block
                    waiting += 1
                block += 1
            if block > last[v]:
                i, block = i + 1, -1
        if waiting == 0:
            return count
        # Entries lie apart: all are asked for in one go, and the processor fetches several at a time.
        for c in range(waiting):
            at, event, block_of = places[c], whose[c], lists[c]
            x = xs[event, attr]
            while entries[at, BEGIN] > x:  # the first one does not
                at -= 1
            for j in range(at - back_of(entries[at, NUMBER]), at + 1):
                if entries[j, LAST] < x or not alive[number_of(entries[j, NUMBER])]:
                    continue
                if entries[j, NUMBER] & 1:
                    if gathered != event:
                        gathered = event
                        for column in range(len(checked)):
                            values[0, column] = xs[event, checked[column]]
                    slot = block_of * SLOTS + j - blocks[block_of, SORTED]
                    if not passes(checks, check_ends[slot], check_ends[slot + 1], values, 0, words, xs, event):
                        continue
                if count < room:
                    found_event[count] = event
                    found_key[count] = entries[j, KEY]
                count += 1


@compiled
def match_slices(
    xs: Array,
    buckets: Array,
    n: int,
    words: Array,
    alive: Array,
    keys: Array,
    blocks: Array,
    begin: int,
    behind: int,
    slots: Array,
    check_ends: Array,
    checks: Array,
    slices: Array,
    rows: Array,
    used: Array,
    checked: Array,
    found_event: Array,
    found_key: Array,
    count: int,
) -> int:
    """Append (event, key) of every match in those of these neighbours that have slices."""
    room, attr = len(found_key), blocks[begin, ATTR]
    order = np.empty(n, np.int32)
    starts = np.empty(BUCKETS + 1, np.int64)
    columns = np.zeros((buckets.shape[1], n), np.uint8)
    values = np.empty((n, len(checked)), np.int64)
    acc = np.empty((_TILE, WORDS), np.uint64)
    some = np.empty(_TILE + 1, np.int64)
    hit = np.empty(_TILE * WORDS + 1, np.int64)
    sort_events(buckets, n, attr, order, starts)
    for j in range(n):
        i = np.int64(order[j])
        for each in used:
            columns[each, j] = buckets[i, each]
        for column in range(len(checked)):
            values[j, column] = xs[i, checked[column]]
    for block in range(begin, behind):
        if blocks[block, SORTED] >= 0:
            continue
        end = starts[blocks[block, HI] + 1]
        for first in range(starts[blocks[block, LO]], end, _TILE):
            m = min(_TILE, end - first)
            intersect(columns, first, m, block, blocks, slices, rows, acc)
            # Which events have a bit left, then which of their words: by counting, not by branching, since most
            # of these branches would be guessed wrong.
            left = 0
            for j in range(m):
                some[left] = j
                left += 1 if acc[j, 0] | acc[j, 1] | acc[j, 2] | acc[j, 3] != 0 else 0
            hits = 0
            for t in range(left):
                for part in range(WORDS):
                    hit[hits] = some[t] * WORDS + part
                    hits += 1 if acc[some[t], part] != 0 else 0
            for t in range(hits):
                j, part = hit[t] // WORDS, hit[t] % WORDS
                word = acc[j, part]
                i = np.int64(order[first + j])
                slot = block * SLOTS + part * 64
                while word != 0:
                    at = slot + lowest_bit(word)
                    if passes(checks, check_ends[at], check_ends[at + 1], values, first + j, words, xs, i):
                        number = slots[at]
                        if alive[number]:
                            if count < room:
                                found_event[count] = i
                                found_key[count] = keys[number]
                            count += 1
                    word &= word - np.uint64(1)
    return count
