"""The window that a TCP would have in a receiver's place.

TFMCC's equation gives a TCP's *mean* rate. Alone it does not share a drop-tail queue: a rate that smooth keeps the
queue full, and it is TCP, which comes in bursts, that loses. What shares is what behaves alike, so the receiver keeps
the window that a TCP with its arrivals and losses would have (as TEAR does), in segments, and asks for

    rate = (window - ½) / round trip    a segment's worth comes      window += 1 / window    (a segment per round trip)
                                        a loss event                 window /= 2

The division by the round trip as it is *now* is what makes the two alike: when the window halves, a TCP's rate hardly
falls, since the queue empties and the round trip shrinks with it. As in TCP, an event is all losses of one round trip,
and what left in that round trip does not grow the window.

Messages are smaller than segments, N of them as large as one. A queue that counts packets drops a message as readily as
a segment, so N messages meet N times as many losses as the segment would. One in N of them, at random, stands for the
segment, and only its loss counts (the *random sampling* of Widmer, Boutremans and Le Boudec). Losses that cannot be
noticed are made up for likewise: if a share P is noticed, a loss counts with probability 1 / (N·P); were that above
one, an event weighs more than a halving.

A TCP sends whole segments: of a window that grows evenly, half a segment is unused on average. Hence the ½, which makes
windows follow a kernel's TCP even where they are small (the simulator's, losses at random, messages of a fifth of
a segment; √(1.5/p) is what a window without the ½ would be):

    losses %               1       2       3       5       8      12      18      25
    under way: TCP      11.7     8.0     6.3     4.7     3.5     2.7     1.9     1.3      segments
               we       11.8     7.8     6.1     4.4     3.2     2.3     1.6     1.1
          √(1.5/p)      12.2     8.7     7.1     5.5     4.3     3.5     2.9     2.4

Half of a window of one segment has nothing under way: hundreds of flows that share a link, each of less than a segment,
would fall to the least at every loss and be far from equal. So an event leaves a quarter of what is under way at least,
which matters below a window of 1.5 segments alone.
"""

from __future__ import annotations

from math import inf
from random import Random
from typing import Final

__all__ = ["CongestionWindow"]

#: What a TCP leaves unused of its window on average, in segments.
_HELD: Final = 0.5
#: Share of what is under way that a loss event leaves at the least.
_LEFT: Final = 0.25
#: Smallest window, in segments: a TCP's timer backs off to 64 times the round trip.
_SMALLEST: Final = _HELD + 1 / 64


class CongestionWindow:
    """One session's window, in segments; without limit until the first loss event."""

    __slots__ = ("_growth", "_rng", "_until", "size")

    def __init__(self, rng: Random, growth: float = 1.0) -> None:
        self._rng = rng
        #: Segments per round trip.
        self._growth = growth
        self.size = inf
        #: What left up to then, by the publisher's clock, belongs to the last loss event.
        self._until = -inf

    @property
    def flight(self) -> float:
        """Segments under way."""
        return self.size - _HELD

    def received(self, segments: float, departure: float) -> None:
        """So many segments' worth came (at most one, usually less), which left then."""
        if self.size < inf and departure > self._until:
            self.size += self._growth * segments / max(self.size, segments)

    def lost(self, departure: float, round_trip: float, flight: float, segments: float, noticed: float) -> bool:
        """A message of so many segments is lost that left at ``departure``; True if that is a loss event.

        ``flight`` is what is under way, in segments: at the first event the window follows from that. ``noticed`` is P.
        """
        if departure <= self._until:
            return False
        weight = segments / noticed
        if self._rng.random() >= weight:
            return False
        self._until = departure + round_trip
        before = self.size if self.size < inf else flight + _HELD
        weight = max(1.0, weight)
        least = _HELD + (before - _HELD) * _LEFT**weight
        self.size = max(before * 0.5**weight, least, _SMALLEST)
        return True

    def bound(self, flight: float) -> None:
        """Not more than this under way."""
        if flight < self.flight < inf:
            self.size = max(flight + _HELD, _SMALLEST)
