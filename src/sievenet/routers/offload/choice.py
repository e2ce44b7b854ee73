"""Whether offloading pays: the router's own cost per filter, each way, as measured.

The cheaper way so far is used. The other one is tried again now and then, since the table grows and clients come and
go; but a trial costs something, most of all the first: it brings every client its part of the table. So trials are paid
from a budget, a small *share* of all that was spent:

    budget += share · seconds            whenever the better way is used
    budget -= seconds − what the better way would have taken      in a trial
    a trial begins when the budget covers what it is expected to cost

The first trial is on credit where bringing the table would be repaid at once, if offloading took no more than messages
do. Hence, whatever the costs turn out to be, choosing makes the router's work at most ``1 + share`` times that of the
better way, but for one trial that turns out dearer than expected. Each trial that does not pay halves the share, until
one pays or the cost has doubled since: so in the long run choosing costs nothing. And offloading must be cheaper by a
margin, since it also costs others.

A search that takes less than messages do is not compared at all (`needless`): then the router rests (`rto`), and
inserts as if there were no clients. Costs are given, not measured here: seconds of the router's processor.
"""

from __future__ import annotations

from typing import Final, Literal

__all__ = ["Chooser", "Rest", "Way"]

Way = Literal["plain", "offload"]

#: Weight of the newest cost.
_NEW: Final = 0.3
#: Batches of a trial; the first of offloading is not counted, since it brings the table.
_TRIAL: Final = 3
#: Offloading has to cost less than this part of searching.
_MARGIN: Final = 0.9
#: Trials become so much rarer at most.
_RARE: Final = 1024
#: Seconds to rest, at first and at most.
_REST: Final = 0.25, 8.0


class Rest:
    """When there is nothing to decide: twice as long each time, until there is."""

    def __init__(self) -> None:
        self.on = False
        #: When it ends; ``None`` if somebody has to come first.
        self.until: float | None = None
        self._length = _REST[0]

    def consider(self, now: float, nobody: bool, needless: bool) -> bool:
        """Begin, if nobody is there to ask or asking is needless."""
        self.on = nobody or needless
        self.until = None if nobody else now + self._length
        self._length = min(2 * self._length, _REST[1]) if needless and not nobody else _REST[0]
        return self.on

    def tick(self, now: float) -> None:
        """Time has passed."""
        self.on = self.on and (self.until is None or now < self.until)


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
        #: How much rarer trials have become, and what the better way cost at the last one.
        self._doubt = 1
        self._then = 0.0

    def choose(self, table: int, filters: int, setup: float) -> Way:
        """The way for the next batch of filters, given the size of the table and what it takes to bring it along."""
        plain = self._costs.get("plain")
        if table < self._least or plain is None or plain < self._floor:
            self._left, self._tried = 0, None
            return "plain"
        if self._left:
            self._left -= 1
            assert self._tried is not None
            return self._tried
        best = self.best
        self._judge(best)
        other: Way = "offload" if best == "plain" else "plain"
        # What is about as cheap is not tried for nothing either.
        cost = self._costs[best]
        more = max((1 - _MARGIN) * cost, self._costs.get(other, cost) - cost)
        expected = _TRIAL * filters * more + (setup if other == "offload" else 0.0)
        # So much dearer than messages that three batches could make up for bringing the table: that is worth knowing.
        promising = other not in self._costs and setup <= _TRIAL * filters * (cost - self._floor)
        if self._budget <= expected and not promising:
            return best
        self._tried, self._left = other, _TRIAL - 1
        self._bringing = other == "offload" and setup > 0
        return other

    def _judge(self, best: Way) -> None:
        """After a trial: whether the next one can wait longer."""
        if self._tried is not None:
            self._doubt = 1 if self._tried == best else min(_RARE, 2 * self._doubt)
            self._tried, self._then = None, self._costs[best]
        elif self._doubt > 1 and self._costs[best] > 2 * self._then:
            self._doubt, self._then = 1, self._costs[best]

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
        if "plain" not in self._costs:
            return "offload"
        offload = self._costs.get("offload")
        return "offload" if offload is not None and offload < _MARGIN * self._costs["plain"] else "plain"

    def cost(self, way: Way, seconds: float, filters: int, of: float = 1.0) -> None:
        """What some filters cost the router; they stand for ``of`` times as many that were not measured."""
        if self._costs and way != self.best:
            usual = self._costs[self.best] * filters
            self._budget -= max((1 - _MARGIN) * usual, seconds - usual)
        else:
            self._budget += self._share / self._doubt * seconds * of
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
