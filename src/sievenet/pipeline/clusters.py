"""Clusters by Spark ML, for selective indexing (see `sievenet.tuning.clusters`).

`kmeans` (k-means||, seeded) or `bisecting` (bisecting k-means) groups the features of filters on all executors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sievenet.content import EventBatch, Schema
from sievenet.tuning.clusters import Clustering, clustering
from sievenet.tuning.covers import Interest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark_clustering"]


def spark_clustering(
    spark: SparkSession,
    schema: Schema,
    wanted: Sequence[Interest],
    seed: int = 0,
    kind: Literal["kmeans", "bisecting"] = "kmeans",
    sample: EventBatch | None = None,
) -> Clustering:
    """Clusters made by Spark ML."""
    return clustering(schema, wanted, sample, lambda features, count: _labels(spark, features, count, seed, kind))


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
