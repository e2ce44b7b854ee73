"""PortRegistrations: one table per out port, for dz and for cells with masks.

Cells cross.  In one table the entry that wins would have to name the ports of every other entry that meets it, which
takes an entry for each of very many intersections.  With a table per out port (`output:p`, then the next table) an
entry speaks for its port alone, so it does not matter which of several wins, and nothing has to be united:

    table 1  1*0* → 1     ***1 → 1          an event 1001 meets both: once out of port 1, either way
    table 3  1*** → 3                       and out of port 3

**Definition.**  The table of port p holds every cell c that somebody behind p wants and of which somebody before p
offers a part, unless a cell that holds all of c is there too.  In wires (`routes`), over all switches at once, with
W(c) those who want just c and A(c) those who offer a cell that meets c:

    P(c) = to(W(c)) & frm(A(c))                    where c is registered
    E(c) = P(c) less P(d) of every d that covers c where it is an entry

The whole of c is an entry, not only what is offered of it.  A packet in c that reaches the switch by another port comes
from somebody before p, who offers it; so both say the same, and one entry does where each advertised cell would need
one of its own.

**Change.**  `changes` gives two steps: entries that come, then entries that go.  In between both are there, so whatever
either table delivers is delivered, in whatever order the switches carry it out.

**Cost.**  Which cells meet, cover or lie in another is asked of `Bitmaps`: some microseconds.  A request asks once per
cell of it, and once for every cell below it that shares wires with it.  The rest is a few operations on integers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from sievenet.control.registrations.changes import Changes
from sievenet.control.routes import Routes, Wires, bits
from sievenet.index import Cell
from sievenet.index.bitmaps import Bitmaps
from sievenet.network import Add, Delete, Flow, FlowChange, Match

__all__ = ["PortRegistrations"]


class _Known:
    """One cell that somebody wants or offers."""

    __slots__ = ("bits", "match", "number", "told", "wanted", "ways", "wires")

    def __init__(self, match: Match, number: int) -> None:
        self.match = match
        self.bits = match.bits
        self.number = number
        #: How often each wire is registered.
        self.wires: dict[int, int] = {}
        #: If it is offered, the ways from those who do; if it is wanted, the ways from those who offer a part of it.
        self.ways = 0
        #: P(c), as far as it is known.
        self.wanted = 0
        #: E(c), as the switches have been told.
        self.told = 0


class _Found(NamedTuple):
    """Changes, as they are found."""

    first: dict[str, list[FlowChange]]
    second: dict[str, list[FlowChange]]
    between: dict[str, list[Flow]]


class PortRegistrations:
    """The registrations of one category's cells on one spanning tree, for tables per out port."""

    def __init__(self, category: int, wires: Wires, routes: Routes) -> None:
        self.category = category
        self.routes = routes
        #: They are never handed out to configurators.
        self.away = False
        #: Registered cells, counted with multiplicity.
        self.count = 0
        self._wires = wires
        self._dead = 0
        self._wants: dict[int, _Known] = {}
        self._offers: dict[int, _Known] = {}
        self._wanted: list[_Known | None] = []
        self._offered: list[_Known | None] = []
        #: Which cells are wanted, and which offered.
        self._below = Bitmaps("covers", "inside", "meets")
        self._above = Bitmaps("meets")
        #: Keys of cells registered anew, or not any more, or by others, since the last changes.
        self._fresh_wants: set[int] = set()
        self._fresh_offers: set[int] = set()
        #: The cells that each switch has entries for.
        self._at: dict[str, dict[int, _Known]] = {}

    def nodes(self) -> int:
        """How many cells there are."""
        return len(self._wants) + len(self._offers)

    # -- registering -----------------------------------------------------------------------

    def want(self, wire: int, keys: Iterable[int]) -> None:
        """Somebody behind the wire wants these cells."""
        for key in keys:
            known = self._wants.get(key) or self._learn(key, self._wants, self._wanted, self._below)
            known.wires[wire] = known.wires.get(wire, 0) + 1
            self._fresh_wants.add(key)
            self.count += 1

    def unwant(self, wire: int, keys: Iterable[int]) -> None:
        """The opposite of `want`."""
        for key in keys:
            _less(self._wants[key], wire)
            self._fresh_wants.add(key)
            self.count -= 1

    def offer(self, wire: int, keys: Iterable[int]) -> None:
        """Somebody behind the wire will publish in these cells."""
        for key in keys:
            known = self._offers.get(key) or self._learn(key, self._offers, self._offered, self._above)
            known.wires[wire] = known.wires.get(wire, 0) + 1
            self._fresh_offers.add(key)
            self.count += 1

    def withdraw(self, wire: int, keys: Iterable[int]) -> None:
        """The opposite of `offer`."""
        for key in keys:
            _less(self._offers[key], wire)
            self._fresh_offers.add(key)
            self.count -= 1

    def reroute(self, routes: Routes, dead: int = 0) -> None:
        """Use another tree.  `dead` are wires that carry nothing any more."""
        self.routes = routes
        self._dead |= dead
        self._fresh_wants.update(self._wants)
        self._fresh_offers.update(self._offers)

    def _learn(self, key: int, by_key: dict[int, _Known], by_number: list[_Known | None], index: Bitmaps) -> _Known:
        match = Match(self.category, Cell.of_key(key))
        number = index.put(*match.bits)
        known = by_key[key] = _Known(match, number)
        if number == len(by_number):
            by_number.append(known)
        else:
            by_number[number] = known
        return known

    # -- tables ----------------------------------------------------------------------------

    def changes(self, _apart: Collection[str] = ()) -> Changes:
        """What the switches must be told since the last time, in two steps; the same for all switches."""
        found, used = _Found({}, {}, {}), 0
        dead, self._dead = self._dead, 0
        for known in self._concerned():
            now = known.wanted
            for number in self._below.related("covers", *known.bits) if now else ():
                above = self._wanted[number]
                if above is not None and above.bits != known.bits:
                    now &= ~above.wanted
            used |= known.wanted
            if now != known.told:
                self._tell(known, now, dead, found)
        return Changes(dict(found.first), dict(found.second), dict(found.between), used)

    def table(self, switch: str) -> list[Flow]:
        """The flows that a switch should have, as of the last `changes`."""
        out = self._wires.out[switch]
        return [flow for known in self._at.get(switch, {}).values() for flow in self._flows(known, known.told & out)]

    def used(self) -> int:
        """Every wire that some flow uses, as of the last `changes`."""
        used = 0
        for here in self._at.values():
            for known in here.values():
                used |= known.told
        return used

    def _concerned(self) -> list[_Known]:
        """Bring P up to date; the cells whose entries may be others now."""
        stale = self._stale()
        touched = {known.number: known for known in (self._wants[key] for key in self._fresh_wants)}
        touched.update((number, known) for number in stale if (known := self._wanted[number]) is not None)
        to, concerned = self.routes.to, {}
        for number, known in touched.items():
            if number in stale or not known.ways:
                known.ways = 0
                for offered in self._above.related("meets", *known.bits):
                    above = self._offered[offered]
                    known.ways |= above.ways if above is not None else 0
            before, after = known.wanted, 0
            for wire in known.wires:
                after |= to[wire]
            known.wanted = after = after & known.ways
            if before != after:
                concerned[number] = known
                for below in self._below.related("inside", *known.bits):
                    other = self._wanted[below]
                    if other is not None and other.wanted & (before ^ after):
                        concerned[below] = other
        _forget(self._fresh_wants, self._wants, self._wanted, self._below)
        return list(concerned.values())

    def _stale(self) -> set[int]:
        """Bring the ways from those who offer up to date; the wanted cells for which they may be others now."""
        stale: set[int] = set()
        for key in self._fresh_offers:
            known = self._offers[key]
            before, known.ways = known.ways, 0
            for wire in known.wires:
                known.ways |= self.routes.frm[wire]
            if before != known.ways:
                stale.update(self._below.related("meets", *known.bits))
        _forget(self._fresh_offers, self._offers, self._offered, self._above)
        return stale

    def _tell(self, known: _Known, now: int, dead: int, found: _Found) -> None:
        """The entries of one cell are now at these wires."""
        was, known.told = known.told, now
        for switch in self._wires.switches(was | now):
            out = self._wires.out[switch]
            found.first.setdefault(switch, []).extend(map(Add, self._flows(known, now & ~was & out)))
            found.first[switch] += map(Delete, self._flows(known, was & ~now & dead & out))
            gone = self._flows(known, was & ~now & ~dead & out)
            if not found.first[switch]:
                del found.first[switch]
            if gone:
                found.second.setdefault(switch, []).extend(map(Delete, gone))
                found.between.setdefault(switch, []).extend(gone)
            if now & out:
                self._at.setdefault(switch, {})[id(known)] = known
            else:
                self._at.get(switch, {}).pop(id(known), None)

    def _flows(self, known: _Known, mask: int) -> list[Flow]:
        priority = known.bits[1].bit_count()
        ports = [self._wires.port[wire] for wire in bits(mask)]
        return [Flow(known.match, frozenset((port,)), priority, table=port) for port in ports]


def _less(known: _Known, wire: int) -> None:
    known.wires[wire] -= 1
    if not known.wires[wire]:
        del known.wires[wire]


def _forget(fresh: set[int], by_key: dict[int, _Known], by_number: list[_Known | None], index: Bitmaps) -> None:
    """Of the cells that changed, forget those that nobody has any more."""
    for key in fresh:
        known = by_key[key]
        if not known.wires:
            index.remove(known.number)
            by_number[known.number] = None
            del by_key[key]
    fresh.clear()
