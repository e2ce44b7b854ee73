"""What a full cache dropped: the cache says which events, and the subscriber finds out which of them it never gets.

    cache        queue drops offsets ─▶ `words`: their sources and numbers ─▶ Dropped
    subscriber   `Drops.add` ─▶ waits until the source is past them ─▶ `settled`: those that came by no way

The same for what a subscriber itself had no room to hold (`lack`).

A dropped event need not be lost: the subscriber may have it already, or hold it from the plain path. Each source comes
in order, so when something later of it is delivered, or nothing is held any more, the rest is lost for good. It is
noted as seen then: what was told to be lost is never delivered after that. Pure: no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from sievenet.cache.messages import DROPPED, LONGEST, Dropped, Missing, Word, ranges
from sievenet.cache.queue import Queue
from sievenet.cache.record import Key, Source, key_of
from sievenet.cache.ring import Ring
from sievenet.errors import Unavailable
from sievenet.transport.duplicates import DuplicateWindow

__all__ = ["Drops", "words"]

#: Ranges that wait at a subscriber.
_WAITING: Final = 8192


def words(queue: Queue, ring: Ring) -> list[tuple[int, Word]]:
    """Tell the members of a queue what was dropped since this was asked last."""
    if not queue.gone:
        return []
    gone = sorted(queue.gone)
    del queue.gone[:]
    known = _named(gone, ring)
    missing, unknown = ranges(known), len(gone) - len(known)
    parts = [tuple(missing[at : at + DROPPED]) for at in range(0, len(missing), DROPPED)] or [()]
    return [
        (number, Dropped(member.epoch, part, unknown if part is parts[0] else 0))
        for number, member in queue.members.items()
        for part in parts
    ]


def _named(offsets: list[int], ring: Ring) -> list[Key]:
    """Which events are or were at ascending offsets of a ring, as far as it knows."""
    while True:
        there = [each for each in offsets if each >= ring.first]
        with suppress(Unavailable):  # a segment is damaged: a block less is there
            here = ring.read(there)
            return [*ring.names.of(offsets[: len(offsets) - len(there)]), *map(key_of, here)]


class Drops:
    """What a subscriber was told; ``window`` knows what it has, and ``positions`` how far each source is."""

    def __init__(self, window: DuplicateWindow, positions: Mapping[Source, int]) -> None:
        self._window, self._positions = window, positions
        self._waiting: list[Missing] = []
        #: Events that are lost; of those that the cache could not name any more, all that it dropped.
        self.count = self.unnamed = 0

    def add(self, word: Dropped) -> None:
        """The cache has dropped something."""
        self._waiting += [each for each in word.missing if each.last - each.first < LONGEST]
        self.count += word.unknown
        self.unnamed += word.unknown

    def lack(self, key: Key) -> None:
        """There was no room here for an event that is to come from the cache."""
        publisher, incarnation, number = key
        last = self._waiting[-1] if self._waiting else Missing(0, 0, 0, 0)
        follows = (last.publisher, last.incarnation, last.last + 1) == key and number - last.first < LONGEST
        if self._waiting and follows:
            self._waiting[-1] = Missing(publisher, incarnation, last.first, number)
        else:
            self._waiting.append(Missing(publisher, incarnation, number, number))

    def settled(self, everything: bool) -> list[Missing]:
        """What is lost for good; ``everything`` if nothing that was dropped can come any more."""
        if not self._waiting:
            return []
        everything |= len(self._waiting) > _WAITING
        lost: list[Key] = []
        later: list[Missing] = []
        for each in self._waiting:
            if everything or self._positions.get((each.publisher, each.incarnation), -1) > each.last:
                lost += self._lost(each)
            else:
                later.append(each)
        self._waiting = later
        self.count += len(lost)
        return ranges(lost)

    def _lost(self, some: Missing) -> Iterable[Key]:
        window = self._window
        for number in range(some.first, some.last + 1):
            late = window.late
            # What is too far back to know is better told than not.
            if window.fresh(some.publisher, some.incarnation, number) or window.late != late:
                yield some.publisher, some.incarnation, number
