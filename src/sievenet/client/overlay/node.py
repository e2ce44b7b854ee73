"""A node at a content router instead of a fabric's daemon.

    async with sievenet.connect("sievenet+router://127.0.0.1:7500") as node:
        async with await node.subscribe("stock: price > 420") as feed: ...

Events go and come on the control connection, in batches. There is no index plan and no data port; schemaless records
and filters are welcome (`Record`, text without a schema's name). A lost connection is taken up again, and everything is
registered anew. The router keeps what this node is owed for a lease (`routers.session`); what it publishes meanwhile
waits.
"""

from __future__ import annotations

import ssl
from asyncio import gather, timeout
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final, Self

from sievenet.access.identity import Role
from sievenet.access.login import Login
from sievenet.client.feed import Feed
from sievenet.client.node import Node
from sievenet.client.offers import Offers
from sievenet.client.overlay.arrival import Landing
from sievenet.client.overlay.membership import RouterMembership
from sievenet.client.overlay.volunteer import Helping
from sievenet.client.receiver import Sink
from sievenet.client.registrations import Registration
from sievenet.client.statistics import NodeStatistics
from sievenet.client.transport.overlay_host import OverlayHost
from sievenet.client.transport.shim import batch_escaped
from sievenet.content.batch import EventBatch
from sievenet.content.codec import decode_schema, encode_schema
from sievenet.content.event import Event, Record
from sievenet.content.schema import Schema
from sievenet.errors import SchemaError, SievenetError, Unavailable
from sievenet.routers import protocol as p
from sievenet.routers.offload.messages import Assign, Compute
from sievenet.session.caller import Request
from sievenet.session.link import Link
from sievenet.transport.options import Publishing

__all__ = ["OverlayNode"]

#: Events sent together.
_CHUNK: Final = 2048
#: Seconds that leaving waits for what the router has dropped.
_TAKEN: Final = 2.0


