"""Scan: sums over the batches of a table of events, by the shortest of three ways.

    any table           Parquet ──▶ JVM columns ──▶ rows ──▶ Arrow ──socket──▶ Python
    a plain scan        Parquet ─────────────────────────────────────────────▶ Python
    a small one         Parquet ─────────────────────────────────────────────▶ this process

What comes from the JVM is taken apart into rows and put together again, which takes longer than many a kernel.  Where
a table is nothing but columns of Parquet files that every process can open (`file:` paths, as for local runs and
shared disks), Spark says *which* files and divides them into tasks, and the Python process of a task reads its part
itself.  Every other table (filtered, sampled, cached, joined, from another file system) goes by the JVM.  The rows are
the same, in other batches; whoever sums over them gets the same sums.

A task is some parts of files, a part is a share of a file's rows: the second of three shares of a file of ten rows is
rows 3 to 5.  So nobody needs to open files to make tasks, and a file with one large row group can still be divided:
who has a later part of it reads past the others', which is quick next to counting.  A few megabytes are counted by the
driver itself: before a Python process of Spark has begun, that is done.

       file a        file b      c d e
    ├─────┬─────┤├──────────────┤├┤├┤├┤
    task 0│  1  │       2        │  3        about `_TASKS` per core, of no more than `_MOST` bytes
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from sievenet.content import Schema
from sievenet.errors import InvalidInput
from sievenet.pipeline.tables import fields_of, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["ROWS", "Part", "files_of", "read_small", "summed", "tasks_of"]

#: Rows per batch.
ROWS: Final = 65_536
#: Tasks per core, so that nobody waits long for the last one.
_TASKS: Final = 4
#: Bytes of files per task, at least and at most.
_LEAST: Final = 1 << 20
_MOST: Final = 64 << 20
#: Bytes of files that the driver reads itself.
_SMALL: Final = 8 << 20

Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Part(NamedTuple):
    """The ``number``-th of so many equal shares of a file's rows."""

    path: str
    number: int
    shares: int

    def batches(self, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Its rows, with these columns."""
        import pyarrow.parquet as pq

        # Threads are Spark's to give: it counts a task as one core.
        with pq.ParquetFile(self.path) as file:
            missing = set(fields.names) - set(file.schema_arrow.names)
            if missing:
                raise InvalidInput(expected=f"columns {', '.join(fields.names)}", got=file.schema_arrow.names)
            first, behind = (file.metadata.num_rows * n // self.shares for n in (self.number, self.number + 1))
            at = 0
            for group in range(file.num_row_groups):
                size = file.metadata.row_group(group).num_rows
                if at < behind and at + size > first:
                    read = file.iter_batches(ROWS, row_groups=[group], columns=fields.names, use_threads=False)
                    yield from _between(read, first - at, behind - at, fields)
                at += size


def _between(batches: Iterable[pa.RecordBatch], first: int, behind: int, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows from one to another."""
    at = 0
    for batch in batches:
        low, high = max(first - at, 0), min(behind - at, len(batch))
        if low < high:
            columns = [batch.column(field.name).slice(low, high - low) for field in fields]
            yield pa.RecordBatch.from_arrays(
                [c if c.type == f.type else c.cast(f.type) for c, f in zip(columns, fields, strict=True)], schema=fields
            )
        at += len(batch)
        if at >= behind:
            return


def summed(
    events: DataFrame,
    schema: Schema,
    work: Work,
    result: pa.Schema,
    keys: Sequence[str],
    more: Sequence[str] = (),
) -> pa.Table:
    """What ``work`` makes of the batches of each task, added up per ``keys``; all columns but these are sums.

    Batches have all attributes, and ``more`` columns of the events table.
    """
    every = fields_of(schema)
    fields = pa.schema([every.field(name) for name in (*schema.positions, *more)])
    chosen = events.select(*(quoted(name) for name in fields.names))
    files = files_of(chosen)
    sums = [name for name in result.names if name not in keys]
    if _few(files):
        rows = pa.Table.from_batches(work(_batches(files, fields)), result)
        added = rows.group_by(list(keys)).aggregate([(name, "sum") for name in sums])
        return added.rename_columns([name.removesuffix("_sum") for name in added.column_names]).select(result.names)
    from pyspark.sql import functions as f

    table = _mapped(chosen, files, work, result, fields)
    return table.groupBy(*keys).agg(*(f.sum(name).alias(name) for name in sums)).toArrow().select(result.names)


def read_small(events: DataFrame, schema: Schema, more: Sequence[str] = ()) -> pa.Table | None:
    """A table of a few megabytes of files, read here; None if it is another."""
    fields = pa.schema([fields_of(schema).field(name) for name in (*schema.positions, *more)])
    files = files_of(events.select(*(quoted(name) for name in fields.names)))
    return pa.Table.from_batches(_batches(files, fields), fields) if _few(files) else None


def _few(files: list[tuple[str, int]] | None) -> TypeGuard[list[tuple[str, int]]]:
    return files is not None and sum(size for _, size in files) <= _SMALL


def _batches(files: list[tuple[str, int]], fields: pa.Schema) -> Iterator[pa.RecordBatch]:
    return (batch for path, _ in files for batch in Part(path, 0, 1).batches(fields))


def _mapped(
    chosen: DataFrame, files: list[tuple[str, int]] | None, work: Work, result: pa.Schema, fields: pa.Schema
) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    ddl = from_arrow_schema(result)
    if files is None:
        return chosen.mapInArrow(work, ddl)
    spark = chosen.sparkSession
    tasks = tasks_of(files, spark.sparkContext.defaultParallelism)
    shared = spark.sparkContext.broadcast(tasks)
    numbers = spark.range(0, len(tasks), 1, max(1, len(tasks)))
    return numbers.mapInArrow(lambda given: work(_read(given, shared.value, fields)), ddl)


def _read(given: Iterable[pa.RecordBatch], tasks: list[list[Part]], fields: pa.Schema) -> Iterator[pa.RecordBatch]:
    for numbers in given:
        for number in numbers.column(0).to_pylist():
            for part in tasks[number]:
                yield from part.batches(fields)


def tasks_of(files: Sequence[tuple[str, int]], cores: int) -> list[list[Part]]:
    """Files (paths and bytes) in tasks of about equal bytes."""
    total = sum(size for _, size in files)
    target = min(max(total // (_TASKS * cores), _LEAST), _MOST)
    tasks: list[list[Part]] = []
    room = 0.0
    for path, size in files:
        shares = max(1, round(size / target))
        for number in range(shares):
            if not tasks or room < size / shares / 2:
                tasks.append([])
                room = target
            tasks[-1].append(Part(path, number, shares))
            room -= size / shares
    return tasks


# -- what Spark knows ---------------------------------------------------------------------------


def files_of(table: DataFrame) -> list[tuple[str, int]] | None:
    """The Parquet files (paths and bytes) of which a table is some columns of all rows; None if it is anything else."""
    plan: Any = table._jdf.queryExecution().optimizedPlan()
    while plan.nodeName() == "Project":
        if any(_of(e) != "AttributeReference" for e in _listed(plan.projectList())):
            return None
        plan = plan.child()
    if _of(plan) != "LogicalRelation" or plan.isStreaming() or _of(plan.relation()) != "HadoopFsRelation":
        return None
    relation = plan.relation()
    own = set(relation.dataSchema().fieldNames()) - set(relation.partitionSchema().fieldNames())
    if _of(relation.fileFormat()) != "ParquetFileFormat" or not own.issuperset(table.columns):
        return None
    found = []
    for uri in relation.location().inputFiles():
        split = urlsplit(uri)
        path = Path(unquote(split.path))
        if split.scheme != "file" or not path.is_file():
            return None
        found.append((str(path), path.stat().st_size))
    return sorted(found)


def _of(thing: Any) -> str:
    name: str = thing.getClass().getSimpleName()
    return name


def _listed(sequence: Any) -> list[Any]:
    return [sequence.apply(i) for i in range(sequence.size())]
