"""Schemes on top of another: neighbours are told something that follows from what the inner scheme would tell them.

    Advertised   of that, what overlaps what can come from the neighbour
    Merging      unions of it, exact or within a bound (`merging`)

A refinement keeps no table of its own. It passes on who wants what, and follows the inner scheme's changes: so it is
right as soon as the inner one is. Advertised over a reduced set (covering) is enough: if G covers F and F overlaps an
advertisement, so does G.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

from sievenet.content.filter import Filter
from sievenet.routers.merging import Merger
from sievenet.routers.schemes import Change, Covering, Scheme, Telling, Want

__all__ = ["Advertised", "Merging", "Refining"]

S = TypeVar("S", bound=Scheme)


class Refining(Telling[Want], ABC, Generic[S]):
    """What another scheme tells, refined."""

    def __init__(self, inner: S) -> None:
        super().__init__()
        self.inner = inner
        self.tagged, self.covering = inner.tagged, inner.covering

    @abstractmethod
    def _refine(self, neighbour: str, change: Change[Want]) -> None:
        """The inner scheme tells a neighbour something else than before."""

    def subscribe_many(self, wants: Sequence[Want], interface: Hashable) -> None:
        """An interface wants something."""
        self.inner.subscribe_many(wants, interface)
        self._follow()

    def unsubscribe(self, want: Want, interface: Hashable) -> None:
        """It no longer does."""
        self.inner.unsubscribe(want, interface)
        self._follow()

    def join(self, neighbour: str) -> None:
        """There is a neighbour to tell."""
        if neighbour not in self._told:
            self._told[neighbour] = set()
            self.inner.join(neighbour)
            self._follow()

    def leave(self, neighbour: str) -> None:
        """There no longer is such a neighbour."""
        super().leave(neighbour)
        self.inner.leave(neighbour)

    def changes(self) -> dict[str, Change[Want]]:
        """What changed since the last call, by neighbour."""
        # Filters may have entered the table meanwhile that were on their way.
        self._follow()
        return super().changes()

    def _follow(self) -> None:
        for neighbour, change in self.inner.changes().items():
            self._refine(neighbour, change)

    def size(self) -> int:
        """Entries of the routing table."""
        return self.inner.size()

    def tests(self) -> int:
        """Covering tests so far."""
        return self.inner.tests()


class Advertised(Refining[Scheme]):
    """Advertisement-based routing: tell Y only what overlaps what can come from Y."""

    def __init__(self, inner: Scheme) -> None:
        super().__init__(inner)
        #: What each neighbour advertised, and how often (simple routing tells equal ones apart).
        self._offers: dict[str, dict[Filter, int]] = {}

    def offer(self, neighbour: str, advertised: Filter) -> None:
        """A neighbour advertises something: who wants some of it is told there."""
        offers = self._offers.setdefault(neighbour, {})
        offers[advertised] = offers.get(advertised, 0) + 1
        if neighbour in self._told and offers[advertised] == 1:
            for want in self.inner.told(neighbour):
                if want.filter.overlaps(advertised):
                    self._tell(neighbour, want)

    def retract(self, neighbour: str, advertised: Filter) -> None:
        """It no longer does."""
        offers = self._offers.get(neighbour, {})
        if offers.get(advertised, 0) > 1:
            offers[advertised] -= 1
            return
        offers.pop(advertised, None)
        for want in list(self.told(neighbour)):
            if not self._offered(neighbour, want):
                self._untell(neighbour, want)

    def _offered(self, neighbour: str, want: Want) -> bool:
        return any(want.filter.overlaps(each) for each in self._offers.get(neighbour, ()))

    def _refine(self, neighbour: str, change: Change[Want]) -> None:
        for want in change.removed:
            self._untell(neighbour, want)
        for want in change.added:
            if self._offered(neighbour, want):
                self._tell(neighbour, want)


class Merging(Refining[Covering]):
    """Merging on top of covering: neighbours are told unions of what covering would tell them."""

    def __init__(self, inner: Covering, bound: float = 0.0) -> None:
        super().__init__(inner)
        self._bound = bound
        self._mergers: dict[str, Merger] = {}

    def leave(self, neighbour: str) -> None:
        """There no longer is such a neighbour."""
        super().leave(neighbour)
        self._mergers.pop(neighbour, None)

    def _refine(self, neighbour: str, change: Change[Want]) -> None:
        merger = self._mergers.setdefault(neighbour, Merger(self._bound))
        for want in change.removed:
            merger.remove(want.filter)
        for want in change.added:
            merger.add(want.filter)
        added, removed = merger.changes()
        for each in removed:
            self._untell(neighbour, Want(each))
        for each in added:
            self._tell(neighbour, Want(each))
