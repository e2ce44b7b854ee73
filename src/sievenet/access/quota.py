"""Quotas: how much one member may use, and all together.

Rates are token buckets: a bucket holds a second's worth (at least one), fills evenly and never waits. Whoever takes
more than is there is refused and told when to come again; nothing is put in a queue, so nobody else waits. The time is
an argument. 0 stands for no bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from sievenet.errors import Rejected

__all__ = ["LARGE", "NO_QUOTA", "Bucket", "Later", "Quota", "TooFast", "Usage"]

#: Bytes of a request beyond which it counts for more than one.
LARGE: Final = 1 << 14

#: Seconds that the connections of a member are not read, one after the other, because its requests come too fast; and
#: that one of them is not read at most: heartbeats are behind the requests.
_PAUSE: Final = 0.02
_LONGEST: Final = 1.0
#: Heartbeats and the like of one member per second that do not count as requests.
_FREE: Final = 50

Amount = Annotated[float, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=0)]


class Quota(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds of one member, or of all members together; 0 means none."""

    #: Connections at the same time.
    connections: Count = 0
    #: Requests per second; a large one counts once more for every 16 KiB.
    requests: Amount = 0
    #: Subscriptions and advertisements at the same time.
    subscriptions: Count = 0
    #: Steps that one filter may cost (`sievenet.content.cost`).
    filter_cost: Count = 0
    #: Schemas that were registered and not removed.
    schemas: Count = 0
    #: Events and their bytes per second, published.
    events: Amount = 0
    bytes: Amount = 0
    #: Bytes that may wait to be sent to it.
    queue: Count = 0


NO_QUOTA: Final = Quota()


class TooFast(Rejected):
    """Requests come faster than a quota allows, by so many connections together; one that counts for so many."""

    def __init__(self, message: str, connections: int, amount: int = 1) -> None:
        super().__init__(message)
        self.connections, self.amount = connections, amount

    @property
    def pause(self) -> float:
        """Seconds that the connection is not read: those of a member one after the other; longer for what is large."""
        return min(_PAUSE * self.connections * self.amount, _LONGEST)


class Later(Rejected):
    """Events come faster than a quota allows; after so many seconds they may come."""

    def __init__(self, wait: float) -> None:
        super().__init__(f"Expected events within the quota; wait {wait:.1g} s")
        self.wait = wait


class Bucket:
    """So many per second, and so many at once."""

    __slots__ = ("_at", "_left", "burst", "rate")

    def __init__(self, rate: float, burst: float | None = None) -> None:
        self.rate = rate
        self.burst = max(rate, 1.0) if burst is None else burst
        self._left = self.burst
        self._at = 0.0

    def take(self, amount: float, now: float) -> bool:
        """Take so many, if they are there; a bucket without a rate gives any number.

        One large amount is granted from a full bucket, though it holds less: it is paid for afterwards.

        >>> bucket = Bucket(2)
        >>> bucket.take(2, now=0.0), bucket.take(1, now=0.1), bucket.take(1, now=0.6)
        (True, False, True)
        """
        if not self.rate:
            return True
        left = self._left
        if now > self._at:  # as `left` does, which is a step more
            left = self._left = min(self.burst, left + (now - self._at) * self.rate)
            self._at = now
        if left < amount and left < self.burst:
            return False
        self._left = left - amount
        return True

    def left(self, now: float) -> float:
        """So many may be taken now.

        >>> bucket = Bucket(100, burst=10)
        >>> bucket.charge(10, now=5.0)
        >>> bucket.left(5.0), bucket.left(5.0625), bucket.left(99.0)
        (0, 6.25, 10)
        """
        if now > self._at:
            self._left = min(self.burst, self._left + (now - self._at) * self.rate)
            self._at = now
        return self._left

    def charge(self, amount: float, now: float) -> None:
        """Take so many, whether they are there or not: what is missing has to fill up again first.

        >>> bucket = Bucket(1, burst=2)
        >>> bucket.charge(3, now=5.0)
        >>> bucket.wait(0, now=5.0), bucket.wait(0, now=6.0)
        (1.0, 0.0)
        """
        self._left = self.left(now) - amount

    def wait(self, amount: float, now: float) -> float:
        """Seconds until so many are there."""
        if not self.rate:
            return 0.0
        left = min(self.burst, self._left + max(0.0, now - self._at) * self.rate)
        return max(0.0, (min(amount, self.burst) - left) / self.rate)


