"""Changes in columns of numbers: packed where they are worked out, unpacked only where a switch wants to know.

    answer   places   keys of the dz                  ports, sets    the sets of ports, each once, and their ends
    rows     switches 3, 7, …     ends 2, 5, …        whats    what to do
                                                      places   numbers of dz      sets   numbers of sets

A request concerns some dozens of flows, and most of the work was to make a value of each in Python.  So a walk's arrays
are sorted by switch as they are, and nothing is made of them here.  The dispatcher cuts the columns by switch and hands
them on without a look: a `Packed` is a sequence of changes that is unpacked when somebody looks into it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final, Generic, TypeVar, overload

import numpy as np
import numpy.typing as npt

from sievenet.control.configurators.messages import Answer, Rows
from sievenet.control.registrations.changes import Changes
from sievenet.control.registrations.trie.layout import ADDED, COVERED, GROWN, LESSENED, NOTHING
from sievenet.control.registrations.trie.trie import Walked
from sievenet.control.routes import Wires
from sievenet.errors import CodecError
from sievenet.index import Dz
from sievenet.network import Add, Delete, Flow, FlowChange, Match, Modify

__all__ = ["Packed", "pack", "unpack"]

T = TypeVar("T")
_Array = npt.NDArray[Any]

#: What a row says: a flow as it is, or a change.
_FLOW, _ADD, _MODIFY, _DELETE = range(4)
_CHANGES: Final[dict[int, Callable[[Flow], FlowChange]]] = {_ADD: Add, _MODIFY: Modify, _DELETE: Delete}
#: For what a walk says about the first step: what a row says, and its place among those of its switch.
_FIRST: Final = np.zeros(8, np.uint8)
_RANK: Final = np.zeros(8, np.int64)
for _rank, (_kind, _what) in enumerate(((ADDED, _ADD), (GROWN, _MODIFY), (COVERED, _DELETE))):
    _FIRST[_kind], _RANK[_kind] = _what, _rank
#: Odd numbers, one per word of a mask, for hashing.
_ODD: Final = np.random.default_rng(1).integers(0, 1 << 63, 1 << 12, np.uint64) * np.uint64(2) + np.uint64(1)


# -- packing ---------------------------------------------------------------------------------


def pack(partition: int, epoch: int, serial: int, wires: Wires, found: Walked | None) -> Answer:
    """What a walk found, in the order that `changes_of` explains."""
    if found is None or not len(found.rows):
        used = b"" if found is None else _signless(found.used)
        return Answer(partition, epoch, serial, b"", b"", b"", Rows(), Rows(), Rows(), used)
    rows = found.rows.astype(np.int64)
    place, switch, now, then = rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3]
    size = found.masks.shape[1] // 2
    numbers, ports, bounds = _sets(wires, found.masks.reshape(-1, size))
    here, after = numbers[0::2], numbers[1::2]
    begins = np.flatnonzero(now != NOTHING)
    begins = begins[np.argsort(4 * switch[begins] + _RANK[now[begins]], kind="stable")]
    ends = np.flatnonzero(then != NOTHING)
    ends = ends[np.argsort(switch[ends], kind="stable")]
    lessened = then[ends] == LESSENED
    whats = np.where(lessened, _MODIFY, _DELETE).astype(np.uint8)
    return Answer(
        partition,
        epoch,
        serial,
        found.highs.tobytes() + found.lows.tobytes(),
        ports,
        bounds,
        _rows(switch[begins], _FIRST[now[begins]], place[begins], here[begins]),
        _rows(switch[ends], whats, place[ends], np.where(lessened, after[ends], here[ends])),
        _rows(switch[ends], np.zeros(len(ends), np.uint8), place[ends], here[ends]),
        _signless(found.used),
    )


def _signless(mask: int) -> bytes:
    return mask.to_bytes(mask.bit_length() // 8 + 1, "little")


def _sets(wires: Wires, masks: _Array) -> tuple[_Array, bytes, bytes]:
    """The number of each mask among the different ones, their ports in a row, and where those of each end."""
    # The upper half is folded into the lower one: what is multiplied at the top overflows and tells little.
    hashes = ((masks ^ (masks >> np.uint64(32))) * _ODD[: masks.shape[1]]).sum(1, np.uint64)
    _, first, numbers = np.unique(hashes, return_index=True, return_inverse=True)
    if not np.array_equal(masks[first[numbers]], masks):  # two masks with one hash
        _, first, numbers = np.unique(masks, axis=0, return_index=True, return_inverse=True)
        numbers = numbers.reshape(-1)
    width = 64 * masks.shape[1]
    bits = np.flatnonzero(np.unpackbits(masks[first].view(np.uint8).reshape(-1), bitorder="little").view(np.bool_))
    ports = np.array(wires.port, np.uint32)[bits % width]
    ends = np.searchsorted(bits, width * np.arange(1, len(first) + 1))
    return numbers, ports.tobytes(), ends.astype(np.uint32).tobytes()


def _rows(switches: _Array, whats: _Array, places: _Array, sets: _Array) -> Rows:
    """Rows that are sorted by switch."""
    if not len(switches):
        return Rows()
    last = np.flatnonzero(np.append(switches[1:] != switches[:-1], True))
    numbers = (switches[last], last + 1, places, sets)
    whose, ends, places, sets = (each.astype(np.uint32).tobytes() for each in numbers)  # type: ignore[assignment]
    return Rows(whose, ends, whats.tobytes(), places, sets)  # type: ignore[arg-type]


# -- unpacking -------------------------------------------------------------------------------


class _Tables:
    """The dz and the sets of ports of an answer, for all its rows."""

    def __init__(self, category: int, answer: Answer) -> None:
        self.category, self._answer = category, answer

    @cached_property
    def places(self) -> list[Dz]:
        """The dz."""
        data = self._answer.places
        highs, lows = np.frombuffer(data, np.uint64).reshape(2, -1).tolist()
        return [Dz.of_key(high << 64 | low) for high, low in zip(highs, lows, strict=True)]

    @cached_property
    def sets(self) -> list[frozenset[int]]:
        """The sets of ports."""
        ports, ends = (np.frombuffer(each, np.uint32).tolist() for each in (self._answer.ports, self._answer.sets))
        return [frozenset(ports[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


class Packed(Sequence[T], Generic[T]):
    """Flows or changes of flows of one category, unpacked by `of` when somebody looks."""

    __slots__ = ("_end", "_found", "_of", "_rows", "_start", "_tables")

    def __init__(self, tables: _Tables, rows: Rows, start: int, end: int, of: Callable[[int, Flow], T]) -> None:
        self._tables, self._rows, self._start, self._end, self._of = tables, rows, start, end, of
        self._found: list[T] | None = None

    def __len__(self) -> int:
        return self._end - self._start

    def _unpacked(self) -> list[T]:
        if self._found is None:
            tables, rows, start, count = self._tables, self._rows, self._start, len(self)
            places, sets = (
                np.frombuffer(each, np.uint32, count, 4 * start).tolist() for each in (rows.places, rows.sets)
            )
            category, of = tables.category, self._of
            found = []
            try:
                for what, place, some in zip(rows.whats[start : self._end], places, sets, strict=True):
                    dz = tables.places[place]
                    found.append(of(what, Flow(Match(category, dz), tables.sets[some], dz.length)))
            except (IndexError, KeyError) as error:
                raise CodecError(expected="rows of an answer", got=str(error), where="configurator") from None
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
    if len(answer.places) % 16 or len(answer.sets) % 4 or not _bounds(answer.sets, answer.ports):
        raise CodecError(expected="dz and sets of ports", got="something else", where="configurator")
    tables = _Tables(category, answer)

    def found(rows: Rows, of: Callable[[int, Flow], T]) -> dict[str, Sequence[T]]:
        count = len(rows.whats)
        _check(rows, count, len(answer.places) // 16, len(answer.sets) // 4)
        switches, ends = (np.frombuffer(each, np.uint32).tolist() for each in (rows.switches, rows.ends))
        shares: dict[str, Sequence[T]] = {}
        start = 0
        for switch, end in zip(switches, ends, strict=True):
            if switch >= len(names) or not start < end <= count:
                raise CodecError(expected=f"one of {len(names)} switches", got=switch, where="configurator")
            shares[names[switch]] = Packed(tables, rows, start, end, of)
            start = end
        return shares

    used = int.from_bytes(answer.used, "little")
    return Changes(found(answer.first, _change), found(answer.second, _change), found(answer.between, _flow), used)


def _bounds(sets: bytes, ports: bytes) -> bool:
    """Whether the ends of sets ascend to the end of the ports, and no port is 0."""
    ends, some = np.frombuffer(sets, np.uint32), np.frombuffer(ports, np.uint32, len(ports) // 4)
    whole = not len(ports) % 4 and int(ends[-1] if len(ends) else 0) == len(some)
    return whole and bool((ends[1:] >= ends[:-1]).all()) and bool(some.all())


def _check(rows: Rows, count: int, places: int, sets: int) -> None:
    """That columns fit each other, and numbers what they number."""
    sound = len(rows.places) == len(rows.sets) == 4 * count and len(rows.switches) == len(rows.ends)
    sound = sound and not len(rows.ends) % 4 and (not count or max(rows.whats) <= _DELETE)
    for column, most in ((rows.places, places), (rows.sets, sets)):
        sound = sound and (not count or int(np.frombuffer(column, np.uint32).max()) < most)
    if not sound:
        raise CodecError(expected="columns that fit each other", got="others", where="configurator")
