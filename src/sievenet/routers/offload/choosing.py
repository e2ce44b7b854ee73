"""Whether offloading pays: the router's own cost per filter, each way, as measured.

The cheaper way so far is used. The other one is tried again now and then, since the table grows and clients come and
go; but a trial costs something, most of all the first: it brings every client its part of the table. So trials are paid
from a budget, a small *share* of all that was spent:

    budget += share · seconds            whenever the better way is used
    budget -= seconds − what the better way would have taken      in a trial
    a trial begins when the budget covers what it is expected to cost

Hence, whatever the costs turn out to be, choosing makes the router's work at most ``1 + share`` times that of the
better way, but for one trial that turns out dearer than expected. A search that takes less than messages do is not
compared at all. Costs are given, not measured here: seconds of the router's processor, of any clock.
"""

from __future__ import annotations

from typing import Final, Literal

__all__ = ["Chooser", "Way"]

Way = Literal["plain", "offload"]

#: Weight of the newest cost.
_NEW: Final = 0.3
#: Batches of a trial; the first of offloading is not counted, since it brings the table.
_TRIAL: Final = 3


class Chooser:
    """Picks the way for each batch."""

    def __init__(self, *, least: int = 100, floor: float = 2e-4, share: float = 0.02) -> None:
        #: Tables smaller than this are not worth the asking.
        self._least = least
        #: Seconds per filter that messages alone take: a search that is quicker needs no comparison.
        self._floor = floor
        self._share = share
        self._budget = 0.0
        self._costs: dict[Way, float] = {}
        #: The way being tried, batches still to choose, and whether the table was just brought to clients.
        self._tried: Way | None = None
        self._left = 0
        self._bringing = False

    def choose(self, table: int, filters: int, setup: float) -> Way:
        """The way for the next batch of filters, given the size of the table and what it takes to bring it along."""
        plain = self._costs.get("plain")
        if table < self._least or plain is None or plain < self._floor:
            self._left = 0
            return "plain"
        if self._left:
            self._left -= 1
            assert self._tried is not None
            return self._tried
        best = self.best
        other: Way = "offload" if best == "plain" else "plain"
        more = max(0.0, self._costs.get(other, self._costs[best]) - self._costs[best])
        expected = _TRIAL * filters * more + (setup if other == "offload" else 0.0)
        if self._budget <= expected:
            return best
        self._tried, self._left = other, _TRIAL - 1
        self._bringing = other == "offload" and setup > 0
        return other

    @property
    def trying(self) -> bool:
        """Whether a trial is under way."""
        return self._left > 0

    def needless(self) -> bool:
        """Whether searching is so quick that nothing else need be considered."""
        return self._costs.get("plain", self._floor) < self._floor

    @property
    def best(self) -> Way:
        """The cheaper way so far."""
        return min(self._costs, key=self._costs.__getitem__)

    def cost(self, way: Way, seconds: float, filters: int, of: int = 1) -> None:
        """What some filters cost the router; they stand for ``of`` times as many that were not measured."""
        best = min(self._costs.values(), default=seconds)
        if self._costs and way != self.best:
            self._budget -= seconds - best * filters
        else:
            self._budget += self._share * seconds * of
        if way == "offload" and self._bringing:
            # It brought clients the table, once: not what a batch costs.
            self._bringing = False
            return
        each = seconds / max(1, filters)
        known = self._costs.get(way)
        self._costs[way] = each if known is None else (1 - _NEW) * known + _NEW * each

    def costs(self) -> dict[Way, float]:
        """Seconds per filter, each way."""
        return dict(self._costs)
