"""Plan: from events and subscriptions to a plan file, with its predicted false-positive rate and why.

    events ──profile──▶ ranks, histograms ─┐
    events ──sample───▶ judge ─────────────┴─ search ──▶ best plan ──evaluate on all events──▶ predicted rate

The search looks at a sample (events and, with a budget, subscriptions); what is predicted is counted over all of them.
Where much is to be judged, and filters are many, executors do it (`judge`, `clusters`); else the driver is quicker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sievenet.content import EventBatch, Schema
from sievenet.errors import InvalidInput
from sievenet.index import Plan
from sievenet.index.plan import Kind
from sievenet.pipeline.clusters import spark_clustering
from sievenet.pipeline.evaluate import Result, evaluate
from sievenet.pipeline.judge import SparkJudge
from sievenet.pipeline.profile import profile
from sievenet.pipeline.scan import read_small
from sievenet.pipeline.tables import PUBLISHER, batch_of, quoted
from sievenet.tuning.clusters import local_clustering
from sievenet.tuning.cost import Objective
from sievenet.tuning.covers import Interest, Interests
from sievenet.tuning.judge import LocalJudge
from sievenet.tuning.profile import Profile
from sievenet.tuning.search import METHODS, RECIPES, Findings, search
from sievenet.tuning.sites import Sites

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Planned", "plan_for", "sampled"]

#: Events and subscriptions that the search looks at.
SAMPLE: Final = 20_000
#: With a budget, covering is what takes the time.
COVERED: Final = 1_000
#: Pairs of an event and a subscription from which on, with so many cores, executors judge more quickly than we alone:
#: one process judges a plan on 20,000 × 1,000 in some 50 ms, a task of Spark takes longer to begin.
PAIRS: Final = 100_000_000
CORES: Final = 4
#: Filters from which on Spark ML groups them.
FILTERS: Final = 20_000


@dataclass(frozen=True, slots=True)
class Planned:
    """What a search found, and what the best plan does with all events."""

    found: Findings
    profile: Profile
    #: Over all events: the plan that is recommended, the regular one, and the one in use (the regular one if unknown).
    predicted: Result
    regular: Result
    present: Result
    objective: Objective = "links"

    @property
    def better(self) -> bool:
        """Whether the plan that is recommended is another than the one in use."""
        return self.predicted.plan != self.present.plan

    def record(self) -> dict[str, Any]:
        """For reports."""
        return {
            "name": self.found.best.name,
            "why": self.found.why,
            "predicted": self.predicted.summary(),
            "regular": self.regular.summary(),
            "present": self.present.summary(),
            "objective": self.objective,
            "better": self.better,
            "seconds": self.found.seconds,
            "complete": self.found.complete,
            "tried": [t.record() for t in self.found.tried],
        }


def sampled(events: DataFrame, schema: Schema, count: int, total: int, seed: int = 0) -> tuple[EventBatch, list[str]]:
    """About ``count`` events at random and their publishers, on the driver."""
    table = read_small(events, schema, (PUBLISHER,)) if total <= count else None
    if table is None:
        chosen = events.select(*(quoted(name) for name in (*schema.positions, PUBLISHER)))
        if total > count:
            chosen = chosen.sample(fraction=min(1.0, 1.1 * count / total), seed=seed).limit(count)
        table = chosen.toArrow()
    parts = [batch_of(schema, part) for part in table.to_batches()]
    batch = EventBatch.concat(parts) if parts else EventBatch.from_events(schema, [])
    return batch, table.column(PUBLISHER).to_pylist()


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
    objective: Objective = "links",
    recipes: Sequence[str] = (),
    sites: Sites | None = None,
    present: Plan | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Planned:
    """The best plan for a workload that a search of so many seconds finds, or the present one if none is better.

    ``sites`` says where subscriptions and publishers are; without it each subscription is a host of its own, all at one
    switch.  ``present`` is the plan in use; without it the regular one is.
    """
    if not wanted:
        raise InvalidInput("Expected at least one subscription: without any, no plan is better than another")
    unknown = [m for m in methods if m not in METHODS]
    if unknown:
        raise InvalidInput(expected=f"methods of {', '.join(METHODS)}", got=unknown)
    if set(recipes) - set(RECIPES):
        raise InvalidInput(expected=f"recipes of {', '.join(RECIPES)}", got=list(recipes))
    say("profile")
    known = profile(events, schema, wanted)
    if not known.events:
        raise InvalidInput("Expected at least one event to plan for", where=schema.name)
    spark = events.sparkSession
    interests = Interests.of(schema, wanted)
    looked_at, near = interests, sites
    if budget is not None and len(interests) > COVERED:
        rows = np.sort(np.random.default_rng(seed).choice(len(interests), COVERED, replace=False))
        looked_at = interests.take(rows.tolist())
        near = None if sites is None else sites.take(rows.tolist())
    some, who = sampled(events, schema, sample, known.events, seed)
    judge = LocalJudge(some, looked_at, budget, near, None if near is None else near.located(who))
    many = len(some) * len(looked_at) > PAIRS and spark.sparkContext.defaultParallelism >= CORES
    found = search(
        SparkJudge(spark, judge) if many else judge,
        known,
        spark_clustering(spark, schema, wanted, seed, sample=some)
        if known.filters > FILTERS
        else local_clustering(schema, wanted, seed, sample=some),
        bits,
        kind=kind,
        rest=rest,
        seconds=seconds,
        methods=methods,
        version=version,
        objective=objective,
        recipes=recipes,
        present=present,
        say=say,
    )
    say("evaluate the best on all events")
    regular = found.tried[0].plan
    plans = [found.best.plan, regular, *((present,) if present is not None else ())]
    results = evaluate(events, schema, interests, plans, budget, sites)
    now = results[-1] if present is not None else results[1]
    # The sample may flatter: over all events the best must still carry less than what is there.
    best = results[0] if recipes else min((now, results[0], results[1]), key=lambda r: r.cost.judged(objective))
    return Planned(found, known, best, results[1], now, objective)
