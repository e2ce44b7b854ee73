"""A subscription's end of the transport, around `transport.receiver.Receiver`: the shell that has clock and network.

    packets ─▶ client.receiver ─▶ accept ─▶ Receiver ─▶ Deliver ─▶ feed      (full under `wait`: keep, refuse the next)
    control messages ──────────▶ hear ───▶    │    ├──▶ Gap ──────▶ application
    alarm ─────────────────────▶ expire ─▶    ╯    └──▶ Send ─────▶ lane

Events of publishers that do not use the transport pass as they come. So do those of strangers who speak for a publisher
that is there (`voice`): their header is not believed.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import groupby
from random import Random
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sievenet.client.delivery import Delivery
from sievenet.client.transport.endpoint import Alarm, Endpoint
from sievenet.client.transport.exchange import peers, spoken_for, to_node
from sievenet.client.transport.voice import PATIENCE, Verdict, Voices
from sievenet.content.codec import decode_event, encode_event
from sievenet.content.filter import Filter
from sievenet.errors import InvalidInput
from sievenet.transport.actions import Action, Deliver, Gap, Send
from sievenet.transport.bloom import Bits, Tagger
from sievenet.transport.codec import Header
from sievenet.transport.options import Order, RateControl, Recover
from sievenet.transport.receiver import Receiver
from sievenet.transport.statistics import ReceiverStatistics

if TYPE_CHECKING:
    from sievenet.client.feed import Feed

__all__ = ["Asked", "TransportSink"]

log = logging.getLogger("sievenet.client")

#: Messages that may wait until it is clear who speaks; more are dropped, and missed like lost ones.
_WAITING: Final = 4096


class Asked(msgspec.Struct, frozen=True):
    """What a subscriber wants of the transport; a part that is ``None`` is off."""

    order: Order | None = None
    recover: Recover | None = None
    rate_control: RateControl | None = None
    #: Told of messages that are gone for good.
    on_gap: Callable[[Gap], None] | None = None

    @staticmethod
    def of(order: Any, recover: Any, rate_control: Any, on_gap: Callable[[Gap], None] | None) -> Asked | None:
        """From the arguments of `subscribe`; None if everything is off."""
        if on_gap is not None and not callable(on_gap):
            raise InvalidInput(expected="something to call with each gap", got=on_gap, where="on_gap")
        parts = _part(order, Order), _part(recover, Recover), _part(rate_control, RateControl)
        return Asked(*parts, on_gap) if any(part is not None for part in parts) else None


def _part(value: Any, kind: type[Any]) -> Any:
    if value is None or value is False:
        return None
    if value is True:
        return kind()
    if not isinstance(value, kind):
        raise InvalidInput(expected=f"True, False or {kind.__name__}(…)", got=value, where="subscribe")
    return value


class TransportSink:
    """Stands between the node's receiver and a feed."""

    def __init__(self, feed: Feed, lane: Endpoint, asked: Asked, number: int) -> None:
        self._feed, self._lane, self._asked = feed, lane, asked
        self._wanted = wanted = feed.subscription
        schema = wanted.schema
        if schema is None:
            raise InvalidInput("Expected a subscription with a schema for the transport, got a schemaless one")
        self._schema = schema
        #: Which of several filters an event matches matters to congestion control only.
        self._filters: tuple[Filter, ...] = tuple(wanted.filters) if asked.rate_control else ()

        def interests(width: int) -> tuple[Bits, ...]:
            return Tagger(schema, width * 8).subscription(wanted)

        def flows(width: int) -> tuple[Bits, ...]:
            tagger = Tagger(schema, width * 8)
            return tuple(tagger.filter(each) for each in wanted.filters)

        self.receiver = Receiver(
            number,
            interests,
            flow_bits=flows,
            order=asked.order,
            recover=asked.recover,
            rate=asked.rate_control,
            decode_item=self._decode,
            rng=Random(number),
        )
        self._alarm = Alarm(lane.now, self._expire)
        #: Deliveries that the feed had no room for.
        self._kept: deque[Delivery] = deque()
        self._control: Feed | None = None
        self._closed = False
        self._voices = Voices()
        #: What came under numbers of which it is not clear yet whether they speak for the publisher, and until when.
        self._waiting: deque[tuple[float, Delivery | bytes, int]] = deque()
        #: Events whose header names a publisher that another speaks for.
        self.foreign = 0

    # -- life -----------------------------------------------------------------------------

    async def open(self) -> None:
        """Hear what peers and publishers say; before the subscription itself, so that nothing is missed."""
        asked = self._asked
        if asked.recover is None and asked.rate_control is None:
            return
        await self._lane.open()
        filters = [to_node(self._lane.schema, self.receiver.me)]
        if asked.recover is not None:
            filters += peers(self._lane.schema, self._wanted)
        self._control = await self._lane.listen(filters, self._hear)

    def stands(self) -> None:
        """The subscription stands: everything that is published from now on is due."""
        self.receiver.profile.since = self._lane.now()

    def stop(self) -> Feed | None:
        """Deliver what is held, tell what is missing, and end; the feed of control messages, to be closed."""
        if not self._closed:
            self._settle(self._lane.now() + PATIENCE)
            self._do(self.receiver.close(self._lane.now()))
            self._feed.take_last(self._kept)
            self._kept.clear()
            self._closed = True
            self._alarm.cancel()
        control, self._control = self._control, None
        return control

    # -- what comes -----------------------------------------------------------------------

    @property
    def false_positives(self) -> int:
        """Events that the network delivered but no filter matches."""
        return self._feed.false_positives

    @false_positives.setter
    def false_positives(self, value: int) -> None:
        self._feed.false_positives = value

    def accept(self, delivery: Delivery) -> bool:
        """An event for this subscription has come. False: the feed is full, offer it again."""
        if self._kept and not self.drain():
            return False
        stamp = delivery.stamp
        if stamp is None or self._closed:
            return self._feed.accept(delivery)
        now = self._lane.now()
        if self._waiting:
            self._settle(now)
        match self._voices.judge(stamp.header.publisher, delivery.publisher, now):
            case Verdict.TRUE:
                self._believe(delivery, now)
            case Verdict.WAIT:
                self._wait(delivery, delivery.publisher, now)
            case Verdict.FOREIGN:
                self.foreign += 1
                return self._feed.accept(delivery)
        self._set()
        return True

    def _believe(self, delivery: Delivery, now: float) -> None:
        event, stamp = delivery.event, delivery.stamp
        assert stamp is not None
        header = stamp.header
        # Only who may have to repair it needs the message as it was sent.
        data = stamp.raw + (event.payload if self.receiver.cache is None else encode_event(event))
        matched: Sequence[int] = (0,)
        if len(self._filters) > 1:
            matched = [i for i, each in enumerate(self._filters) if each.matches(event)]
        stream = {"publisher": header.publisher, "incarnation": header.epoch, "sequence": header.sequence}
        numbered = msgspec.structs.replace(delivery, **stream, stamp=None)
        self._do(self.receiver.message(header, numbered, now, data, matched))

    def _hear(self, data: bytes, speaker: int) -> None:
        if self._closed:
            return
        now = self._lane.now()
        if self._waiting:
            self._settle(now)
        self._heard(data, speaker, now)
        self._set()

    def _heard(self, data: bytes, speaker: int, now: float) -> None:
        publisher = spoken_for(data)
        verdict = Verdict.TRUE if publisher is None else self._voices.judge(publisher, speaker, now)
        if verdict is Verdict.TRUE:
            self._do(self.receiver.receive(data, now))
        elif verdict is Verdict.WAIT:
            self._wait(data, speaker, now)
        else:
            self._lane.forged += 1

    def _wait(self, what: Delivery | bytes, speaker: int, now: float) -> None:
        if len(self._waiting) < _WAITING:
            self._waiting.append((now + PATIENCE, what, speaker))
        else:
            self.receiver.dropped["unclear"] += 1

    def _settle(self, now: float) -> None:
        """Decides about messages that waited for their sender to become clear, in order of arrival."""
        waiting, self._waiting = self._waiting, deque()
        for due, what, speaker in waiting:
            if isinstance(what, bytes):
                publisher = spoken_for(what) or 0
            else:
                assert what.stamp is not None
                publisher = what.stamp.header.publisher
            match self._voices.judge(publisher, speaker, now), what:
                case Verdict.WAIT, _:
                    self._waiting.append((due, what, speaker))
                case Verdict.TRUE, bytes():
                    self._do(self.receiver.receive(what, now))
                case Verdict.TRUE, Delivery():
                    self._believe(what, now)
                case _, Delivery():
                    self.foreign += 1
                    self._hand_over(what)
                case _:
                    self._lane.forged += 1

    def renewed(self) -> None:
        """The connection was lost and is there again: ask publishers how far they are."""
        if not self._closed:
            self._do(self.receiver.renewed(self._lane.now()))
            self._set()

    def _expire(self) -> None:
        now = self._lane.now()
        if self._waiting:
            self._settle(now)
        self.receiver.away = not self._lane.connected
        self._do(self.receiver.expire(now))
        self._set()

    def _set(self) -> None:
        self._alarm.set(self.receiver.timer())
        if self._waiting:
            self._alarm.set(self._waiting[0][0])

    def _decode(self, header: Header, body: bytes) -> Delivery | None:
        """A repaired message, if this subscription wants it."""
        event = decode_event(self._schema, body)
        if not self._wanted.matches(event):
            return None
        sent = int(header.departure * 1e9)
        now, life = time.time_ns(), header.epoch
        return Delivery(event, header.publisher, header.sequence, sent, now, recovered=True, incarnation=life)

    # -- what is done about it ------------------------------------------------------------

    def _do(self, actions: list[Action]) -> None:
        gaps: list[Gap] = []
        for action in actions:
            if isinstance(action, Deliver):
                item = msgspec.structs.replace(action.item, late=True) if action.late else action.item
                self._hand_over(item)
            elif isinstance(action, Send):
                self._lane.say(action, self.receiver.me)
            elif isinstance(action, Gap):
                gaps.append(action)
        if gaps:
            self._tell(gaps)

    def _hand_over(self, item: Delivery) -> None:
        if self._kept or not self._feed.accept(item):
            self._kept.append(item)

    def drain(self) -> bool:
        """Hand over what the feed had no room for; True if all of it is."""
        while self._kept:
            if not self._feed.accept(self._kept[0]):
                return False
            self._kept.popleft()
        return True

    def _tell(self, gaps: list[Gap]) -> None:
        """Neighbouring gaps are one."""

        def row(numbered: tuple[int, Gap]) -> tuple[int, int, int]:
            place, gap = numbered
            return gap.publisher, gap.epoch, gap.first - place

        ordered = sorted(gaps, key=lambda gap: (gap.publisher, gap.epoch, gap.first))
        for _, group in groupby(enumerate(ordered), row):
            run = [gap for _, gap in group]
            gap = Gap(run[0].publisher, run[0].epoch, run[0].first, run[-1].last)
            if self._asked.on_gap is None:
                log.warning("%s in %s", gap, self._feed)
                continue
            try:
                self._asked.on_gap(gap)
            except Exception:
                log.exception("on_gap of %s failed", self._feed)

    def statistics(self) -> ReceiverStatistics:
        """What the transport did for this subscription."""
        return self.receiver.statistics()
