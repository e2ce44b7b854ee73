"""A link in one direction: delay that varies, loss, and a bottleneck with a bounded queue.

The queue needs no events of its own: what it holds follows from when its last byte will have left,

    backlog = (free - now) · bandwidth        a packet that would not fit is dropped, as tbf and drop-tail do

so a packet costs one event however long it queues.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import pi, sin
from random import Random
from typing import Any

from sievenet.transport.simulation.clock import Clock

__all__ = ["Link"]


class Link:
    """Bytes go in, and come out later at the other end, or never."""

    def __init__(
        self,
        clock: Clock,
        rng: Random,
        *,
        delay: float = 0.0,
        jitter: float = 0.0,
        wander: float = 0.0,
        loss: float = 0.0,
        bandwidth: float | None = None,
        queue: int = 64_000,
        packets: int | None = None,
        random_drop: bool = False,
    ) -> None:
        self._clock = clock
        self._rng = rng
        self.delay = delay
        #: The delay varies uniformly by this much to either side, for each packet anew: packets overtake each other.
        self.jitter = jitter
        #: The delay also moves slowly by this much to either side, in order: as between brokers that speak TCP.
        self.wander = wander
        self._phase, self._period = rng.random() * 2 * pi, 2.0 + 18.0 * rng.random()
        self._last = 0.0
        self.loss = loss
        #: Bits per second; None: as much as comes.
        self._bandwidth = bandwidth
        #: Bytes that may wait.
        self.queue = queue
        #: Packets that may wait, whatever their size (as in a pfifo); None: as many as the bytes allow.
        self.packets = packets
        self._waiting: deque[float] = deque()
        #: Drop early at random as the queue fills (RED), not only at its end.
        self.random_drop = random_drop
        self._free = 0.0
        self.sent = self.dropped = self.lost = 0
        self.bytes = 0

    @property
    def bandwidth(self) -> float | None:
        """Bits per second."""
        return self._bandwidth

    @bandwidth.setter
    def bandwidth(self, value: float | None) -> None:
        backlog = self.backlog()
        self._bandwidth = value
        self._free = self._clock.now + (backlog * 8 / value if value else 0.0)

    def backlog(self) -> float:
        """Bytes that wait."""
        if self._bandwidth is None or self._free <= self._clock.now:
            return 0.0
        return (self._free - self._clock.now) * self._bandwidth / 8

    def send(self, size: int, action: Callable[..., None], *arguments: Any) -> bool:
        """Send so many bytes; when they are through, the action happens. False if they were dropped or lost."""
        now = self._clock.now
        ready = now
        if self._bandwidth is not None:
            start = self._free if self._free > now else now
            backlog = (start - now) * self._bandwidth / 8
            if backlog + size > self.queue or self._crowded(now) or (self.random_drop and self._early(backlog)):
                self.dropped += 1
                return False
            ready = self._free = start + size * 8 / self._bandwidth
            if self.packets is not None:
                self._waiting.append(ready)
        self.sent += 1
        self.bytes += size
        if self.loss and self._rng.random() < self.loss:
            self.lost += 1
            return False
        jitter = self.jitter
        arrival = ready + self.delay + (self._rng.random() * 2 * jitter - jitter if jitter else 0.0)
        if self.wander:
            arrival += self.wander * sin(self._phase + 2 * pi * now / self._period)
            self._last = arrival = arrival if arrival > self._last else self._last
        self._clock.at(arrival, action, *arguments)
        return True

    def _crowded(self, now: float) -> bool:
        if self.packets is None:
            return False
        while self._waiting and self._waiting[0] <= now:
            self._waiting.popleft()
        return len(self._waiting) >= self.packets

    def _early(self, backlog: float) -> bool:
        share = backlog / self.queue
        return share > 0.25 and self._rng.random() < 0.1 * (share - 0.25) / 0.75
