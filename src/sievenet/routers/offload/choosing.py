"""Whether offloading pays: the router's own cost per filter, each way, as measured.

Both ways are tried, the cheaper one is used, and the other is tried again now and then, since the table grows and
clients come and go. A trial that confirms the choice doubles the time to the next one, so trials cost little where they
teach nothing; and a search that takes less than messages do (one-dimensional filters in a forest) is not compared at
all. Costs are given, not measured here: seconds of the
router's processor, of any clock.
"""

from __future__ import annotations

from typing import Final, Literal

__all__ = ["Chooser", "Way"]

Way = Literal["plain", "offload"]

_FIRST: Final = 64
_LAST: Final = 1024
_NEW: Final = 0.3


class Chooser:
    """Picks the way for each batch."""

    def __init__(self, *, least: int = 100, floor: float = 2e-4) -> None:
        #: Tables smaller than this are not worth the asking.
        self._least = least
        #: Seconds per filter that messages alone take: a search that is quicker needs no comparison.
        self._floor = floor
        self._costs: dict[Way, float] = {}
        self._batch = 0
        self._next = 0
        self._pause = _FIRST
        self._begun = False

    def choose(self, table: int) -> Way:
        """The way for the next batch, given the size of the table."""
        if table < self._least:
            return "plain"
        self._batch += 1
        plain = self._costs.get("plain")
        if plain is None or plain < self._floor:
            return "plain"
        if "offload" not in self._costs:
            return "offload"
        best = self.best
        if self._batch >= self._next:
            return "offload" if best == "plain" else "plain"
        return best

    def needless(self) -> bool:
        """Whether searching is so quick that nothing else need be considered."""
        return self._costs.get("plain", self._floor) < self._floor

    @property
    def best(self) -> Way:
        """The cheaper way so far."""
        return min(self._costs, key=self._costs.__getitem__)

    def cost(self, way: Way, seconds: float, filters: int) -> None:
        """What a batch cost the router."""
        if way == "offload" and not self._begun:
            # The first batch brings clients the whole table, once: not what a batch costs.
            self._begun = True
            return
        each = seconds / max(1, filters)
        known = self._costs.get(way)
        both = len(self._costs) == 2
        before = self.best if both else None
        self._costs[way] = each if known is None else (1 - _NEW) * known + _NEW * each
        if both and way != before:
            # That was a trial.
            self._pause = min(_LAST, 2 * self._pause) if self.best == before else _FIRST
            self._next = self._batch + self._pause
        elif not both and len(self._costs) == 2:
            self._next = self._batch + self._pause

    def costs(self) -> dict[Way, float]:
        """Seconds per filter, each way."""
        return dict(self._costs)
