"""Profile: everything about a workload that choosing a plan needs, in one pass over the events.

    sums        per dimension count, sum and sum of squares of values scaled to their domains   → EVS
    pairs       per two dimensions how many (event, filter) pairs match in both;
                its diagonal is how many match in one                                           → EMCS, CS
    workload    per dimension a histogram of matching subscriptions over the axis               → adaptive splits
    cells       events per dz of a few bits of the regular plan                                 → traffic, density

All are sums over events, by the kernels of `sievenet.index`: a partition yields its sums as rows
(kind, i, j, number, count), which Spark adds up.  Counts are whole numbers and the same however the
events are divided; the three sums of EVS are of doubles, whose last bits depend on the order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sievenet.content import EventBatch, Schema
from sievenet.index import Dz, Plan, dimensions
from sievenet.index.arrays import domains, each_filter, points
from sievenet.index.similarity import Similarity
from sievenet.index.splitting import edges, histogram, splits
from sievenet.pipeline.boxes import Asked, Boxes, Groups, hold, places_of
from sievenet.pipeline.broadcasting import Shared
from sievenet.pipeline.counting import Wants
from sievenet.pipeline.covers import Interest
from sievenet.pipeline.scan import mapped
from sievenet.pipeline.tables import batch_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["CELL_BITS", "Profile", "profile", "profile_batches"]

_I64 = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]

#: Bits of the dz whose events are counted.
CELL_BITS: Final = 12
#: Bins of a workload histogram.
BINS: Final = 4096

_SUMS, _PAIRS, _WORKLOAD, _CELLS, _EVENTS = range(5)
_DDL: Final = "kind int, i int, j bigint, number double, count bigint"
_FIELDS: Final = pa.schema(
    [("kind", pa.int32()), ("i", pa.int32()), ("j", pa.int64()), ("number", pa.float64()), ("count", pa.int64())]
)


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """What is known of a workload."""

    schema: Schema
    events: int
    #: Filters, each subscription's counted on its own.
    filters: int
    #: (event, subscription) pairs that match.
    wanted: int
    sums: _Floats
    pairs: _I64
    #: Attribute → matching subscriptions per bin; attributes with an order only.
    workload: dict[str, _I64]
    #: Events per dz of the regular plan's first bits.
    cells: dict[Dz, int]

    @property
    def evs(self) -> _Floats:
        """Selectivity factors by variance."""
        return dimensions.evs(self.sums)

    @property
    def emcs(self) -> _Floats:
        """Selectivity factors by matches per dimension."""
        return dimensions.emcs(np.diagonal(self.pairs), self.events, self.filters)

    @property
    def cs(self) -> _Floats:
        """Selectivity factors by correlation."""
        return dimensions.cs(self.pairs, self.events, self.filters)

    def splits(self, bits: int, spread: float | None = None) -> dict[str, tuple[int | float, ...]]:
        """Split points that balance the workload, as `Plan.adaptive` takes them."""
        more: dict[str, Any] = {} if spread is None else {"spread": spread}
        found = {}
        for name, mass in self.workload.items():
            attribute = self.schema[name]
            borders = edges(attribute, bins=BINS)
            found[name] = splits(mass.astype(np.float64), borders, bits, attribute.type != "float", **more)
        return found

    def report(self) -> dict[str, Any]:
        """The figures for people, by attribute."""
        names = list(self.schema.positions)
        columns = {"evs": self.evs, "emcs": self.emcs, "cs": self.cs}
        return {
            "events": self.events,
            "filters": self.filters,
            "wanted": self.wanted,
            "attributes": {
                name: {label: float(column[i]) for label, column in columns.items()} for i, name in enumerate(names)
            },
            "similarity": (self.pairs / max(self.events * self.filters, 1)).tolist(),
        }


class Profiling:
    """Subscriptions made ready; batch after batch adds to the sums."""

    def __init__(self, asked: Asked) -> None:
        self.schema = schema = asked.schema
        self.filters = asked.filters
        self.low, self.high = domains(schema)
        rest = asked.rest()
        #: Subscriptions that are boxes: their bitmaps say who wants an event.
        self.exact = _groups(asked.boxes)
        self.similarity = Similarity(schema, each_filter(rest))
        self.others = Wants(schema, rest)
        self.plan = Plan.regular(schema, CELL_BITS)
        self.ordered = [n for n in schema.positions if schema[n].type != "str" or schema[n].values is not None]
        self.borders = {name: edges(schema[name], bins=BINS) for name in self.ordered}
        count = len(schema.attributes)
        self.events = self.wanted = 0
        self.sums = np.zeros((3, count))
        self.pairs = np.zeros((count, count), np.int64)
        self.workload = {name: np.zeros(len(self.borders[name]) - 1, np.int64) for name in self.ordered}
        self.cells = np.zeros(1 << CELL_BITS, np.int64)

    def fresh(self) -> Profiling:
        """The same subscriptions with all sums zero."""
        copy: Profiling = object.__new__(Profiling)
        copy.__dict__.update(self.__dict__)
        copy.events = copy.wanted = 0
        copy.sums, copy.pairs = np.zeros_like(self.sums), np.zeros_like(self.pairs)
        copy.cells = np.zeros_like(self.cells)
        copy.workload = {name: np.zeros_like(mass) for name, mass in self.workload.items()}
        return copy

    def add(self, batch: EventBatch) -> None:
        """Count a batch."""
        from sievenet.index.kernels import pair_counts

        if not len(batch):
            return
        points_ = points(batch)
        places = places_of(batch)
        self.events += len(batch)
        self.sums += dimensions.moments(points_, self.low, self.high)
        matching = self.others.per_event(batch)
        for group, _, ranks in self.exact.ranked(places):
            pair_counts(ranks, group.bitmaps, group.starts, self.pairs)
            hold(group, ranks, matching)
        self.pairs += self.similarity.pairs(batch)
        self.wanted += int(matching.sum())
        for name in self.ordered:
            mass = histogram(points_[:, self.schema.positions[name]], matching, self.borders[name])
            self.workload[name] += mass.astype(np.int64)
        codes = self.plan.encode_batch(batch)
        self.cells += np.bincount((codes.hi >> np.uint64(64 - CELL_BITS)).astype(np.int64), minlength=1 << CELL_BITS)

    def rows(self) -> pa.RecordBatch:
        """The sums as rows."""
        axes = len(self.schema.attributes)
        first, second = np.triu_indices(axes)
        parts = [
            (_EVENTS, np.zeros(2), np.arange(2), np.zeros(2), np.array([self.events, self.wanted])),
            (_SUMS, np.repeat(np.arange(3), axes), np.tile(np.arange(axes), 3), self.sums.ravel(), np.zeros(3 * axes)),
            (_PAIRS, first, second, np.zeros(len(first)), self.pairs[first, second]),
        ]
        for number, name in enumerate(self.ordered):
            some = np.flatnonzero(self.workload[name])
            parts.append((_WORKLOAD, np.full(len(some), number), some, np.zeros(len(some)), self.workload[name][some]))
        some = np.flatnonzero(self.cells)
        parts.append((_CELLS, np.zeros(len(some)), some, np.zeros(len(some)), self.cells[some]))
        kinds = np.concatenate([np.full(len(p[1]), p[0], np.int32) for p in parts])
        columns = [np.concatenate([p[c] for p in parts]) for c in range(1, 5)]
        typed = [np.asarray(c, t) for c, t in zip(columns, (np.int32, np.int64, np.float64, np.int64), strict=True)]
        return pa.RecordBatch.from_arrays([pa.array(kinds), *(pa.array(c) for c in typed)], schema=_FIELDS)


def _groups(boxes: Boxes) -> Groups:
    return Groups(boxes.first, boxes.behind, boxes.owners)


def _partition(shared: Shared[Profiling], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    profiling = shared.get().fresh()
    for each in batches:
        profiling.add(batch_of(profiling.schema, each))
    if profiling.events:
        yield profiling.rows()


def profile(events: DataFrame, schema: Schema, wanted: Sequence[Interest]) -> Profile:
    """The profile of a table of events."""
    from pyspark.sql import functions as f

    shared = Shared(events.sparkSession, Profiling, Asked.of(schema, wanted))
    rows = mapped(events, schema, lambda batches: _partition(shared, batches), _DDL)
    sums = rows.groupBy("kind", "i", "j").agg(f.sum("number").alias("number"), f.sum("count").alias("count"))
    return _concluded(sums.toArrow(), schema, wanted)


def profile_batches(batches: Iterable[EventBatch], schema: Schema, wanted: Sequence[Interest]) -> Profile:
    """The same on this machine alone."""
    profiling = Profiling(Asked.of(schema, wanted))
    for batch in batches:
        profiling.add(batch)
    return _concluded(pa.Table.from_batches([profiling.rows()]), schema, wanted)


def _concluded(table: pa.Table, schema: Schema, wanted: Sequence[Interest]) -> Profile:
    kind, i, j, number, count = (table.column(n).to_numpy() for n in ("kind", "i", "j", "number", "count"))
    axes = len(schema.attributes)
    ordered = [n for n in schema.positions if schema[n].type != "str" or schema[n].values is not None]
    sums, pairs = np.zeros((3, axes)), np.zeros((axes, axes), np.int64)
    here = kind == _SUMS
    sums[i[here], j[here]] = number[here]
    here = kind == _PAIRS
    pairs[i[here], j[here]] = count[here]
    workload = {}
    for at, name in enumerate(ordered):
        mass = np.zeros(len(edges(schema[name], bins=BINS)) - 1, np.int64)
        here = (kind == _WORKLOAD) & (i == at)
        mass[j[here]] = count[here]
        workload[name] = mass
    # A schema of few values has shorter codes.
    length = min(CELL_BITS, max(r.length for r in Plan.regular(schema, CELL_BITS).regions))
    here = kind == _CELLS
    cells = {
        Dz(int(at) >> (CELL_BITS - length), length): int(c) for at, c in sorted(zip(j[here], count[here], strict=True))
    }
    totals = {int(at): int(c) for at, c in zip(j[kind == _EVENTS], count[kind == _EVENTS], strict=True)}
    filters = len(each_filter(wanted))
    both = np.maximum(pairs, pairs.T)
    return Profile(schema, totals.get(0, 0), filters, totals.get(1, 0), sums, both, workload, cells)
