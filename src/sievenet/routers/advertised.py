"""Advertisement-based routing, on top of another scheme.

A subscription goes to neighbour Y only if it overlaps what can come from Y. Restricting the reduced set is enough: if G
covers F and F overlaps an advertisement, so does G.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from sievenet.content.filter import Filter
from sievenet.routers.schemes import Change, Scheme, Telling, Want

__all__ = ["Advertised"]


class Advertised(Telling[Want]):
    """Advertisement-based routing on top of another scheme: tell Y only what overlaps what can come from Y."""

    def __init__(self, inner: Scheme) -> None:
        super().__init__()
        self.inner = inner
        self.tagged, self.covering = inner.tagged, inner.covering
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
        self._follow()
        return super().changes()

    def _follow(self) -> None:
        for neighbour, change in self.inner.changes().items():
            for want in change.removed:
                self._untell(neighbour, want)
            for want in change.added:
                if self._offered(neighbour, want):
                    self._tell(neighbour, want)

    def size(self) -> int:
        """Entries of the routing table."""
        return self.inner.size()

    def tests(self) -> int:
        """Covering tests so far."""
        return self.inner.tests()
