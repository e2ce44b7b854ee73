"""Plan: from events and subscriptions to a plan file, with its predicted false-positive rate and why.

    events ──profile──▶ ranks, histograms ─┐
    events ──sample───▶ judge ─────────────┴─ search ──▶ best plan ──evaluate on all events──▶ predicted rate

The search looks at a sample (events and, with a budget, subscriptions); what is predicted is counted over all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sievenet.content import EventBatch, Schema
from sievenet.errors import InvalidInput
from sievenet.index.plan import Kind
from sievenet.pipeline.clusters import spark_clustering
from sievenet.pipeline.covers import Interest, Interests
from sievenet.pipeline.evaluate import Result, evaluate
from sievenet.pipeline.judging import SparkJudge
from sievenet.pipeline.profile import Profile, profile
from sievenet.pipeline.search import METHODS, Found, search
from sievenet.pipeline.tables import batch_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Planned", "plan_for", "sample_of"]

#: Events and subscriptions that the search looks at.
SAMPLE: Final = 20_000
#: With a budget, covering is what takes the time.
COVERED: Final = 1_000


@dataclass(frozen=True, slots=True)
class Planned:
    """What a search found, and what the best plan does with all events."""

    found: Found
    profile: Profile
    #: The best plan, and the regular one it replaces, over all events.
    predicted: Result
    regular: Result

    def record(self) -> dict[str, Any]:
        """For reports."""
        return {
            "name": self.found.best.name,
            "why": self.found.why,
            "predicted": self.predicted.summary(),
            "regular": self.regular.summary(),
            "seconds": self.found.seconds,
            "complete": self.found.complete,
            "tried": [t.record() for t in self.found.tried],
        }


def sample_of(events: DataFrame, schema: Schema, count: int, total: int, seed: int = 0) -> EventBatch:
    """About ``count`` events at random, on the driver."""
    columns = [f"`{name}`" for name in schema.positions]
    chosen = events.select(*columns)
    if total > count:
        chosen = chosen.sample(fraction=min(1.0, 1.1 * count / total), seed=seed).limit(count)
    parts = [batch_of(schema, part) for part in chosen.toArrow().to_batches()]
    return EventBatch.concat(parts) if parts else EventBatch.from_events(schema, [])


def plan_for(
    events: DataFrame,
    schema: Schema,
    wanted: Sequence[Interest],
    bits: int,
    *,
    budget: int | None = 8,
    kind: Kind = "dz",
    rest: bool = True,
    seconds: float = 60.0,
    methods: Sequence[str] = METHODS,
    version: int = 1,
    seed: int = 0,
    sample: int = SAMPLE,
    say: Callable[[str], None] = lambda text: None,
) -> Planned:
    """The best plan for a workload that a search of so many seconds finds."""
    if not wanted:
        raise InvalidInput("Expected at least one subscription: without any, no plan is better than another")
    unknown = [m for m in methods if m not in METHODS]
    if unknown:
        raise InvalidInput(expected=f"methods of {', '.join(METHODS)}", got=unknown)
    say("profile")
    known = profile(events, schema, wanted)
    if not known.events:
        raise InvalidInput("Expected at least one event to plan for", where=schema.name)
    spark = events.sparkSession
    interests = Interests.of(schema, wanted)
    looked_at = interests
    if budget is not None and len(interests) > COVERED:
        rows = np.sort(np.random.default_rng(seed).choice(len(interests), COVERED, replace=False))
        looked_at = interests.take(rows.tolist())
    some = sample_of(events, schema, sample, known.events, seed)
    judge = SparkJudge(spark, some, looked_at, budget)
    found = search(
        judge,
        known,
        spark_clustering(spark, schema, wanted, seed, sample=some),
        bits,
        kind=kind,
        rest=rest,
        seconds=seconds,
        methods=methods,
        version=version,
        say=say,
    )
    say("evaluate the best on all events")
    predicted, regular = evaluate(events, schema, interests, [found.best.plan, found.tried[0].plan], budget)
    return Planned(found, known, predicted, regular)
