"""Doubts of a subscriber: sources of which events may be lost behind the last one that was delivered.

    delivered  5 6 7     a cache dies     11          told: 8 to 10 may be missing
                    └─ doubtful from 8 on ┘

A cache that dies knew what came behind 7, and nobody else may. The next event of the source ends the doubt, if a cache
or the plain path has brought it without a break since. One that was held is from in between, and others around it may
be lost:

    doubtful: from 8 on     9 was held     told: 8     still doubtful: from 10 on     14 comes     told: 10 to 13

Another cache that was asked for everything ends doubts too, but not what a cache that dropped something has *said*:
nobody says that again.

If the source is silent from then on, nothing ends a doubt: so what is doubtful in the end is told in the end, as a gap
without an end.
Pure: no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sievenet.cache.messages import Missing
from sievenet.cache.record import Source

__all__ = ["Doubts"]


_Ranges = dict[Source, tuple[int, int]]


class Doubts:
    """``positions`` has the highest number delivered of each source."""

    def __init__(self, positions: Mapping[Source, int]) -> None:
        self._positions = positions
        #: The first number that may be lost, or -1 if nothing is known; and the last from which on some may be.
        self._sources: _Ranges = {}
        #: The same as caches have said it.
        self._said: _Ranges = {}

    def add(self, sources: Iterable[Source]) -> None:
        """Events of these may be lost, from where they are."""
        for each in sources:
            self.beyond(each, self._positions.get(each, -2) + 1)

    def beyond(self, source: Source, first: int, *, said: bool = False) -> None:
        """Events of a source may be lost from a number on, as a cache said or not; what comes before says nothing."""
        ranges = self._said if said else self._sources
        start, end = ranges.get(source, (first, first))
        ranges[source] = min(start, first) if start >= 0 <= first else max(start, first), max(end, first)

    def all(self) -> None:
        """Of every source that was heard."""
        self.add(self._positions)

    def clear(self) -> None:
        """Somebody who knows was asked for everything; what was said before stands."""
        self._sources.clear()

    def settled(self, source: Source, number: int, *, held: bool = False) -> tuple[Missing, ...]:
        """An event is about to be delivered: what may be missing before it, which is no doubt any more."""
        found: list[Missing] = []
        for ranges in (self._sources, self._said):
            if source in ranges and number >= ranges[source][0]:
                first, last = ranges.pop(source)
                if number < last or held:
                    ranges[source] = number + 1, max(number + 1, last)
                found += [Missing(*source, first, number - 1)] if 0 <= first < number else []
        return tuple(found)

    def open(self) -> tuple[Missing, ...]:
        """From where on events may be lost of sources that were not heard since."""
        known = [(each, max(0, first)) for ranges in (self._sources, self._said) for each, (first, _) in ranges.items()]
        firsts = dict(sorted(known, reverse=True))  # of two, the lower one is the last
        return tuple(Missing(*each, first, -1) for each, first in sorted(firsts.items()))
