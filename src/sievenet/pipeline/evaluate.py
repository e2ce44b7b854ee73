"""Evaluate: what plans deliver to whom, over any number of events.

    subscriptions ──cover──▶ covers ──broadcast──┐
    events ──Arrow batches──▶ per partition: sums per plan and subscription ──sum──▶ result

The driver covers the subscriptions, 30,000 plain ones in a second; covers are small and go to all executors.  (Where
many subscriptions are no plain boxes and there are executors enough, these cover them, each task some under one plan.)
One job then reads the events once, whatever the number of plans: each Arrow batch is matched exactly once and counted
under every plan.  A partition yields one row per plan and subscription, so what is shuffled does not depend on the
number of events.

Results are sums of whole numbers: the same to the last event, however the events are divided.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sievenet.content import EventBatch, Schema, decode_subscription, encode_subscription
from sievenet.errors import InvalidInput
from sievenet.index import Plan
from sievenet.pipeline.broadcast import Shared
from sievenet.pipeline.scan import summed
from sievenet.pipeline.tables import PUBLISHER, batch_of
from sievenet.tuning.boxes import Asked, as_subscription
from sievenet.tuning.cost import Cost, Needed, cost_of, needed_of
from sievenet.tuning.covers import Covers, Interest, Interests
from sievenet.tuning.deliveries import Deliveries, Wants
from sievenet.tuning.sites import Sites

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "COUNTS",
    "Counting",
    "Result",
    "check_plans",
    "covers_of",
    "evaluate",
    "evaluated",
    "local_counts",
    "sources",
]

#: Result of a partition: subscription -1 carries the number of packets and events, -2 transmissions and those needed,
#: -3 packets received and those needed.
COUNTS: Final = pa.schema(
    [("plan", pa.int32()), ("subscription", pa.int64()), ("delivered", pa.int64()), ("wanted", pa.int64())]
)
#: Subscriptions per task of covering.
_CHUNK: Final = 500
#: Covers of other than plain subscriptions that the driver makes, about ten in a millisecond, and the cores from which
#: on others do it more quickly: they have to decode what the driver has to encode first.
_ALONE: Final = 5_000
_CORES: Final = 4
_I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """What one plan does with the events."""

    plan: Plan
    events: int
    packets: int
    #: Entries of all covers, before neighbours are joined (boxes, if there is no budget).
    entries: int
    #: Per subscription.
    delivered: _I64
    wanted: _I64
    #: What the network carries.
    cost: Cost

    @property
    def fpr(self) -> float:
        """Unnecessary deliveries over all deliveries: the rate per subscription."""
        return self.cost.per_subscription

    def summary(self) -> dict[str, Any]:
        """The figures of the whole, for reports."""
        return {
            **self.cost.summary(),
            "entries": self.entries,
            "subscriptions": len(self.wanted),
            "unmatched": int((self.wanted == 0).sum()),
        }


def check_plans(schema: Schema, plans: Sequence[Plan]) -> None:
    """Refuse plans for other schemas."""
    for plan in plans:
        if plan.schema != schema:
            raise InvalidInput(
                expected=f"a plan for {schema.name} version {schema.version}",
                got=f"`a plan for {plan.schema.name} version {plan.schema.version}`",
                where="index plan",
            )


# -- covering -------------------------------------------------------------------------------------


def covers_of(spark: SparkSession, plans: Sequence[Plan], interests: Interests, budget: int | None) -> list[Covers]:
    """The covers of subscriptions under each plan, made where that is quickest."""
    slow = int((~interests.plain).sum()) * len(plans)
    if budget is None or slow <= _ALONE or spark.sparkContext.defaultParallelism < _CORES:
        return [Covers.of(plan, interests, budget) for plan in plans]
    encoded = [encode_subscription(as_subscription(w)) for w in interests.wanted]
    shared = Shared(spark, _plans, [plan.to_json() for plan in plans])
    context = spark.sparkContext
    tasks = [
        (number, start, encoded[start : start + _CHUNK])
        for number in range(len(plans))
        for start in range(0, len(encoded), _CHUNK)
    ]
    found = context.parallelize(tasks, len(tasks)).map(lambda task: _covered(shared, task, budget)).collect()
    parts: list[list[Covers]] = [[] for _ in plans]
    for number, part in found:
        parts[number].append(part)
    return [Covers.joined(plan, each) for plan, each in zip(plans, parts, strict=True)]


def _plans(encoded: list[bytes]) -> list[Plan]:
    return [Plan.from_json(each) for each in encoded]


def _covered(shared: Shared[list[Plan]], task: tuple[int, int, list[bytes]], budget: int) -> tuple[int, Covers]:
    number, start, encoded = task
    plan = shared.get()[number]
    wanted = [decode_subscription(plan.schema, each) for each in encoded]
    return number, Covers.of(plan, Interests.of(plan.schema, wanted), budget, start=start)


# -- counting -------------------------------------------------------------------------------------


class Counting:
    """Everything a process needs to count batches under some plans."""

    def __init__(
        self, plans: list[Plan], covers: list[Covers], wanted: Sequence[Interest] | Asked, sites: Sites | None = None
    ) -> None:
        self.schema = plans[0].schema
        self.sites = sites
        self.wants = Wants(self.schema, wanted)
        self.deliveries = [Deliveries(p, c, self.wants.count) for p, c in zip(plans, covers, strict=True)]

    def costs(self, batch: EventBatch, source: _I64 | None = None) -> list[Cost]:
        """What the network carries of a batch under each plan; ``source`` says where its publishers are."""
        needed = needed_of(self.wants, batch, self.sites, source)
        return [cost_of(deliveries, batch, needed, self.sites, source) for deliveries in self.deliveries]


def _counting(plans: list[bytes], covers: list[Covers], asked: Asked, sites: Sites | None) -> Counting:
    return Counting(_plans(plans), covers, asked, sites)


def local_counts(counting: Counting, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Arrow batches of events to one Arrow batch of sums: what one partition contributes."""
    plans, size = len(counting.deliveries), counting.wants.count
    wanted = np.zeros(size, np.int64)
    delivered = np.zeros((plans, size), np.int64)
    events, packets = 0, np.zeros(plans, np.int64)
    carried = [Cost()] * plans
    for each in batches:
        batch = batch_of(counting.schema, each)
        events += len(batch)
        if counting.sites is not None:
            found = counting.costs(batch, sources(counting.sites, each))
            carried = [a + b for a, b in zip(carried, found, strict=True)]
        wanted += counting.wants.per_subscription(batch)
        for number, deliveries in enumerate(counting.deliveries):
            sent, got = deliveries.per_subscription(batch)
            packets[number] += sent
            delivered[number] += got
    if not events:
        return
    for number in range(plans):
        some = np.flatnonzero(delivered[number] | wanted)
        cost = carried[number]
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(np.full(len(some) + 3, number, np.int32)),
                pa.array(np.concatenate([[-1, -2, -3], some])),
                pa.array(
                    np.concatenate([[packets[number], cost.transmissions, cost.received], delivered[number][some]])
                ),
                pa.array(np.concatenate([[events, cost.needed.transmissions, cost.needed.received], wanted[some]])),
            ],
            schema=COUNTS,
        )


