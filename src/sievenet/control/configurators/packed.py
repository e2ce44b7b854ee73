"""Changes in columns of numbers: packed where they are worked out, unpacked only where a switch wants to know.

A request concerns some dozens of flows, and most of the work was to make a value of each in Python.  So a walk's arrays
are written into columns by switch as they are (`columns`), and nothing is made of them here.  The dispatcher cuts the
columns by switch and hands them on without a look: a `Packed` is a sequence of changes that is unpacked when somebody
looks into it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final, Generic, TypeVar, overload

import numpy as np
import numpy.typing as npt

from sievenet.control.configurators.messages import Answer
from sievenet.control.registrations.changes import Changes
from sievenet.control.registrations.trie.layout import Told
from sievenet.control.routes import Wires
from sievenet.errors import CodecError
from sievenet.index import Dz
from sievenet.network import Add, Delete, Flow, FlowChange, Match, Modify

__all__ = ["Packed", "pack", "unpack"]

T = TypeVar("T")
_Numbers = npt.NDArray[np.uint32]

#: By what a row says (`columns`).
_CHANGES: Final[dict[int, Callable[[Flow], FlowChange]]] = {1: Add, 2: Modify, 3: Delete}


def pack(partition: int, epoch: int, serial: int, wires: Wires, found: Told | None) -> Answer:
    """What a walk found, in the order that `changes_of` explains."""
    if found is None:
        return Answer(partition, epoch, serial, b"", b"", b"")
    used = found.used.tobytes()
    if not len(found.rows):
        return Answer(partition, epoch, serial, b"", b"", used)
    from sievenet.control.configurators.columns import written

    keys, rows = written(found.places, found.rows, found.masks, wires.exits, len(wires.names))
    return Answer(partition, epoch, serial, keys.tobytes(), rows.tobytes(), used)


class _Tables:
    """The columns of an answer, and the dz and the sets of ports that its rows speak of."""

    def __init__(self, category: int, places: bytes, numbers: _Numbers, sets: int, ports: int, head: int) -> None:
        self.category, self.numbers = category, numbers
        self._places, self._sets, self._ports, self._head = places, sets, ports, head

    @cached_property
    def places(self) -> list[Dz]:
        """The dz."""
        highs, lows = np.frombuffer(self._places, np.uint64).reshape(2, -1).tolist()
        return [Dz.of_key(high << 64 | low) for high, low in zip(highs, lows, strict=True)]

    @cached_property
    def sets(self) -> list[frozenset[int]]:
        """The sets of ports."""
        begin = self._head + self._sets
        ends, ports = self.numbers[self._head : begin].tolist(), self.numbers[begin : begin + self._ports].tolist()
        return [frozenset(ports[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


class Packed(Sequence[T], Generic[T]):
    """Flows or changes of flows of one category, unpacked by `of` when somebody looks."""

    __slots__ = ("_columns", "_count", "_found", "_of", "_tables")

    def __init__(
        self, tables: _Tables, columns: tuple[int, int, int], count: int, of: Callable[[int, Flow], T]
    ) -> None:
        #: Where its rows begin, of each column: what to do, the dz, the ports.
        self._tables, self._columns, self._count, self._of = tables, columns, count, of
        self._found: list[T] | None = None

    def __len__(self) -> int:
        return self._count

    def _unpacked(self) -> list[T]:
        if self._found is None:
            tables, count, of = self._tables, self._count, self._of
            whats, places, sets = (tables.numbers[start : start + count].tolist() for start in self._columns)
            category, every, ports = tables.category, tables.places, tables.sets
            found = []
            for what, place, some in zip(whats, places, sets, strict=True):
                dz = every[place]
                found.append(of(what, Flow(Match(category, dz), ports[some], dz.length)))
            self._found = found
        return self._found

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[T]: ...
    def __getitem__(self, at: int | slice) -> T | Sequence[T]:
        return self._unpacked()[at]

    def __iter__(self) -> Iterator[T]:
        return iter(self._unpacked())


def _change(what: int, flow: Flow) -> FlowChange:
    return _CHANGES[what](flow)


def _flow(what: int, flow: Flow) -> Flow:
    return flow


def unpack(category: int, names: Sequence[str], answer: Answer) -> Changes:
    """What the switches must be told; `CodecError` if it contradicts itself, or names a switch that nobody knows."""
    used = int.from_bytes(answer.used, "little")
    if not answer.rows:
        return Changes(used=used)
    from sievenet.control.configurators.columns import HEAD, sound

    if len(answer.rows) % 4 or len(answer.places) % 16:
        raise CodecError(expected="whole columns", got="parts of some", where="configurator")
    numbers = np.frombuffer(answer.rows, np.uint32)
    if not sound(numbers, len(answer.places) // 16, len(names)):
        raise CodecError(expected=f"columns that fit each other, of {len(names)} switches", got="others", where="rows")
    _, sets, ports, firstly, rows, secondly, more = numbers[:HEAD].tolist()
    tables = _Tables(category, answer.places, numbers, sets, ports, HEAD)
    at = HEAD + sets + ports
    first: dict[str, Sequence[FlowChange]] = {}
    for name, start, end in _shares(numbers, names, at, firstly):
        here = at + 2 * firstly + start
        first[name] = Packed(tables, (here, here + rows, here + 2 * rows), end - start, _change)
    at += 2 * firstly + 3 * rows
    second: dict[str, Sequence[FlowChange]] = {}
    between: dict[str, Sequence[Flow]] = {}
    for name, start, end in _shares(numbers, names, at, secondly):
        here = at + 2 * secondly + start
        second[name] = Packed(tables, (here, here + more, here + 2 * more), end - start, _change)
        between[name] = Packed(tables, (here, here + more, here + 3 * more), end - start, _flow)
    return Changes(first, second, between, used)


def _shares(numbers: _Numbers, names: Sequence[str], at: int, count: int) -> Iterator[tuple[str, int, int]]:
    """The switches of a step, and which rows are theirs."""
    listed: list[Any] = numbers[at : at + 2 * count].tolist()
    start = 0
    for switch, end in zip(listed[:count], listed[count:], strict=True):
        yield names[switch], start, end
        start = end
