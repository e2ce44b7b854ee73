"""Clustering: filters into groups, groups into minimum bounding rectangles (MBRs).

Selective indexing spends bits inside rectangles that filters live in.  Filters are points
here, their lower and upper ends scaled to the domains, and k-means (seeded, k-means++
start) groups them; the rectangle of a group is the hull of its boxes.

How many rectangles?  Each doubling costs one bit of every code and saves as many as the
rectangles are smaller than the whole.  `choose` asks the true false-positive rate.

Cost: groups · filters · dimensions per round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sievenet.content import Filter, Schema, Subscription
from sievenet.errors import InvalidInput
from sievenet.index.arrays import bounds, domains, each_filter

__all__ = ["Choice", "choose", "cluster", "hulls", "rectangles"]

_Floats = npt.NDArray[np.float64]
Rectangle = dict[str, tuple[float, float]]


class Choice(NamedTuple):
    """The number of rectangles with the lowest false-positive rate, and all that were tried."""

    rectangles: int
    fpr: float
    tried: dict[int, float]


def cluster(features: _Floats, count: int, seed: int = 0, rounds: int = 50) -> npt.NDArray[np.int64]:
    """k-means: the group of each row.  Groups are numbered without gaps; there can be fewer than asked."""
    if count < 1:
        raise InvalidInput(expected="at least one group", got=count, where="cluster")
    if not len(features):
        return np.zeros(0, np.int64)
    rng = np.random.default_rng(seed)
    centres = _spread(features, count, rng)
    labels = np.full(len(features), -1, np.int64)
    for _ in range(rounds):
        nearest = np.argmin(_distances(features, centres), axis=1)
        if np.array_equal(nearest, labels):
            break
        labels = nearest
        present = np.unique(labels)
        centres = np.stack([features[labels == g].mean(axis=0) for g in present])
        labels = np.searchsorted(present, labels)
    numbered: npt.NDArray[np.int64] = np.unique(labels, return_inverse=True)[1].astype(np.int64)
    return numbered


def _spread(features: _Floats, count: int, rng: np.random.Generator) -> _Floats:
    """k-means++: each new centre is a row, the more likely the farther it is from the others."""
    chosen = [features[rng.integers(len(features))]]
    distance = ((features - chosen[0]) ** 2).sum(axis=1)
    while len(chosen) < count and distance.max() > 0:
        chosen.append(features[rng.choice(len(features), p=distance / distance.sum())])
        distance = np.minimum(distance, ((features - chosen[-1]) ** 2).sum(axis=1))
    return np.stack(chosen)


def _distances(features: _Floats, centres: _Floats) -> _Floats:
    """Squared distances, rows × centres."""
    found: _Floats = (features**2).sum(axis=1)[:, None] - 2.0 * features @ centres.T + (centres**2).sum(axis=1)[None, :]
    return found


def hulls(lo: _Floats, hi: _Floats, labels: npt.NDArray[np.int64]) -> tuple[_Floats, _Floats]:
    """The rectangle of each group: lower and upper ends, groups × dimensions."""
    groups = range(int(labels.max()) + 1 if len(labels) else 0)
    shape = (len(groups), lo.shape[1])
    lower = np.array([lo[labels == g].min(axis=0) for g in groups]).reshape(shape)
    upper = np.array([hi[labels == g].max(axis=0) for g in groups]).reshape(shape)
    return lower, upper


def rectangles(
    schema: Schema,
    wanted: Iterable[Filter | Subscription],
    count: int,
    seed: int = 0,
    dimensions: Sequence[str] | None = None,
) -> list[Rectangle]:
    """MBRs of subscriptions, as `Plan.selective` takes them.

    Filters are grouped by the given dimensions (by default all with an order); rectangles
    bound every attribute with an order.
    """
    filters = each_filter(wanted)
    ordered = [n for n in schema.positions if schema[n].type != "str" or schema[n].values is not None]
    if not filters or not ordered:
        return [{}]
    lo, hi = bounds(schema, filters)
    low, high = domains(schema)
    span = np.where(high > low, high - low, 1.0)
    used = [schema.positions[n] for n in ordered if dimensions is None or n in dimensions]
    features = np.hstack([((lo - low) / span)[:, used], ((hi - low) / span)[:, used]])
    lower, upper = hulls(lo, hi, cluster(features, count, seed))
    places = {n: schema.positions[n] for n in ordered}
    found: list[Rectangle] = []
    for a, b in zip(lower, upper, strict=True):
        area = {n: (float(a[i]), float(b[i])) for n, i in places.items()}
        if area not in found:
            found.append(area)
    return found


def choose(counts: Iterable[int], evaluate: Callable[[int], float]) -> Choice:
    """Try several numbers of rectangles; the one with the lowest false-positive rate, fewest first."""
    tried = {count: evaluate(count) for count in sorted(set(counts))}
    if not tried:
        raise InvalidInput("Expected at least one number of rectangles to try")
    best = min(tried, key=lambda c: (tried[c], c))
    return Choice(best, tried[best], tried)
