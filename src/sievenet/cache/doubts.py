"""Doubts of a subscriber: sources of which events may be lost behind the last one that was delivered.

    delivered  5 6 7     a cache dies     11          told: 8 to 10 may be missing
                    └─ doubtful from 8 on ┘

A cache that dies knew what came behind 7, and nobody else may. The next event of the source ends the doubt. If the
source is silent from then on, nothing does: so what is doubtful in the end is told in the end, as a gap without an end.
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
        #: And the first that may be lost of those that have no position.
        self._sources: dict[Source, int] = {}

    def add(self, sources: Iterable[Source], first: int = 0) -> None:
        """Events of these may be lost, from where they are; of those never heard, from a number on."""
        for each in sources:
            self._sources.setdefault(each, first)

    def all(self) -> None:
        """Of every source that was heard."""
        self.add(self._positions)

    def clear(self) -> None:
        """Somebody who knows has said what is missing."""
        self._sources.clear()

    def settled(self, source: Source, number: int) -> tuple[Missing, ...]:
        """An event is about to be delivered: what may be missing before it, which is no doubt any more."""
        if source not in self._sources:
            return ()
        first = self._positions.get(source, (self._sources.pop(source) or number) - 1) + 1
        return (Missing(*source, first, number - 1),) if number > first else ()

    def open(self) -> tuple[Missing, ...]:
        """From where on events may be lost of sources that were not heard since."""
        return tuple(
            Missing(*each, self._positions.get(each, first - 1) + 1, -1)
            for each, first in sorted(self._sources.items())
        )
