"""What the transport needs of a node, at a router: publishing at once, on the connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from sievenet.client.overlay.link import OverlayLink
from sievenet.content.batch import EventBatch
from sievenet.content.event import Event
from sievenet.content.filter import Subscription
from sievenet.content.schema import Schema

if TYPE_CHECKING:
    from sievenet.client.advertisement import Advertisement
    from sievenet.client.delivery import Delivery
    from sievenet.client.feed import Feed
    from sievenet.client.overlay.node import OverlayNode

__all__ = ["OverlayHost"]

#: Bytes that may wait for the connection before a publisher has to wait too.
_AHEAD: Final = 1 << 18

#: Subscribes without a queue.
Listen = Callable[[Subscription, "Callable[[Delivery], bool]"], "Awaitable[Feed]"]


class OverlayHost:
    """`client.lane.Host` of an `OverlayNode`."""

    def __init__(self, node: OverlayNode, link: OverlayLink, categories: Mapping[str, int], listen: Listen) -> None:
        self._node, self._link, self._categories, self._listen = node, link, categories, listen

    @property
    def identity(self) -> int:
        """The number that the router gave this connection."""
        return self._link.publisher

    @property
    def largest(self) -> int:
        """A router says nothing of the sort: what an event may be is what fits."""
        return 0

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
        """Send events of one schema now; False if many bytes wait."""
        schema = events[0].schema
        self._link.publish(self._categories[schema.name], EventBatch.from_events(schema, events))
        writer = self._link.writer
        return writer is None or writer.transport.get_write_buffer_size() < _AHEAD

    async def flushed(self) -> None:
        """Wait for the connection, and until it has taken most of what waits."""
        await self._link.ready()
        await self._link.drained()
