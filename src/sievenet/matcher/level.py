"""A level: an immutable access structure over some of the filters.

Idea.  A filter is a box, an event a point.  Each filter is filed under its *two most selective* constraints, in a
grid over those two attributes; an event visits one cell of each grid and checks what it finds there.

    grid of (price, symbol)                       entries of a cell, contiguous
      symbol                                      ┌ signature ─────────┬ place ┐
        │  .  .  .  .                             │ 3rd, 4th constraint│ →     │   words: the whole filter,
        │  .  f  f  .      event → one cell  ───► │ in bucket numbers  │ record│   exact, fetched only if the
        │  .  f  f  g                             ├────────────────────┼───────┤   signature lets it pass
        └──────────── price                       │ …                  │ →     │

*Buckets.*  Each attribute's line of keys is cut into up to 256 buckets at quantiles of the filters' own ends, so that
the grid is fine where interest is dense.  All that is coarse is in bucket numbers (one byte per attribute and event);
since the map from key to bucket is monotone, a coarse check never loses a match.

*Groups.*  Filters with the same two attributes share a grid, narrow and wide ones apart, each grid with the resolution
of its two axes that touches the fewest entries per event without copying a filter into more than a few cells on
average.  A grid costs every event a look-up, so one that would save less than that is dissolved: its filters go to
the one-attribute grid of their best constraint, and from there, if that is not worth it either, to the *scan*: records
at the end of the words that every event walks over.  Match-all filters are in the scan by nature.

*Exactness* comes from the record alone, which holds the whole filter; the structure only decides who looks at it.

Cost: building is linear but for sorting samples of ends; an event costs one look-up per group plus the entries of its
cells.  Records lie in the order of their groups, so that a chunk of events walking one group stays in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.matcher import kernels as k

__all__ = ["Level", "build", "unbuilt"]

Ints = npt.NDArray[np.int64]

#: What visiting a cell costs, in entries checked.
_VISIT: Final = 3.0
#: A filter is wide if its two best constraints leave more than this part of the buckets.
_WIDE: Final = 1 / 64
#: Copies of a filter in a grid, on average.
_COPIES: Final = 8
#: Ends sampled to place the edges of the buckets.
_SAMPLE: Final = 20_000


@dataclass(slots=True, eq=False)
class Level:
    """Arrays as `kernels` reads them.  Only the second word of a record ever changes: when it is removed."""

    words: Ints
    #: Where the records begin that every event walks over.
    scan: int
    #: Sorted cuts of each attribute whose keys are ranks, else empty.
    cuts: Sequence[list[Any]]
    edges: Ints
    #: Attributes whose buckets matter.
    used: Ints
    groups: Ints
    offsets: npt.NDArray[np.int32]
    signatures: Ints
    places: npt.NDArray[np.uint32]
    #: Records that live.
    live: int
    #: Records there were when it was built.
    built: int

    @property
    def arrays(self) -> tuple[Any, ...]:
        """What the matching kernels take, in their order."""
        return self.words, self.scan, self.groups, self.offsets, self.signatures, self.places

    @property
    def scanned(self) -> int:
        """Live records that every event walks over."""
        return int(k.live_size(self.words[self.scan :])[0])

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        arrays = (self.words, self.edges, self.used, self.groups, self.offsets, self.signatures, self.places)
        return sum(a.nbytes for a in arrays)


def unbuilt(words: Ints, cuts: Sequence[list[Any]], attributes: int, live: int) -> Level:
    """A level without structure: every event walks over all records.  Right for a few hundred."""
    return Level(
        words=words,
        scan=0,
        cuts=cuts,
        edges=np.empty((attributes, k.BUCKETS - 1), np.int64),
        used=np.empty(0, np.int64),
        groups=np.empty((0, 6), np.int64),
        offsets=np.zeros(1, np.int32),
        signatures=np.empty(0, np.int64),
        places=np.empty(0, np.uint32),
        live=live,
        built=live,
    )


def build(words: Ints, places: Ints, cuts: Sequence[list[Any]], attributes: int) -> Level:
    """File the records at `places`, which are all that `words` holds; `words` is overwritten."""
    edges, used = _edges(words, places, attributes)
    spans = np.empty((len(places), 4), np.int64)
    k.order_constraints(words, places, edges, spans)
    pairs = _pairs(spans, attributes)
    names, group = np.unique(pairs, return_inverse=True)
    if len(names) and names[0] < 0:
        names, group = names[1:], group - 1
    groups = np.zeros((len(names), 6), np.int64)
    groups[:, k.A] = (names >> 1) // attributes
    groups[:, k.B] = (names >> 1) % attributes
    # Records in the order of their groups, and within a group along its first axis; the scan comes last.
    last = np.where(group < 0, len(names), group)
    order = np.lexsort((words[np.minimum(places + 3, len(words) - 1)], last))
    ordered, where = np.empty_like(words), np.empty_like(places)
    k.reorder(words, places, order, ordered, where)
    group = group[order]
    filed = int(np.count_nonzero(group >= 0))
    cells = _resolve(ordered, where, group, groups, edges)
    offsets = np.zeros(cells + 1, np.int32)
    none = np.empty(0, np.int64)
    k.place_entries(ordered, where, group, groups, edges, offsets, none, np.empty(0, np.uint32), False)
    np.cumsum(offsets, out=offsets)
    signatures = np.empty(int(offsets[-1]), np.int64)
    entries = np.empty(int(offsets[-1]), np.uint32)
    k.place_entries(ordered, where, group, groups, edges, offsets.copy(), signatures, entries, True)
    return Level(
        words=ordered,
        scan=int(where[filed]) if filed < len(where) else len(ordered),
        cuts=cuts,
        edges=edges,
        used=used,
        groups=groups,
        offsets=offsets,
        signatures=signatures,
        places=entries,
        live=len(places),
        built=len(places),
    )


def _edges(words: Ints, places: Ints, attributes: int) -> tuple[Ints, Ints]:
    """Quantiles of the ends of stretches, per attribute, and the attributes that have any.

    Places without an edge hold the greatest key.
    """
    stride = max(1, len(places) * 4 // _SAMPLE)
    starts = np.zeros(attributes + 1, np.int64)
    counts = k.count_ends(words, places, stride, attributes)
    np.cumsum(counts, out=starts[1:])
    ends = k.gather_ends(words, places, stride, starts)
    edges = np.full((attributes, k.BUCKETS - 1), k.MAX, np.int64)
    for attr in range(attributes):
        mine = np.sort(ends[starts[attr] : starts[attr + 1]])
        if not len(mine):
            continue
        distinct = np.unique(mine)
        if len(distinct) >= k.BUCKETS:
            at = np.linspace(0, len(mine) - 1, k.BUCKETS + 1).astype(np.int64)[1:-1]
            distinct = np.unique(mine[at])
        edges[attr, : len(distinct)] = distinct
    return edges, np.flatnonzero(counts)


def _pairs(spans: Ints, attributes: int) -> Ints:
    """The group each record belongs to, as a number made of its attributes and class; -1 for the scan."""
    first, second, a, b = (spans[:, i] for i in range(4))
    part_1, part_2 = first / k.BUCKETS, second / k.BUCKETS
    wide = (part_1 * part_2 > _WIDE).astype(np.int64)
    pair = (np.minimum(a, b) * attributes + np.maximum(a, b)) * 2 + wide
    single = (a * attributes + a) * 2
    name = np.where(b >= 0, pair, np.where(a >= 0, single, -1))
    name = _dissolve(name, part_1 * (1 - part_2), (b >= 0), np.where(a >= 0, single, -1))
    return _dissolve(name, 1 - part_1, name == single, np.full_like(name, -1))


def _dissolve(name: Ints, saving: Any, among: Any, instead: Ints) -> Ints:
    """Rename groups whose look-up saves less than it costs."""
    names, group = np.unique(name, return_inverse=True)
    saved = np.bincount(group, weights=np.where(among, saving, _VISIT), minlength=len(names))
    return np.where(among & (saved[group] < _VISIT), instead, name)


def _resolve(words: Ints, places: Ints, group: Ints, groups: Ints, edges: Ints) -> int:
    """Choose the resolution of each group's axes; the number of cells in all."""
    table = k.resolutions(words, places, group, groups, edges)
    sizes = np.bincount(group[group >= 0], minlength=len(groups))
    bits = np.arange(k.BUCKET_BITS + 1)
    cells = 1 << (bits[:, None] + bits[None, :])
    base = 0
    for g, size in enumerate(sizes.tolist()):
        allowed = (table[g] <= _COPIES * size) & (cells <= max(16, 4 * size))
        if groups[g, k.A] == groups[g, k.B]:
            allowed[:, 1:] = False
        cost = np.where(allowed, table[g] / cells, np.inf)
        bits_a, bits_b = divmod(int(np.argmin(cost)), k.BUCKET_BITS + 1)
        groups[g, k.SHIFT_A] = k.BUCKET_BITS - bits_a
        groups[g, k.SHIFT_B] = k.BUCKET_BITS - bits_b
        groups[g, k.WIDTH] = 1 << bits_b
        groups[g, k.BASE] = base
        base += 1 << (bits_a + bits_b)
    return base
