"""Reading many encoded filters, and covering many boxes, in one call each: the index's search in a loop, dz as keys."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sievenet.index.cover.dz import cover_dz
from sievenet.index.cover.kernels import emit
from sievenet.jit import compiled

__all__ = ["cover_boxes", "read_boxes"]

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Words = npt.NDArray[np.uint64]
_Bytes = npt.NDArray[np.uint8]
_Bools = npt.NDArray[np.bool_]

#: Bytes of the longest number that is read.
_LONG = 9


@compiled
def _number(data: _Bytes, at: int, end: int) -> tuple[int, int]:
    """A number of seven bits per byte, and where it ends; -1 if there is none, or a large one."""
    value = 0
    for i in range(_LONG):
        if at + i >= end:
            return -1, end
        value |= (int(data[at + i]) & 127) << 7 * i
        if data[at + i] < 128:
            return value, at + i + 1
    return -1, end


@compiled
def read_boxes(
    data: _Bytes, ends: _Ints, opening: _Ints, sizes: _Ints, axes: _Ints, table: _Ints, whole: _Ints
) -> tuple[_Ints, _Ints, _Bools]:
    """Where filters begin and end on each axis, and whether that is known; see `boxes`."""
    count = ends.shape[0]
    lo = np.zeros((count, whole.shape[0]), np.int64)
    hi = np.empty((count, whole.shape[0]), np.int64)
    known = np.zeros(count, np.bool_)
    end = 0
    for i in range(count):
        at, end = end, ends[i]
        hi[i] = whole
        if at == end or data[at] != opening[0]:
            continue
        version, at = _number(data, at + 1, end)
        filters, at = _number(data, at, end)
        rest, at = _number(data, at, end)
        if version != opening[1] or filters != 1:
            continue
        before = -1
        while rest > 0:
            attribute, at = _number(data, at, end)
            cuts, at = _number(data, at, end)
            first, at = _number(data, at, end)
            some, at = _number(data, at, end)
            if attribute <= before or attribute >= sizes.shape[0] or cuts != 2 or first < 0 or some <= 0:
                break
            if first + some > sizes[attribute]:
                break  # too many values, or none that are counted
            axis = axes[attribute]
            if axis >= 0:
                lo[i, axis], hi[i, axis] = table[0, axis, first], table[1, axis, first + some - 1]
            before = attribute
            rest -= 1
        known[i] = rest == 0 and at == end
    return lo, hi, known


@compiled
def cover_boxes(
    lo: _Ints,
    hi: _Ints,
    bits: _Ints,
    orders: _Ints,
    lengths: _Ints,
    shares: _Floats,
    positions: _Ints,
    bases: _Words,
    gray: bool,
    budget: int,
    sample: _Ints,
    sample_offsets: _Ints,
    grain: float,
) -> tuple[_Ints, _Ints]:
    """Per box the keys of its dz, siblings joined, in order, and their number.  For one region and at most 62 bits."""
    found = np.zeros((lo.shape[0], budget), np.int64)
    counts = np.zeros(lo.shape[0], np.int64)
    alone = np.array([0, 1])
    for i in range(lo.shape[0]):
        region, start, size = cover_dz(
            lo[i : i + 1], hi[i : i + 1], alone, bits, orders, lengths, shares, budget, sample, sample_offsets, grain
        )
        rows = emit(region, start, size, bits, positions, bases, gray)
        count = rows.shape[0]
        keys = found[i]
        for j in range(count):
            mask = rows[j, 2]
            length = 0
            while length < 62 and mask >> np.uint64(63 - length) & np.uint64(1):
                length += 1
            keys[j] = 1 << length | (np.int64(rows[j, 0] >> np.uint64(64 - length)) if length else 0)
        joined = True
        while joined:
            joined = False
            for j in range(count):
                for k in range(j):
                    if keys[j] ^ keys[k] == 1:
                        keys[k] >>= 1
                        count -= 1
                        keys[j] = keys[count]
                        joined = True
                        break
                if joined:
                    break
        keys[:count].sort()
        counts[i] = count
    return found, counts
