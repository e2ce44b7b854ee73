"""A node's transport: who orders, recovers and controls rates here, and what they share.

Made when the first subscription or advertisement asks for it; a node that never does has none of this. It works on any
plane: all it needs of its node is in `host`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable
from contextlib import suppress
from typing import TYPE_CHECKING

from sievenet.client.transport.endpoint import Endpoint
from sievenet.client.transport.host import Host
from sievenet.client.transport.sink import Asked, TransportSink
from sievenet.client.transport.source import Source
from sievenet.content.event import Event
from sievenet.content.schema import Schema
from sievenet.errors import InvalidInput, SievenetError, Unavailable
from sievenet.session.lifetime import Tasks
from sievenet.transport.options import Publishing
from sievenet.transport.statistics import SenderStatistics

if TYPE_CHECKING:
    from sievenet.client.feed import Feed

__all__ = ["Transport", "publishing"]


def publishing(asked: Publishing | bool | None, default: Publishing | None) -> Publishing | None:
    """What a publisher asked for: its own settings, the usual ones, the node's, or nothing."""
    if asked is None:
        return default
    if isinstance(asked, bool):
        return (default or Publishing()) if asked else None
    if not isinstance(asked, Publishing):
        raise InvalidInput(expected="True, False or Publishing(…)", got=asked, where="transport")
    return asked


class Transport:
    """Everything that one node does for order, recovery and congestion control."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._lanes: dict[str, Endpoint] = {}
        #: By the schema's name.
        self.sources: dict[str, Source] = {}
        self._sinks: dict[int, TransportSink] = {}
        self._streams = 0
        self._chores = Tasks()

    def _lane(self, category: str) -> Endpoint:
        lane = self._lanes.get(category)
        if lane is None:
            lane = self._lanes[category] = Endpoint(self._host, category)
        return lane

    @property
    def spoken(self) -> int:
        """Events that were control messages."""
        return sum(lane.spoken for lane in self._lanes.values())

    # -- subscribing ----------------------------------------------------------------------

    async def sink(self, feed: Feed, asked: Asked) -> TransportSink:
        """What stands between the node and a feed; it hears peers and publishers when this returns."""
        number = secrets.randbits(62) or 1
        sink = TransportSink(feed, self._lane(feed.registration.category), asked, number)
        await sink.open()
        self._sinks[feed.registration.id] = sink
        feed.transport = sink.statistics
        return sink

    def stop(self, feed: Feed) -> None:
        """A feed ends: it gets what is held, and its control messages end too."""
        sink = self._sinks.pop(feed.registration.id, None)
        if sink is not None:
            control = sink.stop()
            if control is not None:
                self._later(control.close())

    def _later(self, work: Awaitable[None]) -> None:
        async def chore() -> None:
            with suppress(SievenetError):  # the connection is gone, and the registration with it
                await work

        self._chores.begin(chore())

    def drain(self) -> None:
        """There is room in some feed."""
        for sink in self._sinks.values():
            sink.drain()

    # -- publishing -----------------------------------------------------------------------

    def _next_epoch(self) -> int:
        """The node's incarnation, shortened, and one more for each further stream."""
        self._streams += 1
        return (self._host.incarnation + self._streams - 1) & 0xFFFFFFFF

    async def publish_with(self, schema: Schema, options: Publishing) -> Source:
        """From now on events of this schema carry a header. Once per schema: later settings replace earlier ones."""
        old = self.sources.get(schema.name)
        if old is not None and old.options == options:
            return old
        source = Source(self._host, self._lane(schema.name), schema, options, self._next_epoch())
        await source.open()
        self.sources[schema.name] = source
        if old is not None:
            await old.close()
        return source

    def source_of(self, event: object) -> Source | None:
        """Who publishes an event, if its schema has a transport; what is no event is refused elsewhere."""
        return self.sources.get(event.schema.name) if isinstance(event, Event) else None

    async def publish_without(self, name: str) -> None:
        """Events of this schema carry no header any more."""
        source = self.sources.pop(name, None)
        if source is not None:
            await source.close()

    def published(self, name: str) -> SenderStatistics | None:
        """What was done for the events of a schema."""
        source = self.sources.get(name)
        return None if source is None else source.statistics()

    def renewed(self) -> None:
        """There is a new connection: streams go on, whatever the plane calls the node now, and say how far they are."""
        for source in self.sources.values():
            source.renewed()
        for sink in self._sinks.values():
            sink.renewed()

    async def close(self) -> None:
        """Publishers send what waits and stay as long as they were asked to; then everything ends.

        Raises `Unavailable` in the end if something could not be sent.
        """
        closing = [source.close() for source in self.sources.values()]
        failed = [each for each in await asyncio.gather(*closing, return_exceptions=True) if each is not None]
        await self._chores.close()
        unsent = [str(each) for each in failed if isinstance(each, Unavailable)]
        if unsent:
            raise Unavailable("; ".join(unsent))
