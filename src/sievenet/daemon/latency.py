"""The mean latency of one way through the network, over the last few intervals, and how steady it is.

Every event counts: a few late ones, in an interval in which most went another way, do not stand for the many before.
With the same number of events in each interval the last one counts `_NEW`, the one before it `_NEW` of the rest.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Latency"]

#: What the last interval counts in mean latencies.
_NEW: Final = 0.3


class Latency:
    """Of one way."""

    def __init__(self) -> None:
        self._past: float | None = None
        #: Events that the past counts for.
        self._weight = 0.0
        self._events, self._seconds = 0, 0.0
        #: Seconds by which an interval differed from those before it, as a mean over the last few.
        self.drift = 0.0
        self._idle = 0

    def add(self, events: int, seconds: float) -> None:
        """So many events took so many seconds together."""
        if events > 0 and seconds >= 0:
            self._events += events
            self._seconds += seconds

    @property
    def value(self) -> float | None:
        """The mean, in seconds; None if there were no events yet."""
        if not self._events:
            return self._past
        new = self._seconds / self._events
        return new if self._past is None else self._past + self._share * (new - self._past)

    @property
    def _share(self) -> float:
        """What this interval counts: `_NEW` if it has as many events as those before it."""
        return self._events / (self._events + (1 - _NEW) * self._weight)

    @property
    def events(self) -> int:
        """Those of this interval."""
        return self._events

    @property
    def seconds(self) -> float:
        """What those took together."""
        return self._seconds

    @property
    def idle(self) -> int:
        """Whole intervals since there were events."""
        return 0 if self._events else self._idle

    def turn(self) -> None:
        """An interval is over."""
        self._idle += 1
        if not self._events:
            return
        if self._past is not None:
            self.drift += self._share * (abs(self._seconds / self._events - self._past) - self.drift)
        self._past, self._weight = self.value, self._events + (1 - _NEW) * self._weight
        self._events, self._seconds, self._idle = 0, 0.0, 0