class OverlayNode(Node):
    """Made by `connect` with a router's URL."""

    _schemaless = True

    def __init__(
        self,
        url: str,
        *,
        name: str | None = None,
        timeout: float = 30.0,
        reconnect: bool = True,
        tls: ssl.SSLContext | None = None,
        login: Login | None = None,
        role: Role = Role.CLIENT,
        transport: Publishing | None = None,
    ) -> None:
        super().__init__(transport)
        self._schemas: dict[int, Schema | None] = {0: None}
        #: The router's numbers of schemas, by name; 0 is for what has none.
        self._categories: dict[str, int] = {"": 0}
        self._landing = Landing(self._schemas)
        self._link = RouterMembership(
            url,
            name=name,
            timeout=timeout,
            reconnect=reconnect,
            tls=tls,
            login=login,
            role=role,
            restore=self._restore,
            arrived=self._landing.arrived,
            asked=self._asked,
            revised=self._revised,
        )
        self._allowance = self._link.allowance
        self._helping: Helping | None = None
        self._offers = Offers()
        #: What is taken back, and the router may not know: a router keeps registrations when a connection is lost.
        self._withdrawn: dict[int, Registration] = {}
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

    async def _leave(self) -> None:
        if self._published and self.connected:
            await self._taken()
        await self._link.close()
        if self._helping is not None:
            await self._helping.close()

    async def _taken(self) -> None:
        """Wait, not for long, until the router has said what it dropped: its answers come in order, behind that."""
        for entry in [each for each in self._ledger if each.kind == "advertisement"][:1]:
            with suppress(SievenetError, TimeoutError):
                async with timeout(_TAKEN):
                    await self._withdraw(entry)

    async def _restore(self, link: Link) -> None:
        """Register everything at a router that may know nothing of it."""

        async def say(request: Request) -> Any:
            return await link.call(request, self._link.timeout)

        for schema in [s for s in self._schemas.values() if s is not None]:
            await say(lambda number: p.Register(number, encode_schema(schema)))  # noqa: B023
        if self._helping is not None:
            self._helping.renew()
            await say(lambda number: p.Volunteer(number))
        for entry in list(self._withdrawn.values()):
            await say(self._taking_back(entry))
        entries = list(self._ledger)
        answers = await gather(*(say(self._making(each)) for each in entries), return_exceptions=True)
        for entry, answer in zip(entries, answers, strict=True):
            if isinstance(answer, SievenetError) and not isinstance(answer, Unavailable):
                self._refused(entry, answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                self._answered(entry, answer)
                if entry.kind == "advertisement":
                    self._allow(entry)
        if self._transport is not None:
            self._transport.renewed()

    # -- registrations --------------------------------------------------------------------

    async def schema(self, wanted: str | Schema) -> Schema:
        """Look a schema up by name, or register one."""
        known = self._schemas.get(self._categories.get(wanted if isinstance(wanted, str) else wanted.name, 0))
        if known is not None and (isinstance(wanted, str) or known == wanted):
            return known
        if isinstance(wanted, str):
            answer = await self._link.call(lambda number: p.LookUp(number, wanted))
            schema = decode_schema(answer.schema)
        else:
            answer = await self._link.call(lambda number: p.Register(number, encode_schema(wanted)))
            schema = wanted
        self._schemas[answer.category] = schema
        self._categories[schema.name] = answer.category
        return schema

    def _making(self, entry: Registration) -> Request:
        category = self._categories[entry.category]
        if entry.kind == "advertisement":
            return lambda number: p.Advertise(number, entry.id, category, entry.content)
        helping = self._helping
        if helping is None:
            return lambda number: p.Subscribe(number, entry.id, category, entry.content)
        wanted = entry.wanted.filters
        return lambda number: p.Subscribe(number, entry.id, category, entry.content, helping.claims(category, wanted))

    async def _say(self, entry: Registration) -> None:
        self._answered(entry, await self._link.call(self._making(entry)))

    def _answered(self, entry: Registration, answer: Any) -> None:
        self._allowance.answered(entry, answer)

    async def _withdraw(self, entry: Registration) -> None:
        self._withdrawn[entry.id] = entry
        await self._link.call(self._taking_back(entry))
        self._withdrawn.pop(entry.id, None)

    @staticmethod
    def _taking_back(entry: Registration) -> Request:
        message = p.Unsubscribe if entry.kind == "subscription" else p.Unadvertise
        return lambda number: message(number, entry.id)

    def _allow(self, entry: Registration) -> None:
        self._offers.allow(self._allowance.of(entry))

    def _forbid(self, entry: Registration) -> None:
        self._offers.forbid(entry)

    def _open(self, entry: Registration, sink: Sink) -> None:
        self._landing.add(self._categories[entry.category], entry.id, entry.wanted, sink)

    def _shut(self, entry: Registration) -> None:
        self._landing.remove(self._categories[entry.category], entry.id)

    def explain(self) -> None:
        """Nothing waits to be explained: a router delivers by exact filters."""

    def room(self) -> None:
        """There is room again in a queue that was full."""
        super().room()
        self._landing.room()

    def _transport_host(self) -> OverlayHost:
        return OverlayHost(self, self._link, self._categories)

    # -- publishing -----------------------------------------------------------------------

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
        self._allowance.check()
        category = self._publishable(rows)
        if isinstance(rows, EventBatch):
            if self._transport is not None and (source := self._transport.sources.get(rows.schema.name)) is not None:
                await self._link.ready()
                await source.publish_many(rows)
                self._published += len(rows)
                await self._loopback.published(rows, rows.schema.name)
                return len(rows)
            said: EventBatch | list[Record] = rows
            rows = batch_escaped(rows)
        else:
            said = rows
        for start in range(0, len(rows), _CHUNK):
            await self._link.ready()
            some = slice(start, start + _CHUNK)
            self._link.publish(category, rows.take(some) if isinstance(rows, EventBatch) else rows[some])
            await self._link.drained()
        self._published += len(rows)
        await self._loopback.published(said, said.schema.name if isinstance(said, EventBatch) else "")
        return len(rows)

    async def confirmed(self) -> None:
        """Wait until the router has taken what was published so far; `Dropped` if it took less."""
        name = next((name for name in self._categories if name), "")
        # Whatever it answers: it has read everything before.
        with suppress(SchemaError):
            await self._link.call(lambda number: p.LookUp(number, name))
        self._allowance.check()

    def _matching(self, event: Event | Record) -> Iterable[Feed]:
        category = self._categories[event.schema.name if isinstance(event, Event) else ""]
        found = self._landing.match(category, event)
        return [feed for key in found if (feed := self._feeds.get(key)) is not None]

    def _identity(self) -> tuple[int, int]:
        return self._link.publisher, 0

    def _publishable(self, rows: EventBatch | list[Record]) -> int:
        """The category of some events, once each of them is advertised."""
        schema = rows.schema if isinstance(rows, EventBatch) else None
        name = "" if schema is None else schema.name
        category = self._categories.get(name, -1)
        if self._schemas.get(category) != schema or category < 0:
            raise SchemaError(expected="events of a schema that is advertised", got=name)
        self._offers.check(name, rows)
        return category

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
            missed=self._link.missed,
            away=self._link.away,
        )
