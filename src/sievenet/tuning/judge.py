"""The judge: what candidate plans cost on a sample of events.

A search tries hundreds of plans on the same sample.  `LocalJudge` covers the subscriptions under each plan and counts,
in this process; whoever has executors gives each of them some of the plans (the pipeline does), by the same code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sievenet.content import EventBatch, Schema, decode_batch, decode_subscription, encode_batch, encode_subscription
from sievenet.index import DEFAULT_BUDGET, Plan
from sievenet.tuning.boxes import as_subscription
from sievenet.tuning.cost import Cost, Needed, cost_of, needed_of
from sievenet.tuning.covers import Covers, Interest, Interests
from sievenet.tuning.deliveries import Deliveries, Wants
from sievenet.tuning.sites import Sites

__all__ = ["Judge", "LocalJudge", "evaluate"]

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
        self.sites, self.source = sites, source
        self._needed: Needed | None = None

    def packed(self) -> tuple[Schema, bytes, list[bytes], int | None, Sites | None, _I64 | None]:
        """What another process makes the same judge of (`unpacked`)."""
        wanted = [encode_subscription(as_subscription(each)) for each in self.interests.wanted]
        return self.interests.schema, encode_batch(self.batch), wanted, self.budget, self.sites, self.source

    @staticmethod
    def unpacked(
        schema: Schema,
        batch: bytes,
        wanted: list[bytes],
        budget: int | None,
        sites: Sites | None,
        source: _I64 | None,
    ) -> LocalJudge:
        """The judge that was packed."""
        interests = Interests.of(schema, [decode_subscription(schema, each) for each in wanted])
        return LocalJudge(decode_batch(schema, batch), interests, budget, sites, source)

    def costs(self, plans: Sequence[Plan]) -> list[Cost]:
        """What each plan costs on the sample."""
        if self._needed is None:
            wants = Wants(self.interests.schema, self.interests.wanted)
            self._needed = needed_of(wants, self.batch, self.sites, self.source)
        return [self._cost(plan, self._needed) for plan in plans]

    def rates(self, plans: Sequence[Plan]) -> list[float]:
        """The false-positive rate per subscription of each plan on the sample."""
        return [cost.per_subscription for cost in self.costs(plans)]

    def _cost(self, plan: Plan, needed: Needed) -> Cost:
        covers = Covers.of(plan, self.interests, self.budget)
        deliveries = Deliveries(plan, covers, len(self.interests))
        return cost_of(deliveries, self.batch, needed, self.sites, self.source)


def evaluate(plan: Plan, batch: EventBatch, wanted: Sequence[Interest], budget: int | None = DEFAULT_BUDGET) -> Cost:
    """What a plan costs with the events of a batch, every subscription being a host of its own at one switch."""
    return LocalJudge(batch, Interests.of(plan.schema, wanted), budget).costs([plan])[0]
