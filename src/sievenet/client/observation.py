"""What a node sees of each publisher in small subspaces: how much it wanted, how much not, and how long each way took.

Only while the daemon asks for it, to find out where exact matchers would be worth their latency. Subspaces are cells of
`BITS` bits of the code. What is counted travels with the heartbeat, at most `MOST` of the largest counts; of the rest
only the sum is known, and left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.control.descriptions import CELL_BITS, MAX_CELLS, Seen, Way

__all__ = ["FRESH", "Observations"]

_SHIFT: Final = 128 - CELL_BITS
#: Counts kept between two reports.
_KEPT: Final = 16 * MAX_CELLS
#: Single events that wait to be counted together.
FRESH: Final = 256


class Observations:
    """Since the last report."""

    def __init__(self) -> None:
        #: By category, cell and publisher: wanted and not.
        self._counts: dict[tuple[int, int, int], list[int]] = {}
        #: By way (by content, directed): events and seconds.
        self._ways = [[0, 0.0], [0, 0.0]]
        #: Single events that wait to be counted.
        self._fresh: list[tuple[int, int, int, int | None]] = []

    def single(self, category: int, code: int, publisher: int, took: int | None) -> None:
        """An event has come by content; if it was wanted it took so many nanoseconds.

        Others wait while this one is received, so it is counted later.
        """
        self._fresh.append((category, code, publisher, took))
        if len(self._fresh) >= FRESH:
            self._settle()

    def _settle(self) -> None:
        """Count the single events that wait."""
        counts, events, nanoseconds = self._counts, 0, 0
        for category, code, publisher, took in self._fresh:
            if took is not None:
                events += 1
                nanoseconds += max(0, took)
            key = (category, code >> _SHIFT, publisher)
            count = counts.get(key)
            if count is None:
                if len(counts) >= _KEPT:
                    continue
                count = counts[key] = [0, 0]
            count[took is None] += 1
        self._fresh.clear()
        self.took(False, events, nanoseconds / 1e9)

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
        self._settle()
        largest: Iterable[tuple[tuple[int, int, int], list[int]]] = self._counts.items()
        if len(self._counts) > MAX_CELLS:
            largest = nlargest(MAX_CELLS, largest, key=lambda item: sum(item[1]))
        seen = tuple([Seen(*key, wanted, unwanted) for key, (wanted, unwanted) in largest])
        ways = Way(int(self._ways[0][0]), self._ways[0][1]), Way(int(self._ways[1][0]), self._ways[1][1])
        self._counts = {}
        self._ways = [[0, 0.0], [0, 0.0]]
        return seen, ways
