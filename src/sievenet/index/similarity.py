"""Similarity: how often dimensions match, alone and together, counted exactly.

For each two dimensions the sum over events of filters whose constraints on *both* hold; the diagonal is one dimension
alone.  A constraint is whatever the filter says: an interval, a union of intervals, a set of strings.  (The hull of a
set would match nearly everything: of `symbol in {"A", "Z"}` nothing would be left.)

    axis d    stretches between the ends of constraints, each with a bitmap of the filters that hold there
    EMCS      events per stretch × bits of its bitmap                                        events · log filters
    CS        per event the bits of the *and* of two bitmaps                                 ω² · events · filters / 64

Counts are sums over events, so those of batches add up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from sievenet.content import EventBatch, Filter, Schema
from sievenet.index.evaluate import FilterGroup
from sievenet.index.stabbing import GROUP, Stabbing

__all__ = ["Similarity"]

_I64 = npt.NDArray[np.int64]


class Similarity:
    """Filters made ready to be counted, dimension by dimension."""

    def __init__(self, schema: Schema, filters: Sequence[Filter]) -> None:
        self.axes = len(schema.attributes)
        some = [f for f in filters if not f.empty]
        parts = [some[at : at + GROUP] for at in range(0, len(some), GROUP)]
        self._groups = [FilterGroup(schema, part, list(range(len(part))), every=True) for part in parts]

    def _ranked(self, batch: EventBatch) -> Iterator[tuple[Stabbing, npt.NDArray[np.int32]]]:
        for group in self._groups:
            if group.stabbing is not None and len(batch):
                yield group.stabbing, group.stabbing.ranks(lambda axis: group.places(batch, axis))  # noqa: B023

    def matches(self, batch: EventBatch) -> _I64:
        """Per dimension how many (event, filter) pairs match there."""
        found = np.zeros(self.axes, np.int64)
        for stabbing, ranks in self._ranked(batch):
            held = np.bitwise_count(stabbing.bitmaps).sum(axis=1, dtype=np.int64)
            for d, start in enumerate(stabbing.starts.tolist()):
                found[d] += held[start + ranks[d]].sum()
        return found

    def pairs(self, batch: EventBatch) -> _I64:
        """For each two dimensions how many (event, filter) pairs match in both."""
        from sievenet.index.kernels import pair_counts

        found = np.zeros((self.axes, self.axes), np.int64)
        for stabbing, ranks in self._ranked(batch):
            pair_counts(ranks, stabbing.bitmaps, stabbing.starts, found)
        return np.maximum(found, found.T)
