"""What one subscription wants of every stream: its filter as bits, and which parts of the transport are on."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import inf
from random import Random

from sievenet.transport.bloom import Bits
from sievenet.transport.doubt import Doubt
from sievenet.transport.latch import DelayModel
from sievenet.transport.options import Order, RateControl, Recover
from sievenet.transport.rates import RateSession
from sievenet.transport.stream import Limits, SessionCounts, Stream

__all__ = ["Encoding", "Profile"]

#: Width in bytes → the bits of something in that width.
Encoding = Callable[[int], tuple[Bits, ...]]


def _encoding(bits: tuple[Bits, ...] | Encoding) -> Encoding:
    """Widths come from outside, but there are no more than 64 of them."""
    return (lambda _width: bits) if isinstance(bits, tuple) else lru_cache(maxsize=None)(bits)


class Profile:
    """Makes the sessions of one subscription."""

    def __init__(
        self,
        interests: tuple[Bits, ...] | Encoding,
        flow_bits: tuple[Bits, ...] | Encoding,
        width: int,
        order: Order | None,
        recover: Recover | None,
        rate: RateControl | None,
    ) -> None:
        #: What is wanted, and what names this subscription's flows to publishers: bits of the width that they use.
        self.wanted = _encoding(interests)
        self._flows = _encoding(flow_bits) if flow_bits else self.wanted
        self.width = width
        self.order, self.recover, self.rate = order, recover, rate
        #: When the subscription stood; until that is said, nothing is due that left before the first message.
        self.since = inf

    def session(self, publisher: int, width: int, resume: int, counts: SessionCounts) -> Stream:
        """For a stream that is heard for the first time; ``resume`` is the first number that is due, -1 if unknown."""
        order, recover = self.order, self.recover
        interests = self.wanted(width or self.width)
        return Stream(
            publisher,
            interests,
            DelayModel(order.p_late, order.samples) if order else DelayModel(Order().p_late),
            order=order is not None,
            late=order.late if order else "deliver",
            hold_lost=order is not None and recover is not None and order.hold_for_repair,
            recover=recover is not None,
            inquire=recover is not None and recover.inquire,
            limits=order.limits if order else Limits(),
            doubt=Doubt(interests) if self.rate is not None else None,
            counts=counts,
            since=self.since,
            resume=resume,
            width=width,
        )

    def fit(self, session: Stream, width: int) -> None:
        """A publisher's records have this width."""
        if session.width != width:  # of a digest, or forged
            session.width, session.interests = width, self.wanted(width or self.width)

    def rates(self, me: int, session: Stream, width: int, rng: Random) -> RateSession | None:
        """Congestion control of the same stream, if it is on."""
        if self.rate is None:
            return None
        width = width or self.width
        return RateSession(me, session.publisher, self._flows(width), width, self.rate, rng, session.model)
