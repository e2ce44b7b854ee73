"""A schema from the files themselves, for traces that come without one.

One pass, by the same code on the driver (a few megabytes) and on executors (more): per column it counts values that are
whole numbers, numbers, yes or no, times, and lists different ones as long as they are few (`measure`).

    nearly all are whole numbers         int, with half of the values' span as room on each side (`domain_of`)
    nearly all are numbers               float, likewise
    nearly all are yes or no             bool
    few different texts, which repeat    str, one of them
    nearly all are times                 no attribute: an event's time is kept beside it
    else                                 str

Nearly all: the rest are what ingest puts into quarantine.  Domains get room, since more is to come; a value beyond
goes to quarantine too, and a schema of your own says better what may come.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sievenet.content import Attribute, Schema
from sievenet.content.schema import NAME
from sievenet.errors import InvalidInput, SievenetError
from sievenet.pipeline.clock import ISO
from sievenet.pipeline.sources import format_of
from sievenet.pipeline.tables import quoted
from sievenet.pipeline.validation import CORRUPT, SOURCE, WHY
from sievenet.workload.trace import Reading, Row, is_plain
from sievenet.workload.trace import rows_of as trace_rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sievenet.pipeline.files import FileStatus
    from sievenet.pipeline.store import Store

__all__ = ["Measure", "category_of", "domain_of", "infer_schema", "measure"]

#: The part of a column's values that must be of a type.
_NEARLY: Final = 0.99
#: Different texts up to which they are listed.
_FEW: Final = 1000
#: Whole numbers up to here are inferred as such.
_LARGEST: Final = 1 << 53
#: Bytes of files that the driver reads itself.
_SMALL: Final = 8 << 20
_WHOLE: Final = r"^[+-]?[0-9]{1,19}(\.0*)?$"
_NUMBER: Final = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?$"
_BOOLS: Final = ("true", "false", "yes", "no", "t", "f", "y", "n")
_DDL: Final = "name string, counts array<bigint>, least double, most double, kinds array<string>"


@dataclass(frozen=True, slots=True)
class Measure:
    """What the values of a column are; those of parts add up."""

    values: int = 0
    whole: int = 0
    numbers: int = 0
    bools: int = 0
    times: int = 0
    least: float = math.inf
    most: float = -math.inf
    #: Different texts, no more than one beyond `_FEW`.
    kinds: frozenset[str] = frozenset()

    def __add__(self, other: Measure) -> Measure:
        kinds = self.kinds if len(self.kinds) > _FEW else self.kinds | other.kinds
        values, whole, numbers, bools, times = (a + b for a, b in zip(self.counts, other.counts, strict=True))
        least, most = min(self.least, other.least), max(self.most, other.most)
        return Measure(values, whole, numbers, bools, times, least, most, kinds)

    @property
    def counts(self) -> tuple[int, int, int, int, int]:
        """How many values there are, and how many of them of each type."""
        return self.values, self.whole, self.numbers, self.bools, self.times

    @property
    def type(self) -> str:
        """What nearly all values are; nothing if there are none, or if they are times."""
        enough = _NEARLY * self.values
        if not self.values or (self.times >= enough and self.numbers < enough):
            return ""
        if self.whole >= enough:
            small = max(abs(self.least), abs(self.most)) <= _LARGEST
            return "int" if small and self.whole >= _NEARLY * self.numbers else "float"
        if self.numbers >= enough:
            return "float"
        return "bool" if self.bools >= enough else "str"

    @property
    def repeats(self) -> bool:
        """Whether texts come again and again; those that hardly do are identifiers."""
        return len(self.kinds) <= min(_FEW, max(8, self.values / 2))


def measure(texts: Any) -> Measure:
    """The measure of some texts (an Arrow array of strings)."""
    values: Any = texts.drop_null()
    trimmed = pc.utf8_trim_whitespace(values)
    like = pc.filter(trimmed, pc.match_substring_regex(trimmed, _NUMBER))
    numbers = pc.cast(pc.utf8_ltrim(like, "+"), pa.float64()).to_numpy(zero_copy_only=False)
    # What is beyond has no use as a domain.
    numbers = numbers[np.abs(numbers) < 1e300]
    kinds = pc.unique(values).slice(0, _FEW + 1).to_pylist()
    return Measure(
        len(values),
        _count(pc.match_substring_regex(trimmed, _WHOLE)),
        len(numbers),
        _count(pc.is_in(pc.utf8_lower(trimmed), value_set=pa.array(_BOOLS))),
        _count(pc.match_substring_regex(trimmed, ISO)),
        float(numbers.min()) if len(numbers) else math.inf,
        float(numbers.max()) if len(numbers) else -math.inf,
        frozenset(kinds),
    )


def _count(mask: Any) -> int:
    return int(pc.sum(mask).as_py() or 0)


def category_of(path: str) -> str:
    """A category's name from that of a file."""
    stem = re.sub(r"[^A-Za-z0-9_]+", "_", path.rstrip("/").rsplit("/", 1)[-1].split(".")[0].lstrip("*?")).strip("_")
    return stem if NAME.fullmatch(stem) else "events"


