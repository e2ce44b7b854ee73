"""A sweep: all tables of a lane follow a change of their ideal tables, in one compiled call.

What comes out is rows of numbers for all switches together.  Flows are made of them when somebody looks, those of all
switches at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import repeat
from typing import Any, Final, TypeVar, overload

import numpy as np
import numpy.typing as npt

from sievenet.control.deployment.deployment import Deployment, kernels
from sievenet.control.deployment.keys import Ports
from sievenet.control.deployment.passage import UMBRELLA
from sievenet.control.deployment.sets import PortSets
from sievenet.control.deployment.tree.layout import OPEN
from sievenet.control.registrations.changes import Entries
from sievenet.index import CODE_BITS, Dz
from sievenet.network import Add, Delete, Flow, FlowChange, Match, Modify

__all__ = ["Told", "changes_of", "slack", "sweep"]

#: By the number of what is to be done (`tree.layout`); umbrellas are opened and closed.
_CHANGES: Final[tuple[Callable[[Flow], FlowChange], ...]] = (Add, Modify, Delete, Add, Delete)


#: Entries of a table in which one more or less is little.
_SMALL: Final = 8
#: Which of the terms of a sweep the limits are.
_LIMITS: Final = 1

_Limit = TypeVar("_Limit", int, npt.NDArray[np.int64])


def slack(limit: _Limit) -> _Limit:
    """Entries that a merge may leave unused: what comes next takes them, and to undo merges takes long.

    None in a small table, where each counts and little is to be looked at.
    """
    return (limit >= _SMALL) * (1 + limit // 32)


def sweep(
    category: int, tables: Sequence[Deployment], changes: Sequence[Entries], limits: Sequence[int], *, least: bool
) -> tuple[list[list[int]], Told]:
    """The ideal tables change by rows of one step of changes; each is merged at once where it exceeds its limit.

    Of each: whether entries had to be merged; whether so many became one that some can be undone (nothing is told
    then); the most entries on the way; how many there are now; and where what it is told begins and ends, in what all
    are told.
    """
    places, numbers = changes[0].columns
    for _ in range(2):
        board, terms = _board(tables, changes, limits)
        lacking, found, rows, masks = kernels().sweep(places, numbers, board, terms, slack(terms[_LIMITS]), least)
        if not len(lacking):
            break
        for i in np.flatnonzero(lacking).tolist():
            sets = [ports for _, ports in changes[i].rows if ports is not None]
            tables[i].prepare(len(changes[i]), frozenset[int]().union(*sets))
    else:
        raise RuntimeError(f"expected room for a step of changes once it is made, got none in {len(lacking)} tables")
    outcomes: list[list[int]] = found[:, :6].tolist()
    return outcomes, Told(category, rows, masks, [each.sets for each in tables], found[:, 4:7])


def _board(tables: Sequence[Deployment], changes: Sequence[Entries], limits: Sequence[int]) -> tuple[Any, Any]:
    where = np.frombuffer(b"".join([each.where for each in tables]), np.int64).reshape(len(tables), -1)
    terms = [each.told for each in tables]
    terms += limits
    terms += [each.start for each in changes]
    terms += [each.end for each in changes]
    return where, np.array(terms, np.int64).reshape(4, -1)


def changes_of(category: int, rows: Any, sets: Sequence[Ports]) -> list[FlowChange]:
    """What rows say (`tree.differences`)."""
    whats, his, los, lengths = rows.T.tolist()
    priorities = np.where(rows[:, 0] >= OPEN, UMBRELLA, rows[:, 3]).tolist()
    flows = map(Flow, map(_match, repeat(category), his, los, lengths), sets, priorities)
    return [_CHANGES[what](flow) for what, flow in zip(whats, flows, strict=True)]


@lru_cache(1 << 14)  # one change of the ideal tables is a change at many switches
def _match(category: int, hi: int, lo: int, length: int) -> Match:
    return Match(category, Dz((hi << 64 | lo) >> CODE_BITS - length, length))


class Told:
    """What the switches of a sweep are told: rows and sets of all of them."""

    def __init__(self, category: int, rows: Any, masks: Any, known: Sequence[PortSets], parts: Any) -> None:
        self._category, self._rows, self._masks = category, rows, masks
        #: Of each which bit is which port; where its rows begin and end, and where the words of its sets end.
        self._known, self._parts = known, parts

    def part(self, start: int, end: int) -> Sequence[FlowChange]:
        """What one switch is told."""
        return _Part(self, start, end)

    @cached_property
    def changes(self) -> list[FlowChange]:
        """What all switches are told."""
        data, sets, at = self._masks.tobytes(), list[Ports](), 0
        for known, (start, end, words) in zip(self._known, self._parts.tolist(), strict=True):
            if end > start:
                size = (8 * words - at) // (end - start)
                sets += [known.ports(data[i : i + size]) for i in range(at, 8 * words, size)]
                at = 8 * words
        return changes_of(self._category, self._rows, sets)


class _Part(Sequence[FlowChange]):
    """What one switch is told; flows are made when somebody wants them."""

    __slots__ = ("_batch", "_end", "_start")

    def __init__(self, batch: Told, start: int, end: int) -> None:
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