class Usage:
    """What one member uses now, or all together; ``who`` is named in errors."""

    def __init__(self, quota: Quota, who: str, *, shared: bool = False) -> None:
        self.quota = quota
        #: Whether it is of many members, none of whom is to pay for another's connections.
        self._shared = shared
        self._who = who
        self._requests = Bucket(quota.requests)
        self._free = Bucket(_FREE)
        self.events = Bucket(quota.events)
        self.bytes = Bucket(quota.bytes)
        self.connections = 0
        self.schemas = 0
        #: Requests that were refused.
        self.refused = 0

    def change(self, quota: Quota) -> None:
        """Another quota from now on; what is in use stays so."""
        if quota != self.quota:
            self.quota = quota
            self._requests, self.events, self.bytes = (
                Bucket(rate) for rate in (quota.requests, quota.events, quota.bytes)
            )

    def connect(self) -> None:
        """One more connection; `Rejected` if there are too many."""
        self._check("connections", self.connections)
        self.connections += 1

    def disconnect(self) -> None:
        """One connection less."""
        self.connections -= 1

    def request(self, now: float, size: int = 0) -> None:
        """A request of so many bytes; `TooFast`, with the time to wait, if they come too fast."""
        amount = 1 + size // LARGE
        if not self._requests.take(amount, now):
            self.refused += 1
            wait = self._requests.wait(amount, now)
            raise TooFast(
                f"Expected at most {self.quota.requests:g} requests per second {self._who} (quota); wait {wait:.1g} s",
                1 if self._shared else max(1, self.connections),
                amount,
            )

    def answered(self, size: int, now: float) -> None:
        """A request was answered with so many bytes: a large answer counts once more for every 16 KiB, afterwards."""
        if self._requests.rate and size >= LARGE:
            self._requests.charge(size // LARGE, now)

    def heartbeat(self, now: float) -> None:
        """What its part asks for itself does not count as a request, unless it comes far too often."""
        if not self._free.take(1, now):
            self.request(now)

    def subscription(self, number: int) -> None:
        """One more registration beside so many; `Rejected` if that is too many."""
        self._check("subscriptions", number)

    def schema(self, number: int) -> None:
        """One more schema beside so many; `Rejected` if that is too many."""
        self._check("schemas", number)

    def publish(self, events: int, size: int, now: float) -> bool:
        """Whether so many events, of so many bytes together, may pass."""
        return self.events.take(events, now) and self.bytes.take(size, now)

    def publishing(self, events: int, size: int, now: float) -> float:
        """Seconds until so many events, of so many bytes together, may pass."""
        return max(self.events.wait(events, now), self.bytes.wait(size, now))

    def room(self, sizes: Sequence[int], now: float) -> int:
        """How many events of these sizes, from the first on, may pass now."""
        found = len(sizes)
        if self.events.rate:
            found = min(found, int(self.events.left(now)))
        if self.bytes.rate:
            left = self.bytes.left(now)
            for number, size in enumerate(sizes[:found]):
                # As in a bucket: one that is larger than it may ever hold passes when it is full.
                if left < min(size, self.bytes.burst):
                    return number
                left -= size
        return found

    def charge(self, sizes: Sequence[int], now: float) -> None:
        """These events pass."""
        self.events.charge(len(sizes), now)
        self.bytes.charge(sum(sizes), now)

    def _check(self, what: str, number: int) -> None:
        limit = getattr(self.quota, what)
        if limit and number >= limit:
            self.refused += 1
            raise Rejected(f"Expected at most {limit} {what} {self._who} (quota), this is one more")
