"""Adaptive splitting: split points that balance the workload.

The workload of a part of the event space is the sum, over the events in it, of how many
subscriptions they match.  Each split divides what it splits into two parts of equal
workload, so the places of an axis end up as the weighted quantiles of the events:

    workload   ▁▁▁▂▇█▇▂▁▁▁▁▁▁▁▁▁▁▁▁▂▃▂▁
    halves     ───────┼────────────────       7 split points: 3 bits
    quarters   ─────┼─┼─┼──────────┼───       (those of all levels are kept, in order)

A part of the mass (`SPREAD`) is laid evenly over the axis, so that places without events
are split too, coarsely, instead of not at all.

Counting goes through histograms, which add up over batches: `histogram`, then `splits`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from sievenet.content import Attribute, EventBatch
from sievenet.errors import InvalidInput
from sievenet.index.axis import MAX_SPLIT_BITS, Number, line_range
from sievenet.tuning.arrays import points

__all__ = ["BINS", "SPREAD", "edges", "histogram", "split_points", "splits"]

_Floats = npt.NDArray[np.float64]

#: Bins of a histogram; several per finest part.
BINS: Final = 4096
#: The part of the mass that is laid evenly over the axis.
SPREAD: Final = 0.05


def edges(attribute: Attribute, lo: Number | None = None, hi: Number | None = None, bins: int = BINS) -> _Floats:
    """Bin edges over (a stretch of) an attribute's line; one bin per whole number if they are few."""
    first, last = line_range(attribute)
    first, last = first if lo is None else lo, last if hi is None else hi
    if attribute.type != "float":
        count = int(last) - int(first) + 1
        if count <= bins:
            return np.arange(int(first), int(last) + 2, dtype=np.float64)
        return np.linspace(float(first), float(last) + 1.0, bins + 1)
    return np.linspace(float(first), float(last), bins + 1)


def histogram(places: _Floats, weights: npt.NDArray[np.int64], borders: _Floats) -> _Floats:
    """The workload in each bin; these add up."""
    found: _Floats = np.histogram(places, borders, weights=weights)[0].astype(np.float64)
    return found


def splits(mass: _Floats, borders: _Floats, bits: int, whole: bool, spread: float = SPREAD) -> tuple[Number, ...]:
    """``2**bits - 1`` ascending split points that divide a histogram's mass evenly."""
    if not 0 <= bits <= MAX_SPLIT_BITS:
        raise InvalidInput(expected=f"0 to {MAX_SPLIT_BITS} bits of split points", got=bits, where="splits")
    widths = np.diff(borders)
    if not bits or widths.sum() <= 0:
        return ()
    even = widths / widths.sum()
    total = mass.sum()
    shares = even if total <= 0 else (1.0 - spread) * mass / total + spread * even
    cumulated = np.concatenate([[0.0], np.cumsum(shares)])
    targets = np.arange(1, 1 << bits) / (1 << bits) * cumulated[-1]
    found = np.interp(targets, cumulated, borders)
    last = borders[-1] - 1 if whole else borders[-1]
    if whole:
        # A boundary lies before a whole number: the nearest one.
        return tuple(int(x) for x in np.clip(np.rint(found), borders[0], last))
    return tuple(float(x) for x in np.clip(found, borders[0], last))


def split_points(
    batch: EventBatch,
    matching: npt.NDArray[np.int64],
    bits: int | Mapping[str, int] = 6,
    dimensions: Sequence[str] | None = None,
    bounds: Mapping[str, tuple[Number, Number]] | None = None,
    spread: float = SPREAD,
) -> dict[str, tuple[Number, ...]]:
    """Split points per attribute from one batch, as `Plan.adaptive` takes them.

    ``matching`` says how many subscriptions want each event.  ``bounds`` limits everything to a rectangle: only events
    inside count, and the points divide it (for adaptive axes inside rectangles).  Free strings have no order and get
    none.
    """
    schema = batch.schema
    places = points(batch)
    weights = matching
    for name, (lo, hi) in (bounds or {}).items():
        column = places[:, schema.positions[name]]
        weights = np.where((column >= lo) & (column <= hi), weights, 0)
    found: dict[str, tuple[Number, ...]] = {}
    for name in schema.positions if dimensions is None else dimensions:
        attribute = schema[name]
        if attribute.type == "str" and attribute.values is None:
            continue
        borders = edges(attribute, *(bounds or {}).get(name, (None, None)))
        wanted = bits if isinstance(bits, int) else bits.get(name, 0)
        mass = histogram(places[:, schema.positions[name]], weights, borders)
        found[name] = splits(mass, borders, wanted, attribute.type != "float", spread)
    return found
