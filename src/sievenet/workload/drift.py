"""Hotspots that move: a random walk as a function of time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from sievenet.errors import InvalidInput
from sievenet.workload.draws import Floats, rows

__all__ = ["Drift", "reflected"]

#: Moves that a walk may take; bounds the memory of a query far in the future.
_MAX_MOVES: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Every ``every`` seconds, each hotspot moves by up to ``distance`` in each dimension.

    Where it is depends on the time alone, not on what was asked before.
    """

    #: Seconds between moves.
    every: float = 10.0
    #: Farthest move per dimension, as a part of the domain.
    distance: float = 0.1
    #: Whether a hotspot glides to its next place during the interval, or jumps at its end.
    gradual: bool = False

    def __post_init__(self) -> None:
        if not self.every > 0:
            raise InvalidInput(expected="more than 0 seconds", got=self.every, where="drift.every")
        if not 0.0 <= self.distance <= 1.0:
            raise InvalidInput(expected="a part in [0, 1]", got=self.distance, where="drift.distance")

    def path(self, seed: int, stream: int, times: Floats, walks: int) -> Floats:
        """How far each of ``walks`` independent walks is from its start at each time: [time, walk]."""
        if not len(times):
            return np.zeros((0, walks))
        if not (times >= 0).all():
            raise InvalidInput(expected="times from 0 on", got=float(times.min()), where="drift")
        elapsed = times / self.every
        moves = int(elapsed.max()) + 1
        if moves > _MAX_MOVES:
            raise InvalidInput(expected=f"at most {_MAX_MOVES} moves", got=moves, where="drift")
        (steps,) = rows(seed, stream, 0, moves, lambda rng, n: (rng.uniform(-1.0, 1.0, (n, walks)),))
        places = np.concatenate((np.zeros((1, walks)), np.cumsum(steps * self.distance, axis=0)))
        done = elapsed.astype(np.int64)
        if not self.gradual:
            return places[done]
        part = (elapsed - done)[:, None]
        return np.asarray((1.0 - part) * places[done] + part * places[done + 1], np.float64)


def reflected(positions: Floats) -> Floats:
    """Positions folded back into [0, 1] at its borders, as often as needed."""
    folded = np.mod(positions, 2.0)
    return np.asarray(np.where(folded > 1.0, 2.0 - folded, folded), np.float64)
