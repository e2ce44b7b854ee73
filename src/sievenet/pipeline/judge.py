"""Judging on Spark: what many candidate plans cost on a sample of events.

Tasks are *plans* here, not events: the judge of `sievenet.tuning.judge` is broadcast once with its sample and its
subscriptions, and every task lets it judge one plan.  (Over all events, with the plan known, tasks are events: see
`evaluate`.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sievenet.index import Plan
from sievenet.pipeline.broadcast import Shared
from sievenet.tuning.cost import Cost
from sievenet.tuning.judge import LocalJudge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkJudge"]


class SparkJudge:
    """Lets a judge work on all executors at once."""

    def __init__(self, spark: SparkSession, judge: LocalJudge) -> None:
        self.batch, self.interests = judge.batch, judge.interests
        self._spark = spark
        self._shared = Shared(spark, LocalJudge.unpacked, *judge.packed())

    def costs(self, plans: Sequence[Plan]) -> list[Cost]:
        """What each plan costs on the sample."""
        if not plans:
            return []
        shared = self._shared
        tasks = self._spark.sparkContext.parallelize([plan.to_json() for plan in plans], len(plans))
        return tasks.map(lambda plan: shared.get().costs([Plan.from_json(plan)])[0]).collect()
