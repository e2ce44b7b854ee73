"""A TCP flow in virtual time, to share a link with: Reno as Linux has it.

A bulk transfer. What makes a kernel's Reno differ from a textbook's matters where windows are small, so it is here:

* The window is a whole number of segments; it grows by one when as many segments as it has were acknowledged, however
  few acknowledgements said so (appropriate byte counting, RFC 3465).
* The receiver acknowledges every second segment, or after 40 ms; but at once what is out of order or fills a hole, and
  each of the sixteen segments after that. (So it was counted at a kernel's receiver.)
* A segment is lost when one that was sent later has come, and a quarter of the shortest round trip has passed or three
  have come (RACK, RFC 8985). That finds lost retransmissions too.
* In recovery the window falls to its half in proportion to what comes (PRR, RFC 6937).
* When nothing comes for two round trips, a probe is sent before the timer runs out (TLP); the timer is RFC 6298's,
  with a variation of at least 200 ms and exponential backoff.

Segments are counted, not bytes. The receiver keeps what comes out of order, and says so (RFC 2018).
"""

from __future__ import annotations

from math import inf
from typing import Final

from sievenet.simulation import Pipe, VirtualClock

__all__ = ["TcpFlow"]

#: Segments above a missing one that show it lost at once.
_SHOWN: Final = 3
#: Seconds: least variation of the timer, and an acknowledgement's longest wait.
_VARIATION: Final = 0.2
_DELAYED: Final = 0.04
#: Segments acknowledged one by one at first, and after one that is out of order.
_QUICK: Final = 16


