"""A publisher's end of the transport in one category, around `transport.sender.Sender`.

publish ─▶ bits ─▶ Sender ─▶ Publish ─▶ header in front of the payload ─▶ the node's plane
▲ full: wait, or refuse   ╲
control messages, alarm                  Send ─▶ lane
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sievenet.client.transport.endpoint import Alarm, Endpoint
from sievenet.client.transport.exchange import to_node
from sievenet.client.transport.host import Host
from sievenet.client.transport.shim import MARK, stamped
from sievenet.content.codec import encode_event
from sievenet.content.event import MAX_PAYLOAD, Event
from sievenet.content.schema import Schema
from sievenet.errors import EventError, SievenetError, Unavailable
from sievenet.transport.actions import Action, Publish, Send
from sievenet.transport.bloom import Tagger
from sievenet.transport.codec import HEADER, Kind
from sievenet.transport.options import Publishing
from sievenet.transport.sender import Sender
from sievenet.transport.statistics import SenderStatistics

if TYPE_CHECKING:
    from sievenet.client.feed import Feed

__all__ = ["Source"]

log = logging.getLogger("sievenet.client")

#: Events stamped before they are handed to the plane together.
_CHUNK: Final = 256
#: Room left in a packet for what goes around a digest: the event of the lane, and the plane's header.
_AROUND: Final = 64
#: Seconds after which a closing publisher looks again whether the network is whole.
_AGAIN: Final = 0.1
#: What a publisher that is about to leave stays for.
_QUESTIONS: Final = (Kind.REQUEST, Kind.INQUIRY)


class Source:
    """What one node publishes in one category."""

    def __init__(self, host: Host, lane: Endpoint, schema: Schema, options: Publishing, epoch: int) -> None:
        self._host, self._lane = host, lane
        self.options = options
        self._schema = schema
        #: `close` was called, and has ended.
        self._closing = self._closed = False
        self._tagger = Tagger(schema, options.width)
        self._alarm = Alarm(lane.now, self._expire)
        self._waiters: set[asyncio.Future[None]] = set()
        self._control: Feed | None = None
        #: Bytes that a stamp adds to an event at most.
        self._stamp = len(MARK) + HEADER + options.record * (4 + options.width // 8)
        #: Messages that could not be handed to the plane when their turn came; the log has them.
        self.unsent = 0
        #: When somebody last asked for something, by the loop's clock.
        self._asked = 0.0
        self.sender = self._begun(epoch)

    def _begun(self, epoch: int) -> Sender:
        largest = min(self._host.largest or MAX_PAYLOAD, MAX_PAYLOAD) - _AROUND
        return Sender(self._host.identity, self.options, epoch=epoch, largest=largest, describe=_content)

    # -- life -----------------------------------------------------------------------------

    async def open(self) -> None:
        """Hear what receivers say."""
        await self._lane.open()
        old, self._control = self._control, None
        self._control = await self._lane.listen([to_node(self._lane.schema, self.sender.publisher)], self._hear)
        if old is not None:
            await old.close()

    def renewed(self) -> None:
        """There is a connection again."""
        self._do(self.sender.renewed(self._lane.now()))
        self._alarm.set(self.sender.timer(self._lane.now()))

    async def close(self) -> None:
        """Send what waits, say that this was all, stay to answer as long as was asked for, and go.

        `Unavailable` if something was not sent, or if a part of the network cannot have heard that this was all: a
        subscriber there would not know that it misses anything.
        """
        if self._closing:
            return
        self._closing = True
        loop = asyncio.get_running_loop()
        await self._until(loop.time() + self.options.drain, lambda: not len(self.sender.queue))
        left = len(self.sender.queue)
        lack = await self._say_end(loop.time() + self.options.drain)
        if self.options.log:
            stayed = loop.time()
            quiet = lambda: loop.time() >= max(stayed, self._asked) + self.options.linger  # noqa: E731
            await self._until(stayed + self.options.linger + self.options.drain, quiet)
        self._alarm.cancel()
        self._closed = True
        self._wake()
        if self._control is not None:
            control, self._control = self._control, None
            with suppress(SievenetError):  # the connection is gone, and the registration with it
                await control.close()
        name = self._schema.name
        if left:
            raise Unavailable(
                f"{left} events of {name} were not sent: receivers slow this publisher down, and "
                f"{self.options.drain:g} s were not enough for the rest. Set `drain` higher, or publish less"
            )
        if self.unsent and not self.options.log:
            raise Unavailable(f"{self.unsent} events of {name} were not sent: there was no connection in their turn")
        if lack:
            raise Unavailable(
                f"Some subscribers of {name} may have missed events and not know it: {lack} within "
                f"{self.options.drain:g} s after the last one. Publish them again, or set `drain` higher"
            )

    async def _say_end(self, until: float) -> str:
        """Say that this was all, until the whole network has heard it; why it has not, when the time is over."""
        self._say_now()
        if not self.options.digest or not self.sender.statistics().published:
            return ""
        loop, warned = asyncio.get_running_loop(), False
        while True:
            before = after = await self._host.reach()
            if not before.lack:
                self._say_now()
                after = await self._host.reach()
                if after == before:
                    return ""
            if loop.time() >= until:
                return after.lack or "the network changed all the time"
            if not warned and after.lack:
                warned = True
                log.warning("%s: %s; waiting for up to %.0f s", self._schema.name, after.lack, until - loop.time())
            await asyncio.sleep(_AGAIN)

    def _say_now(self) -> None:
        self._do(self.sender.end(self._lane.now()))
        self._alarm.set(self.sender.timer(self._lane.now()))

    async def _until(self, end: float, done: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < end and not done():
            await asyncio.sleep(min(0.02, max(0.0, end - loop.time())))

    # -- publishing -----------------------------------------------------------------------

    async def publish(self, event: Event) -> None:
        """Publish one event that is advertised; waits or raises, as set, when too many wait."""
        await self.publish_many((event,))

    async def publish_many(self, events: Iterable[Event]) -> None:
        """Publish events in order."""
        ready: list[Event] = []
        for event in events:
            body = self._checked(event)
            bits = self._tagger.event(event)
            while self.options.when_full == "wait" and self.sender.blocked(bits):
                await self._hand_over(ready)
                await self._room()
                if self._closed:
                    raise Unavailable("The node is closed")
            try:
                actions = self.sender.publish(bits, body, self._lane.now(), (event, len(body)))
            except SievenetError:
                await self._hand_over(ready)
                raise
            ready += [_whole(action) for action in actions if isinstance(action, Publish)]
            if len(ready) >= _CHUNK:
                await self._hand_over(ready)
        await self._hand_over(ready)
        self._alarm.set(self.sender.timer(self._lane.now()))

    async def _hand_over(self, ready: list[Event]) -> None:
        if not ready:
            return
        events = ready[:]
        ready.clear()
        try:
            room = self._host.emit(events)
        except Unavailable:
            if not self.options.log:
                await self._host.flushed()  # none of them has left
                self._host.emit(events)
                return
            # They are numbered and in the log: receivers that miss them ask.
            self.unsent += len(events)
            room = False
        if not room:
            await self._host.flushed()

    def _checked(self, event: Event) -> bytes:
        """The event's bytes if somebody may ask for it again; `EventError` if it is too long with a stamp."""
        largest = self._host.largest
        room = MAX_PAYLOAD - self._stamp
        if len(event.payload) > room:
            raise EventError(
                f"Expected at most {room} bytes of payload beside the transport's header, got {len(event.payload)}"
            )
        if not self.options.log and (not largest or len(event.payload) + self._stamp + 512 < largest):
            return b""
        body = encode_event(event)
        if largest and len(body) + self._stamp > largest:
            room = largest - self._stamp
            raise EventError(f"Expected at most {room} bytes of event beside the transport's header, got {len(body)}")
        return body if self.options.log else b""

    async def _room(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        self._alarm.set(self.sender.timer(self._lane.now()))
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    # -- what happens ---------------------------------------------------------------------

    def _hear(self, data: bytes, _speaker: int) -> None:
        now = self._lane.now()
        if data and data[0] & 15 in _QUESTIONS:
            self._asked = asyncio.get_running_loop().time()
        self._do(self.sender.receive(data, now))
        self._alarm.set(self.sender.timer(now))

    def _expire(self) -> None:
        now = self._lane.now()
        self._do(self.sender.expire(now))
        self._alarm.set(self.sender.timer(now))

    def _do(self, actions: list[Action]) -> None:
        events = [_whole(action) for action in actions if isinstance(action, Publish)]
        if events:
            try:
                self._host.emit(events)
            except SievenetError:
                self.unsent += len(events)
        for action in actions:
            if isinstance(action, Send):
                self._lane.say(action, self.sender.publisher)
        if self._waiters and not self.sender.queue.full:
            self._wake()

    def statistics(self) -> SenderStatistics:
        """What the transport did for this publisher."""
        return self.sender.statistics()


def _content(context: tuple[Event, int]) -> Callable[[], bytes]:
    """What an event says, without its payload: encoded only if somebody asks."""
    bare = Event.trusted(context[0].schema, context[0].values)
    return lambda: encode_event(bare)


def _whole(publish: Publish) -> Event:
    event, body = publish.context
    return stamped(event, publish.data[: len(publish.data) - body])
