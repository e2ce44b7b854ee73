"""Covering many boxes in one call: the index's search and emission in a loop, dz given as keys."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sievenet.index.cover.dz import cover_dz
from sievenet.index.cover.kernels import emit
from sievenet.jit import compiled

__all__ = ["cover_boxes"]

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Words = npt.NDArray[np.uint64]


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
) -> tuple[_Ints, _Ints]:
    """Per box the keys of its dz, siblings joined, and how many they are.  For one region and at most 62 bits."""
    found = np.zeros((lo.shape[0], budget), np.int64)
    counts = np.zeros(lo.shape[0], np.int64)
    alone = np.array([0, 1])
    for i in range(lo.shape[0]):
        region, start, size = cover_dz(
            lo[i : i + 1], hi[i : i + 1], alone, bits, orders, lengths, shares, budget, sample, sample_offsets
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
        counts[i] = count
    return found, counts
