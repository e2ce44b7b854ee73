"""Evaluation: the true false-positive rate of a plan.

What would the network deliver, and what of it is wanted?  Both answers are exact for the
given events: *wanted* by matching every event against every subscription, *delivered* by
matching the events' codes against the covers of the subscriptions, with the plan's bits and
the given budget.  No estimate, no sampling inside.

`Evaluation` holds the subscriptions made ready once; `counts` takes batches, and what it
returns adds up, so batches can come from anywhere, also from other processes.

An event that overlapping regions encode several times counts as that many deliveries to a
subscription covered in several regions: one is necessary, the others are not.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.content import Attribute, EventBatch, Filter, Schema, StringColumn, Subscription
from sievenet.content.valueset import Cut, point
from sievenet.index.axis import Axis, Scale, line_range
from sievenet.index.cover import boxes_of, cover, cover_pieces
from sievenet.index.density import Density
from sievenet.index.plan import DEFAULT_BUDGET, Kind, Plan
from sievenet.index.stabbing import GROUP, Stabbing

__all__ = ["Counts", "Evaluation", "FilterGroup", "Matching", "evaluate"]

_I64 = npt.NDArray[np.int64]
#: Added to whole numbers, so that every one of a domain, and the one behind it, is a 64-bit place.
_SHIFT: Final = (1 << 63) - 1
_BEHIND: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Counts:
    """What was sent, delivered and wanted; batches add up."""

    events: int = 0
    #: Packets: codes of events.
    codes: int = 0
    #: (code, subscription) pairs that the covers let through.
    delivered: int = 0
    #: (event, subscription) pairs that match.
    wanted: int = 0
    #: Entries of all covers.
    entries: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.events + other.events,
            self.codes + other.codes,
            self.delivered + other.delivered,
            self.wanted + other.wanted,
            max(self.entries, other.entries),
        )

    @property
    def fpr(self) -> float:
        """Unnecessary deliveries over all deliveries."""
        return (self.delivered - self.wanted) / self.delivered if self.delivered else 0.0


class Matching:
    """Exact matching of batches against many subscriptions, for counting.

    One bit per filter, one set of bitmaps per attribute: unions of intervals and string
    sets are just several spans on the attribute's line.
    """

    def __init__(self, schema: Schema, subscriptions: Sequence[Filter | Subscription]) -> None:
        self.schema = schema
        listed = [(s.filters if isinstance(s, Subscription) else (s,)) for s in subscriptions]
        self._groups = [
            FilterGroup(
                schema,
                [f for owner in owners for f in listed[owner] if not f.empty],
                [owner for owner in owners for f in listed[owner] if not f.empty],
            )
            for owners in _grouped([len(filters) for filters in listed])
        ]

    def per_event(self, batch: EventBatch) -> _I64:
        """How many subscriptions match each event."""
        counts = np.zeros(len(batch), np.int64)
        for group in self._groups:
            group.count(batch, counts)
        return counts


class FilterGroup:
    """Some filters as boxes on the lines of the attributes that they constrain, or of every attribute."""

    def __init__(self, schema: Schema, filters: list[Filter], owners: list[int], *, every: bool = False) -> None:
        names = [n for n in schema.positions if every or any(n in f.constraints for f in filters)]
        self.columns = [schema.positions[n] for n in names]
        #: Cuts of free strings by column: a string's place is the number of cuts before it.
        self.cuts: dict[int, list[Cut]] = {}
        self.always = len(set(owners)) if not names else 0
        spans = [self._spans(schema.attributes[c], c, filters) for c in self.columns]
        self.stabbing = Stabbing.of(spans, len(filters), np.array(owners, np.int64)) if names else None

    def _spans(self, attribute: Attribute, column: int, filters: list[Filter]) -> tuple[Any, Any, _I64]:
        first: list[Any] = []
        behind: list[Any] = []
        box: list[int] = []
        real = attribute.type == "float"
        ends = (-math.inf, math.inf) if real else (0, _BEHIND)
        scale = Scale.of(Axis(attribute.name, 0), attribute, *line_range(attribute))
        if scale.kind == "hash":
            sets = [f.constraints.get(attribute.name) for f in filters]
            self.cuts[column] = sorted({cut for values in sets if values is not None for cut in values.cuts})
        for number, each in enumerate(filters):
            values = each.constraints.get(attribute.name)
            if values is None:
                pairs: list[tuple[Any, Any]] = [ends]
            elif scale.kind == "hash":
                index = [bisect_left(self.cuts[column], cut) + 1 + _SHIFT for cut in values.cuts]
                pairs = list(zip(index[::2], index[1::2], strict=True))
            else:
                places = scale.places(values)
                if real:
                    pairs = [(a, math.nextafter(b, math.inf)) for a, b in places]
                else:
                    pairs = [(a + _SHIFT, b + 1 + _SHIFT) for a, b in places]
            for a, b in pairs:
                first.append(a)
                behind.append(b)
                box.append(number)
        kind = np.float64 if real else np.uint64
        return np.array(first, kind), np.array(behind, kind), np.array(box, np.int64)

    def count(self, batch: EventBatch, counts: _I64) -> None:
        """Add to each event's count how many owners hold it."""
        counts += self.always
        if self.stabbing is not None:
            self.stabbing.count(lambda i: self.places(batch, self.columns[i]), counts)

    def places(self, batch: EventBatch, column: int) -> npt.NDArray[Any]:
        """Where the events of a batch are on an attribute's line."""
        values = batch.columns[column]
        if not isinstance(values, StringColumn):
            return values if values.dtype == np.float64 else _shifted(values)
        if column not in self.cuts:
            return _shifted(values.codes)
        cuts = self.cuts[column]
        table = np.array([bisect_right(cuts, point(c)) for c in values.categories], np.int64)
        return _shifted(table[values.codes])


