"""Duplicate removal: has this packet of this publisher been here before?

An event whose point lies in several regions of an index plan travels once per region, and a plan change or a repaired
tree can send it twice: all copies carry the same (publisher, sequence). Per publisher there is a ring of the last
`span` sequence numbers; number n lives in slot n mod span, so that asking and noting are one look each, in any order
of arrival, with nothing to clear as the window moves:

    slot     0    1    2    3            span = 4
           ┌────┬────┬────┬────┐
           │ 8  │ 5  │ 6  │ 7  │         8 replaced 4;  a second 6 is a duplicate;
           └────┴────┴────┴────┘         3 would find 7 in its slot: too late to tell, not delivered

What comes more than `span` behind is not delivered, since it could be a duplicate: *at most once* is kept without
exception, and `late` counts what that cost. Publishers are bounded too: the one unheard for longest is forgotten.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["Window"]

#: From so many packets on, asking together is quicker than one by one.
_MANY: Final = 24


class Window:
    """The last sequence numbers of the publishers heard last."""

    def __init__(self, span: int = 4096, publishers: int = 1024) -> None:
        self._span = span
        self._limit = publishers
        self._rings: OrderedDict[int, array[int]] = OrderedDict()
        self._last: int | None = None
        self.duplicates = 0
        self.late = 0
        #: Publishers that were forgotten to make room; a copy of theirs from before would pass.
        self.forgotten = 0

    def fresh(self, publisher: int, sequence: int) -> bool:
        """Whether this packet is new; if so it is noted."""
        ring = self._rings[publisher] if publisher == self._last else self._ring(publisher)
        slot = sequence % self._span
        # Slots hold the number plus one, so that zero is an empty slot.
        found = ring[slot]
        if found <= sequence:
            ring[slot] = sequence + 1
            return True
        if found == sequence + 1:
            self.duplicates += 1
        else:
            self.late += 1
        return False

    def fresh_many(
        self, publishers: npt.NDArray[np.uint64], sequences: npt.NDArray[np.uint64]
    ) -> npt.NDArray[np.bool_]:
        """Which of these packets are new, one after the other; those are noted."""
        count = len(sequences)
        # Different numbers of one publisher within one turn of the ring have a slot each, and can be asked together.
        if count >= _MANY and np.count_nonzero(publishers == publishers[0]) == count:
            sequences = sequences.astype(np.uint64)  # in this machine's own order of bytes, and side by side
            # Usually they come in order.
            rising = sequences if _rise(sequences) else np.sort(sequences)
            if int(rising[-1]) - int(rising[0]) < self._span and _rise(rising):
                return self._fresh_apart(int(publishers[0]), sequences)
        pairs = zip(publishers.tolist(), sequences.tolist(), strict=True)
        return np.fromiter((self.fresh(*pair) for pair in pairs), np.bool_, count)

    def _fresh_apart(self, publisher: int, sequences: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        numbers = np.frombuffer(self._ring(publisher), np.uint64)
        slots = sequences % np.uint64(self._span)
        found = numbers[slots]
        new: npt.NDArray[np.bool_] = found <= sequences
        if np.count_nonzero(new) == len(new):
            numbers[slots] = sequences + np.uint64(1)
        else:
            numbers[slots[new]] = sequences[new] + np.uint64(1)
            old = len(new) - int(new.sum())
            again = int((found == sequences + np.uint64(1)).sum())
            self.duplicates += again
            self.late += old - again
        return new

    def _ring(self, publisher: int) -> array[int]:
        ring = self._rings.get(publisher)
        if ring is None:
            ring = self._new(publisher)
        elif publisher != self._last:
            self._rings.move_to_end(publisher)
        self._last = publisher
        return ring

    def _new(self, publisher: int) -> array[int]:
        if len(self._rings) >= self._limit:
            self._rings.popitem(last=False)
            self.forgotten += 1
        ring = self._rings[publisher] = array("Q", bytes(8 * self._span))
        return ring


def _rise(numbers: npt.NDArray[np.uint64]) -> bool:
    return bool(np.count_nonzero(numbers[1:] > numbers[:-1]) == len(numbers) - 1)
