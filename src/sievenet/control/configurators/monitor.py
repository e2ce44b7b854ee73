"""The monitor: which partitions should move, so that nobody has too much to do.  Pure.

The load of a configurator is work, in seconds: what has come for its partitions lately and what waits for them, each
request as long as requests of that partition took.  It is *overloaded* if it

    works all the time         else it is the dispatcher, or a switch, that is waited for, and a move would not help
    has more than `threshold` times the mean load
    and does not catch up      what waits did not get less, look after look

Then its heaviest partition moves to the configurator with the least load, unless that would have more than the giver
then; else the next heaviest, and so on, until it has no more than others.

    look      a: 25 + 5 + 5 + 5   b: 10   c: 14       the 25 would make b the next one with too much: it stays
              a: 25               b: 20   c: 19       5 to b, 5 to c, 5 to b

No thrashing: a move makes the larger of two loads less, never the other way round; one that moved stays where it is
for some looks, and who gave something is looked at anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = ["Monitor", "Move", "Work"]

#: Looks that are remembered: what came since then counts as coming.
_PAST: Final = 8
#: Looks at which one must have had too much.
_SUCCESSIVE: Final = 3
#: Looks for which a partition that moved stays.
_REST: Final = 8
#: Partitions that move after one look, at most.
_MOVES: Final = 16
#: The part of its time that one works at least who works all the time; the rest goes into hearing and telling.
_BUSY: Final = 0.5


class Move(NamedTuple):
    """A partition should go to somebody else."""

    partition: int
    to: str


class Work(NamedTuple):
    """A partition: requests that wait for it, and how many were worked out so far, in how many seconds."""

    waiting: int
    served: int
    spent: float


class Monitor:
    """Looks at the work now and then, every so many seconds.

    >>> monitor = Monitor(threshold=1.5, seconds=1.0)
    >>> for n in (1, 2, 3, 4):
    ...     print(monitor.look({"a": {1: Work(40 * n, n, n), 2: Work(9 * n, n, n)}, "b": {3: Work(0, n, n / 9)}}))
    []
    []
    []
    [Move(partition=2, to='b')]
    """

    def __init__(self, threshold: float, seconds: float) -> None:
        self._threshold, self._seconds = threshold, seconds
        self._past: deque[dict[int, Work]] = deque(maxlen=_PAST)
        #: What waited for each at the last look, and looks at which it had too much, one after the other.
        self._waited: dict[str, float] = {}
        self._over: dict[str, int] = {}
        #: Until which look a partition stays.
        self._resting: dict[int, int] = {}
        self._looks = 0

    def look(self, work: Mapping[str, Mapping[int, Work]]) -> list[Move]:
        """What should move now, by the partitions of each configurator."""
        self._looks += 1
        self._resting = {partition: until for partition, until in self._resting.items() if until > self._looks}
        every = {partition: each for mine in work.values() for partition, each in mine.items()}
        past = self._past[0] if self._past else {}
        elapsed = len(self._past) * self._seconds
        self._past.append(every)
        served = sum(each.served for each in every.values())
        usual = sum(each.spent for each in every.values()) / served if served else 0.0
        loads: dict[str, dict[int, float]] = {}
        over: list[str] = []
        for owner, mine in work.items():
            loads[owner] = {}
            worked = waits = 0.0
            for partition, now in mine.items():
                then = past.get(partition, now)
                cost = now.spent / now.served if now.served else usual
                came = now.served + now.waiting - then.served - then.waiting
                loads[owner][partition] = cost * (max(0, came) + now.waiting)
                worked += now.spent - then.spent
                waits += cost * now.waiting
            caught_up = waits < self._waited.get(owner, 0.0)
            self._waited[owner] = waits
            busy = elapsed and worked > _BUSY * elapsed
            self._over[owner] = self._over.get(owner, 0) + 1 if busy and waits and not caught_up else 0
        totals = {owner: sum(mine.values()) for owner, mine in loads.items()}
        bound = self._threshold * sum(totals.values()) / max(1, len(totals))
        over = [owner for owner in totals if totals[owner] > bound and self._over[owner] >= _SUCCESSIVE]
        if not over:
            return []
        giver = max(over, key=lambda owner: (totals[owner], owner))
        self._over[giver] = 0
        return self._shed(giver, loads[giver], totals)

    def _shed(self, giver: str, mine: dict[int, float], totals: dict[str, float]) -> list[Move]:
        """What it should give away, and to whom."""
        moves: list[Move] = []
        for partition, load in sorted(mine.items(), key=lambda each: (-each[1], each[0])):
            taker = min(totals, key=lambda owner: (totals[owner], owner))
            fits = load > 0 and totals[taker] + load <= totals[giver] - load
            if fits and partition not in self._resting and len(moves) < _MOVES:
                totals[giver] -= load
                totals[taker] += load
                self._resting[partition] = self._looks + _REST
                moves.append(Move(partition, taker))
        return moves
