"""Rates: how many events per second come to a cache for each need, and how many it sends for it.

The daemon moves responsibilities by these (`responsibility`). What is sent is counted as it goes. What comes for a need
that nobody is served with is matched with nothing: so about once a second some of the newest records are, and the share
that matches, of all that come, is the rate. A few needs have their turn each time. Pure: the time is an argument.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any, Final

from sievenet.cache.place import Place

__all__ = ["Rates"]

#: Records that are looked at, and needs that have their turn.
_SOME: Final = 128
_NEEDS: Final = 16


class Rates:
    """Those of one cache."""

    def __init__(self) -> None:
        self._sent: Counter[Hashable] = Counter()
        self._came: dict[Hashable, float] = {}
        #: How far each ring was, and when.
        self._before: dict[str, int] = {}
        self._looked: float | None = None
        self._turn = 0

    def sent(self, need: Hashable, count: int) -> None:
        """So many events went out for a need."""
        self._sent[need] += count

    def look(
        self, places: Mapping[str, Place], needs: Mapping[Hashable, tuple[str, Any]], now: float
    ) -> dict[Hashable, tuple[float, float]]:
        """Events per second that came and went since the last look, for each need; given its category and filter."""
        seconds = max(0.05, now - self._looked) if self._looked is not None else None
        arrived = {name: place.ring.next - self._before.get(name, 0) for name, place in places.items()}
        self._before = {name: place.ring.next for name, place in places.items()}
        self._looked, sent, self._sent = now, self._sent, Counter()
        if seconds is None:
            return {}
        self._came = {need: rate for need, rate in self._came.items() if need in needs}
        order = list(needs)
        chosen = [order[(self._turn + at) % len(order)] for at in range(min(_NEEDS, len(order)))]
        self._turn = (self._turn + len(chosen)) % max(1, len(order))
        for need in chosen:
            name, wanted = needs[need]
            ring, new = places[name].ring, min(_SOME, arrived[name])
            some = ring.between(ring.next - new, ring.next)
            matching = len(places[name].filters.rows(wanted, some)) if some else 0
            self._came[need] = arrived[name] / seconds * matching / max(1, len(some))
        return {need: (self._came.get(need, 0.0), sent[need] / seconds) for need in needs}