def _shifted(numbers: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Whole numbers as places; the sum wraps around as it should."""
    return numbers.astype(np.int64).view(np.uint64) + np.uint64(_SHIFT)


class Evaluation:
    """A plan and subscriptions made ready: covers once, then batch after batch."""

    def __init__(
        self,
        plan: Plan,
        subscriptions: Sequence[Filter | Subscription],
        budget: int = DEFAULT_BUDGET,
        *,
        kind: Kind | None = None,
        weights: Density | None = None,
        matching: Matching | None = None,
    ) -> None:
        self.plan = plan
        self.matching = matching or Matching(plan.schema, subscriptions)
        kind = kind or plan.kind
        self.entries = 0
        pieces: list[list[tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int64]]]] = [[] for _ in plan.regions]
        rows: list[npt.NDArray[np.uint64]] = []
        owners: list[int] = []
        for owner, wanted in enumerate(subscriptions):
            region, start, size = cover_pieces(plan, boxes_of(plan, wanted), budget, weights, kind)
            if len(region) > budget:
                # In more regions than entries: entries are joined across regions, no boxes any more.
                joined = cover(plan, wanted, budget, weights, kind).words()
                rows.append(joined)
                owners += [owner] * len(joined)
                self.entries += len(joined)
                continue
            self.entries += len(region)
            for r in set(region.tolist()):
                pieces[r].append((owner, start[region == r], size[region == r]))
        self._rows = np.concatenate(rows) if rows else np.zeros((0, 4), np.uint64)
        self._row_owners = np.array(owners, np.int64)
        self._regions = [_stabbings(parts) for parts in pieces]

    def delivered(self, batch: EventBatch) -> tuple[int, int]:
        """How many codes a batch has, and how many (code, subscription) pairs the covers let through."""
        codes = delivered = 0
        encoder = self.plan.encoder
        for region, rows in encoder.members(batch):
            part = batch if rows is None else batch.take(rows)
            codes += len(part)
            counts = np.zeros(len(part), np.int64)
            groups = self._regions[encoder.regions.index(region)]
            if not groups or not len(part):
                continue
            grids = [region.coordinates(i, part.columns[c]).astype(np.int64) for i, c in enumerate(region.columns)]
            nothing = np.zeros(len(part), np.int64)
            for group in groups:
                group.count(lambda i: grids[i] if i < len(grids) else nothing, counts)  # noqa: B023
            delivered += int(counts.sum())
        if len(self._rows):
            from sievenet.index.kernels import masked_owners

            every = self.plan.encode_batch(batch)
            counts = np.zeros(len(every), np.int64)
            masked_owners(every.hi, every.lo, self._rows, self._row_owners, counts)
            delivered += int(counts.sum())
        return codes, delivered

    def counts(self, batch: EventBatch) -> Counts:
        """What of a batch is delivered and what is wanted."""
        codes, delivered = self.delivered(batch)
        return Counts(len(batch), codes, delivered, int(self.matching.per_event(batch).sum()), self.entries)


def evaluate(
    plan: Plan,
    batch: EventBatch,
    subscriptions: Sequence[Filter | Subscription],
    budget: int = DEFAULT_BUDGET,
    *,
    kind: Kind | None = None,
    weights: Density | None = None,
) -> Counts:
    """What of a batch a plan delivers to subscriptions, and what of it is wanted."""
    return Evaluation(plan, subscriptions, budget, kind=kind, weights=weights).counts(batch)


def _grouped(sizes: Sequence[int]) -> list[list[int]]:
    """Numbers of subscriptions in groups of about `GROUP` boxes; none is divided."""
    groups: list[list[int]] = []
    room = 0
    for number, size in enumerate(sizes):
        if not groups or size > room:
            groups.append([])
            room = GROUP
        groups[-1].append(number)
        room -= size
    return groups


def _stabbings(parts: list[tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int64]]]) -> list[Stabbing]:
    """Covers in one region, as groups of boxes."""
    found = []
    for group in _grouped([len(start) for _, start, _ in parts]):
        start = np.concatenate([parts[i][1] for i in group])
        size = np.concatenate([parts[i][2] for i in group])
        owners = np.repeat([parts[i][0] for i in group], [len(parts[i][1]) for i in group])
        box = np.arange(len(start))
        behind = start + (np.int64(1) << size)
        spans = [(start[:, d], behind[:, d], box) for d in range(start.shape[1])]
        single = len(group) == len(start)
        found.append(Stabbing.of(spans, len(start), None if single else owners.astype(np.int64)))
    return found
