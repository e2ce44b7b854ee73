"""Boxes of values: subscriptions as the kernels count them; the few that are not boxes are left to the matcher.

Most filters allow one stretch of values per attribute: a box.  A subscription all of whose filters are boxes is counted
by bitmaps (`Spans`, `Groups`), which say exactly what the matcher says; the others (sets of values, free strings) are
left to the matcher.

A place is an event's key on an attribute's line (`content.line`): a whole number that stands for one value exactly,
also for floats, so a box is its first places and those behind its last.  Free strings have hashes instead of keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.content import (
    Attribute,
    EventBatch,
    Filter,
    Schema,
    Subscription,
    decode_subscription,
    encode_subscription,
)
from sievenet.content.line import Line
from sievenet.index.axis import line_range
from sievenet.tuning.arrays import bounds, each_filter, points
from sievenet.tuning.covers import Interest
from sievenet.tuning.spans import Places, Ranker, chunks
from sievenet.tuning.stabbing import GROUP, Stabbing

__all__ = ["Asked", "Boxes", "Groups", "as_subscription", "hold", "places_of"]

_I64 = npt.NDArray[np.int64]
_Any = npt.NDArray[Any]
#: The last key of a line of places: one behind it, and one behind that, must be 64-bit numbers too.
_LAST: Final = (1 << 63) - 3


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """Filters as stretches of places per attribute."""

    schema: Schema
    #: Per attribute, of every filter: the first place, and the one behind the last.
    first: tuple[_Any, ...]
    behind: tuple[_Any, ...]
    #: The subscription of each filter, ascending.
    owners: _I64

    @staticmethod
    def of(schema: Schema, wanted: Sequence[Interest], rows: Sequence[int]) -> Boxes:
        """The hulls of the filters of some subscriptions."""
        filters: list[Filter] = []
        owners: list[int] = []
        for row in rows:
            own = each_filter([wanted[row]])
            filters += own
            owners += [row] * len(own)
        first: list[_Any] = []
        behind: list[_Any] = []
        lo, hi = bounds(schema, filters)
        for column, attribute in enumerate(schema.attributes):
            line = _line(attribute)
            if line is None:
                first.append(lo[:, column])
                behind.append(np.nextafter(hi[:, column], np.inf))
                continue
            whole = (line.first, line.last)
            sets = (each.constraints.get(attribute.name) for each in filters)
            ends = np.array([whole if values is None else line.hull(values) for values in sets], np.int64)
            first.append(ends.reshape(-1, 2)[:, 0].copy())
            behind.append(ends.reshape(-1, 2)[:, 1] + 1)
        return Boxes(schema, tuple(first), tuple(behind), np.array(owners, np.int64))

    @staticmethod
    def parted(schema: Schema, wanted: Sequence[Interest]) -> tuple[list[int], list[int]]:
        """The subscriptions that are boxes, and the others."""
        found: tuple[list[int], list[int]] = ([], [])
        for row, each in enumerate(wanted):
            exact = all(_is_box(schema, f) for f in each_filter([each]))
            found[0 if exact else 1].append(row)
        return found

    @property
    def narrowed(self) -> tuple[int, ...]:
        """The attributes that some filter constrains; one at least."""
        found = []
        for column, attribute in enumerate(self.schema.attributes):
            line = _line(attribute)
            lo, hi = (line.first, line.last) if line is not None else line_range(attribute)
            if len(self.owners) and (self.first[column].max() > lo or self.behind[column].min() <= hi):
                found.append(column)
        return tuple(found) or (0,)


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """Subscriptions as they travel: boxes as arrays, which need no decoding, the others as bytes."""

    schema: Schema
    count: int
    #: Filters of all subscriptions.
    filters: int
    boxes: Boxes
    #: The subscriptions that are no boxes.
    others: tuple[int, ...]
    encoded: tuple[bytes, ...]

    @staticmethod
    def of(schema: Schema, wanted: Sequence[Interest]) -> Asked:
        """Subscriptions made ready to travel."""
        exact, others = Boxes.parted(schema, wanted)
        encoded = tuple(encode_subscription(as_subscription(wanted[row])) for row in others)
        boxes = Boxes.of(schema, wanted, exact)
        return Asked(schema, len(wanted), len(each_filter(wanted)), boxes, tuple(others), encoded)

    def rest(self) -> list[Subscription]:
        """The subscriptions that are no boxes."""
        return [decode_subscription(self.schema, each) for each in self.encoded]


def as_subscription(wanted: Interest) -> Subscription:
    """A filter as the subscription that it is."""
    return Subscription([wanted], wanted.schema) if isinstance(wanted, Filter) else wanted


def _line(attribute: Attribute) -> Line | None:
    """The line whose keys are an attribute's places, ``None`` if it has none or no room behind its last key."""
    line = attribute.line
    return line if line is not None and line.last <= _LAST else None


