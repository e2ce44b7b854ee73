"""Similarity: how often dimensions match, alone and together, counted exactly.

For each two dimensions the sum over events of filters whose constraints on *both* hold; the diagonal is one dimension
alone.  A constraint is whatever the filter says: an interval, a union of intervals, a set of strings.  (The hull of a
set would match nearly everything: of `symbol in {"A", "Z"}` nothing would be left.)

    axis d    stretches between the ends of constraints, each with a bitmap of the filters that hold there
    matches   events per stretch × bits of its bitmap                                        events · log filters
    pairs     per event the bits of the *and* of two bitmaps                                 ω² · events · filters / 64

Counts are sums over events, so those of batches add up.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.content import Attribute, EventBatch, Filter, Schema, StringColumn
from sievenet.content.valueset import Cut, point
from sievenet.index.axis import Axis, Scale, line_range
from sievenet.tuning.stabbing import GROUP, Stabbing

__all__ = ["Similarity"]

_I64 = npt.NDArray[np.int64]
#: Added to whole numbers, so that every one of a domain, and the one behind it, is a 64-bit place.
_SHIFT: Final = (1 << 63) - 1
_BEHIND: Final = (1 << 64) - 1


class Similarity:
    """Filters made ready to be counted, dimension by dimension."""

    def __init__(self, schema: Schema, filters: Sequence[Filter]) -> None:
        self.axes = len(schema.attributes)
        some = [f for f in filters if not f.empty]
        self._groups = [_Group(schema, some[at : at + GROUP]) for at in range(0, len(some), GROUP)]

    def _ranked(self, batch: EventBatch) -> Iterator[tuple[Stabbing, npt.NDArray[np.int32]]]:
        for group in self._groups if len(batch) else ():
            yield group.boxes, group.boxes.ranks(lambda axis: group.places(batch, axis))  # noqa: B023

    def matches(self, batch: EventBatch) -> _I64:
        """Per dimension how many (event, filter) pairs match there; the diagonal of `pairs`, in less time."""
        found = np.zeros(self.axes, np.int64)
        for boxes, ranks in self._ranked(batch):
            held = np.bitwise_count(boxes.bitmaps).sum(axis=1, dtype=np.int64)
            for d, start in enumerate(boxes.starts.tolist()):
                found[d] += held[start + ranks[d]].sum()
        return found

    def pairs(self, batch: EventBatch) -> _I64:
        """For each two dimensions how many (event, filter) pairs match in both."""
        from sievenet.tuning.kernels import pair_counts

        found = np.zeros((self.axes, self.axes), np.int64)
        for boxes, ranks in self._ranked(batch):
            pair_counts(ranks, boxes.bitmaps, boxes.starts, found)
        return np.maximum(found, found.T)


class _Group:
    """Some filters as boxes on the lines of all attributes; several spans each on an axis, for unions and sets."""

    def __init__(self, schema: Schema, filters: Sequence[Filter]) -> None:
        #: Cuts of free strings by column: a string's place is the number of cuts before it.
        self._cuts: dict[int, list[Cut]] = {}
        spans = [self._spans(attribute, column, filters) for column, attribute in enumerate(schema.attributes)]
        self.boxes = Stabbing.of(spans, len(filters))

    def _spans(self, attribute: Attribute, column: int, filters: Sequence[Filter]) -> tuple[Any, Any, _I64]:
        first: list[Any] = []
        behind: list[Any] = []
        box: list[int] = []
        real = attribute.type == "float"
        ends = (-math.inf, math.inf) if real else (0, _BEHIND)
        scale = Scale.of(Axis(attribute.name, 0), attribute, *line_range(attribute))
        if scale.kind == "hash":
            sets = [f.constraints.get(attribute.name) for f in filters]
            self._cuts[column] = sorted({cut for values in sets if values is not None for cut in values.cuts})
        for number, each in enumerate(filters):
            values = each.constraints.get(attribute.name)
            if values is None:
                pairs: list[tuple[Any, Any]] = [ends]
            elif scale.kind == "hash":
                index = [bisect_left(self._cuts[column], cut) + 1 + _SHIFT for cut in values.cuts]
                pairs = list(zip(index[::2], index[1::2], strict=True))
            elif real:
                pairs = [(a, math.nextafter(b, math.inf)) for a, b in scale.places(values)]
            else:
                pairs = [(a + _SHIFT, b + 1 + _SHIFT) for a, b in scale.places(values)]
            for a, b in pairs:
                first.append(a)
                behind.append(b)
                box.append(number)
        kind = np.float64 if real else np.uint64
        return np.array(first, kind), np.array(behind, kind), np.array(box, np.int64)

    def places(self, batch: EventBatch, column: int) -> npt.NDArray[Any]:
        """Where the events of a batch are on an attribute's line."""
        values = batch.columns[column]
        if not isinstance(values, StringColumn):
            return values if values.dtype == np.float64 else _shifted(values)
        if column not in self._cuts:
            return _shifted(values.codes)
        cuts = self._cuts[column]
        table = np.array([bisect_right(cuts, point(c)) for c in values.categories], np.int64)
        return _shifted(table[values.codes])


def _shifted(numbers: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Whole numbers as places; the sum wraps around as it should."""
    return numbers.astype(np.int64).view(np.uint64) + np.uint64(_SHIFT)
