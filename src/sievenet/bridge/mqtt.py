"""A bridge to MQTT: messages become events, and events become messages, as a mapping file says.

    broker ──▶ message ──mapping──▶ event ──▶ publish ──▶ acknowledge (QoS 1)
    broker ◀── message ◀─mapping── event ◀── subscribe

What QoS means across the bridge: a message of QoS 1 is acknowledged when the network has said that it took its event,
so a bridge that is killed finds it again at the broker, and what was dropped over a quota is published again; it may
then come twice. From there on the network's own guarantees count (at most once, or recovered with a transport). An
event that matches is kept in a bounded queue until the broker has it; when the queue is full the oldest are dropped and
counted. A bridge that ends takes no more and first gives the broker what waits; what remains is counted too. A message
that is no event is counted and done with.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, Final, Self

from sievenet.bridge.broker import Address, Broker, Message
from sievenet.bridge.mapping import Inbound, Mapping, Outbound
from sievenet.bridge.topic import Template
from sievenet.client import Feed, Node
from sievenet.content import Event, Schema
from sievenet.errors import Dropped, InvalidInput, Rejected, SievenetError, Unavailable
from sievenet.session.lifetime import Starting, ended

__all__ = ["Bridge"]

log = logging.getLogger("sievenet.bridge")

#: Events that wait for the broker, of each [[out]].
_QUEUE: Final = 10_000
#: Seconds before a network that is away is tried again.
_AGAIN: Final = 0.5
#: Messages at most after which the network is asked what it took.
_BATCH: Final = 32
#: Seconds that events which wait for the broker have when the bridge ends.
_LAST: Final = 5.0
#: Of messages that are no events, so many are told in full.
_TOLD: Final = 20


class Bridge(Starting):
    """Runs between a node and a broker; use as an async context manager."""

    def __init__(
        self, node: Node, mapping: Mapping, address: Address, *, client_id: str, network: str, **broker: Any
    ) -> None:
        self._node, self._mapping = node, mapping
        self.broker = Broker(address, client_id, network, self._taken, **broker)
        #: Bounded by what the broker lets be under way, and the connection that the last one came by.
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self._connection = 0
        self._inbound: list[tuple[Inbound, Template, Schema]] = []
        self._feeds: list[tuple[Outbound, Template, Feed]] = []
        #: The first takes messages in, the others give events out.
        self._tasks: list[asyncio.Task[None]] = []
        #: Events that are in no queue any more, and that the broker has not been given.
        self._in_hand = 0
        #: Events that the broker did not have at the end, and those of them that it had been given.
        self._left = self._unsettled = 0
        self.received = self.published = self.bad = self.sent = 0
        #: Events that the network dropped: over a quota, or against the rules.
        self.refused = 0
        #: How often it was over a quota.
        self._over = 0

    async def start(self, timeout: float = 10.0, load: Callable[[str], Schema] | None = None) -> Self:
        """Check the mapping against the network's schemas, connect, and begin; ``load`` reads files with schemas."""
        for path in self._mapping.schemas:
            assert load is not None
            await self._node.schema(load(path))
        for each in self._mapping.inbound:
            schema = await self._node.schema(each.category)
            each.check(schema)
            self._inbound.append((each, Template(each.topic), schema))
        for schema in dict.fromkeys(schema for _, _, schema in self._inbound):
            await self._node.advertise(schema)
        await self.broker.start(timeout)
        try:
            for out in self._mapping.outbound:
                feed = await self._node.subscribe(out.filter, queue=_QUEUE, when_full="drop_oldest")
                schema_ = feed.subscription.schema
                if schema_ is None:
                    raise InvalidInput(expected="a filter with a schema", got=out.filter, where="out.filter")
                out.check(schema_)
                self._feeds.append((out, Template(out.topic), feed))
            work = (self._take_in(), *map(self._give, self._feeds))
            self._tasks = [asyncio.create_task(each) for each in work]
            patterns: dict[str, int] = {}
            for each, template, _ in self._inbound:
                patterns[template.pattern] = max(each.qos, patterns.get(template.pattern, 0))
            await self.broker.subscribe(patterns)
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Stop, when the broker has what waits for it, or after some seconds; what it was not told of, it keeps."""
        giving = self._tasks[1:]
        await ended(*self._tasks[:1])
        for _, _, feed in self._feeds:
            feed.end()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST):
                await asyncio.gather(*giving, return_exceptions=True)
                await self.broker.emptied()
        await ended(*giving)
        self._unsettled = self.broker.unsettled
        self._left = self._unsettled + self._in_hand + sum(feed.waiting for _, _, feed in self._feeds)
        if self._left:
            log.warning("the bridge ended before the MQTT broker had %d events, they may be lost", self._left)
        await self.broker.close()

    def statistics(self) -> dict[str, int]:
        """Counts since it began."""
        return {
            "received": self.received,
            "published": self.published,
            "bad": self.bad,
            "refused": self.refused,
            "dropped_in": self.broker.dropped,
            "loops": self.broker.loops,
            "sent": self.sent - self._unsettled,
            "dropped_out": self._left + sum(feed.statistics().dropped for _, _, feed in self._feeds),
            "connections": self.broker.connections,
        }

    async def wait(self) -> None:
        """Returns when one of its tasks has failed, by raising what it raised."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    # -- broker → network -----------------------------------------------------------------

    def _taken(self, message: Message) -> None:
        if message.connection != self._connection:
            self._connection = message.connection
            for each in [self._messages.get_nowait() for _ in range(self._messages.qsize())]:
                if self.broker.stale(each):
                    self.broker.done(each)
                else:
                    self._messages.put_nowait(each)
        self._messages.put_nowait(message)

    async def _take_in(self) -> None:
        most = 1
        while True:
            batch = [await self._messages.get()]
            while len(batch) < most and not self._messages.empty():
                batch.append(self._messages.get_nowait())
            self.received += len(batch)
            taken = await self._given([event for message in batch for event in self._events(message)])
            # Which of them were dropped nobody knows: one by one, none comes twice but these.
            for message in batch if not taken else ():
                while message.qos and not await self._given(self._events(message, again=True)):
                    await asyncio.sleep(_AGAIN)
            most = min(2 * most, _BATCH) if taken else 1
            for message in batch:
                self.broker.done(message)

    async def _given(self, events: list[Event]) -> bool:
        """Publish events; whether the network has them, but for those that it never takes."""
        over, refused, given = self._over, self.refused, 0
        for event in events:
            given += await self._publish(event)
        while events:
            try:
                await self._node.confirmed()
            except Dropped as error:
                self._dropped(error)
            except Unavailable as error:
                log.info("the network is away, and may not have taken what it was given last: %s", error)
                return False
            except Rejected as error:
                log.info("the network does not say what it took, asking again: %s", error)
                await asyncio.sleep(_AGAIN)
                continue
            break
        self.published += max(0, given - (self.refused - refused))
        return self._over == over

    def _dropped(self, error: Dropped) -> None:
        self.refused += max(1, error.count)
        self._over += error.quota

    def _events(self, message: Message, *, again: bool = False) -> list[Event]:
        found = []
        for each, template, schema in self._inbound:
            if template.values(message.topic) is None:
                continue
            try:
                found.append(each.event(schema, template, message.topic, message.body))
            except SievenetError as error:
                if not again:
                    self._told(f"a message of {message.topic!r} is no event of {schema.name}: {error}")
        return found

    async def _publish(self, event: Event) -> bool:
        """Give an event to the network; whether that was possible at all."""
        while True:
            try:
                await self._node.publish(event)
            except Unavailable as error:
                log.info("the network is away, trying again: %s", error)
                await asyncio.sleep(_AGAIN)
            except Dropped as error:
                # Of others, before: this one was not sent, and is not to blame. A quota has room again soon.
                self._dropped(error)
                await asyncio.sleep(_AGAIN)
            except (InvalidInput, Rejected) as error:
                if isinstance(error, Rejected) and not self._node.connected:
                    # Not the event is refused, but the bridge: the broker keeps what it has for us.
                    log.warning("the network does not let this bridge in, trying again: %s", error)
                    await asyncio.sleep(_AGAIN)
                    continue
                self._told(f"an event of {event.schema.name} was refused: {error}")
                return False
            else:
                return True

    def _told(self, text: str) -> None:
        self.bad += 1
        if self.bad <= _TOLD:
            log.warning("%s%s", text, "; further ones are only counted" if self.bad == _TOLD else "")

    # -- network → broker -----------------------------------------------------------------

    async def _give(self, entry: tuple[Outbound, Template, Feed]) -> None:
        out, template, feed = entry
        with contextlib.suppress(asyncio.CancelledError):
            async for event in feed:
                self._in_hand += 1
                try:
                    topic, body = out.message(template, event)
                    await self.broker.publish(topic, body, out.qos, out.retain)
                    self.sent += 1
                except SievenetError as error:
                    self._told(f"an event cannot be a message: {error}")
                self._in_hand -= 1
