"""Answering requests: wait a little, stay silent if another answers first.

    request ──wait [D₁d, (D₁+D₂)d]──▶ repair, then deaf to requests for the message for 3d
                   │                  (who did not answer last time waits another d)
             heard a repair: silent

d is the requester's distance as it says. The publisher takes part for its own messages and lets peers go first; from
the second attempt on it answers without delay. A repair is re-published for all who miss the message, which also
serves those who have not noticed; or sent to the one who asked; or, with "auto", the latter when only one did and this
node was the one to answer last time (so that nobody else is about to).
"""

from __future__ import annotations

from collections import OrderedDict
from random import Random
from typing import Final, Literal

import msgspec

from sievenet.transport.bloom import Bits
from sievenet.transport.control import Repair, Request
from sievenet.transport.deadline import Deadlines
from sievenet.transport.requests import Key
from sievenet.transport.timers import AdaptiveTimer

__all__ = ["RepairCounts", "Repairs"]

_PENDING: Final = 4096
_DONE: Final = 4096


class RepairCounts(msgspec.Struct):
    """What answering came to, in messages."""

    asked: int = 0
    sent: int = 0
    unicast: int = 0
    #: Another answered first.
    silenced: int = 0
    #: Repairs heard for what was answered already.
    duplicates: int = 0


class _Pending(msgspec.Struct):
    since: float
    distance: float
    message: bytes
    bits: Bits
    requesters: set[int]


class Repairs:
    """What one node is about to repair."""

    def __init__(
        self,
        me: int,
        rng: Random,
        *,
        style: Literal["auto", "republish", "unicast"] = "republish",
        publisher: bool = False,
    ) -> None:
        self._me = me
        self._rng = rng
        self._style = style
        #: The publisher itself: peers go first.
        self._last_resort = publisher
        self.timer_parameters = AdaptiveTimer(1.0, 1.0, floor=0.2)
        self.counts = RepairCounts()
        self._pending: dict[Key, _Pending] = {}
        self._due: Deadlines[Key] = Deadlines()
        #: Repaired lately, by whom ever: until when requests for it are not answered again.
        self._done: OrderedDict[Key, tuple[float, float]] = OrderedDict()
        self._mine: OrderedDict[int, bool] = OrderedDict()

    def __contains__(self, key: Key) -> bool:
        return key in self._pending

    def asked(self, request: Request, message: bytes, now: float) -> None:
        """Somebody misses a message that is here."""
        key = (request.publisher, request.epoch, request.sequence)
        if request.requester == self._me:
            return
        self.counts.asked += 1
        pending = self._pending.get(key)
        if pending is not None:
            if len(pending.requesters) < 64:
                pending.requesters.add(request.requester)
            soonest = now + 2 * self.timer_parameters.mean * request.distance
            if self._last_resort and request.attempt > 0:
                soonest = now  # peers had their chance
            if soonest < (self._due.get(key) or 0.0):  # the first requester was far away, this one is nearer
                self._due.set(key, soonest)
            return
        done = self._done.get(key)
        if (done is not None and now < done[0]) or len(self._pending) >= _PENDING:
            return
        # The node that answered last for this publisher goes first; random waits alone would give several answers.
        mine = self._mine.get(request.publisher)
        wait = self.timer_parameters.draw(self._rng, request.distance)
        if self._last_resort:
            # Peers wait up to (D₁ + D₂ + 1)d and are heard after another d.
            wait = 0.0 if request.attempt > 0 else wait + 3.0 * request.distance
        elif not mine:
            wait += request.distance
        self._pending[key] = _Pending(now, request.distance, message, request.bits, {request.requester})
        self._due.set(key, now + wait)

    def heard(self, key: Key, now: float) -> None:
        """Another has repaired it."""
        pending = self._pending.pop(key, None)
        if pending is not None:
            self._due.set(key, None)
            self.counts.silenced += 1
            self._answered(key[0], mine=False)
            self._finish(key, now, pending, 0)
        elif (done := self._done.get(key)) is not None and now < done[0]:
            self.counts.duplicates += 1
            self.timer_parameters.finished(1, done[1])

    def timer(self) -> float | None:
        """When `expire` has something to do next."""
        return self._due.next()

    def expire(self, now: float) -> list[tuple[Repair, Bits]]:
        """What to repair now, and the bits of each message."""
        repairs = []
        for key in self._due.passed(now):
            pending = self._pending.pop(key)
            alone = len(pending.requesters) == 1
            unicast = self._style == "unicast" or (self._style == "auto" and alone and self._mine.get(key[0], False))
            targets = sorted(pending.requesters) if unicast else [0]
            repairs += [(Repair(self._me, target, pending.message), pending.bits) for target in targets]
            self.counts.sent += len(targets)
            self.counts.unicast += len(targets) if unicast else 0
            self._answered(key[0], mine=True)
            self._finish(key, now, pending, 0)
        return repairs

    def _finish(self, key: Key, now: float, pending: _Pending, duplicates: int) -> None:
        delay = (now - pending.since) / max(pending.distance, 1e-6)
        self._done[key] = (now + 3 * min(pending.distance, 1.0), delay)
        self._done.move_to_end(key)
        if len(self._done) > _DONE:
            self._done.popitem(last=False)
        self.timer_parameters.finished(duplicates, delay)

    def _answered(self, publisher: int, *, mine: bool) -> None:
        self._mine[publisher] = mine
        self._mine.move_to_end(publisher)
        if len(self._mine) > 1024:
            self._mine.popitem(last=False)
