"""Clusters: filters into groups, groups into the rectangles that selective indexing spends its bits in.

A filter is a point: its lower and upper ends, scaled to the domains or, with a sample of events, by their ranks among
the events (so that prices of 20 and 40 are as far apart as traffic makes them, whatever the dearest share costs).
k-means (seeded, k-means++ start) groups them; the rectangle of a group is the hull of its filters.  Whoever has
executors can group by other means (`clustering` takes any).

Cost: groups · filters · dimensions per round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from sievenet.content import EventBatch, Filter, Schema, Subscription
from sievenet.errors import InvalidInput
from sievenet.tuning.arrays import bounds, domains, each_filter, points

__all__ = ["Clustering", "Rectangle", "cluster", "clustering", "hulls", "local_clustering", "rectangles"]

_Floats = npt.NDArray[np.float64]
_I64 = npt.NDArray[np.int64]

Rectangle = dict[str, tuple[float, float]]
#: Rectangles of about so many groups, clustered by some attributes.
Clustering = Callable[[int, Sequence[str]], list[Rectangle]]


def cluster(features: _Floats, count: int, seed: int = 0, rounds: int = 50) -> _I64:
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
    numbered: _I64 = np.unique(labels, return_inverse=True)[1].astype(np.int64)
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


def hulls(lo: _Floats, hi: _Floats, labels: _I64) -> tuple[_Floats, _Floats]:
    """The rectangle of each group: lower and upper ends, groups × dimensions."""
    groups = range(int(labels.max()) + 1 if len(labels) else 0)
    shape = (len(groups), lo.shape[1])
    lower = np.array([lo[labels == g].min(axis=0) for g in groups]).reshape(shape)
    upper = np.array([hi[labels == g].max(axis=0) for g in groups]).reshape(shape)
    return lower, upper


def clustering(
    schema: Schema,
    wanted: Iterable[Filter | Subscription],
    sample: EventBatch | None,
    labels: Callable[[_Floats, int], _I64],
) -> Clustering:
    """Rectangles around groups that ``labels`` makes of features; they bound every attribute with an order."""
    filters = each_filter(wanted)
    lo, hi = bounds(schema, filters)
    first, last = _scaled(schema, lo, hi, sample)
    ordered = [n for n in schema.positions if schema[n].type != "str" or schema[n].values is not None]

    def clusters(count: int, names: Sequence[str]) -> list[Rectangle]:
        used = [schema.positions[n] for n in ordered if n in names]
        if not filters or not used:
            return [{}]
        features = np.hstack([first[:, used], last[:, used]])
        lower, upper = hulls(lo, hi, labels(features, min(count, len(filters))))
        found: list[Rectangle] = []
        for a, b in zip(lower, upper, strict=True):
            area = {n: (float(a[schema.positions[n]]), float(b[schema.positions[n]])) for n in ordered}
            if area not in found:
                found.append(area)
        return found

    return clusters


def local_clustering(
    schema: Schema, wanted: Iterable[Filter | Subscription], seed: int = 0, sample: EventBatch | None = None
) -> Clustering:
    """Clusters made in this process."""
    return clustering(schema, wanted, sample, lambda features, count: cluster(features, count, seed))


def rectangles(schema: Schema, wanted: Iterable[Filter | Subscription], count: int, seed: int = 0) -> list[Rectangle]:
    """Rectangles of subscriptions by all attributes, as `Plan.selective` takes them."""
    return local_clustering(schema, wanted, seed)(count, list(schema.positions))


def _scaled(schema: Schema, lo: _Floats, hi: _Floats, sample: EventBatch | None) -> tuple[_Floats, _Floats]:
    """Ends of filters in [0, 1]: by the part of the sampled events below them, or of the domain without a sample."""
    if sample is None or not len(sample):
        low, high = domains(schema)
        span = np.where(high > low, high - low, 1.0)
        return (lo - low) / span, (hi - low) / span
    places = np.sort(points(sample), axis=0)
    columns = range(lo.shape[1])
    first = np.stack([np.searchsorted(places[:, d], lo[:, d], "left") for d in columns], axis=1)
    last = np.stack([np.searchsorted(places[:, d], hi[:, d], "right") for d in columns], axis=1)
    return first / len(places), last / len(places)
