"""Duplicate removal: has this packet of this publisher been here before?

Clients ask for each packet that comes, routers for each event that they pass on.

An event whose point lies in several regions of an index plan travels once per region, and a plan change or a repaired
tree can send it twice: all copies carry the same (publisher, incarnation, sequence). A *source* is one incarnation of a
publisher: a publisher that comes back counts from 0 again, and is another source. Per source there is a ring of the
last `span` sequence numbers; number n lives in slot n mod span, so that asking and noting are one look each, in any
order of arrival, with nothing to clear as the window moves:

    slot     0    1    2    3            span = 4
           ┌────┬────┬────┬────┐
           │ 8  │ 5  │ 6  │ 7  │         8 replaced 4;  a second 6 is a duplicate;
           └────┴────┴────┴────┘         3 would find 7 in its slot: too late to tell, not delivered

What comes more than `span` behind is not delivered, since it could be a duplicate: *at most once* is kept without
exception, and `late` counts what that cost.

A ring's memory is that of the slots that were used: a source of few events costs little, however long the ring.

Sources are bounded: the one unheard for longest is forgotten. Of one publisher at most `lives` are kept: packets of its
earlier lives that are still under way are told apart, and a publisher that draws new incarnations all the time makes
the window forget itself and nobody else.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["DuplicateWindow", "Source"]

#: From so many packets on, asking together is quicker than one by one.
_MANY: Final = 24

#: Publisher and incarnation.
Source = tuple[int, int]


class DuplicateWindow:
    """The last sequence numbers of the sources heard last."""

    def __init__(self, span: int = 4096, sources: int = 1024, lives: int = 4) -> None:
        self._span = span
        self._limit = sources
        self._lives = lives
        self._rings: OrderedDict[Source, memoryview] = OrderedDict()
        #: The incarnations of each publisher that have a ring, oldest first.
        self._known: dict[int, list[int]] = {}
        #: The source heard last, and its ring.
        self._last: Source | None = None
        self._latest = memoryview(b"")
        #: A ring that was asked for, as an array.
        self._asked = self._latest, np.empty(0, np.uint64)
        self.duplicates = 0
        self.late = 0
        #: Sources that were forgotten to make room; a copy of theirs from before would pass.
        self.forgotten = 0

    def widen(self, span: int) -> None:
        """Remember the last so many numbers of each source from now on, if that is more than before.

        What was forgotten until then may have come, so it counts as a duplicate: the numbers that share their old slot
        with a newer one.
        """
        if span <= self._span:
            return
        rounds = -(-span // self._span)
        span = rounds * self._span  # so that these have a slot each
        back = np.arange(rounds, dtype=np.int64)[:, np.newaxis] * self._span
        for source, ring in self._rings.items():
            wider, numbers = np.zeros(span, np.uint64), np.frombuffer(ring, np.int64)
            numbers = (numbers[numbers > 0] - back).ravel()
            numbers = numbers[numbers > 0]
            wider[(numbers - 1) % span] = numbers
            self._rings[source] = wider.data
        self._span, self._last = span, None

    def fresh(self, publisher: int, incarnation: int, sequence: int) -> bool:
        """Whether this packet is new; if so it is noted."""
        source = (publisher, incarnation)
        ring = self._latest if source == self._last else self._ring(source)
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

    def unseen(self, source: Source, first: int, last: int) -> list[tuple[int, int]]:
        """The parts of a range of numbers that were not seen, as far as is known; nothing is noted.

        >>> window = DuplicateWindow()
        >>> [window.fresh(1, 1, number) for number in (3, 4, 7)]
        [True, True, True]
        >>> window.unseen((1, 1), 2, 9)
        [(2, 2), (5, 6), (8, 9)]
        """
        ring = self._rings.get(source)
        if ring is None or last < first:
            return [(first, last)] if first <= last else []
        # What is too far back to know counts as unseen.
        start = max(first, last - self._span + 1)
        numbers = np.arange(start, last + 1, dtype=np.uint64)
        seen = np.frombuffer(ring, np.uint64)[numbers % np.uint64(self._span)] == numbers + np.uint64(1)
        ends = np.flatnonzero(np.diff(np.concatenate(([1], seen, [1]))))
        found = [(start + begin, start + end - 1) for begin, end in zip(*[iter(ends.tolist())] * 2, strict=True)]
        if first == start:
            return found
        if found and found[0][0] == start:
            return [(first, found[0][1]), *found[1:]]
        return [(first, start - 1), *found]

    def fresh_many(
        self,
        publishers: npt.NDArray[np.uint64],
        incarnations: npt.NDArray[np.uint64],
        sequences: npt.NDArray[np.uint64],
    ) -> npt.NDArray[np.bool_]:
        """Which of these packets are new, one after the other; those are noted."""
        if len(sequences) >= _MANY and _alike(publishers) and _alike(incarnations):
            return self.fresh_of((int(publishers[0]), int(incarnations[0])), sequences)
        packets = zip(publishers.tolist(), incarnations.tolist(), sequences.tolist(), strict=True)
        return np.fromiter((self.fresh(*packet) for packet in packets), np.bool_, len(sequences))

    def fresh_of(self, source: Source, sequences: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
        """Which of these packets of one source are new, one after the other; those are noted."""
        if len(sequences) >= _MANY:
            numbers = sequences.astype(np.uint64)  # in this machine's own order of bytes, and side by side
            # Usually they come in order.
            rising = numbers if _rise(numbers) else np.sort(numbers)
            # Different numbers within one turn of the ring have a slot each, and can be asked together.
            if int(rising[-1]) - int(rising[0]) < self._span and _rise(rising):
                return self._fresh_apart(source, numbers)
            half = len(numbers) // 2
            return np.concatenate((self.fresh_of(source, numbers[:half]), self.fresh_of(source, numbers[half:])))
        return np.fromiter((self.fresh(*source, each) for each in sequences.tolist()), np.bool_, len(sequences))

    def _fresh_apart(self, source: Source, sequences: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        numbers = self.ring(source)
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

    def ring(self, source: Source) -> npt.NDArray[np.uint64]:
        """The numbers of a source, plus one each and by slot, for kernels that ask and note as `fresh` does."""
        ring = self._latest if source == self._last else self._ring(source)
        if ring is not self._asked[0]:
            self._asked = ring, np.frombuffer(ring, np.uint64)
        return self._asked[1]

    def count(self, again: int, late: int) -> None:
        """Such a kernel found so many packets that came again, and so many too late to tell."""
        self.duplicates += again
        self.late += late

    def _ring(self, source: Source) -> memoryview:
        ring = self._rings.get(source)
        if ring is None:
            ring = self._new(source)
        elif source != self._last:
            self._rings.move_to_end(source)
        self._last, self._latest = source, ring
        return ring

    def _new(self, source: Source) -> memoryview:
        publisher, incarnation = source
        lives = self._known.get(publisher, [])
        if len(lives) >= self._lives:
            self._forget((publisher, lives[0]))
        elif len(self._rings) >= self._limit:
            self._forget(next(iter(self._rings)))
        self._known.setdefault(publisher, []).append(incarnation)
        ring = self._rings[source] = np.zeros(self._span, np.uint64).data
        return ring

    def _forget(self, source: Source) -> None:
        publisher, incarnation = source
        if source == self._last:
            self._last = None
        del self._rings[source]
        self._known[publisher].remove(incarnation)
        if not self._known[publisher]:
            del self._known[publisher]
        self.forgotten += 1


def _alike(numbers: npt.NDArray[np.uint64]) -> bool:
    return bool(np.count_nonzero(numbers == numbers[0]) == len(numbers))


def _rise(numbers: npt.NDArray[np.uint64]) -> bool:
    return bool(np.count_nonzero(numbers[1:] > numbers[:-1]) == len(numbers) - 1)
