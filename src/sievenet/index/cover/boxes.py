"""Boxes: filters in grid coordinates, region by region.

    filter ──regions──▶ which regions must hold it ──axes──▶ spans of coordinates ──product──▶ boxes

A constraint that is a union gives several spans on its axis, and the box becomes a product
of them.  Products are kept small: while there are too many boxes, the two spans with the
smallest gap between them are joined, which can only enlarge what is covered.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from sievenet.content import Filter, Subscription
from sievenet.errors import PlanError
from sievenet.index.axis import MAX_AXIS_BITS, Axis, Scale, line_range
from sievenet.index.code import CODE_BITS

if TYPE_CHECKING:
    from sievenet.index.encoding import RegionEncoder
    from sievenet.index.plan import Plan

__all__ = ["Boxes", "Layout", "boxes_of", "layout_of"]

#: Most boxes that one filter becomes in one region.
_MAX_PER_FILTER: Final = 64
#: Most boxes that one subscription becomes in one region.
_MAX_PER_REGION: Final = 256

#: Regions that are looked at one by one.
_FEW: Final = 4

_Spans = list[tuple[int, int]]
_Box = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """A plan as the arrays that the covering kernels read; a row per region."""

    bits: npt.NDArray[np.int64]
    orders: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    shares: npt.NDArray[np.float64]
    positions: npt.NDArray[np.int64]
    #: Prefix value and mask words.
    bases: npt.NDArray[np.uint64]
    no_sample: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
    #: Regions × attributes: bounds as doubles, rounded outwards; and which attributes any region bounds.
    lower: npt.NDArray[np.float64]
    upper: npt.NDArray[np.float64]
    bounded: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """Inclusive coordinates of boxes, grouped by region: region r has rows offsets[r]..offsets[r+1]."""

    layout: Layout
    lo: npt.NDArray[np.int64]
    hi: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]

    def wanted(self) -> float:
        """The volume of the boxes, in shares of their regions (boxes of one filter are disjoint)."""
        spans = (self.hi - self.lo + 1).astype(np.float64)
        bits = np.repeat(self.layout.bits, np.diff(self.offsets), axis=0)
        return float(np.prod(np.ldexp(spans, -bits), axis=1).sum())


def _layout(plan: Plan) -> Layout:
    encoders = plan.encoder.regions
    axes = max(1, max(len(r.scales) for r in encoders))
    bits = np.zeros((len(encoders), axes), np.int64)
    positions = np.zeros((len(encoders), axes, MAX_AXIS_BITS), np.int64)
    longest = max(1, max(len(r.region.order) for r in encoders))
    orders = np.zeros((len(encoders), longest), np.int64)
    bases = np.zeros((len(encoders), 4), np.uint64)
    for r, region in enumerate(encoders):
        orders[r, : len(region.region.order)] = region.region.order
        bases[r] = region.prefix.cell(CODE_BITS).words()
        for d, places in enumerate(region.positions):
            bits[r, d] = len(places)
            positions[r, d, : len(places)] = places
    lengths = np.array([len(r.region.order) for r in encoders], np.int64)
    shares = np.array([r.region.share(plan.schema) for r in encoders])
    none = (np.zeros((0, axes), np.int64), np.zeros(len(encoders) + 1, np.int64))
    lower = np.full((len(encoders), len(plan.schema.attributes)), -np.inf)
    upper = np.full_like(lower, np.inf)
    for r, region in enumerate(encoders):
        for column, lo, hi in region.bounds:
            lower[r, column], upper[r, column] = np.nextafter(float(lo), -np.inf), np.nextafter(float(hi), np.inf)
    bounded = np.isfinite(lower).any(axis=0)
    return Layout(bits, orders, lengths, shares, positions, bases, none, lower, upper, bounded)


def layout_of(plan: Plan) -> Layout:
    """The plan's arrays, made once."""
    encoder = plan.encoder
    if encoder.layout is None:
        encoder.layout = _layout(plan)
    return encoder.layout


def boxes_of(plan: Plan, wanted: Filter | Subscription) -> Boxes:
    """The boxes of a filter or subscription in every region that must hold it."""
    layout = layout_of(plan)
    axes = layout.bits.shape[1]
    filters = wanted.filters if isinstance(wanted, Subscription) else (wanted,)
    found: list[list[_Box]] = [[] for _ in plan.regions]
    for each in filters:
        if each.empty:
            continue
        if each.schema is None:
            raise PlanError("Expected a filter with a schema: schemaless content has no index", where="cover")
        plan._check_schema(each.schema)
        for r, part in _parts(plan, each):
            found[r] += _region_boxes(plan.encoder.regions[r], part)
    found = [_fewer(boxes) for boxes in found]
    offsets = np.zeros(len(found) + 1, np.int64)
    np.cumsum([len(boxes) for boxes in found], out=offsets[1:])
    lo = np.zeros((int(offsets[-1]), axes), np.int64)
    hi = np.zeros((int(offsets[-1]), axes), np.int64)
    row = 0
    for boxes in found:
        for box in boxes:
            for d, (first, last) in enumerate(box):
                lo[row, d] = first
                hi[row, d] = last
            row += 1
    return Boxes(layout, lo, hi, offsets)


