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
from asyncio import gather
from collections.abc import Callable, Iterable
from typing import Any, Final, Self

from sievenet.client.advertisement import Advertisement
from sievenet.client.delivery import Delivery
from sievenet.client.feed import Callback, Feed, Tally
from sievenet.client.inbox import Overflow, Policy
from sievenet.client.ledger import Kind, Ledger, Registration
from sievenet.client.overlay.helping import Helping
from sievenet.client.overlay.landing import Landing
from sievenet.client.overlay.link import Making, OverlayLink
from sievenet.client.receiver import Sink, Straight
from sievenet.client.statistics import NodeStatistics
from sievenet.client.transport.overlay_host import OverlayHost
from sievenet.client.transport.shim import batch_escaped
from sievenet.client.transport.sink import Asked
from sievenet.client.transport.transport import Transport, publishing
from sievenet.content.batch import EventBatch
from sievenet.content.codec import decode_schema, encode_schema, encode_subscription
from sievenet.content.event import Event, Record
from sievenet.content.filter import Filter, Subscription
from sievenet.content.parser import parse_subscription
from sievenet.content.schema import Schema
from sievenet.errors import InvalidInput, Rejected, SchemaError, SievenetError
from sievenet.routers import protocol as p
from sievenet.routers.offload.messages import Assign, Compute
from sievenet.transport.actions import Gap
from sievenet.transport.options import Order, Publishing, RateControl, Recover
from sievenet.transport.statistics import SenderStatistics

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
        transport: Publishing | None = None,
    ) -> None:
        self._schemas: dict[int, Schema | None] = {0: None}
        self._landing = Landing(self._schemas)
        self._link = OverlayLink(
            url,
            name=name,
            timeout=timeout,
            reconnect=reconnect,
            tls=tls,
            restore=self._restore,
            arrived=self._landing.arrived,
            asked=self._asked,
        )
        self._helping: Helping | None = None
        self._ledger = Ledger()
        self._categories: dict[str, int] = {}
        self._feeds: dict[int, Feed] = {}
        self._offers: dict[int, list[Registration]] = {}
        #: Order, recovery and congestion control; made when first asked for.
        self._transport: Transport | None = None
        self._publishing = transport
        self.tally = Tally()
        self._published = 0

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
        if self._transport is not None:
            await self._transport.close()
        self._landing.room()
        await self._link.close()
        if self._helping is not None:
            await self._helping.close()
        feeds, self._feeds = list(self._feeds.values()), {}
        for feed in feeds:
            feed.end()
        await gather(*(feed.drained() for feed in feeds))

    async def _restore(self) -> None:
        """Register everything at a router that may know nothing of it."""
        for schema in [s for s in self._schemas.values() if s is not None]:
            await self._link.request(lambda number: p.Register(number, encode_schema(schema)))  # noqa: B023
        if self._helping is not None:
            self._helping.renew()
            await self._link.request(lambda number: p.Volunteer(number))
        await gather(*(self._link.request(self._registering(entry)) for entry in self._ledger))
        if self._transport is not None:
            self._transport.renewed()

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
        category = self._categories[entry.category] if entry.category else 0
        if entry.kind == "advertisement":
            return lambda number: p.Advertise(number, entry.id, category, entry.content)
        helping = self._helping
        if helping is None:
            return lambda number: p.Subscribe(number, entry.id, category, entry.content)
        wanted = entry.wanted.filters
        return lambda number: p.Subscribe(number, entry.id, category, entry.content, helping.claims(category, wanted))

    async def _register(self, kind: Kind, category: int, wanted: Subscription) -> Registration:
        schema = self._schemas[category]
        return self._ledger.add(kind, "" if schema is None else schema.name, wanted, encode_subscription(wanted))

    # -- publishing -----------------------------------------------------------------------

    async def advertise(self, what: Wanted, *, transport: Publishing | bool | None = None) -> Advertisement:
        """Say what this node will publish; only that may be published. `transport` as for `Node.advertise`."""
        options = publishing(transport, self._publishing)
        category, wanted = await self._wanted(what)
        entry = await self._register("advertisement", category, wanted)
        try:
            await self._link.call(self._registering(entry))
        except SievenetError:
            self._ledger.remove(entry)
            raise
        self._offers.setdefault(category, []).append(entry)
        schema = self._schemas[category]
        if options is not None and schema is not None:
            await self._with_transport().publish_with(schema, options)
        return Advertisement(self, entry)  # type: ignore[arg-type]

    async def unadvertise(self, advertisement: Advertisement) -> None:
        """Take an advertisement back."""
        entry = advertisement.registration
        if self._transport is not None and len(self._ledger.of("advertisement", entry.category)) <= 1:
            await self._transport.publish_without(entry.category)
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
        if isinstance(rows, EventBatch):
            if self._transport is not None and (source := self._transport.sources.get(rows.schema.name)) is not None:
                await self._link.ready()
                await source.publish_many(rows)
                self._published += len(rows)
                return len(rows)
            rows = batch_escaped(rows)
        for start in range(0, len(rows), _CHUNK):
            await self._link.ready()
            some = slice(start, start + _CHUNK)
            self._link.publish(category, rows.take(some) if isinstance(rows, EventBatch) else rows[some])
            await self._link.drained()
        self._published += len(rows)
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
        order: Order | bool = False,
        recover: Recover | bool = False,
        rate_control: RateControl | bool = False,
        on_gap: Callable[[Gap], None] | None = None,
    ) -> Feed:
        """Subscribe; when this returns, every router knows, and delivery begins. Arguments as for `Node.subscribe`."""
        asked = Asked.of(order, recover, rate_control, on_gap)
        category, wanted = await self._wanted(what)
        entry = await self._register("subscription", category, wanted)
        feed = Feed(self, entry, queue=queue, when_full=when_full, callback=callback, on_overflow=on_overflow)
        return await self._stand(feed, category, asked, None)

    async def _listen(self, what: Subscription, accept: Callable[[Delivery], bool]) -> Feed:
        """Subscribe without a queue, for the transport's own messages."""
        category, wanted = await self._wanted(what)
        feed = Feed(self, await self._register("subscription", category, wanted), queue=1)
        return await self._stand(feed, category, None, Straight(accept))

    async def _stand(self, feed: Feed, category: int, asked: Asked | None, straight: Sink | None) -> Feed:
        entry, transport = feed.registration, None
        try:
            if asked is not None:
                transport = await self._with_transport().sink(feed, asked)
            self._feeds[entry.id] = feed
            self._landing.add(category, entry.id, entry.wanted, transport or straight or feed)
            await self._link.call(self._registering(entry))
        except BaseException as error:
            self._ledger.remove(entry)
            self._drop(feed, category)
            feed.end(error if isinstance(error, SievenetError) else None)
            raise
        if transport is not None:
            transport.stands()
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
        if self._transport is not None:
            self._transport.stop(feed)
        self._feeds.pop(feed.registration.id, None)
        self._landing.remove(category, feed.registration.id)

    def explain(self) -> None:
        """Nothing waits to be explained: a router delivers by exact filters."""

    def room(self) -> None:
        """There is room again in a queue that was full."""
        if self._transport is not None:
            self._transport.drain()
        self._landing.room()

    # -- computing for the router ---------------------------------------------------------

    async def volunteer(self, limit: int = 100_000) -> None:
        """Compute for the router from now on, if it asks; at most ``limit`` filters are kept for it."""
        if self._helping is None:
            self._helping = Helping(self._link.send, limit)
            await self._link.call(lambda number: p.Volunteer(number))

    def helped(self) -> dict[str, int]:
        """What became of the router's requests."""
        return {} if self._helping is None else self._helping.statistics()

    def _asked(self, message: Compute | Assign) -> None:
        if self._helping is not None:
            self._helping.take(message)

    def _with_transport(self) -> Transport:
        if self._transport is None:
            self._transport = Transport(OverlayHost(self, self._link, self._categories, self._listen))
        return self._transport

    def published_with(self, category: str) -> SenderStatistics | None:
        """What the transport did for the events that this node publishes in a category; None without one."""
        return None if self._transport is None else self._transport.published(category)

    # -- operating ------------------------------------------------------------------------

    async def ask(self, about: str, of: str = "") -> Any:
        """Ask the router: ``status``, or ``explain`` of a filter."""
        return await self._link.call(lambda number: p.Ask(number, about, of))

    def statistics(self) -> NodeStatistics:
        """Counts since the node began."""
        return NodeStatistics(
            published=self._published,
            unwanted=0,
            received=self._landing.statistics(),
            delivered=self.tally.delivered,
            dropped=self.tally.dropped,
            losses=self._link.losses,
            connected=self.connected,
        )
