"""A node of the router overlay: the same calls as `Node`, at a router instead of a fabric's daemon.

    async with sievenet.connect("sievenet+router://127.0.0.1:7500") as node:
        async with await node.subscribe("stock: price > 420") as feed: ...

Events go and come on the control connection, in batches. There is no index plan and no data port; schemaless records
and filters are welcome (`Record`, text without a schema's name). A lost connection is taken up again, and everything is
registered anew; what was published meanwhile waits.
"""

from __future__ import annotations

import re
import ssl
import time
from asyncio import Event as Signal
from asyncio import gather
from collections.abc import Callable, Iterable
from typing import Any, Final, Self

from sievenet.client.advertisement import Advertisement
from sievenet.client.delivery import Delivery
from sievenet.client.edge import Edge
from sievenet.client.feed import Callback, Feed, Tally
from sievenet.client.inbox import Overflow, Policy
from sievenet.client.ledger import Kind, Ledger, Registration
from sievenet.client.overlay_link import Making, OverlayLink
from sievenet.client.receiver import ReceiverStatistics
from sievenet.client.statistics import NodeStatistics
from sievenet.content.batch import EventBatch
from sievenet.content.batch_codec import encode_batch
from sievenet.content.codec import decode_schema, encode_record, encode_schema, encode_subscription
from sievenet.content.event import Event, Record
from sievenet.content.filter import Filter, Subscription
from sievenet.content.parser import parse_subscription
from sievenet.content.schema import Schema
from sievenet.errors import InvalidInput, Rejected, SchemaError, SievenetError, Unavailable
from sievenet.routers import protocol as p
from sievenet.routers.messages import Carried
from sievenet.routers.shipment import Shipment

__all__ = ["OverlayNode"]

_PREFIX: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_.-]*)\s*(?::|$)")
#: Events sent together.
_CHUNK: Final = 2048

Wanted = str | Filter | Subscription | Schema


