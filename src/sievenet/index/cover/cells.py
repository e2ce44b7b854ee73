"""The compiled search for covers by cells: each axis has an atom of its own; split on the axis that saves most."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sievenet.index.cover.kernels import bounds, hull, start_of
from sievenet.index.cover.outlook import KNOWN, PLACES, STEPS, best_cut, priced
from sievenet.jit import compiled

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]

#: A split that saves nothing by itself may lead to ones that do: it ranks by this part of the waste.
LOOK = 0.05


@compiled
def _volume(lo: _Ints, hi: _Ints, bits: _Ints, gray: bool) -> float:
    volume = 1.0
    for d in range(lo.size):
        volume *= 2.0 ** (hull(lo[d], hi[d], gray) - bits[d])
    return volume


@compiled
def _wanted(
    boxes_lo: _Ints, boxes_hi: _Ints, first: int, behind: int, lo: _Ints, hi: _Ints, bits: _Ints, gray: bool
) -> float:
    """The volume of the boxes (taken as disjoint) inside the atoms around ``[lo, hi]``."""
    total = 0.0
    for b in range(first, behind):
        volume = 1.0
        for d in range(lo.size):
            size = hull(lo[d], hi[d], gray)
            start = start_of(lo[d], size, gray)
            span = min(boxes_hi[b, d], start + (1 << size) - 1) - max(boxes_lo[b, d], start) + 1
            if span <= 0:
                volume = 0.0
                break
            volume *= span * 2.0 ** -bits[d]
        total += volume
    return total


@compiled
def _weight(sample: _Ints, first: int, behind: int, lo: _Ints, hi: _Ints, gray: bool) -> int:
    """How many sampled events lie in the atoms around ``[lo, hi]``."""
    axes = lo.size
    start = np.empty(axes, np.int64)
    size = np.empty(axes, np.int64)
    for d in range(axes):
        size[d] = hull(lo[d], hi[d], gray)
        start[d] = start_of(lo[d], size[d], gray)
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


@compiled
def _kept(lo: int, hi: int, cut: int, gray: bool) -> float:
    """The coordinates in the atoms of both parts of ``[lo, hi]``."""
    left, right = hull(lo, cut - 1, gray), hull(cut, hi, gray)
    twice = max(0, start_of(lo, left, gray) + (1 << left) - start_of(cut, right, gray))
    return 2.0**left + 2.0**right - twice


@compiled
def _lost(sample: _Ints, first: int, behind: int, lo: _Ints, hi: _Ints, axis: int, cut: int, gray: bool) -> int:
    """How many sampled events leave the atoms when ``axis`` is cut."""
    left = hull(lo[axis], cut - 1, gray)
    right = hull(cut, hi[axis], gray)
    left_start = start_of(lo[axis], left, gray)
    right_start = start_of(cut, right, gray)
    count = 0
    for s in range(first, behind):
        x = sample[s, axis]
        if (x - left_start) >> left == 0 or (x - right_start) >> right == 0:
            continue
        inside = True
        for d in range(lo.size):
            size = hull(lo[d], hi[d], gray)
            if (sample[s, d] - start_of(lo[d], size, gray)) >> size != 0:
                inside = False
                break
        if inside:
            count += 1
    return count


@compiled
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
            size = hull(lo[d], hi[d], gray)
            if (sample[s, d] - start_of(lo[d], size, gray)) >> size != 0:
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


@compiled
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
    grain: float,
    places: _Ints,
    steps: _Floats,
) -> tuple[float, int, int]:
    """The best split of a piece: what it saves, its axis and its cut (-1 if there is nothing to save)."""
    if single and grain > 0.0 and s_behind == s_first:
        return priced(lo, hi, bits, gray, share, grain, places, steps)
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
        size = hull(lo[d], hi[d], gray)
        cut, _ = best_cut(lo[d], hi[d], gray)
        if single:
            gain = share * volume * (1.0 - _kept(lo[d], hi[d], cut, gray) * 2.0**-size)
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
                if bounds(boxes_lo, boxes_hi, first, behind, scratch[0], scratch[1], scratch[2], scratch[3]):
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


@compiled
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
    grain: float,
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
    some = KNOWN + 1 if grain > 0.0 else 0
    places, steps = np.full((some, PLACES), -1, np.int64), np.empty((some, STEPS))
    count = 0
    for r in range(regions):
        first, behind = offsets[r], offsets[r + 1]
        if first == behind:
            continue
        scratch[0, :] = 0
        for d in range(axes):
            scratch[1, d] = (1 << bits[r, d]) - 1
        if not bounds(boxes_lo, boxes_hi, first, behind, scratch[0], scratch[1], lo[count], hi[count]):
            continue  # nothing but empty boxes
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
            grain,
            places,
            steps,
        )
        count += 1
    while 0 < count < budget:
        i = int(np.argmax(gain[:count]))
        if gain[i] <= grain or axis[i] < 0:
            break
        r, d, cut = region[i], axis[i], at[i]
        first, behind = offsets[r], offsets[r + 1]
        scratch[4, :] = lo[i]
        scratch[5, :] = hi[i]
        made = 0
        parts = 0
        for side in range(2):
            scratch[0, :] = scratch[4]
            scratch[1, :] = scratch[5]
            if side == 0:
                scratch[1, d] = cut - 1
            else:
                scratch[0, d] = cut
            place = i if made == 0 else count
            n = bounds(boxes_lo, boxes_hi, first, behind, scratch[0], scratch[1], lo[place], hi[place])
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
                grain,
                places,
                steps,
            )
            count += made
            made = 1
            parts += 1
        if parts < 2:
            gain[i] = -1.0  # nothing was divided: no piece is tried twice, so there are at most 2 · budget rounds
    for i in range(count):
        for d in range(axes):
            size = hull(lo[i, d], hi[i, d], gray)
            lo[i, d] = start_of(lo[i, d], size, gray)
            hi[i, d] = size
    return region[:count], lo[:count], hi[:count]
