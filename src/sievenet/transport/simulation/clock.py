"""An event queue in virtual time: what is due first happens first, ties in the order of asking."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

__all__ = ["Clock"]


class Clock:
    """Virtual time and what is to happen in it."""

    def __init__(self, start: float = 0.0) -> None:
        self.now = start
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        #: Events that have happened.
        self.events = 0

    def at(self, when: float, action: Callable[..., None], *arguments: Any) -> None:
        """Let something happen at a time, or now if that has passed."""
        self._count += 1
        heappush(self._queue, (when if when > self.now else self.now, self._count, action, arguments))

    def after(self, delay: float, action: Callable[..., None], *arguments: Any) -> None:
        """Let something happen after a while."""
        self.at(self.now + delay, action, *arguments)

    def run(self, until: float) -> None:
        """Let everything happen up to a time."""
        queue = self._queue
        while queue and queue[0][0] <= until:
            self.now, _, action, arguments = heappop(queue)
            self.events += 1
            action(*arguments)
        self.now = max(self.now, until)
