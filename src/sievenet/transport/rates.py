"""Congestion control at a receiver, for one publisher: content-aware TFMCC.

Every step the receiver compares what TCP would get, T, with what it receives:

    T < rate    decrease: share T among its filters by max-min, so that slow flows keep what they have
    T > rate    increase, but only filters for which it is the *current limiting receiver* (CLR): each by its part of
                the difference and at most α · its rate

and tells the publisher the quota of every filter that is to slow down or that it limits. The publisher names a flow's
CLR in the header, so receivers know; others stay silent.

T is what the window of a TCP in its place gives (`window` says why), and no more than four times what the equation
gives for the loss event rate: the equation knows of the timeouts that a TCP suffers where losses are frequent. A loss
event is answered at once, otherwise there is a step every quarter of a round trip (or when a few messages have come,
if that is later), since the round trip itself sets the rate.

Losses come from two sources: records (what is missing of the last messages) and, where the receiver limits the flow,
the numbers of its messages (`numbers`), which show every loss. Of a round trip's losses the larger count is believed.

Round trip: an echo at first, then the CLR needs none: the publisher says how long the CLR's last feedback travelled
(δ_feedback), and adding the travel time of the message that says so makes a round trip in which the clocks cancel.
Everybody else adds the change of the one-way delay since the last echo.

Feedback suppression (the source leaves it open): a wish to slow down waits a random part of an interval, the longer the
milder it is, and is dropped if a header shows meanwhile that the flow's CLR asks for as little already.
"""

from __future__ import annotations

from math import inf
from random import Random
from typing import Final

import msgspec

from sievenet.transport.bloom import Bits
from sievenet.transport.codec import MAX_RATE, Header
from sievenet.transport.control import MAX_FLOWS, Echo, Feedback, FlowRequest
from sievenet.transport.latch import Latch
from sievenet.transport.numbers import Numbers
from sievenet.transport.options import RateControl
from sievenet.transport.response import LossIntervals, loss_rate_for, tcp_rate
from sievenet.transport.stream import Loss
from sievenet.transport.window import CongestionWindow

__all__ = ["FilterRate", "RateSession", "max_min"]

#: Seconds after which an unanswered echo is repeated, and after which an answered one is.
_ECHO_AGAIN: Final = 1.0
_ECHO_LATER: Final = 10.0
#: Steps per round trip, unless `interval` is longer.
_STEPS: Final = 4
#: The window may reach this many times the equation's mean, and what is under way.
_MOST: Final = 4.0
#: A rate is measured over so many messages, or after so many seconds: of fewer it would be noise.
_FEW: Final = 4
_SILENCE: Final = 1.0
#: Seconds that a receiver counts as limiting a flow without being named again: flows may be slow.
_LIMITING: Final = 3.0
#: Bytes around a TCP segment.
_TCP_HEADER: Final = 40
#: A round trip is believed between these bounds, in seconds.
_SHORTEST, _LONGEST = 1e-5, 30.0


class FilterRate(msgspec.Struct):
    """One filter's share of what a publisher sends here."""

    bits: Bits
    #: Messages since the last step.
    count: int = 0
    rate: float = 0.0
    quota: float = inf
    #: Until when this receiver counts as the flow's CLR.
    limiting: float = -inf
    #: The CLR's quota as last seen in a header, and when.
    seen_quota: float = inf
    seen: float = -inf


def max_min(demands: list[float], total: float) -> list[float]:
    """Share ``total`` so that the smallest share is as large as possible, nobody getting more than the demand."""
    shares = [0.0] * len(demands)
    left = total
    order = sorted(range(len(demands)), key=demands.__getitem__)
    for position, i in enumerate(order):
        shares[i] = min(demands[i], left / (len(order) - position))
        left -= shares[i]
    return shares


