"""Flows: what a switch is told to do with packets.

A flow says "packets of this category whose code lies in this cell leave by these
ports".  Of all flows that match a packet the one that takes *precedence* decides:
the higher priority, then the more specific (an in-port, more bits).  Controllers give
overlapping flows different priorities (the length of the dz), because a hardware
switch promises nothing about ties; the rest of the order only makes the software
switches and the tests deterministic.

A packet visits every `table` of a switch in turn and leaves by the union of the
decisions.  Ordinary tables have number 0 only; the layout with one table per out port
needs no more than this.  Real switches do not ask the tables of ports where a flow of
table 0 matches; both happen at once only while a plan changes, and that flow names all ports.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

import msgspec

from sievenet.errors import InvalidInput
from sievenet.index import Cell, Dz

__all__ = [
    "MAX_CATEGORY",
    "TOP_PRIORITY",
    "Add",
    "Delete",
    "Flow",
    "FlowChange",
    "FlowKey",
    "Match",
    "Modify",
]


#: Categories are numbered in sixteen bits.
MAX_CATEGORY: Final = 0xFFFF

#: Above the priority of any dz: for flows that hold while a plan changes.
TOP_PRIORITY: Final = 1000


class Match(msgspec.Struct, frozen=True, gc=False):
    """Packets of a category whose code lies in a cell; a cell that is a dz is kept as one, so that equals are equal."""

    category: int
    cell: Dz | Cell

    def __post_init__(self) -> None:
        cell = self.cell
        if not isinstance(cell, Dz) and cell.is_dz:
            msgspec.structs.force_setattr(self, "cell", cell.dz)

    @property
    def bits(self) -> tuple[int, int]:
        """``(value, mask)`` in a field of `CODE_BITS`: a code matches iff ``code & mask == value``."""
        return self.cell.masked

    @property
    def is_prefix(self) -> bool:
        """Whether the cell is a dz."""
        return isinstance(self.cell, Dz)

    def matches(self, category: int, code: int) -> bool:
        """Whether a packet with this (left-aligned) code is meant."""
        if category != self.category:
            return False
        value, mask = self.bits
        return code & mask == value

    def __str__(self) -> str:
        return f"{self.category}:{self.cell}"


class FlowKey(NamedTuple):
    """What makes two flows the same entry of a switch."""

    match: Match
    priority: int
    in_port: int | None
    table: int


class Flow(msgspec.Struct, frozen=True, gc=False):
    """One entry of a flow table."""

    match: Match
    ports: frozenset[int]
    priority: int
    in_port: int | None = None
    table: int = 0

    @classmethod
    def of(cls, category: int, dz: Dz, *ports: int) -> Flow:
        """The ordinary flow of a dz: its length is its priority."""
        return cls(Match(category, dz), frozenset(ports), dz.length)

    @property
    def key(self) -> FlowKey:
        """What identifies it within its switch."""
        return FlowKey(self.match, self.priority, self.in_port, self.table)

    @property
    def precedence(self) -> tuple[int, bool, int, int]:
        """Who decides when several flows of one table match: the greatest.  A total order among those."""
        mask = self.match.bits[1]
        return self.priority, self.in_port is not None, mask.bit_count(), mask

    def matches(self, category: int, code: int, in_port: int | None) -> bool:
        """Whether it speaks about this packet."""
        return (self.in_port is None or self.in_port == in_port) and self.match.matches(category, code)

    def check(self) -> Flow:
        """Itself, or `InvalidInput` if no switch could hold it."""
        if not 0 <= self.match.category <= MAX_CATEGORY:
            raise InvalidInput(expected=f"0..{MAX_CATEGORY}", got=self.match.category, where="flow.category")
        if not 0 <= self.priority <= 0xFFFF:
            raise InvalidInput(expected="0..65535", got=self.priority, where="flow.priority")
        if self.in_port is not None and self.in_port < 1:
            raise InvalidInput(expected="a port from 1", got=self.in_port, where="flow.in_port")
        for port in self.ports:
            if port < 1:
                raise InvalidInput(expected="ports from 1", got=port, where="flow.ports")
        return self

    def __str__(self) -> str:
        parts = [f"{self.match} → {','.join(map(str, sorted(self.ports))) or 'drop'}"]
        if self.priority != self.match.bits[1].bit_count():
            parts.append(f"priority {self.priority}")
        if self.in_port is not None:
            parts.append(f"in {self.in_port}")
        if self.table:
            parts.append(f"table {self.table}")
        return "  ".join(parts)


class Add(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Install a flow; one with the same key is replaced."""

    flow: Flow

    def __str__(self) -> str:
        return f"+ {self.flow}"


class Modify(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Give an installed flow these ports; its counters go on."""

    flow: Flow

    def __str__(self) -> str:
        return f"~ {self.flow}"


class Delete(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Remove the flow with this flow's key; nothing happens if there is none."""

    flow: Flow

    def __str__(self) -> str:
        return f"- {self.flow}"


FlowChange: TypeAlias = Add | Modify | Delete
