"""What a node sees of each publisher in small subspaces: how much it wanted, how much not, and how long each way took.

Only while the daemon asks for it, to find out where exact matchers would be worth their latency. Subspaces are cells of
`BITS` bits of the code. What is counted travels with the heartbeat, at most `MOST` of the largest counts; of the rest
only the sum is known, and left out.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.control.descriptions import CELL_BITS, MAX_CELLS, Seen, Way

__all__ = ["Observations"]

_SHIFT: Final = 128 - CELL_BITS
#: Counts kept between two reports.
_KEPT: Final = 16 * MAX_CELLS


class Observations:
    """Since the last report."""

    def __init__(self) -> None:
        #: By category, cell and publisher: wanted and not.
        self._counts: dict[tuple[int, int, int], list[int]] = {}
        #: By way (by content, directed): events and seconds.
        self._ways = [[0, 0.0], [0, 0.0]]

    def single(self, category: int, code: int, publisher: int, wanted: bool) -> None:
        """An event has come by content."""
        key = (category, code >> _SHIFT, publisher)
        count = self._counts.get(key)
        if count is None:
            if len(self._counts) >= _KEPT:
                return
            count = self._counts[key] = [0, 0]
        count[not wanted] += 1

    def many(self, category: int, heads: npt.NDArray[Any], wanted: npt.NDArray[np.bool_]) -> None:
        """Events have come by content."""
        cells = heads["hi"].astype(np.uint64) >> np.uint64(_SHIFT - 64)
        for publisher in np.unique(heads["publisher"]):
            own = heads["publisher"] == publisher
            for cell in np.unique(cells[own]).tolist():
                mine = wanted[own & (cells == cell)]
                key = (category, int(cell), int(publisher))
                if key in self._counts or len(self._counts) < _KEPT:
                    count = self._counts.setdefault(key, [0, 0])
                    count[0] += int(mine.sum())
                    count[1] += int((~mine).sum())

    def took(self, directed: bool, events: int, seconds: float) -> None:
        """Wanted events took so long in all, one way or the other."""
        way = self._ways[directed]
        way[0] += events
        way[1] += max(0.0, seconds)

    def taken(self) -> tuple[tuple[Seen, ...], tuple[Way, Way]]:
        """What was seen since the last time: the largest counts, and both ways."""
        largest = sorted(self._counts.items(), key=lambda item: -sum(item[1]))[:MAX_CELLS]
        seen = tuple(Seen(*key, *counts) for key, counts in largest)
        ways = Way(int(self._ways[0][0]), self._ways[0][1]), Way(int(self._ways[1][0]), self._ways[1][1])
        self._counts = {}
        self._ways = [[0, 0.0], [0, 0.0]]
        return seen, ways