class OverlayNode:
    """Made by `connect` with a router's URL."""

    def __init__(
        self,
        url: str,
        *,
        name: str | None = None,
        timeout: float = 30.0,
        reconnect: bool = True,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._link = OverlayLink(
            url,
            name=name,
            timeout=timeout,
            reconnect=reconnect,
            tls=tls,
            restore=self._restore,
            arrived=self._arrived,
        )
        self._ledger = Ledger()
        self._schemas: dict[int, Schema | None] = {0: None}
        self._categories: dict[str, int] = {}
        self._edges: dict[int, Edge] = {}
        self._feeds: dict[int, Feed] = {}
        self._offers: dict[int, list[Registration]] = {}
        self._room = Signal()
        self.tally = Tally()
        self._published = self._received = self._unmatched = self._malformed = self._strangers = 0

    @property
    def name(self) -> str:
        """The node's name at its router."""
        return self._link.name or ""

    @property
    def host(self) -> str:
        """The router's name: where this node is attached."""
        return self._link.router

    @property
    def connected(self) -> bool:
        """Whether the connection stands and everything is registered."""
        return self._link.connected

    async def start(self) -> Self:
        """Connect; `connect` does this."""
        await self._link.start()
        return self

    async def close(self) -> None:
        """Take back everything and disconnect; feeds end after what they have queued."""
        self._room.set()
        await self._link.close()
        feeds, self._feeds = list(self._feeds.values()), {}
        for feed in feeds:
            feed.end()
        await gather(*(feed.drained() for feed in feeds))

    async def _restore(self) -> None:
        """Register everything at a router that may know nothing of it."""
        for schema in [s for s in self._schemas.values() if s is not None]:
            await self._link.request(lambda number: p.Register(number, encode_schema(schema)))  # noqa: B023
        await gather(*(self._link.request(self._registering(entry)) for entry in self._ledger))

    # -- schemas --------------------------------------------------------------------------

    async def schema(self, wanted: str | Schema) -> Schema:
        """Look a schema up by name, or register one."""
        _, schema = await self._category(wanted)
        assert schema is not None
        return schema

    async def _category(self, wanted: str | Schema) -> tuple[int, Schema | None]:
        if isinstance(wanted, str):
            known = self._categories.get(wanted)
            if known is not None:
                return known, self._schemas[known]
            answer = await self._link.call(lambda number: p.LookUp(number, wanted))
        else:
            known = self._categories.get(wanted.name)
            if known is not None and self._schemas[known] == wanted:
                return known, self._schemas[known]
            answer = await self._link.call(lambda number: p.Register(number, encode_schema(wanted)))
        schema = decode_schema(answer.schema) if isinstance(wanted, str) else wanted
        self._schemas[answer.category] = schema
        self._categories[schema.name] = answer.category
        return answer.category, schema

    async def _wanted(self, wanted: Wanted) -> tuple[int, Subscription]:
        match wanted:
            case str():
                named = _PREFIX.match(wanted)
                if named is None:
                    return 0, parse_subscription(wanted)
                category, schema = await self._category(named[1])
                assert schema is not None
                if named.end() == len(wanted) and not wanted.rstrip().endswith(":"):
                    return category, Subscription([Filter(schema)])
                return category, parse_subscription(wanted, {schema.name: schema})
            case Schema():
                category, schema = await self._category(wanted)
                return category, Subscription([Filter(schema)])
            case Filter() | Subscription():
                every = Subscription([wanted]) if isinstance(wanted, Filter) else wanted
                if every.schema is None:
                    return 0, every
                return (await self._category(every.schema))[0], every
        raise InvalidInput(expected="text, a filter, a subscription or a schema", got=wanted)

    def _registering(self, entry: Registration) -> Making:
        message = p.Subscribe if entry.kind == "subscription" else p.Advertise
        category = self._categories[entry.category] if entry.category else 0
        return lambda number: message(number, entry.id, category, entry.content)

    async def _register(self, kind: Kind, category: int, wanted: Subscription) -> Registration:
        schema = self._schemas[category]
        return self._ledger.add(kind, "" if schema is None else schema.name, wanted, encode_subscription(wanted))

    # -- publishing -----------------------------------------------------------------------

    async def advertise(self, what: Wanted) -> Advertisement:
        """Say what this node will publish; only that may be published."""
        category, wanted = await self._wanted(what)
        entry = await self._register("advertisement", category, wanted)
        try:
            await self._link.call(self._registering(entry))
        except SievenetError:
            self._ledger.remove(entry)
            raise
        self._offers.setdefault(category, []).append(entry)
        return Advertisement(self, entry)  # type: ignore[arg-type]

    async def unadvertise(self, advertisement: Advertisement) -> None:
        """Take an advertisement back."""
        entry = advertisement.registration
        for entries in self._offers.values():
            if entry in entries:
                entries.remove(entry)
        if self._ledger.remove(entry):
            await self._link.call(lambda number: p.Unadvertise(number, entry.id))

    async def publish(self, event: Event | Record) -> None:
        """Publish one event, or a schemaless record. Raises if it is not advertised."""
        await self.publish_many([event] if isinstance(event, Record) else EventBatch.from_events(event.schema, [event]))

    async def publish_many(self, events: EventBatch | Iterable[Event] | Iterable[Record]) -> int:
        """Publish events of one kind, in order; returns how many."""
        if isinstance(events, EventBatch):
            rows: EventBatch | list[Record] = events
        else:
            every: list[Any] = list(events)
            if not every:
                return 0
            if isinstance(every[0], Record):
                rows = every
            else:
                rows = EventBatch.from_events(every[0].schema, every)
        category = self._publishable(rows)
        for start in range(0, len(rows), _CHUNK):
            await self._link.ready()
            writer = self._link.writer
            assert writer is not None
            chunk = (
                rows.take(slice(start, start + _CHUNK))
                if isinstance(rows, EventBatch)
                else rows[start : start + _CHUNK]
            )
            first, self._link.sequence = self._link.sequence, self._link.sequence + len(chunk)
            batch = encode_batch(chunk) if isinstance(chunk, EventBatch) else b""
            records = () if isinstance(chunk, EventBatch) else tuple(map(encode_record, chunk))
            writer.write(p.frame(p.Publish(category, first, time.time_ns(), batch, records)))
            self._published += len(chunk)
            try:
                await writer.drain()
            except OSError as error:
                raise Unavailable(f"Connection lost: {error}") from None
        return len(rows)

    def _publishable(self, rows: EventBatch | list[Record]) -> int:
        """The category of some events, once each of them is advertised."""
        schema = rows.schema if isinstance(rows, EventBatch) else None
        category = 0 if schema is None else self._categories.get(schema.name, -1)
        if schema is not None and (category < 0 or self._schemas[category] != schema):
            raise SchemaError(expected="events of a schema that is advertised", got=schema.name)
        offers = self._offers.get(category, [])
        for wanted in (entry.wanted for entry in offers):
            if any(not f.constraints for f in wanted.filters):
                return category
        for event in rows:
            if not any(entry.wanted.matches(event) for entry in offers):
                raise Rejected(f"Expected an event that is advertised, got {event}")
        return category

    # -- subscribing ----------------------------------------------------------------------

    async def subscribe(
        self,
        what: Wanted,
        callback: Callback | None = None,
        *,
        queue: int = 10_000,
        when_full: Policy = "drop_oldest",
        on_overflow: Callable[[Overflow], None] | None = None,
    ) -> Feed:
        """Subscribe; when this returns, every router knows, and delivery begins."""
        category, wanted = await self._wanted(what)
        entry = await self._register("subscription", category, wanted)
        feed = Feed(self, entry, queue=queue, when_full=when_full, callback=callback, on_overflow=on_overflow)
        self._feeds[entry.id] = feed
        # The edge only tells the feeds of this node apart; without a schema its decisions are the same.
        edge = self._edges.setdefault(category, Edge(self._schemas[category]))  # type: ignore[arg-type]
        edge.add(entry.id, wanted)
        try:
            await self._link.call(self._registering(entry))
        except BaseException as error:
            self._ledger.remove(entry)
            self._drop(feed, category)
            feed.end(error if isinstance(error, SievenetError) else None)
            raise
        return feed

    async def unsubscribe(self, feed: Feed) -> None:
        """Take a subscription back; its feed ends at once."""
        entry = feed.registration
        self._drop(feed, self._categories[entry.category] if entry.category else 0)
        feed.end()
        if self._ledger.remove(entry):
            await self._link.call(lambda number: p.Unsubscribe(number, entry.id))
        await feed.drained()

    def _drop(self, feed: Feed, category: int) -> None:
        self._feeds.pop(feed.registration.id, None)
        self._edges[category].remove(feed.registration.id)
        self._room.set()

    def explain(self) -> None:
        """Nothing waits to be explained: a router delivers by exact filters."""

    def room(self) -> None:
        """There is room again in a queue that was full."""
        self._room.set()

    async def _arrived(self, message: Carried) -> None:
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
        for event, sequence, departure in zip(shipment.rows(), sequences, departures, strict=True):
            keys = edge.match(event)  # type: ignore[arg-type]
            self._received += 1
            self._unmatched += not keys
            for key in keys:
                feed = self._feeds.get(key)
                if feed is None:
                    continue
                delivery = Delivery(event, shipment.publisher, sequence, departure, now)  # type: ignore[arg-type]
                while not feed.accept(delivery):
                    # Not reading on is what makes the router, and so the publisher, wait.
                    self._room.clear()
                    await self._room.wait()

    # -- operating ------------------------------------------------------------------------

    async def ask(self, about: str, of: str = "") -> Any:
        """Ask the router: ``status``, or ``explain`` of a filter."""
        return await self._link.call(lambda number: p.Ask(number, about, of))

    def statistics(self) -> NodeStatistics:
        """Counts since the node began."""
        received = ReceiverStatistics(
            received=self._received,
            matched=self._received - self._unmatched,
            false_positives=self._unmatched,
            unexplained=self._unmatched,
            duplicates=0,
            late=0,
            malformed=self._malformed,
            strangers=self._strangers,
        )
        return NodeStatistics(
            published=self._published,
            unwanted=0,
            received=received,
            delivered=self.tally.delivered,
            dropped=self.tally.dropped,
            losses=self._link.losses,
            connected=self.connected,
        )
