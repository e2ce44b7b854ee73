"""Which subspaces to divert at which switches: SSA and CSA of PLEROMA's hybrid filtering.

**SSA** takes whole switches: the one with the highest benefit whose penalty the limit still allows, then the next, with
what is left (algorithm 4).  **CSA** has the event space cut into disjoint *clusters*.  In each it finds the best
switch, then of those pairs the ones worth most within the limit (`knapsack`), and so on with the rest (algorithm 5).

Both are greedy, and which of several greedy answers is better depends.  So CSA also tries pairs by benefit per penalty,
those worth most together or those worth about the same, and SSA's own answer, and keeps the best: it is never worse.

The limit is a number of deliveries that may go through matchers.  With mean latencies N through the network and A
through a matcher, and D deliveries in all, a mean of at most Δ allows

    D · (Δ - N) / (A - N)

of them.  Pure: no clock, no network.  Cost of one round: a few passes over the rows of the model.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sievenet.control.hybrid.knapsack import knapsack
from sievenet.control.hybrid.model import Model
from sievenet.index import Dz

__all__ = ["Choice", "allowed", "clusters", "csa", "evaluated", "ssa"]

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
#: Rounds after which whatever is left is left alone.
_ROUNDS: Final = 200
#: Of the best pair's worth per penalty, what others of a round must be worth.
_LEVEL: Final = 0.7


class Choice(NamedTuple):
    """What to divert."""

    #: Switches and clusters (0 if there are none).
    pairs: tuple[tuple[str, int], ...]
    benefit: float
    penalty: float


def allowed(deliveries: float, bound: float | None, network: float, matcher: float) -> float:
    """How many deliveries may go through matchers, with these mean latencies; None is no bound.

    >>> allowed(100, 0.003, 0.001, 0.005)
    50.0
    """
    if bound is None or bound >= matcher:
        return deliveries
    if bound <= network or matcher <= network:
        return 0.0
    return deliveries * (bound - network) / (matcher - network)


def clusters(cells: Ints, weights: npt.NDArray[np.float64], bits: int, count: int) -> list[Dz]:
    """The event space cut into at most so many dz, each of about the same weight; cells are dz of ``bits`` bits."""
    found = [Dz(0, 0)]
    while len(found) < count:
        loads = [(float(weights[_inside(cells, bits, dz)].sum()), dz) for dz in found if dz.length < bits]
        load, heaviest = max(loads, key=lambda each: each[0], default=(0.0, None))
        if heaviest is None or load <= 0:
            break
        found.remove(heaviest)
        found += heaviest.children
    return sorted(found, key=lambda dz: (dz.code, dz.length))


def _inside(cells: Ints, bits: int, dz: Dz) -> Bools:
    found: Bools = (cells >> (bits - dz.length)) == dz.bits
    return found


def numbered(cells: Ints, bits: int, regions: list[Dz]) -> Ints:
    """The cluster of each cell."""
    found = np.zeros(len(cells), np.int64)
    for i, dz in enumerate(regions):
        found[_inside(cells, bits, dz)] = i
    return found


def ssa(model: Model, limit: float, where: Bools | None = None) -> Choice:
    """Whole switches, the most beneficial first."""
    return _rounds(model, np.zeros(len(model), np.int64), 1, limit, where)


def csa(model: Model, cluster: Ints, count: int, limit: float, where: Bools | None = None) -> Choice:
    """Clusters at switches; ``cluster`` numbers that of each row."""
    found = [
        _rounds(model, cluster, count, limit, where),
        _rounds(model, cluster, count, limit, where, by_ratio=True),
        _rounds(model, cluster, count, limit, where, by_ratio=True, level=True),
    ]
    whole = ssa(model, limit, where)
    pairs = tuple((switch, i) for switch, _ in whole.pairs for i in range(count))
    return max((*found, Choice(pairs, whole.benefit, whole.penalty)), key=lambda choice: choice.benefit)


def evaluated(model: Model, cluster: Ints, pairs: tuple[tuple[str, int], ...]) -> Choice:
    """What these pairs are worth now."""
    number = {name: i for i, name in enumerate(model.switches)}
    selected = np.zeros(len(model), np.bool_)
    for switch, each in pairs:
        if switch in number:
            selected |= (model.node == number[switch]) & (cluster == each)
    return Choice(pairs, *model.saved(selected))


def _rounds(
    model: Model,
    cluster: Ints,
    count: int,
    limit: float,
    where: Bools | None,
    *,
    by_ratio: bool = False,
    level: bool = False,
) -> Choice:
    width = len(model.switches)
    pair = cluster * width + model.node
    usable = np.ones(width, np.bool_) if where is None else where
    selected = np.zeros(len(model), np.bool_)
    taken = np.zeros(count * width, np.bool_)
    left, chosen = limit, []
    for _ in range(_ROUNDS if len(model) else 0):
        row_benefit, row_penalty = model.sums(selected)
        benefit = np.bincount(pair, row_benefit, count * width)
        penalty = np.bincount(pair, row_penalty, count * width)
        good = (benefit > 0) & (penalty <= left) & ~taken & np.tile(usable, count)
        worth = np.where(good, benefit / np.maximum(penalty, 1e-9) if by_ratio else benefit, -1.0)
        best = worth.reshape(count, width).argmax(axis=1) + np.arange(count) * width
        best = best[good[best]]
        if not len(best):
            break
        if level:
            best = best[np.argsort(-worth[best], kind="stable")]
            best = best[worth[best] >= _LEVEL * worth[best[0]]]
            items = np.flatnonzero(np.cumsum(penalty[best]) <= left).tolist()
        else:
            items = knapsack(benefit[best].tolist(), penalty[best].tolist(), left)
        if not items:
            break
        for i in best[items].tolist():
            taken[i] = True
            left -= float(penalty[i])
            chosen.append((model.switches[i % width], i // width))
        selected |= taken[pair]
    return Choice(tuple(chosen), *model.saved(selected))
