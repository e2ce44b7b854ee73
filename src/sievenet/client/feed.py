"""A live subscription: an async iterator of events, or a callback, over a bounded queue.

    async with await node.subscribe("stock: price > 420") as feed:
        async for event in feed:
            ...

A feed outlives a lost connection and a restarted daemon. It ends (`StopAsyncIteration`) when it or its node is closed,
and raises if the daemon refuses to have it again.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

from sievenet.client import turns
from sievenet.client.delivery import Delivery
from sievenet.client.inbox import Inbox, Overflow, Policy
from sievenet.client.latency import FRESH, Latency
from sievenet.client.registrations import Registration
from sievenet.content.event import Event
from sievenet.content.filter import Subscription
from sievenet.session.lifetime import Closing

if TYPE_CHECKING:
    from sievenet.client.caching import CacheStatistics
    from sievenet.transport.statistics import ReceiverStatistics

__all__ = ["Callback", "Feed", "FeedStatistics", "Tally", "Whole"]

log = logging.getLogger("sievenet.client")


@dataclass(frozen=True, slots=True)
class Whole:
    """A callback that wants the whole `Delivery`: besides the event, its publisher, number and times."""

    function: Callable[[Delivery], Awaitable[None] | None]


#: Called with each event; may be a coroutine function, which is awaited before the next event.
Callback = Callable[[Event], Awaitable[None] | None] | Whole


@dataclass(frozen=True, slots=True)
class FeedStatistics:
    """Counts since the subscription began."""

    #: Events that matched and were handed to the queue.
    delivered: int
    #: Events that the network sent because of this subscription though nobody here wanted them.
    false_positives: int
    #: Events dropped because the queue was full, and times the network had to wait for it.
    dropped: int
    waits: int
    #: Events in the queue.
    waiting: int
    latency_p50: float | None
    latency_p99: float | None
    #: What the transport did; None if the subscription does not use it.
    transport: ReceiverStatistics | None = None
    #: What caches did; None if the subscription has no `max_rate` or `since`.
    caches: CacheStatistics | None = None

    @property
    def false_positive_rate(self) -> float:
        """Unnecessary deliveries over all deliveries."""
        return self.false_positives / max(1, self.false_positives + self.delivered)


class Tally:
    """Counts of all feeds of a node together, so that a report need not ask thousands of feeds."""

    __slots__ = ("delivered", "dropped")

    def __init__(self) -> None:
        self.delivered = 0
        self.dropped = 0


class Owner(Protocol):
    """What a feed needs of its node."""

    tally: Tally

    async def unsubscribe(self, feed: Feed) -> None:
        """Take the subscription back."""

    def room(self) -> None:
        """There is room again in a queue that was full."""

    def explain(self) -> None:
        """Settle whose false positives they were."""


class Feed(Closing):
    """The application's end of one subscription."""

    def __init__(
        self,
        owner: Owner,
        registration: Registration,
        *,
        queue: int = 10_000,
        when_full: Policy = "drop_oldest",
        callback: Callback | None = None,
        on_overflow: Callable[[Overflow], None] | None = None,
        own: bool = True,
    ) -> None:
        self._owner = owner
        #: Whether it takes what its own node publishes.
        self.own = own
        self._tally = owner.tally
        self.registration = registration
        self._inbox: Inbox[Delivery] = Inbox(queue, when_full)
        self._on_overflow = on_overflow
        self._told = 0
        self._waiters: set[asyncio.Future[None]] = set()
        self._closed = False
        self._error: BaseException | None = None
        self.false_positives = 0
        #: Of everything that was delivered: its count is theirs.
        self.latency = Latency()
        self._seconds = self.latency.fresh
        #: Set by the transport of this subscription, if it has one.
        self.transport: Callable[[], ReceiverStatistics] | None = None
        #: Set if caches may serve it; the second brings what waits outside for room.
        self.caches: Callable[[], CacheStatistics] | None = None
        self.refill: Callable[[], None] | None = None
        #: A plain function is called as events come; what has to be awaited has a task of its own, behind the queue.
        function = _of_deliveries(callback)
        self._direct = None if callback is None or _awaited(callback) else function
        self._runner: asyncio.Task[None] | None = None
        turns.shorten()
        if function is not None and self._direct is None:
            self._begin(function)

    # -- from the network -----------------------------------------------------------------

    def accept(self, delivery: Delivery) -> bool:
        """Queue a delivery. False: full, the node must wait and offer it again."""
        if self._closed:
            return True
        direct = self._direct
        if direct is not None:
            # Written out: this is what every event of a callback passes.
            self._tally.delivered += 1
            seconds = self._seconds
            seconds.append((delivery.received - delivery.sent) / 1e9)
            try:
                result = direct(delivery)
            except Exception:
                log.exception("callback of %s failed on %s", self, delivery.event)
                result = None
            if len(seconds) >= FRESH:
                self.latency.settle()
            if result is not None and inspect.isawaitable(result):
                # It has to be awaited after all: from now on events wait until it is done.
                self._direct = None
                self._begin(direct, result)
            return True
        inbox = self._inbox
        dropped = inbox.dropped
        if not inbox.offer(delivery):
            self._report()
            return False
        self._tally.delivered += 1
        self.latency.add((delivery.received - delivery.sent) / 1e9)
        if inbox.dropped != dropped:
            self._tally.dropped += 1
            self._report()
        if self._waiters:
            self._wake()
        return True

    def take_last(self, deliveries: Iterable[Delivery]) -> None:
        """Queue what waited outside for room as the feed ends: nobody will offer it again."""
        for delivery in deliveries:
            self._inbox.append(delivery)
            self._tally.delivered += 1
            self.latency.add((delivery.received - delivery.sent) / 1e9)
        self._wake()

    def _report(self) -> None:
        """Tell the application that the queue was full: each time if it asked, else in the log at 1, 2, 4, 8, …"""
        inbox = self._inbox
        notice = Overflow(str(self), inbox.policy, inbox.dropped - self._told, inbox.dropped)
        if self._on_overflow is not None:
            self._told = inbox.dropped
            try:
                self._on_overflow(notice)
            except Exception:
                log.exception("on_overflow of %s failed", self)
            return
        count = inbox.dropped or inbox.waits
        if count & (count - 1) == 0:
            self._told = inbox.dropped
            log.warning("queue of %s (%d) was full: %s, %d dropped", self, inbox.limit, inbox.policy, inbox.dropped)

    # -- to the application ---------------------------------------------------------------

    @property
    def subscription(self) -> Subscription:
        """What is subscribed to."""
        return self.registration.wanted

    @property
    def queue(self) -> int:
        """Events that may wait."""
        return self._inbox.limit

    @property
    def waiting(self) -> int:
        """Events that wait."""
        return len(self._inbox)

    @property
    def taken(self) -> int:
        """Events that the application has taken."""
        return self.latency.count - len(self._inbox) - self._inbox.dropped

    async def next(self) -> Delivery:
        """The next delivery; `StopAsyncIteration` once the feed is closed and empty."""
        inbox = self._inbox
        if not len(inbox) and self.refill is not None:
            self.refill()
        while not len(inbox):
            if self._error is not None:
                raise self._error
            if self._closed:
                raise StopAsyncIteration
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)
        was_full = inbox.policy == "wait" and inbox.full
        delivery = inbox.pop()
        if was_full:
            self._owner.room()
        return delivery

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        return (await self.next()).event

    async def deliveries(self) -> AsyncIterator[Delivery]:
        """Like iterating the feed, with publisher, sequence number and times."""
        while True:
            try:
                delivery = await self.next()
            except StopAsyncIteration:
                return
            yield delivery

    def _begin(self, callback: _Function, first: Awaitable[None] | None = None) -> None:
        self._runner = asyncio.get_running_loop().create_task(self._run(callback, first), name=f"feed {self}")

    async def _run(self, callback: _Function, first: Awaitable[None] | None) -> None:
        if first is not None:
            await self._awaited(first, "an event")
        async for delivery in self.deliveries():
            try:
                result: Any = callback(delivery)
            except Exception:
                # One bad event must not end the subscription; what failed is in the log with its traceback.
                log.exception("callback of %s failed on %s", self, delivery.event)
            else:
                if inspect.isawaitable(result):
                    await self._awaited(result, delivery.event)

    async def _awaited(self, result: Awaitable[None], event: object) -> None:
        try:
            await result
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("callback of %s failed on %s", self, event)

    def statistics(self) -> FeedStatistics:
        """Counts since the subscription began."""
        self._owner.explain()
        p50, p99 = self.latency.quantiles((0.5, 0.99))
        inbox = self._inbox
        return FeedStatistics(
            self.latency.count,
            self.false_positives,
            inbox.dropped,
            inbox.waits,
            len(inbox),
            p50,
            p99,
            None if self.transport is None else self.transport(),
            None if self.caches is None else self.caches(),
        )

    # -- ending ---------------------------------------------------------------------------

    async def close(self) -> None:
        """Unsubscribe; what is queued can still be read."""
        if not self._closed:
            await self._owner.unsubscribe(self)

    def end(self, error: BaseException | None = None) -> None:
        """No more deliveries will come (the node calls this)."""
        self._closed = True
        self._error = self._error or error
        self._wake()

    async def drained(self) -> None:
        """Wait until a callback has seen everything that was queued before `end`."""
        if self._runner is not None and self._runner is not asyncio.current_task():
            await asyncio.gather(self._runner, return_exceptions=True)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def __str__(self) -> str:
        return str(self.registration.wanted)


_Function = Callable[[Delivery], Awaitable[None] | None]


def _of_deliveries(callback: Callback | None) -> _Function | None:
    """Any callback, as one that takes deliveries."""
    if callback is None:
        return None
    return callback.function if isinstance(callback, Whole) else lambda delivery: callback(delivery.event)


def _awaited(callback: Callback) -> bool:
    return inspect.iscoroutinefunction(callback.function if isinstance(callback, Whole) else callback)
