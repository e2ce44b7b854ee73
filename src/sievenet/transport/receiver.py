"""A subscription's end of the transport: order, recovery and rate control in any combination.

    message ─▶ session (order, gaps) ─▶ deliver
                  │ loss                        ╲
                  ├─▶ requests ─▶ peers          cache ◀─ requests of others ─▶ repairs
                  └─▶ rates ─▶ feedback to the publisher

One `Receiver` serves one subscription and keeps a session per publisher. It is told what comes and what time it is, and
answers with actions; `timer` says when to call `expire`. State is bounded: sessions by number and idle time, everything
else by the options. What is malformed, foreign or absurd is counted and dropped.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache
from heapq import heappop, heappush
from math import inf
from random import Random
from typing import Any, Final

from sievenet.errors import CodecError
from sievenet.transport.actions import Action, Channel, Deliver, Gap, Send
from sievenet.transport.bloom import Bits, covers_any
from sievenet.transport.cache import Cache
from sievenet.transport.control import Echo, Gone, Repair, Request, decode, encode
from sievenet.transport.doubt import Doubt
from sievenet.transport.latch import DelayModel
from sievenet.transport.options import Order, RateControl, Recover
from sievenet.transport.rates import RateSession
from sievenet.transport.repairs import Repairs
from sievenet.transport.requests import Requests
from sievenet.transport.session import Limits, Loss, Released, Session, SessionCounts
from sievenet.transport.statistics import ReceiverStatistics
from sievenet.transport.wire import Header, Kind, decode_header

__all__ = ["Receiver", "ReceiverStatistics"]

#: Publishers at a time, and seconds of silence after which one is forgotten.
_SESSIONS: Final = 1024
_IDLE: Final = 120.0
_WHOLE: Final = (0,)

#: Width in bytes → the bits of something in that width.
Encoding = Callable[[int], tuple[Bits, ...]]

#: Body → what the application gets, or None if it is not wanted after all.
Decoder = Callable[[Header, bytes], Any]


def _encoding(bits: tuple[Bits, ...] | Encoding) -> Encoding:
    """Widths come from outside, but there are no more than 64 of them."""
    return (lambda _width: bits) if isinstance(bits, tuple) else lru_cache(maxsize=None)(bits)


class Receiver:
    """Everything the transport does for one subscription."""

    def __init__(
        self,
        me: int,
        interests: tuple[Bits, ...] | Encoding,
        *,
        order: Order | None = None,
        recover: Recover | None = None,
        rate: RateControl | None = None,
        width: int = 128,
        flow_bits: tuple[Bits, ...] | Encoding = (),
        decode_item: Decoder | None = None,
        rng: Random | None = None,
        sessions: int = _SESSIONS,
        idle: float = _IDLE,
    ) -> None:
        self.me = me
        #: What is wanted, and what names this subscription's flows to publishers: bits of the width that they use.
        self._wanted = _encoding(interests)
        self._flows = _encoding(flow_bits) if flow_bits else self._wanted
        self._width = width // 8
        self.interests = self._wanted(self._width)
        #: When the subscription stood; until that is said, nothing is due that left before the first message.
        self.since = inf
        self._order, self._recover, self._rate = order, recover, rate
        self._decode: Decoder = decode_item or (lambda _header, body: body)
        self._rng = rng or Random(me)
        self._limit, self._idle = sessions, idle
        self._sessions: OrderedDict[int, Session] = OrderedDict()
        self._rates: dict[int, RateSession] = {}
        self.requests = Requests(me, recover, self._rng) if recover else None
        self.cache = Cache(recover) if recover and recover.volunteer else None
        self.repairs = Repairs(me, self._rng, style=recover.repair) if recover and recover.volunteer else None
        self.counts = SessionCounts()
        self.delivered = self.recovered = self.gaps = 0
        #: Why messages were dropped, and how many.
        self.dropped: Counter[str] = Counter()
        self._timers: list[tuple[float, int]] = []
        self._set: dict[int, float] = {}
        self._sweep = 0.0
        #: What came of sessions that had to go.
        self._spilt: list[Action] = []

    # -- what comes -----------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> list[Action]:
        """Any transport message, as bytes."""
        if not data or data[0] & 15 > Kind.DIGEST:
            return self.control(data, now)
        try:
            header, at = decode_header(data)
        except CodecError:
            self.dropped["malformed"] += 1
            return []
        if header.digest:
            return self.digest(header, now)
        return self.message(header, self._decode(header, data[at:]), now, data)

    def message(
        self, header: Header, item: Any, now: float, data: bytes = b"", matched: Sequence[int] = _WHOLE
    ) -> list[Action]:
        """A published message; ``data`` is all of it, ``matched`` the filters (by number) that it matches."""
        if item is None:
            self.dropped["unwanted"] += 1
            return []
        publisher = header.publisher
        session = self._session(publisher, header.record.width, now)
        before = self.counts.received
        epoch = session.epoch
        released = session.arrive(header, item, now)
        if self.requests is not None:
            if epoch < 0:
                self._spilt += self._greet(publisher, now)
            elif epoch != session.epoch:
                self._spilt += self._given_up(self.requests.forget(publisher), now)
            self.requests.found((publisher, header.epoch, header.sequence), now)
        if self.counts.received != before:
            if self.cache is not None:
                self.cache.keep(publisher, header.epoch, header.sequence, data, now)
            if self._rate is not None:
                self._rates[publisher].received(header, len(data), session.uncovered, now, tuple(matched))
        self._watch(publisher, session)
        if not session.expired_by(now) and not self._spilt:
            return self._deliver(released)
        return [*self._spill(), *self._deliver(released), *self._expire_session(publisher, now)]

    def digest(self, header: Header, now: float) -> list[Action]:
        """A publisher's digest."""
        session = self._session(header.publisher, header.record.width, now)
        if session.epoch < 0 and self.requests is not None:
            self._spilt += self._greet(header.publisher, now)
        released = session.digest(header, now)
        self._watch(header.publisher, session)
        return [*self._spill(), *self._deliver(released)]

    def control(self, data: bytes, now: float) -> list[Action]:
        """What peers and publishers say."""
        try:
            message = decode(data)
        except CodecError:
            self.dropped["malformed"] += 1
            return []
        match message:
            case Request():
                return self._asked(message, now)
            case Repair():
                return self._repaired(message, now)
            case Gone() if self.requests is not None:
                return self._given_up(self.requests.gone(message), now)
            case Echo(reply=True) if message.subscriber == self.me:
                self._echoed(message, now)
            case _:
                self.dropped["not for me"] += 1
        return []

    # -- time -----------------------------------------------------------------------------

    def timer(self) -> float | None:
        """When to call `expire`; None while nothing is under way."""
        timers, current = self._timers, self._set
        while timers and current.get(timers[0][1]) != timers[0][0]:
            heappop(timers)
        due = timers[0][0] if timers else None
        for part in (self.requests, self.repairs):
            if part is not None and (when := part.timer()) is not None and (due is None or when < due):
                due = when
        return due

    def expire(self, now: float) -> list[Action]:
        """Do what is due."""
        actions: list[Action] = []
        while self._timers and self._timers[0][0] <= now:
            when, publisher = heappop(self._timers)
            if self._set.get(publisher) == when:
                actions += self._expire_session(publisher, now)
        if self.requests is not None:
            requests, given_up = self.requests.expire(now)
            actions += [Send(Channel.PEERS, r.publisher, r.bits, encode(r), r.width) for r in requests]
            actions += [echo for r in requests for echo in self._greet(r.publisher, now)]
            actions += self._given_up(given_up, now)
        if self.repairs is not None:
            actions += [self._send_repair(repair, bits) for repair, bits in self.repairs.expire(now)]
        if now >= self._sweep:
            actions += self._forget_idle(now)
        return actions

    def close(self, now: float) -> list[Action]:
        """The subscription ends: what is held is delivered."""
        actions: list[Action] = []
        for session in self._sessions.values():
            actions += self._deliver(session.close(now))
        self._sessions.clear()
        self._rates.clear()
        self._set.clear()
        return actions

    # -- inside ---------------------------------------------------------------------------

    def _greet(self, publisher: int, now: float) -> list[Action]:
        """An echo to a new publisher: timers of requests are in units of its distance."""
        echo = None if self.requests is None else self.requests.greet(publisher, now)
        return [] if echo is None else [Send(Channel.PUBLISHER, publisher, 0, encode(echo))]

    def _echoed(self, echo: Echo, now: float) -> None:
        known = self.requests is not None and self.requests.echoed(echo, now)
        rates = self._rates.get(echo.publisher)
        if rates is not None:
            rates.echoed(echo, now)
        elif not known:
            self.dropped["unknown publisher"] += 1

    def _spill(self) -> list[Action]:
        spilt, self._spilt = self._spilt, []
        return spilt

    def _session(self, publisher: int, width: int, now: float) -> Session:
        session = self._sessions.get(publisher)
        if session is not None:
            if session.width != width:  # it restarted with other settings
                session.width, session.interests = width, self._wanted(width or self._width)
            return session
        order, recover = self._order, self._recover
        interests = self._wanted(width or self._width)
        session = self._sessions[publisher] = Session(
            publisher,
            interests,
            DelayModel(order.p_late, order.samples) if order else DelayModel(Order().p_late),
            order=order is not None,
            late=order.late if order else "deliver",
            hold_lost=order is not None and recover is not None and order.hold_for_repair,
            limits=order.limits if order else Limits(),
            doubt=Doubt(interests) if self._rate is not None else None,
            counts=self.counts,
            since=self.since,
            width=width,
        )
        if self._rate is not None:
            width = width or self._width
            self._rates[publisher] = RateSession(
                self.me, publisher, self._flows(width), width, self._rate, self._rng, session.model
            )
        if len(self._sessions) > self._limit:
            oldest = min(self._sessions, key=lambda each: self._sessions[each].touched if each != publisher else now)
            self.dropped["sessions"] += 1
            self._spilt += self._drop(oldest, now)
        return session

    def _drop(self, publisher: int, now: float) -> list[Action]:
        session = self._sessions.pop(publisher)
        self._rates.pop(publisher, None)
        self._set.pop(publisher, None)
        # Should it be heard again, what is from before counts as had.
        self.since = max(self.since, session.touched)
        actions = self._deliver(session.close(now))
        return actions if self.requests is None else actions + self._given_up(self.requests.forget(publisher), now)

    def _forget_idle(self, now: float) -> list[Action]:
        self._sweep = now + self._idle / 4
        actions: list[Action] = []
        for publisher in [each for each, session in self._sessions.items() if session.touched + self._idle < now]:
            actions += self._drop(publisher, now)
        return actions

    def _watch(self, publisher: int, session: Session) -> None:
        due = session.timer()
        if self._rate is not None and (when := self._rates[publisher].timer()) is not None:
            due = when if due is None or when < due else due
        if due is None:
            self._set.pop(publisher, None)
        elif self._set.get(publisher) != due:
            self._set[publisher] = due
            heappush(self._timers, (due, publisher))

    def _expire_session(self, publisher: int, now: float) -> list[Action]:
        session = self._sessions[publisher]
        released, losses = session.expire(now)
        actions = self._deliver(released)
        rates = self._rates.get(publisher)
        for loss in losses:
            if rates is not None and loss.believed:
                rates.lost(loss)
            if self.requests is not None and not self.requests.lost(loss, now):
                actions += self._given_up([loss], now)
            elif self.requests is None:
                self.gaps += 1
                actions.append(Gap(loss.publisher, loss.epoch, loss.sequence, loss.sequence))
        if rates is not None:
            actions += [Send(Channel.PUBLISHER, publisher, 0, encode(each)) for each in rates.expire(now)]
        self._watch(publisher, session)
        return actions

    def _deliver(self, released: list[Released], recovered: int = -1) -> list[Action]:
        self.delivered += len(released)
        return [
            Deliver(r.header.publisher, r.header.sequence, r.item, r.held, r.late, r.header.sequence == recovered)
            for r in released
        ]

    def _asked(self, request: Request, now: float) -> list[Action]:
        wanted = self._wanted(request.width)
        if self.requests is None or request.requester == self.me or not covers_any(request.bits, wanted):
            self.dropped["not for me"] += 1
            return []
        session = self._sessions.get(request.publisher)
        if session is not None and session.lacks(request.epoch, request.sequence):
            # Somebody else noticed what this receiver could not: it is missing here too.
            departure = now - request.distance
            loss = Loss(request.publisher, request.epoch, request.sequence, request.bits, request.width, 0.0, departure)
            self.requests.lost(loss, now)
        self.requests.heard(request, now)
        if self.cache is not None and self.repairs is not None:
            key = (request.publisher, request.epoch, request.sequence)
            kept = self.cache.get(*key)
            if key not in self.requests:
                self.cache.asked(request.publisher, request.wait, request.distance, kept is not None)
            if kept:
                self.repairs.asked(request, kept, now)
        return []

    def _repaired(self, repair: Repair, now: float) -> list[Action]:
        header, at = decode_header(repair.message)
        key = (header.publisher, header.epoch, header.sequence)
        if repair.requester not in (0, self.me):
            self.dropped["not for me"] += 1
            return []
        if self.repairs is not None:
            self.repairs.heard(key, now)
        if self.cache is not None:
            self.cache.repaired(header.publisher, mine=False)
        wanted = self.requests is not None and self.requests.found(key, now)
        session = self._sessions.get(header.publisher)
        if session is None or self.requests is None or not (wanted or session.due(header.epoch, header.sequence)):
            self.dropped["not due"] += 1
            return []
        item = self._decode(header, repair.message[at:])
        if item is None:  # its bits were wanted, it is not
            released = session.abandon(header.epoch, header.sequence, now) if wanted else []
            return self._deliver(released)
        before = self.counts.received
        released = session.repaired(header, item, now)
        if self.counts.received != before:
            self.recovered += 1
            if self.cache is not None:
                self.cache.keep(*key, repair.message, now)
        self._watch(header.publisher, session)
        return self._deliver(released, header.sequence)

    def _send_repair(self, repair: Repair, bits: Bits) -> Action:
        header, _ = decode_header(repair.message)
        if self.cache is not None:
            self.cache.repaired(header.publisher, mine=True)
        channel = Channel.NODE if repair.requester else Channel.PEERS
        return Send(channel, repair.requester or header.publisher, bits, encode(repair), header.record.width)

    def _given_up(self, losses: list[Loss], now: float) -> list[Action]:
        actions: list[Action] = []
        for loss in losses:
            self.gaps += 1
            actions.append(Gap(loss.publisher, loss.epoch, loss.sequence, loss.sequence))
            session = self._sessions.get(loss.publisher)
            if session is not None:
                actions += self._deliver(session.abandon(loss.epoch, loss.sequence, now))
        return actions

    def statistics(self) -> ReceiverStatistics:
        """What was done since the subscription began."""
        counts, rates = self.counts, list(self._rates.values())
        return ReceiverStatistics(
            delivered=self.delivered,
            held=counts.held,
            held_seconds=counts.held_time,
            waiting=sum(session.waiting for session in self._sessions.values()),
            late=counts.late,
            lost=counts.losses,
            recovered=self.recovered,
            gaps=self.gaps,
            rate=sum(each.rate for each in rates) if rates else None,
            allowed=min((each.allowed for each in rates), default=None),
            sessions=len(self._sessions),
            dropped=dict(self.dropped) | counts.dropped(),
        )
