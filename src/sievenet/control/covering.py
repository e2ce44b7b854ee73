"""Covering many subscriptions under one plan, quickly.

`Plan.cover` works everything out anew for each filter, and most of its time goes into
placing the ends of intervals on the grid.  A `Coverer` belongs to one plan and remembers
where they lie; the search itself is the index's own kernel, and the result is the same.
`many` searches for many subscriptions in one call, since calling costs more than searching,
and reads most of them from their bytes (`boxes`).  It serves the usual case (one region,
constraints that are one interval each) and leaves every other one to the plan.

What is `cheap` is worked out where it is asked for.  Anything else may take long, and is
searched in a thread (`worker`): `search` reads the plan and changes nothing here.

Advertisements differ from subscriptions where regions of a plan overlap: an event has a code
in *every* region that holds it, so a subscription needs one of them, but an advertisement
announces them all.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Final

import msgspec
import numpy as np

from sievenet.content import Cut, Filter, Subscription
from sievenet.control.boxes import BoxReader
from sievenet.index import CODE_BITS, Cell, CellSet, Dz, DzSet, Plan
from sievenet.index.axis import Scale
from sievenet.index.code import joined
from sievenet.index.cover import Boxes, cover_words
from sievenet.index.cover.boxes import layout_of

__all__ = ["Coverer"]

#: Most bits of keys that are worked out many at a time.
_NARROW: Final = 62
#: Ends remembered per attribute.
_MOST: Final = 1 << 16
#: Ends of intervals, times regions of the plan, that are worked out at once: less than a millisecond.
_CHEAP: Final = 64


class Coverer:
    """Subscriptions and advertisements as keys of dz, or of cells, under one plan and budget."""

    def __init__(self, plan: Plan, budget: int) -> None:
        self.plan = plan
        self.budget = budget
        self._layout = layout_of(plan)
        self._offsets = np.array([0, 1], np.int64)
        encoder = plan.encoder.regions[0]
        #: Per attribute its name, and where intervals begin and end on the grid, by their cuts.
        self._axes: list[tuple[str, dict[Cut, int], dict[Cut, int], Scale]] = [
            (scale.attribute.name, {}, {}, scale) for scale in encoder.scales
        ]
        self._simple = len(plan.regions) == 1 and not plan.regions[0].bounds and bool(self._axes)
        self._narrow = self._simple and plan.bits <= _NARROW and plan.kind == "dz"
        #: What `many` found last, for whoever asks for it soon.
        self.ready: dict[bytes, list[int]] = {}
        self._regions: list[tuple[Filter, Plan]] = []
        if len(plan.regions) > 1:
            for region in plan.regions:
                self._regions.append((region.filter(plan.schema), msgspec.structs.replace(plan, regions=(region,))))

    def many(self, contents: Iterable[tuple[bytes, Subscription | None]]) -> dict[bytes, list[int]]:
        """The keys of many contents at once, as bytes, and decoded if that is at hand; of those where it is easy."""
        known = dict(contents)  # equal ones once
        if not self._narrow or len(known) < 2:
            return {}
        data = list(known)
        lo, hi, read = self._reader.read(data)
        for i in np.flatnonzero(~read).tolist():
            said = known[data[i]]
            box = self._box(said.filters[0]) if said is not None and len(said.filters) == 1 else None
            if box is not None:
                lo[i], hi[i], read[i] = box[::2], box[1::2], True
        rows = np.flatnonzero(read)
        from sievenet.control.kernels import cover_boxes

        layout = self._layout
        found, counts = cover_boxes(
            lo[rows],
            hi[rows],
            layout.bits,
            layout.orders,
            layout.lengths,
            layout.shares,
            layout.positions,
            layout.bases,
            self.plan.gray,
            self.plan.most(self.budget),
            *layout.no_sample,
            self.plan.grain,
        )
        every = zip(rows.tolist(), found.tolist(), counts.tolist(), strict=True)
        return {data[i]: keys[:count] for i, keys, count in every}

    @cached_property
    def _reader(self) -> BoxReader:
        return BoxReader(self.plan)

    def keys(self, content: Subscription, wants: bool) -> list[int]:
        """The keys of a subscription or an advertisement."""
        found = self.at_once(content, wants)
        return self.search(content, wants) if found is None else found

    def at_once(self, content: Subscription, wants: bool) -> list[int] | None:
        """The same if it takes less than a millisecond, else None."""
        if self._simple and len(content.filters) == 1:
            box = self._box(content.filters[0])
            if box is not None:
                return self._searched(box)
        return self.search(content, wants) if self.cheap(content) else None

    def cheap(self, content: Subscription) -> bool:
        """Whether covering is cheap."""
        room = _CHEAP // len(self.plan.regions)
        for each in content.filters:
            room -= 1 + sum(len(values.cuts) for values in each.constraints.values())
            if room < 0:
                return False
        return True

    def search(self, content: Subscription, wants: bool) -> list[int]:
        """The same however long it takes; may run in another thread."""
        if wants or not self._regions:
            return [code.key for code in self.plan.cover(content, self.budget)]
        found: list[Dz | Cell] = []
        for area, alone in self._regions:
            part = Subscription([f.intersect(area) for f in content.filters], self.plan.schema)
            if part.filters:
                found += alone.cover(part, self.budget)
        joined = DzSet(code for code in found if isinstance(code, Dz))
        return [code.key for code in (*joined, *CellSet(code for code in found if isinstance(code, Cell)))]

    def _box(self, wanted: Filter) -> list[int] | None:
        """Where the filter begins and ends on the grid, attribute by attribute; None if it is more than one box."""
        if wanted.empty or (wanted.schema is not self.plan.schema and wanted.schema != self.plan.schema):
            return None
        values_of = wanted.constraints.get
        found: list[int] = []
        for name, starts, stops, scale in self._axes:
            values = values_of(name)
            if values is None:
                found += 0, (1 << scale.bits) - 1
                continue
            try:
                first, last = values.cuts
                found += starts[first], stops[last]
            except (KeyError, ValueError):
                spans = scale.spans(values) if len(values.cuts) == 2 else []
                if len(spans) != 1 or scale.kind == "hash":
                    return None
                if len(starts) + len(stops) >= _MOST:
                    starts.clear()
                    stops.clear()
                starts[first], stops[last] = spans[0]
                found += spans[0]
        return found

    def _searched(self, box: list[int]) -> list[int]:
        ends = np.array(box, np.int64).reshape(-1, 2).T.copy()
        boxes = Boxes(self._layout, ends[:1], ends[1:], self._offsets)
        plan = self.plan
        rows = cover_words(plan, boxes, self.budget, kind=plan.kind)
        if plan.kind == "cells":
            shift = CODE_BITS - plan.bits
            words = ((joined(vh, vl) >> shift, joined(mh, ml) >> shift) for vh, vl, mh, ml in rows.tolist())
            return sorted(Cell(value, mask, plan.bits).key for value, mask in words)
        keys = set()
        for value_high, value_low, mask_high, mask_low in rows.tolist():
            length = mask_high.bit_count() + mask_low.bit_count()
            keys.add(1 << length | joined(value_high, value_low) >> (CODE_BITS - length))
        if len(keys) > 1:
            _join_siblings(keys)
        return sorted(keys)


def _join_siblings(keys: set[int]) -> None:
    for key in sorted(keys, reverse=True):  # longer ones first
        while key > 1 and key in keys and key ^ 1 in keys:
            keys -= {key, key ^ 1}
            key >>= 1
            keys.add(key)
