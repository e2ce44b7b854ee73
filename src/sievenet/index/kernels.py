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
def _bucket(starts: _I64 | _F64, v: float) -> int:
    """The last bucket that starts at or before a value; the number of buckets is a power of two."""
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
        b = _bucket(starts, column[i])
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
        b = _bucket(starts, column[i])
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
