"""Dimension selection: which attributes deserve the bits.

With few bits every indexed attribute takes precision from the others.  Five ways to choose,
from cheap to exhaustive; ω dimensions, ψ events, s filters:

    EVS    variance of the events                                     ω·ψ
    EMCS   1 - matches per dimension / (ψ·s)                          ω·ψ·log s
    CS     first principal component of how dimensions match together ω²·ψ·s/64
    GS     true false-positive rate, drop one dimension at a time     ω² evaluations
    BRS    true false-positive rate of every subset                   2^ω evaluations

EVS here is of values *divided by their domain*: raw variance would prefer dimensions with
large numbers.  EMCS and CS count what constraints say, sets and unions included (see `similarity`).
All counts are plain sums over events, so those of batches can be added: `moments`, `matches`,
`pairs` count, `evs`, `emcs`, `cs` conclude.

GS and BRS ask a function for the false-positive rate of a set of dimensions; `fpr_of` makes
one from events, subscriptions and the bits to spend.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sievenet.content import EventBatch, Filter, Subscription
from sievenet.errors import InvalidInput
from sievenet.index.arrays import each_filter
from sievenet.index.evaluate import Evaluation, Matching
from sievenet.index.plan import DEFAULT_BUDGET, Kind, Plan
from sievenet.index.similarity import Similarity

__all__ = [
    "Selection",
    "Tried",
    "best_subset",
    "cs",
    "emcs",
    "evs",
    "fpr_of",
    "greedy",
    "matches",
    "moments",
    "pairs",
    "ranked",
]

_Floats = npt.NDArray[np.float64]
_Counts = npt.NDArray[np.int64]
#: The false-positive rate when only these dimensions are indexed.
Evaluate = Callable[[tuple[int, ...]], float]

#: Subsets of more dimensions than this are too many to try.
_MAX_EXHAUSTIVE: Final = 16


class Tried(NamedTuple):
    """A set of dimensions and what it led to."""

    dimensions: tuple[int, ...]
    fpr: float


class Selection(NamedTuple):
    """The best set found, and every set that was tried, in order."""

    best: Tried
    tried: tuple[Tried, ...]


def ranked(factors: _Floats, count: int | None = None) -> tuple[int, ...]:
    """The dimensions of the highest selectivity factors, best first; equal ones in order."""
    order = np.argsort(-np.asarray(factors), kind="stable")
    return tuple(int(i) for i in order[:count])


# -- EVS ------------------------------------------------------------------------------------


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


# -- EMCS -----------------------------------------------------------------------------------


def matches(batch: EventBatch, wanted: Sequence[Filter | Subscription]) -> _Counts:
    """Per dimension how many (event, filter) pairs match there; these add up over events."""
    return Similarity(batch.schema, each_filter(wanted)).matches(batch)


def emcs(counts: _Counts, events: int, filters: int) -> _Floats:
    """1 - matches / (events · filters) of each dimension."""
    return 1.0 - counts / max(events * filters, 1)


# -- CS -------------------------------------------------------------------------------------


def pairs(batch: EventBatch, wanted: Sequence[Filter | Subscription]) -> _Counts:
    """For each two dimensions the sum over events of filters that match in both; these add up."""
    return Similarity(batch.schema, each_filter(wanted)).pairs(batch)


def cs(counts: _Counts, events: int, filters: int) -> _Floats:
    """The weight of each dimension in the first principal component of 1 - similarity."""
    matrix = 1.0 - counts / max(events * filters, 1)
    values, vectors = np.linalg.eigh(matrix)
    found: _Floats = np.abs(vectors[:, int(np.argmax(values))])
    return found


# -- GS and BRS -----------------------------------------------------------------------------


def greedy(dimensions: Sequence[int], evaluate: Evaluate) -> Selection:
    """GS: start with all, drop again and again the dimension whose loss hurts least; the best set seen."""
    current = tuple(sorted(dimensions))
    if not current:
        raise InvalidInput("Expected at least one dimension to select from")
    tried = [Tried(current, evaluate(current))]
    kept = [tried[0]]
    while len(current) > 1:
        rest = [tuple(d for d in current if d != gone) for gone in current]
        results = [Tried(dims, evaluate(dims)) for dims in rest]
        tried += results
        kept.append(min(results, key=lambda t: t.fpr))
        current = kept[-1].dimensions
    return Selection(_best(kept), tuple(tried))


def best_subset(dimensions: Sequence[int], evaluate: Evaluate, count: int | None = None) -> Selection:
    """BRS: every subset (of ``count`` dimensions if given)."""
    every = tuple(sorted(dimensions))
    if not 1 <= len(every) <= _MAX_EXHAUSTIVE:
        raise InvalidInput(expected=f"1 to {_MAX_EXHAUSTIVE} dimensions", got=len(every), where="BRS")
    sizes = range(1, len(every) + 1) if count is None else (count,)
    tried = [Tried(dims, evaluate(dims)) for size in sizes for dims in combinations(every, size)]
    if not tried:
        raise InvalidInput(expected=f"1 to {len(every)} dimensions to keep", got=count, where="BRS")
    return Selection(_best(tried), tuple(tried))


def _best(tried: Sequence[Tried]) -> Tried:
    return min(tried, key=lambda t: (t.fpr, len(t.dimensions)))


def fpr_of(
    batch: EventBatch,
    subscriptions: Sequence[Filter | Subscription],
    bits: int,
    budget: int = DEFAULT_BUDGET,
    kind: Kind = "dz",
) -> Evaluate:
    """The true false-positive rate of regular indexing on a set of dimensions (numbers of attributes)."""
    schema = batch.schema
    names = list(schema.positions)
    matching = Matching(schema, subscriptions)
    wanted = int(matching.per_event(batch).sum())

    def fpr(dimensions: tuple[int, ...]) -> float:
        plan = Plan.regular(schema, bits, [names[d] for d in dimensions], kind)
        _, delivered = Evaluation(plan, subscriptions, budget, matching=matching).delivered(batch)
        return (delivered - wanted) / delivered if delivered else 0.0

    return fpr
