"""A publisher's end of the transport: numbers messages, describes the last ones, answers for what it sent.

    publish ─▶ flows (token buckets, queue) ─▶ stamp: sequence, departure, record, control ─▶ Publish
                  ▲ feedback                        │                                   ╲
                  │                                 ├─▶ log ─▶ repairs, "gone"           digests
                                                    └─▶ history ─▶ answers to inquiries

A `Sender` is one stream of messages (one publisher in one category). Without any option it numbers and stamps, and can
say what its last messages were. With digests it tells how far it is for as long as it lives, rarely while nothing is
published, and says when it has ended: so a receiver that lost the last messages, or all of them, hears of it.
When its queue is full `publish` raises `Rejected`; `blocked` tells before, and the shell waits if it is set to.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from random import Random
from typing import Any, Final

from sievenet.errors import CodecError, InvalidInput, Rejected
from sievenet.transport.actions import Action, Channel, Publish, Send
from sievenet.transport.bloom import Bits
from sievenet.transport.cache import Log
from sievenet.transport.codec import (
    HEADER,
    MAX_DIGEST,
    Control,
    Header,
    Record,
    decode_header,
    encode_header,
)
from sievenet.transport.control import MAX_MESSAGE, Echo, Feedback, Gone, Inquiry, Repair, Request, decode, encode
from sievenet.transport.flows import Flow, FlowTable, SendQueue
from sievenet.transport.history import Content, History
from sievenet.transport.options import Publishing
from sievenet.transport.repairs import Repairs
from sievenet.transport.statistics import SenderStatistics

__all__ = ["Sender", "SenderStatistics"]

#: Echoes answered per second at most.
_ECHOES: Final = 1000
#: Seconds between digests while nothing is published, at most, unless `digest` is longer.
_HEARTBEAT: Final = 5.0
#: Messages that a digest describes, at most; who misses more asks.
_DESCRIBED: Final = 512
#: Digests that answer one inquiry at most, and seconds that inquiries are collected.
_PAGES: Final = 16
_COLLECT: Final = 0.005
#: Inquiries that may wait.
_INQUIRIES: Final = 64


class Sender:
    """One publisher's stream of messages."""

    def __init__(
        self,
        publisher: int,
        options: Publishing | None = None,
        *,
        epoch: int = 0,
        rng: Random | None = None,
        largest: int = MAX_MESSAGE,
        describe: Callable[[Any], Content] | None = None,
    ) -> None:
        self.publisher = publisher
        self.options = options = options or Publishing()
        if not 0 <= epoch < 1 << 32:
            raise InvalidInput(expected="an epoch of 32 bits", got=epoch)
        self.epoch = epoch
        self._width = options.width // 8
        #: Even without entries a record tells its width, by which receivers speak of flows.
        self._empty = Record(self._width, 0, b"")
        self._next = 0
        self._last = -1.0
        #: Entries of the record, newest first.
        self._entries: deque[bytes] = deque(maxlen=max(options.record, 1))
        self._history = History(max(options.log, MAX_DIGEST), self._width)
        #: Gives a message's attributes from its context; used without a log, to answer requests that cannot be met.
        self._describe = None if options.log else describe
        #: What receivers want to know, by range: who asked; and when it is answered.
        self._inquiries: dict[tuple[int, int], set[int]] = {}
        self._inquiries_due: float | None = None
        #: Nothing more will be published.
        self._ended = False
        #: Entries of a digest that fit a message of the ``largest`` size.
        self._most = max(1, min(MAX_DIGEST, (largest - HEADER) // (4 + self._width)))
        self._log = Log(options.log, options.log_bytes)
        self._repairs = Repairs(publisher, rng or Random(publisher), publisher=True)
        self.table = FlowTable(publisher, width=self._width, limit=options.flows, timeout=options.flow_timeout)
        self.queue = SendQueue(self.table, options.queue)
        #: Messages since the last digest and in the one before it, and when the next is due.
        self._fresh = self._told = 0
        self._pause = options.digest or 0.0
        self._digest_due: float | None = None
        self._rate = 0.0
        self._window: tuple[float, int] = (0.0, 0)
        self._echoes = (0.0, 0)
        self.refused = self.digests = self.gone = self.answers = 0
        self.dropped: Counter[str] = Counter()

    def blocked(self, bits: Bits) -> bool:
        """Whether `publish` would refuse a message with these bits."""
        return self.queue.full and self.options.rate_control and bool(self.table.matching(bits))

    def publish(self, bits: Bits, body: bytes, now: float, context: Any = None) -> list[Action]:
        """Publish a message: at once, or when its flows allow; `Rejected` if too many wait."""
        if not self.options.rate_control or not self.table.flows:
            return [self._stamp(bits, body, now, context, ())]
        flows = self.table.matching(bits)
        if not flows:  # what nobody limits passes those that wait
            return [self._stamp(bits, body, now, context, ())]
        if self.queue.full:
            self.refused += 1
            raise Rejected(f"Expected room in the send queue ({self.options.queue} messages), got none: slow down")
        if self.queue.offer(bits, (bits, body, context), flows, now):
            return [self._stamp(bits, body, now, context, flows)]
        return []

    def receive(self, data: bytes, now: float) -> list[Action]:
        """What receivers say."""
        try:
            message = decode(data)
        except CodecError:
            self.dropped["malformed"] += 1
            return []
        match message:
            case Feedback() if self.options.rate_control:
                self.table.feedback(message, now, self._rate)
                return self._release(now)
            case Echo(reply=False) if message.publisher == self.publisher:
                return self._echo(message, now)
            case Request() if message.publisher == self.publisher:
                return self._asked(message, now)
            case Inquiry() if message.publisher == self.publisher:
                self._inquired(message, now)
            case Repair():
                header, _ = decode_header(message.message)
                if header.publisher == self.publisher:
                    self._repairs.heard((self.publisher, header.epoch, header.sequence), now)
            case _:
                self.dropped["not for me"] += 1
        return []

    # -- time -----------------------------------------------------------------------------

    def timer(self, now: float) -> float | None:
        """When to call `expire`."""
        if not self.table.flows and not len(self.queue):
            waits = [self._digest_due, self._inquiries_due, self._repairs.timer()]
        else:
            waits = [self._digest_due, self._inquiries_due, self._repairs.timer()]
            waits += [self.table.timer(), self.queue.timer(now)]
        return min((each for each in waits if each is not None), default=None)

    def expire(self, now: float) -> list[Action]:
        """Do what is due."""
        actions: list[Action] = []
        if self.table.flows:
            self.table.expire(now)
        if len(self.queue):
            actions += self._release(now)
        for repair, bits in self._repairs.expire(now):
            channel = Channel.NODE if repair.requester else Channel.PEERS
            actions.append(Send(channel, repair.requester or self.publisher, bits, encode(repair), self._width))
        if self._inquiries_due is not None and self._inquiries_due <= now:
            actions += self._answer(now)
        if self._digest_due is not None and self._digest_due <= now:
            actions += self._digest(now)
        return actions

    def renewed(self, now: float) -> list[Action]:
        """The connection was lost, and with it perhaps messages: sends a digest."""
        return self._digest(now) if self.options.digest and self._next else []

    def end(self, now: float) -> list[Action]:
        """Announces the end of the stream and its last number. Requests are still answered."""
        self._ended = True
        if not self.options.digest:
            return []
        self._pause = self.options.digest / 2
        return self._digest(now)

    # -- inside ---------------------------------------------------------------------------

    def _release(self, now: float) -> list[Action]:
        return [
            self._stamp(bits, body, now, context, flows) for flows, (bits, body, context) in self.queue.release(now)
        ]

    def _stamp(self, bits: Bits, body: bytes, now: float, context: Any, flows: tuple[Flow, ...]) -> Publish:
        options = self.options
        previous = int((now - self._last) * 1e6) if self._last >= 0 else 0
        self._last = now
        if options.rate_control:
            self._measure(now)
            tightest = min(flows, key=lambda flow: flow.quota) if flows else None
            control = (
                Control(0, self._rate, 0.0, 0.0)
                if tightest is None
                else Control(
                    tightest.clr, self._rate, tightest.quota, tightest.feedback_delay, self.table.number(tightest.clr)
                )
            )
        else:
            control = None
        sequence = self._next
        self._next = sequence + 1
        record, reports = self._record(options.record), options.digest is not None
        header = Header(self.publisher, self.epoch, sequence, now, previous, record, control, reports=reports)
        data = encode_header(header) + body
        content = None if self._describe is None else self._describe(context)
        self._entries.appendleft(self._history.add(now, previous, bits, content))
        if options.log:
            self._log.keep(sequence, data)
        if options.digest:
            self._fresh += 1
            if self._digest_due is None or self._digest_due > now + options.digest:
                self._digest_due, self._pause = now + options.digest, options.digest
        return Publish(bits, sequence, data, context)

    def _record(self, count: int) -> Record:
        count = min(count, len(self._entries))
        return Record(self._width, count, b"".join(self._entries)) if count else self._empty

    def _digest(self, now: float) -> list[Action]:
        """Describe what was published since the digest before the last: one lost digest does no harm.

        While nothing is published the last digest is repeated, at intervals that double up to five seconds: a receiver
        that lost the last messages and many digests still hears of them.
        """
        count = min(self._fresh + self._told, _DESCRIBED)
        told = self._pages(self._next - 1, max(0, self._next - count), now)
        if self._fresh:
            self._told, self._fresh = self._fresh, 0
        else:
            self._pause = max(min(2 * self._pause, _HEARTBEAT), self.options.digest or 0.0)
        self._digest_due = now + self._pause
        self.digests += len(told)
        return [Send(Channel.DIGEST, self.publisher, 0, data) for data in told]

    def _pages(self, last: int, first: int, now: float, limit: int = MAX_DIGEST) -> list[bytes]:
        """Messages ``first`` to ``last`` described, the newest first, in digests that fit a packet."""
        pages: list[bytes] = []
        while len(pages) < limit:
            count = max(0, min(self._most, last - first + 1))
            previous, newest = self._history.age(last, now), last == self._next - 1
            header = Header(
                self.publisher, self.epoch, last + 1, now, previous, self._history.record(last, count),
                digest=True, ended=self._ended and newest, part=not newest,
            )  # fmt: skip
            pages.append(encode_header(header))
            last -= count
            if last < first or not count:
                break
        return pages

    def _inquired(self, inquiry: Inquiry, now: float) -> None:
        if inquiry.epoch != self.epoch or len(self._inquiries) >= _INQUIRIES:
            self.dropped["absurd"] += 1
            return
        asked = self._inquiries.setdefault((inquiry.first, inquiry.last), set())
        if len(asked) < _INQUIRIES:
            asked.add(inquiry.requester)
        if self._inquiries_due is None:
            self._inquiries_due = now + _COLLECT

    def _answer(self, now: float) -> list[Action]:
        """Tell who asked; all at once if several did."""
        inquiries, self._inquiries, self._inquiries_due = self._inquiries, {}, None
        actions: list[Action] = []
        known = self._history.first
        for (first, last), asked in inquiries.items():
            messages = []
            newest = min(last, self._next - 1)
            if newest < last:  # more is asked for than there is: say how far this is
                messages += self._pages(self._next - 1, self._next, now)
            if newest >= max(first, known):
                messages += self._pages(newest, max(first, known), now, _PAGES)
            if first < known:
                messages.append(encode(Gone(self.publisher, self.epoch, first, min(last, known - 1))))
            every = len(asked) > 1
            for data in messages:
                if every:
                    actions.append(Send(Channel.DIGEST, self.publisher, 0, data))
                else:
                    actions += [Send(Channel.NODE, each, 0, data) for each in asked]
        self.answers += len(actions)
        return actions

    def _measure(self, now: float) -> None:
        start, count = self._window
        if now - start >= 0.5:
            rate = (count + 1) / (now - start) if start else self._rate
            self._rate = rate if not self._rate else self._rate + 0.5 * (rate - self._rate)
            self._window = (now, 0)
        else:
            self._window = (start, count + 1)
            if not self._rate and now > start:
                self._rate = (count + 1) / max(now - start, 0.01)

    def _echo(self, echo: Echo, now: float) -> list[Action]:
        second, count = self._echoes
        if int(now) != int(second):
            second, count = now, 0
        self._echoes = (second, count + 1)
        if count >= _ECHOES:
            self.dropped["echoes"] += 1
            return []
        reply = Echo(echo.subscriber, self.publisher, echo.sent, reply=True)
        return [Send(Channel.NODE, echo.subscriber, 0, encode(reply))]

    def _asked(self, request: Request, now: float) -> list[Action]:
        if request.epoch != self.epoch or request.sequence >= self._next:
            self.dropped["absurd"] += 1
            return []
        kept = self._log.get(request.sequence)
        if kept is not None:
            self._repairs.asked(request, kept, now)
        elif request.attempt > 1:
            first = self._log.first
            last = request.sequence if first is None else first - 1
            self.gone += 1
            first = min(request.sequence, last)
            content = self._history.content(first) if first == last else b""
            gone = Gone(self.publisher, self.epoch, first, last, content)
            return [Send(Channel.PEERS, self.publisher, request.bits, encode(gone), request.width)]
        return []

    def statistics(self) -> SenderStatistics:
        """What was done since the stream began."""
        return SenderStatistics(
            self._next,
            len(self.queue),
            self.refused,
            self._rate,
            len(self.table.flows),
            self.table.feedbacks,
            self.digests,
            self._repairs.counts.sent,
            len(self._log),
            dict(self.dropped),
        )
