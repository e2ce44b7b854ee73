"""Where port sets lie in the array of outputs: equal sets once, contiguous, never changed while anybody may read them.

A flow's action names a range ``[first, first + count)`` of that array.  A set is written into a free range before a
flow names it, and its range is used again only a second after the last flow let go: a packet that found the flow just
before is done with the outputs long before that.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sievenet.errors import Rejected

__all__ = ["MOST", "Ranges"]

#: Outputs of one flow.
MOST: Final = 2048
#: Seconds that a range rests before it is used again.
_REST: Final = 1.0


class Ranges:
    """Allocates ranges of an array of outputs."""

    def __init__(self, array: NDArray[np.uint64]) -> None:
        self._array = array
        #: Each set that flows name: [first, flows].
        self._known: dict[frozenset[int], list[int]] = {}
        self._next = 0
        #: Ranges that can be used, by length, and those that rest: (when free, first, length).
        self._free: dict[int, list[int]] = {}
        self._resting: deque[tuple[float, int, int]] = deque()

    def take(self, ports: frozenset[int], now: float) -> int:
        """Where this set lies, for one more flow; `Rejected` if there is no room."""
        known = self._known.get(ports)
        if known is None:
            known = self._known[ports] = [self._place(ports, now), 0]
        known[1] += 1
        return known[0]

    def release(self, ports: frozenset[int], now: float) -> None:
        """One flow less."""
        known = self._known[ports]
        known[1] -= 1
        if not known[1]:
            del self._known[ports]
            if ports:
                self._resting.append((now + _REST, known[0], len(ports)))

    def _place(self, ports: frozenset[int], now: float) -> int:
        if not ports:
            return 0
        if len(ports) > MOST:
            raise Rejected(f"Expected a flow of at most {MOST} outputs, got {len(ports)}")
        while self._resting and self._resting[0][0] <= now:
            _, first, length = self._resting.popleft()
            self._free.setdefault(length, []).append(first)
        free = self._free.get(len(ports))
        first = free.pop() if free else self._fresh(len(ports))
        # Links first: what goes to a client is rewritten for it.
        self._array[first : first + len(ports)] = sorted(ports)
        return first

    def _fresh(self, length: int) -> int:
        first = self._next
        if first + length > len(self._array):
            # A longer range that is free may be cut.
            for size in sorted(size for size, firsts in self._free.items() if size > length and firsts):
                first = self._free[size].pop()
                self._free.setdefault(size - length, []).append(first + length)
                return first
            raise Rejected(f"Expected port sets of {len(self._array)} outputs in all, got more: the switch is full")
        self._next += length
        return first

    def read(self, first: int, count: int) -> frozenset[int]:
        """The set at a place."""
        return frozenset(int(port) for port in self._array[first : first + count])

    def adopt(self, first: int, count: int) -> frozenset[int]:
        """A set that a flow names already, left by an earlier process."""
        ports = self.read(first, count)
        # Two places of one set can only be left by a process that died between two steps; both stay as they are.
        known = self._known.setdefault(ports, [first, 0])
        known[1] += 1
        self._next = max(self._next, first + count)
        return ports
