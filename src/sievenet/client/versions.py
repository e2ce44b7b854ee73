"""A subscription wants events of every version of its schema: one registration per version.

The versions of a schema are categories of their own, with numbers and plans of their own. What the application
subscribed to is the *first* registration; for each other version there is a *twin*, with the same filter in terms of
that version (`content.evolution`), which delivers to the same place. Twins come with new versions, and go with the
first or with their version. They stand in the ledger like any other registration.
"""

from __future__ import annotations

from sievenet.client.catalog import Catalog
from sievenet.client.registrations import Registration, Registrations
from sievenet.content.codec import encode_subscription
from sievenet.content.evolution import translated

__all__ = ["Twins"]


class Twins:
    """The twins of a node's subscriptions."""

    def __init__(self, ledger: Registrations, catalog: Catalog) -> None:
        self._ledger = ledger
        self._catalog = catalog
        self._twins: dict[int, list[Registration]] = {}
        self._firsts: dict[int, Registration] = {}

    def of(self, entry: Registration) -> list[Registration]:
        """The twins of a subscription."""
        return list(self._twins.get(entry.id, ()))

    def first(self, entry: Registration) -> Registration:
        """The subscription whose twin this is, or itself."""
        return self._firsts.get(entry.id, entry)

    def number(self, id: int) -> int:
        """The number of the subscription whose twin has this one, or the same."""
        return self._firsts[id].id if id in self._firsts else id

    def new(self, entry: Registration) -> list[Registration]:
        """Twins for versions that a subscription has none for yet; entered in the ledger."""
        if entry.id in self._firsts or entry.wanted.schema is None:
            return []
        own = self._twins.setdefault(entry.id, [])
        known = [entry.wanted.schema, *(twin.wanted.schema for twin in own)]
        added = []
        for category in self._catalog.versions(entry.category):
            if category.schema in known:
                continue
            wanted = translated(entry.wanted, category.schema)
            if wanted.filters:
                twin = self._ledger.add("subscription", entry.category, wanted, encode_subscription(wanted))
                self._firsts[twin.id] = entry
                added.append(twin)
        own += added
        return added

    def drop(self, entry: Registration) -> list[Registration]:
        """A subscription ends; its twins, struck out of the ledger."""
        twins = self._twins.pop(entry.id, [])
        for twin in twins:
            self._firsts.pop(twin.id, None)
            self._ledger.remove(twin)
        return twins

    def stale(self) -> list[Registration]:
        """Twins of versions that there are no more, struck out of the ledger."""
        found = []
        for own in self._twins.values():
            for twin in list(own):
                if twin.wanted.schema is None or self._catalog.of(twin.wanted.schema) is None:
                    own.remove(twin)
                    self._firsts.pop(twin.id, None)
                    self._ledger.remove(twin)
                    found.append(twin)
        return found
