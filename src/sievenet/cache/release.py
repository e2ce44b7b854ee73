"""Release: how many events may go to a subscriber now.

Two bounds, and the smaller counts.

    rate     a token bucket that fills at just below the subscriber's limit: no window of 100 ms gets more than the
             limit allows
    window   what was sent and not yet *taken by the application* is at most what it takes in half a second

The window makes the rate follow the subscriber by itself: one that takes half as fast is sent half as much as soon as
its reports say so, within a report's time, and one that is stopped gets nothing more. While the subscriber takes
everything at once the window doubles with each report; when it falls behind, it shrinks to what it takes.

The thesis changes the rate in steps between 750 and 900 of 1,000 events/s. Here 98 % of the limit is used.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Release"]

#: Share of the limit that is used: what is left covers clocks that differ and windows that are not the subscriber's.
_SHARE: Final = 0.98
#: Seconds of tokens that may be saved, for a cache that gets its turn late on a busy machine.
_SAVED: Final = 0.1
#: Seconds of the application's rate that may be under way or wait at the subscriber.
_AHEAD: Final = 0.5
#: Events in the window: at first and at least, and at most.
_LEAST: Final = 64
_MOST: Final = 1 << 16


class Release:
    """The pace of one stream."""

    def __init__(self, limit: float | None, now: float) -> None:
        #: Events per second; None if only the window counts.
        self.limit = limit
        self._rate = None if limit is None else limit * _SHARE
        self._tokens = 1.0
        self._filled = now
        self._window = float(_LEAST if limit is None else max(_LEAST, limit * _AHEAD))
        #: What the subscriber has taken, and when that was last said.
        self._taken = 0
        self._said = now
        #: Events per second that it takes.
        self.rate = 0.0

    @property
    def window(self) -> int:
        """Events that may be sent and not taken."""
        return int(self._window)

    def reported(self, taken: int, sent: int, now: float) -> None:
        """The subscriber has taken all numbers below one; those below ``sent`` were sent to it."""
        span = now - self._said
        if span < 0.02:
            return
        self.rate = max(0, taken - self._taken) / span
        limited = self.limit is not None
        if taken >= sent and sent - self._taken >= self._window / 2:
            # Everything is taken, and the window may be what held it back.
            self._window *= 2
        elif taken < sent and not limited:
            self._window = max(_LEAST, min(self._window, max(self.rate * _AHEAD, self._window / 2)))
        most = max(_LEAST, self.limit * _AHEAD) if self.limit is not None else _MOST
        self._window = max(1.0, min(self._window, most))
        self._taken, self._said = max(taken, self._taken), now

    def allowed(self, under_way: int, now: float) -> int:
        """How many may go now, with so many sent and not taken."""
        room = int(self._window) - under_way
        if self._rate is None:
            return max(0, room)
        most = max(1.0, self._rate * _SAVED)
        self._tokens = min(most, self._tokens + (now - self._filled) * self._rate)
        self._filled = now
        return max(0, min(room, int(self._tokens)))

    def sent(self, count: int) -> None:
        """So many have gone."""
        if self._rate is not None:
            self._tokens -= count

    def wait(self, under_way: int) -> float | None:
        """Seconds until the next may go; None if a report has to come first."""
        if int(self._window) - under_way <= 0:
            return None
        if self._rate is None or self._tokens >= 1:
            return 0.0
        return (1 - self._tokens) / self._rate
