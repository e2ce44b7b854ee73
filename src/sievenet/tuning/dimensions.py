"""Ranks of dimensions: which attributes deserve the bits.

With few bits every indexed attribute takes precision from the others.  Three ways to rank them without trying any plan;
ω dimensions, ψ events, s filters:

    EVS    variance of the events                                     ω·ψ
    EMCS   1 - matches per dimension / (ψ·s)                          ω·ψ·s/64
    CS     first principal component of how dimensions match together ω²·ψ·s/64

EVS here is of values *divided by their domain*: raw variance would prefer dimensions with large numbers.  EMCS and CS
count what constraints say, sets and unions included (see `similarity`).  All are concluded from plain sums over events,
so those of batches can be added.  GS and BRS ask what sets of dimensions truly cost: see `search`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["cs", "emcs", "evs", "moments", "ranked"]

_Floats = npt.NDArray[np.float64]
_Counts = npt.NDArray[np.int64]


def ranked(factors: _Floats, count: int | None = None) -> tuple[int, ...]:
    """The dimensions of the highest selectivity factors, best first; equal ones in order."""
    order = np.argsort(-np.asarray(factors), kind="stable")
    return tuple(int(i) for i in order[:count])


def moments(points: _Floats, lo: _Floats, hi: _Floats) -> _Floats:
    """Count, sum and sum of squares per dimension of values scaled to their domains; these add up."""
    span = np.where(hi > lo, hi - lo, 1.0)
    scaled = (points - lo) / span
    return np.stack([np.full(len(lo), float(len(points))), scaled.sum(axis=0), (scaled * scaled).sum(axis=0)])


def evs(sums: _Floats) -> _Floats:
    """The variance of each dimension, relative to its domain."""
    count = np.maximum(sums[0], 1.0)
    found: _Floats = np.maximum(sums[2] / count - (sums[1] / count) ** 2, 0.0)
    return found


def emcs(matches: _Counts, events: int, filters: int) -> _Floats:
    """1 - matches / (events · filters) of each dimension."""
    return 1.0 - matches / max(events * filters, 1)


def cs(pairs: _Counts, events: int, filters: int) -> _Floats:
    """The weight of each dimension in the first principal component of 1 - similarity."""
    matrix = 1.0 - pairs / max(events * filters, 1)
    values, vectors = np.linalg.eigh(matrix)
    found: _Floats = np.abs(vectors[:, int(np.argmax(values))])
    return found
