"""Looks through a cache's port: when has everything come that was on its way, and is known what was dropped?

A cache may not end a stream, nor say what is missing, before all that was sent to it has come: on a busy machine its
port is read late, and what waits there is neither in a ring nor known to be lost. No time is long enough for that. So
the cache asks its switch, and reads its port until what had been sent then is read:

    cache                            switch: what waits for the cache        port
      │ look 7 ─────────────────────▶  a b c ║ d e                         │ x y
      │ ◀── everything before ║ was sent, and so much was dropped          │ x y a b c
      │ x y a b c have come: look 7 is over

Whoever leaves, leaves after a look that began when its plain path stood. What was dropped is told after the next look,
at most once a second, and after a few seconds in any case. Pure: the time is an argument.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Looks"]

#: Seconds between two times that subscribers are told what was dropped, at least; and until they are told, at most.
_EVERY: Final = 1.0
_LONGEST: Final = 5.0


class Looks:
    """Which looks are wanted, have begun and are over; each is a number."""

    def __init__(self) -> None:
        self._wanted = self._begun = self._over = 0
        #: Since when something dropped is not told, and the look after which it can be.
        self._doubt: tuple[float, int] | None = None
        self._told = float("-inf")

    def want(self) -> int:
        """The first look that begins after this."""
        self._wanted = self._begun + 1
        return self._wanted

    def begin(self) -> int | None:
        """The look that is to begin now, if one is wanted."""
        if self._wanted == self._begun:
            return None
        self._begun = self._wanted
        return self._begun

    def end(self, look: int) -> None:
        """Everything has come that was on its way when a look began."""
        self._over = max(self._over, look)

    def over(self, look: int | None) -> bool:
        """Whether a look has ended; None never does."""
        return look is not None and look <= self._over

    # -- what was dropped -----------------------------------------------------------------

    def doubt(self, now: float) -> None:
        """Something was dropped: subscribers are to be told."""
        if self._doubt is None:
            self._doubt = now, self.want()

    @property
    def doubtful(self) -> bool:
        """Whether subscribers are to be told that something was dropped."""
        return self._doubt is not None

    def settle(self, now: float) -> bool:
        """Whether they are told now; nothing is doubtful then."""
        if self._doubt is None:
            return False
        since, look = self._doubt
        if not (self.over(look) and now >= self._told + _EVERY) and now < since + _LONGEST:
            return False
        self._doubt, self._told = None, now
        return True
