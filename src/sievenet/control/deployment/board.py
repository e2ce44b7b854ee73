"""Boards: where compiled code finds all tables of a lane, so that one call lets all of them follow a request."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence

import numpy as np

from sievenet.control.deployment.deployment import Deployment, kernels
from sievenet.control.deployment.rooms import Rooms
from sievenet.control.deployment.sweep import Told
from sievenet.control.registrations import Changes
from sievenet.control.registrations.changes import Entries
from sievenet.network import FlowChange

__all__ = ["Board"]


def _needs(entries: Sequence[FlowChange]) -> tuple[int, frozenset[int]]:
    """How many entries, and all their ports: if some are learnt at a time, others may lose their bits for them."""
    assert isinstance(entries, Entries)
    return len(entries), frozenset[int]().union(*(ports for _, ports in entries.rows if ports is not None))


class Board:
    """The tables of a holder by the numbers that switches have.

    A table says in a place of its own where its tree is (`Deployment.place`), and the board says where this place is.
    """

    def __init__(self, rooms: Rooms, who: Hashable, category: int) -> None:
        self._rooms, self._who, self._category = rooms, who, category
        #: The tables, and the row of each in `rooms`.
        self._tables: dict[str, tuple[Deployment, int]] = {}
        #: The names of switches by number, the numbers of those with a table here, and what compiled code gets.
        self._names: Sequence[str] = ()
        self._numbers: dict[str, int] = {}
        self._rows = np.zeros((0, 2), np.int64)

    def put(self, switch: str, table: Deployment) -> None:
        """Have a table follow."""
        self._tables[switch] = table, self._rooms.row(switch)
        self._number()

    def take(self, switch: str) -> None:
        """Have it follow no more."""
        if self._tables.pop(switch, None) is not None:
            self._number()

    def _number(self) -> None:
        numbers = ((name, number) for number, name in enumerate(self._names) if name in self._tables)
        self._numbers = dict(numbers)
        self._rows = np.zeros((len(self._names), 2), np.int64)
        for name, number in self._numbers.items():
            table, row = self._tables[name]
            self._rows[number] = table.place.ctypes.data, row

    def sweep(self, changes: Changes, apart: Collection[str], *, least: bool) -> tuple[list[list[int]], Told] | None:
        """Let tables follow the first step of changes, but those of some switches; None if none can.

        Each is merged at once where it exceeds its limit.  Returns of each switch of the step, in order, what becomes
        of it (`tree.sweep`), the most entries on the way, and where what it is told begins and ends, in what all are.
        """
        columns, first = changes.columns, changes.first
        if columns is None or not first or not self._tables:
            return None
        names, places, numbers = columns
        if names is not self._names or len(names) != len(self._rows):
            self._names = names
            self._number()
        rows = self._rows
        if apart:
            rows = rows.copy()
            rows[[number for name, number in self._numbers.items() if name in apart]] = 0
        rooms, tables = self._rooms, self._tables
        part = rooms.part(self._who)
        for _ in range(len(first) + 1):  # of at least one switch all that was missing is there the next time
            missing, found, *told = kernels().sweep(places, numbers, rows, rooms.tables, part, least)
            if not len(missing):
                break
            switches = [*first]
            for switch in {switches[i] for i in missing[:, 0].tolist()}:
                tables[switch][0].prepare(*_needs(first[switch]))
        else:
            raise RuntimeError(f"expected room for changes once it is made, got none in {len(missing)} places")
        outcomes: list[list[int]] = found.tolist()
        return outcomes, Told(self._category, *told)

    def settle(self, switches: Iterable[str]) -> list[str]:
        """Nothing is under way at switches: each has its table.  Returns those whose table is not here."""
        known, others, numbers = self._numbers, list[str](), list[int]()
        for switch in switches:
            if switch in known:
                numbers.append(known[switch])
            else:
                others.append(switch)
        if numbers:
            part = self._rooms.part(self._who)
            kernels().settled(self._rows, np.array(numbers), self._rooms.tables, part)
        return others
