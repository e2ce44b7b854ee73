"""When a port sends and when it reads: the pace of what leaves (a `Bucket`), and gathering for what comes.

Packets that come one by one are read one by one, at once.  Where so many come that this would cost most of a process's
time, reading waits until some have gathered: a single event never waits, and many cost one call together.
"""

from __future__ import annotations

from typing import Final

__all__ = ["BURST", "MANY", "RATE", "TURN", "gathering"]

#: Packets per second, and how many at once.
RATE: Final = 80_000.0
BURST: Final = 2_000
#: Packets read before others get their turn, and sent with one call.
TURN: Final = 256
#: Packets from which on a matrix is quicker than one by one.
MANY: Final = 16
#: Packets per second that can be read one by one with ease, and those that can hardly be. Between the two gathering
#: begins: so many packets at a time, for so many seconds at most.
_EASY: Final = 6_000.0
_HARD: Final = 12_000.0
_GATHERED: Final = 192
_LONGEST: Final = 0.005
#: Seconds to wait before the pace is known.
_FIRST: Final = 0.001


def gathering(count: int, seconds: float | None) -> float | None:
    """For how long to gather packets after so many came in so many seconds (None: unknown); None: not at all."""
    if count == TURN:
        return 0.0  # more than fit at once are there already
    if seconds is None:
        return _FIRST if count >= MANY else None
    pace = count / max(seconds, 1e-6)
    need = min(1.0, (pace - _EASY) / (_HARD - _EASY))
    return need * min(_LONGEST, _GATHERED / pace) if need > 0.0 else None
