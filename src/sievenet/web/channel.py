"""A channel: one subscription of one person, with the streams that read it.

Streams of one person with the same filter share a subscription and its window. When the last one leaves, the channel
lingers: whoever comes back within that time, with the identifier of the last event that it saw, has missed nothing.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import Any

import msgspec

from sievenet.access.permissions import Permissions
from sievenet.client import Delivery, Feed, Node
from sievenet.client.feed import Whole
from sievenet.content import Schema, Subscription
from sievenet.errors import SievenetError
from sievenet.web.broadcast import Broadcast
from sievenet.web.frame import parse_identifier
from sievenet.web.stream import Stream

__all__ = ["Channel", "shown"]

_ENCODER = msgspec.json.Encoder()


def shown(delivery: Delivery) -> bytes:
    """A delivery as JSON, as `sievenet sub --json` has it."""
    event = delivery.event
    found: dict[str, Any] = {
        "schema": event.schema.name,
        "event": dict(event.items()),
        "publisher": f"{delivery.publisher:016x}",
        "incarnation": f"{delivery.incarnation:016x}",
        "sequence": delivery.sequence,
        "latency": round(delivery.latency, 6),
    }
    if event.payload:
        found["payload"] = b64encode(event.payload).decode()
    return _ENCODER.encode(found)


class Channel(Broadcast):
    """Made by a `Resident`; ``left`` is when its last stream went, or None while it has some."""

    def __init__(self, wanted: Subscription, size: int) -> None:
        super().__init__(size)
        self.wanted = wanted
        #: What of it the rules let this person have.
        self.allowed = wanted
        self.left: float | None = None
        self._feed: Feed | None = None
        self._watch: asyncio.Task[None] | None = None
        #: Done when the paths exist, or failed.
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.events = 0
        self._forbidden = False

    @property
    def over(self) -> bool:
        """Whether the network does not carry this subscription any more, or will end it."""
        return self._forbidden or (self._watch is not None and self._watch.done())

    async def open(self, node: Node) -> bool:
        """Subscribe; whoever waits for `ready` is told how that went. False if there is no subscription."""
        try:
            self._feed = await node.subscribe(self.wanted, Whole(self._take))
        except SievenetError as error:
            self.ready.set_exception(error)
            self.ready.exception()  # if nobody waits any more, so be it
            return False
        self._watch = asyncio.create_task(self._until_it_ends(self._feed))
        self.left = asyncio.get_running_loop().time()
        self.ready.set_result(None)
        return True

    def _take(self, delivery: Delivery) -> None:
        self.events += 1
        self.add(shown(delivery), delivery.event.schema)

    async def _until_it_ends(self, feed: Feed) -> None:
        """A feed with a callback has nothing to iterate: it ends, well or with an error."""
        reason = "the subscription has ended"
        try:
            await feed.next()
        except StopAsyncIteration:
            pass
        except Exception as error:
            reason = str(error)
        self.end(reason)

    def hold_to(self, rules: Permissions) -> None:
        """The rules have changed: what is kept for those who are slow or come back is held to them too."""
        found: dict[Schema, Subscription | None] = {}

        def allows(schema: Schema, message: bytes) -> bool:
            if schema not in found:
                found[schema] = rules.within("subscribe", schema)
            within = found[schema]
            return within is None or within.matches(schema.event_of(msgspec.json.decode(message)["event"]))

        self.window.hold_to(allows)

    def narrow(self, allowed: Subscription) -> None:
        """The rules have changed, and let it be less than it was: tell those who read."""
        self.allowed = allowed
        for stream in list(self.streams):
            stream.say("narrowed", _ENCODER.encode({"filter": str(allowed)}))

    def forbid(self, reason: str) -> None:
        """The rules have changed, and let it be nothing: the network will end it, nobody reads on meanwhile."""
        self._forbidden = True
        self.end(reason)

    def cursor(self, last: str) -> tuple[int, bool]:
        """Where a client reads on that saw this identifier last; and whether what it missed is not known."""
        if not last:
            return self.window.next, False
        found = parse_identifier(last)
        if found is None or found[0] != self.life or found[1] >= self.window.next:
            return self.window.next, True
        return found[1] + 1, False

    def leave(self, stream: Stream) -> None:
        """A stream does not follow any more, or has ended."""
        super().leave(stream)
        if not self.streams and self.left is None:
            self.left = asyncio.get_running_loop().time()

    def enter(self, stream: Stream) -> None:
        """A stream begins."""
        self.left = None
        super().enter(stream)

    async def close(self) -> None:
        """Take the subscription back."""
        self.end("the server is closing")
        if self._feed is not None:
            await self._feed.close()
        if self._watch is not None:
            await asyncio.gather(self._watch, return_exceptions=True)
