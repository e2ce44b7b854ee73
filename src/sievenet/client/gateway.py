"""A gateway: a router's port into an SDN fabric, so that fabrics of several owners connect through routers.

    fabric A ──▶ gateway ─ router ══ overlay ══ router ─ gateway ──▶ fabric B

To the fabric the gateway is a client, to the router too. Towards the overlay it subscribes in the fabric to what the
others want there, no more, and follows their wishes as they change (make before break: the new subscription stands
before the old one goes, and the router forwards no event twice). Into the fabric it publishes what its ``imports`` let
in, by default everything of its schemas; the fabric's first switch drops what nobody inside wants.

A switch never sends a packet back out of the port it came in by, so what the gateway publishes does not return to it.
One gateway per fabric and overlay: with two, events would go in a circle.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from typing import Self

import numpy as np

from sievenet.client.delivery import Delivery
from sievenet.client.feed import Feed
from sievenet.client.node import Node
from sievenet.content.batch import EventBatch
from sievenet.content.filter import Filter, Subscription
from sievenet.content.schema import Schema
from sievenet.errors import SievenetError
from sievenet.routers.server import RouterServer
from sievenet.routers.shipment import Shipment

__all__ = ["Gateway"]

log = logging.getLogger("sievenet.client")

#: Shipments that may wait to enter the fabric; more are dropped and counted.
_QUEUE = 1024


class Gateway:
    """``async with Gateway(node, server, schemas)`` joins a fabric and a router of this process."""

    def __init__(
        self,
        fabric: Node,
        server: RouterServer,
        schemas: Iterable[Schema],
        imports: Mapping[str, Subscription] | None = None,
    ) -> None:
        self._fabric = fabric
        self._server = server
        self._schemas = list(schemas)
        self._imports = imports or {}
        self._name = f"gateway-{fabric.name}"
        self._categories: dict[int, Schema] = {}
        self._feeds: dict[int, tuple[Subscription, Feed]] = {}
        self._dirty = asyncio.Event()
        self._queue: asyncio.Queue[Shipment] = asyncio.Queue(_QUEUE)
        self._tasks: set[asyncio.Task[None]] = set()
        #: Events into the overlay, into the fabric, and those that did not fit the queue.
        self.exported = self.imported = self.dropped = 0

    async def __aenter__(self) -> Self:
        server, router = self._server, self._server.router
        server.join(self._name, self._take, self._dirty.set)
        for number, schema in enumerate(self._schemas):
            # The router's own copy of the schema, so that events and filters compare by identity.
            category = router.register(schema)
            self._categories[category] = schema
            await self._fabric.advertise(schema)
            wanted = self._imports.get(schema.name) or Subscription([Filter(schema)])
            server.do(router.subscribe(self._name, number, category, wanted, time.monotonic()))
            everything = Subscription([Filter(schema)])
            server.do(router.advertise(self._name, number, category, everything, time.monotonic()))
        self._start(self._enter_fabric(), "into the fabric")
        self._start(self._follow(), "follow")
        self._dirty.set()
        return self

    async def __aexit__(self, *_error: object) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._server.do(self._server.router.detach(self._name, time.monotonic()))
        for _, feed in self._feeds.values():
            try:
                await feed.close()
            except SievenetError as error:
                log.debug("%s: %s", self._name, error)

    def _start(self, work: object, what: str) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work, name=f"{self._name}: {what}")  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

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
                self.imported += await self._fabric.publish_many(shipment.events)
            except SievenetError as error:
                self.dropped += len(shipment)
                log.warning("%s: not into the fabric: %s", self._name, error)

    # -- fabric to overlay ----------------------------------------------------------------

    async def _follow(self) -> None:
        """Subscribe in the fabric to what the overlay wants of it, whenever that changes."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            for category, schema in self._categories.items():
                found = self._server.router.wanted_elsewhere(self._name, category)
                wanted = Subscription(found, schema)
                before = self._feeds.get(category)
                if before is not None and before[0] == wanted:
                    continue
                try:
                    await self._change(category, wanted, None if before is None else before[1])
                except SievenetError as error:
                    log.warning("%s: %s", self._name, error)
                    await asyncio.sleep(0.2)
                    self._dirty.set()

    async def _change(self, category: int, wanted: Subscription, old: Feed | None) -> None:
        if not wanted.filters:
            self._feeds.pop(category, None)
        else:
            feed = await self._fabric.subscribe(wanted, queue=100_000)
            self._feeds[category] = (wanted, feed)
            self._start(self._export(category, feed), "into the overlay")
        if old is not None:
            await old.close()

    async def _export(self, category: int, feed: Feed) -> None:
        schema = self._categories[category]
        async for delivery in feed.deliveries():
            await self._leave_fabric(category, schema, delivery)

    async def _leave_fabric(self, category: int, schema: Schema, delivery: Delivery) -> None:
        router = self._server.router
        # The fabric's own numbers name the event: a copy by another subscription is recognised in the router.
        shipment = Shipment(
            router.name,
            delivery.publisher >> 1,
            category,
            np.array([delivery.sequence], np.int64),
            np.array([delivery.sent], np.int64),
            EventBatch.from_events(schema, [delivery.event]),
        )
        self._server.do(router.publish(self._name, shipment, time.monotonic()))
        self.exported += 1

    def statistics(self) -> dict[str, int]:
        """Counts since the gateway began."""
        return {"exported": self.exported, "imported": self.imported, "dropped": self.dropped}
