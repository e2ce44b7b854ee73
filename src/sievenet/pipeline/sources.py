"""Sources: files of several formats as rows with `_source` (their file) and `_modified` (its time).

csv       with a header; all columns as text (what is not a row of the file's columns has a reason)
json      one object per line; all columns as text
parquet   columns as they are
other     CSV and JSON that Spark would misread (separators, encodings, nesting): `sievenet.workload.trace`, a file
          per task, in the Python process
tap       segments of `sievenet.tap`: events already, checked by the decoder
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sievenet.content import Schema
from sievenet.errors import InvalidInput, SievenetError
from sievenet.pipeline.tables import arrow_of, event_ddl, fields_of, quoted
from sievenet.pipeline.validation import CORRUPT, REASON, SOURCE, WHY
from sievenet.tap import SUFFIX, read_segment
from sievenet.workload.trace import Reading, Row
from sievenet.workload.trace import rows_of as trace_rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FORMATS", "decode_segments", "format_of", "rows_of", "tap_rows", "trace_rows"]

FORMATS: Final = ("csv", "json", "parquet", "tap")
_SUFFIXES: Final = {
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    SUFFIX: "tap",
}


def format_of(path: str) -> str:
    """The format of a file by its name."""
    name = path.rsplit("/", 1)[-1].lower()
    for packed in (".gz", ".bz2", ".zst", ".snappy"):
        name = name.removesuffix(packed)
    found = next((kind for suffix, kind in _SUFFIXES.items() if name.endswith(suffix)), None)
    if found is None:
        raise InvalidInput(expected=f"a file that ends in {', '.join(_SUFFIXES)}", got=name, where="input")
    return found


def rows_of(
    spark: SparkSession, kind: str, files: Sequence[str], schema: Schema, more: Sequence[str], header: Sequence[str]
) -> DataFrame:
    """The rows of files; ``more`` names columns that are wanted besides the attributes, where there are any.

    ``header`` has the columns of CSV files, which all have the same.
    """
    from pyspark.sql import functions as f

    reader: Any = spark.read
    listed = list(files)
    if kind == "parquet":
        rows = reader.parquet(*listed)
    elif kind == "json":
        names = dict.fromkeys((*schema.positions, *more))
        columns = ", ".join(f"{quoted(n)} string" for n in names)
        rows = reader.schema(f"{columns}, {CORRUPT} string").option("columnNameOfCorruptRecord", CORRUPT).json(listed)
    elif kind == "csv":
        separator = "\t" if ".tsv" in listed[0].lower() else ","
        columns = ", ".join(f"{quoted(n)} string" for n in header)
        rows = (
            reader.schema(f"{columns}, {CORRUPT} string")
            .option("header", True)
            .option("sep", separator)
            .option("escape", '"')
            .option("enforceSchema", False)
            .option("columnNameOfCorruptRecord", CORRUPT)
            .csv(listed)
        )
    else:
        raise InvalidInput(expected=f"one of {', '.join(FORMATS)}", got=kind, where="format")
    missing = [n for n in schema.positions if n not in rows.columns]
    if missing:
        raise InvalidInput(
            f"Expected columns {', '.join(schema.positions)}; missing: {', '.join(missing)}; "
            f"found: {', '.join(c for c in rows.columns if c != CORRUPT)[:300]}",
            where=listed[0],
        )
    found: DataFrame = rows.select(
        "*",
        f.col("_metadata.file_path").alias(SOURCE),
        f.col("_metadata.file_modification_time").alias("_modified"),
    )
    return found


def trace_rows(files: DataFrame, names: Sequence[str], reading: Reading) -> DataFrame:
    """The rows of files that are awkward, given as Spark's ``binaryFile`` rows: columns as text, and what is no row."""
    columns = ", ".join(f"{quoted(n)} string" for n in names)
    ddl = f"{columns}, {CORRUPT} string, {WHY} string, {SOURCE} string, _modified timestamp"
    return files.select("path", "modificationTime", "content").mapInArrow(
        lambda parts: _traced(parts, list(names), reading), ddl
    )


def _traced(parts: Iterable[pa.RecordBatch], names: list[str], reading: Reading) -> Iterator[pa.RecordBatch]:
    for part in parts:
        for path, modified, content in zip(*(part.column(i) for i in range(3)), strict=True):
            rows: list[tuple[str | None, ...]] = []
            try:
                for each in trace_rows_of(content.as_py(), reading, path.as_py()):
                    if isinstance(each, Row):
                        rows.append((*(each.values.get(n) for n in names), None, None))
                    else:
                        rows.append((*(None for _ in names), each.text, f"line {each.line}: {each.reason}"))
            except SievenetError as error:
                rows.append((*(None for _ in names), "the whole file", str(error)))
            columns = list(zip(*rows, strict=True)) if rows else [()] * (len(names) + 2)
            arrays = [pa.array(list(column), pa.string()) for column in columns]
            arrays.append(pa.array([path.as_py()] * len(rows), pa.string()))
            arrays.append(pa.array([modified.as_py()] * len(rows), part.column(1).type))
            yield pa.RecordBatch.from_arrays(arrays, names=[*names, CORRUPT, WHY, SOURCE, "_modified"])


def tap_rows(files: DataFrame, schema: Schema) -> DataFrame:
    """Events of tap segments, given as Spark's ``binaryFile`` rows; a segment that is none becomes one bad row."""
    return files.select("path", "content").mapInArrow(
        lambda parts: decode_segments(parts, schema),
        f"{event_ddl(schema)}, {SOURCE} string, {REASON} string, _row string",
    )


def decode_segments(parts: Iterable[pa.RecordBatch], schema: Schema) -> Iterator[pa.RecordBatch]:
    """Arrow batches of (path, content) to Arrow batches of events; runs on executors."""
    for part in parts:
        for path, content in zip(part.column("path"), part.column("content"), strict=True):
            yield from _decoded(path.as_py(), content.as_py(), schema)


def _decoded(path: str, data: bytes, schema: Schema) -> Iterator[pa.RecordBatch]:
    try:
        segment = read_segment(data)
        if segment.schema.name != schema.name:
            return
        if segment.schema != schema:
            raise InvalidInput(
                expected=f"{schema.name} version {schema.version} as given", got=f"`version {segment.schema.version}`"
            )
    except SievenetError as error:
        fields = fields_of(schema)
        empty = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in fields], schema=fields)
        yield _with_notes(empty, path, str(error), f"{len(data)} bytes")
        return
    for each in segment.parts:
        yield _with_notes(arrow_of(each.batch, each.times, segment.publisher), path, None, None)


def _with_notes(events: pa.RecordBatch, path: str, reason: str | None, row: str | None) -> pa.RecordBatch:
    count = events.num_rows
    notes = [pa.array([text] * count, pa.string()) for text in (path, reason, row)]
    names = [*events.schema.names, SOURCE, REASON, "_row"]
    return pa.RecordBatch.from_arrays([*events.columns, *notes], names=names)
