"""A histogram of durations that is small, cheap to add to, and good to three per cent.

Buckets grow by a constant factor, so a duration's bucket is its logarithm, and quantiles are right to half a bucket
whatever the range: a microsecond and a minute take part in the same few hundred counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

__all__ = ["Latency"]

#: Buckets per factor e: neighbours differ by about six per cent, a quantile is within three.
_FINENESS: Final = 16
#: Durations are counted from here, in seconds; shorter ones fall in the first bucket.
_SMALLEST: Final = 1e-7
_BUCKETS: Final = int(math.log(1e5 / _SMALLEST) * _FINENESS) + 1


class Latency:
    """Counts of durations in seconds."""

    def __init__(self) -> None:
        #: Sparse: most feeds see few distinct latencies, and there may be very many feeds.
        self._counts: dict[int, int] = {}
        self.count = 0
        self.largest = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration; clocks that disagree can make it negative, which counts as the smallest."""
        bucket = 0
        if seconds > _SMALLEST:
            bucket = min(int(math.log(seconds / _SMALLEST) * _FINENESS), _BUCKETS - 1)
            self.largest = max(self.largest, seconds)
        self._counts[bucket] = self._counts.get(bucket, 0) + 1
        self.count += 1

    def quantiles(self, wanted: Sequence[float]) -> list[float | None]:
        """The durations below which these shares lie, or ``None`` if nothing was counted."""
        if not self.count:
            return [None] * len(wanted)
        found: list[float | None] = []
        for share in wanted:
            left = share * self.count
            bucket = 0
            for bucket in sorted(self._counts):
                left -= self._counts[bucket]
                if left <= 0:
                    break
            found.append(_SMALLEST * math.exp((bucket + 0.5) / _FINENESS))
        return found

    def merge(self, other: Latency) -> None:
        """Add all that another has counted."""
        for bucket, count in other._counts.items():
            self._counts[bucket] = self._counts.get(bucket, 0) + count
        self.count += other.count
        self.largest = max(self.largest, other.largest)
