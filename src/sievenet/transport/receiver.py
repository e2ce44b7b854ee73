"""A subscription's end of the transport: order, recovery and rate control in any combination.

    message ─▶ session (order, gaps) ─▶ deliver
                  │ loss                        ╲
                  ├─▶ requests ─▶ peers          cache ◀─ requests of others ─▶ repairs
                  ├─▶ inquiries ─▶ publisher
                  └─▶ rates ─▶ feedback to the publisher

With recovery, every message that a publisher sent since the subscription stood is delivered once, or told as a gap, or
is not wanted; as far as the publisher could be heard at all. If one that reports regularly falls silent without saying
that it has ended, a gap without an end tells of what it may have sent since.

One `Receiver` serves one subscription and keeps a session per stream (publisher and epoch). It is told what comes and
what time it is, and answers with actions; `timer` says when to call `expire`. State is bounded: sessions by number and
idle time, everything else by the options. What is malformed, foreign or absurd is counted and dropped.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from math import inf
from random import Random
from typing import Any, Final

from sievenet.errors import CodecError
from sievenet.transport.actions import OPEN, Action, Channel, Deliver, Gap, Send
from sievenet.transport.bloom import Bits, covers_any
from sievenet.transport.codec import Header, Kind, decode_header
from sievenet.transport.control import Echo, Gone, Inquiry, Message, Repair, Request, decode, encode
from sievenet.transport.deadline import Deadlines
from sievenet.transport.inquiries import Inquiries, StreamKey
from sievenet.transport.options import Order, RateControl, Recover
from sievenet.transport.profile import Encoding, Profile
from sievenet.transport.rates import RateSession
from sievenet.transport.requests import Key, Requests
from sievenet.transport.statistics import ReceiverStatistics
from sievenet.transport.stream import Loss, Released, SessionCounts, Stream
from sievenet.transport.volunteer import Volunteer

__all__ = ["Receiver", "ReceiverStatistics"]

#: Streams at a time; seconds of silence after which one is forgotten but for its last number, of so many.
_SESSIONS: Final = 1024
_IDLE: Final = 120.0
_REMEMBERED: Final = 4096
#: A publisher with digests says something every five seconds; one silent for three times that may have published more.
_OVERDUE: Final = 15.0
#: Seconds until there may be room again for another request.
_LATER: Final = 0.1

#: Body → what the application gets, or None if it is not wanted after all; `CodecError` if it is none.
Decoder = Callable[[Header, bytes], Any]


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
        self.profile = Profile(interests, flow_bits, width // 8, order, recover, rate)
        self._decode: Decoder = decode_item or (lambda _header, body: body)
        self._rng = rng or Random(me)
        self._limit, self._idle = sessions, idle
        self.sessions: OrderedDict[StreamKey, Stream] = OrderedDict()
        self.rates: dict[StreamKey, RateSession] = {}
        #: Of streams that were forgotten, the first number that has not been accounted for.
        self._resume: OrderedDict[StreamKey, int] = OrderedDict()
        self.requests = Requests(me, recover, self._rng) if recover else None
        self.inquiries = Inquiries(me, recover.attempts, self._rng) if recover and recover.inquire else None
        self.volunteer = Volunteer(me, recover, self._rng) if recover and recover.volunteer else None
        self.cache = self.volunteer.cache if self.volunteer else None
        self.counts = SessionCounts()
        self.delivered = self.recovered = self.gaps = 0
        #: Why messages were dropped, and how many.
        self.dropped: Counter[str] = Counter()
        self._deadlines: Deadlines[StreamKey] = Deadlines()
        #: When streams are next looked through for those that fell silent.
        self._sweep = inf
        #: There is no connection just now.
        self.away = False
        #: What came of sessions that had to go.
        self._spilt: list[Action] = []

    # -- what comes -----------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> list[Action]:
        """Any transport message, as bytes."""
        try:
            if not data or data[0] & 15 > Kind.DIGEST:
                return self._control(decode(data), now)
            header, at = decode_header(data)
            if header.digest:
                return self.digest(header, now)
            return self.message(header, self._decode(header, data[at:]), now, data)
        except CodecError:
            self.dropped["malformed"] += 1
            return []

    def message(
        self, header: Header, item: Any, now: float, data: bytes = b"", matched: Sequence[int] = (0,)
    ) -> list[Action]:
        """A published message; ``data`` is all of it, ``matched`` the filters (by number) that it matches."""
        if item is None:
            self.dropped["unwanted"] += 1
            return []
        key, session = self._heard(header, now)
        before = self.counts.received
        released = session.arrive(header := session.departures.checked(header, now), item, now)
        if self.requests is not None:
            self.requests.found((*key, header.sequence), now)
        if self.counts.received != before:
            if self.cache is not None:
                self.cache.keep(*key, header.sequence, data, now)
            if self.rates:
                self.rates[key].received(header, len(data), session.uncovered, now, tuple(matched))
        self._watch(key, session, now)
        if not session.expired_by(now) and not self._spilt:
            return self._deliver(released)
        return [*self._spill(), *self._deliver(released), *self._expire_session(key, now)]

    def digest(self, header: Header, now: float) -> list[Action]:
        """A publisher's digest."""
        key, session = self._heard(header, now)
        released = session.digest(session.departures.checked(header, now), now)
        self._watch(key, session, now)
        return [*self._spill(), *self._deliver(released)]

    def _control(self, message: Message, now: float) -> list[Action]:
        """What peers and publishers say."""
        match message:
            case Request():
                return self._asked(message, now)
            case Repair():
                return self._repaired(message, now)
            case Gone() if self.requests is not None:
                return self._gone(message, self.requests, now)
            case Echo(reply=True) if message.subscriber == self.me:
                return self._echoed(message, now)
            case _:
                self.dropped["not for me"] += 1
        return []

    # -- time -----------------------------------------------------------------------------

    def timer(self) -> float | None:
        """When to call `expire`; None while nothing is under way."""
        due = self._deadlines.next()
        if self.sessions and (due is None or self._sweep < due):
            due = self._sweep
        repairs = self.volunteer.repairs if self.volunteer else None
        for part in (self.requests, self.inquiries, repairs):
            if part is not None and (when := part.timer()) is not None and (due is None or when < due):
                due = when
        return due

    def expire(self, now: float) -> list[Action]:
        """Do what is due."""
        actions: list[Action] = []
        for key in self._deadlines.passed(now):
            actions += self._expire_session(key, now)
        if self.requests is not None:
            requests, given_up = self.requests.expire(now, self._silent(now))
            actions += [Send(Channel.PEERS, r.publisher, r.bits, encode(r), r.width) for r in requests]
            actions += [echo for r in requests for echo in self._greet(r.publisher, now)]
            actions += self._given_up(given_up, now)
        if self.inquiries is not None and (due := self.inquiries.timer()) is not None and due <= now:
            actions += self._inquire(self.inquiries, now)
        if self.volunteer is not None:
            actions += self.volunteer.expire(now)
        if now >= self._sweep:
            self._sweep = now + self._idle / 4
            for key in [each for each, session in self.sessions.items() if session.touched + self._idle < now]:
                actions += self._drop(key, now)
        return actions

    def renewed(self, now: float) -> list[Action]:
        """The connection was lost: ask again for what is missing, and publishers how far they are."""
        self._renew(now)
        tops = {key: session.top + 1 for key, session in self.sessions.items() if not session.ended}
        asked = [Inquiry(*key, top, top, self.me) for key, top in tops.items()] if self.inquiries else []
        return [Send(Channel.PUBLISHER, each.publisher, 0, encode(each)) for each in asked]

    def close(self, now: float) -> list[Action]:
        """The subscription ends: what is held is delivered, what is still missing is told."""
        return [each for key in list(self.sessions) for each in self._drop(key, now, _OVERDUE)]

    # -- inside ---------------------------------------------------------------------------

    def _heard(self, header: Header, now: float) -> tuple[StreamKey, Stream]:
        """The stream that a publisher's message belongs to."""
        key = (header.publisher, header.epoch)
        session = self._session(key, header.record.width, now)
        if session.epoch < 0:
            self._spilt += self._greet(header.publisher, now)
        elif session.silent(now):
            self._renew(now, key)
        return key, session

    def _silent(self, now: float) -> Callable[[StreamKey], bool]:
        """Tells which streams are silent: their losses are not given up, since the connection may be broken."""
        return lambda key: self.away or ((found := self.sessions.get(key)) is not None and found.silent(now))

    def _renew(self, now: float, stream: StreamKey | None = None) -> None:
        """The connection is back: requests sent meanwhile were lost, so all are restarted."""
        for part in (self.requests, self.inquiries):
            if part is not None:
                part.renew(now, stream)

    def _greet(self, publisher: int, now: float) -> list[Action]:
        """An echo to a new publisher: timers of requests are in units of its distance."""
        echo = None if self.requests is None else self.requests.greet(publisher, now)
        return [] if echo is None else [Send(Channel.PUBLISHER, publisher, 0, encode(echo))]

    def _echoed(self, echo: Echo, now: float) -> list[Action]:
        known = self.requests is not None and self.requests.echoed(echo, now)
        for rates in (rates for key, rates in self.rates.items() if key[0] == echo.publisher):
            known = True
            rates.echoed(echo, now)
        if not known:
            self.dropped["unknown publisher"] += 1
        return self._greet(echo.publisher, now) if known else []

    def _spill(self) -> list[Action]:
        spilt, self._spilt = self._spilt, []
        return spilt

    def _session(self, key: StreamKey, width: int, now: float) -> Stream:
        if (session := self.sessions.get(key)) is not None:
            self.profile.fit(session, width)
            return session
        self._sweep = min(self._sweep, now + self._idle / 4)
        session = self.sessions[key] = self.profile.session(key[0], width, self._resume.pop(key, -1), self.counts)
        if (rates := self.profile.rates(self.me, session, width, self._rng)) is not None:
            self.rates[key] = rates
        if len(self.sessions) > self._limit:
            oldest = min(self.sessions, key=lambda each: self.sessions[each].touched if each != key else now)
            self.dropped["sessions"] += 1
            self._spilt += self._drop(oldest, now)
        return session

    def _drop(self, key: StreamKey, now: float, silence: float | None = None) -> list[Action]:
        """A stream is forgotten but for its last number: what is open is told, its end too after such a silence."""
        session = self.sessions[key]
        released, losses = session.close(now)
        if self.requests is not None:
            losses += self.requests.forget(key)
        actions = [*self._deliver(released), *self._given_up(losses, now)]
        overdue = session.touched + (self._idle if silence is None else silence) < now
        if self.requests is not None and session.reports and not session.ended and overdue:
            self.gaps += 1
            actions.append(Gap(*key, session.top + 1, OPEN))
        del self.sessions[key]
        self.rates.pop(key, None)
        self._deadlines.set(key, None)
        if self.inquiries is not None:
            self.inquiries.update(key, None, 0.0, now)
        self._resume[key] = session.top + 1
        if len(self._resume) > _REMEMBERED:
            self._resume.popitem(last=False)
        return actions

    def _watch(self, key: StreamKey, session: Stream, now: float) -> None:
        due = session.timer()
        if self.rates and (when := self.rates[key].timer()) is not None:
            due = when if due is None or when < due else due
        if self.inquiries is not None and self.requests is not None:
            self.inquiries.update(key, session.asking(), self.requests.distance(key[0]), now)
        self._deadlines.set(key, due)

    def _expire_session(self, key: StreamKey, now: float) -> list[Action]:
        session = self.sessions[key]
        released, losses = session.expire(now)
        actions = self._deliver(released)
        rates = self.rates.get(key)
        for loss in losses:
            if rates is not None and loss.believed and loss.last < 0:
                rates.lost(loss)
            if self.requests is None or loss.last >= 0:
                actions += self._given_up([loss], now)
            elif not self.requests.lost(loss, now):
                session.postpone(loss, now + _LATER)
        if rates is not None:
            actions += [Send(Channel.PUBLISHER, key[0], 0, encode(each)) for each in rates.expire(now)]
        self._watch(key, session, now)
        return actions

    def _inquire(self, inquiries: Inquiries, now: float) -> list[Action]:
        assert self.requests is not None
        distances = {key: self.requests.distance(key[0]) for key in self.sessions}
        asked, given_up = inquiries.expire(distances, now, self._silent(now))
        actions: list[Action] = [Send(Channel.PUBLISHER, each.publisher, 0, encode(each)) for each in asked]
        return actions + [each for key in given_up for each in self._untold(key, 0, OPEN, now)]

    def _untold(self, key: StreamKey, first: int, last: int, now: float) -> list[Action]:
        """Nobody knows what these messages were: reports them as gaps."""
        session = self.sessions.get(key)
        if session is None or (span := session.asking()) is None:
            return []
        actions = self._given_up(session.untold(max(first, span[0]), min(last, span[1])), now)
        actions += self._deliver(session.abandon(-1, 0, now))
        self._watch(key, session, now)
        return actions

    def _deliver(self, released: list[Released], recovered: int = -1) -> list[Action]:
        self.delivered += len(released)
        return [
            Deliver(r.header.publisher, r.header.sequence, r.item, r.held, r.late, r.header.sequence == recovered)
            for r in released
        ]

    def _asked(self, request: Request, now: float) -> list[Action]:
        wanted = self.profile.wanted(request.width)
        if self.requests is None or request.requester == self.me or not covers_any(request.bits, wanted):
            self.dropped["not for me"] += 1
            return []
        session = self.sessions.get((request.publisher, request.epoch))
        if session is not None and not self.requests.full:
            # Somebody else noticed what this receiver could not: it is missing here too.
            loss = session.shown(request.epoch, request.sequence, request.bits, request.width, now)
            if loss is not None:
                self.requests.lost(loss, now)
        self.requests.heard(request, now)
        if self.volunteer is not None:
            missing = (request.publisher, request.epoch, request.sequence) in self.requests
            self.volunteer.asked(request, now, missing=missing)
        return []

    def _repaired(self, repair: Repair, now: float) -> list[Action]:
        header, at = decode_header(repair.message)
        key = (header.publisher, header.epoch, header.sequence)
        if repair.requester not in (0, self.me):
            self.dropped["not for me"] += 1
            return []
        if self.volunteer is not None:
            self.volunteer.heard(key, now)
        session, requests = self.sessions.get(key[:2]), self.requests
        if session is None or requests is None or not (key in requests or session.due(header.epoch, header.sequence)):
            self.dropped["not due"] += 1
            return []
        item = self._decode(header, repair.message[at:])
        wanted = requests.found(key, now)
        if item is None:
            return self._unwanted(key, now) if wanted else []
        before = self.counts.received
        released = session.repaired(header, item, now)
        if self.counts.received != before:
            self.recovered += 1
            if self.cache is not None:
                self.cache.keep(*key, repair.message, now)
        self._watch(key[:2], session, now)
        return self._deliver(released, header.sequence)

    def _gone(self, gone: Gone, requests: Requests, now: float) -> list[Action]:
        """The publisher has these no more; of one it may still know what it said."""
        key = (gone.publisher, gone.epoch, gone.first)
        if gone.content and key in requests and self._decode(Header(*key, 0.0, 0), gone.content) is None:
            requests.found(key, now)
            return self._unwanted(key, now)
        return self._given_up(requests.gone(gone), now) + self._untold(key[:2], gone.first, gone.last, now)

    def _unwanted(self, key: Key, now: float) -> list[Action]:
        """The bits of a missing message were wanted, it is not: nothing was lost."""
        self.counts.losses -= 1
        session = self.sessions[key[:2]]
        released = session.abandon(*key[1:], now)
        self._watch(key[:2], session, now)
        return self._deliver(released)

    def _given_up(self, losses: list[Loss], now: float) -> list[Action]:
        actions: list[Action] = []
        for loss in losses:
            last = max(loss.sequence, loss.last)
            self.gaps += last - loss.sequence + 1
            actions.append(Gap(loss.publisher, loss.epoch, loss.sequence, last))
            session = self.sessions.get((loss.publisher, loss.epoch))
            if session is not None and loss.last < 0:
                actions += self._deliver(session.abandon(loss.epoch, loss.sequence, now))
        return actions

    def statistics(self) -> ReceiverStatistics:
        """What was done since the subscription began."""
        return ReceiverStatistics.of(self)
