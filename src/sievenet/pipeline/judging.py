"""Judging plans: what many candidate plans cost on a sample of events.

A search tries hundreds of plans on the same sample, so here tasks are *plans*, not events: the sample and the
subscriptions are broadcast once, every task covers the subscriptions under its plan and counts.  (Over all events,
with the plan known, tasks are events: see `evaluate`.)  Both count by the same code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from sievenet.content import EventBatch, Schema, decode_batch, decode_subscription, encode_batch, encode_subscription
from sievenet.index import Plan
from sievenet.pipeline.boxes import as_subscription
from sievenet.pipeline.broadcasting import Shared
from sievenet.pipeline.cost import Cost, Needed, Sites, cost_of, needed_of
from sievenet.pipeline.counting import Deliveries, Wants
from sievenet.pipeline.covers import Covers, Interests

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Judge", "LocalJudge", "SparkJudge"]

_I64 = npt.NDArray[np.int64]


class Judge(Protocol):
    """Says how good plans are."""

    #: The sample, and who wants what.
    batch: EventBatch
    interests: Interests

    def costs(self, plans: Sequence[Plan]) -> list[Cost]:
        """What each plan costs on the sample."""
        ...


class LocalJudge:
    """Judges in this process; ``source`` has switch and own place of each event's publisher (see `cost`)."""

    def __init__(
        self,
        batch: EventBatch,
        interests: Interests,
        budget: int | None,
        sites: Sites | None = None,
        source: _I64 | None = None,
    ) -> None:
        self.batch = batch
        self.interests = interests
        self.budget = budget
        self._sites, self._source = sites, source
        self._needed: Needed | None = None

    def costs(self, plans: Sequence[Plan]) -> list[Cost]:
        """What each plan costs on the sample."""
        if self._needed is None:
            wants = Wants(self.interests.schema, self.interests.wanted)
            self._needed = needed_of(wants, self.batch, self._sites, self._source)
        return [self._cost(plan, self._needed) for plan in plans]

    def rates(self, plans: Sequence[Plan]) -> list[float]:
        """The false-positive rate per subscription of each plan on the sample."""
        return [cost.per_subscription for cost in self.costs(plans)]

    def _cost(self, plan: Plan, needed: Needed) -> Cost:
        covers = Covers.of(plan, self.interests, self.budget)
        deliveries = Deliveries(plan, covers, len(self.interests))
        return cost_of(deliveries, self.batch, needed, self._sites, self._source)


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
