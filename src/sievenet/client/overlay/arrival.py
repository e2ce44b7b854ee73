"""What comes from a router: decoded, told apart by subscription, and handed on. Who cannot take it makes it wait."""

from __future__ import annotations

import time
from asyncio import Event as Signal
from collections.abc import Mapping, Sequence

from sievenet.client.delivery import Delivery
from sievenet.client.edge import Edge
from sievenet.client.receiver import ReceiverStatistics, Sink
from sievenet.client.transport.shim import MARK, unstamped
from sievenet.content.event import Event, Record
from sievenet.content.filter import Subscription
from sievenet.content.schema import Schema
from sievenet.errors import SievenetError
from sievenet.routers.messages import Carried
from sievenet.routers.shipment import Shipment

__all__ = ["Landing"]


class Landing:
    """The receiving side of one node at a router."""

    def __init__(self, schemas: Mapping[int, Schema | None]) -> None:
        self._schemas = schemas
        self._edges: dict[int, Edge] = {}
        #: Where the deliveries of each subscription go.
        self._sinks: dict[int, Sink] = {}
        self._room = Signal()
        self._received = self._unmatched = self._malformed = self._strangers = 0

    def add(self, category: int, key: int, wanted: Subscription, sink: Sink) -> None:
        """Deliver what matches a subscription."""
        self._sinks[key] = sink
        # The edge only tells the feeds of this node apart; without a schema its decisions are the same.
        edge = self._edges.get(category)
        if edge is None:
            edge = self._edges[category] = Edge(self._schemas[category])  # type: ignore[arg-type]
        edge.add(key, wanted)

    def remove(self, category: int, key: int) -> None:
        """Deliver no more for a subscription."""
        self._sinks.pop(key, None)
        if category in self._edges:
            self._edges[category].remove(key)
        self._room.set()

    def match(self, category: int, event: Event | Record) -> Sequence[int]:
        """The subscriptions that an event of the node itself matches."""
        edge = self._edges.get(category)
        return () if edge is None else edge.match(event)  # type: ignore[arg-type]

    def room(self) -> None:
        """There is room again in a queue that was full, or nobody waits for it any more."""
        self._room.set()

    async def arrived(self, message: Carried) -> None:
        """Deliver some events."""
        edge = self._edges.get(message.category)
        if edge is None:
            self._strangers += 1
            return
        try:
            shipment = Shipment.of(message, self._schemas[message.category])
        except SievenetError:
            self._malformed += 1
            return
        now = time.time_ns()
        sequences, departures = shipment.sequences.tolist(), shipment.departures.tolist()
        rows: Sequence[Event | Record] = shipment.rows()
        for row, sequence, departure in zip(rows, sequences, departures, strict=True):
            keys = edge.match(row)  # type: ignore[arg-type]
            self._received += 1
            self._unmatched += not keys
            event, stamp = row, None
            if row.payload.startswith(MARK) and isinstance(row, Event):
                try:
                    event, stamp = unstamped(row)
                except SievenetError:
                    self._malformed += 1
                    continue
            delivery = Delivery(event, shipment.publisher, sequence, departure, now, stamp)  # type: ignore[arg-type]
            for key in keys:
                while (sink := self._sinks.get(key)) is not None and not sink.accept(delivery):
                    # Not reading on is what makes the router, and so the publisher, wait.
                    self._room.clear()
                    await self._room.wait()

    def statistics(self) -> ReceiverStatistics:
        """Counts since the node began."""
        return ReceiverStatistics(
            received=self._received,
            matched=self._received - self._unmatched,
            false_positives=self._unmatched,
            unexplained=self._unmatched,
            duplicates=0,
            late=0,
            malformed=self._malformed,
            strangers=self._strangers,
        )
