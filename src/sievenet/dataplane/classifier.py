"""Looking up one packet in a table that changes all the time.

A packet matches a flow iff ``code & mask == value``.  Flows with the same mask and the
same priority go into one hash table keyed by value, as in Open vSwitch's classifier
("tuple space search"):

    priority 5  mask 11111…   {10110…: flow, 00101…: flow}
    priority 3  mask 11100…   {101…: flow}
    priority 0  mask 000…     {0: flow}

Lookup tries the hash tables from the highest precedence down and stops at the first hit,
so it costs one probe per *distinct* (priority, mask), a few dozen at most with dz, however
many flows there are.  Adding or removing a flow touches one hash table, which is what a
control plane that changes thousands of flows a second needs.  `compiled` is the other
half: slower to make, faster to use, for whole batches.

With cells there are as many masks as there are shapes of cells, thousands perhaps.  Whoever knows already which
cells hold the code (`signatures`) asks `decide`, which looks at those alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sievenet.index import CODE_BITS
from sievenet.network.flow import Flow

__all__ = ["Classifier", "Entry", "cell_key"]

_END: Final = 1 << CODE_BITS


def cell_key(value: int, mask: int) -> bytes:
    """A cell as bytes, which remember their hash."""
    return (value << CODE_BITS | mask).to_bytes(CODE_BITS // 4, "big")


class Entry:
    """An installed flow and its counters."""

    __slots__ = ("bytes", "end", "flow", "packets", "precedence", "start", "table")

    def __init__(self, flow: Flow, value: int, mask: int, precedence: tuple[int, bool, int, int]) -> None:
        self.flow = flow
        #: The interval of its codes, if it is a prefix: [start, end).
        self.start: Final = value
        self.end: Final = value + (_END - mask)
        self.precedence: Final = precedence
        self.table: Final = flow.table
        self.packets = 0
        self.bytes = 0


class _Group:
    """The flows of one table, in-port, priority and mask, by value (less the trailing bits that the mask ignores)."""

    __slots__ = ("by_value", "in_port", "mask", "precedence", "rank", "shift", "table")

    def __init__(self, flow: Flow, mask: int) -> None:
        self.table: Final = flow.table
        self.in_port: Final = flow.in_port
        self.shift: Final = (mask & -mask).bit_length() - 1 if mask else CODE_BITS
        #: The mask of what remains after shifting; shorter numbers hash and compare faster.
        self.mask: Final = mask >> self.shift
        # The tables one after the other, within each the highest precedence first.
        self.precedence: Final = flow.precedence
        self.rank: Final = (flow.table, *(-int(part) for part in self.precedence), flow.in_port or 0)
        self.by_value: Final[dict[int, Entry]] = {}


class Classifier:
    """The flows of one category."""

    __slots__ = ("_by_cell", "_groups", "_order", "_prefixes", "in_ports", "irregular", "size")

    def __init__(self) -> None:
        self._groups: dict[tuple[int, int | None, int, int], _Group] = {}
        #: The groups in the order in which they are tried; None if that has to be found out.
        self._order: list[_Group] | None = None
        #: The same as (shift, hash table), for the usual case: one table, prefixes, no in-ports.
        self._prefixes: list[tuple[int, dict[int, Entry]]] | None = None
        #: The entries of each cell, of all tables and in-ports; None until somebody asks (`decide`).
        self._by_cell: dict[bytes, list[Entry]] | None = None
        self.size = 0
        #: How many flows ask for an in-port; while none does, lookups do not depend on it.
        self.in_ports = 0
        #: How many flows are no prefixes; while none is, the table is a set of intervals.
        self.irregular = 0

    def put(self, flow: Flow) -> None:
        """Add a flow, or give the one with its key new ports."""
        value, mask = flow.match.bits
        key = (flow.table, flow.in_port, flow.priority, mask)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(flow, mask)
            self._order = None
        entry = group.by_value.get(value >> group.shift)
        if entry is not None:
            entry.flow = flow
            return
        entry = group.by_value[value >> group.shift] = Entry(flow, value, mask, group.precedence)
        if self._by_cell is not None:
            self._by_cell.setdefault(cell_key(value, mask), []).append(entry)
        self.size += 1
        self.in_ports += flow.in_port is not None
        self.irregular += not flow.match.is_prefix

    def remove(self, flow: Flow) -> bool:
        """Remove the flow with this one's key; whether there was one."""
        value, mask = flow.match.bits
        key = (flow.table, flow.in_port, flow.priority, mask)
        group = self._groups.get(key)
        entry = None if group is None else group.by_value.pop(value >> group.shift, None)
        if group is None or entry is None:
            return False
        if self._by_cell is not None:
            cell = cell_key(value, mask)
            self._by_cell[cell].remove(entry)
            if not self._by_cell[cell]:
                del self._by_cell[cell]
        if not group.by_value:
            del self._groups[key]
            self._order = None
        self.size -= 1
        self.in_ports -= flow.in_port is not None
        self.irregular -= not flow.match.is_prefix
        return True

    def get(self, flow: Flow) -> Entry | None:
        """The entry with a flow's key."""
        value, mask = flow.match.bits
        group = self._groups.get((flow.table, flow.in_port, flow.priority, mask))
        return None if group is None else group.by_value.get(value >> group.shift)

    def entries(self) -> list[Entry]:
        """All entries, in no particular order."""
        return [entry for group in self._groups.values() for entry in group.by_value.values()]

    def lookup(self, code: int, in_port: int | None) -> tuple[Entry, ...]:
        """The entries that decide a packet, one per table at most."""
        order = self._order
        if order is None:
            order = self._arrange()
        if self._prefixes is not None:
            for shift, by_value in self._prefixes:
                entry = by_value.get(code >> shift)
                if entry is not None:
                    return (entry,)
            return ()
        found: tuple[Entry, ...] = ()
        decided = -1
        for group in order:
            if group.table == decided or (group.in_port is not None and group.in_port != in_port):
                continue
            entry = group.by_value.get(code >> group.shift & group.mask)
            if entry is not None:
                found = (*found, entry)
                decided = group.table
        return found

    def decide(self, cells: Sequence[bytes], in_port: int | None) -> tuple[Entry, ...]:
        """The same for a packet that is in these cells (`cell_key`), and in no others that have flows."""
        if self._by_cell is None:
            self._by_cell = {}
            for entry in self.entries():
                self._by_cell.setdefault(cell_key(*entry.flow.match.bits), []).append(entry)
        best: dict[int, Entry] = {}
        by_cell, picky = self._by_cell, self.in_ports > 0
        for cell in cells:
            for entry in by_cell.get(cell, ()):
                if picky and entry.flow.in_port not in (None, in_port):
                    continue
                table = entry.table
                rival = best.get(table)
                if rival is None or entry.precedence > rival.precedence:
                    best[table] = entry
        return tuple([best[table] for table in sorted(best)] if len(best) > 1 else best.values())

    def _arrange(self) -> list[_Group]:
        order = self._order = sorted(self._groups.values(), key=lambda group: group.rank)
        plain = self.in_ports == 0 and self.irregular == 0 and len({group.table for group in order}) <= 1
        self._prefixes = [(group.shift, group.by_value) for group in order] if plain else None
        return order
