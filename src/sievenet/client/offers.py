"""What a node may publish: the advertisements that stand. The network has made paths for those and for nothing else."""

from __future__ import annotations

from collections.abc import Iterable

from sievenet.client.ledger import Registration
from sievenet.content.event import Event, Record
from sievenet.content.filter import Subscription
from sievenet.errors import Rejected

__all__ = ["Offers"]

#: Advertisements that an error shows.
_SHOWN = 4


class Offers:
    """Advertised subscriptions, by the names of their schemas."""

    def __init__(self) -> None:
        self._standing: dict[str, dict[int, Subscription]] = {}
        #: The schemas of which everything may be published, which is the common case and needs no matching.
        self._unlimited: set[str] = set()

    def allow(self, entry: Registration) -> None:
        """The advertisement stands."""
        self._standing.setdefault(entry.category, {})[entry.id] = entry.wanted
        self._note(entry.category)

    def forbid(self, entry: Registration) -> None:
        """The advertisement is taken back."""
        self._standing.setdefault(entry.category, {}).pop(entry.id, None)
        self._note(entry.category)

    def _note(self, category: str) -> None:
        everything = any(not f.constraints for each in self._standing[category].values() for f in each.filters)
        (self._unlimited.add if everything else self._unlimited.discard)(category)

    def unlimited(self, category: str) -> bool:
        """Whether everything of a category is advertised."""
        return category in self._unlimited

    def check(self, category: str, events: Iterable[Event | Record]) -> None:
        """Raise if one of these events of a category is not advertised."""
        if category in self._unlimited:
            return
        allowed = self._standing.get(category)
        if not allowed:
            what = category or "records without a schema"
            raise Rejected(f"Expected an advertisement of {what} before publishing, got none")
        for event in events:
            if not any(each.matches(event) for each in allowed.values()):
                shown = "; ".join(str(each) for each in list(allowed.values())[:_SHOWN])
                raise Rejected(f"Expected an event within what this node advertises ({shown}), got {event}")
