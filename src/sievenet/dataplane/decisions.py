"""Decisions: which flows decide a code, in all switches of a network at once, where flows have masks.

Of the flows that hold a code, the one that takes precedence decides in each table of each switch.  A packet may be in
ten cells, each with flows in several switches; to look them up switch by switch costs more than all the rest of its
way.  Here the flows of a cell are a chain in arrays, and one compiled loop goes over the chains of all cells of a code:

    cell 7 ──▶ flow 12 (s1, table 3) ──▶ flow 40 (s4, table 1)        best of each (switch, table), sorted:
    cell 9 ──▶ flow 31 (s1, table 3)                                  12, 40   if 12 takes precedence over 31

The numbers of the deciding flows are the class of the code.  A flow that is new, or has other ports, gets a number that
was never used before.  So what is remembered by these numbers stays right; it may only never be asked for again.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.dataplane.classifier import Entry
from sievenet.index import CODE_BITS
from sievenet.index.bitmaps import Bitmaps
from sievenet.network.flow import Flow, FlowKey

__all__ = ["Decisions"]

_Ints = npt.NDArray[np.int32]
_LOW: Final = (1 << 64) - 1
_BYTES: Final = CODE_BITS // 8


class Decisions:
    """The flows of one category."""

    def __init__(self, index: Bitmaps) -> None:
        #: Which cells hold a code.
        self._index = index
        #: Of each number: its entry, its switch, and the number of what it does.
        self.entries: list[Entry] = []
        self.switches: list[str] = []
        self._effect: list[int] = []
        #: How many numbers are no flow's any more.
        self.dead = 0
        self._numbers: dict[tuple[str, FlowKey], tuple[int, int]] = {}
        self._tables: dict[tuple[str, int], int] = {}
        self._effects: dict[tuple[str, frozenset[int]], int] = {}
        #: The first flow of each cell, and the next of each flow; -1 for none.
        self._first: _Ints = np.full(64, -1, np.int32)
        self._next: _Ints = np.full(64, -1, np.int32)
        self._table: _Ints = np.zeros(64, np.int32)
        self._rank = np.zeros((64, 3), np.uint64)
        self._best: _Ints = np.full(16, -1, np.int32)
        self._out: _Ints = np.empty(16, np.int32)

    def put(self, switch: str, cell: int, entry: Entry) -> None:
        """A flow of a switch is in this cell from now on, or has other ports."""
        self.remove(switch, entry.flow)
        number = len(self.entries)
        if number == self._next.size:
            self._next, self._table = _doubled(self._next), _doubled(self._table)
            self._rank = np.concatenate((self._rank, np.zeros_like(self._rank)))
        while cell >= self._first.size:
            self._first = _doubled(self._first)
        flow = entry.flow
        table = self._tables.setdefault((switch, flow.table), len(self._tables))
        if table == self._best.size:
            self._best, self._out = _doubled(self._best), np.empty(2 * self._best.size, np.int32)
        priority, by_port, ones, mask = entry.precedence
        self._rank[number] = priority << 32 | by_port << 31 | ones, mask >> 64, mask & _LOW
        self._table[number], self._next[number] = table, self._first[cell]
        self._first[cell] = number
        self._numbers[switch, flow.key] = number, cell
        self.entries.append(entry)
        self.switches.append(switch)
        self._effect.append(self._effects.setdefault((switch, flow.ports), len(self._effects)))

    def remove(self, switch: str, flow: Flow) -> None:
        """A switch has this flow no more, if it had it."""
        known = self._numbers.pop((switch, flow.key), None)
        if known is None:
            return
        number, cell = known
        self.dead += 1
        at = int(self._first[cell])
        if at == number:
            self._first[cell] = self._next[number]
            return
        while int(self._next[at]) != number:
            at = int(self._next[at])
        self._next[at] = self._next[number]

    def decide(self, code: int) -> bytes:
        """The numbers of the flows that decide a code, one per switch and table at most."""
        from sievenet.dataplane.kernels import decide  # loads numba

        kernel: Any = decide
        bits, words, cells = self._index.holders()
        given = np.frombuffer(code.to_bytes(_BYTES, "big"), np.uint8)
        count = kernel(
            *(bits, words, given, cells),
            *(self._first, self._next, self._table, self._rank, self._best, self._out),
        )
        return self._out[:count].tobytes()

    def effects(self, numbers: list[int]) -> tuple[int, ...]:
        """What these flows do, together."""
        return tuple(sorted({self._effect[number] for number in numbers}))


def _doubled(array: _Ints) -> _Ints:
    return np.concatenate((array, np.full_like(array, -1)))
