"""Covers: what many subscriptions become under a plan, as arrays.

A cover is a few boxes of grid coordinates per subscription.  As arrays they are small, they
can be made in parts (by other processes, for some of the subscriptions each) and joined, and
every process that gets them builds its own bitmaps in no time:

    subscriptions ──parts──▶ Covers.of ──┐
                             Covers.of ──┼──▶ Covers.joined ──broadcast──▶ Deliveries (see `deliveries`)
                             Covers.of ──┘

Without a budget a subscription is covered by as many entries as it takes: by all grid cells
that it meets, which is one box however many entries that would be.  That shows what the
*bits* of a plan can do when table entries are no concern, and it needs no search.

Most filters are plain boxes, one interval per attribute.  Their grid coordinates are array arithmetic for all of them
at once, a third of the work of covering them; the others go one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.content import Filter, Schema, Subscription
from sievenet.index import Plan
from sievenet.index.cover import Boxes, boxes_of, cover, cover_pieces
from sievenet.index.cover.boxes import layout_of
from sievenet.tuning.arrays import bounds

__all__ = ["Covers", "Interest", "Interests"]

Interest = Filter | Subscription
_I64 = npt.NDArray[np.int64]
_U64 = npt.NDArray[np.uint64]
#: Whole numbers up to here are exact as doubles.
_EXACT: Final = float(1 << 53)


@dataclass(frozen=True, slots=True, eq=False)
class Interests:
    """Subscriptions, and the hulls of those that are plain boxes."""

    schema: Schema
    wanted: tuple[Interest, ...]
    #: Subscriptions × attributes: first and last place on each attribute's line.
    lo: npt.NDArray[np.float64]
    hi: npt.NDArray[np.float64]
    #: Which subscriptions are one box with one interval per attribute.
    plain: npt.NDArray[np.bool_]

    @staticmethod
    def of(schema: Schema, wanted: Sequence[Interest]) -> Interests:
        """Subscriptions made ready for covering under many plans."""
        listed = tuple(wanted)
        filters = [_single(each) for each in listed]
        whole = Filter(schema, {})
        lo, hi = bounds(schema, [whole if f is None else f for f in filters])
        plain = np.array([f is not None and _is_plain(schema, f) for f in filters], np.bool_)
        large = (np.abs(lo) > _EXACT) | (np.abs(hi) > _EXACT)
        plain &= ~large.any(axis=1) if len(listed) else plain
        return Interests(schema, listed, lo, hi, plain)

    def __len__(self) -> int:
        return len(self.wanted)

    def take(self, rows: Sequence[int]) -> Interests:
        """Some of them."""
        at = np.asarray(rows, np.int64)
        return Interests(self.schema, tuple(self.wanted[i] for i in rows), self.lo[at], self.hi[at], self.plain[at])


def _single(wanted: Interest) -> Filter | None:
    """The only filter of a subscription, if it has only one."""
    filters = wanted.filters if isinstance(wanted, Subscription) else (wanted,)
    return filters[0] if len(filters) == 1 and not filters[0].empty else None


def _is_plain(schema: Schema, wanted: Filter) -> bool:
    for name, values in wanted.constraints.items():
        attribute = schema[name]
        if (attribute.type == "str" and attribute.values is None) or len(values.cuts) != 2:
            return False
    return True


@dataclass(frozen=True, slots=True, eq=False)
class Covers:
    """Boxes of grid coordinates, and entries that are no boxes; both with their owners, ascending."""

    owner: _I64
    region: _I64
    #: Boxes × axes: the first coordinate, and the one behind the last.
    first: _I64
    behind: _I64
    #: Entries joined across regions: value and mask words.
    rows: _U64
    row_owner: _I64

    @property
    def entries(self) -> int:
        """Boxes and joined entries: with a budget, the entries of all covers before neighbours are joined."""
        return len(self.owner) + len(self.row_owner)

    @staticmethod
    def of(
        plan: Plan,
        interests: Interests,
        budget: int | None = None,
        *,
        start: int = 0,
    ) -> Covers:
        """The covers of subscriptions; the first of them is owner ``start``."""
        inside = _inside(plan, interests)
        whole = [_plain(plan, interests, rows, number, start) for number, rows in enumerate(inside) if len(rows)]
        some = np.zeros(len(interests), np.bool_)
        some[np.concatenate(inside)] = True
        others = np.flatnonzero(~some).tolist()
        if budget is None:
            return Covers.joined(plan, whole + [_every(plan, interests.wanted[row], start + row) for row in others])
        parts, more = _within(plan, Covers.joined(plan, whole), budget) if whole else ([], [])
        parts += [_budgeted(plan, interests.wanted[owner - start], owner, budget) for owner in more]
        parts += [_budgeted(plan, interests.wanted[row], start + row, budget) for row in others]
        return Covers.joined(plan, parts)

    @staticmethod
    def joined(plan: Plan, parts: Sequence[Covers]) -> Covers:
        """Several parts as one, owners ascending."""
        if not parts:
            return _boxes(plan, *_nothing(plan))
        columns: dict[str, npt.NDArray[Any]] = {
            name: np.concatenate([getattr(p, name) for p in parts]) for name in Covers.__slots__
        }
        order = np.argsort(columns["owner"], kind="stable")
        other = np.argsort(columns["row_owner"], kind="stable")
        return Covers(
            *(columns[name][order] for name in ("owner", "region", "first", "behind")),
            *(columns[name][other] for name in ("rows", "row_owner")),
        )


def _axes(plan: Plan) -> int:
    return max(1, *(len(r.axes) for r in plan.regions))


def _nothing(plan: Plan) -> tuple[_I64, _I64, _I64, _I64]:
    none = np.zeros(0, np.int64)
    empty = np.zeros((0, _axes(plan)), np.int64)
    return none, none, empty, empty


def _boxes(plan: Plan, owner: _I64, region: _I64, first: _I64, behind: _I64) -> Covers:
    return Covers(owner, region, first, behind, np.zeros((0, 4), np.uint64), np.zeros(0, np.int64))


def _entries(plan: Plan, owner: int, rows: _U64) -> Covers:
    return Covers(*_nothing(plan), rows, np.full(len(rows), owner, np.int64))


# -- one by one -------------------------------------------------------------------------------


def _every(plan: Plan, wanted: Interest, owner: int) -> Covers:
    """Every grid cell that a subscription meets, in the regions that must hold it."""
    boxes = boxes_of(plan, wanted)
    region = np.repeat(np.arange(len(plan.regions)), np.diff(boxes.offsets))
    return _boxes(plan, np.full(len(region), owner), region, boxes.lo, boxes.hi + 1)


def _budgeted(plan: Plan, wanted: Interest, owner: int, budget: int) -> Covers:
    """At most so many entries."""
    region, first, size = cover_pieces(plan, boxes_of(plan, wanted), budget, None, plan.kind)
    if len(region) > plan.most(budget):
        # In more regions than entries: entries are joined across regions and are no boxes any more.
        return _entries(plan, owner, cover(plan, wanted, budget, None, plan.kind).words())
    return _boxes(plan, np.full(len(region), owner), region, first, first + (np.int64(1) << size))


# -- many plain boxes at once -----------------------------------------------------------------


def _inside(plan: Plan, interests: Interests) -> list[_I64]:
    """Per region the plain subscriptions that are covered in it; those in no region are left to others.

    As in `sievenet.index.cover.boxes`: in the smallest region that holds all of it, or, where events have one code, in
    every region that it meets up to the first that holds it.
    """
    held, meets = _held(plan, interests)
    anywhere = held.any(axis=0)
    if plan.once:
        left = interests.plain & (anywhere | plan.complete)
        found = []
        for number, region in enumerate(plan.regions):
            found.append(np.flatnonzero(left & meets[number] & ~(anywhere & region.rest)))
            left = left & ~held[number]
        return found
    shares = [region.share(plan.schema) for region in plan.regions]
    home = np.full(len(interests), -1, np.int64)
    # Smallest last, so that it wins; of equal ones the first.
    for number in sorted(range(len(shares)), key=lambda r: (-shares[r], -r)):
        home[held[number]] = number
    return [np.flatnonzero(home == number) for number in range(len(plan.regions))]


def _held(plan: Plan, interests: Interests) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Regions × subscriptions: whether it is plain and the region, not being the rest, holds it; whether they meet."""
    held = np.tile(interests.plain, (len(plan.regions), 1))
    meets = np.ones_like(held)
    for number, region in enumerate(plan.regions):
        for bound in region.bounds:
            column = plan.schema.positions[bound.attribute]
            low, high = interests.lo[:, column], interests.hi[:, column]
            held[number] &= (low >= bound.lo) & (high <= bound.hi)
            meets[number] &= (high >= bound.lo) & (low <= bound.hi)
        if region.rest:
            held[number] = False
    return held, meets


