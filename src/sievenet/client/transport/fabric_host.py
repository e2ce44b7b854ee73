"""What the transport needs of a node, on a fabric: publishing at once, around the queue of a window."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from sievenet.content.event import Event
from sievenet.content.filter import Subscription
from sievenet.content.schema import Schema
from sievenet.errors import Unavailable

if TYPE_CHECKING:
    from sievenet.client.advertisement import Advertisement
    from sievenet.client.delivery import Delivery
    from sievenet.client.feed import Feed
    from sievenet.client.node import Node
    from sievenet.client.outbox import Outbox
    from sievenet.client.session import Session

__all__ = ["FabricHost"]

#: Packets that may wait for the window when a publisher goes on.
_LOW: Final = 1024

#: Subscribes without a queue.
Listen = Callable[[Subscription, "Callable[[Delivery], bool]"], "Awaitable[Feed]"]


class FabricHost:
    """`client.lane.Host` of a `Node`."""

    def __init__(self, node: Node, session: Session, outbox: Outbox, listen: Listen) -> None:
        self._node, self._session, self._outbox, self._listen = node, session, outbox, listen

    @property
    def identity(self) -> int:
        """The number that the data plane gave this node, and lets nobody else use."""
        return self._outbox.publisher

    @property
    def largest(self) -> int:
        """Longest encoded event."""
        return self._outbox.max_event

    async def schema(self, wanted: str | Schema) -> Schema:
        """Register a schema."""
        return await self._node.schema(wanted)

    async def advertise(self, what: Schema, *, transport: bool = False) -> Advertisement:
        """Advertise everything of a schema."""
        return await self._node.advertise(what, transport=transport)

    async def listen(self, wanted: Subscription, accept: Callable[[Delivery], bool]) -> Feed:
        """Subscribe without a queue."""
        return await self._listen(wanted, accept)

    def emit(self, events: Sequence[Event]) -> bool:
        """Send events now; False if many wait."""
        port = self._session.port
        if port is None:
            raise Unavailable("This node has no data port")
        now, outbox = time.time_ns(), self._outbox
        return port.send([packet for event in events for packet in outbox.packets(event, now)])

    async def flushed(self) -> None:
        """Wait for the connection, and until fewer packets wait."""
        if not self._session.connected:
            await self._session.ready()
        if self._session.port is not None:
            await self._session.port.flushed(_LOW)
