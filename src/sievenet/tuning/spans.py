"""Spans: many boxes, and how many events of a batch each owner of boxes gets.

Asking every event for its boxes costs as much as there are answers; here it is the other way round.  Events are bits:
for each end of a span on an axis there is a bitmap of the events below it, and a box is the *and*, over the axes, of
those below its end and not below its beginning (`kernels.tally`), 64 events at a time:

    ends of axis 0         3      7    9            events 0 … 7 of a block
    below 7                01101110                 those with ranks up to that of 7
    below 3                00100010
    box [3, 7)             01001100    and the same on the next axis, …  then count bits

The events of a batch are sorted by the axis on which boxes are narrowest, so a block of them spans little of it:
boxes elsewhere are passed by with two comparisons, and an axis that a box covers all along costs nothing.

Cost: per block of 4096 events a bitmap per end, and two comparisons per box, then 128 words per axis of those that are
left.  Boxes are taken in chunks whose bitmaps fit into the cache.  Exact for whole numbers and doubles alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["Ranker", "Spans", "chunks"]

_I64 = npt.NDArray[np.int64]
_I32 = npt.NDArray[np.int32]
_Any = npt.NDArray[Any]
#: Places of events on an axis.
Places = Callable[[int], _Any]

#: Ends of all axes of a chunk at most, beyond what a single owner has: each takes 512 bytes.
_ENDS: Final = 65_536
#: Whole numbers from one end to the other for which ranks are looked up in a table.
_TABLE: Final = 65_536


class Ranker:
    """How many of some sorted ends are at or below each place."""

    def __init__(self, ends: _Any) -> None:
        self.ends = ends
        self._table: _I32 | None = None
        if len(ends) and ends.dtype.kind == "i" and int(ends[-1]) - int(ends[0]) < _TABLE:
            every = np.arange(int(ends[0]) - 1, int(ends[-1]) + 1)
            self._table = np.searchsorted(ends, every, "right").astype(np.int32)

    def __call__(self, places: _Any) -> _I32:
        """The ranks of places."""
        if self._table is None or places.dtype.kind == "f":
            return np.searchsorted(self.ends, places, "right").astype(np.int32)
        low = int(self.ends[0]) - 1
        inside = np.clip(places, low, int(self.ends[-1]))
        found: _I32 = self._table[inside - low]
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Some boxes as numbers of the ends of their spans, the narrowest axis first."""

    axes: tuple[int, ...]
    ranks: tuple[Ranker, ...]
    #: Boxes × axes: the ends at which each box begins, and before which it ends.
    first: _I32
    behind: _I32
    #: The owner of each box; those of one owner are neighbours.
    owners: _I64

    @staticmethod
    def of(first: Sequence[_Any], behind: Sequence[_Any], owners: _I64) -> list[Spans]:
        """From first places and places behind the last, per axis; boxes of one owner are neighbours."""
        found = []
        at = 0
        while at < len(owners):
            end = len(owners)
            while (part := _some(first, behind, owners, at, end)) is None:
                end = _owner_end(owners, at, at + (end - at) // 2)
            found.append(part)
            at = end
        return found

    def tally(self, places: Places, found: _I64) -> None:
        """Add to each owner's count the events that some box of it holds."""
        from sievenet.tuning.kernels import tally

        lead = self.ranks[0](places(self.axes[0]))
        order = np.argsort(lead)
        ranks = np.empty((len(self.axes), len(lead)), np.int32)
        ranks[0] = lead[order]
        for number, (axis, rank) in enumerate(zip(self.axes[1:], self.ranks[1:], strict=True), 1):
            ranks[number] = rank(places(axis))[order]
        sizes = np.array([len(r.ends) for r in self.ranks], np.int64)
        tally(ranks, sizes, self.first, self.behind, self.owners, found)


def _owner_end(owners: _I64, at: int, end: int) -> int:
    """Behind the boxes of the owner that ``end`` is among, if these begin at ``at``; else before them."""
    owner = owners[end]
    before = int(np.searchsorted(owners, owner, "left"))
    return before if before > at else int(np.searchsorted(owners, owner, "right"))


def _some(first: Sequence[_Any], behind: Sequence[_Any], owners: _I64, at: int, end: int) -> Spans | None:
    """The boxes from one to another, unless they have too many ends and could be divided."""
    part = slice(at, end)
    ends = [np.unique(np.concatenate([a[part], b[part]])) for a, b in zip(first, behind, strict=True)]
    if sum(map(len, ends)) > _ENDS and owners[at] != owners[end - 1]:
        return None
    low = np.stack([np.searchsorted(e, a[part]) for e, a in zip(ends, first, strict=True)], axis=1)
    high = np.stack([np.searchsorted(e, b[part]) for e, b in zip(ends, behind, strict=True)], axis=1)
    # Ends are where boxes are, so the part of the ends within a box says how narrow it is.
    width = [float((high[:, d] - low[:, d]).mean()) / len(e) for d, e in enumerate(ends)]
    # An axis that every box covers from its only beginning to its only end still keeps away what is outside.
    axes = sorted(range(len(ends)), key=width.__getitem__)
    numbers = [np.ascontiguousarray(side[:, axes].astype(np.int32)) for side in (low, high)]
    return Spans(tuple(axes), tuple(Ranker(ends[d]) for d in axes), numbers[0], numbers[1], owners[part])


def chunks(owners: _I64, size: int) -> Iterator[slice]:
    """Boxes, about ``size`` at a time; those of one owner stay together."""
    at = 0
    while at < len(owners):
        end = min(at + size, len(owners))
        while end < len(owners) and owners[end] == owners[end - 1]:
            end += 1
        yield slice(at, end)
        at = end