def _plain(plan: Plan, interests: Interests, rows: _I64, number: int, start: int) -> Covers:
    """The boxes of the plain subscriptions of a region: one each."""
    shape = (len(rows), _axes(plan))
    first, behind = np.zeros(shape, np.int64), np.ones(shape, np.int64)
    encoder = plan.encoder.regions[number]
    for axis, (column, scale) in enumerate(zip(encoder.columns, encoder.scales, strict=True)):
        low, high = interests.lo[rows, column], interests.hi[rows, column]
        top = (1 << scale.bits) - 1
        if scale.kind == "hash":
            behind[:, axis] = top + 1
            continue
        kind: Any = np.float64 if scale.kind == "float" else np.int64
        least, most = np.maximum(low, scale.lo).astype(kind), np.minimum(high, scale.hi).astype(kind)
        lowest = encoder.coordinates(axis, least).astype(np.int64)
        highest = encoder.coordinates(axis, most).astype(np.int64)
        if scale.kind == "int":
            # Up to where the next value begins: coordinates between two values belong to nobody else.
            after = encoder.coordinates(axis, np.minimum(most + 1, int(scale.hi))).astype(np.int64)
            highest = np.maximum(highest, after - 1)
        first[:, axis] = np.where(low <= scale.lo, 0, lowest)
        behind[:, axis] = np.where(high >= scale.hi, top, highest) + 1
    return _boxes(plan, start + rows, np.full(len(rows), number), first, behind)


