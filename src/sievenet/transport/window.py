"""The window that a TCP would have in a receiver's place.

TFMCC's equation gives a TCP's *mean* rate. Alone it does not share a drop-tail queue: a rate that smooth keeps the
queue full, and it is TCP, which comes in bursts, that loses. What shares is what behaves alike, so the receiver keeps
the window that a TCP with its arrivals and losses would have (as TEAR does), in segments, and asks for

    rate = window / round trip      a segment's worth comes      window += 1 / window     (a segment per round trip)
                                    a loss event                 window /= 2

The division by the round trip as it is *now* is what makes the two alike: when the window halves, a TCP's rate hardly
falls, since the queue empties and the round trip shrinks with it. As in TCP, an event is all losses of one round trip,
and what left in that round trip does not grow the window.

Messages are smaller than segments, N of them as large as one. A queue that counts packets drops a message as readily as
a segment, so N messages meet N times as many losses as the segment would. One in N of them, at random, stands for the
segment, and only its loss counts (the *random sampling* of Widmer, Boutremans and Le Boudec). Losses that cannot be
noticed are made up for likewise: if a share P is noticed, a loss counts with probability 1 / (N·P); were that above
one, an event weighs more than a halving.

Where windows are small a TCP lives by its timers, and follows another law: in the simulator, with losses at random and
selective acknowledgements, its window is 0.28 / p once p is above five percent. So below W₀ = 5.3 segments, where that
law meets the other, the TCP in whose place we are has smaller segments, of √(W/W₀) the size but no less than a message:
it grows by less, more of the losses count, and what a window loses is what a TCP of that window loses,

    losses per message    1.5 / W²   from W₀ on          1.5 / (W₀·W)   below
"""

from __future__ import annotations

from math import inf, sqrt
from random import Random
from typing import Final

__all__ = ["Window"]

#: Smallest window, in segments: a TCP's timer backs off to 64 times the round trip.
_SMALLEST: Final = 1 / 64
#: W₀, in segments.
_WHOLE: Final = 5.3


class Window:
    """One session's window, in segments; without limit until the first loss event."""

    __slots__ = ("_rng", "_until", "size")

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.size = inf
        #: What left up to then, by the publisher's clock, belongs to the last loss event.
        self._until = -inf

    def received(self, segments: float, departure: float) -> None:
        """So many segments' worth came (at most one, usually less), which left then."""
        size = self.size
        if size < inf and departure > self._until:
            grown = segments / max(size, segments)
            self.size = size + (grown if size >= _WHOLE else grown * size / _WHOLE / _part(size, segments))

    def lost(self, departure: float, round_trip: float, flight: float, segments: float, noticed: float) -> bool:
        """A message of so many segments is lost that left at ``departure``; True if a whole segment's loss is seen.

        ``flight`` is what is under way, in segments: at the first event that is the window. ``noticed`` is P.
        """
        if departure <= self._until:
            return False
        before = self.size if self.size < inf else max(flight, _SMALLEST)
        weight = segments / noticed
        drawn, own = self._rng.random(), weight / _part(before, segments)
        if drawn < own:
            self._until = departure + round_trip
            self.size = max(before * 0.5 ** max(1.0, own), _SMALLEST)
        return drawn < weight

    def bound(self, largest: float) -> None:
        """Not more than this."""
        if largest < self.size < inf:
            self.size = max(largest, _SMALLEST)


def _part(size: float, segments: float) -> float:
    """What part of a segment the TCP's own segments are, in whose place a window of this size is kept."""
    return 1.0 if size >= _WHOLE else max(sqrt(size / _WHOLE), min(segments, 1.0))
