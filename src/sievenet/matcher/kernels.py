"""Compiled kernels of the matcher; `level` explains the structure, this says how its arrays are laid out.

A *record* is a run of int64 words, one per filter:

    key │ row << 24 | length │ attr << 32 | n │ lo 1 │ last 1 │ … lo n │ last n │ attr << 32 | n │ …
                             └─ one constraint: n closed stretches, ascending ─┘

Records are numbered in the order in which they lie; `alive[number]` turns zero when one is removed.

A *block* has 256 slots, each the number of a record.  Its *slices* are bitmaps over the slots, one row of four words
per bucket of an attribute: bit j of row v says whether slot j admits a value in bucket v.  What the slices cannot say
exactly, the *checks* of a slot do: rows of
column, lo, last, where the columns are those attributes that have checks; or of -1 and the place of a record to be
checked whole.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

Array = Any
#: Untyped on purpose: callers hand over bundles of arrays, which no signature can describe.
compiled: Any = njit(cache=True, nogil=True)
_intrinsic: Any = intrinsic
_array_of: Any = make_array
#: For what is called per filter: a call hands over arrays, which costs more than the work.
inlined: Any = njit(cache=True, nogil=True, inline="always")

MAX: Final = 0x7FFF_FFFF_FFFF_FFFF
MIN: Final = -MAX - 1
#: Bits of the length of a record in its second word.
LENGTH_BITS: Final = 24
_LENGTH_MASK: Final = (1 << LENGTH_BITS) - 1
_LOW: Final = 0xFFFF_FFFF
#: Buckets per attribute, and the edges between them.
BUCKET_BITS: Final = 8
BUCKETS: Final = 1 << BUCKET_BITS
#: Slots of a block, and the words of a row of its slices.
SLOTS: Final = 256
WORDS: Final = SLOTS // 64
#: Events for which sorting pays.
_MANY: Final = 32
#: Events whose bitmaps are made at a time: they stay in the nearest cache.
_TILE: Final = 256
#: Columns of the table of blocks: the attribute it is clustered by (-1: none) and the buckets it can match,
#: the range of its slices, the number of its slots.
ATTR, LO, HI, FIRST, BEHIND, FILLED = range(6)
#: Columns of the table of slices: attribute, buckets per row as a shift, row of bucket 0.
S_ATTR, S_SHIFT, S_ROW = range(3)


# -- small parts, inlined by the compiler ----------------------------------------------------


@_intrinsic
def lowest_bit(typingctx: Any, word: Any) -> Any:
    """The position of the lowest bit that is set, by the machine's own instruction."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


def _rows(context: Any, builder: Any, signature: Any, args: Any, arrays: tuple[int, ...]) -> list[Any]:
    """Pointers to rows of four words; args alternate between arrays and indices."""
    row = ir.VectorType(ir.IntType(64), WORDS)
    pointers = []
    for at in arrays:
        array = _array_of(signature.args[at])(context, builder, args[at])
        base = builder.bitcast(array.data, row.as_pointer())
        pointers.append(builder.gep(base, [args[at + 1]], source_etype=row))
    return pointers


@_intrinsic
def copy_row(typingctx: Any, target: Any, i: Any, source: Any, j: Any) -> Any:
    """target[i] = source[j], for rows of four words, with one wide load and store."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to, of = _rows(context, builder, signature, args, (0, 2))
        row = ir.VectorType(ir.IntType(64), WORDS)
        builder.store(builder.load(of, align=8, typ=row), to, align=8)
        return context.get_dummy_value()

    return types.void(target, i, source, j), generate


@_intrinsic
def and_row(typingctx: Any, target: Any, i: Any, source: Any, j: Any) -> Any:
    """target[i] &= source[j], for rows of four words; the compiler would take them one by one."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to, of = _rows(context, builder, signature, args, (0, 2))
        row = ir.VectorType(ir.IntType(64), WORDS)
        both = builder.and_(builder.load(to, align=8, typ=row), builder.load(of, align=8, typ=row))
        builder.store(both, to, align=8)
        return context.get_dummy_value()

    return types.void(target, i, source, j), generate


