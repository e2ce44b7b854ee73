"""Compiled kernels of the matcher; `layout` explains the arrays they share.

A *record* is a run of int64 words, one per filter:

    key │ row << 24 | length │ attr << 32 | n │ lo 1 │ last 1 │ … lo n │ last n │ attr << 32 | n │ …
          negative once removed └─ one constraint: n closed stretches, ascending ─┘

A *signature* is one int64 with two coarse constraints in bucket numbers, each `attr, lo, extent` of 8 bits: an event
that fails it cannot match, and the record need not be fetched.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import njit

Array = Any
#: Untyped on purpose: callers hand over bundles of arrays, which no signature can describe.
compiled: Any = njit(cache=True, nogil=True)

MAX: Final = 0x7FFF_FFFF_FFFF_FFFF
MIN: Final = -MAX - 1
#: Bits of the length of a record in its second word.
LENGTH_BITS: Final = 24
_LENGTH_MASK: Final = (1 << LENGTH_BITS) - 1
_LOW: Final = 0xFFFF_FFFF
#: Buckets per attribute, and the edges between them.
BUCKET_BITS: Final = 8
BUCKETS: Final = 1 << BUCKET_BITS
#: Columns of the group table: attributes and shifts of the two axes, row length, first cell.
A, SHIFT_A, B, SHIFT_B, WIDTH, BASE = range(6)
#: A signature that every event passes.
PASS: Final = (BUCKETS - 1) << 16 | (BUCKETS - 1) << 40


# -- small parts, inlined by the compiler ----------------------------------------------------


@compiled
def bucket_of(edges: Array, attr: int, x: int) -> int:
    """The number of edges of an attribute at or below x: 0 to 255."""
    at = 0
    step = BUCKETS >> 1
    while step:
        # edges[attr] has 255 entries, ascending: at + step - 1 <= 254.
        at += step if edges[attr, at + step - 1] <= x else 0
        step >>= 1
    return at


@compiled
def float_key(bits: int) -> int:
    """The bits of a double as a whole number of the same order; both zeros are one."""
    if bits == MIN:
        return 0
    return bits if bits >= 0 else bits ^ MAX


@compiled
def holds(words: Array, p: int, xs: Array, i: int) -> bool:
    """Whether event i satisfies the record at p."""
    head = words[p + 1]
    if head < 0:
        return False
    end = p + (head & _LENGTH_MASK)
    q = p + 2
    while q < end:
        spec = words[q]
        x = xs[i, spec >> 32]
        n = spec & _LOW
        if x < words[q + 1] or x > words[q + 2 * n]:
            return False
        if n > 1:
            # The stretch with the last lo <= x.
            lo, hi = 0, n - 1
            while lo < hi:
                mid = (lo + hi + 1) >> 1
                if words[q + 1 + 2 * mid] <= x:
                    lo = mid
                else:
                    hi = mid - 1
            if x > words[q + 2 + 2 * lo]:
                return False
        q += 1 + 2 * n
    return True


# -- events to buckets -------------------------------------------------------------------------


@compiled
def fill_ints(xs: Array, attr: int, column: Array) -> None:
    """A column of whole numbers (or bools) as keys."""
    for i in range(len(column)):
        xs[i, attr] = column[i]


@compiled
def fill_floats(xs: Array, attr: int, bits: Array) -> None:
    """A column of doubles, given as their bits, as keys."""
    for i in range(len(bits)):
        xs[i, attr] = float_key(bits[i])


@compiled
def fill_codes(xs: Array, attr: int, codes: Array, table: Array) -> None:
    """A column of dictionary-encoded strings as keys: one table look-up each."""
    for i in range(len(codes)):
        xs[i, attr] = table[codes[i]]


@compiled
def fill_buckets(xs: Array, n: int, edges: Array, used: Array, buckets: Array) -> None:
    """The buckets of the attributes that a level looks at."""
    for attr in used:
        for i in range(n):
            buckets[i, attr] = bucket_of(edges, attr, xs[i, attr])


# -- matching ----------------------------------------------------------------------------------


@compiled
def match_chunk(
    xs: Array,
    buckets: Array,
    n: int,
    words: Array,
    scan: int,
    groups: Array,
    offsets: Array,
    signatures: Array,
    places: Array,
    found_event: Array,
    found_key: Array,
    count: int,
) -> int:
    """Append (event, key) of every match of n events; the new count, even beyond the room there is."""
    room = len(found_key)
    for g in range(len(groups)):
        a = groups[g, A]
        shift_a = groups[g, SHIFT_A]
        b = groups[g, B]
        shift_b = groups[g, SHIFT_B]
        width = groups[g, WIDTH]
        base = groups[g, BASE]
        for i in range(n):
            cell = base + (np.int64(buckets[i, a]) >> shift_a) * width + (np.int64(buckets[i, b]) >> shift_b)
            for e in range(offsets[cell], offsets[cell + 1]):
                s = signatures[e]
                d = np.int64(buckets[i, s & 255]) - ((s >> 8) & 255)
                if d < 0 or d > (s >> 16) & 255:
                    continue
                d = np.int64(buckets[i, (s >> 24) & 255]) - ((s >> 32) & 255)
                if d < 0 or d > (s >> 40) & 255:
                    continue
                p = np.int64(places[e])
                if holds(words, p, xs, i):
                    if count < room:
                        found_event[count] = i
                        found_key[count] = words[p]
                    count += 1
    at = scan
    while at < len(words):
        for i in range(n):
            if holds(words, at, xs, i):
                if count < room:
                    found_event[count] = i
                    found_key[count] = words[at]
                count += 1
        at += abs(words[at + 1]) & _LENGTH_MASK
    return count


@compiled
def match_one(
    raw: Array,
    floats: Array,
    xs: Array,
    buckets: Array,
    used: Array,
    edges: Array,
    words: Array,
    scan: int,
    groups: Array,
    offsets: Array,
    signatures: Array,
    places: Array,
    found_event: Array,
    found_key: Array,
    count: int,
) -> int:
    """One event, given as packed values: keys, buckets and matching in one call."""
    for attr in range(len(raw)):
        xs[0, attr] = float_key(raw[attr]) if floats[attr] else raw[attr]
    fill_buckets(xs, 1, edges, used, buckets)
    return match_chunk(xs, buckets, 1, words, scan, groups, offsets, signatures, places, found_event, found_key, count)


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


# -- stores: walking, removing, copying --------------------------------------------------------


@compiled
def kill(words: Array, places: Array) -> None:
    """Mark records as removed."""
    for p in places:
        words[p + 1] = -abs(words[p + 1])


@compiled
def live_size(words: Array) -> tuple[int, int]:
    """How many records live, and their words."""
    p = count = size = 0
    while p < len(words):
        length = abs(words[p + 1]) & _LENGTH_MASK
        if words[p + 1] >= 0:
            count += 1
            size += length
        p += length
    return count, size


@compiled
def copy_live(words: Array, out: Array, at: int, places: Array, row: int) -> tuple[int, int]:
    """Append the records that live, and where each is; the new ends."""
    p = 0
    while p < len(words):
        length = abs(words[p + 1]) & _LENGTH_MASK
        if words[p + 1] >= 0:
            places[row] = at
            row += 1
            for j in range(length):
                out[at + j] = words[p + j]
            at += length
        p += length
    return at, row


@compiled
def mark_used(words: Array, bases: Array, used: Array) -> None:
    """Flag the cuts that live records refer to; `bases[attr]` is -1 where keys are no ranks."""
    p = 0
    while p < len(words):
        end = p + (abs(words[p + 1]) & _LENGTH_MASK)
        if words[p + 1] >= 0:
            q = p + 2
            while q < end:
                base = bases[words[q] >> 32]
                n = words[q] & _LOW
                if base >= 0:
                    for j in range(n):
                        lo, last = words[q + 1 + 2 * j], words[q + 2 + 2 * j]
                        if lo > 0:
                            used[base + lo - 1] = True
                        if last != MAX:
                            used[base + last] = True
                q += 1 + 2 * n
        p = end


@compiled
def translate(words: Array, start: int, bases: Array, ranks: Array) -> None:
    """Replace the numbers of cuts by new ones, from `start` on."""
    p = start
    while p < len(words):
        end = p + (abs(words[p + 1]) & _LENGTH_MASK)
        q = p + 2
        while q < end:
            base = bases[words[q] >> 32]
            n = words[q] & _LOW
            if base >= 0:
                for j in range(n):
                    lo, last = words[q + 1 + 2 * j], words[q + 2 + 2 * j]
                    if lo > 0:
                        words[q + 1 + 2 * j] = ranks[base + lo - 1] + 1
                    if last != MAX:
                        words[q + 2 + 2 * j] = ranks[base + last]
            q += 1 + 2 * n
        p = end


@compiled
def rows_of(words: Array, where: Array, slot: int) -> None:
    """Note for each row the store and the place of its record."""
    p = 0
    while p < len(words):
        head = abs(words[p + 1])
        if words[p + 1] >= 0:
            where[head >> LENGTH_BITS] = slot << 40 | p
        p += head & _LENGTH_MASK


# -- building ----------------------------------------------------------------------------------


@compiled
def count_ends(words: Array, places: Array, stride: int, attributes: int) -> Array:
    """How many ends of stretches each attribute has among every stride-th record."""
    counts = np.zeros(attributes, np.int64)
    for r in range(0, len(places), stride):
        p = places[r]
        end = p + (words[p + 1] & _LENGTH_MASK)
        q = p + 2
        while q < end:
            n = words[q] & _LOW
            counts[words[q] >> 32] += 2 * n
            q += 1 + 2 * n
    return counts


@compiled
def gather_ends(words: Array, places: Array, stride: int, starts: Array) -> Array:
    """Those ends, grouped by attribute; entering ends as they are, leaving ends plus one."""
    at = starts.copy()
    ends = np.empty(starts[-1], np.int64)
    for r in range(0, len(places), stride):
        p = places[r]
        end = p + (words[p + 1] & _LENGTH_MASK)
        q = p + 2
        while q < end:
            attr = words[q] >> 32
            n = words[q] & _LOW
            for j in range(n):
                last = words[q + 2 + 2 * j]
                ends[at[attr]] = words[q + 1 + 2 * j]
                ends[at[attr] + 1] = last if last == MAX else last + 1
                at[attr] += 2
            q += 1 + 2 * n
    return ends


@compiled
def _span(words: Array, q: int, edges: Array) -> int:
    """How many buckets a constraint touches."""
    attr = words[q] >> 32
    span = 0
    behind = 0
    for j in range(words[q] & _LOW):
        first = max(bucket_of(edges, attr, words[q + 1 + 2 * j]), behind)
        behind = max(bucket_of(edges, attr, words[q + 2 + 2 * j]) + 1, behind)
        span += max(behind - first, 0)
    return span


@compiled
def order_constraints(words: Array, places: Array, edges: Array, spans: Array) -> None:
    """Put each record's constraints in order of the buckets they touch, fewest first.

    `spans[r]` gets the two least spans and the attributes they belong to (-1 for none).
    """
    for r in range(len(places)):
        p = places[r]
        length = words[p + 1] & _LENGTH_MASK
        copy = words[p : p + length].copy()
        starts = np.empty(length, np.int64)
        cost = np.empty(length, np.int64)
        k = 0
        q = 2
        while q < length:
            span = _span(copy, q, edges)
            j = k
            while j > 0 and cost[j - 1] > span:
                cost[j] = cost[j - 1]
                starts[j] = starts[j - 1]
                j -= 1
            cost[j] = span
            starts[j] = q
            k += 1
            q += 1 + 2 * (copy[q] & _LOW)
        at = p + 2
        for j in range(k):
            n = 1 + 2 * (copy[starts[j]] & _LOW)
            for m in range(n):
                words[at + m] = copy[starts[j] + m]
            at += n
        for j in range(2):
            spans[r, j] = cost[j] if j < k else BUCKETS
            spans[r, 2 + j] = copy[starts[j]] >> 32 if j < k else -1


@compiled
def _touched(words: Array, q: int, edges: Array, out: Array) -> None:
    """How many cells a constraint touches on an axis of 1, 2, 4, … 256 cells."""
    attr = words[q] >> 32
    for bits in range(BUCKET_BITS + 1):
        out[bits] = 0
    n = words[q] & _LOW
    previous = -1
    for j in range(n):
        lo = bucket_of(edges, attr, words[q + 1 + 2 * j])
        hi = bucket_of(edges, attr, words[q + 2 + 2 * j])
        for bits in range(BUCKET_BITS + 1):
            shift = BUCKET_BITS - bits
            first = lo >> shift
            if previous >= 0 and previous >> shift == first:
                first += 1
            out[bits] += max((hi >> shift) - first + 1, 0)
        previous = hi


@compiled
def resolutions(words: Array, places: Array, group: Array, groups: Array, edges: Array) -> Array:
    """Entries that each group would have, for every resolution of its two axes."""
    table = np.zeros((len(groups), BUCKET_BITS + 1, BUCKET_BITS + 1), np.int64)
    on_a = np.empty(BUCKET_BITS + 1, np.int64)
    on_b = np.empty(BUCKET_BITS + 1, np.int64)
    for r in range(len(places)):
        g = group[r]
        if g < 0:
            continue
        qa = places[r] + 2
        qb = qa + 1 + 2 * (words[qa] & _LOW)
        if words[qa] >> 32 != groups[g, A]:
            qa, qb = qb, qa
        _touched(words, qa, edges, on_a)
        if groups[g, A] != groups[g, B]:
            _touched(words, qb, edges, on_b)
        else:
            on_b[:] = 1
        for i in range(BUCKET_BITS + 1):
            for j in range(BUCKET_BITS + 1):
                table[g, i, j] += on_a[i] * on_b[j]
    return table


@compiled
def _coarse(words: Array, q: int, edges: Array) -> int:
    """A constraint's hull as one half of a signature."""
    attr = words[q] >> 32
    if attr > 255:
        return (BUCKETS - 1) << 16
    lo = bucket_of(edges, attr, words[q + 1])
    hi = bucket_of(edges, attr, words[q + 2 * (words[q] & _LOW)])
    return attr | lo << 8 | (hi - lo) << 16


