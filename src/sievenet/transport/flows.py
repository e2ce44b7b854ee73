"""Congestion control at a publisher: content-based flows, each limited by its slowest receiver.

A flow is everything that matches a filter (known by its bits). A receiver's wish for one is taken so:

    same filter, from the flow's CLR                 update the quota
    covered by a flow with a lower quota             ignore: that one slows it down already
    covers flows with higher quotas                  they are replaced
    same filter, lower quota, from another           that receiver becomes the CLR

Covering between bits: a flow G holds all of F's messages if ``G ⊆ F`` (fewer bits ask for less). Every flow has a token
bucket; a message goes when every flow that it belongs to has a token, and takes one of each. Otherwise it waits, in the
order of publishing within each flow, while messages of other flows pass (`SendQueue`). Flows without feedback expire.

A wish may be forged, or a bit of it flipped. So one wish slows a flow down to no less than an eighth of what it is (of
what the publisher sends, if the flow is new), and all together to no less than `SLOWEST`; who means it repeats it, a
few times per round trip. What a single wrong message does is over when its flow expires, or when the next one comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from sievenet.transport.bloom import Bits
from sievenet.transport.control import Feedback

__all__ = ["SLOWEST", "Flow", "FlowTable", "SendQueue"]

#: Seconds' worth of quota that a bucket holds: what may burst after a pause.
_BURST: Final = 0.02
_MAX_DELAY: Final = 1e9
#: No flow is slower, in messages per second, and no wish makes one slower by more than this factor.
SLOWEST: Final = 1.0
_STEP: Final = 8.0


class Flow(msgspec.Struct):
    """What matches a filter, and how fast it may go."""

    bits: Bits
    clr: int
    #: Messages per second.
    quota: float
    tokens: float
    #: When the tokens were counted.
    counted: float
    #: When the CLR last spoke, and how long that took between the clocks.
    heard: float
    feedback_delay: float

    def count(self, now: float) -> float:
        """The tokens there are now."""
        if now > self.counted:
            self.tokens = min(self.tokens + (now - self.counted) * self.quota, 1.0 + self.quota * _BURST)
            self.counted = now
        return self.tokens

    def ready(self, now: float) -> float:
        """When there will be a token."""
        missing = 1.0 - self.count(now)
        # A thousandth is near enough: a clock of large numbers could not show the rest of the wait.
        return now if missing <= 1e-3 else now + missing / self.quota


class FlowTable:
    """The flows of one publisher."""

    def __init__(self, publisher: int, *, width: int, limit: int = 1024, timeout: float = 10.0) -> None:
        self._publisher = publisher
        #: Of bits, in bytes: wishes about bits of another width mean nothing.
        self._width = width
        self._limit, self._timeout = limit, timeout
        self.flows: list[Flow] = []
        #: Changes with every flow that comes or goes.
        self.version = 0
        self.feedbacks = self.ignored = self.absurd = self.expired = 0
        #: Messages sent so far that name each CLR.
        self._numbers: dict[int, int] = {}

    def number(self, clr: int) -> int:
        """The number of one more message that names this CLR."""
        number = self._numbers.get(clr, 0)
        self._numbers[clr] = (number + 1) & 0xFFFFFFFF
        if len(self._numbers) > 2 * self._limit:
            current = {flow.clr for flow in self.flows}
            self._numbers = {each: count for each, count in self._numbers.items() if each in current}
        return number

    def feedback(self, message: Feedback, now: float, rate: float = 0.0) -> None:
        """A receiver's wishes; ``rate`` is what the publisher sends, in messages per second."""
        if message.publisher != self._publisher or not message.subscriber:
            self.absurd += 1
            return
        self.feedbacks += 1
        delay = now - message.sent
        for wish in message.flows:
            if not wish.quota > 0 or wish.width != self._width:
                self.absurd += 1
            else:
                delay = delay if abs(delay) < _MAX_DELAY else 0.0
                self._wish(wish.bits, message.subscriber, max(wish.quota, SLOWEST), delay, now, rate)

    def _wish(self, bits: Bits, subscriber: int, quota: float, delay: float, now: float, rate: float) -> None:
        replaced = []
        before = min((flow.quota for flow in self.flows if flow.bits == bits), default=rate)
        quota = max(quota, before / _STEP)
        for flow in self.flows:
            if flow.bits == bits and flow.clr == subscriber:
                flow.count(now)
                flow.quota, flow.heard, flow.feedback_delay = quota, now, delay
                return
            if flow.bits & bits == flow.bits and flow.quota <= quota:
                self.ignored += 1
                return
            if bits & flow.bits == bits and quota < flow.quota:
                replaced.append(flow)
        tokens = 1.0
        if replaced:
            tokens = min(flow.tokens for flow in replaced)
            self.flows = [flow for flow in self.flows if flow not in replaced]
        elif len(self.flows) >= self._limit:
            oldest = min(self.flows, key=lambda flow: flow.heard)
            self.flows.remove(oldest)
            self.expired += 1
        self.flows.append(Flow(bits, subscriber, quota, tokens, now, now, delay))
        self.version += 1

    def matching(self, bits: Bits) -> tuple[Flow, ...]:
        """The flows that a message belongs to."""
        return tuple(flow for flow in self.flows if flow.bits & bits == flow.bits)

    def timer(self) -> float | None:
        """When the next flow expires."""
        return min(flow.heard for flow in self.flows) + self._timeout if self.flows else None

    def expire(self, now: float) -> None:
        """Free the flows whose receivers fell silent."""
        kept = [flow for flow in self.flows if flow.heard + self._timeout > now]
        if len(kept) != len(self.flows):
            self.expired += len(self.flows) - len(kept)
            self.flows = kept
            self.version += 1


