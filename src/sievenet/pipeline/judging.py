"""Judging plans: the true false-positive rate of many candidate plans on a sample of events.

A search tries hundreds of plans on the same sample, so here tasks are *plans*, not events: the sample and the
subscriptions are broadcast once, every task covers the subscriptions under its plan and counts.  (Over all events,
with the plan known, tasks are events: see `evaluate`.)  Both count by the same code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from sievenet.content import EventBatch, Schema, decode_batch, decode_subscription, encode_batch, encode_subscription
from sievenet.index import Plan
from sievenet.pipeline.boxes import as_subscription
from sievenet.pipeline.broadcasting import Shared
from sievenet.pipeline.counting import Deliveries, Wants, fpr
from sievenet.pipeline.covers import Covers, Interests

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Judge", "LocalJudge", "SparkJudge"]


class Judge(Protocol):
    """Says how good plans are."""

    #: The sample, and who wants what.
    batch: EventBatch
    interests: Interests

    def rates(self, plans: Sequence[Plan]) -> list[float]:
        """The false-positive rate of each plan on the sample."""
        ...


class LocalJudge:
    """Judges in this process."""

    def __init__(self, batch: EventBatch, interests: Interests, budget: int | None) -> None:
        self.batch = batch
        self.interests = interests
        self.budget = budget
        self._wanted: int | None = None

    def rates(self, plans: Sequence[Plan]) -> list[float]:
        """The false-positive rate of each plan on the sample."""
        if self._wanted is None:
            wants = Wants(self.interests.schema, self.interests.wanted)
            self._wanted = int(wants.per_event(self.batch).sum())
        return [self._rate(plan, self._wanted) for plan in plans]

    def _rate(self, plan: Plan, wanted: int) -> float:
        covers = Covers.of(plan, self.interests, self.budget)
        return fpr(Deliveries(plan, covers, len(self.interests)).total(self.batch)[1], wanted)


class SparkJudge:
    """Judges on all executors at once."""

    def __init__(self, spark: SparkSession, batch: EventBatch, interests: Interests, budget: int | None) -> None:
        self.batch = batch
        self.interests = interests
        self._spark = spark
        encoded = [encode_subscription(as_subscription(w)) for w in interests.wanted]
        self._shared = Shared(spark, _judge, interests.schema, encode_batch(batch), encoded, budget)

    def rates(self, plans: Sequence[Plan]) -> list[float]:
        """The false-positive rate of each plan on the sample."""
        if not plans:
            return []
        shared = self._shared
        tasks = self._spark.sparkContext.parallelize([plan.to_json() for plan in plans], len(plans))
        return tasks.map(lambda plan: shared.get().rates([Plan.from_json(plan)])[0]).collect()


def _judge(schema: Schema, sample: bytes, encoded: list[bytes], budget: int | None) -> LocalJudge:
    wanted = [decode_subscription(schema, each) for each in encoded]
    return LocalJudge(decode_batch(schema, sample), Interests.of(schema, wanted), budget)
