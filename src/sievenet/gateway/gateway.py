"""A gateway: a router's port into an SDN fabric, so that fabrics of several owners connect through routers.

    fabric A ──▶ gateway ─ router ══ overlay ══ router ─ gateway ──▶ fabric B

To the fabric the gateway is a client, to the router too, and to each it stands for all that is behind the other:

* what the fabric's nodes subscribe to (it asks the daemon for ``interests``) it subscribes to at the router;
* what the overlay wants of it (`Router.wanted_elsewhere`) it subscribes to in the fabric.

Both are followed as they change, and both leave out what the gateway itself asked for, so wishes do not go in a circle.
Schemas come along: a category that one side speaks of is registered at the other. So two fabrics connect with no
configuration; ``imports`` may restrict what enters one. New wishes stand before old ones go (make before break), and
the router forwards no event twice.

Headers of a publisher's transport pass as they are, and so do the control messages of both ends, which are events of a
category of their own: order, recovery and rate control work end to end through gateways.

A switch never sends a packet back out of the port it came in by, so what the gateway publishes does not return to it.
One gateway per fabric and overlay: with two, events would go in a circle.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, Self

import numpy as np

from sievenet.client.delivery import Delivery
from sievenet.client.feed import Feed
from sievenet.client.node import Node
from sievenet.client.transport.shim import escaped, stamped
from sievenet.content.batch import EventBatch
from sievenet.content.codec import decode_filter, decode_schema
from sievenet.content.filter import Filter, Subscription
from sievenet.content.schema import Schema
from sievenet.errors import Rejected, SievenetError
from sievenet.routers.forest import Forest
from sievenet.routers.server import RouterServer
from sievenet.routers.shipment import Shipment
from sievenet.session.lifetime import Starting, Tasks

__all__ = ["Gateway"]

log = logging.getLogger("sievenet.gateway")

#: Seconds between two questions after many that were refused.
_LATE: Final = 30.0

#: Shipments that may wait to enter the fabric; more are dropped and counted.
_QUEUE = 1024
#: Filters of one subscription in the fabric; more are not told apart, and everything of the category is taken.
_FILTERS = 256
#: Seconds that closing waits for the fabric.
_PATIENCE = 2.0


class Gateway(Starting):
    """``async with Gateway(node, server)`` joins a fabric and a router of this process.

    ``schemas`` are registered on both sides at once; others when somebody wants something of them. ``imports`` say, by
    category, what may enter the fabric. ``every`` is how often the fabric's wishes are asked for, in seconds.
    """

    def __init__(
        self,
        fabric: Node,
        server: RouterServer,
        schemas: Iterable[Schema] = (),
        imports: Mapping[str, Subscription] | None = None,
        *,
        every: float = 0.2,
    ) -> None:
        self._fabric = fabric
        self._server = server
        self._schemas = list(schemas)
        self._imports = imports or {}
        self._every = every
        # Nodes of different fabrics may have the same name.
        self._name = f"gateway-{secrets.token_hex(4)}"
        #: Categories that the fabric knows too; those that it refused.
        self._categories: dict[int, Schema] = {}
        self._refused: set[int] = set()
        #: Categories that the gateway may publish in the fabric.
        self._offered: set[int] = set()
        #: What the fabric wants: category → filter → number of its subscription at the router.
        self._wishes: dict[int, dict[Filter, int]] = {}
        self._numbers = 0
        self._feeds: dict[int, tuple[Subscription, Feed]] = {}
        self._dirty = asyncio.Event()
        self._queue: asyncio.Queue[Shipment] = asyncio.Queue(_QUEUE)
        self._tasks = Tasks()
        #: Events into the overlay, into the fabric, and those that did not fit the queue.
        self.exported = self.imported = self.dropped = 0

    async def start(self) -> Self:
        """Join both networks; `Rejected` if the fabric does not tell this node what others want."""
        try:
            await self._interests("")
        except Rejected as error:
            raise Rejected(f"{error}. A gateway needs a login of role operator, with rules for what may pass") from None
        self._server.join(self._name, self._take, self._dirty.set)
        for schema in self._schemas:
            await self._join(self._server.router.register(schema))
        self._tasks.begin(self._enter_fabric(), f"{self._name}: into the fabric")
        self._tasks.begin(self._follow(), f"{self._name}: follow the overlay")
        self._tasks.begin(self._listen(), f"{self._name}: follow the fabric")
        self._dirty.set()
        return self

    async def close(self) -> None:
        """Send what waits, and leave."""
        end = time.monotonic() + _PATIENCE
        while self._queue.qsize() and time.monotonic() < end:
            await asyncio.sleep(0.01)
        if left := self._queue.qsize():
            log.warning("%s: %d shipments were not sent into the fabric before the end", self._name, left)
        await self._tasks.close()
        self._server.do(self._server.router.detach(self._name, time.monotonic()))
        for _, feed in self._feeds.values():
            try:
                # The fabric may be gone too; it forgets a silent client by itself.
                async with asyncio.timeout(_PATIENCE):
                    await feed.close()
            except (SievenetError, TimeoutError) as error:
                log.debug("%s: %s", self._name, error)

    async def _join(self, category: int) -> bool:
        """Make a category of the overlay known in the fabric; False if the fabric has another of that name."""
        if category in self._categories:
            return True
        schema = self._server.router.catalogue.schemas[category]
        if schema is None or category in self._refused:
            return False
        try:
            await self._fabric.schema(schema)
        except SievenetError as error:
            log.warning("%s: %s stays outside: %s", self._name, schema.name, error)
            self._refused.add(category)
            return False
        self._categories[category] = schema
        return True

    # -- the fabric's wishes, to the overlay ----------------------------------------------

    async def _interests(self, version: str) -> dict[str, Any]:
        found: dict[str, Any] = await self._fabric.ask("interests", f"{self._fabric.name} {version}")
        return found

    async def _listen(self) -> None:
        """Subscribe at the router to what the fabric's nodes want, whenever that changes."""
        version, told, wait = "", "", self._every
        while True:
            try:
                found = await self._interests(version)
                if "categories" in found:
                    await self._wish(found["categories"])
                version, told, wait = found["version"], "", self._every
            except SievenetError as error:
                if str(error) != told:  # once, however long it lasts
                    log.warning("%s does not know what the fabric wants: %s", self._name, error)
                version, told = "", str(error)
                # It may not ask; or the fabric is away, and may be back at any moment.
                wait = min(2 * wait, max(_LATE, self._every)) if isinstance(error, Rejected) else self._every
            await asyncio.sleep(wait)

    async def _wish(self, found: dict[str, Any]) -> None:
        router = self._server.router
        wanted: dict[int, dict[Filter, None]] = {}
        for data, filters in found.values():
            # The router's own copy of the schema, so that events and filters compare by identity.
            category = router.register(decode_schema(data))
            schema = router.catalogue.schemas[category]
            if filters and await self._join(category):
                await self._offer(category)
                wanted[category] = dict.fromkeys(self._allowed(decode_filter(schema, each) for each in filters))
        for category in {*wanted, *self._wishes}:
            self._subscribe(category, wanted.get(category, {}))

    def _allowed(self, filters: Iterable[Filter]) -> Iterable[Filter]:
        for each in filters:
            policy = self._imports.get(each.schema.name) if each.schema is not None else None
            parts = [each] if policy is None else [each.intersect(some) for some in policy.filters]
            yield from (part for part in parts if not part.empty)

    def _subscribe(self, category: int, wanted: dict[Filter, None]) -> None:
        """The difference only; the router finds out what covers what."""
        server, now = self._server, time.monotonic()
        mine = self._wishes.setdefault(category, {})
        for each in wanted:
            if each not in mine:
                self._numbers += 1
                mine[each] = self._numbers
                server.do(server.router.subscribe(self._name, self._numbers, category, Subscription([each]), now))
        for each in [f for f in mine if f not in wanted]:
            server.do(server.router.unsubscribe(self._name, mine.pop(each), now))
        server.changed()

    async def _offer(self, category: int) -> None:
        """The gateway will publish such events in the fabric."""
        if category not in self._offered:
            await self._fabric.advertise(self._categories[category])
            self._offered.add(category)

    # -- overlay to fabric ----------------------------------------------------------------

    def _take(self, shipment: Shipment) -> None:
        try:
            self._queue.put_nowait(shipment)
        except asyncio.QueueFull:
            self.dropped += len(shipment)

    async def _enter_fabric(self) -> None:
        while True:
            shipment = await self._queue.get()
            assert isinstance(shipment.events, EventBatch)
            try:
                # Headers of a transport stay as they are: they are for who receives the events.
                self.imported += await self._fabric.relay(shipment.events)
            except SievenetError as error:
                self.dropped += len(shipment)
                log.warning("%s: events could not be sent into the fabric: %s", self._name, error)

    # -- the overlay's wishes, to the fabric ----------------------------------------------

    async def _follow(self) -> None:
        """Subscribe in the fabric to what the overlay wants of it, whenever that changes."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            for category in [c for c in self._server.router.catalogue.schemas if c]:
                try:
                    await self._follow_one(category)
                except SievenetError as error:
                    log.warning("%s: %s", self._name, error)
                    await asyncio.sleep(0.2)
                    self._dirty.set()

    async def _follow_one(self, category: int) -> None:
        found = self._server.router.wanted_elsewhere(self._name, category)
        before = self._feeds.get(category)
        if (not found and before is None) or not await self._join(category):
            return
        wanted = _united(found, self._categories[category])
        if before is None or before[0] != wanted:
            await self._change(category, wanted, None if before is None else before[1])

    async def _change(self, category: int, wanted: Subscription, old: Feed | None) -> None:
        if not wanted.filters:
            self._feeds.pop(category, None)
        else:
            feed = await self._fabric.subscribe(wanted, queue=100_000, own=False)
            self._feeds[category] = (wanted, feed)
            self._tasks.begin(self._export(category, feed), f"{self._name}: into the overlay")
        if old is not None:
            await old.close()

    async def _export(self, category: int, feed: Feed) -> None:
        schema = self._categories[category]
        async for delivery in feed.deliveries():
            await self._leave_fabric(category, schema, delivery)

    async def _leave_fabric(self, category: int, schema: Schema, delivery: Delivery) -> None:
        router = self._server.router
        # As it was published: with the header of its publisher's transport, for who receives it.
        stamp = delivery.stamp
        event = escaped(delivery.event) if stamp is None else stamped(delivery.event, stamp.raw)
        # The fabric's own numbers name the event: a copy by another subscription is recognised in the router. Publisher
        # and incarnation become one number there; the incarnation is random, so is what comes of both.
        shipment = Shipment(
            router.name,
            (delivery.publisher ^ delivery.incarnation) >> 1,
            category,
            np.array([delivery.sequence], np.int64),
            np.array([delivery.sent], np.int64),
            EventBatch.from_events(schema, [event]),
        )
        self._server.do(router.publish(self._name, shipment, time.monotonic()))
        self.exported += 1

    def statistics(self) -> dict[str, int]:
        """Counts since the gateway began."""
        wishes = sum(map(len, self._wishes.values()))
        dropped = self.dropped + sum(feed.statistics().dropped for _, feed in self._feeds.values())
        return {"exported": self.exported, "imported": self.imported, "dropped": dropped, "wishes": wishes}


def _united(filters: Iterable[Filter], schema: Schema) -> Subscription:
    """One subscription for many filters: those that no other covers, or everything if there are too many."""
    forest = Forest()
    for each in filters:
        forest.subscribe(each, None)
    roots = forest.root_filters()
    return Subscription(roots if len(roots) <= _FILTERS else [Filter(schema)], schema)
