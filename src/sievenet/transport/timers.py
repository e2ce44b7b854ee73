"""SRM's timers, which adapt: who asks, and who answers, is decided by chance and distance.

A request waits uniformly in [C₁d, (C₁ + C₂)d] and a repair in [D₁d, (D₁ + D₂)d], d the distance in seconds: the nearest
speak first and silence the others. Too many duplicates stretch the interval, long delays without duplicates shrink it
(after Floyd et al., SRM, section VII: average duplicates and delay decide, moved by small steps within bounds).
"""

from __future__ import annotations

from random import Random
from typing import Final

__all__ = ["AdaptiveTimer"]

_SMOOTH: Final = 0.25


class AdaptiveTimer:
    """One pair of parameters and how well it has done."""

    def __init__(self, start: float, width: float, *, floor: float = 0.5) -> None:
        self.start = start
        self.width = width
        self._floor = floor
        #: Averages: duplicates per message, and delay in units of the distance.
        self.duplicates = 0.0
        self.delay = 0.0

    @property
    def mean(self) -> float:
        """Average wait in units of the distance."""
        return self.start + self.width / 2

    def draw(self, rng: Random, distance: float, factor: float = 1.0) -> float:
        """Seconds to wait at this distance."""
        return factor * distance * (self.start + self.width * rng.random())

    def finished(self, duplicates: int, delay: float) -> None:
        """A message is settled: how many spoke needlessly, and how long the first one took (in distances)."""
        self.duplicates += _SMOOTH * (duplicates - self.duplicates)
        self.delay += _SMOOTH * (delay - self.delay)
        if self.duplicates >= 1.0:
            self.start += 0.1
            self.width += 0.5
        elif self.duplicates < 0.9:
            if self.delay > 1.0:
                self.width -= 0.1
            if self.duplicates < 0.25:
                self.start -= 0.05
            else:
                self.start += 0.05
        self.start = min(max(self.start, self._floor), 2.0)
        self.width = min(max(self.width, 0.5), 4.0)
