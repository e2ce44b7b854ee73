"""Greedy bits: which axis deserves the next bit, again and again.

Dimension selection gives every chosen dimension an equal share of the bits.  Here bits are given one by one (or up to
`_AHEAD` at once) to the axis that keeps away most of the false positives that are left, separately in every region: a
dimension may get eight bits in one rectangle and none in the next.

The false positives are pairs (event, filter).  With no bits, every pair of a region that does not match is one; each
bit sorts some of them out.  Most are sorted out by any sensible bits, so those that come through when the plan of
before loses a few bits are looked at closely, and of the others a few, weighted:

    pairs left   ████████████████████████████████
    x3, 1 bit    ████████████████                    half of them differ from their filter in the first bit of x3
    x0, 2 bits   █████                               one bit of x0 would have done nothing, two do a lot
    …

Greed alone may spend bits on what later bits make superfluous; so single bits are then exchanged between axes for as
long as that helps, once from there and once from how the bits were before, and the better end is taken.

An axis may be split where the workload is (adaptive) or evenly; coordinates with fewer bits are those with more,
shifted, so every axis is mapped once.  Cost: per region one look at
each pair (`_LOOKED_AT` at most), then some hundred comparisons of each that is kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.content import EventBatch
from sievenet.index import MAX_BITS, Axis, Plan, Region
from sievenet.index.axis import useful_bits
from sievenet.tuning.covers import Covers, Interests

__all__ = ["greedy_bits"]

_I64 = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]

#: Bits that a step may give to an axis at once.
_AHEAD: Final = 3
#: Pairs looked at per region at most.
_PAIRS: Final = 100_000
#: Pairs drawn from all (or all, if they are fewer), for what the bits of before keep away easily.
_EASY: Final = 20_000
#: Pairs of events and filters gone through per region.
_LOOKED_AT: Final = 10_000_000
#: A pair is hard if fewer bits by so many per axis would let it through.
_COARSER: Final = 2
#: Exchanges of single bits at most.
_EXCHANGES: Final = 20
#: Bits per axis at most; more never pay with few in all.
_PER_AXIS: Final = 16

Splits = Mapping[str, Sequence[int | float]]


class _Pairs:
    """False positives of a region: per pair its event's coordinates, its filter's ends by axis, and a weight."""

    def __init__(
        self, event: list[_I64], first: list[_I64], last: list[_I64], weight: npt.NDArray[np.float64], finest: list[int]
    ) -> None:
        self._ends = list(zip(event, first, last, strict=True))
        self.finest = finest
        self.weight = weight
        self._masks: dict[tuple[int, int], _Bools] = {}

    def surviving(self, axis: int, bits: int) -> _Bools:
        """Which pairs an axis leaves when it has so many bits."""
        found = self._masks.get((axis, bits))
        if found is None:
            event, first, last = self._ends[axis]
            shift = self.finest[axis] - bits
            place = event >> shift
            found = (place >= first >> shift) & (place <= last >> shift)
            self._masks[axis, bits] = found
        return found

    def left(self, given: Sequence[int]) -> float:
        """How many pairs are left when the axes have these bits."""
        kept = np.ones(len(self.weight), np.bool_)
        for axis, bits in enumerate(given):
            if bits:
                kept &= self.surviving(axis, bits)
        return float(self.weight[kept].sum())


def greedy_bits(
    plan: Plan, batch: EventBatch, interests: Interests, splits: Sequence[Splits] | None = None, seed: int = 0
) -> Plan:
    """The same regions with axes and bits chosen anew; ``splits`` per region makes axes adaptive."""
    fine = _fine(plan, splits)
    covers = Covers.of(fine, interests)
    rng = np.random.default_rng(seed)
    regions = []
    for number, (encoder, events) in enumerate(_members(fine, batch)):
        here = np.flatnonzero(covers.region == number)
        # As many pairs as we may look at, events and filters thinned alike.
        part = math.sqrt(min(1.0, _LOOKED_AT / max(1, len(events) * len(here))))
        sample = batch.take(_some(rng, events, part))
        here = _some(rng, here, part)
        grids = [encoder.coordinates(i, sample.columns[c]).astype(np.int64) for i, c in enumerate(encoder.columns)]
        finest = [a.bits for a in encoder.region.axes]
        had = {a.attribute: a.bits for a in plan.regions[number].axes}
        before = [min(had.get(a.attribute, 0), a.bits) for a in encoder.region.axes]
        pairs = _false_pairs(np.stack(grids), covers.first[here], covers.behind[here] - 1, before, finest, rng)
        room = plan.bits - len(encoder.region.prefix)
        order = _steps(pairs, _best(pairs, before, room))
        regions.append(_with_order(encoder.region, order))
    return Plan(plan.schema, plan.bits, tuple(regions), plan.kind, plan.gray, plan.version, plan.once)


def _fine(plan: Plan, splits: Sequence[Splits] | None) -> Plan:
    """The plan with as many bits for every attribute as could be of use."""
    schema = plan.schema
    regions = []
    for number, region in enumerate(plan.regions):
        shell = Region(region.prefix, (), (), region.bounds, region.rest)
        most = min(_PER_AXIS, (MAX_BITS - len(region.prefix)) // len(schema.attributes))
        points: Splits = {} if splits is None else splits[number]
        axes = []
        for attribute in schema.attributes:
            lo, hi = shell.range(schema, attribute.name)
            bits = min(most, useful_bits(attribute, lo, hi))
            inside = tuple(min(max(p, lo), hi) for p in points.get(attribute.name, ()))
            axes.append(Axis(attribute.name, MAX_BITS, inside).narrowed(bits))
        order = tuple(i for i, axis in enumerate(axes) for _ in range(axis.bits))
        regions.append(Region(region.prefix, tuple(axes), order, region.bounds, region.rest))
    return Plan(schema, MAX_BITS, tuple(regions), "dz", False, plan.version, plan.once)


def _members(plan: Plan, batch: EventBatch) -> list[tuple[Any, _I64]]:
    """The events of each region, in the order of the regions."""
    members = {id(region): rows for region, rows in plan.encoder.members(batch)}
    every = np.arange(len(batch))
    found = []
    for region in plan.encoder.regions:
        rows = members[id(region)]
        found.append((region, every if rows is None else rows))
    return found


def _some(rng: np.random.Generator, rows: _I64, part: float) -> _I64:
    wanted = max(1, int(len(rows) * part))
    return rows if wanted >= len(rows) else np.sort(rng.choice(rows, wanted, replace=False))


def _false_pairs(
    grids: _I64, first: _I64, last: _I64, before: list[int], finest: list[int], rng: np.random.Generator
) -> _Pairs:
    """False positives that the bits of before hardly keep away or not at all, and some of all the others.

    Pairs that even the finest grid cannot tell apart are no concern: most of them match.
    """
    from sievenet.tuning.kernels import hard_pairs

    coarse = np.array([f - max(0, b - _COARSER) for b, f in zip(before, finest, strict=True)], np.int64)
    event, box = np.zeros(_PAIRS, np.int64), np.zeros(_PAIRS, np.int64)
    kept, hard = hard_pairs(grids, first, last, coarse, _PAIRS, 1, event, box)
    event, box = event[:kept], box[:kept]
    weight = np.full(kept, hard / max(kept, 1))
    total = grids.shape[1] * len(first)
    if total:
        if total <= _EASY:
            other, some = np.divmod(np.arange(total), grids.shape[1])
        else:
            some, other = rng.integers(grids.shape[1], size=_EASY), rng.integers(len(first), size=_EASY)
        far = ((grids[:, some].T >> coarse) < (first[other] >> coarse)) | (
            (grids[:, some].T >> coarse) > (last[other] >> coarse)
        )
        easy = far.any(axis=1)
        event, box = np.concatenate([event, some[easy]]), np.concatenate([box, other[easy]])
        weight = np.concatenate([weight, np.full(int(easy.sum()), max(1.0, total / _EASY))])
    axes = range(len(finest))
    return _Pairs(
        [grids[d][event] for d in axes], [first[box, d] for d in axes], [last[box, d] for d in axes], weight, finest
    )


def _best(pairs: _Pairs, before: list[int], bits: int) -> list[int]:
    """How many bits each axis gets: greedily, or as it was before, whichever leads further by exchanging bits."""
    order = _steps(pairs, pairs.finest, bits)
    greedy = [order.count(axis) for axis in range(len(pairs.finest))]
    starts = [greedy, before] if sum(before) == sum(greedy) else [greedy]
    return min((_exchanged(pairs, start) for start in starts), key=pairs.left)


def _exchanged(pairs: _Pairs, given: list[int]) -> list[int]:
    """Move single bits from one axis to another for as long as that helps."""
    axes = range(len(given))
    best = pairs.left(given)
    for _ in range(_EXCHANGES):
        found = None
        for source in axes:
            if not given[source]:
                continue
            for target in axes:
                if target == source or given[target] >= pairs.finest[target]:
                    continue
                moved = [g - (a == source) + (a == target) for a, g in enumerate(given)]
                count = pairs.left(moved)
                if count < best:
                    best, found = count, moved
        if found is None:
            break
        given = found
    return given


def _steps(pairs: _Pairs, room: Sequence[int], bits: int | None = None) -> list[int]:
    """The axis of each bit, most useful first, until ``bits`` are given or there is no room."""
    room = list(room)
    total = sum(room) if bits is None else min(bits, sum(room))
    given = [0] * len(room)
    order: list[int] = []
    current = np.ones(len(pairs.weight), np.bool_)
    while len(order) < total:
        left = float(pairs.weight[current].sum())
        best, axis, more = 1e-12, -1, 1
        for candidate in range(len(room)):
            for ahead in range(1, min(_AHEAD, room[candidate] - given[candidate], total - len(order)) + 1):
                kept = current & pairs.surviving(candidate, given[candidate] + ahead)
                survives = float(pairs.weight[kept].sum())
                # What a bit takes away, as a power: 1 is half of the pairs.
                score = (math.log2(left + 1) - math.log2(survives + 1)) / ahead
                if score > best:
                    best, axis, more = score, candidate, ahead
        if axis < 0:
            # Nothing helps in the sample any more: the rest goes to whoever has fewest.
            axis = min((a for a in range(len(room)) if given[a] < room[a]), key=lambda a: given[a])
        given[axis] += more
        order += [axis] * more
        current &= pairs.surviving(axis, given[axis])
    return order


def _with_order(region: Region, order: list[int]) -> Region:
    """The region with only the axes that got bits."""
    used = sorted(set(order))
    axes = tuple(region.axes[i].narrowed(order.count(i)) for i in used)
    place = {axis: i for i, axis in enumerate(used)}
    return Region(region.prefix, axes, tuple(place[i] for i in order), region.bounds, region.rest)
