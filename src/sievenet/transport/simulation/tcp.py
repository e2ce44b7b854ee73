"""A TCP flow (Reno with selective acknowledgements) in virtual time, to share a link with.

A bulk transfer: slow start, congestion avoidance, recovery by selective acknowledgements after RFC 6675 (a segment is
lost when three above it are acknowledged; in recovery as much is under way as half of the window allows), limited
transmit, and a retransmission timer after RFC 6298 with exponential backoff. Segments are counted, not bytes; every
segment is acknowledged. The receiver keeps what comes out of order.
"""

from __future__ import annotations

from sievenet.transport.simulation.clock import Clock
from sievenet.transport.simulation.link import Link

__all__ = ["TcpFlow"]


class TcpFlow:
    """One bulk transfer over a pair of links."""

    def __init__(
        self, clock: Clock, forward: Link, backward: Link, *, segment: int = 1460, header: int = 40, window: int = 1000
    ) -> None:
        self._clock = clock
        self._forward, self._backward = forward, backward
        self._segment, self._header = segment, header
        self._limit = window
        self.window = 2.0
        self._threshold = float(window)
        #: Next new segment, first unacknowledged one.
        self._next = self._first = 0
        #: What is acknowledged, lost and sent again of what is above the first unacknowledged segment.
        self._sacked: set[int] = set()
        self._lost: set[int] = set()
        self._again: set[int] = set()
        #: End of the recovery in progress, -1 outside of one.
        self._recover = -1
        self._sent_at: dict[int, float] = {}
        self._srtt = self._variation = 0.0
        self._timeout = 1.0
        self._timer_run = 0
        self._expected = 0
        self._early: set[int] = set()
        #: Bytes of data that arrived in order, and times that segments were retransmitted.
        self.received = 0
        self.retransmitted = 0
        self.timeouts = 0
        self._stopped = True

    def start(self) -> None:
        """Begin to send."""
        self._stopped = False
        self._fill()

    def stop(self) -> None:
        """Send nothing more."""
        self._stopped = True

    # -- sender ---------------------------------------------------------------------------

    def _fill(self) -> None:
        while not self._stopped and self._under_way < min(int(self.window), self._limit):
            holes = self._lost - self._again
            if holes:
                self._resend(min(holes))
                continue
            self._transmit(self._next)
            self._sent_at[self._next] = self._clock.now
            self._next += 1

    @property
    def _under_way(self) -> int:
        """Segments in the network, as far as acknowledgements tell: what is lost is not, until it is sent again."""
        return self._next - self._first - len(self._sacked) - len(self._lost) + len(self._again)

    def _transmit(self, number: int) -> None:
        if number == self._first:
            self._restart_timer()
        self._forward.send(self._segment + self._header, self._arrived, number)

    def _restart_timer(self) -> None:
        self._timer_run += 1
        self._clock.after(self._timeout, self._timed_out, self._timer_run)

    def _timed_out(self, run: int) -> None:
        if run != self._timer_run or self._stopped or self._first == self._next:
            return
        self.timeouts += 1
        self._threshold = max(2.0, (self._next - self._first) / 2)
        self.window = 1.0
        self._recover = self._next
        self._timeout = min(60.0, self._timeout * 2)
        self._sent_at.clear()
        self._again.clear()
        self._lost = set(range(self._first, self._next)) - self._sacked
        self._fill()

    def _acknowledged(self, number: int, early: frozenset[int]) -> None:
        """The receiver lacks this segment next, and has these above it."""
        if self._stopped:
            return
        self._sacked = {each for each in early | self._sacked if each >= max(number, self._first)}
        self._lost -= self._sacked
        self._again -= self._sacked
        if number > self._first:
            self._advance(number)
        if len(self._sacked) >= 3:
            # Three above it have come: lost.
            third = sorted(self._sacked)[-3]
            self._lost |= {each for each in range(self._first, third) if each not in self._sacked}
        if self._lost and self._recover < 0:
            # Not half of what is under way: limited transmit has added to that, and must not count (RFC 5681).
            self._threshold = max(2.0, self.window / 2)
            self.window = self._threshold
            self._recover = self._next
            self._resend(min(self._lost))
        self._fill()

    def _advance(self, number: int) -> None:
        sent = self._sent_at.get(number - 1)
        if sent is not None:
            self._measure(self._clock.now - sent)
        elif self._srtt:
            self._timeout = self._patience  # progress ends the backoff
        for each in range(self._first, number):
            self._sent_at.pop(each, None)
        self._first = number
        for some in (self._lost, self._again):
            some.difference_update([each for each in some if each < number])
        if self._recover >= 0 and number >= self._recover:
            self._recover = -1
        elif self.window < self._threshold:  # also while a timeout's losses are sent again
            self.window += 1
        elif self._recover < 0:
            self.window += 1 / self.window
        if self._next > self._first:
            self._restart_timer()

    def _resend(self, number: int) -> None:
        self.retransmitted += 1
        self._again.add(number)
        self._sent_at.pop(number, None)
        self._transmit(number)

    def _measure(self, trip: float) -> None:
        if self._srtt == 0:
            self._srtt, self._variation = trip, trip / 2
        else:
            self._variation += (abs(trip - self._srtt) - self._variation) / 4
            self._srtt += (trip - self._srtt) / 8
        self._timeout = self._patience

    @property
    def _patience(self) -> float:
        return max(0.2, self._srtt + 4 * self._variation)

    # -- receiver -------------------------------------------------------------------------

    def _arrived(self, number: int) -> None:
        if number == self._expected:
            self._expected += 1
            self.received += self._segment
            while self._expected in self._early:
                self._early.discard(self._expected)
                self._expected += 1
                self.received += self._segment
        elif number > self._expected:
            self._early.add(number)
        self._backward.send(self._header, self._acknowledged, self._expected, frozenset(self._early))
