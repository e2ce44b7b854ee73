"""Which subspaces to divert at which switches: SSA and CSA of PLEROMA's hybrid filtering.

**SSA** takes whole switches: the one with the highest benefit whose penalty the limit still allows, then the next, with
what is left (algorithm 4).  **CSA** has the event space cut into disjoint *clusters*.  In each it finds the best
switch, then of those pairs the ones worth most within the limit (`knapsack`), and so on with the rest (algorithm 5).

Both are greedy by benefit, and fill the limit with what is large.  So CSA also goes by benefit per penalty, in small
steps: each takes all pairs whose worth is about the best and that do not concern each other, since what is left of one
above or below another is a different matter then.  On a single tree that comes close to what any choice could reach.
It also tries SSA's own answer, and keeps the best of the three: it is never worse.

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

__all__ = ["Choice", "allowed", "clusters", "csa", "evaluated", "settled", "ssa"]

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
#: Rounds after which whatever is left is left alone: of switches, of pairs by benefit, and by benefit per penalty.
_SWITCHES: Final = 200
_ROUNDS: Final = 12
_STEPS: Final = 400
#: Of the best pair's benefit per penalty, what others of a step must be worth.
_LEVEL: Final = 0.8
#: How much heavier the heaviest cluster may be than that of new clusters.
_UNEVEN: Final = 2.0


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


def clusters(cells: Ints, weights: Floats, bits: int, count: int) -> list[Dz]:
    """The event space cut into at most so many dz, each of about the same weight; cells are dz of ``bits`` bits."""
    found = [Dz(0, 0)]
    loads = [float(weights.sum())]
    while len(found) < count:
        heaviest = max(range(len(found)), key=lambda i: loads[i] if found[i].length < bits else 0.0)
        if loads[heaviest] <= 0 or found[heaviest].length >= bits:
            break
        del loads[heaviest]
        for half in found.pop(heaviest).children:
            found.append(half)
            loads.append(float(weights[_inside(cells, bits, half)].sum()))
    return sorted(found, key=lambda dz: (dz.code, dz.length))


def settled(before: list[Dz], cells: Ints, weights: Floats, bits: int, count: int, least: int = 0) -> list[Dz]:
    """The clusters there are, while they share the weight about as evenly as new ones would: those are returned else.

    Weights are never the same twice; were clusters made anew each time, all that is diverted would change with them.
    There have to be ``least`` of them, if new ones could be so many.
    """
    new = clusters(cells, weights, bits, count)
    if not before or not min(least, len(new)) <= len(before) <= count:
        return new
    heaviest = [np.bincount(numbered(cells, bits, each), weights).max(initial=0.0) for each in (before, new)]
    return before if heaviest[0] <= _UNEVEN * heaviest[1] else new


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
    return _rounds(model, np.zeros(len(model), np.int64), 1, limit, where, _SWITCHES)


def csa(model: Model, cluster: Ints, count: int, limit: float, where: Bools | None = None) -> Choice:
    """Clusters at switches; ``cluster`` numbers that of each row."""
    if not _Greedy(model, cluster, count, limit, where).look()[2].any():
        return Choice((), 0.0, 0.0)  # nor may whole switches be taken: they cost as much as any of their clusters
    found = _rounds(model, cluster, count, limit, where, _ROUNDS), _steps(model, cluster, count, limit, where)
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


class _Greedy:
    """Pairs of a switch and a cluster, taken one after the other while the limit allows."""

    def __init__(self, model: Model, cluster: Ints, count: int, limit: float, where: Bools | None) -> None:
        self.width = len(model.switches)
        self._model, self.left, self.count = model, limit, count
        #: The pair of each row; pairs of a cluster follow each other.
        self.pair = cluster * self.width + model.node
        self._usable = np.tile(model.candidates(where), count)
        self._selected = np.zeros(len(model), np.bool_)
        self._taken = np.zeros(count * self.width, np.bool_)
        self._chosen: list[int] = []

    def look(self) -> tuple[Floats, Floats, Bools]:
        """Benefit and penalty that each pair would add now, and which of them may be taken."""
        rows = self._model.sums(self._selected)
        benefit, penalty = (np.bincount(self.pair, each, len(self._taken)).astype(np.float64) for each in rows)
        return benefit, penalty, (benefit > 0) & (penalty <= self.left) & ~self._taken & self._usable

    def take(self, pairs: Ints, penalty: Floats) -> None:
        """Take pairs that together are within the limit."""
        self._taken[pairs] = True
        self.left -= float(penalty[pairs].sum())
        self._chosen += pairs.tolist()
        self._selected |= self._taken[self.pair]

    def choice(self) -> Choice:
        """What was taken."""
        pairs = tuple((self._model.switches[i % self.width], i // self.width) for i in self._chosen)
        return Choice(pairs, *self._model.saved(self._selected))


def _rounds(model: Model, cluster: Ints, count: int, limit: float, where: Bools | None, rounds: int) -> Choice:
    """The pair of each cluster with the highest benefit; of those what is worth most together; and so on."""
    greedy = _Greedy(model, cluster, count, limit, where)
    for _ in range(rounds if len(model) else 0):
        benefit, penalty, good = greedy.look()
        best = np.where(good, benefit, -1.0).reshape(count, -1).argmax(axis=1) + np.arange(count) * greedy.width
        best = best[good[best]]
        items = knapsack(benefit[best].tolist(), penalty[best].tolist(), greedy.left) if len(best) else []
        if not items:
            break
        greedy.take(best[items], penalty)
    return greedy.choice()


def _steps(model: Model, cluster: Ints, count: int, limit: float, where: Bools | None) -> Choice:
    """All pairs whose benefit per penalty is about the best, then those that are worth a little less, and so on."""
    from sievenet.control.hybrid.kernels import apart  # brings numba

    greedy = _Greedy(model, cluster, count, limit, where)
    rows = np.argsort(greedy.pair, kind="stable")
    starts = np.searchsorted(greedy.pair[rows], np.arange(count * greedy.width + 1))
    for _ in range(_STEPS if len(model) else 0):
        benefit, penalty, good = greedy.look()
        if not good.any():
            break
        with np.errstate(divide="ignore", invalid="ignore"):
            worth = np.where(good, benefit / penalty, -1.0)  # what costs nothing is worth any amount
        best = np.flatnonzero(worth >= _LEVEL * worth.max())
        best = apart(model.parent, rows, starts, best[np.argsort(-worth[best], kind="stable")])
        greedy.take(best[np.cumsum(penalty[best]) <= greedy.left], penalty)
    return greedy.choice()