def infer_schema(
    store: Store,
    name: str,
    inputs: Sequence[str],
    skip: Sequence[str],
    kind: str | None = None,
    reading: Reading | None = None,
) -> Schema:
    """The schema of the rows in some files; columns that ``skip`` names are no attributes."""
    found = [f for path in inputs for f in store.files.find(path) if f.length]
    kinds = {kind or format_of(f.path) for f in found}
    if kinds - {"csv", "json", "parquet"} or not kinds:
        raise InvalidInput(
            expected="CSV, JSON or Parquet files with rows to infer a schema from",
            got=f"`{', '.join(kinds) or 'none'}`",
        )
    if len(kinds) > 1:
        raise InvalidInput(expected="files of one format to infer a schema from", got=f"`{', '.join(sorted(kinds))}`")
    measures = _measures(store, kinds.pop(), found, reading or Reading())
    names = [c for c in measures if c not in skip and c != CORRUPT and NAME.fullmatch(c)]
    if not names:
        raise InvalidInput(f"Expected a column to infer an attribute from, got {', '.join(measures)[:300]}")
    attributes = [_attribute(n, measures[n]) for n in names if measures[n].type]
    if not attributes:
        raise InvalidInput("Expected a value in some column, got none", where=", ".join(inputs)[:300])
    return Schema(name, tuple(attributes))


# -- measuring --------------------------------------------------------------------------------------


def _measures(store: Store, kind: str, files: Sequence[FileStatus], reading: Reading) -> dict[str, Measure]:
    """Column → measure, in the order of the columns."""
    local = all(f.path.startswith("file:") for f in files)
    if local and sum(f.length for f in files) <= _SMALL:
        found: dict[str, Measure] = {}
        for file in files:
            for name, texts in _columns(store, kind, file.path, reading).items():
                found[name] = found.get(name, Measure()) + measure(texts)
        return found
    from pyspark.sql import functions as f

    rows = _rows(store, kind, [file.path for file in files], reading)
    texts = rows.select(*(f.col(quoted(n)).cast("string").alias(n) for n in rows.columns))
    found = dict.fromkeys(rows.columns, Measure())
    for row in texts.mapInArrow(_measured, _DDL).collect():
        values, whole, numbers, bools, times = row["counts"]
        ends, kinds = (row["least"], row["most"]), frozenset(row["kinds"])
        found[row["name"]] += Measure(values, whole, numbers, bools, times, *ends, kinds)
    return found