def _within(plan: Plan, whole: Covers, budget: int) -> tuple[list[Covers], list[int]]:
    """Boxes, one per region of an owner, as at most so many entries each; and owners in more regions than that."""
    layout = layout_of(plan)
    starts = np.flatnonzero(np.diff(whole.owner, prepend=-1))
    ends = np.append(starts[1:], len(whole.owner))
    parts: list[tuple[_I64, _I64, _I64]] = []
    owners: list[int] = []
    more: list[int] = []
    for at, end in zip(starts.tolist(), ends.tolist(), strict=True):
        owner = int(whole.owner[at])
        # Boxes of an owner come in the order of their regions.
        offsets = np.searchsorted(whole.region[at:end], np.arange(len(plan.regions) + 1), "left").astype(np.int64)
        boxes = Boxes(layout, whole.first[at:end], whole.behind[at:end] - 1, offsets)
        region, start, size = cover_pieces(plan, boxes, budget, None, plan.kind)
        if len(region) > plan.most(budget):
            more.append(owner)
            continue
        parts.append((region, start, size))
        owners += [owner] * len(region)
    if not parts:
        return [], more
    region, start, size = (np.concatenate([each[i] for each in parts]) for i in range(3))
    return [_boxes(plan, np.array(owners, np.int64), region, start, start + (np.int64(1) << size))], more
