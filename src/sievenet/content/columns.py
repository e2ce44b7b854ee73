"""A filter or subscription against many events, by NumPy alone: for a few, which need no matcher, and for tests.

A constraint is a few intervals of keys (`content.line`), and a value is inside if more of them have begun than have
ended before it. Counting them is two binary searches, for a whole column at once:

    intervals    [2    5]        [9 …              at 3: one begun, none ended, inside;  at 7: one begun, one ended
    keys          2  3  5    7
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sievenet.content.batch import Column, EventBatch, StringColumn
from sievenet.content.filter import Filter, Subscription
from sievenet.content.line import Line
from sievenet.content.valueset import ValueSet

__all__ = ["Mask", "matching"]

Mask = npt.NDArray[np.bool_]


def matching(wanted: Filter | Subscription, batch: EventBatch) -> Mask:
    """Which events of a batch match."""
    if isinstance(wanted, Subscription):
        found = np.zeros(len(batch), np.bool_)
        for each in wanted.filters:
            found |= matching(each, batch)
        return found
    found = np.full(len(batch), not wanted.empty)
    for name, values in wanted.constraints.items():
        found &= _inside(values, batch.schema[name].line, batch.column(name))
    return found


def _inside(values: ValueSet, line: Line | None, column: Column) -> Mask:
    if line is None:
        assert isinstance(column, StringColumn)
        table = np.fromiter((text in values for text in column.categories), np.bool_, len(column.categories))
        return table[column.codes]
    keys, ends = line.keys(column), line.pairs(values)
    # Inside: as many stretches begin at or before a key as end before it, and one.
    begun = np.searchsorted(np.array(ends[::2], np.int64), keys, "right")
    found: Mask = begun > np.searchsorted(np.array(ends[1::2], np.int64), keys, "left")
    return found
