"""Doubts of a subscriber: sources of which events may be lost behind the last one that was delivered.

    delivered  5 6 7     a cache dies     11          told: 8 to 10 may be missing
                    └─ doubtful from 8 on ┘

A cache that dies knew what came behind 7, and nobody else may. The next event of the source ends the doubt. A cache
that dropped something may know from which number on: then only an event behind that does. If the source is silent from
then on, nothing does: so what is doubtful in the end is told in the end, as a gap without an end.
Pure: no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sievenet.cache.messages import Missing
from sievenet.cache.record import Source

__all__ = ["Doubts"]


class Doubts:
    """``positions`` has the highest number delivered of each source."""

    def __init__(self, positions: Mapping[Source, int]) -> None:
        self._positions = positions
        #: The first number that may be lost, or -1 if nothing is known; and the last from which on some may be.
        self._sources: dict[Source, tuple[int, int]] = {}

    def add(self, sources: Iterable[Source]) -> None:
        """Events of these may be lost, from where they are."""
        for each in sources:
            self.beyond(each, self._positions.get(each, -2) + 1)

    def beyond(self, source: Source, first: int) -> None:
        """Events of a source may be lost from a number on; what comes before that says nothing."""
        start, end = self._sources.get(source, (first, first))
        self._sources[source] = min(start, first) if start >= 0 <= first else max(start, first), max(end, first)

    def all(self) -> None:
        """Of every source that was heard."""
        self.add(self._positions)

    def clear(self) -> None:
        """Somebody who knows has said what is missing."""
        self._sources.clear()

    def settled(self, source: Source, number: int) -> tuple[Missing, ...]:
        """An event is about to be delivered: what may be missing before it, which is no doubt any more."""
        if source not in self._sources or number < self._sources[source][0]:
            return ()
        first, last = self._sources.pop(source)
        if number < last:
            self._sources[source] = number + 1, last
        return (Missing(*source, first, number - 1),) if 0 <= first < number else ()

    def open(self) -> tuple[Missing, ...]:
        """From where on events may be lost of sources that were not heard since."""
        return tuple(Missing(*each, max(0, first), -1) for each, (first, _) in sorted(self._sources.items()))
