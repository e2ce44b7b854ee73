"""Counting: what a plan delivers to whom, and what of it is wanted, batch by batch.

Both are exact for the given events.  *Delivered*: the events' grid coordinates against the
boxes of the covers, with a bitmap of events per end of a span (`kernels.tally`).  *Wanted*: the events
against the subscriptions, by `sievenet.matcher`.  All results are sums over events, so
batches can be counted anywhere and in any order.

An event that overlapping regions encode several times is several packets; to a subscription
covered in more than one of these regions they are several deliveries, of which one is
necessary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.content import EventBatch, Schema
from sievenet.index import Plan
from sievenet.index.stabbing import GROUP, Stabbing
from sievenet.matcher import Matcher
from sievenet.pipeline.covers import Covers, Interest

__all__ = ["Deliveries", "Wants", "fpr"]

_I64 = npt.NDArray[np.int64]
_U64 = npt.NDArray[np.uint64]
#: Boxes tallied together.
_CHUNK: Final = 16_384


def fpr(delivered: float, wanted: float) -> float:
    """Unnecessary deliveries over all deliveries."""
    return (delivered - wanted) / delivered if delivered else 0.0


class Wants:
    """Subscriptions ready for exact matching."""

    def __init__(self, schema: Schema, wanted: Sequence[Interest]) -> None:
        self.count = len(wanted)
        self._matcher = Matcher(schema)
        self._matcher.add_many(range(len(wanted)), wanted)

    def per_subscription(self, batch: EventBatch) -> _I64:
        """How many events of a batch each subscription wants."""
        return np.bincount(self._matcher.match_batch(batch).keys, minlength=self.count).astype(np.int64)

    def per_event(self, batch: EventBatch) -> _I64:
        """How many subscriptions want each event."""
        return self._matcher.match_batch(batch).counts


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Some boxes of one region as bitmaps, with the owner of each."""

    stabbing: Stabbing
    owners: _I64


@dataclass(frozen=True, slots=True, eq=False)
class _Spans:
    """Some boxes of one region as numbers of the ends of their spans, with the owner of each."""

    #: Per axis where spans begin or end, ascending.
    ends: tuple[_I64, ...]
    #: Boxes × axes: the ends at which each box begins, and before which it ends.
    first: npt.NDArray[np.int32]
    behind: npt.NDArray[np.int32]
    owners: _I64

    def tally(self, part: _Part, found: _I64) -> None:
        """Add to each owner's count the events that some box of it holds."""
        from sievenet.pipeline.kernels import tally

        # An event is below an end if no more ends than that one's number are at or below the event.
        ranks = np.stack([np.searchsorted(e, part.grid(d), "right").astype(np.int32) for d, e in enumerate(self.ends)])
        sizes = np.array([len(e) for e in self.ends], np.int64)
        tally(ranks, sizes, self.first, self.behind, self.owners, found)


class Deliveries:
    """A plan and the covers under it, ready to be asked about batches."""

    def __init__(self, plan: Plan, covers: Covers, subscriptions: int) -> None:
        self.plan = plan
        self.subscriptions = subscriptions
        self.entries = covers.entries
        self._rows, self._row_owner = covers.rows, covers.row_owner
        self._covers = covers
        self._spans = [_spans(covers, number, len(r.axes)) for number, r in enumerate(plan.regions)]
        #: Made when first needed.
        self._groups: list[list[_Group]] | None = None

    def total(self, batch: EventBatch) -> tuple[int, int]:
        """Packets of a batch, and (packet, subscription) pairs that are delivered."""
        packets, found = self.per_subscription(batch)
        return packets, int(found.sum())

    def per_subscription(self, batch: EventBatch) -> tuple[int, _I64]:
        """Packets of a batch, and how many of them each subscription gets."""
        packets = 0
        found = np.zeros(self.subscriptions, np.int64)
        for number, part in self._parts(batch):
            packets += part.count
            for spans in self._spans[number]:
                spans.tally(part, found)
        self._masked(batch, found)
        return packets, found

    def reached(self, batch: EventBatch, place: _I64, places: int) -> tuple[_I64, _U64]:
        """Per packet its event, and a bitmap of the places (of subscriptions) that it has to reach."""
        from sievenet.pipeline.kernels import mark_masked, mark_places

        if self._groups is None:
            self._groups = [_groups(self._covers, n, len(r.axes)) for n, r in enumerate(self.plan.regions)]
        words = max(1, -(-places // 64))
        every: list[_U64] = []
        events: list[_I64] = []
        for number, part in self._parts(batch):
            reached = np.zeros((part.count, words), np.uint64)
            for group in self._groups[number]:
                whole = group.stabbing
                mark_places(whole.ranks(part.grid), whole.bitmaps, whole.starts, group.owners, place, reached)
            every.append(reached)
            events.append(part.rows)
        bitmaps = np.concatenate(every)
        if len(self._rows):
            codes = self.plan.encode_batch(batch)
            mark_masked(codes.hi, codes.lo, self._rows, self._row_owner, place, bitmaps)
        return np.concatenate(events), bitmaps

    def _masked(self, batch: EventBatch, found: _I64) -> None:
        if len(self._rows):
            from sievenet.pipeline.kernels import tally_masked

            codes = self.plan.encode_batch(batch)
            tally_masked(codes.hi, codes.lo, self._rows, self._row_owner, found)

    def _parts(self, batch: EventBatch) -> Iterator[tuple[int, _Part]]:
        encoder = self.plan.encoder
        for region, rows in encoder.members(batch):
            yield encoder.regions.index(region), _Part(region, batch, rows)


class _Part:
    """The events of a batch in one region, and their coordinates there, made once."""

    def __init__(self, region: Any, batch: EventBatch, rows: _I64 | None) -> None:
        self.rows = np.arange(len(batch)) if rows is None else rows
        self.count = len(self.rows)
        part = batch if rows is None else batch.take(rows)
        self._grids = [
            region.coordinates(axis, part.columns[column]).astype(np.int64)
            for axis, column in enumerate(region.columns)
        ]

    def grid(self, axis: int) -> _I64:
        """Coordinates on an axis; a region without axes has one, of one place."""
        return self._grids[axis] if self._grids else np.zeros(self.count, np.int64)


def _chunks(covers: Covers, region: int, size: int) -> Iterator[_I64]:
    """The boxes of one region, about ``size`` at a time; boxes of one owner stay together."""
    chosen = np.flatnonzero(covers.region == region)
    at = 0
    while at < len(chosen):
        end = min(at + size, len(chosen))
        while end < len(chosen) and covers.owner[chosen[end]] == covers.owner[chosen[end - 1]]:
            end += 1
        yield chosen[at:end]
        at = end


def _spans(covers: Covers, region: int, axes: int) -> list[_Spans]:
    found = []
    for part in _chunks(covers, region, _CHUNK):
        first, behind = covers.first[part], covers.behind[part]
        ends = tuple(np.unique(np.concatenate([first[:, d], behind[:, d]])) for d in range(max(1, axes)))
        numbers = [
            np.stack([np.searchsorted(e, side[:, d]) for d, e in enumerate(ends)], axis=1).astype(np.int32)
            for side in (first, behind)
        ]
        found.append(_Spans(ends, numbers[0], numbers[1], covers.owner[part]))
    return found


def _groups(covers: Covers, region: int, axes: int) -> list[_Group]:
    found = []
    for part in _chunks(covers, region, GROUP):
        box = np.arange(len(part))
        spans = [(covers.first[part, d], covers.behind[part, d], box) for d in range(max(1, axes))]
        found.append(_Group(Stabbing.of(spans, len(part)), covers.owner[part]))
    return found
