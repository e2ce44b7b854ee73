"""When a port sends and when it reads: the pace of what leaves (a `Bucket`), and gathering for what comes.

Packets that come one by one are read one by one, at once.  Where so many come that this would cost most of a process's
time, reading waits until some have gathered: a single event never waits, and many cost one call together. For a moment
after many have come, more of them are expected, and the first one waits for those behind it too: else each pause in a
flood would cost some events a call of their own. Floods come in pieces, as publishers and switches make them; so the
pace is that of the last few pieces, not of one: else each piece would be read in parts, the last ones small.
"""

from __future__ import annotations

from math import exp
from typing import Final

__all__ = ["BURST", "FIRST", "MANY", "RATE", "TURN", "Gathering", "weight"]

#: Packets per second, and how many at once; those that share a datagram with others count for less.
RATE: Final = 80_000.0
BURST: Final = 2_000
_SHARED: Final = 2 / 7
#: Packets read before others get their turn, and sent with one call.
TURN: Final = 256
#: Packets from which on a matrix is quicker than one by one.
MANY: Final = 16
#: Packets per second that can be read one by one with ease, and those that can hardly be. Between the two gathering
#: begins: so many packets at a time, for so many seconds at most.
_EASY: Final = 6_000.0
_HARD: Final = 12_000.0
_GATHERED: Final = 192
#: The same where datagrams have several packets, most of which may be others'.
_MIXED: Final = 1024
_LONGEST: Final = 0.005
#: Seconds to wait before the pace is known.
FIRST: Final = 0.001
#: Seconds after packets were gathered in which the next ones are.
_LULL: Final = 0.02
#: Seconds that the pace is a mean over, about.
_LATELY: Final = 0.01


def weight(together: int) -> float:
    """For how many packets a datagram of so many counts: what switches and subscribers take for it, about."""
    return 1.0 + (together - 1) * _SHARED


class Gathering:
    """When a port reads next, by what came lately."""

    def __init__(self) -> None:
        #: When something was read, and the packets per second by then; None: not known yet.
        self._last = float("-inf")
        self._pace: float | None = None
        #: Until when more packets are expected behind one that comes; 0: they are not, as far as is known.
        self.lull = 0.0

    def expects(self, now: float) -> bool:
        """Whether more packets are expected behind one that comes now."""
        if now < self.lull:
            return True
        self.lull = 0.0
        return False

    def nap(self, count: int, now: float, mixed: bool = False) -> float | None:
        """For how long to gather packets after so many were read; None: not at all."""
        seconds, self._last = now - self._last, now
        if seconds > _LULL:
            self._pace = None
            return FIRST if count >= MANY else None
        new = count / max(seconds, 1e-6)
        stays = 0.0 if self._pace is None else exp(-seconds / _LATELY)
        self._pace = pace = new if self._pace is None else self._pace * stays + new * (1.0 - stays)
        need = min(1.0, (pace - _EASY) / (_HARD - _EASY))
        if need <= 0.0:
            return None
        self.lull = now + _LULL
        return need * min(_LONGEST, (_MIXED if mixed else _GATHERED) / pace)