@compiled
def bucket_of(edges: Array, attr: int, x: int) -> int:
    """The number of edges of an attribute below x: 0 to 255.  Unused edges are the greatest key, below nothing."""
    at = 0
    step = BUCKETS >> 1
    while step:
        # edges[attr] has 255 entries, ascending: at + step - 1 <= 254.
        at += step if edges[attr, at + step - 1] < x else 0
        step >>= 1
    return at


@compiled
def float_key(bits: int) -> int:
    """The bits of a double as a whole number of the same order; both zeros are one."""
    if bits == MIN:
        return 0
    return bits if bits >= 0 else bits ^ MAX


@inlined
def holds(words: Array, p: int, xs: Array, i: int) -> bool:
    """Whether event i satisfies the record at p."""
    end = p + (words[p + 1] & _LENGTH_MASK)
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


@inlined
def passes(checks: Array, first: int, behind: int, values: Array, j: int, words: Array, xs: Array, i: int) -> bool:
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
def walk(xs: Array, n: int, words: Array, alive: Array, found_event: Array, found_key: Array, count: int) -> int:
    """Append the matches of n events among all records, one after the other."""
    p = number = 0
    while p < len(words):
        if alive[number]:
            for i in range(n):
                if holds(words, p, xs, i):
                    if count < len(found_key):
                        found_event[count] = i
                        found_key[count] = words[p]
                    count += 1
        p += words[p + 1] & _LENGTH_MASK
        number += 1
    return count


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
            found_event, found_key, count,
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
    for block in range(len(blocks)):
        if blocks[block, ATTR] != sorted_by:
            sorted_by = blocks[block, ATTR]
            sort_events(buckets, n, sorted_by, order, starts)
            for j in range(n):
                i = np.int64(order[j])
                for attr in used:
                    columns[attr, j] = buckets[i, attr]
                for column in range(len(checked)):
                    values[j, column] = xs[i, checked[column]]
        end = starts[blocks[block, HI] + 1]
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
        xs, buckets, 1, words, alive, keys, blocks, slots, check_ends, checks, slices, rows, checked,
        found_event, found_key, count,
    )  # fmt: skip


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
def live_size(words: Array, alive: Array) -> tuple[int, int]:
    """How many records live, and their words."""
    p = number = count = size = 0
    while p < len(words):
        length = words[p + 1] & _LENGTH_MASK
        if alive[number]:
            count += 1
            size += length
        p += length
        number += 1
    return count, size


@compiled
def copy_live(words: Array, alive: Array, out: Array, at: int, places: Array, row: int) -> tuple[int, int]:
    """Append the records that live, and where each is; the new ends."""
    p = number = 0
    while p < len(words):
        length = words[p + 1] & _LENGTH_MASK
        if alive[number]:
            places[row] = at
            row += 1
            for j in range(length):
                out[at + j] = words[p + j]
            at += length
        p += length
        number += 1
    return at, row


@compiled
def mark_used(words: Array, bases: Array, used: Array) -> None:
    """Flag the cuts that records refer to; `bases[attr]` is -1 where keys are no ranks."""
    p = 0
    while p < len(words):
        end = p + (words[p + 1] & _LENGTH_MASK)
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
def translate(words: Array, bases: Array, ranks: Array) -> None:
    """Replace the numbers of cuts by new ones."""
    p = 0
    while p < len(words):
        end = p + (words[p + 1] & _LENGTH_MASK)
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
def rows_of(words: Array, where: Array, store: int) -> None:
    """Note for each row the store (a number, shifted) and the number of its record."""
    p = number = 0
    while p < len(words):
        where[words[p + 1] >> LENGTH_BITS] = store | number
        p += words[p + 1] & _LENGTH_MASK
        number += 1


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
    """Those ends, grouped by attribute, each as the last key before the cut."""
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
        end = p + (words[p + 1] & _LENGTH_MASK)
        q = p + 2
        best = 1.0
        out[r, 0], out[r, 1], out[r, 2], out[r, 3] = -1, 0, 1, BUCKETS
        while q < end:
            attr = words[q] >> 32
            n = words[q] & _LOW
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
        for j in range(words[q] & _LOW):
            lo = bucket_of(edges, attr, words[q + 1 + 2 * j])
            hi = bucket_of(edges, attr, words[q + 2 + 2 * j])
            if at == begin or (lo > last + 1 and chosen[r, 2] > 1):
                copies[at, 0], copies[at, 1], copies[at, 3] = attr, lo, r
                at += 1
            last = max(last, hi)
            copies[at - 1, 2] = last


