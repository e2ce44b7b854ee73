"""Judging on Spark: what many candidate plans cost on a sample of events.

Tasks are *plans* here, not events: the sample and the subscriptions are broadcast once, every task judges its plan as
`sievenet.tuning.judge` does.  (Over all events, with the plan known, tasks are events: see `evaluate`.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sievenet.content import EventBatch, Schema, decode_batch, decode_subscription, encode_batch, encode_subscription
from sievenet.index import Plan
from sievenet.pipeline.broadcast import Shared
from sievenet.tuning.boxes import as_subscription
from sievenet.tuning.cost import Cost
from sievenet.tuning.covers import Interests
from sievenet.tuning.judge import LocalJudge
from sievenet.tuning.sites import Sites

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkJudge"]

_I64 = npt.NDArray[np.int64]


class SparkJudge:
    """Judges on all executors at once."""

    def __init__(
        self,
        spark: SparkSession,
        batch: EventBatch,
        interests: Interests,
        budget: int | None,
        sites: Sites | None = None,
        source: _I64 | None = None,
    ) -> None:
        self.batch = batch
        self.interests = interests
        self._spark = spark
        encoded = [encode_subscription(as_subscription(w)) for w in interests.wanted]
        self._shared = Shared(spark, _judge, interests.schema, encode_batch(batch), encoded, budget, sites, source)

    def costs(self, plans: Sequence[Plan]) -> list[Cost]:
        """What each plan costs on the sample."""
        if not plans:
            return []
        shared = self._shared
        tasks = self._spark.sparkContext.parallelize([plan.to_json() for plan in plans], len(plans))
        return tasks.map(lambda plan: shared.get().costs([Plan.from_json(plan)])[0]).collect()


def _judge(
    schema: Schema,
    sample: bytes,
    encoded: list[bytes],
    budget: int | None,
    sites: Sites | None,
    source: _I64 | None,
) -> LocalJudge:
    wanted = [decode_subscription(schema, each) for each in encoded]
    return LocalJudge(decode_batch(schema, sample), Interests.of(schema, wanted), budget, sites, source)
