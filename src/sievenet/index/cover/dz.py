"""The compiled search for covers by dz: the plan's order of bits decides where a piece is halved."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sievenet.index.cover.kernels import bounds
from sievenet.jit import compiled

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]

#: Halving that saves nothing by itself may lead to one that does: it ranks by this part of the waste.
LOOK = 0.3


@compiled
def _copy(row: _Ints, into: _Ints) -> None:
    """In a loop: an array assignment takes several times as long for so few numbers."""
    for d in range(row.size):
        into[d] = row[d]


@compiled
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


@compiled
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


@compiled
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
            part *= max(span, 0) / (1 << size[d])
        total += part
    if volume <= total * (1 + 1e-12):
        return -1.0
    weighted = s_behind > s_first
    count = _inside(sample, s_first, s_behind, start, size) if weighted else 0
    d = order[depth]
    middle = start[d] + (1 << (size[d] - 1))
    gain = volume
    for side in range(2):
        _copy(lo, scratch[0])
        _copy(hi, scratch[1])
        if side == 0:
            scratch[1, d] = min(hi[d], middle - 1)
        else:
            scratch[0, d] = max(lo[d], middle)
        if not bounds(boxes_lo, boxes_hi, first, behind, scratch[0], scratch[1], scratch[2], scratch[3]):
            continue
        _copy(start, scratch[4])
        _copy(size, scratch[5])
        deeper = _shrunk(scratch[2], scratch[3], order, length, depth, scratch[4], scratch[5])
        gain -= 2.0**-deeper
        if weighted:
            count -= _inside(sample, s_first, s_behind, scratch[4], scratch[5])
    gain = share * gain + count
    waste = share * (volume - total)
    if weighted:
        waste += _inside(sample, s_first, s_behind, start, size) * (1.0 - total / volume)
    return max(gain, LOOK * waste)


@compiled
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
    grain: float,
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
        for d in range(axes):
            scratch[0, d], scratch[1, d] = 0, (1 << bits[r, d]) - 1
        if not bounds(boxes_lo, boxes_hi, first, behind, scratch[0], scratch[1], lo[count], hi[count]):
            continue  # nothing but empty boxes
        region[count] = r
        for d in range(axes):
            start[count, d], size[count, d] = 0, bits[r, d]
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
        if gain[i] <= grain:
            break
        r = region[i]
        first, behind = offsets[r], offsets[r + 1]
        d = orders[r, depth[i]]
        middle = start[i, d] + (1 << (size[i, d] - 1))
        _copy(lo[i], old[0])
        _copy(hi[i], old[1])
        _copy(start[i], old[2])
        _copy(size[i], old[3])
        old_depth = depth[i]
        made = 0
        parts = 0
        for side in range(2):
            _copy(old[0], scratch[0])
            _copy(old[1], scratch[1])
            if side == 0:
                scratch[1, d] = min(old[1, d], middle - 1)
            else:
                scratch[0, d] = max(old[0, d], middle)
            place = i if made == 0 else count
            if not bounds(boxes_lo, boxes_hi, first, behind, scratch[0], scratch[1], lo[place], hi[place]):
                continue
            region[place] = r
            _copy(old[2], start[place])
            _copy(old[3], size[place])
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
            parts += 1
        if parts < 2:
            gain[i] = -1.0  # nothing was divided: no piece is tried twice, so there are at most 2 · budget rounds
    return region[:count], start[:count], size[:count]
