"""The client library for scripts: the same node, without async.

    import sievenet.sync

    with sievenet.sync.connect() as node:
        for event in node.subscribe("stock: price > 420"):
            print(event)

An event loop runs in a thread of its own, so leases are renewed and events received while the script does something
else or nothing. Calls block until done and raise what the asynchronous ones raise. A `SyncNode` may be used from
several threads. Callbacks run in that thread: they must not call the node.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Iterator
from datetime import datetime
from typing import Any, Literal, Self, TypeVar

from sievenet.cache.messages import OnFull
from sievenet.client.advertisement import Advertisement
from sievenet.client.connector import connect as connect_async
from sievenet.client.delivery import Delivery
from sievenet.client.feed import Callback, Feed, FeedStatistics
from sievenet.client.inbox import Overflow, Policy
from sievenet.client.node import Node, Wanted
from sievenet.client.statistics import NodeStatistics
from sievenet.content.batch import EventBatch
from sievenet.content.event import Event, Record
from sievenet.content.filter import Subscription
from sievenet.content.schema import Schema
from sievenet.errors import Unavailable
from sievenet.tap import Taps
from sievenet.transport import Gap, Order, Publishing, RateControl, Recover, SenderStatistics

__all__ = ["SyncAdvertisement", "SyncFeed", "SyncNode", "connect"]

T = TypeVar("T")


class _Background:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sievenet", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run in the loop and wait for the result here."""
        if not self._thread.is_alive():
            work.close()
            raise Unavailable("The node is closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise
        except BaseException:
            # An interrupted wait (Ctrl-C) takes the work back.
            future.cancel()
            raise

    @property
    def running(self) -> bool:
        """Whether the loop still runs."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """End the thread."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


class _Closing(ABC):
    """Closed at the end of ``with``."""

    @abstractmethod
    def close(self) -> None:
        """End it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class SyncFeed(_Closing):
    """A live subscription; iterate it, or ask for one event with a timeout."""

    def __init__(self, background: _Background, feed: Feed) -> None:
        self._background = background
        self._feed = feed

    @property
    def subscription(self) -> Subscription:
        """What is subscribed to."""
        return self._feed.subscription

    @property
    def queue(self) -> int:
        """Events that may wait for the application."""
        return self._feed.queue

    @property
    def waiting(self) -> int:
        """Events that wait for the application."""
        return self._feed.waiting

    @property
    def taken(self) -> int:
        """Events that the application has taken."""
        return self._feed.taken

    def next(self, timeout: float | None = None) -> Delivery | None:
        """The next delivery; ``None`` if none came in time (seconds) or the feed is closed."""

        async def one() -> Delivery | None:
            try:
                return await asyncio.wait_for(self._feed.next(), timeout)
            except (TimeoutError, StopAsyncIteration):
                return None

        return self._background.run(one())

    def get(self, timeout: float | None = None) -> Event | None:
        """The next event; ``None`` if none came in time (seconds) or the feed is closed."""
        delivery = self.next(timeout)
        return None if delivery is None else delivery.event

    def deliveries(self) -> Iterator[Delivery]:
        """Deliveries, until the feed is closed."""
        while (delivery := self.next()) is not None:
            yield delivery

    def __iter__(self) -> Iterator[Event]:
        while (event := self.get()) is not None:
            yield event

    def statistics(self) -> FeedStatistics:
        """Counts since the subscription began."""
        return self._feed.statistics()

    def close(self) -> None:
        """Unsubscribe."""
        self._background.run(self._feed.close())


class SyncAdvertisement(_Closing):
    """What a node will publish; close it, or use it as a context manager."""

    def __init__(self, background: _Background, advertisement: Advertisement) -> None:
        self._background = background
        self.advertisement = advertisement

    def close(self) -> None:
        """Take it back."""
        self._background.run(self.advertisement.close())


class SyncNode(_Closing):
    """A node for scripts. Made by `connect`; close it, or use it as a context manager."""

    def __init__(self, background: _Background, node: Node) -> None:
        self._background = background
        self._node = node

    @property
    def name(self) -> str:
        """The node's name in the fabric."""
        return self._node.name

    @property
    def host(self) -> str:
        """The host where it is attached."""
        return self._node.host

    @property
    def connected(self) -> bool:
        """Whether the control connection stands and everything is registered."""
        return self._node.connected

    def schema(self, wanted: str | Schema) -> Schema:
        """Look a schema up by name, or register one."""
        return self._background.run(self._node.schema(wanted))

    def remove_schema(self, name: str, version: int = 0, *, force: bool = False) -> None:
        """Remove a category; refused while anybody uses it, unless `force`."""
        self._background.run(self._node.remove_schema(name, version, force=force))

    def advertise(self, what: Wanted, *, transport: Publishing | bool | None = None) -> SyncAdvertisement:
        """Say what this node will publish; close the result to take it back."""
        return SyncAdvertisement(
            self._background, self._background.run(self._node.advertise(what, transport=transport))
        )

    def unadvertise(self, advertisement: SyncAdvertisement) -> None:
        """Take an advertisement back."""
        advertisement.close()

    def publish(self, event: Event | Record) -> None:
        """Publish one event."""
        self._background.run(self._node.publish(event))

    def publish_many(self, events: EventBatch | Iterable[Event] | Iterable[Record]) -> int:
        """Publish events in order; returns how many."""
        return self._background.run(self._node.publish_many(events))

    def confirmed(self) -> None:
        """Wait until the network has taken what was published so far; `Dropped` if it took less."""
        self._background.run(self._node.confirmed())

    def relay(self, events: EventBatch) -> int:
        """Publish events for another: their payloads, with the headers of its transport, stay as they are."""
        return self._background.run(self._node.relay(events))

    def published_with(self, category: str) -> SenderStatistics | None:
        """What the transport did for the events that this node publishes in a category; None without one."""
        return self._node.published_with(category)

    def tap(self, taps: Taps) -> None:
        """Sample what is published, for the pipeline."""
        self._node.tap(taps)

    def subscribe(
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
    ) -> SyncFeed:
        """Subscribe; when this returns, delivery is guaranteed from then on. Arguments as in `Node.subscribe`."""
        work = self._node.subscribe(
            what,
            callback,
            queue=queue,
            when_full=when_full,
            on_overflow=on_overflow,
            order=order,
            recover=recover,
            rate_control=rate_control,
            on_gap=on_gap,
            own=own,
            max_rate=max_rate,
            on_full=on_full,
            since=since,
        )
        return SyncFeed(self._background, self._background.run(work))

    def unsubscribe(self, feed: SyncFeed) -> None:
        """Take a subscription back; its feed ends at once."""
        feed.close()

    def plan(self, category: str) -> bytes:
        """The category's index plan of now, as JSON."""
        return self._background.run(self._node.plan(category))

    def apply_plan(self, category: str, plan: bytes | str) -> Any:
        """Change a category's index plan, given as JSON, under traffic; returns the daemon's report."""
        return self._background.run(self._node.apply_plan(category, plan))

    def ask(self, about: str, of: str = "") -> Any:
        """Ask the daemon about the fabric."""
        return self._background.run(self._node.ask(about, of))

    def statistics(self) -> NodeStatistics:
        """Counts since the node began."""
        return self._node.statistics()

    def close(self) -> None:
        """Take back everything, disconnect, and end the thread."""
        if not self._background.running:
            return
        try:
            self._background.run(self._node.close())
        finally:
            self._background.stop()


def connect(
    url: str | None = None,
    *,
    name: str | None = None,
    host: str | None = None,
    timeout: float = 30.0,
    reconnect: bool = True,
    observer: bool = False,
    operator: bool = False,
    login: str | os.PathLike[str] | None = None,
    tap: str | os.PathLike[str] | None = None,
    tap_factor: int = 100,
    transport: Publishing | bool | None = None,
) -> SyncNode:
    """Connect to a daemon; arguments as in `sievenet.connect`."""
    background = _Background()

    async def start() -> Node:
        return await connect_async(
            url,
            name=name,
            host=host,
            timeout=timeout,
            reconnect=reconnect,
            observer=observer,
            operator=operator,
            login=login,
            tap=tap,
            tap_factor=tap_factor,
            transport=transport,
        )

    try:
        return SyncNode(background, background.run(start()))
    except BaseException:
        background.stop()
        raise
