"""Random rows that depend on nothing but the seed and their own number.

A generator is an endless sequence of rows; asking for more of it, or for a part from the
middle, gives the same rows.  Rows are drawn in blocks, each from its own generator:

    seed, stream ──┬─ block 0: rows     0 …  4095
                   ├─ block 1: rows  4096 …  8191
                   └─ …

so that "the first 1,000 subscriptions" are a prefix of "the first 200,000", and a window
``start=50_000`` needs none of the rows before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.errors import InvalidInput

__all__ = ["BLOCK", "Floats", "per_dimension", "rows", "zipf_weights"]

Floats = npt.NDArray[np.float64]

#: Rows drawn from one generator.
BLOCK: Final = 4096


def rows(
    seed: int,
    stream: int,
    start: int,
    count: int,
    draw: Callable[[np.random.Generator, int], tuple[npt.NDArray[Any], ...]],
) -> tuple[npt.NDArray[Any], ...]:
    """Rows ``start`` to ``start + count`` of a stream; ``draw(rng, n)`` gives arrays of n rows."""
    if start < 0 or count < 0:
        raise InvalidInput(expected="start and count of at least 0", got=(start, count))
    first, behind = start // BLOCK, -(-(start + count) // BLOCK)
    blocks = [
        draw(np.random.default_rng((seed, stream, block)), BLOCK) for block in range(first, max(behind, first + 1))
    ]
    skip = start - first * BLOCK
    columns = blocks[0] if len(blocks) == 1 else tuple(np.concatenate(part) for part in zip(*blocks, strict=True))
    return tuple(column[skip : skip + count] for column in columns)


def zipf_weights(count: int, exponent: float) -> Floats:
    """The probabilities of ``count`` ranks: proportional to ``rank ** -exponent``."""
    weights = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    return np.asarray(weights / weights.sum(), np.float64)


def per_dimension(value: float | tuple[float, ...], dimensions: int, name: str, lo: float, hi: float) -> Floats:
    """A factor as one number per dimension, checked; a single number holds for all of them."""
    factors = np.full(dimensions, value) if isinstance(value, int | float) else np.asarray(value, np.float64)
    if factors.shape != (dimensions,):
        raise InvalidInput(expected=f"one number or {dimensions} of them", got=value, where=name)
    if not ((factors >= lo) & (factors <= hi)).all():
        raise InvalidInput(expected=f"numbers in [{lo}, {hi}]", got=value, where=name)
    return factors.astype(np.float64)