class SendQueue:
    """Messages that wait for their flows, by the set of flows they belong to.

    Only the first of each set is looked at, in the order of publishing; a set that cannot go bars all sets that share a
    flow with it, so the order within a flow is kept. A turn costs as much as there are sets, not messages.
    """

    def __init__(self, table: FlowTable, limit: int) -> None:
        self._table, self._limit = table, limit
        self._sets: dict[frozenset[int], tuple[tuple[Flow, ...], deque[tuple[int, Bits, Any]]]] = {}
        self._version = table.version
        self._count = 0
        self._stamp = 0

    def __len__(self) -> int:
        return self._count

    @property
    def full(self) -> bool:
        """Whether nothing more fits."""
        return self._count >= self._limit

    def offer(self, bits: Bits, item: Any, flows: tuple[Flow, ...], now: float) -> bool:
        """Whether a message of these flows may go at once (tokens taken); if not, it waits here."""
        if not self._count and all(flow.ready(now) <= now for flow in flows):
            _take(flows)
            return True
        self._wait(self._stamp, bits, item, flows)
        self._stamp += 1
        return False

    def _wait(self, stamp: int, bits: Bits, item: Any, flows: tuple[Flow, ...]) -> None:
        key = frozenset(map(id, flows))
        waiting = self._sets.get(key)
        if waiting is None:
            waiting = self._sets[key] = (flows, deque())
        waiting[1].append((stamp, bits, item))
        self._count += 1

    def _sorted_anew(self) -> None:
        """The flows have changed: sort what waits by the flows of now."""
        every = sorted((entry for _, queue in self._sets.values() for entry in queue), key=lambda entry: entry[0])
        self._sets, self._count, self._version = {}, 0, self._table.version
        for stamp, bits, item in every:
            self._wait(stamp, bits, item, self._table.matching(bits))

    def release(self, now: float) -> Iterator[tuple[tuple[Flow, ...], Any]]:
        """What may go now, in order, with its flows."""
        if self._version != self._table.version:
            self._sorted_anew()
        going = True
        while going and self._count:
            going = False
            barred: set[int] = set()
            for key, (flows, queue) in sorted(self._sets.items(), key=lambda each: each[1][1][0][0]):
                if barred & key or any(flow.ready(now) > now for flow in flows):
                    barred |= key
                    continue
                _take(flows)
                _, _, item = queue.popleft()
                self._count -= 1
                if not queue:
                    del self._sets[key]
                going = True
                yield flows, item

    def timer(self, now: float) -> float | None:
        """When something may go next."""
        if not self._count:
            return None
        if self._version != self._table.version:
            return now
        due: float | None = None
        barred: set[int] = set()
        for key, (flows, _) in sorted(self._sets.items(), key=lambda each: each[1][1][0][0]):
            if not barred & key:
                when = max((flow.ready(now) for flow in flows), default=now)
                due = when if due is None else min(due, when)
            barred |= key
        return due


def _take(flows: tuple[Flow, ...]) -> None:
    for flow in flows:
        flow.tokens -= 1.0
