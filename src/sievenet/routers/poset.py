"""The filters poset: filters and their immediate covering relations, kept as they come and go.

    x < 100            level 0, the root set: what nobody else covers
     ├── x < 50        level 1
     │    └── x < 20 and y > 5 ──┐          an entry may have several immediate predecessors
     └── y > 3, x < 80 ──────────┘ level 2

*p* is an immediate predecessor of *f* if p covers f and no third filter lies between. Entries are named by whole
numbers; the links are sets of them, so that what does not need a covering test is set arithmetic.

**Searching** (`place`) is in `placement`: by an index of bounds, or as Siena does, by a walk.

**Placing without searching** (`immediate`). Given *all* that cover f and all that f covers, the immediate ones follow
without a covering test, because whatever lies strictly between is itself among them:

    ImPred(f) = Pred(f) − ⋃ {ImPred(q) : q ∈ Pred(f)}        ImSucc(f) = Succ(f) − ⋃ {ImSucc(s) : s ∈ Succ(f)}

This is what makes offloading pay: the thesis that proposed it walked layer by layer, at a cost that grew with depth.

**Links that are missing.** Clients that place filters may lie. Every link that was checked holds, but some may be left
out. Searches are sound then too, and `remove` keeps reachable whatever was. So whoever goes by links alone, as
`schemes.Covering` does, sees a smaller covering relation, not a wrong one.

**Layers**. An entry's level is the length of the longest chain above it, so each level is an antichain, and an entry is
on one level only. A change moves only entries whose longest chain changed; `on_level` is told of each. Rebuilding the
layers for every batch was the bottleneck that the thesis reports.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from sievenet.content.filter import Filter
from sievenet.errors import InvalidInput
from sievenet.routers.bounds import Bounds
from sievenet.routers.placement import find_down, find_up, walk_down, walk_up

__all__ = ["Poset", "Vertex"]

#: Told that an entry moved: its number, the level it had, the level it has; ``None`` for not in the poset.
OnLevel = Callable[[int, int | None, int | None], None]
_NOTHING: Final[Mapping[int, bool]] = {}


@dataclass(slots=True, eq=False)
class Vertex:
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
        self.entries: dict[int, Vertex] = {}
        self._numbers: dict[Filter, int] = {}
        self._next = 0
        #: Entries that nothing covers; in insertion order.
        self._roots: dict[int, None] = {}
        #: Names candidates for a search; without it, searches walk.
        self.bounds = Bounds() if index else None
        #: Whether what does not overlap is not looked below.
        self.prune = prune
        #: Told of every change of a level.
        self.on_level = on_level
        #: Covering tests, and entries whose level changed, since the beginning.
        self.tests = 0
        self.moves = 0

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, wanted: object) -> bool:
        return wanted in self._numbers

    def __iter__(self) -> Iterator[Vertex]:
        return iter(self.entries.values())

    def watch(self, on_level: OnLevel | None) -> None:
        """Tell of every change of a level, beginning with what is there."""
        self.on_level = on_level
        if on_level is not None:
            for each in self.entries.values():
                on_level(each.id, None, each.level)

    def get(self, wanted: Filter) -> Vertex | None:
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

    def subscribe(self, wanted: Filter, interface: Hashable, *, eliminate: bool = False) -> Vertex | None:
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
        gone = [e for e in self.entries.values() if interface in e.subscribers and self.covers(covering, e.filter)]
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

    def withdraw_below(self, entry: Vertex, interface: Hashable) -> None:
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

    def covers(self, one: Filter, other: Filter) -> bool:
        """A covering test, counted."""
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
        if self.bounds is not None:
            return find_up(self, wanted, self.bounds, above), find_down(self, wanted, self.bounds, below)
        preds = walk_up(self, wanted, above)
        return preds, walk_down(self, wanted, preds, below)

    def immediate(self, preds: set[int], succs: set[int]) -> tuple[set[int], set[int]]:
        """The immediate ones among all predecessors and all successors, without a covering test."""
        entries = self.entries
        return (
            preds.difference(*[entries[p].preds for p in preds]),
            succs.difference(*[entries[s].succs for s in succs]),
        )

    # -- changing -------------------------------------------------------------------------

    def link(self, wanted: Filter, preds: set[int], succs: set[int]) -> Vertex:
        """Put a filter between its immediate predecessors and successors."""
        if wanted in self._numbers:
            raise InvalidInput(expected="a filter that is not there yet", got=wanted)
        entry = self.enter(wanted, preds, succs, succs)
        self.settle((), new=(entry.id,))
        return entry

    def enter(self, wanted: Filter, preds: set[int], succs: set[int], ended: set[int]) -> Vertex:
        """Make an entry and its links, and end those from predecessors to ``ended``; `settle` has to follow."""
        entries = self.entries
        number = self._next
        self._next += 1
        entry = entries[number] = Vertex(number, wanted, set(preds), set(succs))
        self._numbers[wanted] = number
        if self.bounds is not None:
            self.bounds.add(number, wanted)
        for pred in preds:
            theirs = entries[pred].succs
            for between in theirs & ended:
                entries[between].preds.discard(pred)
            theirs -= ended
            theirs.add(number)
        for succ in succs:
            entries[succ].preds.add(number)
            self._roots.pop(succ, None)
        if not preds:
            self._roots[number] = None
        return entry

    def remove(self, number: int) -> None:
        """Take an entry out; what it held together is linked anew where nothing else does."""
        entries = self.entries
        entry = entries.pop(number)
        del self._numbers[entry.filter]
        self._roots.pop(number, None)
        if self.bounds is not None:
            self.bounds.remove(number)
        for pred in entry.preds:
            entries[pred].succs.discard(number)
        for succ in entry.succs:
            entries[succ].preds.discard(number)
        for pred in entry.preds:
            upper = entries[pred]
            held, seen = {pred}, set[int]()
            for succ in entry.succs:
                # Something lies between exactly if there is a way down to another immediate predecessor.
                near = entries[succ].preds
                if held.isdisjoint(near) and not any(self._leads(upper, q, held, seen) for q in near - seen):
                    near.add(pred)
                    upper.succs.add(succ)
        for succ in entry.succs:
            if not entries[succ].preds:
                self._roots[succ] = None
        if self.on_level is not None:
            self.on_level(number, entry.level, None)
        self.settle(entry.succs)

    def _leads(self, upper: Vertex, number: int, held: set[int], seen: set[int]) -> bool:
        """Whether links lead from an entry down to another.

        The walk goes up through what the upper one covers: if no link is missing each step gets nearer, and there is
        no way back. ``held`` are those known to be reached, ``duplicates`` those met before; both are added to.
        """
        entries, level = self.entries, upper.level
        seen.add(number)
        if entries[number].level <= level or not self.covers(upper.filter, entries[number].filter):
            return False
        path, ways = [number], [iter(entries[number].preds)]
        while ways:
            for each in ways[-1]:
                if each in held:
                    held.update(path)
                    return True
                if each not in seen and entries[each].level > level:
                    seen.add(each)
                    if self.covers(upper.filter, entries[each].filter):
                        path.append(each)
                        ways.append(iter(entries[each].preds))
                        break
            else:
                path.pop()
                ways.pop()
        return False

    def rebuild(self) -> None:
        """Enter every filter anew: for links that somebody else made, and made wrong."""
        every = list(self.entries.values())
        self.entries.clear()
        self._numbers.clear()
        self._roots.clear()
        kept, self.bounds = self.bounds, Bounds()
        for entry in every:
            for interface in entry.subscribers:
                self.subscribe(entry.filter, interface)
        # A poset that walks is not made to walk through all of this.
        self.bounds = self.bounds if kept is not None else None

    def settle(self, changed: Iterable[int], new: Sequence[int] = ()) -> None:
        """Bring the levels of these entries, and of what follows from them, up to date; new ones from the top down."""
        entries, told = self.entries, self.on_level
        waiting = list(changed)
        for number in new:
            entry = entries[number]
            level = entry.level = 1 + max((entries[p].level for p in entry.preds), default=-1)
            if told is not None:
                told(number, None, level)
            waiting += [s for s in entry.succs if entries[s].level <= level]
        while waiting:
            number = waiting.pop()
            entry = entries[number]
            level = 1 + max((entries[p].level for p in entry.preds), default=-1)
            was = entry.level
            if level != was:
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