@compiled
def signature(words: Array, p: int, edges: Array) -> int:
    """Coarse form of the constraints that the grid checks least: the third and fourth, else the first two."""
    end = p + (words[p + 1] & _LENGTH_MASK)
    q = p + 2
    halves = np.empty(4, np.int64)
    k = 0
    while q < end and k < 4:
        halves[k] = _coarse(words, q, edges)
        k += 1
        q += 1 + 2 * (words[q] & _LOW)
    if k == 0:
        return PASS
    if k == 1:
        return halves[0] | ((BUCKETS - 1) << 40)
    if k == 2:
        return halves[0] | halves[1] << 24
    if k == 3:
        return halves[2] | halves[0] << 24
    return halves[2] | halves[3] << 24


@compiled
def place_entries(
    words: Array,
    places: Array,
    group: Array,
    groups: Array,
    edges: Array,
    offsets: Array,
    signatures: Array,
    entries: Array,
    fill: bool,
) -> None:
    """Count the entries of every cell into `offsets[cell + 1]`, or (fill) put them at the cursor `offsets[cell]`."""
    for r in range(len(places)):
        g = group[r]
        if g < 0:
            continue
        p = places[r]
        qa = p + 2
        qb = qa + 1 + 2 * (words[qa] & _LOW)
        attr_a, attr_b = groups[g, A], groups[g, B]
        if words[qa] >> 32 != attr_a:
            qa, qb = qb, qa
        shift_a, shift_b = groups[g, SHIFT_A], groups[g, SHIFT_B]
        sig = signature(words, p, edges) if fill else 0
        single = shift_b == BUCKET_BITS
        behind_a = 0
        for j in range(words[qa] & _LOW):
            first_a = max(bucket_of(edges, attr_a, words[qa + 1 + 2 * j]) >> shift_a, behind_a)
            behind_a = max(behind_a, (bucket_of(edges, attr_a, words[qa + 2 + 2 * j]) >> shift_a) + 1)
            behind_b = 0
            for k in range(1 if single else words[qb] & _LOW):
                if single:
                    first_b, behind_b = 0, 1
                else:
                    first_b = max(bucket_of(edges, attr_b, words[qb + 1 + 2 * k]) >> shift_b, behind_b)
                    behind_b = max(behind_b, (bucket_of(edges, attr_b, words[qb + 2 + 2 * k]) >> shift_b) + 1)
                for ca in range(first_a, behind_a):
                    for cb in range(first_b, behind_b):
                        cell = groups[g, BASE] + ca * groups[g, WIDTH] + cb
                        if fill:
                            e = offsets[cell]
                            signatures[e] = sig
                            entries[e] = p
                            offsets[cell] += 1
                        else:
                            offsets[cell + 1] += 1


@compiled
def reorder(words: Array, places: Array, order: Array, out: Array, new_places: Array) -> None:
    """Copy records in a given order."""
    at = 0
    for j in range(len(order)):
        p = places[order[j]]
        length = words[p + 1] & _LENGTH_MASK
        for m in range(length):
            out[at + m] = words[p + m]
        new_places[j] = at
        at += length
