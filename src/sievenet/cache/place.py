"""What a cache keeps of one category and of one subscription, and what it says: the values of `cache.cache`."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sievenet.cache.interruptions import Interruptions
from sievenet.cache.messages import Taken
from sievenet.cache.queue import Queue
from sievenet.cache.record import Run
from sievenet.cache.ring import Ring
from sievenet.transport.duplicates import DuplicateWindow

__all__ = ["CacheStatistics", "Filters", "Place", "Sending", "Served"]


class Filters(Protocol):
    """Decides which records match: the shell knows schemas, this core does not."""

    def add(self, stream: int, wanted: Any) -> None:
        """Records that match are for a stream."""

    def remove(self, stream: int) -> None:
        """No more."""

    def match(self, records: Sequence[bytes]) -> Iterable[tuple[int, Sequence[int]]]:
        """For each stream that matches some of these, which."""

    def rows(self, wanted: Any, records: Sequence[bytes]) -> Sequence[int]:
        """Which of these match one filter."""


@dataclass
class Served:
    """One subscription that a cache is responsible for."""

    category: str
    wanted: Any
    #: Same filter, same text: who may share a queue.
    need: Hashable
    #: Since when everything it wants comes here.
    since: float
    epoch: int = -1
    queue: Queue | None = None
    answer: Taken | None = None
    #: How often it got another stream in this epoch.
    turn: int = 0
    #: When its stream is to end, and the look after which it may.
    stops: float | None = None
    look: int | None = None
    told: float = float("-inf")
    #: The offset up to which it was told what may be missing when it was answered, and how many interruptions there
    #: were then; and up to which it has heard that.
    named: tuple[int, int] = (-1, 0)
    heard: tuple[int, int] = (-1, 0)
    #: Why its subscription is over.
    over: str | None = None


@dataclass
class Place:
    """One category."""

    ring: Ring
    filters: Filters
    began: float
    window: DuplicateWindow = field(default_factory=lambda: DuplicateWindow(span=1 << 14))
    queues: dict[int, Queue] = field(default_factory=dict)
    #: What the members of each queue have in common: filter, limit and policy.
    groups: dict[int, Hashable] = field(default_factory=dict)
    interruptions: Interruptions = field(default_factory=Interruptions)
    #: The offset up to which the port has surely dropped nothing that the interruptions do not say.
    sure: int = 0
    #: Offsets that are kept for subscriptions that are about to ask, and until when.
    reserved: dict[int, tuple[int, float]] = field(default_factory=dict)

    def whole(self, now: float) -> float:
        """Since when nothing that came is missing."""
        ring, last = self.ring, self.interruptions.last
        if self.interruptions.begun is not None or (last is not None and last >= ring.next):
            return now
        since = [self.began]
        if ring.first > 0 and ring.oldest is not None:
            since.append(ring.oldest)
        if last is not None:
            since.append(ring.when(max(last, ring.first)))
        return max(since)

    def trim(self, now: float) -> None:
        """Let go of what is too old and nobody needs."""
        self.reserved = {member: each for member, each in self.reserved.items() if each[1] > now}
        needed = [each for queue in self.queues.values() if (each := queue.needed) is not None]
        needed += [offset for offset, _ in self.reserved.values()]
        self.ring.trim(now, min(needed, default=None))
        self.interruptions.forget(self.ring.first)


@dataclass(frozen=True, slots=True)
class Sending:
    """What goes to the members of one stream."""

    category: str
    members: tuple[int, ...]
    runs: list[Run]


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """What a cache holds and did."""

    received: int
    sent: int
    dropped: int
    waiting: int
    active: int
    assigned: int
    memory: int
