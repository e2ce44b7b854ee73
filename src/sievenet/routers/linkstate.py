"""Link states at one router: announces its own neighbours, and floods newer link states of others."""

from __future__ import annotations

from collections.abc import Collection

from sievenet.routers.messages import LinkStated
from sievenet.routers.overlay import Record
from sievenet.routers.routing import Context

__all__ = ["Announcer"]


class Announcer:
    """``heard`` are the neighbours of now."""

    def __init__(self, context: Context, heard: Collection[str]) -> None:
        self._context = context
        self._heard = heard
        self._number = context.incarnation << 16
        self._stated = context.now

    def state(self) -> None:
        """Announces the neighbours of this router."""
        context = self._context
        self._number += 1
        self._stated = context.now
        record = Record(context.name, self._number, tuple(sorted(self._heard)))
        self._flood(record, None)
        context.states.take(record, context.now)

    def renew(self) -> None:
        """Repeats the announcement once per beat."""
        if self._context.now >= self._stated + self._context.settings.beat:
            self.state()

    def stated(self, neighbour: str, message: LinkStated) -> None:
        """A neighbour forwards the link state of a router."""
        record = Record(message.origin, message.number, message.neighbours)
        if record.origin == self._context.name:
            # From an earlier life, or of a future one: what counts is what is so now.
            if record.number >= self._number:
                self._number = record.number
                self.state()
            return
        if self._context.states.take(record, self._context.now):
            self._flood(record, neighbour)

    def tell(self, neighbour: str) -> None:
        """Sends a neighbour every known link state."""
        for record in self._context.states.records():
            self._context.send(neighbour, LinkStated(record.origin, record.number, record.neighbours))

    def _flood(self, record: Record, by: str | None) -> None:
        for neighbour in self._heard:
            if neighbour != by:
                self._context.send(neighbour, LinkStated(record.origin, record.number, record.neighbours))
