"""Events at one router: delivered to clients once, and passed on by the tables or to everybody (`readiness`).

Each neighbour confirms what it received. What a broken link may have taken with it is flooded to the others, and to the
same neighbour when it is back (`retransmission`).

An event goes on once (`Seen`). If the graph changes under it, an event that went on by the tables may go on once more,
to everybody, if it comes back that way (`readiness`); it is delivered once. What is too old to tell is not forwarded:
*at most once* has no exception. The memory is the client's (`transport.duplicates`), once for each of the two ways.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from sievenet.routers.messages import Carried, Received
from sievenet.routers.outputs import Counts, unwanted
from sievenet.routers.readiness import Readiness
from sievenet.routers.retransmission import EVERY, Unconfirmed
from sievenet.routers.routing import Context, Interface, Routing
from sievenet.routers.shipment import Shipment, numbers
from sievenet.transport.duplicates import DuplicateWindow

__all__ = ["Carriage", "Seen"]


_Ints = npt.NDArray[np.int64]
#: Numbers of one publisher that are remembered.
_SPAN: Final = 1 << 14


class Seen:
    """Which events were passed on, by tables and to everybody: the last numbers of the publishers heard last."""

    def __init__(self, publishers: int = 1024) -> None:
        self._any = DuplicateWindow(_SPAN, publishers)
        self._flooded = DuplicateWindow(_SPAN, publishers)
        self.repeated = 0

    def fresh(self, publisher: int, sequences: _Ints, flood: bool = False) -> tuple[_Ints, _Ints]:
        """The rows that are new, and those to pass on: with ``flood`` also what only went on by tables before."""
        source = (publisher, 0)
        new = np.flatnonzero(self._any.fresh_of(source, sequences))
        rows = np.flatnonzero(self._flooded.fresh_of(source, sequences)) if flood else new
        self.repeated += len(sequences) - len(rows)
        return new, rows


class Carriage:
    """``heard`` are the neighbours of now, ``quiet`` the clients that do not get what they published themselves."""

    def __init__(
        self,
        context: Context,
        routing: Routing,
        readiness: Readiness,
        counts: Counts,
        heard: Collection[str],
        quiet: Collection[str],
        deliver: Callable[[str, Shipment], None],
    ) -> None:
        self._context, self._routing, self._readiness, self._counts = context, routing, readiness, counts
        self._heard, self._quiet, self._deliver = heard, quiet, deliver
        self._seen = Seen()
        self._unconfirmed: dict[str, Unconfirmed] = {}
        #: Of neighbours whose link broke: until when it is kept, and what they may not have.
        self._rescued: dict[str, tuple[float, list[Carried]]] = {}
        #: Messages that came from each neighbour, and how many of them were confirmed.
        self._came: dict[str, list[int]] = {}

    @property
    def repeated(self) -> int:
        """Events that came again, and went no further."""
        return self._seen.repeated

    # -- events ---------------------------------------------------------------------------

    def publish(self, shipment: Shipment, client: str) -> None:
        """Events of a client."""
        graph = self._context.graph if self._readiness.ready else 0
        self._forward(replace(shipment, graph=graph), ("client", client))

    def receive(self, neighbour: str, message: Carried) -> None:
        """Events from a neighbour."""
        came = self._came.setdefault(neighbour, [0, 0])
        came[0] += 1
        if came[0] - came[1] >= EVERY:
            self.confirm(neighbour)
        schemas = self._context.catalogue.schemas
        if message.category in schemas:
            self._forward(Shipment.of(message, schemas[message.category]), ("router", neighbour))
            return
        # Nobody has told this router of the category; where tables are complete, nobody behind it wants it.
        self._counts.strangers += 1
        if not self._readiness.routes(message.graph):
            self._flood(message, None if message.graph else neighbour)

    def _forward(self, whole: Shipment, by: Interface) -> None:
        counts = self._counts
        flood = not self._readiness.routes(whole.graph)
        fresh, onward = self._seen.fresh(whole.publisher, whole.sequences, flood)
        if not len(onward):
            return
        expired = whole.hops >= self._context.settings.max_hops
        if expired:
            counts.expired_hops += len(onward)
        elif flood:
            flooded = by[0] == "router" and not whole.graph
            # The router that routed it by tables does not know yet that they are incomplete: it gets the event again.
            self._send_all(whole.take(onward).flooded().message(), by[1] if flooded else None)
        if not len(fresh):
            return
        shipment = whole.take(fresh)
        counts.events += len(shipment)
        wanted = self._context.forwarding(shipment.category).interfaces(shipment.events)
        useful = 0
        for interface, rows in wanted.items():
            assert isinstance(interface, tuple)
            if interface[0] == "client" and not (interface == by and by[1] in self._quiet):
                counts.delivered += len(rows)
                useful = max(useful, len(rows))
                self._deliver(interface[1], shipment.take(rows))
        if flood or expired:
            return
        for neighbour, part in self._routing.onward(shipment, by, wanted):
            counts.forwarded += len(part)
            useful = max(useful, len(part))
            self._send(neighbour, part.message())
        if by[0] == "router":
            counts.false_positives += unwanted(self._context.name, shipment, by, wanted, useful)

    def _flood(self, message: Carried, by: str | None) -> bool:
        """Pass events on to everybody, unread; False if that was done before."""
        if message.hops >= self._context.settings.max_hops:
            return False
        _, onward = self._seen.fresh(message.publisher, numbers(message), flood=True)
        if len(onward):
            self._send_all(_flooded(message), by)
        return len(onward) > 0

    def _send_all(self, message: Carried, by: str | None) -> None:
        for neighbour in self._heard:
            if neighbour != by:
                self._counts.flooded += len(message.sequences) // 8
                self._send(neighbour, message)

    def _send(self, neighbour: str, message: Carried) -> None:
        self._context.send(neighbour, message)
        kept = self._unconfirmed.get(neighbour)
        if kept is None:
            kept = self._unconfirmed[neighbour] = Unconfirmed(self._context.settings.beat)
        kept.sent(message)

    # -- neighbours -----------------------------------------------------------------------

    def confirm(self, neighbour: str) -> None:
        """Say how many messages came from a neighbour."""
        came = self._came.get(neighbour)
        if came is not None and came[0] > came[1]:
            came[1] = came[0]
            self._context.send(neighbour, Received(came[0]))

    def confirmed(self, neighbour: str, number: int) -> None:
        """A neighbour says how many came."""
        if (kept := self._unconfirmed.get(neighbour)) is not None:
            kept.confirmed(number, self._context.now)

    def linked(self, neighbour: str) -> None:
        """A link is back: sends the events that were unconfirmed when it broke."""
        _, messages = self._rescued.pop(neighbour, (0.0, []))
        for message in messages:
            self._send(neighbour, message)

    def lost(self, neighbour: str) -> None:
        """A link broke: unconfirmed events are flooded to the other neighbours."""
        self._came.pop(neighbour, None)
        kept = self._unconfirmed.pop(neighbour, None)
        if kept is None:
            return
        self._counts.doubtful += kept.doubtful
        messages = [_flooded(message) for message in kept.kept()]
        for message in messages:
            if self._flood(message, None):
                self._counts.rescued += len(message.sequences) // 8
        self._rescued[neighbour] = self._context.now + self._context.settings.lease, messages

    def tick(self) -> None:
        """Forget what neighbours have."""
        now = self._context.now
        for kept in self._unconfirmed.values():
            kept.tidy(now)
        for neighbour in [n for n, (until, _) in self._rescued.items() if until <= now]:
            del self._rescued[neighbour]


def _flooded(message: Carried) -> Carried:
    return msgspec.structs.replace(message, hops=message.hops + 1, graph=0, destinations=None, bits=b"")
