"""A level: an immutable access structure over some of the filters.

Idea.  Checking one filter costs a few branches; checking 256 of them at once costs one AND per attribute, if what they
admit is laid out as bitmaps.  So filters are put into *blocks* of 256 slots, alike ones together, and an event visits
only the blocks that could match it:

    block, clustered by price: slots 0 … 255         event: price in bucket 17, symbol in bucket 3, …
      slice price    bucket 16   1101…               price 17    0111…01
                     bucket 17   0111…    ──────►    symbol 3    1101…11
                     bucket 18   0110…               side 1      1111…00
      slice symbol   bucket  0   1111…               AND         0101…00  → slots 1, 3: check the records exactly
                     …

*Buckets.*  Each attribute's line of keys is cut into up to 256 buckets at quantiles of the filters' own ends, so that
they are fine where interest is dense; attributes with few distinct ends get a bucket for each.  The map from key to
bucket is monotone and the same for events and ends, so a bitmap never loses a match.

*Clustering.*  A filter goes to the blocks of the attribute it constrains best, narrow filters apart from wide ones,
sorted by where they begin.  A block so admits only a short run of buckets of that attribute.  A set of strings has
no short hull; its filter is *copied*, once for each run of buckets, if these are few.  Groups too small to fill a block
join the next wider one; what nothing narrows is in blocks that every event visits, which is not so bad: 256 for one.

*Narrow filters.*  Where hardly two filters of a block overlap, bitmaps are a waste: a bucket holds dozens of them, and
all but one would be checked in vain.  Such a block is a sorted list, in which an event finds its place by bisection.

*Exactness.*  If all ends of a constraint are edges, its bitmaps are exact.  What they are not exact about becomes a
*check* of the slot with full keys, or of the whole record where a constraint has several stretches.  A copy may be
found twice in one bucket: reported keys are made distinct at the end.

Cost.  For n filters, A attributes and a part w of the buckets admitted by a filter's best constraint, an event visits
about A (1 + w n / 256 A) blocks.  Batches go block by block rather than event by event: events sorted by the bucket of
the clustering attribute, slice by slice over all of them, so that one bitmap table at a time is in the nearest cache.

Departures.  Bitmaps per attribute value are an old idea (bit vectors in packet classification), as is filing by the
best attribute (BE-Tree, OpIndex); the blocks combine them, and keep bitmaps short enough to be merged quickly.
Grids over pairs of attributes were tried first: they suffered from filters with many wide constraints, for which no
pair is selective and every cell is long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.matcher import bitrow, construction, narrow, records
from sievenet.matcher.blocks import ATTR, BEHIND, COLUMNS, FILLED, FIRST, HI, LO, S_ATTR, S_ROW, S_SHIFT, SORTED

__all__ = ["Level", "build", "unbuilt"]

Ints = npt.NDArray[np.int64]

#: Most copies of a filter, and what one costs as a part of all events: a copy widens the block it is in.
_COPIES: Final = 8
_COPY: Final = 0.02
#: Copies of a filter on average; if there were more, they count as dearer.
_CROWD: Final = 1.5
#: Parts of an attribute's buckets up to which filters are clustered together; wider ones are not clustered.
_WIDTHS: Final = (1 / 32, 1 / 8, 1 / 2)
#: Copies that are worth blocks of their own: each group of blocks costs an event a visit.
_WORTH: Final = 512
#: Slots of a block that must constrain an attribute for it to get a slice, and to get a fine one.
_SLICED: Final = 8
_FINE: Final = 32
#: Rows of a slice, fine and coarse.
_ROWS: Final = 128
_FEW_ROWS: Final = 32
#: Filters of a block that an event looks at, on average, up to which a sorted list is better than bitmaps.
_NARROW: Final = 4.0
#: Ends sampled to place the edges of the buckets.
_SAMPLE: Final = 20_000


@dataclass(slots=True, eq=False)
class Level:
    """Arrays as the kernels read them.  Only `alive` ever changes: when a record is removed."""

    words: Ints
    alive: npt.NDArray[np.uint8]
    keys: Ints
    #: Sorted cuts of each attribute whose keys are ranks, else empty.
    cuts: Sequence[list[Any]]
    edges: Ints
    #: Attributes whose buckets matter.
    used: Ints
    blocks: Ints
    slots: npt.NDArray[np.uint32]
    check_ends: npt.NDArray[np.uint32]
    checks: Ints
    #: Attributes that checks are about.
    checked: Ints
    slices: Ints
    rows: npt.NDArray[np.uint64]
    #: Of blocks that are sorted lists (`narrow`).
    marks: npt.NDArray[np.uint16]
    entries: Ints
    #: Records that live.
    live: int
    #: Records there were when it was built.
    built: int

    @property
    def arrays(self) -> tuple[Any, ...]:
        """What the matching kernels take, in their order."""
        filters = self.words, self.alive, self.keys
        slices = self.slices, self.rows, self.used, self.checked, self.marks, self.entries
        return *filters, self.blocks, self.slots, self.check_ends, self.checks, *slices

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(a.nbytes for a in (*self.arrays, self.edges))


def unbuilt(words: Ints, alive: npt.NDArray[np.uint8], cuts: Sequence[list[Any]], attributes: int) -> Level:
    """A level without structure: every event walks over all records.  Right for a few hundred."""
    return Level(
        words=words,
        alive=alive,
        keys=np.empty(0, np.int64),
        cuts=cuts,
        edges=np.empty((attributes, records.BUCKETS - 1), np.int64),
        used=np.empty(0, np.int64),
        blocks=np.empty((0, COLUMNS), np.int64),
        slots=np.empty(0, np.uint32),
        check_ends=np.empty(0, np.uint32),
        checks=np.empty((0, 3), np.int64),
        checked=np.empty(0, np.int64),
        slices=np.empty((0, 3), np.int64),
        rows=np.empty((0, bitrow.WORDS), np.uint64),
        marks=np.empty((0, narrow.GROUP + bitrow.SLOTS), np.uint16),
        entries=np.empty((0, 4), np.int64),
        live=len(alive),
        built=len(alive),
    )


def build(words: Ints, places: Ints, cuts: Sequence[list[Any]], attributes: int) -> Level:
    """File the records at `places`, which are all that `words` holds."""
    edges, sizes = _edges(words, places, attributes)
    chosen = np.empty((len(places), 4), np.int64)
    cost = _COPY
    while (total := construction.choose(words, places, edges, sizes, _COPIES, cost, chosen)) > _CROWD * len(places):
        cost *= 2
    copies = np.empty((total, 4), np.int64)
    construction.make_copies(words, places, edges, chosen, copies)
    copies, groups, group = _grouped(copies, sizes)
    copies = copies[np.argsort(group * records.BUCKETS + copies[:, 1], kind="stable")]
    blocks, slot = _blocks(copies, groups, np.bincount(group, minlength=len(groups)))
    # Records lie in the order of the blocks they are first in, so that a block's records are close together.
    first = np.empty(len(places), np.int64)
    first[copies[::-1, 3]] = slot[::-1]
    order = np.argsort(first, kind="stable")
    ordered, where = np.empty_like(words), np.empty_like(places)
    construction.reorder(words, places, order, ordered, where)
    number = np.empty(len(places), np.uint32)
    number[order] = np.arange(len(places))
    slots = np.zeros(len(blocks) * bitrow.SLOTS, np.uint32)
    slots[slot] = number[copies[:, 3]]
    spans = np.zeros((len(slots), 2), np.int64)
    spans[slot] = copies[:, 1:3]
    marks = np.empty((len(blocks), narrow.GROUP + bitrow.SLOTS), np.uint16)
    entries = np.empty((len(slots), 4), np.int64)
    lists = construction.sort_narrow(ordered, where, slots, spans, blocks, _NARROW, marks, entries)
    slices, rows, constraints = _slices(ordered, where, slots, blocks, sizes)
    construction.fill_slices(ordered, where, slots, spans, blocks, slices, sizes, edges, rows)
    check_ends, checks, checked = _checks(ordered, where, slots, blocks, slices, edges, constraints)
    return Level(
        words=ordered,
        alive=np.ones(len(places), np.uint8),
        keys=ordered[where],
        cuts=cuts,
        edges=edges,
        used=np.flatnonzero(sizes > 1),
        blocks=blocks,
        slots=slots,
        check_ends=check_ends,
        checks=checks,
        checked=checked,
        slices=slices,
        rows=rows,
        marks=marks[:lists].copy(),
        entries=narrow.aligned(entries[: lists * bitrow.SLOTS]),
        live=len(places),
        built=len(places),
    )


def _edges(words: Ints, places: Ints, attributes: int) -> tuple[Ints, Ints]:
    """Quantiles of the ends of stretches per attribute, and the number of buckets between them.

    Places without an edge hold the greatest key.
    """
    stride = max(1, len(places) * 4 // _SAMPLE)
    starts = np.zeros(attributes + 1, np.int64)
    counts = construction.count_ends(words, places, stride, attributes)
    np.cumsum(counts, out=starts[1:])
    ends = construction.gather_ends(words, places, stride, starts)
    edges = np.full((attributes, records.BUCKETS - 1), records.MAX, np.int64)
    sizes = np.ones(attributes, np.int64)
    for attr in np.flatnonzero(counts).tolist():
        mine = np.sort(ends[starts[attr] : starts[attr + 1]])
        distinct = np.unique(mine)
        if len(distinct) >= records.BUCKETS:
            at = np.linspace(0, len(mine) - 1, records.BUCKETS + 1).astype(np.int64)[1:-1]
            distinct = np.unique(mine[at])
        distinct = distinct[distinct < records.MAX]
        edges[attr, : len(distinct)] = distinct
        sizes[attr] = len(distinct) + 1
    return edges, sizes


def _grouped(copies: Ints, sizes: Ints) -> tuple[Ints, Ints, Ints]:
    """The copies to keep, the attribute that each group of them is clustered by (-1: none), the group of each copy."""
    attr, lo, hi = copies[:, 0], copies[:, 1], copies[:, 2]
    classes = len(_WIDTHS) + 1
    width = np.searchsorted(_WIDTHS, (hi - lo + 1) / sizes[attr])
    name = np.where((attr < 0) | (width == classes - 1), -1, attr * classes + width)
    for _ in range(classes - 1):
        # A group that is too small joins the next wider one; the widest of an attribute is not clustered.
        names, group = np.unique(name, return_inverse=True)
        small = (np.bincount(group)[group] < _WORTH) & (name >= 0)
        name = np.where(small, np.where(name % classes == classes - 2, -1, name + 1), name)
    # Of a record that is not clustered after all one copy is enough, and it can be met by any event.
    loose = name < 0
    copies[loose, 1:3] = 0, records.BUCKETS - 1
    again = np.zeros(len(copies), np.bool_)
    again[1:] = loose[1:] & loose[:-1] & (copies[1:, 3] == copies[:-1, 3])
    copies, name = copies[~again], name[~again]
    names, group = np.unique(name, return_inverse=True)
    return copies, np.where(names < 0, -1, names // classes), group


def _blocks(copies: Ints, groups: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """The table of blocks without slices, and the slot of each copy; a block has copies of one group."""
    number = -(-counts // bitrow.SLOTS)
    blocks = np.zeros((int(number.sum()), COLUMNS), np.int64)
    blocks[:, ATTR] = np.repeat(groups, number)
    # The slots that the groups before leave empty shift a group's slots.
    shift = np.cumsum(number * bitrow.SLOTS - counts) - (number * bitrow.SLOTS - counts)
    slot = np.arange(len(copies)) + np.repeat(shift, counts)
    block = slot // bitrow.SLOTS
    begins = np.searchsorted(block, np.arange(len(blocks)))
    blocks[:, LO] = np.minimum.reduceat(copies[:, 1], begins)
    blocks[:, HI] = np.maximum.reduceat(copies[:, 2], begins)
    blocks[:, FILLED] = np.diff(np.append(begins, len(copies)))
    return blocks, slot


def _slices(
    words: Ints, places: Ints, slots: npt.NDArray[np.uint32], blocks: Ints, sizes: Ints
) -> tuple[Ints, npt.NDArray[np.uint64], int]:
    """The table of slices, most constrained attributes first, room for their rows, and the constraints of all slots."""
    counts = np.zeros((len(blocks), len(sizes)), np.int64)
    constraints = construction.count_constraints(words, places, slots, blocks, counts)
    clustered = blocks[:, ATTR] >= 0
    counts[clustered, blocks[clustered, ATTR]] = bitrow.SLOTS + 1
    listed = blocks[:, SORTED] >= 0
    # Every other block has a slice; one of a single row lets everything pass.
    bare = counts.max(axis=1) < _SLICED
    counts[bare, 0] = _SLICED
    counts[listed] = 0
    block, attr = np.nonzero(counts >= _SLICED)
    count = counts[block, attr]
    order = np.lexsort((-count, block))
    block, attr, count = block[order], attr[order], count[order]
    # Where every end is an edge a row per bucket is exact, and saves a check.
    rows = np.where(count < _FINE, _FEW_ROWS, np.where(sizes[attr] < records.BUCKETS, records.BUCKETS, _ROWS))
    shift = np.maximum(0, np.ceil(np.log2(sizes[attr] / rows))).astype(np.int64)
    own = count > bitrow.SLOTS
    shift[own] = 0
    shift[bare[block]] = records.BUCKET_BITS
    height = np.where(own, blocks[block, HI] - blocks[block, LO] + 1, ((sizes[attr] - 1) >> shift) + 1)
    ends = np.cumsum(height)
    slices = np.empty((len(block), 3), np.int64)
    slices[:, S_ATTR] = attr
    slices[:, S_SHIFT] = shift
    slices[:, S_ROW] = ends - height - np.where(own, blocks[block, LO], 0)
    blocks[:, FIRST] = np.searchsorted(block, np.arange(len(blocks)))
    blocks[:, BEHIND] = np.searchsorted(block, np.arange(len(blocks)), side="right")
    return slices, np.empty((int(height.sum()), bitrow.WORDS), np.uint64), constraints


def _checks(
    words: Ints, places: Ints, slots: Any, blocks: Ints, slices: Ints, edges: Ints, most: int
) -> tuple[Any, Ints, Ints]:
    """What the slices cannot say: where each slot's checks end, the checks, and the attributes they are about."""
    ends = np.zeros(len(slots) + 1, np.uint32)
    room = np.empty((most, 3), np.int64)
    checks = room[: construction.fill_checks(words, places, slots, blocks, slices, edges, ends, room)].copy()
    # From attributes to columns.
    column = np.full(len(edges) + 1, -1, np.int64)
    checked = np.flatnonzero(np.bincount(checks[:, 0] + 1, minlength=len(column))[1:])
    column[checked] = np.arange(len(checked))
    checks[:, 0] = column[checks[:, 0]]
    return ends, checks, checked
