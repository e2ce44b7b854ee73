"""Locator: which regions may hold an event, without asking all of them.

A plan can have hundreds of regions.  A small decision tree over their bounds leaves a handful for each event:

              price < 40 ?
             /            \
      volume < 9 ?      [r3, r7]          leaves list regions in the plan's order;
       /       \\                          the exact test is made there
    [r0, r1]  [r1, r2]

A region that a threshold cuts is on both sides, so nothing is missed, whether regions overlap or not.  A batch is
divided the same way: its rows go down the tree in groups, each level costs one comparison per row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["Locator"]

#: Regions that are asked one by one.
_FEW: Final = 4
#: A cut is worth it if no side keeps more than this part of the regions.
_WORTH: Final = 0.8

_I64 = npt.NDArray[np.int64]
#: (column, lo, hi) of every bound of a region.
Bounds = Sequence[tuple[int, Any, Any]]


@dataclass(frozen=True, slots=True)
class _Cut:
    column: int
    #: Values from here on are above.
    at: Any
    below: _Cut | tuple[int, ...]
    above: _Cut | tuple[int, ...]


class Locator:
    """Regions by their bounds; those without any are candidates everywhere."""

    def __init__(self, regions: Sequence[Bounds]) -> None:
        self._bounds = [{column: (lo, hi) for column, lo, hi in each} for each in regions]
        self._tree = self._grown(tuple(range(len(regions))))

    def _grown(self, regions: tuple[int, ...]) -> _Cut | tuple[int, ...]:
        if len(regions) <= _FEW:
            return regions
        best: tuple[int, int, Any, tuple[int, ...], tuple[int, ...]] | None = None
        for column in sorted({c for r in regions for c in self._bounds[r]}):
            spans = [(r, self._bounds[r].get(column)) for r in regions]
            starts = sorted({span[0] for _, span in spans if span is not None})
            # The middle ones divide best; a few of them are enough to choose from.
            for at in starts[1:][:: max(1, len(starts) // 16)]:
                below = tuple(r for r, span in spans if span is None or span[0] < at)
                above = tuple(r for r, span in spans if span is None or span[1] >= at)
                worst = max(len(below), len(above))
                if best is None or worst < best[0]:
                    best = worst, column, at, below, above
        if best is None or best[0] > _WORTH * len(regions):
            return regions
        return _Cut(best[1], best[2], self._grown(best[3]), self._grown(best[4]))

    def candidates(self, place: Callable[[int], Any]) -> tuple[int, ...]:
        """The regions that may hold an event, in order; ``place`` says where it is by the number of a column."""
        node = self._tree
        while isinstance(node, _Cut):
            node = node.below if place(node.column) < node.at else node.above
        return node

    def divided(self, columns: Callable[[int], npt.NDArray[Any]], count: int) -> Iterator[tuple[tuple[int, ...], _I64]]:
        """The rows of a batch by their candidates."""
        waiting: list[tuple[_Cut | tuple[int, ...], _I64]] = [(self._tree, np.arange(count))]
        while waiting:
            node, rows = waiting.pop()
            if not isinstance(node, _Cut):
                yield node, rows
                continue
            above = columns(node.column)[rows] >= node.at
            for side, part in ((node.above, rows[above]), (node.below, rows[~above])):
                if len(part):
                    waiting.append((side, part))
