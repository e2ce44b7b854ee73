"""Kernels that match: events against all blocks (`blocks`), many or few or one, and the matches sorted by event."""

from __future__ import annotations

from typing import Final

import numpy as np

from sievenet.jit import compiled
from sievenet.matcher.bitrow import SLOTS, lowest_bit
from sievenet.matcher.blocks import (
    ATTR,
    BASE,
    BEHIND,
    FIRST,
    HI,
    LO,
    S_ATTR,
    S_ROW,
    S_SHIFT,
    SHIFT,
    SORTED,
    match_lists,
    match_slices,
    passes,
)
from sievenet.matcher.narrow import KEY, LAST, NUMBER, back_of, last_begun, number_of
from sievenet.matcher.records import Array, fill_buckets, float_key, walk

#: Events for which sorting pays.
_MANY: Final = 32


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
    """Append (event, key) of every match of n events; the new count, even beyond the room there is.

    Blocks clustered by one attribute are neighbours.  Those of them that are sorted lists go first.  For those with
    slices the events are sorted by their bucket of the attribute once, so that each block meets only those it can
    match, as columns.
    """
    if len(blocks) == 0:
        return walk(xs, n, words, alive, found_event, found_key, count)
    if n < _MANY:
        return match_few(
            xs, buckets, n, words, alive, keys, blocks, slots, check_ends, checks, slices, rows, checked,
            marks, entries, found_event, found_key, count,
        )  # fmt: skip
    behind = 0
    while behind < len(blocks):
        begin, attr, listed = behind, blocks[behind, ATTR], 0
        while behind < len(blocks) and blocks[behind, ATTR] == attr:
            listed += 1 if blocks[behind, SORTED] >= 0 else 0
            behind += 1
        if listed:
            count = match_lists(
                xs, buckets, n, words, alive, blocks, begin, behind, check_ends, checks, checked, marks, entries,
                found_event, found_key, count,
            )  # fmt: skip
        if listed < behind - begin:
            count = match_slices(
                xs, buckets, n, words, alive, keys, blocks, begin, behind, slots, check_ends, checks, slices, rows,
                used, checked, found_event, found_key, count,
            )  # fmt: skip
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
