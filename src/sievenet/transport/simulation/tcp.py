"""A TCP flow (NewReno) in virtual time, to share a link with.

A bulk transfer: slow start, congestion avoidance, fast retransmit on the third duplicate acknowledgement, NewReno's
recovery (a partial acknowledgement retransmits the next hole), and a retransmission timer after RFC 6298 with
exponential backoff. Segments are counted, not bytes; every segment is acknowledged. The receiver keeps what comes out
of order and acknowledges the next segment that it lacks.
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
        self._duplicates = 0
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
        while not self._stopped and self._next < self._first + min(int(self.window), self._limit):
            self._transmit(self._next)
            self._sent_at[self._next] = self._clock.now
            self._next += 1

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
        self._duplicates = 0
        self._recover = -1
        self._timeout = min(60.0, self._timeout * 2)
        self._next = self._first  # go back; what the receiver has is skipped by its acknowledgements
        self._sent_at.clear()
        self.retransmitted += 1
        self._transmit(self._first)
        self._next += 1

    def _acknowledged(self, number: int) -> None:
        """The receiver lacks this segment next."""
        if self._stopped:
            return
        if number > self._first:
            self._advance(number)
        elif number == self._first and self._next > self._first:
            self._duplicates += 1
            if self._recover >= 0:
                self.window += 1
            elif self._duplicates == 3:
                self._threshold = max(2.0, (self._next - self._first) / 2)
                self.window = self._threshold + 3
                self._recover = self._next
                self._resend(self._first)
        self._fill()

    def _advance(self, number: int) -> None:
        sent = self._sent_at.get(number - 1)
        if sent is not None:
            self._measure(self._clock.now - sent)
        for each in range(self._first, number):
            self._sent_at.pop(each, None)
        newly = number - self._first
        self._first = number
        self._next = max(self._next, number)
        self._duplicates = 0
        if self._recover >= 0:
            if number >= self._recover:
                self.window = self._threshold
                self._recover = -1
            else:
                self.window = max(1.0, self.window - newly + 1)
                self._resend(number)
        elif self.window < self._threshold:
            self.window += 1
        else:
            self.window += 1 / self.window
        if self._next > self._first:
            self._restart_timer()

    def _resend(self, number: int) -> None:
        self.retransmitted += 1
        self._sent_at.pop(number, None)
        self._transmit(number)

    def _measure(self, trip: float) -> None:
        if self._srtt == 0:
            self._srtt, self._variation = trip, trip / 2
        else:
            self._variation += (abs(trip - self._srtt) - self._variation) / 4
            self._srtt += (trip - self._srtt) / 8
        self._timeout = max(0.2, self._srtt + 4 * self._variation)

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
        self._backward.send(self._header, self._acknowledged, self._expected)