@compiled
def count_constraints(words: Array, places: Array, slots: Array, blocks: Array, counts: Array) -> int:
    """`counts[block, attr]`: how many slots of a block constrain an attribute; the sum of all."""
    total = 0
    for block in range(len(blocks)):
        for j in range(blocks[block, FILLED]):
            p = places[slots[block * SLOTS + j]]
            end = p + (words[p + 1] & _LENGTH_MASK)
            q = p + 2
            while q < end:
                counts[block, words[q] >> 32] += 1
                total += 1
                q += 1 + 2 * (words[q] & _LOW)
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
            end = p + (words[p + 1] & _LENGTH_MASK)
            q = p + 2
            while q < end:
                s = here[words[q] >> 32]
                if s >= 0:
                    free[s, j >> 6] &= ~(np.uint64(1) << np.uint64(j & 63))
                q += 1 + 2 * (words[q] & _LOW)
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
            end = p + (words[p + 1] & _LENGTH_MASK)
            q = p + 2
            while q < end:
                attr = words[q] >> 32
                n = words[q] & _LOW
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
    for j in range(words[q] & _LOW):
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
                end = p + (words[p + 1] & _LENGTH_MASK)
                q = p + 2
                whole = False
                begin = at
                while q < end:
                    attr = words[q] >> 32
                    n = words[q] & _LOW
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
        length = words[p + 1] & _LENGTH_MASK
        for m in range(length):
            out[at + m] = words[p + m]
        new_places[j] = at
        at += length


# -- the table of keys: open addressing, linear probing ------------------------------------------

#: What an unused entry holds; rows are not negative.
UNUSED: Final = -1


@inlined
def _home(key: int, mask: int) -> int:
    """Where a key belongs: the high bits of a product, which depend on all bits of the key."""
    product = np.uint64(key) * np.uint64(0x9E37_79B9_7F4A_7C15)
    return int(product >> np.uint64(24)) & mask


@compiled
def find_key(table: Array, key: int) -> int:
    """The row of a key, or `UNUSED`."""
    mask = len(table) - 1
    at = _home(key, mask)
    while table[at, 1] != UNUSED and table[at, 0] != key:
        at = (at + 1) & mask
    return table[at, 1]


@compiled
def put_key(table: Array, key: int, row: int) -> int:
    """Enter a key or change its row; the row it had, or `UNUSED`.  There is room."""
    mask = len(table) - 1
    at = _home(key, mask)
    while table[at, 1] != UNUSED and table[at, 0] != key:
        at = (at + 1) & mask
    old = table[at, 1]
    table[at, 0], table[at, 1] = key, row
    return old


@compiled
def put_keys(table: Array, keys: Array, rows: Array) -> Array:
    """The same for many keys."""
    old = np.empty(len(keys), np.int64)
    for j in range(len(keys)):
        old[j] = put_key(table, keys[j], rows[j])
    return old


@compiled
def take_key(table: Array, key: int) -> int:
    """Remove a key; its row, or `UNUSED`.  Entries behind it move up, so that no search ends early."""
    mask = len(table) - 1
    at = _home(key, mask)
    while table[at, 1] != UNUSED and table[at, 0] != key:
        at = (at + 1) & mask
    row = table[at, 1]
    if row == UNUSED:
        return UNUSED
    hole = at
    at = (at + 1) & mask
    while table[at, 1] != UNUSED:
        # An entry may fill the hole if its home is not between the hole and itself.
        if (at - _home(table[at, 0], mask)) & mask >= (at - hole) & mask:
            table[hole, 0], table[hole, 1] = table[at, 0], table[at, 1]
            hole = at
        at = (at + 1) & mask
    table[hole, 1] = UNUSED
    return row
