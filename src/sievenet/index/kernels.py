"""Compiled kernels of batch encoding: value → grid coordinate → bits in their places.

A kernel handles one column and one axis.  It finds the coordinate and *xors* the bits it
contributes into the words of the codes.  The placing of bits (interleaving, and Gray
coding if the plan has it) is linear over xor, so it is a table lookup per `CHUNK` bits of
the coordinate, whatever the order of the bits is.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sievenet.jit import compiled, inlined

_U64 = npt.NDArray[np.uint64]
_I64 = npt.NDArray[np.int64]
_F64 = npt.NDArray[np.float64]

#: Bits of a coordinate per table lookup.
CHUNK = 8


@inlined
def _high_product(x: np.uint64, y: np.uint64) -> np.uint64:
    """The upper 64 bits of a product of 64-bit numbers."""
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    a, b, c, d = x >> half, x & low, y >> half, y & low
    middle = a * d + ((b * d) >> half)
    other = b * c + (middle & low)
    return a * c + (middle >> half) + (other >> half)


@inlined
def _bucket_int(starts: _I64, v: int) -> int:
    """The last bucket that starts at or before a value; the number of buckets is a power of two."""
    at = 0
    step = starts.size >> 1
    while step:
        at += step * (starts[at + step] <= v)  # no branch: it would be mispredicted half of the time
        step >>= 1
    return at


@inlined
def _bucket_float(starts: _F64, v: float) -> int:
    at = 0
    step = starts.size >> 1
    while step:
        at += step * (starts[at + step] <= v)  # no branch: it would be mispredicted half of the time
        step >>= 1
    return at


@compiled
def grid_ints(column: _I64, starts: _I64, high: _U64, low: _U64, rest: int, out: _U64) -> None:
    """Grid coordinates of whole numbers: bucket, then the exact fraction of the bucket in ``rest`` bits."""
    shift = np.uint64(64 - rest)
    if starts.size == 1 and low[0] == 0:
        start, factor = starts[0], high[0]
        if rest == 0:
            out[:] = np.uint64(0)
            return
        for i in range(column.size):
            out[i] = (np.uint64(column[i] - start) * factor) >> shift
        return
    for i in range(column.size):
        b = _bucket_int(starts, column[i])
        coordinate = np.uint64(b)
        if rest:
            x = np.uint64(column[i] - starts[b])
            fraction = x * high[b] + _high_product(x, low[b])
            coordinate = (coordinate << np.uint64(rest)) | (fraction >> shift)
        out[i] = coordinate


@compiled
def grid_floats(column: _F64, starts: _F64, scales: _F64, rest: int, out: _U64) -> None:
    """Grid coordinates of floats: bucket, then the scaled distance from its start, cut off at its end."""
    top = (1 << rest) - 1
    if starts.size == 1:
        start, scale = starts[0], scales[0]
        for i in range(column.size):
            out[i] = np.uint64(min(int((column[i] - start) * scale), top))
        return
    for i in range(column.size):
        b = _bucket_float(starts, column[i])
        inner = min(int((column[i] - starts[b]) * scales[b]), top)
        out[i] = np.uint64((b << rest) | inner)


@compiled
def place_high(grid: _U64, table: _U64, hi: _U64) -> None:
    """Xor the places of coordinates of up to `CHUNK` bits into the high words."""
    for i in range(grid.size):
        hi[i] ^= table[grid[i]]


@compiled
def place(grid: _U64, tables: _U64, hi: _U64, lo: _U64) -> None:
    """Xor the places of coordinates into both words; ``tables`` is (chunk, byte, word)."""
    mask = np.uint64((1 << CHUNK) - 1)
    for i in range(grid.size):
        x = grid[i]
        a, b = hi[i], lo[i]
        for c in range(tables.shape[0]):
            byte = x & mask
            a ^= tables[c, byte, 0]
            b ^= tables[c, byte, 1]
            x >>= np.uint64(CHUNK)
        hi[i] = a
        lo[i] = b


@compiled
def gather(codes: npt.NDArray[np.int32], words: _U64, hi: _U64, lo: _U64) -> None:
    """Xor the words of each category into the codes."""
    for i in range(codes.size):
        hi[i] ^= words[codes[i], 0]
        lo[i] ^= words[codes[i], 1]


@compiled
def gather_ints(column: _I64, first: int, words: _U64, hi: _U64, lo: _U64) -> None:
    """The same for whole numbers from ``first`` on."""
    for i in range(column.size):
        at = column[i] - first
        hi[i] ^= words[at, 0]
        lo[i] ^= words[at, 1]


@compiled
def count_masked(
    hi: _U64, lo: _U64, value_hi: np.uint64, value_lo: np.uint64, mask_hi: np.uint64, mask_lo: np.uint64
) -> int:
    """How many codes equal a value under a mask."""
    count = 0
    for i in range(hi.size):
        if (hi[i] & mask_hi) == value_hi and (lo[i] & mask_lo) == value_lo:
            count += 1
    return count


@compiled
def mark(bitmaps: _U64, first: _I64, behind: _I64, box: _I64) -> None:
    """Set the bit of each span's box in the rows ``first`` to ``behind`` (exclusive)."""
    for i in range(first.size):
        word = box[i] >> 6
        bit = np.uint64(1) << np.uint64(box[i] & 63)
        for row in range(first[i], behind[i]):
            bitmaps[row, word] |= bit


@inlined
def _popcount(x: np.uint64) -> int:
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return int((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@compiled
def stab(ranks: npt.NDArray[np.int32], bitmaps: _U64, starts: _I64, owners: _I64, counts: _I64) -> None:
    """Per event how many owners have a box around it.

    Row ``starts[d] + ranks[d, e]`` of the bitmaps holds the boxes whose span on axis d holds
    event e; boxes of one owner are neighbours.
    """
    axes, events = ranks.shape
    words = bitmaps.shape[1]
    simple = owners.size == 0
    for e in range(events):
        found = 0
        last = np.int64(-1)
        for w in range(words):
            x = bitmaps[starts[0] + ranks[0, e], w]
            for d in range(1, axes):
                if x == 0:
                    break
                x &= bitmaps[starts[d] + ranks[d, e], w]
            if x == 0:
                continue
            if simple:
                found += _popcount(x)
                continue
            while x:
                low = x & (~x + np.uint64(1))
                owner = owners[(w << 6) + _popcount(low - np.uint64(1))]
                if owner != last:
                    found += 1
                    last = owner
                x ^= low
        counts[e] += found


@compiled
def pair_counts(ranks: npt.NDArray[np.int32], bitmaps: _U64, starts: _I64, out: _I64) -> None:
    """For each two axes the sum over events of boxes whose spans on both axes hold the event."""
    axes, events = ranks.shape
    words = bitmaps.shape[1]
    for e in range(events):
        for i in range(axes):
            a = starts[i] + ranks[i, e]
            for j in range(i, axes):
                b = starts[j] + ranks[j, e]
                found = 0
                for w in range(words):
                    found += _popcount(bitmaps[a, w] & bitmaps[b, w])
                out[i, j] += found


@compiled
def masked_owners(hi: _U64, lo: _U64, rows: _U64, owners: _I64, counts: _I64) -> None:
    """Per code how many owners have an entry (value and mask words) that holds it."""
    for i in range(hi.size):
        last = np.int64(-1)
        for r in range(rows.shape[0]):
            if owners[r] != last and (hi[i] & rows[r, 2]) == rows[r, 0] and (lo[i] & rows[r, 3]) == rows[r, 1]:
                counts[i] += 1
                last = owners[r]
