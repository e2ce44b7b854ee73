"""What the transport's two ends share in one category at one node: a clock with an alarm, and a way to say things."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from sievenet.client.transport.exchange import control_schema, events_of, spoken_for
from sievenet.client.transport.host import Host
from sievenet.content.filter import Filter, Subscription
from sievenet.errors import SievenetError
from sievenet.transport.actions import Send

if TYPE_CHECKING:
    from sievenet.client.delivery import Delivery
    from sievenet.client.feed import Feed

__all__ = ["Alarm", "Endpoint"]

#: The soonest that an alarm goes off after the last one, in seconds: what is due by then is done together.
_SOONEST: Final = 1e-4


class Alarm:
    """Calls ``action`` when the earliest of the times that it was set to has come."""

    def __init__(self, clock: Callable[[], float], action: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._action = action
        self._handle: asyncio.TimerHandle | None = None
        self._due = 0.0

    def set(self, due: float | None) -> None:
        """Go off at this time of the clock, if it is not set to an earlier one."""
        if due is None or (self._handle is not None and self._due <= due):
            return
        if self._handle is not None:
            self._handle.cancel()
        self._due = due
        self._handle = self._loop.call_later(max(due - self._clock(), _SOONEST), self._ring)

    def _ring(self) -> None:
        self._handle = None
        self._action()

    def cancel(self) -> None:
        """Go off no more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class Endpoint:
    """One category's control messages at one node. Opened when it is first needed, then kept."""

    def __init__(self, host: Host, category: str) -> None:
        self._host = host
        self.schema = control_schema(category)
        self._opening: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()
        #: Monotonic, but near the wall clock, so that times of departure mean something elsewhere.
        self._offset = time.time() - loop.time()
        self._time = loop.time
        #: Events sent, control messages that could not be sent, and forged ones that were dropped.
        self.spoken = self.unsent = self.forged = 0

    def now(self) -> float:
        """The time, in seconds."""
        return self._time() + self._offset

    @property
    def connected(self) -> bool:
        """Whether what is said can be heard: the node has a connection."""
        return self._host.connected

    async def open(self) -> None:
        """May be called any number of times; returns when messages can be sent."""
        if self._opening is None or (self._opening.done() and self._failed(self._opening)):
            self._opening = asyncio.create_task(self._open())
        await asyncio.shield(self._opening)

    @staticmethod
    def _failed(task: asyncio.Task[None]) -> bool:
        return task.cancelled() or task.exception() is not None

    async def _open(self) -> None:
        self.schema = await self._host.schema(self.schema)
        await self._host.advertise(self.schema, transport=False)

    async def listen(self, filters: list[Filter], hear: Callable[[bytes, int], None]) -> Feed:
        """Hear what these filters want, and whom the plane vouches for; returns when that is certain."""

        def accept(delivery: Delivery) -> bool:
            data = delivery.event.payload
            if spoken_for(data) == -1:
                self.forged += 1
            else:
                hear(data, delivery.publisher)
            return True

        return await self._host.listen(Subscription(filters), accept)

    def say(self, send: Send, me: int) -> None:
        """Send a control message, as best-effort as everything that it is about."""
        events = events_of(self.schema, send, me)
        try:
            if events:
                self._host.emit(events)
        except SievenetError:
            # No connection, or too long for this plane: a receiver that needs it asks again.
            self.unsent += 1
        else:
            self.spoken += len(events)
            self.unsent += not events
