"""Which table of a switch belongs to which out port.

The tables of ports are a chain from `Table.FIRST` on.  An entry in table t and a miss there do the same next: "go on in
t + 1".  So nothing has to be rewritten when the chain grows.  The table behind the last one in use leads to the rest:

    masked ──▶ 3: port 1 ──▶ 4: port 1002 ──▶ 5: nobody's yet ──▶ rest

A table belongs to one port, or events would be lost: an event in the cells of two ports meets one entry per table.
The entries themselves say which port that is, so the next controller can read it from the switch.  A table without
entries is nobody's, unless its first entries are under way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from sievenet.dataplane.openflow.tables import Table

__all__ = ["PortTables"]


class PortTables:
    """The tables of the out ports of one switch."""

    def __init__(self) -> None:
        #: The table of each port.
        self.of: dict[int, int] = {}
        #: The last table that the chain passes before the one that leads to the rest.
        self.end: int = Table.FIRST - 1
        #: The last one that the switch has for ports; 0 if it has too few tables for any.
        self.last = 0
        #: Categories that were led to these tables.
        self.categories: set[int] = set()
        #: Ports with changes under way.
        self._busy: Counter[int] = Counter()

    def limit(self, tables: Iterable[int]) -> None:
        """The switch has these tables."""
        self.last = Table.LAST if Table.REST in set(tables) else 0

    @property
    def size(self) -> int:
        """How many ports can have a table."""
        return self.last - Table.FIRST + 1 if self.last else 0

    def begin(self, ports: Iterable[int]) -> None:
        """Changes in the tables of these ports begin: they stay theirs until `done`."""
        self._busy.update(ports)

    def done(self, ports: Iterable[int]) -> None:
        """They have ended."""
        self._busy.subtract(ports)
        self._busy += Counter()

    def missing(self, ports: Iterable[int]) -> list[int]:
        """Of these ports, those that have no table."""
        return sorted(set(ports) - self.of.keys())

    def release(self, empty: Iterable[int]) -> None:
        """These tables have no entries: they are nobody's, but for those with changes under way."""
        gone = set(empty)
        self.of = {port: table for port, table in self.of.items() if table not in gone or self._busy[port]}

    def take(self, ports: Iterable[int]) -> bool:
        """Give tables to ports without; False, and nothing, if there are too few."""
        wanted, taken = self.missing(ports), set(self.of.values())
        free = [table for table in range(Table.FIRST, self.last + 1) if table not in taken]
        if len(free) < len(wanted):
            return False
        self.of.update(zip(wanted, free, strict=False))
        return True

    def learn(self, found: Mapping[int, int]) -> None:
        """The switch holds entries of these ports in these tables, table → port, and no others."""
        kept = {port: table for port, table in self.of.items() if self._busy[port]}
        taken = set(kept.values())
        self.of = {port: table for table, port in found.items() if table not in taken} | kept

    def grow(self) -> list[tuple[int, int]]:
        """Misses that the switch has to be told, (table, next table), the later tables first: none leads nowhere."""
        end = max(self.of.values(), default=Table.FIRST - 1)
        if end <= self.end:
            return []
        before, self.end = self.end, end
        return [(table, onward(table, end)) for table in range(min(end + 1, self.last), before, -1)]

    def chain(self) -> list[tuple[int, int]]:
        """All of them, for a switch that is new."""
        self.end = Table.FIRST - 1
        return self.grow() or [(Table.FIRST, int(Table.REST))]


def onward(table: int, end: int) -> int:
    """Where a packet goes from a table of the chain."""
    return table + 1 if table <= end else int(Table.REST)