class TcpFlow:
    """One bulk transfer over a pair of links."""

    def __init__(
        self,
        clock: VirtualClock,
        forward: Pipe,
        backward: Pipe,
        *,
        segment: int = 1460,
        header: int = 40,
        window: int = 1000,
    ) -> None:
        self._clock = clock
        self._forward, self._backward = forward, backward
        self._segment, self._header = segment, header
        self._limit = window
        self.window = 2
        self._threshold = window
        #: Segments acknowledged since the window last grew.
        self._counted = 0
        #: Next new segment, first unacknowledged one.
        self._next = self._first = 0
        #: Of those above the first unacknowledged one: what came, and what is lost and was not sent again.
        self._sacked: set[int] = set()
        self._lost: set[int] = set()
        #: When each was last sent, and what was sent more than once.
        self._sent_at: dict[int, float] = {}
        self._again: set[int] = set()
        #: Of those that came, the one that was sent last: when, and its round trip.
        self._newest, self._trip = (-inf, -1), 0.0
        #: End of the recovery in progress, -1 outside of one.
        self._recover = -1
        #: Proportional rate reduction: the window that is being halved, what came and what was sent since.
        self._reducing = False
        self._prior = self._delivered = self._sent = 0
        self._srtt = self._variation = 0.0
        self._shortest = inf
        self._timeout = 1.0
        #: Runs of the timer and of the one that waits for stragglers: earlier ones are void.
        self._timer_run = self._watch_run = 0
        self._probed = False
        self._expected = 0
        self._early: set[int] = set()
        #: Segments that wait for an acknowledgement.
        self._waiting = 0
        self._delayed_run = 0
        #: Segments that are still acknowledged one by one.
        self._quick = _QUICK
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

    @property
    def _under_way(self) -> int:
        """Segments in the network, as far as acknowledgements tell."""
        return self._next - self._first - len(self._sacked) - len(self._lost)

    def _fill(self) -> None:
        while not self._stopped and self._under_way < min(self.window, self._limit):
            if self._lost:
                self._resend(min(self._lost))
            else:
                self._send_new()

    def _send_new(self) -> None:
        self._next += 1
        self._transmit(self._next - 1)

    def _resend(self, number: int) -> None:
        self.retransmitted += 1
        self._lost.discard(number)
        self._again.add(number)
        self._transmit(number)

    def _transmit(self, number: int) -> None:
        self._sent_at[number] = self._clock.now
        self._sent += 1
        if number == self._first or self._next - self._first == 1:
            self._restart_timer()
        self._forward.send(self._segment + self._header, self._arrived, number)

    def _restart_timer(self) -> None:
        self._timer_run += 1
        if self._srtt and self._recover < 0 and not self._probed:
            alone = _VARIATION if self._next - self._first == 1 else 0.0
            probe = 2 * self._srtt + alone
            if probe < self._timeout:
                self._clock.call_later(probe, self._probe, self._timer_run)
                return
        self._clock.call_later(self._timeout, self._timed_out, self._timer_run)

    def _probe(self, run: int) -> None:
        """Nothing came for long: send one segment more, so that something comes."""
        if run != self._timer_run or self._stopped or self._first == self._next:
            return
        self._probed = True
        self._restart_timer()
        self._send_new()

    def _timed_out(self, run: int) -> None:
        if run != self._timer_run or self._stopped or self._first == self._next:
            return
        self.timeouts += 1
        if self._recover < 0:
            self._threshold = max(2, self.window // 2)
        self.window, self._counted = 1, 0
        self._recover, self._reducing = self._next, False
        self._timeout = min(60.0, self._timeout * 2)
        self._lost = set(range(self._first, self._next)) - self._sacked
        self._restart_timer()
        self._fill()

    def _acknowledged(self, number: int, early: frozenset[int]) -> None:
        """The receiver lacks this segment next, and has these above it."""
        if self._stopped or number < self._first:
            return
        came = [each for each in range(self._first, number) if each not in self._sacked]
        came += [each for each in early if each >= number and each not in self._sacked]
        self._sacked = {each for each in early | self._sacked if each >= number}
        self._came(came)
        if number > self._first:
            self._advance(number, len(came))
        self._watch()
        self._mend(len(came))

    def _came(self, numbers: list[int]) -> None:
        """These have come: note the round trip, and up to when what was sent should have come too."""
        once = [sent for each in numbers if each not in self._again and (sent := self._sent_at.get(each)) is not None]
        if once:
            self._measure(self._clock.now - max(once))
        for each in numbers:
            sent = self._sent_at.pop(each, -inf)
            # What came sooner than ever after it was sent again had come the first time.
            if (sent, each) > self._newest and (each not in self._again or self._clock.now - sent >= self._shortest):
                self._newest, self._trip = (sent, each), self._clock.now - sent
            self._lost.discard(each)
            self._again.discard(each)

    def _advance(self, number: int, count: int) -> None:
        self._first = number
        self._probed = False
        if self._srtt:
            self._timeout = self._patience  # progress ends the backoff
        if self._recover >= 0 and number >= self._recover:
            self._recover = -1
            if self._reducing:
                self._reducing, self.window = False, self._threshold
        elif not self._reducing and self.window < self._threshold:  # also while a timeout's losses are sent again
            self.window = min(self.window + count, self._threshold)
        elif self._recover < 0:
            self._counted += count
            if self._counted >= self.window:
                self._counted -= self.window
                self.window += 1
        if self._next > self._first:
            self._restart_timer()

    def _watch(self) -> None:
        """Find what is lost: sent before something that came, and late by more than packets overtake each other."""
        self._watch_run += 1
        sure = self._recover >= 0 or len(self._sacked) >= _SHOWN
        patience = 0.0 if sure else min(self._shortest / 4, self._srtt / 8)
        due = inf
        for each, sent in self._sent_at.items():
            if (sent, each) < self._newest and each not in self._lost:
                if sure or self._clock.now >= (deadline := sent + self._trip + patience):
                    self._lost.add(each)
                else:
                    due = min(due, deadline)
        if due < inf:
            self._clock.call_at(due, self._straggled, self._watch_run)

    def _straggled(self, run: int) -> None:
        if run == self._watch_run and not self._stopped:
            self._watch()
            self._mend(0)

    def _mend(self, came: int) -> None:
        """Begin recovery if something is lost; in one, send in proportion to what comes, down to half of the window."""
        if self._lost and self._recover < 0:
            self._prior, self._delivered, self._sent = self.window, 0, 0
            self._threshold = max(2, self.window // 2)
            self._counted, self._recover, self._reducing = 0, self._next, True
            self._resend(min(self._lost))  # at once, whatever is under way
        if self._reducing:
            self._delivered += came
            flying = self._under_way
            if flying > self._threshold:
                more = -(-self._delivered * self._threshold // self._prior) - self._sent
            else:
                more = min(self._threshold - flying, max(self._delivered - self._sent, came) + 1)
            self.window = flying + max(0, more)
        self._fill()

    def _measure(self, trip: float) -> None:
        self._shortest = min(self._shortest, trip)
        if self._srtt == 0:
            self._srtt, self._variation = trip, trip / 2
        else:
            self._variation += (abs(trip - self._srtt) - self._variation) / 4
            self._srtt += (trip - self._srtt) / 8
        self._timeout = self._patience

    @property
    def _patience(self) -> float:
        return self._srtt + max(_VARIATION, 4 * self._variation)

    # -- receiver -------------------------------------------------------------------------

    def _arrived(self, number: int) -> None:
        ordered = number == self._expected and not self._early
        if number == self._expected:
            self._expected += 1
            self.received += self._segment
            while self._expected in self._early:
                self._early.discard(self._expected)
                self._expected += 1
                self.received += self._segment
        elif number > self._expected:
            self._early.add(number)
        self._waiting += 1
        self._quick = self._quick - 1 if ordered else _QUICK
        if self._quick >= 0 or self._waiting >= 2:
            self._acknowledge(self._delayed_run)
        else:
            self._clock.call_later(_DELAYED, self._acknowledge, self._delayed_run)

    def _acknowledge(self, run: int) -> None:
        if run == self._delayed_run:
            self._delayed_run += 1
            self._waiting = 0
            self._backward.send(self._header, self._acknowledged, self._expected, frozenset(self._early))
