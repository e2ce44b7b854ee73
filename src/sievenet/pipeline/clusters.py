"""Clusters of subscriptions by Spark ML, and the rectangles around them (MBRs).

A filter is a point: its lower and upper ends, scaled to the domains or, with a sample of events, by their ranks among
the events (so that prices of 20 and 40 are as far apart as traffic makes them, whatever the dearest share costs).
`kmeans` (k-means||, seeded) or `bisecting` (bisecting k-means) groups them; the hulls of the groups are the rectangles
that selective indexing spends its bits in.  The hulls themselves are those of `sievenet.index.clustering`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sievenet.content import EventBatch, Schema
from sievenet.index.arrays import bounds, domains, each_filter, points
from sievenet.index.clustering import cluster, hulls
from sievenet.pipeline.covers import Interest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Clustering", "Rectangle", "local_clustering", "spark_clustering"]

_Floats = npt.NDArray[np.float64]
_I64 = npt.NDArray[np.int64]

Rectangle = dict[str, tuple[float, float]]
#: Rectangles of about so many groups, clustered by some attributes.
Clustering = Callable[[int, Sequence[str]], list[Rectangle]]


def local_clustering(
    schema: Schema, wanted: Sequence[Interest], seed: int = 0, sample: EventBatch | None = None
) -> Clustering:
    """Clusters made in this process."""
    return _clustering(schema, wanted, sample, lambda features, count: cluster(features, count, seed))


def spark_clustering(
    spark: SparkSession,
    schema: Schema,
    wanted: Sequence[Interest],
    seed: int = 0,
    kind: Literal["kmeans", "bisecting"] = "kmeans",
    sample: EventBatch | None = None,
) -> Clustering:
    """Clusters made by Spark ML."""
    return _clustering(schema, wanted, sample, lambda features, count: _labels(spark, features, count, seed, kind))


def _clustering(
    schema: Schema, wanted: Sequence[Interest], sample: EventBatch | None, labels: Callable[[_Floats, int], _I64]
) -> Clustering:
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


def _labels(
    spark: SparkSession, features: npt.NDArray[np.float64], count: int, seed: int, kind: str
) -> npt.NDArray[np.int64]:
    """The group of each row, numbered without gaps."""
    from pyspark.ml.clustering import BisectingKMeans, KMeans
    from pyspark.ml.functions import array_to_vector
    from pyspark.sql import functions as f

    if count < 2:
        return np.zeros(len(features), np.int64)
    width = features.shape[1]
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), width).cast(pa.list_(pa.float64()))
    table = pa.table({"row": np.arange(len(features)), "values": vectors})
    rows = spark.createDataFrame(table).select("row", array_to_vector(f.col("values")).alias("features")).cache()
    try:
        method: Any = (
            KMeans(k=count, seed=seed, maxIter=30) if kind == "kmeans" else BisectingKMeans(k=count, seed=seed)
        )
        found = method.fit(rows).transform(rows).select("row", "prediction").toArrow().sort_by("row")
    finally:
        rows.unpersist()
    labels = np.unique(found.column("prediction").to_numpy(), return_inverse=True)[1]
    return np.asarray(labels, np.int64)