def _measured(parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    found: dict[str, Measure] = {}
    for part in parts:
        for name, texts in zip(part.schema.names, part.columns, strict=True):
            found[name] = found.get(name, Measure()) + measure(texts)
    rows = [(n, list(m.counts), m.least, m.most, sorted(m.kinds)) for n, m in found.items()]
    names = ("name", "counts", "least", "most", "kinds")
    types = (pa.string(), pa.list_(pa.int64()), pa.float64(), pa.float64(), pa.list_(pa.string()))
    columns = zip(*rows, strict=True) if rows else ((),) * 5
    yield pa.RecordBatch.from_arrays([pa.array(list(c), t) for c, t in zip(columns, types, strict=True)], names=names)


def _columns(store: Store, kind: str, path: str, reading: Reading) -> Mapping[str, Any]:
    """The columns of one file as texts; a file that cannot be read has none, which is said when it is ingested."""
    import pyarrow.parquet as pq

    data = store.files.read(path)
    if kind == "parquet":
        try:
            table = pq.read_table(pa.BufferReader(data))
        except (pa.ArrowException, OSError):
            return {}
        plain = [f.name for f in table.schema if not pa.types.is_nested(f.type)]
        return {n: table.column(n).combine_chunks().cast(pa.string()) for n in plain}
    rows: list[dict[str, str | None]] = []
    names: dict[str, None] = {}
    try:
        for row in trace_rows_of(data, reading, path):
            if isinstance(row, Row):
                rows.append(row.values)
                names |= dict.fromkeys(row.values)
    except SievenetError:
        return {}
    if not rows and kind == "csv":
        names = dict.fromkeys(_header(data))
    return {n: pa.array([row.get(n) for row in rows], pa.string()) for n in names}


def _header(data: bytes) -> list[str]:
    """The columns of a CSV file without rows."""
    from sievenet.workload.trace import clean, decoded, separator_of, unpacked

    text, _ = decoded(unpacked(data))
    return [clean(name) for name in text.strip().split(separator_of(text)) if name.strip()]


def _rows(store: Store, kind: str, paths: list[str], reading: Reading) -> DataFrame:
    reader: Any = store.spark.read
    if kind != "parquet" and not all(is_plain(store.files.head(p, 1 << 15), p, reading) for p in paths[:100]):
        from sievenet.pipeline.ingest import awkward_names
        from sievenet.pipeline.sources import trace_rows

        names = awkward_names(store, paths, reading)
        return trace_rows(reader.format("binaryFile").load(paths), names, reading).drop(WHY, SOURCE, "_modified")
    if kind == "parquet":
        rows: DataFrame = reader.parquet(*paths)
        return rows
    if kind == "json":
        reader = reader.option("primitivesAsString", True).option("columnNameOfCorruptRecord", CORRUPT)
        objects: DataFrame = reader.json(paths)
        return objects
    separator = "\t" if ".tsv" in paths[0].lower() else ","
    lines: DataFrame = reader.option("header", True).option("sep", separator).csv(paths)
    return lines


def _attribute(name: str, found: Measure) -> Attribute:
    kind = found.type
    if kind == "str":
        return Attribute(name, "str", values=tuple(sorted(found.kinds)) if found.repeats and all(found.kinds) else None)
    if kind == "bool":
        return Attribute(name, "bool")
    lo, hi = domain_of(found.least, found.most)
    return (
        Attribute(name, "int", lo=math.floor(lo), hi=math.ceil(hi))
        if kind == "int"
        else Attribute(name, "float", lo=lo, hi=hi)
    )


def domain_of(least: float, most: float) -> tuple[float, float]:
    """A domain around values: half of their span as room on each side, rounded to 1, 2 or 5; never across zero.

    >>> domain_of(1850.0, 1950.0)
    (1800.0, 2000.0)
    >>> domain_of(0.0, 37.0)
    (0.0, 60.0)
    """
    span = most - least or max(abs(most), 1.0)
    step = _round_up(span / 10)
    lo, hi = (
        round(edge(end / step) * step, 12)
        for edge, end in ((math.floor, least - span / 2), (math.ceil, most + span / 2))
    )
    return (max(lo, 0.0) if least >= 0 else lo), (min(hi, 0.0) if most <= 0 and least < 0 else hi)


def _round_up(value: float) -> float:
    """The next of …, 0.5, 1, 2, 5, 10, 20, … at or above a value."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power >= value)
