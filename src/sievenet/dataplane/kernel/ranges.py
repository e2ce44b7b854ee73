"""Where port sets lie in the array of outputs: equal sets once, contiguous, never changed while anybody may read them.

A flow's `range` names ``[first, first + count)`` of that array, in one word of 64 bits; a set of one port is the word
itself.  A set is written into a free range before a flow names it.  A range that no flow names any more is used again
when there is no other, and then only after all programs that may have read it have ended (`pool` says how).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sievenet.dataplane.kernel import bpf
from sievenet.errors import Rejected

__all__ = ["MOST", "Ranges"]

#: Outputs of one flow.
MOST: Final = 2048
#: "The only output is in the lower half."
_ONLY: Final = 1 << 63


class Ranges:
    """Allocates ranges of an array of outputs."""

    def __init__(self, array: NDArray[np.uint64], wait: Callable[[], None] = bpf.barrier) -> None:
        self._array = array
        self._wait = wait
        #: Each set that flows name: [range, flows].
        self._known: dict[frozenset[int], list[int]] = {}
        self._next = 0
        #: Ranges that can be used, by length, and those that somebody may still read: first and length.
        self._free: dict[int, list[int]] = {}
        self._given: list[tuple[int, int]] = []

    def take(self, ports: frozenset[int]) -> int:
        """The range of this set, for one more flow; `Rejected` if there is no room."""
        if len(ports) == 1:
            return _ONLY | 1 << 32 | next(iter(ports))
        known = self._known.get(ports)
        if known is None:
            known = self._known[ports] = [self._place(ports), 0]
        known[1] += 1
        return known[0]

    def release(self, ports: frozenset[int]) -> None:
        """One flow less."""
        if len(ports) == 1:
            return
        known = self._known[ports]
        known[1] -= 1
        if not known[1]:
            del self._known[ports]
            if ports:
                self._given.append((known[0] & 0xFFFFFFFF, len(ports)))

    def _place(self, ports: frozenset[int]) -> int:
        if not ports:
            return 0
        if len(ports) > MOST:
            raise Rejected(f"Expected a flow of at most {MOST} outputs, got {len(ports)}")
        first = self._find(len(ports))
        # Links first: what goes to a client is rewritten for it.
        self._array[first : first + len(ports)] = sorted(ports)
        return len(ports) << 32 | first

    def _find(self, length: int) -> int:
        if free := self._free.get(length):
            return free.pop()
        if self._next + length <= len(self._array):
            self._next += length
            return self._next - length
        if self._given:
            self._wait()
            for first, size in self._given:
                self._free.setdefault(size, []).append(first)
            self._given.clear()
            return self._find(length)
        # A longer range that is free may be cut.
        for size in sorted(size for size, firsts in self._free.items() if size > length and firsts):
            first = self._free[size].pop()
            self._free.setdefault(size - length, []).append(first + length)
            return first
        raise Rejected(f"Expected port sets of {len(self._array)} outputs in all, got more: the switch is full")

    def read(self, outputs: int) -> frozenset[int]:
        """The set of a range."""
        first = outputs & 0xFFFFFFFF
        if outputs & _ONLY:
            return frozenset({first})
        return frozenset(self._array[first : first + (outputs >> 32)].tolist())

    def adopt(self, outputs: int) -> frozenset[int]:
        """A set that a flow names already, left by an earlier process."""
        ports = self.read(outputs)
        if not outputs & _ONLY:
            # Two places of one set can only be left by a process that died between two steps; both stay as they are.
            known = self._known.setdefault(ports, [outputs, 0])
            known[1] += 1
            self._next = max(self._next, (outputs & 0xFFFFFFFF) + len(ports))
        return ports