class RateSession:
    """What one receiver knows of its flows from one publisher."""

    def __init__(
        self,
        me: int,
        publisher: int,
        interests: tuple[Bits, ...],
        width: int,
        options: RateControl,
        rng: Random,
        model: Latch,
    ) -> None:
        self._me, self._publisher, self._width = me, publisher, width
        self._options, self._rng = options, rng
        self.filters = [FilterRate(bits) for bits in interests[:MAX_FLOWS]]
        self.intervals = LossIntervals()
        self.round_trip = options.round_trip
        self._known = False
        self._echo_sent = -inf
        self._echo_due = 0.0
        #: Round trip and one-way transit at the last echo; the transit smoothed since.
        self._base: tuple[float, float] | None = None
        self._transit: float | None = None
        self._size = 0.0
        self._count = 0
        self.rate = 0.0
        self._publish_rate = 0.0
        self._step: float | None = None
        #: When rates were last measured, and whether a loss event wants a step before the next time.
        self._last_step = 0.0
        self._urgent = False
        #: Feedback that waits for its (suppressible) turn.
        self._pending: float | None = None
        self.window = CongestionWindow(rng, options.growth)
        self._numbers = Numbers(model)
        #: Share of the losses that are noticed: of the messages that tell whether the one before them came.
        self._noticed = 1.0
        #: Losses by records and by numbers in the round trip that began then, by the publisher's clock.
        self._tally, self._since = [0, 0], -inf
        self.feedbacks = self.suppressed = 0

    # -- what happens ---------------------------------------------------------------------

    def received(self, header: Header, size: int, uncovered: int, now: float, matched: tuple[int, ...] = (0,)) -> None:
        """A message came for these of the filters."""
        control = header.control
        transit = now - header.departure
        self._transit = transit if self._transit is None else self._transit + 0.1 * (transit - self._transit)
        self._size += 0.05 * (size - self._size) if self._size else size
        self._count += 1
        if self._step is None:
            self._last_step = now
            self._step = now + self._pause()
            self._echo_due = now
        if control is not None:
            self._publish_rate = control.rate
            if control.clr == self._me:
                self._measured(transit + control.feedback_delay)
                self._numbers.received(control.number, header.departure, now)
                uncovered = 0
        self._noticed += 0.02 * ((uncovered <= 0) - self._noticed)
        for i in matched:
            if i >= len(self.filters):
                continue
            entry = self.filters[i]
            entry.count += 1
            if control is not None and control.clr:
                entry.seen_quota, entry.seen = control.quota, now
                if control.clr == self._me:
                    entry.limiting = now + max(4 * self._pause(), _LIMITING)
        segments = (self._size + self._options.overhead) / (self._options.segment + _TCP_HEADER)
        share = 0.0 if uncovered <= 0 or self._publish_rate <= 0 else self.rate / self._publish_rate
        self.intervals.received(uncovered, share, segments)
        # What is not used does not grow (RFC 7661).
        if self.window.flight <= _MOST * self.rate * self.round_trip * segments:
            self.window.received(segments, header.departure)

    def lost(self, loss: Loss) -> None:
        """A wanted message did not come."""
        self._lost(loss.departure, 0)

    def echoed(self, echo: Echo, now: float) -> None:
        """The publisher answers an echo."""
        trip = now - echo.sent
        if echo.sent != self._echo_sent or not _SHORTEST <= trip <= _LONGEST:
            return
        self._known = True
        self._echo_sent = -inf
        self._echo_due = now + _ECHO_LATER * (0.5 + self._rng.random())
        self.round_trip = trip
        self._base = (trip, self._transit if self._transit is not None else 0.0)

    # -- time -----------------------------------------------------------------------------

    def timer(self) -> float | None:
        """When `expire` has something to do next."""
        if self._step is None:
            return None
        due = min(self._step, self._echo_due)
        if (when := self._numbers.timer()) is not None and when < due:
            due = when
        return due if self._pending is None else min(due, self._pending)

    def expire(self, now: float) -> list[Echo | Feedback]:
        """Take a step if one is due: what to send to the publisher."""
        messages: list[Echo | Feedback] = []
        if self._step is None:
            return messages
        for departure in self._numbers.expire(now):
            self._lost(departure, 1)
        if now >= self._echo_due:
            self._echo_sent = now
            self._echo_due = now + _ECHO_AGAIN
            messages.append(Echo(self._me, self._publisher, now))
        if now >= self._step:
            self._advance(now)
        if self._pending is not None and now >= self._pending:
            self._pending = None
            flows = self._wishes(now)
            if flows:
                self.feedbacks += 1
                messages.append(Feedback(self._me, self._publisher, now, tuple(flows)))
        return messages

    @property
    def allowed(self) -> float:
        """Messages per second that a TCP would get: as many bytes as it, in smaller packets (RFC 4828)."""
        return self.window.flight * self._segments / self.round_trip

    # -- inside ---------------------------------------------------------------------------

    @property
    def _segments(self) -> float:
        """Messages that are as large as a TCP segment, with what goes around both on the wire (RFC 4828)."""
        return (self._options.segment + _TCP_HEADER) / (self._size + self._options.overhead)

    @property
    def _flight(self) -> float:
        """Segments under way."""
        return self.rate * self.round_trip / self._segments

    def _lost(self, departure: float, source: int) -> None:
        """A message is lost that left then, by a record (0) or by the numbers (1)."""
        if departure > self._since + self.round_trip:
            self._tally, self._since = [0, 0], departure
        self._tally[source] += 1
        if self._tally[source] <= self._tally[1 - source]:
            return  # known from the other already
        first = 1.0
        if not self.intervals.lossy and self.rate > 0:
            first = 1.0 / loss_rate_for(self.rate / self._segments, self.round_trip)
        if self.window.lost(departure, self.round_trip, self._flight, 1.0 / self._segments, max(self._noticed, 1e-3)):
            self.intervals.lost(departure, self.round_trip, first)
            if self._step is not None:
                self._step, self._urgent = self._last_step, True

    def _pause(self) -> float:
        return max(self.round_trip / _STEPS, self._options.interval)

    def _measured(self, trip: float) -> None:
        if _SHORTEST <= trip <= _LONGEST:
            self.round_trip = trip if not self._known else self.round_trip + 0.2 * (trip - self.round_trip)
            self._known = True
            if self._transit is not None:
                self._base = (self.round_trip, self._transit)

    def _advance(self, now: float) -> None:
        if self._base is not None and self._transit is not None and not self._limits(now):
            estimate = self._base[0] + self._transit - self._base[1]
            if _SHORTEST <= estimate <= _LONGEST:
                self.round_trip = estimate
        self._step = now + self._pause()
        if not self._measured_rates(now) and not self._urgent:
            return
        self._urgent = False
        if self.intervals.lossy:
            self.window.bound(_MOST * tcp_rate(self.intervals.event_rate, 1.0))
        allowed = self.allowed
        if allowed < self.rate:
            self._decrease(allowed)
        elif allowed > self.rate:
            self._increase(allowed, now)
        self._speak(now)

    def _measured_rates(self, now: float) -> bool:
        """Measure what comes, if enough has come, or nothing for long; False if not."""
        elapsed = now - self._last_step
        if elapsed <= 0 or (self._count < _FEW and elapsed < _SILENCE):
            return False
        self._last_step = now
        for entry in self.filters:
            entry.rate += 0.5 * (entry.count / elapsed - entry.rate) if entry.rate else entry.count / elapsed
            entry.count = 0
        self.rate += 0.5 * (self._count / elapsed - self.rate) if self.rate else self._count / elapsed
        self._count = 0
        return True

    def _limits(self, now: float) -> bool:
        return any(entry.limiting > now for entry in self.filters)

    def _decrease(self, allowed: float) -> None:
        slowest = self._options.slowest
        for entry, quota in zip(self.filters, max_min([e.rate for e in self.filters], allowed), strict=True):
            entry.quota = max(quota, slowest)

    def _increase(self, allowed: float, now: float) -> None:
        limited = [entry for entry in self.filters if entry.limiting > now]
        for entry in self.filters:
            entry.quota = max(entry.rate, self._options.slowest)
        more = (allowed - self.rate) / max(1, len(limited))
        for entry in limited:
            entry.quota += max(min(self._options.alpha * entry.rate, more), 0.0)

    def _speak(self, now: float) -> None:
        """Decide when to send feedback: a CLR at once, others after a random wait."""
        if self._limits(now):
            self._pending = now
        elif any(entry.quota < entry.rate for entry in self.filters):
            if self._pending is None:
                worst = min(entry.quota / entry.rate for entry in self.filters if entry.rate > 0)
                self._pending = now + self._pause() * 0.5 * min(worst, 1.0) * self._rng.random()
        else:
            self._pending = None

    def _wishes(self, now: float) -> list[FlowRequest]:
        flows = []
        for entry in self.filters:
            if entry.limiting <= now:
                if entry.quota >= entry.rate:
                    continue
                if now - entry.seen < 4 * self._pause() and entry.seen_quota <= 1.1 * entry.quota:
                    self.suppressed += 1
                    continue
            flows.append(FlowRequest(entry.bits, self._width, min(entry.quota, MAX_RATE)))
        return flows
