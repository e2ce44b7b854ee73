"""The filters poset: filters and their immediate covering relations, kept as they come and go.

    x < 100            level 0, the root set: what nobody else covers
     ├── x < 50        level 1
     │    └── x < 20 and y > 5 ──┐          an entry may have several immediate predecessors
     └── y > 3, x < 80 ──────────┘ level 2

*p* is an immediate predecessor of *f* if p covers f and no third filter lies between. Entries are named by whole
numbers; the links are sets of them, so that what does not need a covering test is set arithmetic.

**Searching** (`place`). By default an index of bounds (`bounds`) names what can be related to f at all, and the
covering relations themselves decide most of the rest: from the deepest candidate up, whatever is above an entry that
covers f covers f, and likewise downwards. So as many tests are made as f has immediate relations, and a few more.

With ``index=False`` the search is that of Siena and its kin. Predecessors: down from the roots, only through entries
that cover f. Successors of f are below *each* of its predecessors, so the search walks what is below the one with the
fewest; and an entry that does not even overlap f has nothing below it that f covers (``prune=False`` does not use it).

**Placing without searching** (`immediate`). Given *all* that cover f and all that f covers, the immediate ones follow
without a covering test, because whatever lies strictly between is itself among them:

    ImPred(f) = Pred(f) − ⋃ {ImPred(q) : q ∈ Pred(f)}        ImSucc(f) = Succ(f) − ⋃ {ImSucc(s) : s ∈ Succ(f)}

This is what makes offloading pay: the thesis that proposed it walked layer by layer, at a cost that grew with depth.

**Layers**. An entry's level is the length of the longest chain above it, so each level is an antichain, and an entry is
on one level only. A change moves only entries whose longest chain changed; `on_level` is told of each. Rebuilding the
layers for every batch was the bottleneck that the thesis reports.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from sievenet.content.filter import Filter
from sievenet.errors import InvalidInput
from sievenet.routers.bounds import Bounds

__all__ = ["Entry", "Poset"]

#: Told that an entry moved: its number, the level it had, the level it has; ``None`` for not in the poset.
OnLevel = Callable[[int, int | None, int | None], None]
_NOTHING: Final[Mapping[int, bool]] = {}


@dataclass(slots=True, eq=False)
class Entry:
    """One filter of the poset and its place."""

    id: int
    filter: Filter
    preds: set[int] = field(default_factory=set)
    succs: set[int] = field(default_factory=set)
    #: Interfaces that subscribed with exactly this filter; in insertion order.
    subscribers: dict[Hashable, None] = field(default_factory=dict)
    #: Length of the longest chain above.
    level: int = 0


_level: Final = attrgetter("level")


class Poset:
    """Filters of one schema (or of none), by number, with their immediate relations."""

    def __init__(self, *, index: bool = True, prune: bool = True, on_level: OnLevel | None = None) -> None:
        self.entries: dict[int, Entry] = {}
        self._numbers: dict[Filter, int] = {}
        self._next = 0
        #: Entries that nothing covers; in insertion order.
        self._roots: dict[int, None] = {}
        self._bounds = Bounds() if index else None
        self._prune = prune
        self._on_level = on_level
        #: Covering tests, and entries whose level changed, since the beginning.
        self.tests = 0
        self.moves = 0

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, wanted: object) -> bool:
        return wanted in self._numbers

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries.values())

    def watch(self, on_level: OnLevel | None) -> None:
        """Tell of every change of a level, beginning with what is there."""
        self._on_level = on_level
        if on_level is not None:
            for each in self.entries.values():
                on_level(each.id, None, each.level)

    def get(self, wanted: Filter) -> Entry | None:
        """The entry of an equal filter."""
        number = self._numbers.get(wanted)
        return None if number is None else self.entries[number]

    @property
    def roots(self) -> Collection[int]:
        """The numbers of the entries that no other covers: known at all times."""
        return self._roots.keys()

    def root_filters(self) -> list[Filter]:
        """The smallest set of filters that covers all."""
        return [self.entries[i].filter for i in self._roots]

    # -- subscriptions --------------------------------------------------------------------

    def subscribe(self, wanted: Filter, interface: Hashable, *, eliminate: bool = False) -> Entry | None:
        """Enter a filter for an interface.

        With ``eliminate``, in Siena's manner, an interface that has a covering filter needs no other (then nothing is
        entered and ``None`` returned), and one that gets a covering filter is taken from the filters it covers.
        """
        found = self.get(wanted)
        if found is None:
            preds, succs = self.place(wanted)
            if eliminate and self._served(preds, interface):
                return None
            found = self.link(wanted, preds, succs)
        elif interface in found.subscribers or (eliminate and self._served(found.preds, interface)):
            return found if interface in found.subscribers else None
        found.subscribers[interface] = None
        if eliminate:
            self.withdraw_below(found, interface)
        return found

    def unsubscribe(self, wanted: Filter, interface: Hashable) -> bool:
        """Take an interface from a filter, and the filter out if nobody is left; False if it was not there."""
        found = self.get(wanted)
        if found is None or interface not in found.subscribers:
            return False
        del found.subscribers[interface]
        if not found.subscribers:
            self.remove(found.id)
        return True

    def withdraw(self, covering: Filter, interface: Hashable) -> list[Filter]:
        """Siena's unsubscription: take an interface from every filter that ``covering`` covers."""
        gone = [e for e in self.entries.values() if interface in e.subscribers and self._covers(covering, e.filter)]
        for entry in gone:
            self.unsubscribe(entry.filter, interface)
        return [entry.filter for entry in gone]

    def _served(self, above: Iterable[int], interface: Hashable) -> bool:
        """Whether one of these entries, or one above them, has the interface."""
        entries, seen, waiting = self.entries, set(above), list(above)
        while waiting:
            entry = entries[waiting.pop()]
            if interface in entry.subscribers:
                return True
            fresh = entry.preds - seen
            seen |= fresh
            waiting += fresh
        return False

    def withdraw_below(self, entry: Entry, interface: Hashable) -> None:
        """Take an interface from everything below an entry."""
        for number in self.below(entry.id):
            lower = self.entries[number]
            if interface in lower.subscribers:
                del lower.subscribers[interface]
                if not lower.subscribers:
                    self.remove(number)

    # -- relations ------------------------------------------------------------------------

    def above(self, number: int) -> set[int]:
        """Everything that covers an entry."""
        return self._closure(number, up=True)

    def below(self, number: int) -> set[int]:
        """Everything that an entry covers."""
        return self._closure(number, up=False)

    def _closure(self, number: int, up: bool) -> set[int]:
        entries = self.entries
        seen: set[int] = set()
        waiting = [number]
        while waiting:
            entry = entries[waiting.pop()]
            fresh = (entry.preds if up else entry.succs) - seen
            seen |= fresh
            waiting += fresh
        return seen

    def _covers(self, one: Filter, other: Filter) -> bool:
        self.tests += 1
        return one.covers(other)

    def place(
        self, wanted: Filter, above: Mapping[int, bool] = _NOTHING, below: Mapping[int, bool] = _NOTHING
    ) -> tuple[set[int], set[int]]:
        """The immediate predecessors and successors that a filter would have; it is not there yet.

        ``above`` and ``below`` tell, of some entries, whether they cover it and whether it covers them: what is known
        is not tested.
        """
        if wanted.empty:
            raise InvalidInput(expected="a filter that something matches", got=wanted)
        if self._bounds is not None:
            return self._find_up(wanted, self._bounds, above), self._find_down(wanted, self._bounds, below)
        preds = self._search_up(wanted, above)
        return preds, self._search_down(wanted, preds, below)

    def _find_up(self, wanted: Filter, bounds: Bounds, known: Mapping[int, bool]) -> set[int]:
        """The immediate predecessors among those whose bounds enclose the filter's; the deepest first."""
        entries = self.entries
        held: set[int] = set()
        immediate: set[int] = set()
        for entry in sorted([entries[n] for n in bounds.above(wanted)], key=_level, reverse=True):
            if not held.isdisjoint(entry.succs):
                held.add(entry.id)
            elif self._known(known, entry.id, entry.filter, wanted):
                held.add(entry.id)
                immediate.add(entry.id)
        return immediate

    def _find_down(self, wanted: Filter, bounds: Bounds, known: Mapping[int, bool]) -> set[int]:
        """The immediate successors among those whose bounds the filter's enclose; the highest first."""
        entries = self.entries
        held: set[int] = set()
        immediate: set[int] = set()
        for entry in sorted([entries[n] for n in bounds.below(wanted)], key=_level):
            if not held.isdisjoint(entry.preds):
                held.add(entry.id)
            elif self._known(known, entry.id, wanted, entry.filter):
                held.add(entry.id)
                immediate.add(entry.id)
        return immediate

    def _known(self, known: Mapping[int, bool], number: int, one: Filter, other: Filter) -> bool:
        found = known.get(number)
        return self._covers(one, other) if found is None else found

    def _search_up(self, wanted: Filter, known: Mapping[int, bool]) -> set[int]:
        entries = self.entries
        seen = set(self._roots)
        waiting = list(self._roots)
        covering: list[int] = []
        while waiting:
            number = waiting.pop()
            entry = entries[number]
            inside = known.get(number)
            if inside is None:
                inside = self._covers(entry.filter, wanted)
            if inside:
                covering.append(number)
                fresh = entry.succs - seen
                seen |= fresh
                waiting += fresh
        held = set(covering)
        return {number for number in covering if entries[number].succs.isdisjoint(held)}

    def _search_down(self, wanted: Filter, preds: set[int], known: Mapping[int, bool]) -> set[int]:
        entries = self.entries
        if preds:
            start: Iterable[int] = entries[min(preds, key=lambda p: len(entries[p].succs))].succs
        else:
            start = self._roots
        seen = set(start)
        waiting = list(seen)
        covered: dict[int, bool] = {}
        found: list[int] = []
        while waiting:
            number = waiting.pop()
            entry = entries[number]
            inside = known.get(number)
            if inside is None:
                inside = self._covers(wanted, entry.filter)
            covered[number] = inside
            if inside:
                found.append(number)
            elif not self._prune or wanted.overlaps(entry.filter):
                fresh = entry.succs - seen
                seen |= fresh
                waiting += fresh
        # Reached past an entry that is not covered, one can still lie below another that is.
        kept = set()
        for number in found:
            for pred in entries[number].preds:
                inside = covered.get(pred, known.get(pred))
                if inside is None:
                    inside = pred not in preds and self._covers(wanted, entries[pred].filter)
                    covered[pred] = inside
                if inside:
                    break
            else:
                kept.add(number)
        return kept

    def immediate(self, preds: set[int], succs: set[int]) -> tuple[set[int], set[int]]:
        """The immediate ones among all predecessors and all successors, without a covering test."""
        entries = self.entries
        return (
            preds.difference(*[entries[p].preds for p in preds]),
            succs.difference(*[entries[s].succs for s in succs]),
        )

    # -- changing -------------------------------------------------------------------------

    def link(self, wanted: Filter, preds: set[int], succs: set[int]) -> Entry:
        """Put a filter between its immediate predecessors and successors."""
        if wanted in self._numbers:
            raise InvalidInput(expected="a filter that is not there yet", got=wanted)
        entries = self.entries
        number = self._next
        self._next += 1
        entry = entries[number] = Entry(number, wanted, set(preds), set(succs))
        self._numbers[wanted] = number
        if self._bounds is not None:
            self._bounds.add(number, wanted)
        for pred in preds:
            theirs = entries[pred].succs
            for between in theirs & succs:
                entries[between].preds.discard(pred)
            theirs -= succs
            theirs.add(number)
        for succ in succs:
            entries[succ].preds.add(number)
            self._roots.pop(succ, None)
        if not preds:
            self._roots[number] = None
        self.settle((number,), new=number)
        return entry

    def remove(self, number: int) -> None:
        """Take an entry out; what it held together is linked anew where nothing else does."""
        entries = self.entries
        entry = entries.pop(number)
        del self._numbers[entry.filter]
        self._roots.pop(number, None)
        if self._bounds is not None:
            self._bounds.remove(number)
        for pred in entry.preds:
            entries[pred].succs.discard(number)
        for succ in entry.succs:
            lower = entries[succ]
            lower.preds.discard(number)
            # Between p and the successor lies something exactly if p covers another immediate predecessor of it.
            others = [entries[q].filter for q in lower.preds]
            for pred in entry.preds:
                upper = entries[pred].filter
                if not any(self._covers(upper, other) for other in others):
                    lower.preds.add(pred)
                    entries[pred].succs.add(succ)
            if not lower.preds:
                self._roots[succ] = None
        if self._on_level is not None:
            self._on_level(number, entry.level, None)
        self.settle(entry.succs)

    def rebuild(self) -> None:
        """Enter every filter anew: for links that somebody else made, and made wrong."""
        every = list(self.entries.values())
        self.entries.clear()
        self._numbers.clear()
        self._roots.clear()
        self._bounds = Bounds() if self._bounds is not None else None
        for entry in every:
            for interface in entry.subscribers:
                self.subscribe(entry.filter, interface)

    def settle(self, changed: Iterable[int], new: int | None = None) -> None:
        """Bring the levels of these entries, and of what follows from them, up to date."""
        entries, told = self.entries, self._on_level
        waiting = list(changed)
        while waiting:
            number = waiting.pop()
            entry = entries[number]
            level = 1 + max((entries[p].level for p in entry.preds), default=-1)
            was = entry.level
            if number == new:
                new = None
                entry.level = level
                if told is not None:
                    told(number, None, level)
                waiting += [s for s in entry.succs if entries[s].level <= level]
            elif level != was:
                self.moves += 1
                entry.level = level
                if told is not None:
                    told(number, was, level)
                # Only those can move whose longest chain led through here, or now does.
                waiting += [s for s in entry.succs if entries[s].level == was + 1 or entries[s].level <= level]

    def layers(self) -> list[list[int]]:
        """The entries by level, each level in the order of numbers."""
        depth = 1 + max((e.level for e in self.entries.values()), default=-1)
        found: list[list[int]] = [[] for _ in range(depth)]
        for number, entry in sorted(self.entries.items()):
            found[entry.level].append(number)
        return found
