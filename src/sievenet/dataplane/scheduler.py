"""Time, as the data plane sees it: something that knows the hour and calls back.

An asyncio event loop is a scheduler as it stands.  `EventQueue` is one without asyncio,
in virtual time: calls run in the order of their times (first come, first served among
equals), and the clock jumps from one to the next.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["EventQueue", "Scheduler"]


class Scheduler(Protocol):
    """What an event loop and an `EventQueue` have in common."""

    def time(self) -> float:
        """Seconds since some point in the past."""
        ...

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any) -> Any:
        """Call back at a time."""
        ...


class EventQueue:
    """Virtual time without an event loop."""

    def __init__(self) -> None:
        self._now = 0.0
        self._number = 0
        self._heap: list[tuple[float, int, Callable[..., Any], tuple[Any, ...]]] = []
        #: Calls made so far.
        self.steps = 0

    def time(self) -> float:
        """The virtual time in seconds."""
        return self._now

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any) -> None:
        """Call back at a time; one that has passed means now."""
        self._number += 1
        heapq.heappush(self._heap, (max(when, self._now), self._number, callback, args))

    def __len__(self) -> int:
        return len(self._heap)

    def step(self) -> bool:
        """Make the next call; False if there is none."""
        if not self._heap:
            return False
        self._now, _, callback, args = heapq.heappop(self._heap)
        self.steps += 1
        callback(*args)
        return True

    def run(self, until: float | None = None) -> None:
        """Make all calls up to a time, and be there then; without a time, until there are no more."""
        while self._heap and (until is None or self._heap[0][0] <= until):
            self.step()
        if until is not None:
            self._now = max(self._now, until)
