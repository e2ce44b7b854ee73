"""What a volunteer keeps for others: a ring of messages per publisher whose size adapts.

A message must stay until the request of the farthest requester can have come. With reception rate λP_m, requesters at
distance d_ZB from the publisher who wait (C₁ + C₂/2)·d_ZB before asking, and d_BA from them to here:

    K > λP_m · [(C₁ + C₂/2 + 1)·d_ZB + d_BA]

The source's bound leaves out how long a loss stays unnoticed, which is most of the time; so requests carry what stands
for the first term as it really was, the time since the message was published. K also grows by a tenth while fewer
requests than wanted can be answered, and shrinks by a tenth while others answer first (they are closer, or quicker);
K_min ≤ K ≤ K_max always. Before the first request `horizon` seconds are kept.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from sievenet.transport.options import Recover

__all__ = ["Cache", "Log"]

#: Publishers that messages are kept of, and bytes of all messages together.
_PUBLISHERS: Final = 1024
_BYTES: Final = 64 << 20
_SMOOTH: Final = 0.1


class _Ring:
    __slots__ = ("apart", "closest", "hits", "kept", "last", "reach", "size")

    def __init__(self, size: int) -> None:
        self.kept: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        #: K, fractional so that tenths add up.
        self.size = float(size)
        #: Smoothed interval between messages, 1/λP_m, and when the last message came.
        self.apart = 0.0
        self.last = -1.0
        #: Smoothed age of messages when requests for them come.
        self.reach = 0.0
        self.hits = 1.0
        #: Whether the last repair that was needed was mine.
        self.closest = True

    @property
    def rate(self) -> float:
        """λP_m in messages per second."""
        return 1.0 / self.apart if self.apart else 0.0


class Cache:
    """Messages kept for others, by publisher."""

    def __init__(self, options: Recover) -> None:
        self._options = options
        self._rings: OrderedDict[int, _Ring] = OrderedDict()
        self.bytes = 0

    def keep(self, publisher: int, epoch: int, sequence: int, message: bytes, now: float) -> None:
        """A message came: keep it for a while."""
        ring = self._rings.get(publisher)
        if ring is None:
            ring = self._rings[publisher] = _Ring(self._options.cache_min)
            if len(self._rings) > _PUBLISHERS:
                _, old = self._rings.popitem(last=False)
                self.bytes -= sum(map(len, old.kept.values()))
        if ring.last >= 0 and now > ring.last:
            # Averaged over intervals, not over their inverses, which a single short one would carry away.
            ring.apart += _SMOOTH * (now - ring.last - ring.apart) if ring.apart else now - ring.last
        ring.last = now
        kept, key = ring.kept, (epoch, sequence)
        if key in kept:
            self.bytes -= len(kept.pop(key))
        kept[key] = message
        self.bytes += len(message)
        if not ring.reach and ring.apart:
            options, size = self._options, self._options.horizon / ring.apart
            least, most = options.cache_min, options.cache_max
            ring.size = least if size < least else most if size > most else size
        while len(kept) > ring.size or (self.bytes > _BYTES and kept):
            _, old_message = kept.popitem(last=False)
            self.bytes -= len(old_message)

    def get(self, publisher: int, epoch: int, sequence: int) -> bytes | None:
        """A message, if it is still kept."""
        ring = self._rings.get(publisher)
        return None if ring is None else ring.kept.get((epoch, sequence))

    def asked(self, publisher: int, wait: float, distance: float, hit: bool) -> None:
        """A request for a message of mine came: adapt (the source's algorithm 4.2)."""
        ring = self._rings.get(publisher)
        if ring is None:
            return
        ring.hits += _SMOOTH * (hit - ring.hits)
        reach = wait + distance
        # Quick to grow: what is thrown away too early cannot be had back.
        ring.reach += (reach - ring.reach) * (0.5 if reach > ring.reach else _SMOOTH)
        if ring.closest:
            size = max(ring.rate * ring.reach + 1, 1.1 * ring.size if ring.hits < self._options.hit_ratio - 0.02 else 0)
        else:
            size = 0.9 * ring.size
        ring.size = min(max(size, self._options.cache_min), self._options.cache_max)

    def repaired(self, publisher: int, *, mine: bool) -> None:
        """A repair was sent, by me or by another."""
        ring = self._rings.get(publisher)
        if ring is not None:
            ring.closest = mine

    def sizes(self) -> list[float]:
        """K of every publisher."""
        return [ring.size for ring in self._rings.values()]

    def __len__(self) -> int:
        return sum(len(ring.kept) for ring in self._rings.values())


class Log:
    """What a publisher keeps of its own messages: the last so many, in so many bytes."""

    def __init__(self, messages: int, size: int) -> None:
        self._limit, self._size = messages, size
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        self.bytes = 0

    def keep(self, sequence: int, message: bytes) -> None:
        """A message was sent."""
        if not self._limit:
            return
        self._kept[sequence] = message
        self.bytes += len(message)
        while len(self._kept) > self._limit or self.bytes > self._size:
            _, old = self._kept.popitem(last=False)
            self.bytes -= len(old)

    def get(self, sequence: int) -> bytes | None:
        """A message, if it is still kept."""
        return self._kept.get(sequence)

    @property
    def first(self) -> int | None:
        """The oldest message that is kept."""
        return next(iter(self._kept), None)

    def __len__(self) -> int:
        return len(self._kept)
