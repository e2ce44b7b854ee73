"""Events and filters as plain arrays, for the kernels that tune plans.

A point per event and a box per filter, one column per attribute, on the attributes' lines
(see `axis`): numbers as they are, ordinals for enumerations, 0 and 1 for bools.  A free
string has no order, so its column is the hash of the string, and only equality of one
string bounds a filter there.  Doubles throughout: these arrays serve to *choose* plans,
never to encode.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sievenet.content import EventBatch, Filter, Schema, StringColumn, Subscription
from sievenet.index.axis import Axis, Scale, hashed, line_range

__all__ = ["bounds", "domains", "each_filter", "points"]

_Floats = npt.NDArray[np.float64]


def points(batch: EventBatch) -> _Floats:
    """Events × attributes."""
    found = np.empty((len(batch), len(batch.columns)), np.float64)
    for i, (attribute, column) in enumerate(zip(batch.schema.attributes, batch.columns, strict=True)):
        if isinstance(column, StringColumn):
            free = attribute.values is None
            places = [float(hashed(c)) if free else float(j) for j, c in enumerate(column.categories)]
            found[:, i] = np.array(places, np.float64)[column.codes] if len(column) else 0.0
        else:
            found[:, i] = column
    return found


def domains(schema: Schema) -> tuple[_Floats, _Floats]:
    """The lower and upper end of every attribute's line."""
    ranges = [line_range(a) for a in schema.attributes]
    return np.array([float(lo) for lo, _ in ranges]), np.array([float(hi) for _, hi in ranges])


def each_filter(wanted: Iterable[Filter | Subscription]) -> list[Filter]:
    """The filters of subscriptions, one after the other, without empty ones."""
    found: list[Filter] = []
    for each in wanted:
        found += each.filters if isinstance(each, Subscription) else (each,)
    return [f for f in found if not f.empty]


def bounds(schema: Schema, filters: Sequence[Filter]) -> tuple[_Floats, _Floats]:
    """Filters × attributes: the first and the last place that each filter admits."""
    low, high = domains(schema)
    lo, hi = np.tile(low, (len(filters), 1)), np.tile(high, (len(filters), 1))
    scales: dict[str, Any] = {a.name: Scale.of(Axis(a.name, 0), a, *line_range(a)) for a in schema.attributes}
    for row, each in enumerate(filters):
        for name, values in each.constraints.items():
            column = schema.positions[name]
            lo[row, column], hi[row, column] = scales[name].hull(values)
    return lo, hi
