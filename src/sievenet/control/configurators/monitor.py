"""The monitor: which partition should move, so that nobody has too much to do.  Pure.

The load of a configurator is what waits for its partitions.  It is *overloaded* if its load is more than `threshold`
times the mean, and has grown from look to look.  Then its heaviest partition moves to the configurator with the least
load, unless that would be overloaded by it; then the next heaviest, and so on.

    look      a: 900  b: 100      look      a: 1100  b: 100     a overloaded and rising: 60 of 1100 move to b
                                                               … if nothing rises any more, nothing moves

No thrashing: only what would have less to do afterwards than the giver has now moves, one partition per look, and one
that moved stays where it is for `rest` looks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = ["Monitor", "Move"]

#: Looks over which a load must have risen.
_RISING: Final = 2
#: Looks for which a partition that moved stays.
_REST: Final = 8


class Move(NamedTuple):
    """A partition should go to somebody else."""

    partition: int
    to: str


class Monitor:
    """Looks at the loads now and then.

    >>> monitor = Monitor(threshold=1.5)
    >>> for wait in (10, 20, 40): print(monitor.look({"a": {1: 2 * wait, 2: wait}, "b": {3: 1}}))
    None
    None
    Move(partition=1, to='b')
    """

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._last: dict[str, int] = {}
        self._rising: dict[str, int] = {}
        #: Until which look a partition stays.
        self._resting: dict[int, int] = {}
        self._looks = 0

    def look(self, loads: Mapping[str, Mapping[int, int]]) -> Move | None:
        """What should move now, by what waits per configurator and partition."""
        self._looks += 1
        self._resting = {partition: until for partition, until in self._resting.items() if until > self._looks}
        totals = {owner: sum(each.values()) for owner, each in loads.items()}
        for owner, total in totals.items():
            self._rising[owner] = self._rising.get(owner, 0) + 1 if total > self._last.get(owner, total) else 0
        self._last = totals
        mean = sum(totals.values()) / max(1, len(totals))
        bound = self._threshold * mean
        over = [owner for owner, total in totals.items() if total > bound and self._rising[owner] >= _RISING]
        if not over:
            return None
        giver = max(over, key=lambda owner: (totals[owner], owner))
        taker = min(totals, key=lambda owner: (totals[owner], owner))
        for partition, load in sorted(loads[giver].items(), key=lambda each: (-each[1], each[0])):
            after = totals[taker] + load
            if load and partition not in self._resting and after <= bound and after < totals[giver]:
                self._resting[partition] = self._looks + _REST
                self._rising[giver] = 0
                return Move(partition, taker)
        return None
