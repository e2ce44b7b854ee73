"""What an application wants registered, so that it can be registered again.

The daemon has a journal and remembers; a client has this ledger. After every (re)connect the two are compared, and the
difference is what has to be said:

    ledger ∖ daemon   → say it again (asked before, but the answer or the daemon's disk was lost)
    daemon ∖ ledger   → take it back (the application gave it up while the connection was down)

Ids are a counter and never reused for other content, so comparing ids is comparing content.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Literal

from sievenet.content.filter import Subscription

__all__ = ["Difference", "Kind", "Registration", "Registrations"]

Kind = Literal["advertisement", "subscription"]


@dataclass(frozen=True, slots=True)
class Registration:
    """One advertisement or subscription."""

    kind: Kind
    id: int
    #: The schema's name; the number of the category is the daemon's and may change with it.
    category: str
    wanted: Subscription
    #: The same in the codec's bytes.
    content: bytes


@dataclass(frozen=True, slots=True)
class Difference:
    """What has to be said for the daemon to hold what the ledger holds."""

    missing: tuple[Registration, ...]
    surplus: tuple[tuple[Kind, int], ...]


class Registrations:
    """Registrations by kind and id."""

    def __init__(self) -> None:
        self._entries: dict[tuple[Kind, int], Registration] = {}
        self._ids = count(1)

    def add(self, kind: Kind, category: str, wanted: Subscription, content: bytes) -> Registration:
        """Enter a registration under a new id."""
        entry = Registration(kind, next(self._ids), category, wanted, content)
        self._entries[kind, entry.id] = entry
        return entry

    def remove(self, entry: Registration) -> bool:
        """Strike a registration out; False if it was not there."""
        return self._entries.pop((entry.kind, entry.id), None) is not None

    def get(self, kind: Kind, id: int) -> Registration | None:
        """A registration by its id."""
        return self._entries.get((kind, id))

    def restore(self, entry: Registration) -> None:
        """Enter a registration again that was struck out."""
        self._entries[entry.kind, entry.id] = entry

    def __contains__(self, entry: Registration) -> bool:
        return (entry.kind, entry.id) in self._entries

    def __iter__(self) -> Iterator[Registration]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def of(self, kind: Kind, category: str) -> list[Registration]:
        """The registrations of one kind in one category."""
        return [e for e in self._entries.values() if e.kind == kind and e.category == category]

    def difference(self, advertisements: Collection[int], subscriptions: Collection[int]) -> Difference:
        """Compare with what the daemon says it holds. Advertisements come first: publishers wait for them."""
        held: set[tuple[Kind, int]] = {("advertisement", i) for i in advertisements}
        held |= {("subscription", i) for i in subscriptions}
        missing = [e for key, e in self._entries.items() if key not in held]
        missing.sort(key=lambda e: (e.kind, e.id))
        return Difference(tuple(missing), tuple(sorted(held - self._entries.keys())))
