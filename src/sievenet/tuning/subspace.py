"""Subspaces: each is split where *its own* workload is halved (adaptive spatial indexing, as in the source).

The workload of a part of the event space is the sum, over the events in it, of how many subscriptions they match.
Every split divides one subspace, along the next dimension in turn, into two of equal workload:

    ┌────────┬──────────┐        the first split halves the workload along x; then each half is split
    │        │    01 11 │        along y, each at a place of its own; and so on
    │  00 01 ├──────────┤
    ├────────┤          │        axes that are split by their own quantiles (`splits`) would have one
    │  00    │ 10 (1 %) │        place for both halves: where attributes go together, as price and turnover
    │ (25 %) │          │        do, most of their cells are empty and a few hold nearly everything
    └────────┴──────────┘

The tree of splits is a plan of regions that tile the event space: a leaf is a region, the way to it its prefix.  So
codes, covers and plan changes need nothing new; an event has one code, and neighbours in the tree share a prefix that
one entry can cover.  A plan has room for `MAX_REGIONS` leaves; below them halves are even, or by quantiles of the leaf.

A part of the mass (`SPREAD`) is laid evenly over each subspace, so that places without events are split too, coarsely.

Cost: events · log events per level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from sievenet.content import EventBatch, Schema
from sievenet.errors import InvalidInput
from sievenet.index.axis import Number, line_range
from sievenet.index.plan import MAX_REGIONS, Bound, Kind, Plan, Region
from sievenet.index.region import region_of
from sievenet.tuning.arrays import points
from sievenet.tuning.splits import SPREAD, edges, histogram, splits

__all__ = ["MAX_LEVELS", "subspace_plan"]

_Floats = npt.NDArray[np.float64]
_I64 = npt.NDArray[np.int64]

#: Levels of splits that a plan has room for.
MAX_LEVELS: Final = MAX_REGIONS.bit_length() - 1
#: Whole numbers beyond this are not exact as doubles.
_EXACT: Final = 1 << 53
#: Bits and bins of split points inside a leaf, and the events that each part between them should have.
_SPLIT_BITS: Final = 6
_EVENTS: Final = 16
_BINS: Final = 1024


@dataclass(frozen=True, slots=True)
class _Leaf:
    prefix: str
    #: Per splittable dimension its stretch.
    ranges: tuple[tuple[Number, Number], ...]
    rows: _I64
    #: The dimension whose turn is next.
    turn: int


def subspace_plan(
    batch: EventBatch,
    matching: _I64,
    bits: int,
    levels: int,
    dimensions: Sequence[str] | None = None,
    kind: Kind = "dz",
    *,
    inner: bool = True,
    spread: float = SPREAD,
    version: int = 1,
) -> Plan:
    """A plan of ``2**levels`` subspaces of equal workload; ``matching`` says how many subscriptions want each event.

    With ``inner`` each subspace goes on by quantiles of its own workload, otherwise by even halves.
    """
    schema = batch.schema
    if not 0 <= levels <= min(MAX_LEVELS, bits):
        raise InvalidInput(expected=f"0 to {min(MAX_LEVELS, bits)} levels", got=levels, where="subspaces")
    names = list(schema.positions if dimensions is None else dimensions)
    split = [n for n in names if _splittable(schema, n)]
    places = points(batch)[:, [schema.positions[n] for n in split]]
    weights = np.asarray(matching, np.float64)
    whole = [schema[n].type != "float" for n in split]
    ranges = tuple(line_range(schema[n]) for n in split)
    leaves = [_Leaf("", ranges, np.flatnonzero(weights > 0), 0)]
    for _ in range(levels):
        leaves = [half for leaf in leaves for half in _halved(leaf, places, weights, whole, spread)]
    regions = [_region(schema, bits, names, split, leaf, places, weights, inner, spread) for leaf in leaves]
    return Plan(schema, bits, tuple(regions), kind, kind == "cells", version, once=True)


def _splittable(schema: Schema, name: str) -> bool:
    attribute = schema[name]
    if attribute.type == "str":
        return attribute.values is not None
    lo, hi = line_range(attribute)
    return attribute.type == "float" or (lo >= -_EXACT and hi <= _EXACT)


def _halved(leaf: _Leaf, places: _Floats, weights: _Floats, whole: list[bool], spread: float) -> list[_Leaf]:
    """A subspace as two, along the next dimension that can be split; itself if none can."""
    count = len(leaf.ranges)
    for step in range(count):
        d = (leaf.turn + step) % count
        lo, hi = leaf.ranges[d]
        at = _balance(places[leaf.rows, d], weights[leaf.rows], lo, hi, whole[d], spread)
        if at is None:
            continue
        before: Number = int(at) - 1 if whole[d] else math.nextafter(at, -math.inf)
        above = places[leaf.rows, d] >= at
        low = (*leaf.ranges[:d], (lo, before), *leaf.ranges[d + 1 :])
        high = (*leaf.ranges[:d], (at, hi), *leaf.ranges[d + 1 :])
        turn = (d + 1) % count
        return [
            _Leaf(leaf.prefix + "0", low, leaf.rows[~above], turn),
            _Leaf(leaf.prefix + "1", high, leaf.rows[above], turn),
        ]
    return [leaf]


def _balance(values: _Floats, weights: _Floats, lo: Number, hi: Number, whole: bool, spread: float) -> Number | None:
    """Where the upper half begins; None if there is only one place."""
    if not lo < hi:
        return None
    first, last = float(lo), float(hi)
    middle = first + (last - first) / 2
    middle = math.floor(middle) + 1.0 if whole else max(middle, math.nextafter(first, math.inf))
    order = np.argsort(values, kind="stable")
    ordered, heavy = values[order], np.concatenate([[0.0], np.cumsum(weights[order])])
    behind = ordered + 1 if whole else np.nextafter(ordered, np.inf)
    cuts = np.unique(np.concatenate([ordered, behind, [middle]]))
    cuts = cuts[(cuts > first) & (cuts <= last)]
    even = (cuts - first) / (last - first)
    below = heavy[np.searchsorted(ordered, cuts, "left")]
    share = even if heavy[-1] <= 0 else (1 - spread) * below / heavy[-1] + spread * even
    best = float(cuts[np.argmin(np.abs(share - 0.5))])
    return int(best) if whole else best


def _region(
    schema: Schema,
    bits: int,
    names: list[str],
    split: list[str],
    leaf: _Leaf,
    places: _Floats,
    weights: _Floats,
    inner: bool,
    spread: float,
) -> Region:
    """A leaf as a region: bits go on in turn where the splits ended."""
    bounds = tuple(
        Bound(name, lo, hi)
        for name, (lo, hi) in zip(split, leaf.ranges, strict=True)
        if (lo, hi) != line_range(schema[name])
    )
    start = names.index(split[leaf.turn]) if split else 0
    turned = names[start:] + names[:start]
    points_of: dict[str, tuple[Number, ...]] = {}
    # Quantiles of a few events say nothing about the next ones.
    fine = min(_SPLIT_BITS, (len(leaf.rows) // _EVENTS).bit_length())
    if inner and fine:
        for d, name in enumerate(split):
            borders = edges(schema[name], *leaf.ranges[d], _BINS)
            mass = histogram(places[leaf.rows, d], weights[leaf.rows].astype(np.int64), borders)
            points_of[name] = splits(mass, borders, fine, schema[name].type != "float", spread)
    made = region_of(schema, bits - len(leaf.prefix), turned, bounds, points_of)
    return Region(leaf.prefix, made.axes, made.order, made.bounds)
