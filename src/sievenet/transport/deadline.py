"""Deadlines of many things, of which the next one is asked for often: a heap whose outdated entries go when met.

A deadline that moves leaves its old entry in the heap; the dictionary says which entry holds. When most entries are
outdated the heap is made anew, so it is never much longer than what it is about.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

__all__ = ["Deadlines"]

K = TypeVar("K", bound=Hashable)

#: Outdated entries that are not worth the work.
_FEW: Final = 64


class Deadlines(Generic[K]):
    """When what is due; one deadline per key."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, K]] = []
        self._times: dict[K, float] = {}

    def __len__(self) -> int:
        return len(self._times)

    def get(self, key: K) -> float | None:
        """The deadline of a key; None: it has none."""
        return self._times.get(key)

    def set(self, key: K, due: float | None) -> None:
        """Move a deadline, or with None take it away."""
        if due is None:
            self._times.pop(key, None)
        elif self._times.get(key) != due:
            self._times[key] = due
            heappush(self._heap, (due, key))
            if len(self._heap) > 2 * len(self._times) + _FEW:
                self._heap = [(when, each) for each, when in self._times.items()]
                heapify(self._heap)

    def next(self) -> float | None:
        """The earliest deadline; None: there is none."""
        heap, times = self._heap, self._times
        while heap and times.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def passed(self, now: float) -> Iterator[K]:
        """The keys whose deadlines have passed, which have none then; also those that are set meanwhile."""
        while (due := self.next()) is not None and due <= now:
            _, key = heappop(self._heap)
            del self._times[key]
            yield key
