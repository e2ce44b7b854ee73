"""How fast a TCP would send: TFMCC's response function, and the loss event rate that goes into it.

    T = s / ( t_RTT · ( √(2p/3) + 12·√(3p/8)·p·(1 + 32p²) ) )        p = 1 / mean loss interval

A *loss event* is one or more losses within a round trip; a *loss interval* the messages between two events. The mean
is TFRC's: the last eight intervals, the older ones weighing less, with the open one counted when that raises the mean.

Loss detection is imprecise: a gap longer than the publication record, in which the record shows no loss, may hide one.
Counting it as received would overrate the interval, counting it as a loss underrate it by far. The interval grows by
the probability that none of the g - k unseen messages was wanted, (1 - ρ)^(g - k), ρ = reception rate / publish rate.
"""

from __future__ import annotations

from math import inf, sqrt
from typing import Final

__all__ = ["LossIntervals", "loss_rate_for", "tcp_rate"]

_WEIGHTS: Final = (1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2)


def tcp_rate(p: float, round_trip: float, size: float = 1.0) -> float:
    """Bytes (or messages, for a size of 1) per second that a TCP would get."""
    if p <= 0:
        return inf
    p = min(p, 1.0)
    return size / (round_trip * (sqrt(2 * p / 3) + 12 * sqrt(3 * p / 8) * p * (1 + 32 * p * p)))


def loss_rate_for(rate: float, round_trip: float) -> float:
    """The loss event rate at which a TCP would send this many messages per second: the inverse, by bisection."""
    low, high = 1e-9, 1.0
    if tcp_rate(high, round_trip) >= rate:
        return high
    for _ in range(60):
        middle = sqrt(low * high)
        if tcp_rate(middle, round_trip) > rate:
            low = middle
        else:
            high = middle
    return high


class LossIntervals:
    """The last loss intervals of one flow."""

    __slots__ = ("_closed", "_current", "_event")

    def __init__(self) -> None:
        #: Closed intervals, newest first.
        self._closed: list[float] = []
        self._current = 0.0
        #: When the first message of the last loss event left, by the publisher's clock.
        self._event = -inf

    @property
    def lossy(self) -> bool:
        """Whether a loss has ever been seen."""
        return bool(self._closed)

    def received(self, uncovered: int = 0, share: float = 0.0, segments: float = 1.0) -> None:
        """Such a part of a segment came, behind a gap of which ``uncovered`` are not in the record; ``share`` is ρ."""
        if uncovered <= 0:
            self._current += segments
        else:
            self._current += segments * (1.0 - min(max(share, 0.0), 1.0)) ** min(uncovered, 10_000)

    def lost(self, departure: float, round_trip: float, first: float) -> bool:
        """A message that left at ``departure`` is lost; True if that is a new event.

        ``first`` is the interval to assume before the first loss ever: the one at which a TCP has the present rate.
        """
        if departure <= self._event + round_trip:
            return False
        self._event = departure
        self._closed.insert(0, max(self._current, 1.0) if self._closed else max(first, 1.0))
        del self._closed[len(_WEIGHTS) :]
        self._current = 1.0
        return True

    @property
    def event_rate(self) -> float:
        """p; 0 before the first loss."""
        closed = self._closed
        if not closed:
            return 0.0
        return 1.0 / max(_mean(closed), _mean([self._current, *closed][: len(_WEIGHTS)]))


def _mean(intervals: list[float]) -> float:
    weights = _WEIGHTS[: len(intervals)]
    return sum(w * i for w, i in zip(weights, intervals, strict=False)) / sum(weights)