def _is_box(schema: Schema, wanted: Filter) -> bool:
    """Whether a filter is its hull, exactly."""
    for name, values in wanted.constraints.items():
        if _line(schema[name]) is None or len(values.cuts) != 2:
            return False
    return True


def _place(batch: EventBatch, column: int) -> _Any:
    """Where the events of a batch are on an attribute's line."""
    line = _line(batch.schema.attributes[column])
    return points(batch)[:, column] if line is None else line.keys(batch.columns[column])


def places_of(batch: EventBatch) -> Places:
    """The same, made once per attribute."""
    made: dict[int, _Any] = {}

    def places(column: int) -> _Any:
        if column not in made:
            made[column] = _place(batch, column)
        return made[column]

    return places


class Groups:
    """Boxes in groups of bitmaps; an event is ranked once for all groups."""

    def __init__(self, first: Sequence[_Any], behind: Sequence[_Any], owners: _I64, *, apart: bool = False) -> None:
        """With ``apart`` every box is an owner of its own."""
        ends = [np.unique(np.concatenate(pair)) for pair in zip(first, behind, strict=True)]
        self._rankers = [Ranker(e) for e in ends]
        self._groups: list[tuple[Stabbing, _I64, list[npt.NDArray[np.int32]]]] = []
        for part in chunks(owners, GROUP):
            own = owners[part]
            box = np.arange(len(own))
            spans = [(a[part], b[part], box) for a, b in zip(first, behind, strict=True)]
            single = apart or len(np.unique(own)) == len(own)
            stabbing = Stabbing.of(spans, len(own), None if single else own)
            maps = [
                np.concatenate([[0], np.searchsorted(axis.ends, all_, "right")]).astype(np.int32)
                for axis, all_ in zip(stabbing.axes, ends, strict=True)
            ]
            self._groups.append((stabbing, own, maps))

    def ranked(self, places: Places) -> Iterator[tuple[Stabbing, _I64, npt.NDArray[np.int32]]]:
        """Each group, the owners of its boxes, and the events' ranks in it (axes × events)."""
        ranks = [ranker(places(axis)) for axis, ranker in enumerate(self._rankers)] if self._groups else []
        for stabbing, owners, maps in self._groups:
            yield stabbing, owners, np.stack([m[r] for m, r in zip(maps, ranks, strict=True)])

    def counted(self, places: Places, counts: _I64) -> None:
        """Add to each event's count how many owners (or boxes) hold it."""
        for stabbing, _, ranks in self.ranked(places):
            hold(stabbing, ranks, counts)


def hold(group: Stabbing, ranks: npt.NDArray[np.int32], counts: _I64) -> None:
    """Add to each event's count how many owners of a group hold it."""
    from sievenet.tuning.kernels import holding, stab

    if len(group.owners):
        stab(ranks, group.bitmaps, group.starts, group.owners, counts)
    else:
        holding(ranks, group.bitmaps, group.starts, counts)
