"""Kernels that match: events against blocks, by columns or one by one, and the matches sorted by event.

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
from sievenet.matcher.narrow import BEGIN, KEY, LAST, NUMBER, back_of, last_begun, last_marked, number_of
from sievenet.matcher.records import BUCKETS, Array, fill_buckets, float_key, holds, walk

#: Events for which sorting pays.
_MANY: Final = 32
#: Events whose bitmaps are made at a time: they stay in the nearest cache.
_TILE: Final = 256
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
def match_few(
    xs: Array,
    buckets: Array,
    n: int,
    words: Array,
    alive: Array,
    keys: Array,
    blocks: Array,
    slots: Array,
    check_ends: Array,
    checks: Array,
    slices: Array,
    rows: Array,
    checked: Array,
    marks: Array,
    entries: Array,
    found_event: Array,
    found_key: Array,
    count: int,
) -> int:
    """Append (event, key) of every match, event by event; the new count, even beyond the room there is."""
    room = len(found_key)
    values = np.empty((n, len(checked)), np.int64)
    for i in range(n):
        for column in range(len(checked)):
            values[i, column] = xs[i, checked[column]]
    for i in range(n):
        for block in range(len(blocks)):
            attr = blocks[block, ATTR]
            if attr >= 0:
                v = np.int64(buckets[i, attr])
                if v < blocks[block, LO] or v > blocks[block, HI]:
                    continue
                listed = blocks[block, SORTED]
                if listed >= 0:
                    x = xs[i, attr]
                    last = last_begun(marks, entries, listed, blocks[block, BASE], blocks[block, SHIFT], x)
                    if last >= listed:
                        for j in range(last - back_of(entries[last, NUMBER]), last + 1):
                            if entries[j, LAST] < x or not alive[number_of(entries[j, NUMBER])]:
                                continue
                            if entries[j, NUMBER] & 1:
                                at = block * SLOTS + j - listed
                                if not passes(checks, check_ends[at], check_ends[at + 1], values, i, words, xs, i):
                                    continue
                            if count < room:
                                found_event[count] = i
                                found_key[count] = entries[j, KEY]
                            count += 1
                    continue
            w0 = w1 = w2 = w3 = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
            for s in range(blocks[block, FIRST], blocks[block, BEHIND]):
                at = slices[s, S_ROW] + (np.int64(buckets[i, slices[s, S_ATTR]]) >> slices[s, S_SHIFT])
                w0 &= rows[at, 0]
                w1 &= rows[at, 1]
                w2 &= rows[at, 2]
                w3 &= rows[at, 3]
                if w0 | w1 | w2 | w3 == 0:
                    break
            slot = block * SLOTS
            while w0 | w1 | w2 | w3 != 0:
                while w0 != 0:
                    at = slot + lowest_bit(w0)
                    if passes(checks, check_ends[at], check_ends[at + 1], values, i, words, xs, i):
                        number = slots[at]
                        if alive[number]:
                            if count < room:
                                found_event[count] = i
                                found_key[count] = keys[number]
                            count += 1
                    w0 &= w0 - np.uint64(1)
                w0, w1, w2, w3 = w1, w2, w3, np.uint64(0)
                slot += 64
    return count


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
def match_chunk(
    xs: Array,
    buckets: Array,
    n: int,
    words: Array,
    alive: Array,
    keys: Array,
    blocks: Array,
    slots: Array,
    check_ends: Array,
    checks: Array,
    slices: Array,
    rows: Array,
    used: Array,
    checked: Array,
    marks: Array,
    entries: Array,
    found_event: Array,
    found_key: Array,
    count: int,
) -> int:
    """Append (event, key) of every match of n events, block by block; the new count, even beyond the room there is.

    Blocks clustered by one attribute are neighbours; the events are sorted by their bucket of it once, so that each
    block meets only those it can match, as columns.
    """
    if len(blocks) == 0:
        return walk(xs, n, words, alive, found_event, found_key, count)
    if n < _MANY:
        return match_few(
            xs, buckets, n, words, alive, keys, blocks, slots, check_ends, checks, slices, rows, checked,
            marks, entries, found_event, found_key, count,
        )  # fmt: skip
    room = len(found_key)
    order = np.empty(n, np.int32)
    starts = np.empty(BUCKETS + 1, np.int64)
    columns = np.zeros((buckets.shape[1], n), np.uint8)
    values = np.empty((n, len(checked)), np.int64)
    acc = np.empty((_TILE, WORDS), np.uint64)
    some = np.empty(_TILE + 1, np.int64)
    hit = np.empty(_TILE * WORDS + 1, np.int64)
    sorted_by = np.int64(-2)
    # Events that may lie in an entry of a sorted list: which, in which entry, of which block.
    places, whose, lists = np.empty(2 * n, np.int64), np.empty(2 * n, np.int64), np.empty(2 * n, np.int64)
    waiting = 0
    for block in range(len(blocks) + 1):
        last_one = block == len(blocks)
        anew = not last_one and blocks[block, ATTR] != sorted_by
        if last_one or anew or waiting > n:
            # Entries lie apart: all are asked for in one go, and the processor fetches several at a time.
            for c in range(waiting):
                at, t = places[c], whose[c]
                i, listed = np.int64(order[t]), blocks[lists[c], SORTED]
                x = xs[i, sorted_by]
                while entries[at, BEGIN] > x:  # the first one does not
                    at -= 1
                for j in range(at - back_of(entries[at, NUMBER]), at + 1):
                    if entries[j, LAST] < x or not alive[number_of(entries[j, NUMBER])]:
                        continue
                    if entries[j, NUMBER] & 1:
                        slot = lists[c] * SLOTS + j - listed
                        if not passes(checks, check_ends[slot], check_ends[slot + 1], values, t, words, xs, i):
                            continue
                    if count < room:
                        found_event[count] = i
                        found_key[count] = entries[j, KEY]
                    count += 1
            waiting = 0
        if last_one:
            break
        if anew:
            sorted_by = blocks[block, ATTR]
            sort_events(buckets, n, sorted_by, order, starts)
            for j in range(n):
                i = np.int64(order[j])
                for attr in used:
                    columns[attr, j] = buckets[i, attr]
                for column in range(len(checked)):
                    values[j, column] = xs[i, checked[column]]
        end = starts[blocks[block, HI] + 1]
        listed = blocks[block, SORTED]
        if listed >= 0:
            base, shift = blocks[block, BASE], blocks[block, SHIFT]
            for t in range(starts[blocks[block, LO]], end):
                at = last_marked(marks, listed, base, shift, xs[np.int64(order[t]), sorted_by])
                places[waiting], whose[waiting], lists[waiting] = at, t, block
                waiting += 1 if at >= listed else 0
            continue
        for begin in range(starts[blocks[block, LO]], end, _TILE):
            m = min(_TILE, end - begin)
            intersect(columns, begin, m, block, blocks, slices, rows, acc)
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
                i = np.int64(order[begin + j])
                slot = block * SLOTS + part * 64
                while word != 0:
                    at = slot + lowest_bit(word)
                    if passes(checks, check_ends[at], check_ends[at + 1], values, begin + j, words, xs, i):
                        number = slots[at]
                        if alive[number]:
                            if count < room:
                                found_event[count] = i
                                found_key[count] = keys[number]
                            count += 1
                    word &= word - np.uint64(1)
    return count


@compiled
def match_one(
    raw: Array,
    floats: Array,
    xs: Array,
    buckets: Array,
    edges: Array,
    words: Array,
    alive: Array,
    keys: Array,
    blocks: Array,
    slots: Array,
    check_ends: Array,
    checks: Array,
    slices: Array,
    rows: Array,
    used: Array,
    checked: Array,
    marks: Array,
    entries: Array,
    found_event: Array,
    found_key: Array,
    count: int,
) -> int:
    """One event, given as packed values: keys, buckets and matching in one call."""
    for attr in range(len(raw)):
        xs[0, attr] = float_key(raw[attr]) if floats[attr] else raw[attr]
    if len(blocks) == 0:
        return walk(xs, 1, words, alive, found_event, found_key, count)
    fill_buckets(xs, 1, edges, used, buckets)
    return match_few(
        xs, buckets, 1, words, alive, keys, blocks, slots, check_ends, checks, slices, rows, checked, marks, entries,
        found_event, found_key, count,
    )  # fmt: skip


@compiled
def match_level(
    xs: Array,
    buckets: Array,
    n: int,
    edges: Array,
    words: Array,
    alive: Array,
    keys: Array,
    blocks: Array,
    slots: Array,
    check_ends: Array,
    checks: Array,
    slices: Array,
    rows: Array,
    used: Array,
    checked: Array,
    marks: Array,
    entries: Array,
    found_event: Array,
    found_key: Array,
    count: int,
    starts: Array,
    out: Array,
) -> tuple[int, int]:
    """Append the matches of n events in a level; all so far by event. How many there are, and how many remain.

    If there is no room for them, nothing remains, and the first number says how much room it takes.
    """
    fill_buckets(xs, n, edges, used, buckets)
    found = match_chunk(
        xs, buckets, n, words, alive, keys, blocks, slots, check_ends, checks, slices, rows, used, checked,
        marks, entries, found_event, found_key, count,
    )  # fmt: skip
    return found, by_event(found_event, found_key, found, n, starts, out) if found <= len(found_key) else 0


@compiled
def by_event(events: Array, keys: Array, count: int, n: int, starts: Array, out: Array) -> int:
    """Sort matches by event, each event's keys ascending and once; how many remain.

    `starts` gets n + 1 offsets into `out`.
    """
    for i in range(n + 1):
        starts[i] = 0
    for j in range(count):
        starts[events[j] + 1] += 1
    for i in range(n):
        starts[i + 1] += starts[i]
    for j in range(count):
        i = events[j]
        out[starts[i]] = keys[j]
        starts[i] += 1
    # starts[i] is now the end of event i, so the begin of i + 1.
    kept = 0
    begin = 0
    for i in range(n):
        end = starts[i]
        if end - begin > 32:
            out[begin:end] = np.sort(out[begin:end])
        else:
            for j in range(begin + 1, end):
                key = out[j]
                k = j
                while k > begin and out[k - 1] > key:
                    out[k] = out[k - 1]
                    k -= 1
                out[k] = key
        starts[i] = kept
        first = kept
        for j in range(begin, end):
            if kept == first or out[kept - 1] != out[j]:
                out[kept] = out[j]
                kept += 1
        begin = end
    starts[n] = kept
    return kept
