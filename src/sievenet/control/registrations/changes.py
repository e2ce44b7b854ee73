"""Changes: what to tell the switches, in two steps.  Their order is explained in `registrations`.

A request concerns some dozens of flows, and most of what it costs would be to make a value of each in Python, one by
one.  So what a walk found is written into columns of numbers, switch by switch, by compiled code (`columns`).  Each
switch gets a part of them, and flows come into being when somebody looks into one, in a few calls for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from itertools import repeat
from operator import attrgetter
from typing import Final, Generic, NamedTuple, TypeVar, overload

import msgspec
import numpy as np
import numpy.typing as npt

from sievenet.index import CODE_BITS, Dz
from sievenet.index.code import joined
from sievenet.network import Add, Delete, Flow, FlowChange, Match, Modify

__all__ = ["HEAD", "Changes", "Columns", "Entries", "changes_in"]

T = TypeVar("T")
_Words = npt.NDArray[np.uint64]
_Numbers = npt.NDArray[np.uint32]

#: Numbers at the beginning of columns.
HEAD: Final = 7
#: What is made of a flow, by what its row says.
_CHANGES: Final = (Delete, Add, Modify, Delete)
_NOWHERE: Final = np.zeros((0, 3), np.uint64)


class Columns(NamedTuple):
    """Rows of changes (`columns`)."""

    #: The names of switches, by number.
    names: Sequence[str]
    #: All dz concerned: the words of a key, left-aligned, and its length.
    places: _Words
    numbers: _Numbers


class Entries(Sequence[FlowChange]):
    """What changes at a switch that makes a table of its own of it (`deployment`): flows are made if somebody looks."""

    __slots__ = ("_step", "end", "start")

    def __init__(self, step: _Step, start: int, end: int) -> None:
        self._step = step
        #: Which rows of the step these are.
        self.start, self.end = start, end

    @property
    def places(self) -> list[list[int]]:
        """All dz concerned."""
        return self._step.tables.listed

    @property
    def rows(self) -> list[tuple[int, frozenset[int] | None]]:
        """A number among them, and the ports, or None for an entry that goes."""
        sets = self._step.tables.sets
        rows = zip(*(self._step.column(i, self.start, self.end) for i in range(3)), strict=True)
        return [(place, None if _CHANGES[what] is Delete else sets[some]) for what, place, some in rows]

    def __len__(self) -> int:
        return self.end - self.start

    def __iter__(self) -> Iterator[FlowChange]:
        return map(self._change, self.rows)

    @overload
    def __getitem__(self, at: int) -> FlowChange: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[FlowChange]: ...

    def __getitem__(self, at: int | slice) -> FlowChange | Sequence[FlowChange]:
        if isinstance(at, slice):
            return list(self)[at]
        return self._change(self.rows[at])

    def _change(self, row: tuple[int, frozenset[int] | None]) -> FlowChange:
        place, ports = row
        hi, lo, length = self.places[place]
        dz = Dz(joined(hi, lo) >> (CODE_BITS - length), length)
        flow = Flow(Match(self._step.tables.category, dz), ports or frozenset(), dz.length)
        return Delete(flow) if ports is None else Add(flow)


class Changes(msgspec.Struct):
    """What to tell the switches: everything of `first` before anything of `second`."""

    #: What adds delivery.
    first: dict[str, Sequence[FlowChange]] = {}
    #: What takes away what nobody needs any more.
    second: dict[str, Sequence[FlowChange]] = {}
    #: The flows that `second` will change or delete, as they are until then.
    between: dict[str, Sequence[Flow]] = {}
    #: Every wire in use where anything changed.
    used: int = 0
    #: What all this says, where somebody makes tables of their own of it.
    columns: Columns | None = None

    def __bool__(self) -> bool:
        return bool(self.first or self.second)


class _Tables:
    """The dz and the sets of ports that rows speak of: each is made once for all switches."""

    def __init__(self, category: int, keys: _Words, numbers: _Numbers, places: _Words) -> None:
        self.category, self.keys, self.numbers = category, keys, numbers
        #: The same dz left-aligned, with their lengths, if somebody makes tables of their own of them.
        self.places = places

    @cached_property
    def listed(self) -> list[list[int]]:
        """Those."""
        found: list[list[int]] = self.places.tolist()
        return found

    @cached_property
    def _dz(self) -> list[Dz]:
        return Dz.of_keys([high << 64 | low for high, low in zip(*self.keys.tolist(), strict=True)])

    @cached_property
    def matches(self) -> list[Match]:
        """The dz, as flows match them."""
        return list(map(Match, repeat(self.category), self._dz))

    @cached_property
    def lengths(self) -> list[int]:
        """The lengths of the dz, which are priorities."""
        return [dz.length for dz in self._dz]

    @cached_property
    def sets(self) -> list[frozenset[int]]:
        """The sets of ports."""
        sets, ports = self.numbers[1:3].tolist()
        begin = HEAD + sets
        ends, every = self.numbers[HEAD:begin].tolist(), self.numbers[begin : begin + ports].tolist()
        return [frozenset(every[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


class _Step:
    """The rows of a step: what to do, the dz, the ports, and in the second the ports until then."""

    def __init__(self, tables: _Tables, at: int, count: int) -> None:
        self.tables, self._at, self._count = tables, at, count

    def column(self, number: int, start: int = 0, end: int | None = None) -> list[int]:
        """One of its columns, or a part of it."""
        at = self._at + number * self._count
        found: list[int] = self.tables.numbers[at + start : at + (self._count if end is None else end)].tolist()
        return found

    def _flows(self, column: int) -> Iterator[Flow]:
        tables, places = self.tables, self.column(1)
        ports = map(tables.sets.__getitem__, self.column(column))
        return map(Flow, map(tables.matches.__getitem__, places), ports, map(tables.lengths.__getitem__, places))

    @cached_property
    def changes(self) -> list[FlowChange]:
        """What switches are told."""
        return [_CHANGES[what](flow) for what, flow in zip(self.column(0), self._flows(2), strict=True)]

    @cached_property
    def until(self) -> list[Flow]:
        """The flows of the second step as they are until then."""
        return list(self._flows(3))


class _Part(Sequence[T], Generic[T]):
    """What concerns one switch."""

    __slots__ = ("_end", "_of", "_start", "_step")

    def __init__(self, step: _Step, of: Callable[[_Step], list[T]], start: int, end: int) -> None:
        self._step, self._of, self._start, self._end = step, of, start, end

    def _found(self) -> list[T]:
        return self._of(self._step)[self._start : self._end]

    def __len__(self) -> int:
        return self._end - self._start

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[T]: ...
    def __getitem__(self, at: int | slice) -> T | Sequence[T]:
        return self._found()[at]

    def __iter__(self) -> Iterator[T]:
        return iter(self._found())


_changes: Final[Callable[[_Step], list[FlowChange]]] = attrgetter("changes")
_until: Final[Callable[[_Step], list[Flow]]] = attrgetter("until")


def changes_in(
    category: int,
    names: Sequence[str],
    keys: _Words,
    numbers: _Numbers,
    used: int,
    apart: Collection[str] = (),
    places: _Words = _NOWHERE,
) -> Changes:
    """What columns say.  Switches that are `apart` have `Entries` of the `places`, and nothing in between."""
    _, sets, ports, firstly, rows, secondly, more = numbers[:HEAD].tolist()
    tables = _Tables(category, keys, numbers, places)
    at = HEAD + sets + ports
    first = _Step(tables, at + 2 * firstly, rows)
    found = Changes({}, {}, {}, used, Columns(names, places, numbers) if apart else None)
    for name, *part in _shares(numbers, names, at, firstly):
        found.first[name] = Entries(first, *part) if name in apart else _Part(first, _changes, *part)
    at += 2 * firstly + 3 * rows
    second = _Step(tables, at + 2 * secondly, more)
    for name, *part in _shares(numbers, names, at, secondly):
        if name in apart:
            found.second[name] = Entries(second, *part)
        else:
            found.second[name] = _Part(second, _changes, *part)
            found.between[name] = _Part(second, _until, *part)
    return found


def _shares(numbers: _Numbers, names: Sequence[str], at: int, count: int) -> Iterator[tuple[str, int, int]]:
    """The switches of a step, and which rows are theirs."""
    switches, ends = numbers[at : at + 2 * count].reshape(2, count).tolist()
    return zip(map(names.__getitem__, switches), [0, *ends], ends, strict=False)
