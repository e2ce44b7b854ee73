"""Covering many subscriptions under one plan, quickly.

`Plan.cover` works everything out anew for each filter, and most of its time goes into
placing the ends of intervals on the grid.  A `Coverer` belongs to one plan and remembers
where they lie; the search itself is the index's own kernel, and the result is the same.
`ahead` searches for many subscriptions in one call, since calling costs more than searching.
It serves the usual case (one region, constraints that are one interval each) and
hands every other one to the plan.

What is `cheap` is worked out where it is asked for.  Anything else may take long, and is
searched in a thread (`worker`): `search` reads the plan and changes nothing here.

Advertisements differ from subscriptions where regions of a plan overlap: an event has a code
in *every* region that holds it, so a subscription needs one of them, but an advertisement
announces them all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np

from sievenet.content import Cut, Filter, Subscription
from sievenet.index import CODE_BITS, Cell, CellSet, Dz, DzSet, Plan
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

Span = tuple[int, int]


class Coverer:
    """Subscriptions and advertisements as keys of dz, or of cells, under one plan and budget."""

    def __init__(self, plan: Plan, budget: int) -> None:
        self.plan = plan
        self.budget = budget
        self._layout = layout_of(plan)
        self._offsets = np.array([0, 1], np.int64)
        encoder = plan.encoder.regions[0]
        self._scales = encoder.scales
        self._names = [scale.attribute.name for scale in self._scales]
        self._whole = [(0, (1 << scale.bits) - 1) for scale in self._scales]
        #: Per attribute where intervals begin and end on the grid, by their cuts.
        self._starts: list[dict[Cut, int]] = [{} for _ in self._scales]
        self._stops: list[dict[Cut, int]] = [{} for _ in self._scales]
        self._simple = len(plan.regions) == 1 and not plan.regions[0].bounds and bool(self._scales)
        #: What `ahead` found, by the identity of what it was found for, which is kept alive by being here.
        self._ready: dict[int, tuple[Subscription, list[int]]] = {}
        self._regions: list[tuple[Filter, Plan]] = []
        if len(plan.regions) > 1:
            for region in plan.regions:
                self._regions.append((region.filter(plan.schema), msgspec.structs.replace(plan, regions=(region,))))

    def ahead(self, contents: Iterable[Subscription]) -> None:
        """Compute the keys of many contents at once, for later calls of `keys`; forgets earlier ones."""
        self._ready.clear()
        if not self._simple or self.plan.bits > _NARROW or self.plan.kind == "cells":
            return
        boxes: list[list[Span]] = []
        usual: list[Subscription] = []
        for content in contents:
            spans = self._spans(content.filters[0]) if len(content.filters) == 1 else None
            if spans is not None:
                boxes.append(spans)
                usual.append(content)
        if len(boxes) < 2:
            return
        from sievenet.control.kernels import cover_boxes

        layout = self._layout
        ends = np.array(boxes, np.int64)
        found, counts = cover_boxes(
            np.ascontiguousarray(ends[:, :, 0]),
            np.ascontiguousarray(ends[:, :, 1]),
            layout.bits,
            layout.orders,
            layout.lengths,
            layout.shares,
            layout.positions,
            layout.bases,
            self.plan.gray,
            self.budget,
            *layout.no_sample,
        )
        for content, keys, count in zip(usual, found.tolist(), counts.tolist(), strict=True):
            self._ready[id(content)] = content, sorted(keys[:count])

    def keys(self, content: Subscription, wants: bool) -> list[int]:
        """The keys of a subscription or an advertisement."""
        found = self.at_once(content, wants)
        return self.search(content, wants) if found is None else found

    def at_once(self, content: Subscription, wants: bool) -> list[int] | None:
        """The same if it takes less than a millisecond, else None."""
        ready = self._ready.pop(id(content), None)
        if ready is not None:
            return ready[1]
        if self._simple and len(content.filters) == 1:
            spans = self._spans(content.filters[0])
            if spans is not None:
                return self._searched(spans)
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

    def _spans(self, wanted: Filter) -> list[Span] | None:
        """The filter's box on the grid; None if it is more than one box."""
        if wanted.empty or (wanted.schema is not self.plan.schema and wanted.schema != self.plan.schema):
            return None
        constraints = wanted.constraints
        found: list[Span] = []
        for d, name in enumerate(self._names):
            values = constraints.get(name)
            if values is None:
                found.append(self._whole[d])
                continue
            cuts = values.cuts
            if len(cuts) != 2:
                return None
            try:
                span = self._starts[d][cuts[0]], self._stops[d][cuts[1]]
            except KeyError:
                spans = self._scales[d].spans(values)
                if len(spans) != 1 or self._scales[d].kind == "hash":
                    return None
                span = spans[0]
                if len(self._starts[d]) + len(self._stops[d]) >= _MOST:
                    self._starts[d].clear()
                    self._stops[d].clear()
                self._starts[d][cuts[0]], self._stops[d][cuts[1]] = span
            found.append(span)
        return found

    def _searched(self, spans: list[Span]) -> list[int]:
        box = np.array(spans, np.int64).T.copy()
        boxes = Boxes(self._layout, box[:1], box[1:], self._offsets)
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
