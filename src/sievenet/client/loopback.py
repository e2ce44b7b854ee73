"""What a node publishes and wants itself: given to its own feeds here, and never brought back by the network.

A switch sends nothing out where it came in, Open vSwitch and the kernel drop what comes back, and a router does not
return a client's own events. So whatever the network is, a node's own events reach its feeds by this one way: as soon
as they are sent, in the order of publishing, exactly once, without loss. A transport has nothing to order or to recover
here and is passed by. `subscribe(own=False)` is for those who want only what others say.

    publish ─▶ network
       └─────▶ samples (tap, daemon), own feeds that match

A feed whose queue is full and that lets the network wait (`when_full="wait"`) makes its own node's `publish` wait too.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from sievenet.client.delivery import Delivery
from sievenet.client.feed import Feed
from sievenet.client.sampler import Sampler
from sievenet.content.batch import EventBatch
from sievenet.content.event import Event, Record

if TYPE_CHECKING:
    from sievenet.tap import Taps

__all__ = ["Loopback"]


class Loopback:
    """The way from a node's publishing side to its own feeds and its tap.

    `matching` names the feeds of this node that an event matches; `identity` is the node's number as a publisher and
    its incarnation.
    """

    def __init__(
        self, matching: Callable[[Event | Record], Iterable[Feed]], identity: Callable[[], tuple[int, int]]
    ) -> None:
        self._matching = matching
        self._identity = identity
        #: Samples what is published, for the pipeline.
        self.taps: Taps | None = None
        #: The same for a daemon that tunes itself.
        self.sampler = Sampler()
        #: Feeds that take the node's own events, by the names of their schemas.
        self._feeds: Counter[str] = Counter()
        self._room = asyncio.Event()
        self._sequence = 0

    def opened(self, feed: Feed) -> None:
        """A feed has begun."""
        self._feeds[feed.registration.category] += feed.own

    def closed(self, feed: Feed) -> None:
        """A feed is no more, and nobody waits for it."""
        self._feeds[feed.registration.category] -= feed.own
        self._room.set()

    def room(self) -> None:
        """A queue that was full has room."""
        self._room.set()

    def close(self) -> None:
        """Nothing more is published: what was sampled is written."""
        if self.taps is not None:
            self.taps.close()

    def hears(self, name: str) -> bool:
        """Whether anybody here wants to know what this node publishes of a schema."""
        return self.taps is not None or self.sampler.size > 0 or self._feeds.get(name, 0) > 0

    async def published(self, events: EventBatch | Sequence[Event] | Sequence[Record], name: str) -> None:
        """Events of one schema (or records, which have none) have been given to the network."""
        if self.sampler.size and isinstance(first := events[0], Event):
            self.sampler.offer(first.schema, events)  # type: ignore[arg-type]
        wanted = self._feeds[name] > 0
        if self.taps is None and not wanted:
            return
        now = time.time_ns()
        for event in events:
            if self.taps is not None and isinstance(event, Event):
                self.taps.offer(event, now / 1e9)
            if wanted:
                await self._give(event, now)

    async def _give(self, event: Event | Record, now: int) -> None:
        publisher, incarnation = self._identity()
        delivery = Delivery(event, publisher, self._sequence, now, now, incarnation=incarnation, own=True)  # type: ignore[arg-type]
        self._sequence += 1
        for feed in self._matching(event):
            while feed.own and not feed.accept(delivery):
                self._room.clear()
                await self._room.wait()
