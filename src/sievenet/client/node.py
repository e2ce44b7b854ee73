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
import contextlib
import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Self

from sievenet.client.advertisement import Advertisement
from sievenet.client.catalog import Catalog, Category
from sievenet.client.edge import Edge
from sievenet.client.feed import Callback, Feed, Tally
from sievenet.client.inbox import Overflow, Policy
from sievenet.client.latency import Latency
from sievenet.client.ledger import Kind, Ledger, Registration
from sievenet.client.outbox import Outbox
from sievenet.client.receiver import Receiver
from sievenet.client.session import Hooks, Session
from sievenet.client.statistics import NodeStatistics
from sievenet.client.url import parse_url
from sievenet.content.batch import EventBatch
from sievenet.content.codec import encode_subscription
from sievenet.content.event import Event
from sievenet.content.filter import Filter, Subscription
from sievenet.content.parser import parse_subscription
from sievenet.content.schema import Schema
from sievenet.control import protocol as p
from sievenet.dataplane.packet import Packet, publisher_of
from sievenet.errors import InvalidInput, Rejected, SchemaError, SievenetError, Unavailable
from sievenet.index.cover import loading

__all__ = ["Node", "Wanted"]

#: What `advertise` and `subscribe` take: text, a filter, a subscription, or a schema for all of its events.
Wanted = str | Filter | Subscription | Schema

_PREFIX: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_.-]*)\s*(?::|$)")
#: Events encoded together by `publish_many` before others get their turn.
_CHUNK: Final = 256
#: Packets that may wait for the window when a publisher goes on.
_LOW: Final = 1024
#: Single publishes after which others get their turn.
_TURN: Final = 64


