"""One direction of a link: when does a packet arrive, if at all?

A fluid model without events of its own: `offer` knows when the bottleneck will be free, and answers at once.

    offered now ─▶ waits until the bottleneck is free ─▶ bits / bandwidth ─▶ + delay + jitter + wander ─▶ arrives
                   queue full: dropped                                       loss: lost

What waits follows from when its last bit will have left: backlog = (free - now) · bandwidth.  So a packet costs at most
one event, however long it waits.

Packets arrive in the order in which they were sent, except for those that ``reorder`` picks (they are held back, and
the others do not wait for them), or if the pipe is not ``ordered``: then jitter lets packets overtake each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import pi, sin
from random import Random
from typing import Any, Final

from sievenet.network.link import LinkSettings
from sievenet.simulation.clock import Scheduler

__all__ = ["Pipe"]

#: A packet picked for reordering on a link without delay is held back by up to this (seconds).
_SHORTEST_HOLD: Final = 0.001
#: Early random drop: from this share of the queue on, up to this probability.
_EARLY_FROM: Final = 0.25
_EARLY_MOST: Final = 0.1


class Pipe:
    """What a link does to packets in one direction."""

    __slots__ = (
        "_bandwidth", "_clock", "_free", "_last", "_period", "_phase", "_rng", "_waiting",
        "bytes", "delay", "dropped", "early_drop", "jitter", "loss", "lost", "ordered", "perfect", "queue",
        "queue_bytes", "reorder", "sent", "up", "wander",
    )  # fmt: skip

    def __init__(
        self,
        clock: Scheduler,
        rng: Random,
        *,
        delay: float = 0.0,
        jitter: float = 0.0,
        wander: float = 0.0,
        loss: float = 0.0,
        reorder: float = 0.0,
        ordered: bool = True,
        bandwidth: float | None = None,
        queue: int | None = None,
        queue_bytes: int | None = None,
        early_drop: bool = False,
    ) -> None:
        self._clock = clock
        self._rng = rng
        self.delay = delay
        #: Longest extra delay, drawn uniformly for each packet.
        self.jitter = jitter
        #: The delay also moves slowly by this much to either side, as between brokers that speak TCP.
        self.wander = wander
        self._phase, self._period = (rng.random() * 2 * pi, 2.0 + 18.0 * rng.random()) if wander else (0.0, 1.0)
        self.loss = loss
        self.reorder = reorder
        self.ordered = ordered
        self._bandwidth = bandwidth
        #: Packets and bytes that may wait, what is being sent included; None: any number.
        self.queue = queue
        self.queue_bytes = queue_bytes
        #: Drop early at random as the queue of bytes fills (RED), not only when it is full.
        self.early_drop = early_drop
        self.up = True
        #: Whether packets cross at once and untouched (while it is up).
        self.perfect = not (delay or jitter or wander or loss or reorder) and bandwidth is None
        #: Packets that were sent, that found the queue full, and that vanished on the way.
        self.sent = self.dropped = self.lost = 0
        self.bytes = 0
        self._free = 0.0
        self._last = 0.0
        #: When the packets that wait or are being sent will have left; ascending.
        self._waiting: deque[float] = deque()

    @staticmethod
    def of(settings: LinkSettings, clock: Scheduler, rng: Random) -> Pipe:
        """One direction of a topology's link."""
        s = settings
        return Pipe(
            clock, rng, delay=s.delay, jitter=s.jitter, loss=s.loss, reorder=s.reorder, bandwidth=s.bandwidth,
            queue=s.queue,
        )  # fmt: skip

    @property
    def bandwidth(self) -> float | None:
        """Bits per second; None: sending takes no time."""
        return self._bandwidth

    @bandwidth.setter
    def bandwidth(self, value: float | None) -> None:
        backlog = self.backlog()
        self._bandwidth = value
        self._free = self._clock.time() + (backlog * 8 / value if value else 0.0)

    def backlog(self) -> float:
        """Bytes that wait."""
        waiting = self._free - self._clock.time()
        return waiting * self._bandwidth / 8 if self._bandwidth is not None and waiting > 0 else 0.0

    def offer(self, size: int) -> float | None:
        """When a packet of so many bytes, sent now, arrives; None if it does not."""
        now = left = self._clock.time()
        rng = self._rng
        bandwidth = self._bandwidth
        if bandwidth is not None:
            start = self._free if self._free > now else now
            if self._full((start - now) * bandwidth / 8, size, now):
                self.dropped += 1
                return None
            left = self._free = start + size * 8.0 / bandwidth
            if self.queue is not None:
                self._waiting.append(left)
        self.sent += 1
        self.bytes += size
        if self.loss and rng.random() < self.loss:
            self.lost += 1
            return None
        arrival = left + self.delay
        if self.jitter:
            arrival += rng.random() * self.jitter
        if self.wander:
            arrival += self.wander * sin(self._phase + 2 * pi * now / self._period)
        if self.reorder and rng.random() < self.reorder:
            return arrival + (1.0 - rng.random()) * max(self.delay + self.jitter, _SHORTEST_HOLD)
        if self.ordered:
            self._last = arrival = arrival if arrival > self._last else self._last
        return arrival

    def send(self, size: int, action: Callable[..., Any], *arguments: Any) -> bool:
        """Send so many bytes; when they are through, the action happens. False if they were dropped or lost."""
        arrival = self.offer(size)
        if arrival is None:
            return False
        self._clock.call_at(arrival, action, *arguments)
        return True

    def _full(self, backlog: float, size: int, now: float) -> bool:
        if self.queue is not None:
            waiting = self._waiting
            while waiting and waiting[0] <= now:
                waiting.popleft()
            if len(waiting) >= self.queue:
                return True
        if self.queue_bytes is None:
            return False
        if backlog + size > self.queue_bytes:
            return True
        above = backlog / self.queue_bytes - _EARLY_FROM
        return self.early_drop and above > 0 and self._rng.random() < _EARLY_MOST * above / (1 - _EARLY_FROM)

    def reset(self) -> None:
        """Forget what was under way, as a link does that went down."""
        self._waiting.clear()
        self._free = self._last = 0.0
