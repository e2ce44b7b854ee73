"""A node: an application's place in the network.

    async with sievenet.connect("sievenet://127.0.0.1:7400") as node:
        stock = await node.schema("stock")
        await node.advertise("stock: price > 0")
        await node.publish(stock.event(symbol="IBM", price=421.5, ...))

When `subscribe` returns, the path exists: whatever anybody publishes from then on and the filter matches is delivered,
exactly once, whether the control connection is there at that moment or not. A node is used by one event loop.

There are two networks to be in, a fabric of switches (`fabric_node`) and an overlay of routers (`overlay.node`), and
one life of a registration, which is written here:

    understood ─▶ in the ledger ─▶ deliveries have somewhere to go ─▶ said to the network ─▶ stands
                       │                                                     │ refused, given up, cancelled
                       └────────── struck out, and taken back if the network may have it all the same

What the ledger holds is said again after every loss of the connection; what it does not hold is nowhere for long.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Self

from sievenet.cache.messages import OnFull
from sievenet.client.advertisement import Advertisement
from sievenet.client.allowance import Allowance
from sievenet.client.caching import CacheOptions, Caching
from sievenet.client.delivery import Delivery
from sievenet.client.feed import Callback, Feed, Tally
from sievenet.client.inbox import Overflow, Policy
from sievenet.client.interest import Wanted, matching_loaded, understood
from sievenet.client.loopback import Loopback
from sievenet.client.receiver import Sink, Straight
from sievenet.client.registrations import Kind, Registration, Registrations
from sievenet.client.statistics import NodeStatistics
from sievenet.client.transport.host import Host
from sievenet.client.transport.sink import Asked
from sievenet.client.transport.transport import Transport, publishing
from sievenet.content.batch import EventBatch
from sievenet.content.codec import encode_subscription
from sievenet.content.event import Event, Record
from sievenet.content.filter import Subscription
from sievenet.content.schema import Schema
from sievenet.errors import InvalidInput, Rejected, SievenetError, Unavailable
from sievenet.session.lifetime import Starting, Tasks
from sievenet.session.message import Revised
from sievenet.transport.actions import Gap
from sievenet.transport.options import Order, Publishing, RateControl, Recover
from sievenet.transport.statistics import SenderStatistics

if TYPE_CHECKING:
    from sievenet.tap import Taps

__all__ = ["Node", "Wanted"]


class Node(Starting, ABC):
    """Made by `connect`."""

    #: Whether records and filters without a schema are welcome.
    _schemaless = False

    def __init__(self, transport: Publishing | None) -> None:
        self._loopback = Loopback(self._matching, self._identity)
        self._ledger = Registrations()
        #: What the network lets this node do, where that is less than it asked for.
        self._allowance = Allowance()
        self._feeds: dict[int, Feed] = {}
        #: Order, recovery and congestion control; made when first asked for.
        self._transport: Transport | None = None
        self._publishing = transport
        #: What caches do for subscriptions; None where there are none.
        self._caching: Caching | None = None
        self.tally = Tally()
        self._closed = False
        self._chores = Tasks()

    # -- what a network is ----------------------------------------------------------------

    @property
    @abstractmethod
    def name(self) -> str:
        """The node's name in the network."""

    @property
    @abstractmethod
    def host(self) -> str:
        """Where it is attached: a host of the fabric, or a router."""

    @property
    @abstractmethod
    def connected(self) -> bool:
        """Whether the control connection stands and everything is registered."""

    @abstractmethod
    async def start(self) -> Self:
        """Connect; `connect` does this."""

    @abstractmethod
    async def schema(self, wanted: str | Schema) -> Schema:
        """Look a schema up by name, or register one (no change if the same is registered already)."""

    @abstractmethod
    async def publish(self, event: Event | Record) -> None:
        """Publish one event. Raises if it is not advertised or too large; waits while there is no connection."""

    @abstractmethod
    async def publish_many(self, events: EventBatch | Iterable[Event] | Iterable[Record]) -> int:
        """Publish events in order, encoded and sent together; returns how many."""

    async def relay(self, events: EventBatch) -> int:
        """Publish events for another: their payloads, with the headers of its transport, stay as they are."""
        return await self.publish_many(events)

    @abstractmethod
    async def ask(self, about: str, of: str = "") -> Any:
        """Ask the daemon or router about itself: ``status`` and what else it knows."""

    @abstractmethod
    def statistics(self) -> NodeStatistics:
        """Counts since the node began."""

    @abstractmethod
    async def _say(self, entry: Registration) -> None:
        """Register; the paths exist when this returns."""

    @abstractmethod
    async def _withdraw(self, entry: Registration) -> None:
        """Take a registration back."""

    @abstractmethod
    def _answered(self, entry: Registration, answer: Any) -> None:
        """The network may let a registration be less than was asked for: so be it here too."""

    @abstractmethod
    def _open(self, entry: Registration, sink: Sink) -> None:
        """What comes for a subscription goes to a sink from now on."""

    @abstractmethod
    def _shut(self, entry: Registration) -> None:
        """Nothing goes there any more."""

    @abstractmethod
    def _allow(self, entry: Registration) -> None:
        """An advertisement stands (again): such events may be published."""

    @abstractmethod
    def _forbid(self, entry: Registration) -> None:
        """An advertisement is no more."""

    @abstractmethod
    def _matching(self, event: Event | Record) -> Iterable[Feed]:
        """The feeds of this node that an event of its own matches."""

    @abstractmethod
    def _identity(self) -> tuple[int, int]:
        """The number of this node as a publisher, and its incarnation."""

    @abstractmethod
    def _transport_host(self) -> Host:
        """What the transport needs of this node."""

    @abstractmethod
    async def _leave(self) -> None:
        """Take back everything and disconnect."""

    # -- registrations --------------------------------------------------------------------

    async def _entered(self, kind: Kind, what: Wanted) -> tuple[Schema | None, Registration]:
        schema, wanted = await understood(what, self.schema, schemaless=self._schemaless)
        name = "" if schema is None else schema.name
        return schema, self._ledger.add(kind, name, wanted, encode_subscription(wanted))

    def _given_up(self, entry: Registration, error: BaseException) -> None:
        """A registration did not come about here; if the network may have it all the same, take it back."""
        self._ledger.remove(entry)
        if isinstance(error, InvalidInput | Rejected) or self._closed:
            return

        async def take_back() -> None:
            with suppress(SievenetError):  # then the next comparison of ledgers does
                await self._withdraw(entry)

        self._chores.begin(take_back())

    def _refused(self, entry: Registration, error: SievenetError) -> None:
        """The network does not want to have this registration again."""
        self._ledger.remove(entry)
        if entry.kind == "advertisement":
            self._forbid(entry)
        elif (feed := self._feeds.get(entry.id)) is not None:
            self._drop(feed)
            feed.end(error)

    def _revised(self, told: Revised) -> None:
        """The rules have changed: a registration is less than it was, or has ended."""
        if (entry := self._ledger.get(told.kind, told.id)) is None:
            return
        if not told.reason:
            self._answered(entry, {"narrowed": told.narrowed})
            if entry.kind == "advertisement":
                self._allow(entry)
            return
        error = Rejected(told.reason)
        if entry.kind == "advertisement":
            self._allowance.refused(error)  # the next `publish` tells
        self._refused(entry, error)

    # -- publishing -----------------------------------------------------------------------

    async def advertise(self, what: Wanted, *, transport: Publishing | bool | None = None) -> Advertisement:
        """Say what this node will publish; only that may be published. Returns when the paths exist.

        With `transport`, events of the schema carry what receivers need to order and recover them and to control their
        rate (`sievenet.transport.Publishing`); None: as was said to `connect`.
        """
        options = publishing(transport, self._publishing)
        schema, entry = await self._entered("advertisement", what)
        try:
            await self._say(entry)
        except BaseException as error:
            self._given_up(entry, error)
            raise
        self._allow(entry)
        if options is not None and schema is not None:
            await self._with_transport().publish_with(schema, options)
        return Advertisement(self, entry, self._ledger)

    async def unadvertise(self, advertisement: Advertisement) -> None:
        """Take an advertisement back."""
        entry = advertisement.registration
        if self._transport is not None and len(self._ledger.of("advertisement", entry.category)) <= 1:
            await self._transport.publish_without(entry.category)
        self._forbid(entry)
        if self._ledger.remove(entry):
            await self._withdraw(entry)

    def published_with(self, category: str) -> SenderStatistics | None:
        """What the transport did for the events that this node publishes in a category; None without one."""
        return None if self._transport is None else self._transport.published(category)

    def tap(self, taps: Taps) -> None:
        """Sample what is published, for the pipeline."""
        self._loopback.taps = taps

    def _with_transport(self) -> Transport:
        if self._transport is None:
            self._transport = Transport(self._transport_host())
        return self._transport

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
        own: bool = True,
        max_rate: float | Literal["measured"] | None = None,
        on_full: OnFull = "end",
        since: float | datetime | Delivery | tuple[int, int, int] | None = None,
    ) -> Feed:
        """Subscribe; when this returns, delivery is guaranteed from then on.

        Iterate the feed, or give a callback. `queue` events wait at most; `when_full` says what happens to the next one
        (`sievenet.client.inbox`), and `on_overflow` is told.

        Events of publishers that advertise with a `transport` can be had in order, recovered when they are lost, and
        slowed down to what the path carries: True, or settings from `sievenet.transport`. What cannot be recovered is
        told to `on_gap`, or else logged. Events that this node publishes itself are delivered unless `own` is False.

        With `max_rate` (events per second, or "measured" by how fast they are taken) a cache takes over while more
        comes: nothing is lost, and events come at most at that rate. If even the cache is full, `on_full` says what
        happens: the subscription ends with a reason, or its oldest or newest events are dropped. With `since` a cache
        sends first what came in so many seconds before now, since a time, or behind a delivery of before (or behind the
        event with that publisher, incarnation and number).
        """
        asked = Asked.of(order, recover, rate_control, on_gap)
        cached = CacheOptions.of(max_rate, on_full, since, on_gap)
        if cached is not None and self._caching is None:
            raise InvalidInput(expected="a node in a fabric", got="one at a router, which has no caches")
        _, entry = await self._entered("subscription", what)
        feed = Feed(self, entry, queue=queue, when_full=when_full, callback=callback, on_overflow=on_overflow, own=own)
        return await self._stand(feed, asked, feed, cached)

    async def listen(self, what: Subscription, accept: Callable[[Delivery], bool]) -> Feed:
        """Subscribe without a queue: deliveries go straight to ``accept``. For the transport's own messages."""
        _, entry = await self._entered("subscription", what)
        return await self._stand(Feed(self, entry, queue=1, own=False), None, Straight(accept))

    async def _stand(self, feed: Feed, asked: Asked | None, sink: Sink, cached: CacheOptions | None = None) -> Feed:
        entry, transport, cache = feed.registration, None, None
        try:
            await matching_loaded()  # met with the first events, the compiler would stop everything
            if asked is not None:
                sink = transport = await self._with_transport().sink(feed, asked)
            if cached is not None and self._caching is not None:
                sink = cache = await self._caching.sink(feed, sink, cached)
            # Before it is said: the first event may come before the answer.
            self._feeds[entry.id] = feed
            self._loopback.opened(feed)
            self._open(entry, sink)
            await self._say(entry)
        except BaseException as error:
            self._given_up(entry, error)
            self._drop(feed)
            feed.end(error if isinstance(error, SievenetError) else None)
            raise
        for each in (transport, cache):
            if each is not None:
                each.stands()
        return feed

    async def unsubscribe(self, feed: Feed) -> None:
        """Take a subscription back; its feed ends at once."""
        self._drop(feed)
        feed.end()
        if self._ledger.remove(feed.registration):
            await self._withdraw(feed.registration)
        await feed.drained()

    def _drop(self, feed: Feed) -> None:
        self.explain()
        if self._transport is not None:
            self._transport.stop(feed)
        if self._caching is not None:
            self._caching.stop(feed)
        if self._feeds.pop(feed.registration.id, None) is not None:
            self._loopback.closed(feed)
        self._shut(feed.registration)
        self.room()

    @abstractmethod
    async def confirmed(self) -> None:
        """Wait until the network has taken what was published so far; `Dropped` if it took less."""

    @abstractmethod
    def explain(self) -> None:
        """Settle whose false positives they were, before somebody reads the counts."""

    def room(self) -> None:
        """There is room again in a queue that was full: read on."""
        self._loopback.room()
        if self._transport is not None:
            self._transport.drain()

    # -- operating ------------------------------------------------------------------------

    async def remove_schema(self, name: str, version: int = 0, *, force: bool = False) -> None:
        """Remove a category; refused while anybody uses it, unless `force`: then their registrations end."""
        raise InvalidInput(expected="a node in a fabric", got="one at a router, where schemas stay")

    async def apply_plan(self, category: str, plan: bytes | str) -> Any:
        """Change a category's index plan, given as JSON, under traffic; returns the daemon's report."""
        raise InvalidInput(expected="a node in a fabric", got="one at a router, which has no index plans")

    async def plan(self, category: str) -> bytes:
        """The category's index plan of now, as JSON."""
        raise InvalidInput(expected="a node in a fabric", got="one at a router, which has no index plans")

    async def close(self) -> None:
        """Take back everything and disconnect; feeds end after what they have queued.

        What was published is sent first; `Unavailable`, once all is closed, if that could not be done, and `Dropped` if
        the network took less than was published.
        """
        unsent: list[str] = []
        if self._transport is not None:
            try:
                await self._transport.close()
            except Unavailable as error:
                unsent.append(str(error))
        self._closed = True
        await self._chores.close()
        try:
            await self._leave()
        except Unavailable as error:
            unsent.append(str(error))
        self._loopback.close()
        for feed in (feeds := list(self._feeds.values())):
            self._drop(feed)
            feed.end()
        await asyncio.gather(*(feed.drained() for feed in feeds))
        if unsent:
            raise Unavailable("; ".join(unsent))
        self._allowance.left()
