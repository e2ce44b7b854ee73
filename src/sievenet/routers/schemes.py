"""Routing schemes: what a router tells each neighbour on the tree of what the others want.

A scheme holds who wants what (interfaces: the neighbours, and `LOCAL` for all clients of this router) and keeps, for
each neighbour Y, the set to tell it. On a tree that set is defined by what is wanted on the *other* interfaces:

    simple       every subscription by itself, also equal ones                       Flat(tagged=True)
    identity     each distinct filter once                                           Flat(tagged=False)
    covering     those that no other one covers                                      Covering
    merging      unions of those, exact or within a bound (`refinement`)               Merging(Covering)
    advertised   of any of these, what overlaps an advertisement from Y (`refinement`) Advertised(…)

Since the set is *defined*, not accumulated, unsubscribing needs no rule of its own: what a root filter kept covered is
in the set as soon as the filter is gone (it is *uncovered*), and `changes` tells Y of both in one message.

Covering works on the poset. With ``other(f) = subscribers of f besides Y``: f is told to Y if other(f) is not empty and
no entry above f has one. Changes walk only as far as that can change: down from the filter to the next ones told.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence, Set
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from sievenet.content.filter import Filter
from sievenet.routers.batches import Items, enter_poset
from sievenet.routers.poset import Poset, Vertex

__all__ = ["LOCAL", "Change", "Covering", "Flat", "Placing", "Scheme", "Telling", "Want"]

#: The interface that stands for all clients of a router.
LOCAL: Final = ""


class Want(NamedTuple):
    """A filter, and for simple routing the subscription that it is of."""

    filter: Filter
    tag: str = ""


#: What is told: `Want`, or another hashable value (B-DRP tells Bloom filters).
W = TypeVar("W", bound=Hashable)


class Change(NamedTuple, Generic[W]):
    """What to tell a neighbour."""

    added: list[W]
    removed: list[W]


class Scheme(Protocol):
    """What the router asks of a scheme, for one category."""

    #: Whether equal filters of different subscriptions are different entries.
    tagged: bool
    #: Whether filters that others cover matter; if not, the root set of the clients' filters suffices.
    covering: bool

    def subscribe_many(self, wants: Sequence[Want], interface: Hashable) -> None:
        """An interface wants something."""

    def unsubscribe(self, want: Want, interface: Hashable) -> None:
        """It no longer does."""

    def join(self, neighbour: str) -> None:
        """There is a neighbour to tell."""

    def leave(self, neighbour: str) -> None:
        """There no longer is."""

    def told(self, neighbour: str) -> set[Want]:
        """All that a neighbour is to be told."""

    def changes(self) -> dict[str, Change[Want]]:
        """What changed since the last call, by neighbour."""

    def size(self) -> int:
        """Entries of the routing table."""

    def tests(self) -> int:
        """Covering tests so far."""


class Telling(Generic[W]):
    """The sets told, and what changed in them."""

    def __init__(self) -> None:
        self._told: dict[str, set[W]] = {}
        self._changed: dict[str, dict[W, bool]] = {}

    def told(self, neighbour: str) -> set[W]:
        """All that a neighbour is to be told."""
        return self._told.get(neighbour, set())

    def _tell(self, neighbour: str, want: W) -> None:
        told = self._told[neighbour]
        if want not in told:
            told.add(want)
            self._note(neighbour, want, True)

    def _untell(self, neighbour: str, want: W) -> None:
        told = self._told[neighbour]
        if want in told:
            told.discard(want)
            self._note(neighbour, want, False)

    def _note(self, neighbour: str, want: W, is_new: bool) -> None:
        noted = self._changed.setdefault(neighbour, {})
        # Told and taken back before anybody asked: nothing happened.
        if noted.get(want) is (not is_new):
            del noted[want]
        else:
            noted[want] = is_new

    def leave(self, neighbour: str) -> None:
        """There no longer is such a neighbour."""
        self._told.pop(neighbour, None)
        self._changed.pop(neighbour, None)

    def changes(self) -> dict[str, Change[W]]:
        """What changed since the last call, by neighbour."""
        changed, self._changed = self._changed, {}
        return {
            neighbour: Change([w for w, new in noted.items() if new], [w for w, new in noted.items() if not new])
            for neighbour, noted in changed.items()
            if noted
        }


class Flat(Telling[W]):
    """Simple (``tagged``) and identity-based routing: every entry is told."""

    covering = False

    def __init__(self, tagged: bool) -> None:
        super().__init__()
        self.tagged = tagged
        self._interfaces: dict[W, dict[Hashable, None]] = {}

    def subscribe(self, want: W, interface: Hashable) -> None:
        """An interface wants something."""
        self._interfaces.setdefault(want, {})[interface] = None
        for neighbour in self._told:
            if neighbour != interface:
                self._tell(neighbour, want)

    def subscribe_many(self, wants: Sequence[W], interface: Hashable) -> None:
        """An interface wants something."""
        for want in wants:
            self.subscribe(want, interface)

    def unsubscribe(self, want: W, interface: Hashable) -> None:
        """It no longer does."""
        interfaces = self._interfaces.get(want)
        if interfaces is None or interface not in interfaces:
            return
        del interfaces[interface]
        for neighbour in self._told:
            if not interfaces.keys() - {neighbour}:
                self._untell(neighbour, want)
        if not interfaces:
            del self._interfaces[want]

    def join(self, neighbour: str) -> None:
        """There is a neighbour to tell."""
        if neighbour not in self._told:
            self._told[neighbour] = set()
            for want, interfaces in self._interfaces.items():
                if interfaces.keys() - {neighbour}:
                    self._tell(neighbour, want)

    def held(self) -> Iterable[tuple[W, Set[Hashable]]]:
        """All entries, and the interfaces of each."""
        return [(want, interfaces.keys()) for want, interfaces in self._interfaces.items()]

    def size(self) -> int:
        """Entries of the routing table."""
        return sum(map(len, self._interfaces.values()))

    def tests(self) -> int:
        """None are needed."""
        return 0


class Placing(Protocol):
    """How filters enter the poset if not at once; it calls `Covering.entered` for each that is in."""

    def submit(self, items: Items) -> None:
        """Interfaces want something."""

    def withdraw(self, wanted: Filter, interface: Hashable) -> bool:
        """It no longer does; whether the filter was still on its way."""


class Covering(Telling[Want]):
    """Covering-based routing over a filters poset."""

    tagged = False
    covering = True

    def __init__(self, poset: Poset | None = None) -> None:
        super().__init__()
        self.poset = Poset() if poset is None else poset
        self.placing: Placing | None = None

    def subscribe(self, want: Want, interface: Hashable) -> None:
        """An interface wants something."""
        self.subscribe_many((want,), interface)

    def subscribe_many(self, wants: Sequence[Want], interface: Hashable) -> None:
        """An interface wants something, all of it at once."""
        items = [(want.filter, interface) for want in wants]
        if self.placing is not None:
            self.placing.submit(items)
        else:
            enter_poset(self.poset, items, self.entered)

    def entered(self, entry: Vertex, interface: Hashable) -> None:
        """A filter is in the poset, for an interface."""
        for neighbour in self._told:
            if neighbour != interface and self._uncovered(entry, neighbour):
                self._tell(neighbour, Want(entry.filter))
                self._cover(entry, neighbour)

    def unsubscribe(self, want: Want, interface: Hashable) -> None:
        """It no longer does; what it covered may come to light."""
        poset = self.poset
        if self.placing is not None and self.placing.withdraw(want.filter, interface):
            return
        entry = poset.get(want.filter)
        if entry is None or interface not in entry.subscribers:
            return
        below = set(entry.succs)
        poset.unsubscribe(want.filter, interface)
        for neighbour in self._told:
            if neighbour != interface and not _others(entry, neighbour) and want in self._told[neighbour]:
                self._untell(neighbour, Want(want.filter))
                self._uncover(below, neighbour)

    def rebuilt(self) -> None:
        """The poset is another one: tell the difference."""
        for neighbour, told in self._told.items():
            due = {Want(e.filter) for e in self.poset if self._uncovered(e, neighbour)}
            for want in told - due:
                self._untell(neighbour, want)
            for want in due - told:
                self._tell(neighbour, want)

    def _uncovered(self, entry: Vertex, neighbour: str) -> bool:
        """Whether an entry is wanted by others than a neighbour, and nothing above it is."""
        if not _others(entry, neighbour):
            return False
        entries = self.poset.entries
        seen = set(entry.preds)
        waiting = list(seen)
        while waiting:
            upper = entries[waiting.pop()]
            if _others(upper, neighbour):
                return False
            fresh = upper.preds - seen
            seen |= fresh
            waiting += fresh
        return True

    def _cover(self, entry: Vertex, neighbour: str) -> None:
        """Take back what an entry now covers."""
        entries, told = self.poset.entries, self._told[neighbour]
        seen = set(entry.succs)
        waiting = list(seen)
        while waiting:
            lower = entries[waiting.pop()]
            if Want(lower.filter) in told:
                self._untell(neighbour, Want(lower.filter))
            elif not _others(lower, neighbour):
                fresh = lower.succs - seen
                seen |= fresh
                waiting += fresh

    def _uncover(self, below: Iterable[int], neighbour: str) -> None:
        """Tell what is uncovered among these entries and below them."""
        entries = self.poset.entries
        seen = set(below)
        waiting = sorted(seen)
        while waiting:
            entry = entries[waiting.pop()]
            if _others(entry, neighbour):
                if self._uncovered(entry, neighbour):
                    self._tell(neighbour, Want(entry.filter))
            else:
                fresh = entry.succs - seen
                seen |= fresh
                waiting += fresh

    def join(self, neighbour: str) -> None:
        """There is a neighbour to tell."""
        if neighbour not in self._told:
            self._told[neighbour] = set()
            self._uncover(self.poset.roots, neighbour)

    def size(self) -> int:
        """Entries of the routing table."""
        return sum(len(e.subscribers) for e in self.poset)

    def tests(self) -> int:
        """Covering tests so far."""
        return self.poset.tests


def _others(entry: Vertex, neighbour: str) -> bool:
    """Whether somebody else than a neighbour wants an entry."""
    subscribers = entry.subscribers
    return len(subscribers) > (neighbour in subscribers)
