"""Clocks: something that knows the time and calls back.

`VirtualClock` needs no event loop: calls run in the order of their times, and time jumps from one to the next.
`LoopClock` takes its time from an event loop.  Both serve calls for the same moment first come, first served, which
asyncio's own timers do not promise: packets that arrive together must not overtake each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Protocol

__all__ = ["LoopClock", "Scheduler", "VirtualClock"]

_Heap = list[tuple[float, int, Callable[..., Any], tuple[Any, ...]]]


class Scheduler(Protocol):
    """Something that knows the time and calls back."""

    def time(self) -> float:
        """Seconds since some point in the past."""
        ...

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any) -> Any:
        """Call back at a time."""
        ...


class VirtualClock:
    """Virtual time, and the calls that are due in it."""

    def __init__(self, start: float = 0.0) -> None:
        #: The virtual time in seconds.
        self.now = start
        #: Calls made so far.
        self.steps = 0
        self._number = 0
        self._heap: _Heap = []

    def time(self) -> float:
        """The virtual time in seconds."""
        return self.now

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any) -> None:
        """Call back at a time; one that has passed means now."""
        self._number += 1
        heappush(self._heap, (when if when > self.now else self.now, self._number, callback, args))

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> None:
        """Call back after some seconds."""
        self.call_at(self.now + delay, callback, *args)

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def due(self) -> float | None:
        """The time of the next call."""
        return self._heap[0][0] if self._heap else None

    def step(self) -> bool:
        """Make the next call; False if there is none."""
        if not self._heap:
            return False
        self.now, _, callback, args = heappop(self._heap)
        self.steps += 1
        callback(*args)
        return True

    def run(self, until: float | None = None) -> None:
        """Make all calls up to a time, and be there then; without a time, until there are no more."""
        heap = self._heap
        while heap and (until is None or heap[0][0] <= until):
            self.step()
        if until is not None:
            self.now = max(self.now, until)


class LoopClock:
    """Calls on an event loop, in the order of their times, first come, first served among equals."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._number = 0
        self._heap: _Heap = []
        self._timer: asyncio.TimerHandle | None = None

    def time(self) -> float:
        """The loop's time in seconds."""
        return self._loop.time()

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any) -> None:
        """Call back at a time."""
        self._number += 1
        heappush(self._heap, (when, self._number, callback, args))
        if self._heap[0][1] == self._number:
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._heap[0][0], self._fire) if self._heap else None

    def _fire(self) -> None:
        self._timer = None
        heap = self._heap
        # A loop may wake up a clock tick early; what it woke up for is due all the same.
        due = max(self._loop.time(), heap[0][0]) if heap else 0.0
        try:
            while heap and heap[0][0] <= due:
                _, _, callback, args = heappop(heap)
                callback(*args)
        finally:
            self._arm()

    def close(self) -> None:
        """Forget all calls."""
        self._heap.clear()
        self._arm()
