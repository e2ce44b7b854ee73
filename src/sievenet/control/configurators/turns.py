"""Turns: how many partitions may work at a time, first come, first served.  Pure.

This is what is left of the configurators of the *shared everything* mode (PLEROMA's SEA) in one process: each takes the
first waiting partition that nobody works on, and works on it until the switches have acknowledged everything.  Within a
partition requests keep their order, because it is worked on by one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

__all__ = ["Turns"]


class Turns:
    """So many may work at a time.

    >>> turns, told = Turns(1), []
    >>> turns.enter("a", print), turns.enter("b", lambda: told.append("b")), turns.leave("a"), told
    (True, False, None, ['b'])
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._working: set[Hashable] = set()
        #: Who waits, in the order of arrival, and how to tell.
        self._waiting: dict[Hashable, Callable[[], None]] = {}

    def shown(self) -> dict[str, Any]:
        """As `status` shows it."""
        return {"mode": "sea", "turns": self._count, "working": len(self._working), "waiting": len(self._waiting)}

    def enter(self, who: Hashable, again: Callable[[], None]) -> bool:
        """Whether it may work; if not, it is called when it should ask again."""
        if who in self._working:
            return True
        first = next(iter(self._waiting), who)
        if len(self._working) < self._count and first == who:
            self._waiting.pop(who, None)
            self._working.add(who)
            return True
        self._waiting.setdefault(who, again)
        return False

    def leave(self, who: Hashable) -> None:
        """It does not work any more, nor want to."""
        self._waiting.pop(who, None)
        if who in self._working:
            self._working.discard(who)
        while len(self._working) < self._count and self._waiting:
            before = len(self._working)
            first, again = next(iter(self._waiting.items()))
            again()  # it enters, or has nothing to do any more
            if len(self._working) == before:
                self._waiting.pop(first, None)
