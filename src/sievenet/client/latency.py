"""A histogram of durations that is small, cheap to add to, and good to three per cent.

Buckets grow by a constant factor, so a duration's bucket is its logarithm, and quantiles are right to half a bucket
whatever the range: a microsecond and a minute take part in the same few hundred counts.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["FRESH", "Latency"]

#: Buckets per factor e: neighbours differ by about six per cent, a quantile is within three.
_FINENESS: Final = 16
#: Durations are counted from here, in seconds; shorter ones fall in the first bucket.
_SMALLEST: Final = 1e-7
_BUCKETS: Final = int(math.log(1e5 / _SMALLEST) * _FINENESS) + 1


#: Durations that wait to be counted together.
FRESH: Final = 256
#: From so many on, together is quicker than one by one.
_MANY: Final = 32


class Latency:
    """Counts of durations in seconds."""

    def __init__(self) -> None:
        #: Sparse: most feeds see few distinct latencies, and there may be very many feeds.
        self._counts: dict[int, int] = {}
        #: Not counted yet: adding has to be cheap, and logarithms are cheaper by the hundred. Whoever has no time for a
        #: call appends to it, and calls `settle` when there are `FRESH`.
        self.fresh = array("d")
        self._count = 0
        self._largest = 0.0

    @property
    def count(self) -> int:
        """How many there were."""
        return self._count + len(self.fresh)

    @property
    def largest(self) -> float:
        """The longest."""
        self.settle()
        return self._largest

    def add(self, seconds: float) -> None:
        """Count one duration; clocks that disagree can make it negative, which counts as the smallest."""
        self.fresh.append(seconds)
        if len(self.fresh) >= FRESH:
            self.settle()

    def add_many(self, seconds: npt.NDArray[np.float64]) -> None:
        """Count many durations."""
        if len(seconds) >= _MANY:
            self._count_many(seconds)
        else:
            self.fresh.extend(seconds.tolist())
            if len(self.fresh) >= FRESH:
                self.settle()

    def _count_many(self, seconds: npt.NDArray[np.float64]) -> None:
        buckets = np.log(np.maximum(seconds, _SMALLEST) / _SMALLEST) * _FINENESS
        numbers = np.minimum(buckets.astype(np.int64), _BUCKETS - 1)
        first = int(numbers.min())
        for bucket, count in enumerate(np.bincount(numbers - first).tolist(), first):
            if count:
                self._counts[bucket] = self._counts.get(bucket, 0) + count
        self._count += len(seconds)
        self._largest = max(self._largest, float(seconds.max()))

    def settle(self) -> None:
        """Count those that wait."""
        fresh = np.array(self.fresh)
        del self.fresh[:]
        if len(fresh) >= _MANY:
            self._count_many(fresh)
            return
        for duration in fresh.tolist():
            bucket = 0
            if duration > _SMALLEST:
                bucket = min(int(math.log(duration / _SMALLEST) * _FINENESS), _BUCKETS - 1)
                self._largest = max(self._largest, duration)
            self._counts[bucket] = self._counts.get(bucket, 0) + 1
        self._count += len(fresh)

    def quantiles(self, wanted: Sequence[float]) -> list[float | None]:
        """The durations below which these shares lie, or ``None`` if nothing was counted."""
        self.settle()
        if not self._count:
            return [None] * len(wanted)
        found: list[float | None] = []
        for share in wanted:
            left = share * self._count
            bucket = 0
            for bucket in sorted(self._counts):
                left -= self._counts[bucket]
                if left <= 0:
                    break
            found.append(_SMALLEST * math.exp((bucket + 0.5) / _FINENESS))
        return found

    def merge(self, other: Latency) -> None:
        """Add all that another has counted."""
        other.settle()
        for bucket, count in other._counts.items():
            self._counts[bucket] = self._counts.get(bucket, 0) + count
        self._count += other._count
        self._largest = max(self._largest, other._largest)