def _parts(plan: Plan, wanted: Filter) -> list[tuple[int, Filter]]:
    """The regions that must hold a filter, each with the filter's part in it."""
    areas = plan.encoder.areas
    near = _near(plan, wanted)
    holding = [r for r in near if not plan.regions[r].rest and areas[r].covers(wanted)]
    if holding and not plan.once:
        shares = layout_of(plan).shares
        return [(min(holding, key=lambda r: (shares[r], r)), wanted)]
    if not holding and not plan.admits(wanted):
        raise PlanError(
            "Expected a filter inside the plan's regions, for the plan has none for the rest "
            f"(see Plan.admits, Plan.with_rest), got {str(wanted)[:200]}",
            where="cover",
        )
    # The first region that holds an event encodes it: behind one that holds the whole filter, nothing is left.
    last = holding[0] if holding else len(areas)
    parts = ((r, wanted.intersect(areas[r])) for r in near if r <= last and not (holding and plan.regions[r].rest))
    return [(r, part) for r, part in parts if not part.empty]


def _near(plan: Plan, wanted: Filter) -> list[int]:
    """The regions that may meet a filter, by hulls."""
    if len(plan.regions) <= _FEW:
        return list(range(len(plan.regions)))
    layout, schema = layout_of(plan), plan.schema
    near = np.ones(len(plan.regions), np.bool_)
    for name, values in wanted.constraints.items():
        column = schema.positions[name]
        if layout.bounded[column]:
            attribute = schema.attributes[column]
            scale = Scale.of(Axis(name, 0), attribute, *line_range(attribute))
            lo, hi = scale.hull(values)
            near &= (layout.lower[:, column] <= float(hi)) & (layout.upper[:, column] >= float(lo))
    return [int(r) for r in np.flatnonzero(near)]


def _region_boxes(region: RegionEncoder, part: Filter) -> list[_Box]:
    spans: list[_Spans] = []
    for scale in region.scales:
        values = part.constraints.get(scale.attribute.name)
        spans.append([(0, (1 << scale.bits) - 1)] if values is None else scale.spans(values))
    if prod(map(len, spans)) > _MAX_PER_FILTER:
        spans = _joined(spans, [1 << scale.bits for scale in region.scales])
    return list(product(*spans))


def _joined(spans: list[_Spans], widths: list[int]) -> list[_Spans]:
    """The spans with the narrowest gaps closed, relative to their axes, until the product is small enough.

    Closing a gap leaves the others as they are, so sorting them once gives the order: n log n for n spans.
    """
    gaps = sorted(
        ((each[i + 1][0] - each[i][1]) / widths[d], d, i) for d, each in enumerate(spans) for i in range(len(each) - 1)
    )
    counts = [len(each) for each in spans]
    closed: list[set[int]] = [set() for _ in spans]
    for _, d, i in gaps:
        if prod(counts) <= _MAX_PER_FILTER:
            break
        counts[d] -= 1
        closed[d].add(i)
    found: list[_Spans] = []
    for each, shut in zip(spans, closed, strict=True):
        kept = [i for i in range(len(each) - 1) if i not in shut]
        firsts = [each[0], *(each[i + 1] for i in kept)]
        lasts = [*(each[i] for i in kept), each[-1]]
        found.append([(a[0], b[1]) for a, b in zip(firsts, lasts, strict=True)])
    return found


def _fewer(boxes: list[_Box]) -> list[_Box]:
    """At most `_MAX_PER_REGION` boxes: neighbours in order joined pair by pair."""
    boxes = list(dict.fromkeys(boxes))
    while len(boxes) > _MAX_PER_REGION:
        boxes.sort()
        pairs = zip(boxes[::2], [*boxes[1::2], boxes[-1]], strict=False)
        boxes = [_hull(a, b) for a, b in pairs]
    return boxes


def _hull(one: _Box, other: _Box) -> _Box:
    return tuple((min(a[0], b[0]), max(a[1], b[1])) for a, b in zip(one, other, strict=True))
