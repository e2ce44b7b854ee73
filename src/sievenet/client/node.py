"""A node: an application's place in the network.

    async with sievenet.connect("sievenet://127.0.0.1:7400") as node:
        stock = await node.schema("stock")
        await node.advertise("stock: price > 0")
        await node.publish(stock.event(symbol="IBM", price=421.5, ...))

When `subscribe` returns, the path exists: whatever anybody publishes from then on and the filter matches is delivered,
exactly once, whether the control connection is there at that moment or not. A node is used by one event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Self

from sievenet.client.advertisement import Advertisement
from sievenet.client.catalog import Catalog, Category
from sievenet.client.delivery import Delivery
from sievenet.client.edge import Edges
from sievenet.client.feed import Callback, Feed, Tally
from sievenet.client.inbox import Overflow, Policy
from sievenet.client.ledger import Kind, Ledger, Registration
from sievenet.client.outbox import Outbox
from sievenet.client.ports.burst import Arrivals, Burst
from sievenet.client.receiver import Receiver, Sink, Straight
from sievenet.client.reporting import Reporter
from sievenet.client.session import Hooks, Session
from sievenet.client.statistics import NodeStatistics
from sievenet.client.transport.fabric_host import FabricHost
from sievenet.client.transport.shim import all_escaped, escaped
from sievenet.client.transport.sink import Asked
from sievenet.client.transport.transport import Transport, publishing
from sievenet.client.url import parse_url
from sievenet.client.wanting import Wanted, understood
from sievenet.content.batch import EventBatch
from sievenet.content.codec import encode_subscription
from sievenet.content.event import Event
from sievenet.content.filter import Subscription
from sievenet.content.schema import Schema
from sievenet.control import protocol as p
from sievenet.dataplane.packet import Packet, publisher_of
from sievenet.errors import InvalidInput, Rejected, SievenetError, Unavailable
from sievenet.index.cover import loading
from sievenet.transport.actions import Gap
from sievenet.transport.options import Order, Publishing, RateControl, Recover
from sievenet.transport.statistics import SenderStatistics

__all__ = ["Node", "Wanted"]

#: Events encoded together by `publish_many` before others get their turn.
_CHUNK: Final = 256
#: Packets that may wait for the window when a publisher goes on.
_LOW: Final = 1024
#: Single publishes after which others get their turn.
_TURN: Final = 64


class Node:
    """Made by `connect`."""

    def __init__(
        self,
        url: str | None,
        *,
        name: str | None,
        host: str | None,
        timeout: float,
        reconnect: bool,
        observer: bool,
        transport: Publishing | None = None,
    ) -> None:
        self._catalog = Catalog()
        self._ledger = Ledger()
        self._outbox = Outbox(self._catalog)
        self._receiver = Receiver(ready=loading.done)
        self._edges = Edges()
        self._feeds: dict[int, Feed] = {}
        self._reporter = Reporter(self._receiver, self.statistics)
        #: Order, recovery and congestion control; made when first asked for.
        self._transport: Transport | None = None
        self._publishing: Publishing | None = transport
        self._turn = 0
        self.tally = Tally()
        self._closed = False
        self._chores: set[asyncio.Task[None]] = set()
        self._session = Session(
            parse_url(url),
            self._catalog,
            self._ledger,
            Hooks(
                deliver=self._deliver,
                renewed=self._renewed,
                adopt=self._adopt,
                refused=self._refused,
                settled=self._settled,
                report=self._reporter.report,
            ),
            name=name,
            host=host,
            timeout=timeout,
            reconnect=reconnect,
            observer=observer,
        )

    # -- schemas --------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The node's name in the fabric."""
        return self._session.name or ""

    @property
    def host(self) -> str:
        """The host where it is attached."""
        return self._session.host or ""

    @property
    def connected(self) -> bool:
        """Whether the control connection stands and everything is registered."""
        return self._session.connected

    async def schema(self, wanted: str | Schema) -> Schema:
        """Look a schema up by name, or register one (no change if the same is registered already)."""
        return (await self._category(wanted)).schema

    async def _category(self, wanted: str | Schema) -> Category:
        known = self._catalog.get(wanted.name if isinstance(wanted, Schema) else wanted)
        if known is not None and (isinstance(wanted, str) or known.schema == wanted):
            category = known
        elif isinstance(wanted, Schema):
            category = self._catalog.update(await self._session.call(lambda number: p.Register(number, wanted)))
        else:
            category = self._catalog.update(await self._session.call(lambda number: p.LookUp(number, wanted)))
        self._session.schemas[category.schema.name] = category.schema
        return category

    def _entered(self, kind: Kind, category: Category, wanted: Subscription) -> Registration:
        return self._ledger.add(kind, category.schema.name, wanted, encode_subscription(wanted))

    def _given_up(self, entry: Registration, error: BaseException) -> None:
        """A registration did not come about here; if the daemon may have it all the same, take it back."""
        self._ledger.remove(entry)
        if isinstance(error, InvalidInput | Rejected) or self._closed:
            return
        task = asyncio.create_task(self._session.withdraw(entry, quietly=True))
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    # -- publishing -----------------------------------------------------------------------

    async def advertise(self, what: Wanted, *, transport: Publishing | bool | None = None) -> Advertisement:
        """Say what this node will publish; only that may be published. Returns when the paths exist.

        With `transport`, events of the schema carry what receivers need to order and recover them and to control their
        rate (`sievenet.transport.Publishing`); None: as was said to `connect`.
        """
        category, wanted = await understood(what, self._category)
        options = publishing(transport, self._publishing)
        entry = self._entered("advertisement", category, wanted)
        try:
            await self._session.call(self._session.request(entry))
        except BaseException as error:
            self._given_up(entry, error)
            raise
        self._outbox.allow(entry)
        if options is not None:
            await self._with_transport().publish_with(category.schema, options)
        return Advertisement(self, entry)

    async def unadvertise(self, advertisement: Advertisement) -> None:
        """Take an advertisement back."""
        entry = advertisement.registration
        if self._transport is not None and len(self._ledger.of("advertisement", entry.category)) <= 1:
            await self._transport.publish_without(entry.category)
        self._outbox.forbid(entry)
        if self._ledger.remove(entry):
            await self._session.withdraw(entry)

    async def publish(self, event: Event) -> None:
        """Publish one event. Raises if it is not advertised or too large; waits while there is no connection."""
        if not self._session.connected:
            await self._session.ready()
        if self._transport is not None and (source := self._transport.source_of(event)) is not None:
            self._outbox.check(event)
            await source.publish(event)
        else:
            await self._send(self._outbox.packets(escaped(event), time.time_ns()))
        self._turn += 1
        if self._turn % _TURN == 0:
            await asyncio.sleep(0)

    async def publish_many(self, events: EventBatch | Iterable[Event]) -> int:
        """Publish events in order, encoded together and several to a datagram; returns how many."""
        rows: EventBatch | Sequence[Event] = events if isinstance(events, EventBatch) else list(events)
        for start in range(0, len(rows), _CHUNK):
            if not self._session.connected:
                await self._session.ready()
            if isinstance(rows, EventBatch):
                chunk: EventBatch | Sequence[Event] = rows.take(slice(start, start + _CHUNK))
            else:
                chunk = rows[start : start + _CHUNK]
            source = self._transport.source_of(chunk[0]) if self._transport is not None else None
            if source is not None:
                for event in chunk:
                    self._outbox.check(event)
                await source.publish_many(chunk)
            else:
                await self._send(self._outbox.many(all_escaped(chunk), time.time_ns))
            await asyncio.sleep(0)
        return len(rows)

    async def _send(self, packets: list[Packet] | Burst) -> None:
        port = self._session.port
        if port is None:
            raise Unavailable("This node has no data port: it only observes")
        if not port.send(packets):
            await port.flushed(_LOW)

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
        """Subscribe; when this returns, delivery is guaranteed from then on.

        Iterate the feed, or give a callback. `queue` events wait at most; `when_full` says what happens to the next one
        (`sievenet.client.inbox`), and `on_overflow` is told.

        Events of publishers that advertise with a `transport` can be had in order, recovered when they are lost, and
        slowed down to what the path carries: True, or settings from `sievenet.transport`. What cannot be recovered is
        told to `on_gap`, or else logged.
        """
        asked = Asked.of(order, recover, rate_control, on_gap)
        category, wanted = await understood(what, self._category)
        loading.begin()
        entry = self._entered("subscription", category, wanted)
        feed = Feed(self, entry, queue=queue, when_full=when_full, callback=callback, on_overflow=on_overflow)
        return await self._stand(feed, category, asked, None)

    async def _listen(self, what: Subscription, accept: Callable[[Delivery], bool]) -> Feed:
        """Subscribe without a queue, for the transport's own messages."""
        category, wanted = await understood(what, self._category)
        feed = Feed(self, self._entered("subscription", category, wanted), queue=1)
        return await self._stand(feed, category, None, Straight(accept))

    async def _stand(self, feed: Feed, category: Category, asked: Asked | None, straight: Sink | None) -> Feed:
        entry, transport = feed.registration, None
        try:
            if asked is not None:
                transport = await self._with_transport().sink(feed, asked)
            # Before the request: the first event may come before the answer.
            self._feeds[entry.id] = feed
            self._receiver.connect(entry.id, transport or straight or feed)
            self._receiver.enter(category.number, self._edges.add(category, entry.id, entry.wanted))
            await self._session.call(self._session.request(entry))
        except BaseException as error:
            self._given_up(entry, error)
            self._drop(feed)
            feed.end(error if isinstance(error, SievenetError) else None)
            raise
        if transport is not None:
            transport.stands()
        return feed

    async def unsubscribe(self, feed: Feed) -> None:
        """Take a subscription back; its feed ends at once."""
        entry = feed.registration
        self._drop(feed)
        feed.end()
        if self._ledger.remove(entry):
            await self._session.withdraw(entry)
        await feed.drained()

    def _drop(self, feed: Feed) -> None:
        entry = feed.registration
        self.explain()
        if self._transport is not None:
            self._transport.stop(feed)
        self._feeds.pop(entry.id, None)
        self._receiver.disconnect(entry.id)
        self._edges.remove(entry.category, entry.id)
        self.room()

    def explain(self) -> None:
        """Settle whose false positives they were, before somebody reads the counts."""
        self._receiver.explain()

    def room(self) -> None:
        """There is room again in a queue that was full: read on."""
        if self._transport is not None:
            self._transport.drain()
        if self._receiver.blocked and self._receiver.resume(time.time_ns()) and self._session.port is not None:
            self._session.port.resume()

    # -- what the session asks ------------------------------------------------------------

    def _deliver(self, packets: list[Packet] | Arrivals) -> None:
        self._receiver.take(packets, time.time_ns())
        if self._receiver.blocked and self._session.port is not None:
            self._session.port.pause()

    def _renewed(self, welcome: p.Welcome) -> None:
        self._outbox.max_event = welcome.max_event
        if welcome.data is not None:
            self._outbox.publisher = publisher_of(welcome.data.token)
        self._receiver.forget()
        for category in self._catalog:
            if (edge := self._edges.adopt(category)) is not None:
                self._receiver.enter(category.number, edge)
        if self._transport is not None:
            self._transport.renewed()

    async def _adopt(self, info: p.CategoryInfo) -> None:
        self._edges.adopt(self._catalog.update(info))
        # From here on events are encoded with the new plan; what waits for the window still has the old one.
        if self._session.port is not None:
            await self._session.port.flushed(0)

    def _refused(self, entry: Registration, error: SievenetError) -> None:
        if entry.kind == "advertisement":
            self._outbox.forbid(entry)
        elif (feed := self._feeds.get(entry.id)) is not None:
            self._drop(feed)
            feed.end(error)

    def _settled(self, entry: Registration) -> None:
        if entry.kind == "advertisement":
            self._outbox.allow(entry)

    def _with_transport(self) -> Transport:
        if self._transport is None:
            self._transport = Transport(FabricHost(self, self._session, self._outbox, self._listen))
        return self._transport

    def published_with(self, category: str) -> SenderStatistics | None:
        """What the transport did for the events that this node publishes in a category; None without one."""
        return None if self._transport is None else self._transport.published(category)

    # -- operating ------------------------------------------------------------------------

    async def ask(self, about: str, of: str = "") -> Any:
        """Ask the daemon about the fabric: ``status``, ``topology``, ``flows`` of a switch, ``trace`` of an event."""
        return await self._session.call(lambda number: p.Ask(number, about, of))

    async def apply_plan(self, category: str, plan: bytes | str) -> Any:
        """Change a category's index plan, given as JSON, under traffic; returns the daemon's report."""
        data = plan.encode() if isinstance(plan, str) else plan
        return await self._session.call(lambda number: p.ApplyPlan(number, category, data), again=False)

    async def plan(self, category: str) -> bytes:
        """The category's index plan of now, as JSON."""
        info = await self._session.call(lambda number: p.LookUp(number, category))
        return bytes(info.plan)

    def statistics(self) -> NodeStatistics:
        """Counts since the node began."""
        return NodeStatistics(
            published=self._outbox.published - (0 if self._transport is None else self._transport.spoken),
            unwanted=self._outbox.unwanted,
            received=self._receiver.statistics(),
            delivered=self.tally.delivered,
            dropped=self.tally.dropped,
            losses=self._session.losses,
            connected=self._session.connected,
        )

    # -- life -----------------------------------------------------------------------------

    async def start(self) -> Self:
        """Connect; `connect` does this."""
        await self._session.start()
        return self

    async def close(self) -> None:
        """Take back everything and disconnect; feeds end after what they have queued."""
        if self._transport is not None:
            await self._transport.close()
        self._closed = True
        for chore in self._chores:
            chore.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)
        await self._session.close()
        self._outbox.close()
        for feed in (feeds := list(self._feeds.values())):
            self._drop(feed)
            feed.end()
        await asyncio.gather(*(feed.drained() for feed in feeds))
