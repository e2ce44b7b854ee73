"""Poset and forest as offloading sees them: filters by number, inserted with or without covering tests."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Protocol

from sievenet.content.filter import Filter
from sievenet.routers.batches import Items, enter_forest, enter_poset
from sievenet.routers.forest import Forest
from sievenet.routers.poset import Poset, Vertex

__all__ = ["ForestTable", "OnLevel", "PosetTable", "Table"]

OnLevel = Callable[[int, int | None, int | None], None]


class Table(Protocol):
    """A routing table that filters can be placed in."""

    def __len__(self) -> int:
        """How many filters there are."""

    def __contains__(self, number: object) -> bool:
        """Whether there is a filter of this number."""

    def filter(self, number: int) -> Filter:
        """The filter of a number."""

    def number(self, wanted: Filter) -> int | None:
        """The number of an equal filter."""

    def insert(self, wanted: Filter, interface: Hashable) -> None:
        """Insert a filter by searching."""

    def insert_many(self, items: Items) -> None:
        """Insert filters together: their searches share what they can."""

    def place(self, wanted: Filter, interface: Hashable, above: set[int], below: set[int], check: bool) -> bool:
        """Insert a new filter, given all that cover it and all that it covers. With ``check`` every link that would be
        made is tested first; False, and nothing done, if one is wrong.
        """

    def watch(self, on_level: OnLevel | None) -> None:
        """Tell of every filter that comes, goes or moves, beginning with those that are there."""

    def rebuild(self) -> None:
        """Insert every filter anew, by searching: links that were not right are."""

    def numbers(self) -> Iterable[int]:
        """The numbers of all filters."""

    @property
    def tests(self) -> int:
        """Covering tests so far."""


class PosetTable:
    """Over a filters poset; ``entered`` is told of each filter and interface that is in it now."""

    def __init__(
        self,
        poset: Poset | None = None,
        *,
        eliminate: bool = False,
        entered: Callable[[Vertex, Hashable], None] | None = None,
        rebuilt: Callable[[], None] | None = None,
    ) -> None:
        self.poset = poset if poset is not None else Poset()
        self._eliminate = eliminate
        self._entered, self._rebuilt = entered, rebuilt

    def __len__(self) -> int:
        return len(self.poset)

    def __contains__(self, number: object) -> bool:
        return number in self.poset.entries

    def filter(self, number: int) -> Filter:
        """The filter of a number."""
        return self.poset.entries[number].filter

    def number(self, wanted: Filter) -> int | None:
        """The number of an equal filter."""
        found = self.poset.get(wanted)
        return None if found is None else found.id

    def insert(self, wanted: Filter, interface: Hashable) -> None:
        """Insert a filter by searching."""
        entry = self.poset.subscribe(wanted, interface, eliminate=self._eliminate)
        if self._entered is not None and entry is not None:
            self._entered(entry, interface)

    def insert_many(self, items: Items) -> None:
        """Insert filters together."""
        if not self._eliminate:
            enter_poset(self.poset, items, self._entered)
            return
        for wanted, interface in items:
            self.insert(wanted, interface)

    def place(self, wanted: Filter, interface: Hashable, above: set[int], below: set[int], check: bool) -> bool:
        """Insert a new filter, given its relations."""
        poset, entries = self.poset, self.poset.entries
        preds, succs = poset.immediate(above, below)
        if check:
            poset.tests += len(preds) + len(succs)
            good = all(entries[p].filter.covers(wanted) for p in preds)
            if not good or not all(wanted.covers(entries[s].filter) for s in succs):
                return False
        if self._eliminate and any(interface in entries[p].subscribers for p in above):
            return True
        entry = poset.link(wanted, preds, succs)
        entry.subscribers[interface] = None
        if self._eliminate:
            for number in below:
                lower = entries[number]
                if interface in lower.subscribers:
                    poset.unsubscribe(lower.filter, interface)
        if self._entered is not None:
            self._entered(entry, interface)
        return True

    def watch(self, on_level: OnLevel | None) -> None:
        """Tell of every filter that comes, goes or moves."""
        self.poset.watch(on_level)

    def rebuild(self) -> None:
        """Insert every filter anew, by searching."""
        self.poset.rebuild()
        if self._rebuilt is not None:
            self._rebuilt()

    def numbers(self) -> Iterable[int]:
        """The numbers of all filters."""
        return self.poset.entries

    @property
    def tests(self) -> int:
        """Covering tests so far."""
        return self.poset.tests


class ForestTable:
    """Over a poset-derived forest."""

    def __init__(self, *, eliminate: bool = False, balanced: bool = False, index: bool = True) -> None:
        self.forest = Forest(eliminate="path" if eliminate else "none", balanced=balanced, index=index)

    def __len__(self) -> int:
        return len(self.forest)

    def __contains__(self, number: object) -> bool:
        return number in self.forest.nodes

    def filter(self, number: int) -> Filter:
        """The filter of a number."""
        return self.forest.nodes[number].filter

    def number(self, wanted: Filter) -> int | None:
        """The number of an equal filter."""
        found = self.forest.get(wanted)
        return None if found is None else found.id

    def insert(self, wanted: Filter, interface: Hashable) -> None:
        """Insert a filter by searching."""
        self.forest.subscribe(wanted, interface)

    def insert_many(self, items: Items) -> None:
        """Insert filters together."""
        enter_forest(self.forest, items)

    def place(self, wanted: Filter, interface: Hashable, above: set[int], below: set[int], check: bool) -> bool:
        """Insert a new filter, given its relations."""
        forest, nodes = self.forest, self.forest.nodes
        if check:
            # The links are those to one parent, and to those of its children that move below.
            parent = forest.under(above, interface)
            over = set() if parent is None else {parent}
            under = below.intersection(forest.roots if parent is None else nodes[parent].children)
            if forest.eliminates:
                # By these the interface would lose something.
                over.update(n for n in above if interface in nodes[n].subscribers)
                under.update(n for n in below if interface in nodes[n].subscribers)
            forest.tests += len(over) + len(under)
            good = all(nodes[n].filter.covers(wanted) for n in over)
            if not good or not all(wanted.covers(nodes[n].filter) for n in under):
                return False
        forest.attach(wanted, interface, above, below)
        return True

    def watch(self, on_level: OnLevel | None) -> None:
        """Tell of every filter that comes, goes or moves."""
        self.forest.watch(on_level)

    def rebuild(self) -> None:
        """Insert every filter anew, by searching."""
        self.forest.rebuild()

    def numbers(self) -> Iterable[int]:
        """The numbers of all filters."""
        return self.forest.nodes

    @property
    def tests(self) -> int:
        """Covering tests so far."""
        return self.forest.tests
