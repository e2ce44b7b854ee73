"""A sweep: all tables of a lane follow a change of their ideal tables, in one compiled call.

What comes out is rows of numbers for all switches together.  Flows are made of them when somebody looks, those of all
switches at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import repeat
from typing import Any, Final, NamedTuple, overload

import numpy as np

from sievenet.control.deployment.deployment import Deployment, kernels
from sievenet.control.deployment.keys import Ports
from sievenet.control.deployment.passage import UMBRELLA
from sievenet.control.deployment.sets import PortSets
from sievenet.control.deployment.tree.layout import OPEN
from sievenet.control.registrations.changes import Entries
from sievenet.index import CODE_BITS, Dz
from sievenet.network import Add, Delete, Flow, FlowChange, Match, Modify

__all__ = ["Outcome", "changes_of", "slack", "sweep"]

#: By the number of what is to be done (`tree.layout`); umbrellas are opened and closed.
_CHANGES: Final[tuple[Callable[[Flow], FlowChange], ...]] = (Add, Modify, Delete, Add, Delete)


def slack(limit: int) -> int:
    """Entries that a merge may leave unused: what comes next takes them, and to undo merges takes long."""
    return 1 + limit // 32


class Outcome(NamedTuple):
    """What came of a table."""

    #: Whether entries had to be merged; and whether so many became one that some can be undone: nothing is told then.
    merged: bool
    too_far: bool
    #: The most entries on the way, and how many there are now.
    most: int
    size: int
    told: Sequence[FlowChange]


def sweep(
    category: int, tables: Sequence[Deployment], changes: Sequence[Entries], limits: Sequence[int], *, least: bool
) -> list[Outcome]:
    """The ideal tables change by rows of one step of changes; each is merged at once where it exceeds its limit."""
    places, numbers = changes[0].columns
    board = _board(tables, changes, limits)
    lacking = kernels().lacking(numbers, board)
    if lacking.any():
        for i in np.flatnonzero(lacking).tolist():
            sets = [ports for _, ports in changes[i].rows if ports is not None]
            tables[i].prepare(len(changes[i]), frozenset[int]().union(*sets))
        board = _board(tables, changes, limits)
    found, rows, masks = kernels().sweep(places, numbers, board, least)
    batch, outcomes = _Batch(category, rows, masks), []
    start = 0
    for table, (merged, too_far, most, size, end, words) in zip(tables, found.tolist(), strict=True):
        if not too_far:
            table.told = size
        batch.parts.append((table.sets, end - start, words))
        outcomes.append(Outcome(bool(merged), bool(too_far), most, size, _Told(batch, start, end)))
        start = end
    return outcomes


def _board(tables: Sequence[Deployment], changes: Sequence[Entries], limits: Sequence[int]) -> Any:
    together = zip(tables, changes, limits, strict=True)
    rows = [(*each.where, each.told, limit, slack(limit), some.start, some.end) for each, some, limit in together]
    return np.array(rows, np.int64)


def changes_of(category: int, rows: Any, sets: Sequence[Ports]) -> list[FlowChange]:
    """What rows say (`tree.differences`)."""
    whats, his, los, lengths = rows.T.tolist()
    priorities = np.where(rows[:, 0] >= OPEN, UMBRELLA, rows[:, 3]).tolist()
    flows = map(Flow, map(_match, repeat(category), his, los, lengths), sets, priorities)
    return [_CHANGES[what](flow) for what, flow in zip(whats, flows, strict=True)]


@lru_cache(1 << 14)  # one change of the ideal tables is a change at many switches
def _match(category: int, hi: int, lo: int, length: int) -> Match:
    return Match(category, Dz((hi << 64 | lo) >> CODE_BITS - length, length))


class _Batch:
    """Rows and sets of all tables of a sweep."""

    def __init__(self, category: int, rows: Any, masks: Any) -> None:
        self._category, self._rows, self._masks = category, rows, masks
        #: Of each table which bit is which port, how many rows there are, and where the words of its sets end.
        self.parts: list[tuple[PortSets, int, int]] = []

    @cached_property
    def changes(self) -> list[FlowChange]:
        """What all switches are told."""
        data, sets, at = self._masks.tobytes(), list[Ports](), 0
        for known, rows, words in self.parts:
            if rows:
                size = (8 * words - at) // rows
                sets += [known.ports(data[i : i + size]) for i in range(at, 8 * words, size)]
                at = 8 * words
        return changes_of(self._category, self._rows, sets)


class _Told(Sequence[FlowChange]):
    """What one switch is told; flows are made when somebody wants them."""

    __slots__ = ("_batch", "_end", "_start")

    def __init__(self, batch: _Batch, start: int, end: int) -> None:
        self._batch, self._start, self._end = batch, start, end

    def __len__(self) -> int:
        return self._end - self._start

    def __iter__(self) -> Iterator[FlowChange]:
        return iter(self._batch.changes[self._start : self._end])

    @overload
    def __getitem__(self, at: int) -> FlowChange: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[FlowChange]: ...
    def __getitem__(self, at: int | slice) -> FlowChange | Sequence[FlowChange]:
        return self._batch.changes[self._start : self._end][at]
