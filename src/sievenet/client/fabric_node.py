"""A node in a fabric of switches: packets out and in at a data port, everything else at the daemon."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

from sievenet.access.identity import Role
from sievenet.access.login import Login
from sievenet.client.caching import Caching
from sievenet.client.catalog import Catalog, Category
from sievenet.client.edge import Edges
from sievenet.client.express import Express
from sievenet.client.feed import Feed
from sievenet.client.hooks import Hooks
from sievenet.client.membership import Membership
from sievenet.client.node import Node
from sievenet.client.outbox import Outbox
from sievenet.client.ports.burst import Arrivals, Burst
from sievenet.client.ports.identity import publisher_number
from sievenet.client.ports.port import DataPort
from sievenet.client.publisher import Publisher
from sievenet.client.receiver import Receiver, Sink
from sievenet.client.recipient import Recipient
from sievenet.client.registrations import Registration
from sievenet.client.report import Reporter
from sievenet.client.statistics import NodeStatistics
from sievenet.client.transport.fabric_host import FabricHost
from sievenet.client.transport.shim import all_escaped, escaped
from sievenet.client.url import parse_url
from sievenet.client.versions import Twins
from sievenet.content.batch import EventBatch
from sievenet.content.event import Event, Record
from sievenet.content.schema import Schema
from sievenet.control import protocol as p
from sievenet.dataplane.packet import Packet
from sievenet.errors import EventError, InvalidInput, Rejected, SchemaError, SievenetError, Unavailable
from sievenet.index.cover.warmup import COVERS
from sievenet.transport.options import Publishing

__all__ = ["FabricNode"]

#: Events encoded together before others get their turn, and columns of them, in a fifth of the time; single events.
_CHUNK, _COLUMNS, _TURN = 256, 1024, 64


class FabricNode(Node):
    """Made by `connect` with a daemon's URL."""

    def __init__(
        self,
        url: str | None,
        *,
        name: str | None,
        host: str | None,
        timeout: float,
        reconnect: bool,
        role: Role,
        login: Login | None = None,
        transport: Publishing | None = None,
    ) -> None:
        super().__init__(transport)
        self._catalog = Catalog()
        self._outbox = Outbox(self._catalog)
        self._receiver = Receiver(ready=COVERS.there)
        self._edges = Edges()
        self._twins = Twins(self._ledger, self._catalog)
        self._sinks: dict[int, Sink] = {}  # where deliveries of each subscription go
        self._orphans: dict[int, list[Registration]] = {}  # twins of subscriptions that have ended, not yet taken back
        self._spoken: dict[str, Schema] = {}  # the version of each schema that this node speaks
        self._recipient = Recipient(self._catalog, self._ledger, self._receiver, lambda: self._session)
        self._publisher = Publisher(lambda: self._session, self._outbox)
        self._caching = self._subscribers = Caching(
            lambda: self._session, self._ledger, self._catalog, self._receiver, self._answered, self._refused
        )
        self._reporter = Reporter(self._receiver, self.statistics, self._allowance.told)
        self._session = Membership(
            parse_url(url),
            self._catalog,
            self._ledger,
            Hooks(
                deliver=self._deliver,
                alone=Express(self._receiver, self._subscribers.sinks, lambda: self._deliver([])).take,
                renewed=self._renewed,
                adopt=self._adopt,
                removed=self._removed,
                revised=self._revised,
                refused=self._refused,
                settled=self._settled,
                answered=self._answered,
                told=self._reporter.told,
                directed=self._recipient.told,
                retain=self._publisher.told,
                instructed=self._instructed,
                report=self._reporter.report,
                samples=self._loopback.sampler.taken,
            ),
            name=name,
            host=host,
            timeout=timeout,
            reconnect=reconnect,
            role=role,
            login=login,
        )

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

    async def start(self) -> Self:
        """Connect; `connect` does this."""
        await self._session.start()
        return self

    async def _leave(self) -> None:
        await self._recipient.close()
        async with self._publisher.leaving():
            await self._session.close()

    # -- registrations --------------------------------------------------------------------

    async def schema(self, wanted: str | Schema) -> Schema:
        """Look a schema up by name, or register one (no change if the same is registered already).

        By name it is the version that this node has worked with before, else the latest.
        """
        named = self._spoken.get(wanted) if isinstance(wanted, str) else wanted
        known = self._catalog.of(named) if named is not None else self._catalog.get(str(wanted))
        schema = (await self._described(named or wanted)).schema if known is None else known.schema
        self._session.schemas.add(schema)
        if isinstance(wanted, Schema) or schema.name not in self._spoken:
            self._spoken[schema.name] = schema
        return schema

    async def remove_schema(self, name: str, version: int = 0, *, force: bool = False) -> None:
        """Remove a category; refused while anybody uses it, unless `force`: then their registrations end."""
        await self._session.call(lambda number: p.RemoveSchema(number, name, version, force))

    async def _described(self, wanted: str | Schema) -> Category:
        new = partial(p.Register, schema=wanted) if isinstance(wanted, Schema) else partial(p.LookUp, name=wanted)
        return self._catalog.update((await self._session.call(new)).category)

    async def _say(self, entry: Registration) -> None:
        await self._register(entry)
        try:
            for twin in self._twins.of(entry):
                await self._register(twin)
        except (Rejected, InvalidInput):
            await self._withdraw(entry)
            raise

    async def _register(self, entry: Registration) -> None:
        self._answered(entry, self._receiver.told(entry.id, await self._session.register(entry)))

    async def _withdraw(self, entry: Registration) -> None:
        for each in (*self._orphans.pop(entry.id, ()), *self._twins.of(entry), entry):
            await self._session.withdraw(each)

    def _settled(self, entry: Registration) -> None:
        if entry.kind == "advertisement":
            self._allow(entry)

    def _answered(self, entry: Registration, answer: Any) -> None:
        """The daemon may let a registration be less than was asked for: so be it here too."""
        allowed = self._allowance.answered(entry, answer)
        if allowed is not None and entry.kind == "subscription" and allowed.schema is not None:
            category = self._catalog.known(allowed.schema)
            self._edges.remove(allowed.schema, entry.id)
            self._receiver.enter(category.number, self._edges.add(category, entry.id, allowed))

    def _allow(self, entry: Registration) -> None:
        self._outbox.offers.allow(self._allowance.of(entry))

    def _forbid(self, entry: Registration) -> None:
        self._outbox.offers.forbid(entry)

    def _open(self, entry: Registration, sink: Sink) -> None:
        self._sinks[entry.id] = sink
        for each in (entry, *self._twins.new(entry)):
            self._connect(each, sink)

    def _connect(self, entry: Registration, sink: Sink) -> None:
        assert entry.wanted.schema is not None
        category = self._catalog.known(entry.wanted.schema)
        self._receiver.connect(entry.id, sink)
        self._receiver.enter(category.number, self._edges.add(category, entry.id, entry.wanted))

    def _shut(self, entry: Registration) -> None:
        self._sinks.pop(entry.id, None)
        if twins := self._twins.drop(entry):
            self._orphans[entry.id] = twins
        for each in (entry, *twins):
            self._disconnect(each)

    def _disconnect(self, entry: Registration) -> None:
        self._receiver.disconnect(entry.id)
        self._edges.remove(entry.wanted.schema, entry.id)

    def _more_twins(self) -> list[Registration]:
        """Registrations in versions that have come since; open, but not said yet."""
        found = []
        for entry in [e for e in self._ledger if e.id in self._sinks and e.kind == "subscription"]:
            for twin in self._twins.new(entry):
                self._connect(twin, self._sinks[entry.id])
                found.append(twin)
        return found

    def _refused(self, entry: Registration, error: SievenetError) -> None:
        super()._refused(self._twins.first(entry), error)

    def _transport_host(self) -> FabricHost:
        return FabricHost(self, self._session, self._outbox, self._publisher)

    # -- publishing -----------------------------------------------------------------------

    async def publish(self, event: Event | Record) -> None:
        """Publish one event. Raises if it is not advertised or too large; waits while nobody would forward it."""
        if not isinstance(event, Event):
            raise EventError(expected="an event of a schema", got=event, where="publish")
        if self._allowance.refusal is not None:
            self._allowance.check()
        if not self._session.may_send:
            await self._session.sendable()
        if self._transport is not None and (source := self._transport.source_of(event)) is not None:
            self._outbox.check((event,))
            await source.publish(event)
        else:
            now, port = time.time_ns(), self._session.port or self._port()
            alone = port.single and not (event.payload or self._publisher.retention.kept)
            packets = self._outbox.sent(event, port, now) if alone else self._outbox.packets(escaped(event), now)
            if packets is not None and not self._publisher.send(port, packets):
                await self._publisher.room(port, packets)
        if self._loopback.hears(event.schema.name):
            await self._loopback.published((event,), event.schema.name)
        if self._outbox.published % _TURN == 0:
            await asyncio.sleep(0)

    async def publish_many(self, events: EventBatch | Iterable[Event] | Iterable[Record]) -> int:
        """Publish events in order, encoded together and several to a datagram; returns how many."""
        rows: EventBatch | list[Any] = events if isinstance(events, EventBatch) else list(events)
        size = _COLUMNS if isinstance(rows, EventBatch) else _CHUNK
        for start in range(0, len(rows), size):
            self._allowance.check()
            await self._session.sendable()
            some = slice(start, start + size)
            chunk: EventBatch | Sequence[Event] = rows.take(some) if isinstance(rows, EventBatch) else rows[some]
            source = self._transport.source_of(chunk[0]) if self._transport is not None else None
            if source is not None:
                self._outbox.check(chunk)
                await source.publish_many(chunk)
            else:
                await self._send(self._outbox.many(all_escaped(chunk), time.time_ns))
            await self._loopback.published(chunk, chunk[0].schema.name)
            await asyncio.sleep(0)
        return len(rows)

    async def confirmed(self) -> None:
        """Wait until the network has taken what was published so far; `Dropped` if it took less."""
        await self._session.confirm()
        self._allowance.check()

    async def relay(self, events: EventBatch) -> int:
        """Publish events for another: their payloads, with the headers of its transport, stay as they are."""
        for start in range(0, len(events), _CHUNK):
            await self._session.sendable()
            chunk = events.take(slice(start, start + _CHUNK))
            await self._send(self._outbox.many(chunk, time.time_ns))
            self._loopback.sampler.offer(events.schema, chunk)
        return len(events)

    async def _send(self, packets: list[Packet] | Burst) -> None:
        if not self._publisher.send(port := self._port(), packets):
            await self._publisher.room(port, packets)

    def _port(self) -> DataPort:
        if (port := self._session.port) is None:
            raise Unavailable("This node has no data port: it only observes")
        return port

    # -- receiving ------------------------------------------------------------------------

    def _matching(self, event: Event | Record) -> Iterable[Feed]:
        found = {self._twins.number(key) for key in self._edges.match(event)} if isinstance(event, Event) else ()
        return [feed for key in found if (feed := self._feeds.get(key)) is not None]

    def _identity(self) -> tuple[int, int]:
        return self._outbox.publisher, self._outbox.incarnation

    def explain(self) -> None:
        """Settle whose false positives they were, before somebody reads the counts."""
        self._receiver.explain()

    def room(self) -> None:
        """There is room again in a queue that was full: read on."""
        super().room()
        if self._receiver.blocked and self._receiver.resume(time.time_ns()) and self._session.port is not None:
            self._session.port.resume()

    def _deliver(self, packets: list[Packet] | Arrivals) -> None:
        if self._subscribers.sinks:
            self._subscribers.look()
        self._receiver.take(packets, time.time_ns())
        if self._receiver.handovers.open:
            self._recipient.watch()
        if self._receiver.blocked and self._session.port is not None:
            self._session.port.pause()

    def _instructed(self, message: Any) -> None:
        """The daemon says something about caches, or that only components understand."""
        self._subscribers.told(message)

    # -- another daemon, another plan -----------------------------------------------------

    def _renewed(self, welcome: p.Welcome) -> None:
        self._outbox.max_event = welcome.max_event
        self._loopback.sampler.size = welcome.sample
        if welcome.data is not None:
            self._outbox.publisher = self._receiver.own = publisher_number(welcome.data)
        self._receiver.forget()
        for each in (self._recipient, self._publisher, self._subscribers):
            each.renewed()
        self._orphans.clear()
        for twin in self._twins.stale():
            self._disconnect(twin)
        self._more_twins()
        for category in self._catalog:
            if (edge := self._edges.adopt(category)) is not None:
                self._receiver.enter(category.number, edge)
        if self._transport is not None:
            self._transport.renewed()

    async def _adopt(self, info: p.CategoryInfo) -> None:
        self._edges.adopt(self._catalog.update(info))
        for twin in self._more_twins():
            try:
                await self._register(twin)
            except (Rejected, InvalidInput) as error:
                self._refused(twin, error)
        # From here on events are encoded with the new plan; what waits for the window still has the old one.
        if self._session.port is not None:
            await self._session.port.flushed(0)

    def _removed(self, number: int) -> None:
        if (category := self._catalog.remove(number)) is None:
            return
        self._session.schemas.discard(category.schema)
        if self._spoken.get(category.schema.name) == category.schema:
            del self._spoken[category.schema.name]
        for twin in self._twins.stale():
            self._disconnect(twin)
        gone = SchemaError(f"The category {category.schema.name} version {category.schema.version} was removed")
        for entry in [e for e in self._ledger if e.wanted.schema == category.schema]:
            self._refused(entry, gone)

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
        return bytes((await self._session.call(lambda number: p.LookUp(number, category))).category.plan)

    def statistics(self) -> NodeStatistics:
        """Counts since the node began."""
        received, port = self._receiver.statistics(), self._session.port
        if port is not None:
            received = replace(received, malformed=received.malformed + port.malformed, forged=port.forged)
        return NodeStatistics(
            published=self._outbox.published - (0 if self._transport is None else self._transport.spoken),
            unwanted=self._outbox.unwanted,
            received=received,
            delivered=self.tally.delivered,
            dropped=self.tally.dropped,
            losses=self._session.losses,
            connected=self._session.connected,
            alone=self._session.alone,
            away=self._session.away,
        )
