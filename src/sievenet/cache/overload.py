"""Overload: does more come than a subscriber can take?

Two ways to know. With a *limit* (events per second) arrivals are counted in windows of 100 ms; the event that is one
too many in its window is noticed at once, not at the window's end. Without one the limit is *measured*: while events
wait, the application takes them as fast as it can, and how fast that is says how many may wait.

    Meter     limit known       count in this window > limit · window + 1
    Pace      limit measured    events that wait > what the application takes in half a second
    PortMeter limit known       what the switch has sent to its port, for subscribers that do not report

Pure: the time is an argument.
"""

from __future__ import annotations

from typing import Final

from sievenet.errors import InvalidInput

__all__ = ["WINDOW", "Meter", "Pace", "PortMeter"]

#: Seconds of a window; longer where the limit is so low that it would hold next to nothing.
WINDOW: Final = 0.1
#: Events that a window holds at least.
_LEAST: Final = 10
#: Seconds that events may wait for the application, and how many may always do so.
_PATIENCE: Final = 0.5
_ALWAYS: Final = 64
#: Weight of the newest window in the measured rate.
_NEWEST: Final = 0.3


class Meter:
    """Arrivals against a limit."""

    def __init__(self, limit: float) -> None:
        if not 0 < limit < float("inf"):
            raise InvalidInput(expected="a rate above 0 events per second", got=limit, where="max_rate")
        self.limit = limit
        self.window = max(WINDOW, _LEAST / limit)
        #: At the limit exactly, one window in a few has one more than its share.
        self._most = limit * self.window + 1
        self._ends = float("-inf")
        self._count = 0
        #: Events of the last whole window, per second.
        self.load = 0.0

    def arrived(self, count: int, now: float) -> bool:
        """So many events come; whether this window has more than the limit allows."""
        if now >= self._ends:
            # Windows follow each other without gaps while events come; after a silence they begin anew.
            late = now - self._ends
            self.load = self._count / self.window if late < self.window else 0.0
            self._ends = self._ends + self.window if late < self.window else now + self.window
            self._count = 0
        self._count += count
        return self._count > self._most

    def forget(self) -> None:
        """Count anew: what comes from now on comes in another way."""
        self._ends, self._count, self.load = float("-inf"), 0, 0.0


class Pace:
    """How fast an application takes events, and whether too many wait for it."""

    def __init__(self, queue: int) -> None:
        self._queue = queue
        self._taken: int | None = None
        self._waited = False
        self._since = 0.0
        #: Events per second, as far as is known: an application that never let one wait may take any number.
        self.rate: float | None = None

    def looked(self, taken: int, waiting: int, now: float) -> bool:
        """So many events were taken in all, so many wait; whether these are too many. Asked about once per window."""
        if self._taken is not None and now - self._since >= WINDOW:
            if self._waited and waiting:
                rate = (taken - self._taken) / (now - self._since)
                self.rate = rate if self.rate is None else self.rate + _NEWEST * (rate - self.rate)
            self._taken, self._since, self._waited = taken, now, waiting > 0
        elif self._taken is None:
            self._taken, self._since, self._waited = taken, now, waiting > 0
        most = self._queue / 2
        if self.rate is not None:
            most = min(most, max(_ALWAYS, self.rate * _PATIENCE))
        return waiting > most


class PortMeter:
    """A port's counters, as its switch has them: what went through since the last look."""

    def __init__(self) -> None:
        self._last: tuple[int, int, float] | None = None
        #: Packets per second that it gave, and those that it dropped, between the last two looks.
        self.rate = 0.0
        self.drops = 0

    def looked(self, sent: int, dropped: int, now: float) -> None:
        """So many packets were sent and dropped in all."""
        last, self._last = self._last, (sent, dropped, now)
        self.rate, self.drops = 0.0, 0
        # Counters that go back are those of another port.
        if last is not None and sent >= last[0] and dropped >= last[1] and now > last[2]:
            self.rate = (sent - last[0]) / (now - last[2])
            self.drops = dropped - last[1]
