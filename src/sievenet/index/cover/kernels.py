"""Compiled kernels of the covering search; see the package's essay for the idea.

Names used throughout: a *target* is the bounding box of what a piece must cover, a pair
of grid coordinates per axis, both inclusive; an *atom* is what one entry covers on an
axis, ``2**size`` coordinates from ``start``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Words = npt.NDArray[np.uint64]

#: A split that saves nothing by itself may lead to ones that do: it ranks by this part of the waste.
LOOK = 0.05
LOOK_DZ = 0.3
#: How much an overlap of the two atoms of a split counts as saved.
SHARED = 0.5
#: Cuts are tried at multiples of this many bits below the length of the target.
FINE = 4


@njit(cache=True, nogil=True, inline="always")
def _bit_length(x: int) -> int:
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


@njit(cache=True, nogil=True)
def _hull(lo: int, hi: int, gray: bool) -> int:
    """The size (as a power of two) of the smallest atom that holds ``[lo, hi]``."""
    if not gray:
        return _bit_length(lo ^ hi)
    if lo == hi:
        return 0
    size = _bit_length(hi - lo)
    step = size - 1
    if hi < ((lo >> step) << step) + (1 << size):
        return size
    return size + 1


@njit(cache=True, nogil=True)
def _start(lo: int, size: int, gray: bool) -> int:
    step = size - 1 if gray and size > 0 else size
    return (lo >> step) << step


@njit(cache=True, nogil=True)
def _bounds(
    boxes_lo: _Ints,
    boxes_hi: _Ints,
    first: int,
    behind: int,
    lo: _Ints,
    hi: _Ints,
    out_lo: _Ints,
    out_hi: _Ints,
) -> int:
    """The bounding box of the boxes clipped to ``[lo, hi]``; how many of them are in it."""
    axes = lo.size
    found = 0
    for b in range(first, behind):
        inside = True
        for d in range(axes):
            if boxes_lo[b, d] > hi[d] or boxes_hi[b, d] < lo[d]:
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


@njit(cache=True, nogil=True)
def _volume(lo: _Ints, hi: _Ints, bits: _Ints, gray: bool) -> float:
    volume = 1.0
    for d in range(lo.size):
        volume *= 2.0 ** (_hull(lo[d], hi[d], gray) - bits[d])
    return volume


@njit(cache=True, nogil=True)
def _wanted(
    boxes_lo: _Ints, boxes_hi: _Ints, first: int, behind: int, lo: _Ints, hi: _Ints, bits: _Ints, gray: bool
) -> float:
    """The volume of the boxes (taken as disjoint) inside the atoms around ``[lo, hi]``."""
    total = 0.0
    for b in range(first, behind):
        volume = 1.0
        for d in range(lo.size):
            size = _hull(lo[d], hi[d], gray)
            start = _start(lo[d], size, gray)
            span = min(boxes_hi[b, d], start + (1 << size) - 1) - max(boxes_lo[b, d], start) + 1
            if span <= 0:
                volume = 0.0
                break
            volume *= span * 2.0 ** -bits[d]
        total += volume
    return total


@njit(cache=True, nogil=True)
def _weight(sample: _Ints, first: int, behind: int, lo: _Ints, hi: _Ints, gray: bool) -> int:
    """How many sampled events lie in the atoms around ``[lo, hi]``."""
    axes = lo.size
    start = np.empty(axes, np.int64)
    size = np.empty(axes, np.int64)
    for d in range(axes):
        size[d] = _hull(lo[d], hi[d], gray)
        start[d] = _start(lo[d], size[d], gray)
    count = 0
    for s in range(first, behind):
        inside = True
        for d in range(axes):
            if (sample[s, d] - start[d]) >> size[d] != 0:
                inside = False
                break
        if inside:
            count += 1
    return count


@njit(cache=True, nogil=True)
def _best_cut(lo: int, hi: int, size: int, gray: bool) -> tuple[float, int]:
    """Where to cut ``[lo, hi]`` in two, and the share of the atom that both parts keep."""
    if lo == hi:
        return 1.0, lo
    if not gray:
        cut = (hi >> (size - 1)) << (size - 1)
        kept = 2.0 ** (_hull(lo, cut - 1, False) - size) + 2.0 ** (_hull(cut, hi, False) - size)
        return kept, cut
    best = 3.0
    best_cut = lo + 1
    best_share = 1.0
    level = max(0, _bit_length(hi - lo) - FINE)
    cut = ((lo >> level) + 1) << level
    while cut <= hi:
        left = _hull(lo, cut - 1, True)
        right = _hull(cut, hi, True)
        both = 2.0 ** (left - size) + 2.0 ** (right - size)
        twice = max(0.0, (_start(lo, left, True) + (1 << left) - _start(cut, right, True)) * 2.0**-size)
        if both - SHARED * twice < best:
            best = both - SHARED * twice
            best_cut = cut
            best_share = both - twice
        cut += 1 << level
    return best_share, best_cut


@njit(cache=True, nogil=True)
def _lost(sample: _Ints, first: int, behind: int, lo: _Ints, hi: _Ints, axis: int, cut: int, gray: bool) -> int:
    """How many sampled events leave the atoms when ``axis`` is cut."""
    left = _hull(lo[axis], cut - 1, gray)
    right = _hull(cut, hi[axis], gray)
    left_start = _start(lo[axis], left, gray)
    right_start = _start(cut, right, gray)
    count = 0
    for s in range(first, behind):
        x = sample[s, axis]
        if (x - left_start) >> left == 0 or (x - right_start) >> right == 0:
            continue
        inside = True
        for d in range(lo.size):
            size = _hull(lo[d], hi[d], gray)
            if (sample[s, d] - _start(lo[d], size, gray)) >> size != 0:
                inside = False
                break
        if inside:
            count += 1
    return count


@njit(cache=True, nogil=True)
def _unwanted(
    boxes_lo: _Ints,
    boxes_hi: _Ints,
    b_first: int,
    b_behind: int,
    sample: _Ints,
    first: int,
    behind: int,
    lo: _Ints,
    hi: _Ints,
    gray: bool,
) -> int:
    """How many sampled events lie in the atoms around ``[lo, hi]`` and in no box."""
    axes = lo.size
    count = 0
    for s in range(first, behind):
        inside = True
        for d in range(axes):
            size = _hull(lo[d], hi[d], gray)
            if (sample[s, d] - _start(lo[d], size, gray)) >> size != 0:
                inside = False
                break
        if not inside:
            continue
        wanted = False
        for b in range(b_first, b_behind):
            wanted = True
            for d in range(axes):
                if sample[s, d] < boxes_lo[b, d] or sample[s, d] > boxes_hi[b, d]:
                    wanted = False
                    break
            if wanted:
                break
        if not wanted:
            count += 1
    return count


@njit(cache=True, nogil=True)
def _assess(
    boxes_lo: _Ints,
    boxes_hi: _Ints,
    first: int,
    behind: int,
    single: bool,
    lo: _Ints,
    hi: _Ints,
    bits: _Ints,
    gray: bool,
    sample: _Ints,
    s_first: int,
    s_behind: int,
    share: float,
    scratch: _Ints,
) -> tuple[float, int, int]:
    """The best split of a piece: what it saves, its axis and its cut (-1 if there is nothing to save)."""
    axes = lo.size
    volume = _volume(lo, hi, bits, gray)
    wanted = _wanted(boxes_lo, boxes_hi, first, behind, lo, hi, bits, gray)
    if volume <= wanted * (1 + 1e-12):
        return -1.0, -1, 0
    weighted = s_behind > s_first
    total = _weight(sample, s_first, s_behind, lo, hi, gray) if weighted else 0
    best = -1e300
    best_axis = -1
    best_at = 0
    for d in range(axes):
        if lo[d] == hi[d]:
            continue
        size = _hull(lo[d], hi[d], gray)
        kept, cut = _best_cut(lo[d], hi[d], size, gray)
        if single:
            gain = share * volume * (1.0 - kept)
            if weighted:
                gain += _lost(sample, s_first, s_behind, lo, hi, d, cut, gray)
            if gain > best:
                best, best_axis, best_at = gain, d, cut
            continue
        # Several boxes: parts may shrink on other axes too, and gaps are good places to cut.
        for b in range(first - 1, behind):
            at = cut
            if b >= first:
                at = boxes_lo[b, d]
                if at <= lo[d] or at > hi[d]:
                    continue
            gain = volume
            weight = total
            for side in range(2):
                scratch[0, :] = lo
                scratch[1, :] = hi
                if side == 0:
                    scratch[1, d] = at - 1
                else:
                    scratch[0, d] = at
                if _bounds(boxes_lo, boxes_hi, first, behind, scratch[0], scratch[1], scratch[2], scratch[3]):
                    gain -= _volume(scratch[2], scratch[3], bits, gray)
                    if weighted:
                        weight -= _weight(sample, s_first, s_behind, scratch[2], scratch[3], gray)
            gain = weight + share * gain
            if gain > best:
                best, best_axis, best_at = gain, d, at
    waste = share * (volume - wanted)
    if weighted:
        waste += _unwanted(boxes_lo, boxes_hi, first, behind, sample, s_first, s_behind, lo, hi, gray)
    return max(best, LOOK * waste), best_axis, best_at


@njit(cache=True, nogil=True)
def cover_cells(
    boxes_lo: _Ints,
    boxes_hi: _Ints,
    offsets: _Ints,
    bits: _Ints,
    shares: _Floats,
    gray: bool,
    budget: int,
    sample: _Ints,
    sample_offsets: _Ints,
) -> tuple[_Ints, _Ints, _Ints]:
    """Best-first covering by cells: region, start and size of the atoms of every piece."""
    regions = offsets.size - 1
    axes = boxes_lo.shape[1]
    room = max(budget, regions) + 1
    region = np.empty(room, np.int64)
    lo = np.empty((room, axes), np.int64)
    hi = np.empty((room, axes), np.int64)
    gain = np.empty(room, np.float64)
    axis = np.empty(room, np.int64)
    at = np.empty(room, np.int64)
    scratch = np.empty((6, axes), np.int64)
    count = 0
    for r in range(regions):
        first, behind = offsets[r], offsets[r + 1]
        if first == behind:
            continue
        scratch[0, :] = 0
        scratch[1, :] = np.iinfo(np.int64).max
        _bounds(boxes_lo, boxes_hi, first, behind, scratch[0], scratch[1], lo[count], hi[count])
        region[count] = r
        gain[count], axis[count], at[count] = _assess(
            boxes_lo,
            boxes_hi,
            first,
            behind,
            behind - first == 1,
            lo[count],
            hi[count],
            bits[r],
            gray,
            sample,
            sample_offsets[r],
            sample_offsets[r + 1],
            shares[r],
            scratch,
        )
        count += 1
    while 0 < count < budget:
        i = int(np.argmax(gain[:count]))
        if gain[i] <= 0.0 or axis[i] < 0:
            break
        r, d, cut = region[i], axis[i], at[i]
        first, behind = offsets[r], offsets[r + 1]
        scratch[4, :] = lo[i]
        scratch[5, :] = hi[i]
        made = 0
        for side in range(2):
            scratch[0, :] = scratch[4]
            scratch[1, :] = scratch[5]
            if side == 0:
                scratch[1, d] = cut - 1
            else:
                scratch[0, d] = cut
            place = i if made == 0 else count
            n = _bounds(boxes_lo, boxes_hi, first, behind, scratch[0], scratch[1], lo[place], hi[place])
            if n == 0:
                continue
            region[place] = r
            gain[place], axis[place], at[place] = _assess(
                boxes_lo,
                boxes_hi,
                first,
                behind,
                n == 1,
                lo[place],
                hi[place],
                bits[r],
                gray,
                sample,
                sample_offsets[r],
                sample_offsets[r + 1],
                shares[r],
                scratch,
            )
            count += made
            made = 1
    for i in range(count):
        for d in range(axes):
            size = _hull(lo[i, d], hi[i, d], gray)
            lo[i, d] = _start(lo[i, d], size, gray)
            hi[i, d] = size
    return region[:count], lo[:count], hi[:count]


@njit(cache=True, nogil=True)
def _shrunk(lo: _Ints, hi: _Ints, order: _Ints, length: int, depth: int, start: _Ints, size: _Ints) -> int:
    """Halve the dz (``start``, ``size``) as long as the target lies in one half; its new depth."""
    while depth < length:
        d = order[depth]
        half = size[d] - 1
        if lo[d] >> half != hi[d] >> half:
            break
        size[d] = half
        start[d] = (lo[d] >> half) << half
        depth += 1
    return depth


@njit(cache=True, nogil=True)
def _inside(sample: _Ints, first: int, behind: int, start: _Ints, size: _Ints) -> int:
    count = 0
    for s in range(first, behind):
        inside = True
        for d in range(start.size):
            if (sample[s, d] - start[d]) >> size[d] != 0:
                inside = False
                break
        if inside:
            count += 1
    return count


@njit(cache=True, nogil=True)
def _assess_dz(
    boxes_lo: _Ints,
    boxes_hi: _Ints,
    first: int,
    behind: int,
    lo: _Ints,
    hi: _Ints,
    start: _Ints,
    size: _Ints,
    depth: int,
    order: _Ints,
    length: int,
    sample: _Ints,
    s_first: int,
    s_behind: int,
    share: float,
    scratch: _Ints,
) -> float:
    """What halving a dz saves; -1 if there is nothing to save or no bit left."""
    if depth >= length:
        return -1.0
    volume = 2.0**-depth
    total = 0.0
    for b in range(first, behind):
        part = volume
        for d in range(lo.size):
            span = min(boxes_hi[b, d], hi[d]) - max(boxes_lo[b, d], lo[d]) + 1
            part *= max(span, 0) * 2.0 ** -size[d]
        total += part
    if volume <= total * (1 + 1e-12):
        return -1.0
    weighted = s_behind > s_first
    count = _inside(sample, s_first, s_behind, start, size) if weighted else 0
    d = order[depth]
    middle = start[d] + (1 << (size[d] - 1))
    gain = volume
    for side in range(2):
        scratch[0, :] = lo
        scratch[1, :] = hi
        if side == 0:
            scratch[1, d] = min(hi[d], middle - 1)
        else:
            scratch[0, d] = max(lo[d], middle)
        if not _bounds(boxes_lo, boxes_hi, first, behind, scratch[0], scratch[1], scratch[2], scratch[3]):
            continue
        scratch[4, :] = start
        scratch[5, :] = size
        deeper = _shrunk(scratch[2], scratch[3], order, length, depth, scratch[4], scratch[5])
        gain -= 2.0**-deeper
        if weighted:
            count -= _inside(sample, s_first, s_behind, scratch[4], scratch[5])
    gain = share * gain + count
    waste = share * (volume - total)
    if weighted:
        waste += _inside(sample, s_first, s_behind, start, size) * (1.0 - total / volume)
    return max(gain, LOOK_DZ * waste)


@njit(cache=True, nogil=True)
def cover_dz(
    boxes_lo: _Ints,
    boxes_hi: _Ints,
    offsets: _Ints,
    bits: _Ints,
    orders: _Ints,
    lengths: _Ints,
    shares: _Floats,
    budget: int,
    sample: _Ints,
    sample_offsets: _Ints,
) -> tuple[_Ints, _Ints, _Ints]:
    """Best-first covering by dz: region, start and size per axis of every piece."""
    regions = offsets.size - 1
    axes = boxes_lo.shape[1]
    room = max(budget, regions) + 1
    region = np.empty(room, np.int64)
    lo = np.empty((room, axes), np.int64)
    hi = np.empty((room, axes), np.int64)
    start = np.empty((room, axes), np.int64)
    size = np.empty((room, axes), np.int64)
    depth = np.empty(room, np.int64)
    gain = np.empty(room, np.float64)
    scratch = np.empty((6, axes), np.int64)
    old = np.empty((4, axes), np.int64)
    count = 0
    for r in range(regions):
        first, behind = offsets[r], offsets[r + 1]
        if first == behind:
            continue
        scratch[0, :] = 0
        scratch[1, :] = np.iinfo(np.int64).max
        _bounds(boxes_lo, boxes_hi, first, behind, scratch[0], scratch[1], lo[count], hi[count])
        region[count] = r
        start[count, :] = 0
        size[count, :] = bits[r]
        depth[count] = _shrunk(lo[count], hi[count], orders[r], lengths[r], 0, start[count], size[count])
        gain[count] = _assess_dz(
            boxes_lo,
            boxes_hi,
            first,
            behind,
            lo[count],
            hi[count],
            start[count],
            size[count],
            depth[count],
            orders[r],
            lengths[r],
            sample,
            sample_offsets[r],
            sample_offsets[r + 1],
            shares[r],
            scratch,
        )
        count += 1
    while 0 < count < budget:
        i = int(np.argmax(gain[:count]))
        if gain[i] <= 0.0:
            break
        r = region[i]
        first, behind = offsets[r], offsets[r + 1]
        d = orders[r, depth[i]]
        middle = start[i, d] + (1 << (size[i, d] - 1))
        old[0, :] = lo[i]
        old[1, :] = hi[i]
        old[2, :] = start[i]
        old[3, :] = size[i]
        old_depth = depth[i]
        made = 0
        for side in range(2):
            scratch[0, :] = old[0]
            scratch[1, :] = old[1]
            if side == 0:
                scratch[1, d] = min(old[1, d], middle - 1)
            else:
                scratch[0, d] = max(old[0, d], middle)
            place = i if made == 0 else count
            if not _bounds(boxes_lo, boxes_hi, first, behind, scratch[0], scratch[1], lo[place], hi[place]):
                continue
            region[place] = r
            start[place, :] = old[2]
            size[place, :] = old[3]
            depth[place] = _shrunk(lo[place], hi[place], orders[r], lengths[r], old_depth, start[place], size[place])
            gain[place] = _assess_dz(
                boxes_lo,
                boxes_hi,
                first,
                behind,
                lo[place],
                hi[place],
                start[place],
                size[place],
                depth[place],
                orders[r],
                lengths[r],
                sample,
                sample_offsets[r],
                sample_offsets[r + 1],
                shares[r],
                scratch,
            )
            count += made
            made = 1
    return region[:count], start[:count], size[:count]


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def union_volume(start: _Ints, size: _Ints, bits: _Ints) -> float:
    """The volume of a union of pieces of one region: each without those before it."""
    n, axes = start.shape
    room = 4096
    below = np.empty((room, axes), np.int64)
    above = np.empty((room, axes), np.int64)
    at = np.empty(room, np.int64)
    x = np.empty(axes, np.int64)
    y = np.empty(axes, np.int64)
    total = 0.0
    for i in range(n):
        for d in range(axes):
            below[0, d] = start[i, d]
            above[0, d] = start[i, d] + (1 << size[i, d])
        at[0] = 0
        top = 1
        while top:
            top -= 1
            x[:] = below[top]
            y[:] = above[top]
            j = at[top]
            while j < i:
                apart = False
                for d in range(axes):
                    if start[j, d] >= y[d] or start[j, d] + (1 << size[j, d]) <= x[d]:
                        apart = True
                        break
                if not apart:
                    break
                j += 1
            if j == i:
                volume = 1.0
                for d in range(axes):
                    volume *= (y[d] - x[d]) * 2.0 ** -bits[d]
                total += volume
                continue
            for d in range(axes):
                first = start[j, d]
                behind = first + (1 << size[j, d])
                if x[d] < first:
                    below[top] = x
                    above[top] = y
                    above[top, d] = first
                    at[top] = j + 1
                    top += 1
                    x[d] = first
                if y[d] > behind:
                    below[top] = x
                    above[top] = y
                    below[top, d] = behind
                    at[top] = j + 1
                    top += 1
                    y[d] = behind
    return total
