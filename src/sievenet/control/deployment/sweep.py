"""What a sweep tells (`board`): all tables of a lane follow a change of their ideal tables, in one compiled call.

What comes out is rows of numbers for all switches together.  Flows are made of them when somebody looks, those of all
switches at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import repeat
from typing import Any, Final, overload

from sievenet.control.deployment.keys import Ports
from sievenet.control.deployment.passage import UMBRELLA
from sievenet.control.deployment.tree.layout import OPEN
from sievenet.index import Dz
from sievenet.network import Add, Delete, Flow, FlowChange, Match, Modify

__all__ = ["Part", "Told", "changes_of"]

#: By the number of what is to be done (`tree.layout`); umbrellas are opened and closed.
_CHANGES: Final[tuple[Callable[[Flow], FlowChange], ...]] = (Add, Modify, Delete, Add, Delete)


def changes_of(category: int, rows: Any, sets: Iterable[Ports]) -> list[FlowChange]:
    """What rows say (`tree.differences`)."""
    whats, high, low, lengths = rows.T.tolist()
    keys = [hi << 64 | lo for hi, lo in zip(high, low, strict=True)] if any(high) else low
    if whats and max(whats) >= OPEN:
        lengths = [UMBRELLA if what >= OPEN else length for what, length in zip(whats, lengths, strict=True)]
    flows = map(Flow, map(Match, repeat(category), Dz.of_keys(keys)), sets, lengths)
    return [_CHANGES[what](flow) for what, flow in zip(whats, flows, strict=True)]


class Told:
    """What the switches of a sweep are told: rows of all of them, all ports, and where those of each row end."""

    def __init__(self, category: int, rows: Any, ports: Any, ends: Any) -> None:
        self._category, self._rows, self._ports, self._ends = category, rows, ports, ends

    @cached_property
    def changes(self) -> list[FlowChange]:
        """What all switches are told."""
        ports, ends = self._ports.tolist(), self._ends.tolist()
        sets = [frozenset(ports[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
        return changes_of(self._category, self._rows, sets)


class Part(Sequence[FlowChange]):
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
