"""Kernels on records: checking one against an event, walking, copying and translating a store, the table of keys.

A *record* is a run of int64 words, one per filter:

    key │ row << 24 | length │ attr << 32 | n │ lo 1 │ last 1 │ … lo n │ last n │ attr << 32 | n │ …
                             └─ one constraint: n closed stretches, ascending ─┘

Records are numbered in the order in which they lie; `alive[number]` turns zero when one is removed.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sievenet.jit import compiled, inlined

Array = Any

MAX: Final = 0x7FFF_FFFF_FFFF_FFFF
MIN: Final = -MAX - 1
#: Bits of the length of a record in its second word.
LENGTH_BITS: Final = 24
LENGTH_MASK: Final = (1 << LENGTH_BITS) - 1
#: The bits of a constraint's first word that count its stretches.
LOW: Final = 0xFFFF_FFFF
#: Buckets per attribute; there is one edge less.
BUCKET_BITS: Final = 8
BUCKETS: Final = 1 << BUCKET_BITS
#: What an unused entry of the table of keys holds; rows are not negative.
UNUSED: Final = -1


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
    """The key of a double given as its bits: `content.number.float_key`, compiled."""
    return bits if bits >= 0 else -(bits & MAX)


@inlined
def holds(words: Array, p: int, xs: Array, i: int) -> bool:
    """Whether event i satisfies the record at p."""
    end = p + (words[p + 1] & LENGTH_MASK)
    q = p + 2
    while q < end:
        spec = words[q]
        x = xs[i, spec >> 32]
        n = spec & LOW
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
        p += words[p + 1] & LENGTH_MASK
        number += 1
    return count


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


@compiled
def live_size(words: Array, alive: Array) -> tuple[int, int]:
    """How many records live, and their words."""
    p = number = count = size = 0
    while p < len(words):
        length = words[p + 1] & LENGTH_MASK
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
        length = words[p + 1] & LENGTH_MASK
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
        end = p + (words[p + 1] & LENGTH_MASK)
        q = p + 2
        while q < end:
            base = bases[words[q] >> 32]
            n = words[q] & LOW
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
        end = p + (words[p + 1] & LENGTH_MASK)
        q = p + 2
        while q < end:
            base = bases[words[q] >> 32]
            n = words[q] & LOW
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
        p += words[p + 1] & LENGTH_MASK
        number += 1


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
