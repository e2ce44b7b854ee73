"""Changes: what to tell the switches, in two steps.  Their order is explained in `registrations`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from typing import Final, overload

import msgspec

from sievenet.control.registrations.trie import Lookup
from sievenet.control.registrations.trie.layout import ADDED, COVERED, DELETED, GROWN, LESSENED, NOTHING
from sievenet.control.routes import Wires
from sievenet.index import CODE_BITS, Dz
from sievenet.index.code import joined
from sievenet.network import Add, Delete, Flow, FlowChange, Match, Modify

__all__ = ["Changes", "Entries", "changes_of"]

#: What takes an entry away.
_GOING: Final = (COVERED, DELETED)


class Entries(Sequence[FlowChange]):
    """What changes at a switch that makes a table of its own of it (`deployment`): flows are made if somebody looks."""

    def __init__(self, category: int, places: Sequence[Sequence[int]]) -> None:
        self._category = category
        #: All dz concerned: the words of a key, left-aligned, and its length.
        self.places = places
        #: A number among them, and the ports, or None for an entry that goes.
        self.rows: list[tuple[int, frozenset[int] | None]] = []

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[FlowChange]:
        return map(self.__getitem__, range(len(self.rows)))

    @overload
    def __getitem__(self, at: int) -> FlowChange: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[FlowChange]: ...

    def __getitem__(self, at: int | slice) -> FlowChange | Sequence[FlowChange]:
        if isinstance(at, slice):
            return list(self)[at]
        place, ports = self.rows[at]
        dz = _dz(self.places[place])
        flow = Flow(Match(self._category, dz), ports or frozenset(), dz.length)
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

    def __bool__(self) -> bool:
        return bool(self.first or self.second)


def changes_of(category: int, wires: Wires, found: Lookup, apart: Container[str] = ()) -> Changes:
    """What a walk found: additions first, then modifications, then deletions with the shorter dz before the longer.

    Switches that are `apart` have `Entries`, and nothing in between.
    """
    first: defaultdict[str, list[FlowChange]] = defaultdict(list)
    grown: defaultdict[str, list[FlowChange]] = defaultdict(list)
    covered: defaultdict[str, list[FlowChange]] = defaultdict(list)
    second: defaultdict[str, list[FlowChange]] = defaultdict(list)
    between: defaultdict[str, list[Flow]] = defaultdict(list)
    entries: tuple[dict[str, Entries], dict[str, Entries]] = ({}, {})
    places: list[tuple[Match, int] | None] = [None] * len(found.places)
    names, ports, masks, size = wires.names, wires.ports, found.masks, found.size
    at = 0
    for place, number, now, then in found.rows:
        switch, middle, end = names[number], at + size, at + 2 * size
        if switch in apart:
            for step, what, mask in ((0, now, masks[at:middle]), (1, then, masks[middle:end])):
                if what != NOTHING:
                    mine = entries[step].get(switch)
                    if mine is None:
                        mine = entries[step][switch] = Entries(category, found.places)
                    mine.rows.append((place, None if what in _GOING else ports(mask)))
            at = end
            continue
        known = places[place]
        if known is None:
            dz = _dz(found.places[place])
            known = places[place] = Match(category, dz), dz.length
        match, length = known
        flow = Flow(match, ports(masks[at:middle]), length)
        at = end
        if now == ADDED:
            first[switch].append(Add(flow))
        elif now == GROWN:
            grown[switch].append(Modify(flow))
        elif now == COVERED:
            covered[switch].append(Delete(flow))
        if then != NOTHING:
            after = Modify(Flow(match, ports(masks[middle:at]), length)) if then == LESSENED else Delete(flow)
            second[switch].append(after)
            between[switch].append(flow)
    for more in (grown, covered):
        for switch, changes in more.items():
            first[switch] += changes
    return Changes({**first, **entries[0]}, {**second, **entries[1]}, dict(between), found.used)


def _dz(place: Sequence[int]) -> Dz:
    hi, lo, length = place
    return Dz(joined(hi, lo) >> (CODE_BITS - length), length)
