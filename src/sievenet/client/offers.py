"""What a node may publish: the advertisements that stand. The network has made paths for those and for nothing else."""

from __future__ import annotations

from collections.abc import Iterable

from sievenet.client.registrations import Registration
from sievenet.content.event import Event, Record
from sievenet.content.filter import Subscription
from sievenet.content.schema import Schema
from sievenet.errors import Rejected

__all__ = ["Offers"]

#: Advertisements that an error shows.
_SHOWN = 4


class Offers:
    """Advertised subscriptions, by their schemas (versions of one are different ones)."""

    def __init__(self) -> None:
        self._standing: dict[Schema | None, dict[int, Subscription]] = {}
        #: The schemas of which everything may be published, which is the common case and needs no matching.
        self._unlimited: set[Schema | None] = set()
        #: How often that has changed.
        self.changes = 0

    def allow(self, entry: Registration) -> None:
        """The advertisement stands."""
        self._standing.setdefault(entry.wanted.schema, {})[entry.id] = entry.wanted
        self._note(entry.wanted.schema)

    def forbid(self, entry: Registration) -> None:
        """The advertisement is taken back."""
        self._standing.setdefault(entry.wanted.schema, {}).pop(entry.id, None)
        self._note(entry.wanted.schema)

    def _note(self, schema: Schema | None) -> None:
        self.changes += 1
        everything = any(not f.constraints for each in self._standing[schema].values() for f in each.filters)
        (self._unlimited.add if everything else self._unlimited.discard)(schema)

    def unlimited(self, schema: Schema | None) -> bool:
        """Whether everything of a schema is advertised."""
        return schema in self._unlimited

    def check(self, category: str, events: Iterable[Event | Record]) -> None:
        """Raise if one of these events, all of one schema, is not advertised."""
        allowed: dict[int, Subscription] | None = None
        for event in events:
            if allowed is None:
                schema = event.schema if isinstance(event, Event) else None
                if schema in self._unlimited:
                    return
                allowed = self._standing.get(schema)
            if not allowed:
                what = category or "records without a schema"
                raise Rejected(f"Expected an advertisement of {what} before publishing, got none")
            if not any(each.matches(event) for each in allowed.values()):
                shown = "; ".join(str(each) for each in list(allowed.values())[:_SHOWN])
                raise Rejected(f"Expected an event within what this node advertises ({shown}), got {event}")
