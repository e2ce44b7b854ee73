"""Measuring: repeat, take the best, interleave what is compared.

Noise on a shared machine only ever adds time, so the *least* of several repetitions is the steadiest estimate of what
the code costs. A ratio of two such numbers is only fair when both were taken under the same weather; `ratio` therefore
runs baseline and candidate in turn,

    warm b, warm c,  b c  b c  b c …

and reports, besides the ratio of the best times, the spread of the ratios of neighbours.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of each repetition, in the order they ran."""

    times: tuple[float, ...]

    @property
    def best(self) -> float:
        """The least of the repetitions, in seconds."""
        return min(self.times)

    @property
    def median(self) -> float:
        """The middle of the repetitions, in seconds."""
        return statistics.median(self.times)

    def per_second(self, count: float) -> float:
        """How many of `count` things done in one repetition that is per second, at best."""
        return count / self.best


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times quicker the candidate was than the baseline, per unit of work."""

    baseline: Timing
    candidate: Timing
    baseline_units: float = 1.0
    candidate_units: float = 1.0

    @property
    def speedup(self) -> float:
        """Best time of the baseline over best time of the candidate, each per unit of its work."""
        return (self.baseline.best / self.baseline_units) / (self.candidate.best / self.candidate_units)

    @property
    def spread(self) -> tuple[float, float]:
        """Least and largest speedup among neighbouring repetitions: how steady the ratio was."""
        scale = self.candidate_units / self.baseline_units
        pairs = [b / c * scale for b, c in zip(self.baseline.times, self.candidate.times, strict=True)]
        return min(pairs), max(pairs)


@contextmanager
def quiet_gc() -> Iterator[None]:
    """Collect garbage now and keep the collector still within; it is as it was afterwards."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def best_of(fn: Callable[[], object], repeats: int = 5, *, warmup: int = 1) -> Timing:
    """Time `fn` `repeats` times, after `warmup` untimed calls that compile and fill caches."""
    _require_repeats(repeats)
    for _ in range(warmup):
        fn()
    with quiet_gc():
        return Timing(tuple(_seconds(fn) for _ in range(repeats)))


def ratio(
    baseline: Callable[[], object],
    candidate: Callable[[], object],
    repeats: int = 5,
    *,
    warmup: int = 1,
    baseline_units: float = 1.0,
    candidate_units: float = 1.0,
) -> Ratio:
    """Time baseline and candidate in turn; the units say how much work one call of each does, if not the same."""
    _require_repeats(repeats)
    for _ in range(warmup):
        baseline()
        candidate()
    slow: list[float] = []
    quick: list[float] = []
    with quiet_gc():
        for _ in range(repeats):
            slow.append(_seconds(baseline))
            quick.append(_seconds(candidate))
    return Ratio(Timing(tuple(slow)), Timing(tuple(quick)), baseline_units, candidate_units)


def quantiles(values: Iterable[float], points: Sequence[float] = (0.5, 0.99)) -> dict[str, float]:
    """The named quantiles of `values`, linearly interpolated: `{"p50": …, "p99": …}`, `p99.9` for 0.999."""
    ordered = sorted(float(value) for value in values)
    if not ordered:
        raise ValueError("expected at least one value to take quantiles of, got none")
    found: dict[str, float] = {}
    for point in points:
        if not 0.0 <= point <= 1.0:
            raise ValueError(f"expected a quantile in 0..1, got {point!r}")
        place = point * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        found[f"p{round(point * 100, 6):g}"] = ordered[low] + (ordered[high] - ordered[low]) * (place - low)
    return found


def least(values: Iterable[float]) -> float:
    """The smallest; not a number if any is none, or if there are no values. (`min` may pass over what is no number.)"""
    found = list(values)
    return min(found) if found and not any(map(math.isnan, found)) else math.nan


def most(values: Iterable[float]) -> float:
    """The largest; not a number if any is none, or if there are no values. (`max` may pass over what is no number.)"""
    return -least(-each for each in values)


def middle(values: Iterable[float]) -> float:
    """The median; not a number if any is none, or if there are no values."""
    found = list(values)
    return statistics.median(found) if found and not any(map(math.isnan, found)) else math.nan


def share(part: float, whole: float) -> float:
    """`part / whole`; not a number where there is nothing to have a share of."""
    return part / whole if whole else math.nan


def _seconds(fn: Callable[[], object]) -> float:
    start = time.perf_counter()
    fn()
    # A clock tick at least: a rate is then large, not a division by zero.
    return max(time.perf_counter() - start, 1e-9)


def _require_repeats(repeats: int) -> None:
    if repeats < 1:
        raise ValueError(f"expected at least one repetition, got {repeats}")
