"""Who encodes with which plan: the bookkeeping behind "publishers have switched".

A change of plan may go on when every publisher has said that it encodes with the new one, or is gone with its lease.
Pure: `adopted` and `gone` go in, waiting changes become complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

__all__ = ["Adoption", "Change"]


@dataclass(slots=True)
class Change:
    """One change that waits for clients."""

    category: int
    epoch: int
    missing: set[str]
    #: Called once, when nobody is missing any more.
    complete: Callable[[], None] = field(repr=False)


class Adoption:
    """Per client and category the latest epoch adopted, and the changes that wait."""

    def __init__(self) -> None:
        self._epochs: dict[tuple[str, int], int] = {}
        self._changes: list[Change] = []

    def begin(self, category: int, epoch: int, clients: Iterable[str], complete: Callable[[], None]) -> Change:
        """Wait for these clients; those that have adopted the epoch already are not waited for."""
        missing = {client for client in clients if self._epochs.get((client, category), -1) < epoch}
        change = Change(category, epoch, missing, complete)
        self._changes.append(change)
        self._sweep()
        return change

    def adopted(self, client: str, category: int, epoch: int) -> None:
        """A client encodes with the plan of this epoch."""
        key = (client, category)
        self._epochs[key] = max(epoch, self._epochs.get(key, -1))
        for change in self._changes:
            if change.category == category and epoch >= change.epoch:
                change.missing.discard(client)
        self._sweep()

    def awaited(self, client: str) -> list[int]:
        """The categories in which a change waits for a client."""
        return [change.category for change in self._changes if client in change.missing]

    def gone(self, client: str) -> None:
        """A client has left, or its lease has ended: it publishes nothing more."""
        for key in [key for key in self._epochs if key[0] == client]:
            del self._epochs[key]
        for change in self._changes:
            change.missing.discard(client)
        self._sweep()

    def abandon(self, change: Change) -> None:
        """Nobody waits for this change any more."""
        self._changes = [each for each in self._changes if each is not change]

    def _sweep(self) -> None:
        done = [change for change in self._changes if not change.missing]
        self._changes = [change for change in self._changes if change.missing]
        for change in done:
            change.complete()
