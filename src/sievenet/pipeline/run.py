"""A run: from files and subscriptions to a plan, in one session, with everything that a page about it needs.

    files ──ingest──▶ store ──profile, search──▶ plan ──evaluate──▶ before and after ──traffic──▶ packets per link

Each step is that of its own command and says the same; `Journal` keeps what was said, and when, bounded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.content import EventBatch, Schema
from sievenet.pipeline.deployment import Deployment
from sievenet.pipeline.ingest import How, ingest
from sievenet.pipeline.planner import Planned, plan_for
from sievenet.pipeline.scan import read_small
from sievenet.pipeline.store import Manifest, Store
from sievenet.pipeline.tables import TIME, batch_of, quoted
from sievenet.pipeline.traffic import NetworkTraffic, network_traffic
from sievenet.tuning.covers import Covers, Interests

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sievenet.index import Plan
    from sievenet.tuning.sites import Sites

__all__ = ["Journal", "Run", "run"]

#: Lines that a journal keeps: the first and the last of them.
_LINES: Final = 200
#: Events that histograms are drawn of.
_DRAWN: Final = 20_000

Say = Callable[[str], None]


@dataclass(slots=True)
class Journal:
    """What happened, and after how many seconds; long ones lose their middle."""

    say: Say
    clock: Callable[[], float] = time.monotonic
    lines: list[tuple[float, str]] = field(default_factory=list)
    left_out: int = 0
    _start: float = 0.0

    def __post_init__(self) -> None:
        self._start = self.clock()

    def __call__(self, text: str) -> None:
        """Say something and keep it."""
        self.say(text)
        self.lines.append((round(self.clock() - self._start, 2), text))
        if len(self.lines) > _LINES:
            del self.lines[_LINES // 2]
            self.left_out += 1


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """What a run did."""

    schema: Schema
    manifest: Manifest
    deployment: Deployment
    planned: Planned
    #: Packets per link with the plan of before and with the chosen one, if the network is known.
    before: NetworkTraffic | None
    after: NetworkTraffic | None
    #: Some of the events and their times, for histograms.
    sample: EventBatch
    times: npt.NDArray[np.int64]
    journal: Journal
    seconds: Mapping[str, float]


def run(
    store: Store,
    schema: Schema,
    inputs: Sequence[str],
    deployment: Deployment,
    *,
    bits: int,
    sites: Sites | None,
    journal: Journal,
    kind: str | None = None,
    time_column: str | None = None,
    how: How | None = None,
    **search: Any,
) -> Run:
    """Everything; ``search`` is what `plan_for` takes."""
    spent: dict[str, float] = {}
    journal("ingest")
    with _timed(spent, "ingest", journal):
        manifest = ingest(store, schema, inputs, kind=kind, time=time_column, how=how, say=journal)
    events = store.events(schema.name)
    with _timed(spent, "plan", journal):
        wanted = deployment.wanted.subscriptions
        planned = plan_for(events, schema, wanted, bits, sites=sites, present=deployment.plan, say=journal, **search)
    journal("traffic per link")
    with _timed(spent, "traffic", journal):
        before = after = None
        if sites is not None:
            interests, budget = Interests.of(schema, wanted), search.get("budget", 8)
            before = _traffic(events, planned.present.plan, interests, budget, sites)
            after = _traffic(events, planned.predicted.plan, interests, budget, sites) if planned.better else before
        sample, times = _drawn(events, schema, planned.predicted.events)
    spent["search"] = planned.found.seconds
    return Run(schema, manifest, deployment, planned, before, after, sample, times, journal, spent)


class _timed:
    """Notes how long a block took."""

    def __init__(self, spent: dict[str, float], name: str, journal: Journal) -> None:
        self._spent, self._name, self._clock = spent, name, journal.clock

    def __enter__(self) -> None:
        self._begun = self._clock()

    def __exit__(self, *error: object) -> None:
        self._spent[self._name] = self._clock() - self._begun


def _traffic(events: DataFrame, plan: Plan, interests: Interests, budget: int | None, sites: Sites) -> NetworkTraffic:
    return network_traffic(events, plan, Covers.of(plan, interests, budget), sites)


def _drawn(events: DataFrame, schema: Schema, total: int) -> tuple[EventBatch, npt.NDArray[np.int64]]:
    """Some events with their times."""
    table = read_small(events, schema, (TIME,)) if total <= _DRAWN else None
    if table is None:
        part = min(1.0, 1.1 * _DRAWN / max(1, total))
        chosen = events.select(*(quoted(name) for name in (*schema.positions, TIME)))
        table = chosen.sample(fraction=part, seed=1).limit(_DRAWN).toArrow()
    parts = [batch_of(schema, each) for each in table.to_batches()]
    batch = EventBatch.concat(parts) if parts else EventBatch.from_events(schema, [])
    return batch, np.asarray(table.column(TIME).to_numpy(), np.int64)
