"""Profile of a table of events (see `sievenet.tuning.profile`), in one pass.

A partition yields its sums as rows (kind, i, j, number, count), which Spark adds up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from sievenet.content import Schema
from sievenet.pipeline.broadcast import Shared
from sievenet.pipeline.scan import summed
from sievenet.pipeline.tables import batch_of
from sievenet.tuning.boxes import Asked
from sievenet.tuning.covers import Interest
from sievenet.tuning.profile import Profile, Profiling, Sums

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["profile"]

_SUMS, _PAIRS, _WORKLOAD, _CELLS, _EVENTS = range(5)
_FIELDS: Final = pa.schema(
    [("kind", pa.int32()), ("i", pa.int32()), ("j", pa.int64()), ("number", pa.float64()), ("count", pa.int64())]
)


def _partition(shared: Shared[Profiling], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    profiling = shared.get()
    sums = profiling.empty()
    for each in batches:
        profiling.add(batch_of(profiling.schema, each), sums)
    if sums.events:
        yield _rows(sums)


def profile(events: DataFrame, schema: Schema, wanted: Sequence[Interest]) -> Profile:
    """The profile of a table of events."""
    asked = Asked.of(schema, wanted)
    shared = Shared(events.sparkSession, Profiling, asked)
    sums = summed(events, schema, lambda batches: _partition(shared, batches), _FIELDS, ("kind", "i", "j"))
    return _concluded(sums, asked)


def _rows(found: Sums) -> pa.RecordBatch:
    """The sums as rows."""
    axes = len(found.schema.attributes)
    first, second = np.triu_indices(axes)
    parts = [
        (_EVENTS, np.zeros(2), np.arange(2), np.zeros(2), np.array([found.events, found.wanted])),
        (_SUMS, np.repeat(np.arange(3), axes), np.tile(np.arange(axes), 3), found.moments.ravel(), np.zeros(3 * axes)),
        (_PAIRS, first, second, np.zeros(len(first)), found.pairs[first, second]),
    ]
    for number, name in enumerate(found.ordered):
        some = np.flatnonzero(found.workload[name])
        parts.append((_WORKLOAD, np.full(len(some), number), some, np.zeros(len(some)), found.workload[name][some]))
    some = np.flatnonzero(found.cells)
    parts.append((_CELLS, np.zeros(len(some)), some, np.zeros(len(some)), found.cells[some]))
    kinds = np.concatenate([np.full(len(p[1]), p[0], np.int32) for p in parts])
    columns = [np.concatenate([p[c] for p in parts]) for c in range(1, 5)]
    typed = [np.asarray(c, t) for c, t in zip(columns, (np.int32, np.int64, np.float64, np.int64), strict=True)]
    return pa.RecordBatch.from_arrays([pa.array(kinds), *(pa.array(c) for c in typed)], schema=_FIELDS)


def _concluded(table: pa.Table, asked: Asked) -> Profile:
    """The sums of all partitions as a profile."""
    kind, i, j, number, count = (table.column(n).to_numpy() for n in ("kind", "i", "j", "number", "count"))
    found = Sums(asked.schema, asked.filters)
    here = kind == _SUMS
    found.moments[i[here], j[here]] = number[here]
    here = kind == _PAIRS
    found.pairs[i[here], j[here]] = count[here]
    for at, name in enumerate(found.ordered):
        here = (kind == _WORKLOAD) & (i == at)
        found.workload[name][j[here]] = count[here]
    here = kind == _CELLS
    found.cells[j[here]] = count[here]
    totals = {int(at): int(c) for at, c in zip(j[kind == _EVENTS], count[kind == _EVENTS], strict=True)}
    found.events, found.wanted = totals.get(0, 0), totals.get(1, 0)
    return found.concluded()
