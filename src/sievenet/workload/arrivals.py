"""When things happen: arrival processes as arrays of times.

Each process is a frozen value with one question, ``times(count)``: the first ``count``
arrival times in seconds from 0, ascending.  As with the other generators a longer answer
begins with the shorter one.

    Constant   | | | | | | | | | | |      the same gap throughout
    Poisson    ||  |   | ||    |  | |     gaps are exponential: no memory
    Bursts     |  |   |  |||||||||  |     Poisson, with peaks that rise and fall
    Greedy         ||||||||||||||||||     all there is, as fast as the publisher can

`Bursts` is an inhomogeneous Poisson process: the background, and per burst a trapezoid on
top of it that reaches ``peak`` after ``rise`` seconds, holds it and falls as it rose.

      peak      ╱▔▔╲             ╱▔▔╲       a burst adds about (peak - rate) * (rise + hold) events
               ╱    ╲           ╱    ╲
      rate ───╱──────╲─────────╱──────╲──   bursts start at random, ``gap`` seconds apart on average

Because Poisson processes add up, it is drawn exactly, as the sum of its parts: no thinning.
(A time within a trapezoid is the sum of two uniform ones.)

The defaults are the settings of the evaluation of event caches: a greedy publisher at
2,000/s from the second second on, Poisson at 750/s, and Poisson at 100/s with peaks of
2,000/s that take half a second to build up.  Of the latter's 100,000 events, about 30
peaks and one event in six above 1,000/s are reported; ``hold`` and ``gap`` are set so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sievenet.errors import InvalidInput
from sievenet.workload.draws import Floats, rows

__all__ = ["Arrivals", "Bursts", "Constant", "Greedy", "Poisson"]


class Arrivals(Protocol):
    """Any arrival process."""

    def times(self, count: int) -> Floats:
        """The first ``count`` arrival times in seconds, ascending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """One arrival every ``1 / rate`` seconds, the first at 0."""

    #: Arrivals per second.
    rate: float = 1000.0

    def __post_init__(self) -> None:
        _check_positive(self.rate, "rate")

    def times(self, count: int) -> Floats:
        """The first ``count`` arrival times in seconds."""
        return np.arange(count) / self.rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisson:
    """Independent arrivals, ``rate`` per second on average."""

    #: Mean arrivals per second.
    rate: float = 750.0
    seed: int = 0

    def __post_init__(self) -> None:
        _check_positive(self.rate, "rate")

    def times(self, count: int) -> Floats:
        """The first ``count`` arrival times in seconds."""
        return _poisson(self.seed, 0, count, self.rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Greedy:
    """A publisher that sends all it has, at the highest rate it can, after ``delay`` seconds."""

    #: Highest rate in events per second; infinite if nothing slows the publisher down.
    rate: float = 2000.0
    #: Seconds before the first.
    delay: float = 2.0

    def __post_init__(self) -> None:
        _check_positive(self.rate, "rate")

    def times(self, count: int) -> Floats:
        """The first ``count`` arrival times in seconds."""
        return self.delay + np.arange(count) / self.rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Bursts:
    """A Poisson background with peaks at random moments."""

    #: Mean arrivals per second between bursts.
    rate: float = 100.0
    #: Rate at the top of a burst.
    peak: float = 2000.0
    #: Seconds from a burst's start to its top; it falls as long.
    rise: float = 0.5
    #: Seconds at the top.
    hold: float = 0.3
    #: Mean seconds from one burst's start to the next's.
    gap: float = 18.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("rate", "rise", "gap"):
            _check_positive(getattr(self, name), name)
        if not self.hold >= 0:
            raise InvalidInput(expected="at least 0 seconds", got=self.hold, where="hold")
        if not self.rate <= self.peak < math.inf:
            raise InvalidInput(expected=f"a finite peak of at least {self.rate}", got=self.peak, where="peak")

    @property
    def mean_rate(self) -> float:
        """Arrivals per second in the long run."""
        return self.rate + self._size / self.gap

    @property
    def _size(self) -> float:
        """Mean arrivals that one burst adds: the area of its trapezoid."""
        return (self.peak - self.rate) * (self.rise + self.hold)

    def starts(self, until: float) -> Floats:
        """When bursts start, up to a time."""
        count = int(until / self.gap) + 16
        while True:
            starts = _poisson(self.seed, 1, count, 1.0 / self.gap)
            if starts[-1] > until:
                return starts[starts <= until]
            count *= 2

    def times(self, count: int) -> Floats:
        """The first ``count`` arrival times in seconds."""
        until = count / self.mean_rate + self.gap
        while True:
            times = self._times_until(until)
            if len(times) >= count:
                return times[:count]
            until *= 1.5

    def _times_until(self, until: float) -> Floats:
        parts = [_poisson(self.seed, 0, int(self.rate * until + 10.0 * math.sqrt(self.rate * until)) + 16, self.rate)]
        for number, start in enumerate(self.starts(until).tolist()):
            rng = np.random.default_rng((self.seed, 2, number))
            ramp, plateau = rng.random((2, rng.poisson(self._size)))
            parts.append(start + self.rise * ramp + (self.rise + self.hold) * plateau)
        # The background may end early, though hardly ever: nothing behind its end is complete.
        times = np.sort(np.concatenate(parts))
        return np.asarray(times[times <= min(until, parts[0][-1])], np.float64)


def _poisson(seed: int, stream: int, count: int, rate: float) -> Floats:
    (gaps,) = rows(seed, stream, 0, count, lambda rng, n: (rng.exponential(1.0, n),))
    return np.asarray(np.cumsum(gaps) / rate, np.float64)


def _check_positive(value: float, name: str) -> None:
    if not value > 0:
        raise InvalidInput(expected="more than 0", got=value, where=name)
