"""One direction of a link: when does a packet arrive, if at all?

A fluid model without events of its own: `offer` knows when the wire will be free and
answers at once.

    offered at now ─▶ waits until the wire is free ─▶ bits / bandwidth ─▶ + delay + jitter ─▶ arrives
                      more than `queue` there: dropped

Packets arrive in the order in which they were sent even under jitter, except for those that
`reorder` picks: these are held back, and the others do not wait for them.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Final

from sievenet.network.link import LinkSettings

__all__ = ["Wire"]

#: A packet picked for reordering on a link without delay is held back by up to this (seconds).
_SHORTEST_HOLD: Final = 0.001


class Wire:
    """What a link does to packets in one direction."""

    __slots__ = ("_busy_until", "_last_arrival", "_sending", "lost", "overflowed", "perfect", "settings", "up")

    def __init__(self, settings: LinkSettings) -> None:
        self.settings: Final = settings
        #: Whether packets cross at once and untouched (while it is up).
        self.perfect: Final = settings.perfect
        self.up = True
        #: Packets that vanished under way, and that found the queue full.
        self.lost = 0
        self.overflowed = 0
        self._busy_until = 0.0
        self._last_arrival = 0.0
        #: When the packets that wait or are being sent will have left; ascending.
        self._sending: deque[float] = deque()

    def offer(self, now: float, size: int, rng: random.Random) -> float | None:
        """When a packet of `size` bytes, sent now, arrives; None if it does not."""
        s = self.settings
        left = now
        if s.bandwidth is not None:
            sending = self._sending
            while sending and sending[0] <= now:
                sending.popleft()
            if s.queue is not None and len(sending) >= s.queue:
                self.overflowed += 1
                return None
            left = max(now, self._busy_until) + size * 8.0 / s.bandwidth
            self._busy_until = left
            sending.append(left)
        if s.loss and rng.random() < s.loss:
            self.lost += 1
            return None
        arrival = left + s.delay
        if s.jitter:
            arrival += rng.random() * s.jitter
        if s.reorder and rng.random() < s.reorder:
            return arrival + (1.0 - rng.random()) * max(s.delay + s.jitter, _SHORTEST_HOLD)
        arrival = max(arrival, self._last_arrival)
        self._last_arrival = arrival
        return arrival

    def reset(self) -> None:
        """Forget what was under way, as a link does that went down."""
        self._sending.clear()
        self._busy_until = 0.0
        self._last_arrival = 0.0