class Node:
    """Made by `connect`."""

    def __init__(
        self, url: str | None, *, name: str | None, host: str | None, timeout: float, reconnect: bool, observer: bool
    ) -> None:
        self._catalog = Catalog()
        self._ledger = Ledger()
        self._outbox = Outbox(self._catalog)
        self._receiver = Receiver(ready=loading.done)
        self._edges: dict[str, Edge] = {}
        self._feeds: dict[int, Feed] = {}
        self._reported = p.Report()
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
                report=self._report,
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
        if isinstance(wanted, Schema):
            known = self._catalog.get(wanted.name)
            if known is not None and known.schema == wanted:
                self._session.schemas[wanted.name] = known.schema
                return known
            info = await self._session.call(lambda number: p.Register(number, wanted))
        else:
            known = self._catalog.get(wanted)
            if known is not None:
                self._session.schemas[wanted] = known.schema
                return known
            info = await self._session.call(lambda number: p.LookUp(number, wanted))
        category = self._catalog.update(info)
        self._session.schemas[category.schema.name] = category.schema
        return category

    async def _wanted(self, wanted: Wanted) -> tuple[Category, Subscription]:
        """What is wanted, of a category that the daemon knows."""
        match wanted:
            case str():
                named = _PREFIX.match(wanted)
                if named is None:
                    raise SchemaError(expected="a schema's name and `:` in front", got=wanted)
                category = await self._category(named[1])
                if named.end() == len(wanted) and not wanted.rstrip().endswith(":"):
                    return category, Subscription([Filter(category.schema)])
                return category, parse_subscription(wanted, {category.schema.name: category.schema})
            case Schema():
                category = await self._category(wanted)
                return category, Subscription([Filter(category.schema)])
            case Filter() | Subscription():
                if wanted.schema is None:
                    raise SchemaError("Expected a filter of a schema, got a schemaless one", where="subscribe")
                category = await self._category(wanted.schema)
                return category, Subscription([wanted]) if isinstance(wanted, Filter) else wanted
        raise InvalidInput(expected="text, a filter, a subscription or a schema", got=wanted)

    def _entered(self, kind: Kind, category: Category, wanted: Subscription) -> Registration:
        return self._ledger.add(kind, category.schema.name, wanted, encode_subscription(wanted))

    def _given_up(self, entry: Registration, error: BaseException) -> None:
        """A registration did not come about here; if the daemon may have it all the same, take it back."""
        self._ledger.remove(entry)
        if isinstance(error, InvalidInput | Rejected) or self._closed:
            return
        task = asyncio.create_task(self._take_back(entry))
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    async def _take_back(self, entry: Registration) -> None:
        with contextlib.suppress(SievenetError):
            if entry.kind == "subscription":
                await self._session.call(lambda number: p.Unsubscribe(number, entry.id))
            else:
                await self._session.call(lambda number: p.Unadvertise(number, entry.id))

    # -- publishing -----------------------------------------------------------------------

    async def advertise(self, what: Wanted) -> Advertisement:
        """Say what this node will publish; only that may be published. Returns when the paths exist."""
        category, wanted = await self._wanted(what)
        entry = self._entered("advertisement", category, wanted)
        try:
            await self._session.call(self._session.request(entry))
        except BaseException as error:
            self._given_up(entry, error)
            raise
        self._outbox.allow(entry)
        return Advertisement(self, entry)

    async def unadvertise(self, advertisement: Advertisement) -> None:
        """Take an advertisement back."""
        entry = advertisement.registration
        self._outbox.forbid(entry)
        if self._ledger.remove(entry):
            await self._session.call(lambda number: p.Unadvertise(number, entry.id))

    async def publish(self, event: Event) -> None:
        """Publish one event. Raises if it is not advertised or too large; waits while there is no connection."""
        if not self._session.connected:
            await self._session.ready()
        await self._send(self._outbox.packets(event, time.time_ns()))
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
            await self._send([each for one in self._outbox.batch_packets(chunk, time.time_ns) for each in one])
            await asyncio.sleep(0)
        return len(rows)

    async def _send(self, packets: list[Packet]) -> None:
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
    ) -> Feed:
        """Subscribe; when this returns, delivery is guaranteed from then on.

        Iterate the feed, or give a callback. `queue` events wait at most; `when_full` says what happens to the next one
        (`sievenet.client.inbox`), and `on_overflow` is told.
        """
        category, wanted = await self._wanted(what)
        loading.begin()
        entry = self._entered("subscription", category, wanted)
        feed = Feed(self, entry, queue=queue, when_full=when_full, callback=callback, on_overflow=on_overflow)
        # Before the request: the first event may come before the answer.
        self._feeds[entry.id] = feed
        self._receiver.connect(entry.id, feed)
        self._edge(category).add(entry.id, wanted)
        try:
            await self._session.call(self._session.request(entry))
        except BaseException as error:
            self._given_up(entry, error)
            self._drop(feed)
            feed.end(error if isinstance(error, SievenetError) else None)
            raise
        return feed

    async def unsubscribe(self, feed: Feed) -> None:
        """Take a subscription back; its feed ends at once."""
        entry = feed.registration
        self._drop(feed)
        feed.end()
        if self._ledger.remove(entry):
            await self._session.call(lambda number: p.Unsubscribe(number, entry.id))
        await feed.drained()

    def _edge(self, category: Category) -> Edge:
        edge = self._edges.get(category.schema.name)
        if edge is None or edge.schema is not category.schema:
            edge = self._edges[category.schema.name] = Edge(category.schema)
            edge.adopt(lambda: category.plan, category.budget)
        self._receiver.enter(category.number, edge)
        return edge

    def _drop(self, feed: Feed) -> None:
        entry = feed.registration
        self.explain()
        self._feeds.pop(entry.id, None)
        self._receiver.disconnect(entry.id)
        edge = self._edges.get(entry.category)
        if edge is not None:
            edge.remove(entry.id)
        self.room()

    def explain(self) -> None:
        """Settle whose false positives they were, before somebody reads the counts."""
        self._receiver.explain()

    def room(self) -> None:
        """There is room again in a queue that was full: read on."""
        if self._receiver.blocked and self._receiver.resume(time.time_ns()) and self._session.port is not None:
            self._session.port.resume()

    # -- what the session asks ------------------------------------------------------------

    def _deliver(self, packets: list[Packet]) -> None:
        self._receiver.take(packets, time.time_ns())
        if self._receiver.blocked and self._session.port is not None:
            self._session.port.pause()

    def _renewed(self, welcome: p.Welcome) -> None:
        self._outbox.max_event = welcome.max_event
        if welcome.data is not None:
            self._outbox.publisher = publisher_of(welcome.data.token)
        self._receiver.forget()
        for name, edge in self._edges.items():
            category = self._catalog.get(name)
            if category is not None:
                self._receiver.enter(category.number, edge)
                edge.adopt(lambda category=category: category.plan, category.budget)  # type: ignore[misc]

    async def _adopt(self, info: p.CategoryInfo) -> None:
        category = self._catalog.update(info)
        edge = self._edges.get(category.schema.name)
        if edge is not None:
            edge.adopt(lambda: category.plan, category.budget)
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

    def _report(self) -> p.Report:
        now = self.statistics()
        p50, p99 = self._receiver.recent.quantiles((0.5, 0.99))
        self._receiver.recent = Latency()
        total = p.Report(
            received=now.received.received,
            delivered=now.delivered,
            false_positives=now.received.false_positives,
            duplicates=now.received.duplicates,
            dropped=now.dropped,
            published=now.published,
        )
        before, self._reported = self._reported, total
        return p.Report(
            received=total.received - before.received,
            delivered=total.delivered - before.delivered,
            false_positives=total.false_positives - before.false_positives,
            duplicates=total.duplicates - before.duplicates,
            dropped=total.dropped - before.dropped,
            published=total.published - before.published,
            latency_p50=p50,
            latency_p99=p99,
        )

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
            published=self._outbox.published,
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
