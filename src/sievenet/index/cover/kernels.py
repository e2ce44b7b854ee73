"""Compiled kernels that both searches share; see the package's essay for the idea.

Names used throughout: a *target* is the bounding box of what a piece must cover, a pair
of grid coordinates per axis, both inclusive; an *atom* is what one entry covers on an
axis, ``2**size`` coordinates from ``start``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sievenet.jit import compiled, inlined

_Ints = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]


@inlined
def bit_length(x: int) -> int:
    """`int.bit_length` of a number below 2**63."""
    n = 0
    if x >= 1 << 32:
        x >>= 32
        n += 32
    if x >= 1 << 16:
        x >>= 16
        n += 16
    if x >= 1 << 8:
        x >>= 8
        n += 8
    if x >= 1 << 4:
        x >>= 4
        n += 4
    if x >= 1 << 2:
        x >>= 2
        n += 2
    if x >= 1 << 1:
        x >>= 1
        n += 1
    return n + x


@compiled
def hull(lo: int, hi: int, gray: bool) -> int:
    """The size (as a power of two) of the smallest atom that holds ``[lo, hi]``."""
    if not gray:
        return bit_length(lo ^ hi)
    if lo == hi:
        return 0
    size = bit_length(hi - lo)
    step = size - 1
    if hi < ((lo >> step) << step) + (1 << size):
        return size
    return size + 1


@compiled
def start_of(lo: int, size: int, gray: bool) -> int:
    """Where the atom of that size around ``lo`` begins."""
    step = size - 1 if gray and size > 0 else size
    return (lo >> step) << step


@compiled
def bounds(
    boxes_lo: _Ints,
    boxes_hi: _Ints,
    first: int,
    behind: int,
    lo: _Ints,
    hi: _Ints,
    out_lo: _Ints,
    out_hi: _Ints,
) -> int:
    """The bounding box of the boxes clipped to ``[lo, hi]``; how many of them are in it.

    A box that ends before it begins is empty and in nothing.
    """
    axes = lo.size
    found = 0
    for b in range(first, behind):
        inside = True
        for d in range(axes):
            if boxes_lo[b, d] > hi[d] or boxes_hi[b, d] < lo[d] or boxes_lo[b, d] > boxes_hi[b, d]:
                inside = False
                break
        if not inside:
            continue
        for d in range(axes):
            x = max(boxes_lo[b, d], lo[d])
            y = min(boxes_hi[b, d], hi[d])
            if found == 0 or x < out_lo[d]:
                out_lo[d] = x
            if found == 0 or y > out_hi[d]:
                out_hi[d] = y
        found += 1
    return found


@compiled
def emit(region: _Ints, start: _Ints, size: _Ints, bits: _Ints, positions: _Ints, bases: _Words, gray: bool) -> _Words:
    """Pieces as rows of value and mask words; rows that another covers are left out."""
    n, axes = start.shape
    rows = np.zeros((n, 4), np.uint64)
    kept = 0
    one = np.uint64(1)
    for i in range(n):
        r = region[i]
        rows[kept, :] = bases[r]
        for d in range(axes):
            a = start[i, d]
            width = bits[r, d]
            free = size[i, d]
            differ = 0
            if a & ((1 << free) - 1):  # two blocks around a boundary: Gray codes differ in one bit
                free -= 1
                b = a + (1 << free)
                differ = (a ^ (a >> 1)) ^ (b ^ (b >> 1))
            value = a ^ (a >> 1) if gray else a
            for j in range(width - free):
                place = width - 1 - j
                if differ >> place & 1:
                    continue
                position = positions[r, d, j]
                word = 0 if position < 64 else 1
                bit = one << np.uint64(63 - position % 64)
                rows[kept, 2 + word] |= bit
                if value >> place & 1:
                    rows[kept, word] |= bit
        covered = False
        for j in range(kept):
            if (
                rows[j, 2] & ~rows[kept, 2] == 0
                and rows[j, 3] & ~rows[kept, 3] == 0
                and rows[kept, 0] & rows[j, 2] == rows[j, 0]
                and rows[kept, 1] & rows[j, 3] == rows[j, 1]
            ):
                covered = True
                break
        if covered:
            continue
        j = 0
        while j < kept:  # and those that this one covers
            if (
                rows[kept, 2] & ~rows[j, 2] == 0
                and rows[kept, 3] & ~rows[j, 3] == 0
                and rows[j, 0] & rows[kept, 2] == rows[kept, 0]
                and rows[j, 1] & rows[kept, 3] == rows[kept, 1]
            ):
                kept -= 1
                rows[j, :] = rows[kept]
                rows[kept, :] = rows[kept + 1]
            else:
                j += 1
        kept += 1
        if kept < n:
            rows[kept, :] = 0
    return rows[:kept]
