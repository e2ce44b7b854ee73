"""Counting: what a plan delivers to whom, and what of it is wanted, batch by batch.

Both are exact for the given events.  *Delivered*: the events' grid coordinates against the
boxes of the covers, with a bitmap of events per end of a span (`spans`).  *Wanted*: the events against the
subscriptions, in the same way where these are boxes of values, by `sievenet.matcher` where they are not.  All results
are sums over events, so batches can be counted anywhere and in any order.

An event that overlapping regions encode several times is several packets; to a subscription
covered in more than one of these regions they are several deliveries, of which one is
necessary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sievenet.content import EventBatch, Schema
from sievenet.index import Plan
from sievenet.index.codes import Codes
from sievenet.matcher import Matcher
from sievenet.tuning.boxes import Asked, Groups, places_of
from sievenet.tuning.covers import Covers, Interest
from sievenet.tuning.crossings import Network
from sievenet.tuning.spans import Spans

__all__ = ["Deliveries", "Wants", "fpr"]

_I64 = npt.NDArray[np.int64]
_U64 = npt.NDArray[np.uint64]


def fpr(delivered: float, wanted: float) -> float:
    """Unnecessary deliveries over all deliveries."""
    return (delivered - wanted) / delivered if delivered else 0.0


class Wants:
    """Subscriptions ready for exact matching: boxes by bitmaps, all others by the matcher."""

    def __init__(self, schema: Schema, wanted: Sequence[Interest] | Asked) -> None:
        asked = wanted if isinstance(wanted, Asked) else Asked.of(schema, wanted)
        self.count = asked.count
        self._boxes = asked.boxes
        self._columns = self._boxes.narrowed
        first, behind = ([side[c] for c in self._columns] for side in (self._boxes.first, self._boxes.behind))
        self._spans = Spans.of(first, behind, self._boxes.owners)
        #: Made when first needed.
        self._groups: Groups | None = None
        self._apart: Groups | None = None
        self._matcher = Matcher(schema) if asked.others else None
        if self._matcher is not None:
            self._matcher.add_many(asked.others, asked.rest())

    def per_subscription(self, batch: EventBatch) -> _I64:
        """How many events of a batch each subscription wants."""
        found = np.zeros(self.count, np.int64)
        places = places_of(batch)
        for spans in self._spans:
            spans.tally(lambda axis: places(self._columns[axis]), found)
        if self._matcher is not None:
            found += np.bincount(self._matcher.match_batch(batch).keys, minlength=self.count)
        return found

    def reached(self, batch: EventBatch, place: _I64, places: int) -> _U64:
        """Per event a bitmap of the places (of subscriptions) where it is wanted."""
        from sievenet.tuning.kernels import mark_places

        if self._apart is None:
            first, behind = ([side[c] for c in self._columns] for side in (self._boxes.first, self._boxes.behind))
            self._apart = Groups(first, behind, self._boxes.owners, apart=True)
        found = np.zeros((len(batch), max(1, -(-places // 64))), np.uint64)
        at = places_of(batch)
        for group, owners, ranks in self._apart.ranked(lambda axis: at(self._columns[axis])):
            mark_places(ranks, group.bitmaps, group.starts, owners, place, found)
        if self._matcher is not None:
            matches = self._matcher.match_batch(batch)
            rows = np.repeat(np.arange(len(batch)), matches.counts)
            there = place[np.asarray(matches.keys, np.int64)]
            np.bitwise_or.at(found, (rows, there >> 6), np.uint64(1) << (there & 63).astype(np.uint64))
        return found

    def per_event(self, batch: EventBatch) -> _I64:
        """How many subscriptions want each event."""
        counts = np.zeros(len(batch), np.int64)
        if self._groups is None:
            first, behind = ([side[c] for c in self._columns] for side in (self._boxes.first, self._boxes.behind))
            self._groups = Groups(first, behind, self._boxes.owners)
        places = places_of(batch)
        self._groups.counted(lambda axis: places(self._columns[axis]), counts)
        if self._matcher is not None:
            counts += self._matcher.counts_batch(batch)
        return counts


class Deliveries:
    """A plan and the covers under it, ready to be asked about batches."""

    def __init__(self, plan: Plan, covers: Covers, subscriptions: int) -> None:
        self.plan = plan
        self.subscriptions = subscriptions
        self.entries = covers.entries
        self._rows, self._row_owner = covers.rows, covers.row_owner
        self._covers = covers
        self._spans = [Spans.of(*_sides(covers, number, len(r.axes))) for number, r in enumerate(plan.regions)]
        #: Made when first needed.
        self._groups: list[Groups] | None = None
        #: The batch asked about last, and its events by region: whoever asks one thing asks the next.
        self._divided: tuple[EventBatch, list[tuple[int, _Part]]] | None = None
        self._coded: tuple[EventBatch, Codes] | None = None

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
                spans.tally(part.grid, found)
        self._masked(batch, found)
        return packets, found

    def reached(self, batch: EventBatch, place: _I64, places: int) -> tuple[_I64, _U64]:
        """Per packet its event, and a bitmap of the places (of subscriptions) that it has to reach."""
        from sievenet.tuning.kernels import mark_masked, mark_places

        if self._groups is None:
            sides = [_sides(self._covers, n, len(r.axes)) for n, r in enumerate(self.plan.regions)]
            self._groups = [Groups(*each, apart=True) for each in sides]
        words = max(1, -(-places // 64))
        every: list[_U64] = []
        events: list[_I64] = []
        for number, part in self._parts(batch):
            reached = np.zeros((part.count, words), np.uint64)
            for group, owners, ranks in self._groups[number].ranked(part.grid):
                mark_places(ranks, group.bitmaps, group.starts, owners, place, reached)
            every.append(reached)
            events.append(part.rows)
        bitmaps = np.concatenate(every)
        if len(self._rows):
            codes = self._codes(batch)
            mark_masked(codes.hi, codes.lo, self._rows, self._row_owner, place, bitmaps)
        return np.concatenate(events), bitmaps

    def group(self, batch: EventBatch, network: Network, packets: int) -> _I64:
        """The tree of each packet, in the order of `reached`."""
        if network.groups == 1:
            return np.zeros(packets, np.int64)
        return network.group_of(self._codes(batch).hi)

    def _masked(self, batch: EventBatch, found: _I64) -> None:
        if len(self._rows):
            from sievenet.tuning.kernels import tally_masked

            codes = self._codes(batch)
            tally_masked(codes.hi, codes.lo, self._rows, self._row_owner, found)

    def _codes(self, batch: EventBatch) -> Codes:
        if self._coded is None or self._coded[0] is not batch:
            self._coded = batch, self.plan.encode_batch(batch)
        return self._coded[1]

    def _parts(self, batch: EventBatch) -> list[tuple[int, _Part]]:
        if self._divided is None or self._divided[0] is not batch:
            members = self.plan.encoder.members(batch)
            self._divided = batch, [(i, _Part(region, batch, rows)) for i, (region, rows) in enumerate(members)]
        return self._divided[1]


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


def _sides(covers: Covers, region: int, axes: int) -> tuple[list[_I64], list[_I64], _I64]:
    """First coordinates and those behind the last, per axis, of the boxes of one region, and their owners."""
    chosen = np.flatnonzero(covers.region == region)
    first, behind = covers.first[chosen], covers.behind[chosen]
    used = range(max(1, axes))
    return [first[:, d] for d in used], [behind[:, d] for d in used], covers.owner[chosen]
