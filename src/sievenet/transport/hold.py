"""Messages that wait for earlier ones, and how far delivery has come."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

from sievenet.transport.codec import Header
from sievenet.transport.outcome import Released, SessionCounts

__all__ = ["Hold"]


class Hold:
    """The messages of one stream that are held back.

    Invariant: nothing at or below `released` is delivered later except as late; every held number is above it.
    """

    __slots__ = ("_count", "_counts", "_held", "released")

    def __init__(self, counts: SessionCounts) -> None:
        self._counts = counts
        self._held: list[tuple[int, int, float, Header, Any]] = []
        self._count = 0
        self.released = -1

    def __len__(self) -> int:
        return len(self._held)

    @property
    def first(self) -> int:
        """The lowest number that waits."""
        return self._held[0][0]

    def push(self, sequence: int, now: float, header: Header, item: Any) -> None:
        """A message waits."""
        self._count += 1
        heappush(self._held, (sequence, self._count, now, header, item))

    def take_back(self, number: int) -> None:
        """Nothing above this number was published: what says so is dropped, and the number itself not yet delivered."""
        self._held = sorted(each for each in self._held if each[0] < number)
        self.released = min(self.released, number - 1)

    def release(self, barrier: float, now: float) -> list[Released]:
        """Release what is below a number, in order."""
        held, counts = self._held, self._counts
        released = []
        while held and held[0][0] < barrier:
            sequence, _, since, header, item = heappop(held)
            self.released = sequence
            waited = now - since
            if waited > 0:
                counts.held += 1
                counts.held_time += waited
            released.append(Released(header, item, waited))
        return released
