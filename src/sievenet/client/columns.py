"""A subscription against many events, by NumPy alone: for a handful of subscriptions, which need no matcher.

A constraint is a sorted tuple of cuts (`content.valueset`), and a value is inside if an odd number of cuts lies below
it. Counting them is a binary search, for a whole column at once:

    cuts     before 2        after 5               below 3: one, inside;  below 7: two, outside
    values        2  3  5         7
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sievenet.content.batch import Column, EventBatch, StringColumn
from sievenet.content.filter import Filter, Subscription
from sievenet.content.valueset import NUMBER, ValueSet

__all__ = ["Mask", "matching"]

Mask = npt.NDArray[np.bool_]


def matching(wanted: Subscription, batch: EventBatch) -> Mask:
    """Which events of a batch match."""
    found = np.zeros(len(batch), np.bool_)
    for each in wanted.filters:
        found |= _matching(each, batch)
    return found


def _matching(each: Filter, batch: EventBatch) -> Mask:
    found = np.full(len(batch), not each.empty)
    for name, values in each.constraints.items():
        found &= _inside(values, batch.column(name))
    return found


def _inside(values: ValueSet, column: Column) -> Mask:
    if isinstance(column, StringColumn):
        table = np.fromiter((text in values for text in column.categories), np.bool_, len(column.categories))
        return table[column.codes]
    if column.dtype == np.bool_:
        return np.array([False in values, True in values])[column.view(np.uint8)]
    # A column of int64 must not be compared as floats, nor floats as whole numbers: then one by one is right.
    kind = int if column.dtype == np.int64 else float
    cuts = [cut for cut in values.cuts if cut[0] == NUMBER and len(cut) > 1]
    if any(kind(cut[1]) != cut[1] or abs(cut[1]) >= 1 << 63 for cut in cuts):
        return np.fromiter((value in values for value in column.tolist()), np.bool_, len(column))
    before, after = (np.array([cut[1] for cut in cuts if cut[2] == side], column.dtype) for side in (0, 1))
    below = sum(cut <= (NUMBER,) for cut in values.cuts)
    count = below + np.searchsorted(before, column, "right") + np.searchsorted(after, column, "left")
    found: Mask = count & 1 == 1
    return found