def sources(sites: Sites, part: pa.RecordBatch) -> _I64:
    """Where the publisher of each row is."""
    names = part.column(PUBLISHER).dictionary_encode()
    return sites.located(names.dictionary.to_pylist())[np.asarray(names.indices, np.int64)]


def evaluated(
    events: DataFrame,
    plans: Sequence[Plan],
    covers: Sequence[Covers],
    interests: Interests,
    sites: Sites | None = None,
) -> pa.Table:
    """Sums per plan and subscription (`COUNTS`) over a table of events."""
    asked = Asked.of(interests.schema, interests.wanted)
    more = () if sites is None else (PUBLISHER,)
    shared = Shared(events.sparkSession, _counting, [p.to_json() for p in plans], list(covers), asked, sites)
    keys = ("plan", "subscription")
    return summed(events, interests.schema, lambda parts: local_counts(shared.get(), parts), COUNTS, keys, more)


def evaluate(
    events: DataFrame,
    schema: Schema,
    wanted: Sequence[Interest] | Interests,
    plans: Sequence[Plan],
    budget: int | None = 8,
    sites: Sites | None = None,
) -> list[Result]:
    """What each plan delivers to whom; ``budget`` is the most entries per subscription, None for any number.

    Without ``sites`` every subscription is a host of its own, all at one switch.
    """
    check_plans(schema, plans)
    interests = wanted if isinstance(wanted, Interests) else Interests.of(schema, wanted)
    covers = covers_of(events.sparkSession, plans, interests, budget)
    table = evaluated(events, plans, covers, interests, sites)
    return results_of(table, plans, covers, len(interests), sites is not None)


def results_of(
    table: pa.Table, plans: Sequence[Plan], covers: Sequence[Covers], count: int, placed: bool = False
) -> list[Result]:
    """Results per plan from the table of sums."""
    plan, owner, delivered, wanted = (
        np.asarray(table.column(name).to_numpy(), np.int64) for name in ("plan", "subscription", "delivered", "wanted")
    )
    found = []
    for number, each in enumerate(plans):
        here = plan == number
        sums = [np.zeros(count, np.int64), np.zeros(count, np.int64)]
        for sum_, values in zip(sums, (delivered, wanted), strict=True):
            sum_[owner[here & (owner >= 0)]] = values[here & (owner >= 0)]
        totals = [
            (int(delivered[here & (owner == k)].sum()), int(wanted[here & (owner == k)].sum())) for k in (-1, -2, -3)
        ]
        (packets, events), sent, received = totals
        matched = int(sums[1].sum())
        if not placed:
            brought = int(sums[0].sum())
            sent, received = (packets + brought, events + matched), (brought, matched)
        needed = Needed(sent[1], received[1], matched)
        cost = Cost(events, packets, sent[0], received[0], int(sums[0].sum()), needed)
        found.append(Result(each, events, packets, covers[number].entries, sums[0], sums[1], cost))
    return found
