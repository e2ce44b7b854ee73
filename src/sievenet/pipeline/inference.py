"""A schema from the files themselves, for traces that come without one.

Two scans, whatever the number of columns.  The first counts, per column, values that are whole numbers, numbers, yes or
no, and how many different ones there are about; the second lists the values of those that are few.

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
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from sievenet.content import Attribute, Schema
from sievenet.content.schema import NAME
from sievenet.errors import InvalidInput
from sievenet.pipeline.checking import CORRUPT, SOURCE, WHY
from sievenet.pipeline.sources import format_of
from sievenet.pipeline.tables import quoted
from sievenet.workload.trace import Reading, is_plain

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from sievenet.pipeline.store import Store

__all__ = ["category_of", "infer_schema"]

#: The part of a column's values that must be of a type.
_NEARLY: Final = 0.99
#: Different texts up to which they are listed.
_FEW: Final = 1000
#: Whole numbers up to here are inferred as such.
_LARGEST: Final = 1 << 53
_WHOLE: Final = r"^[+-]?[0-9]{1,19}(\.0*)?$"
_BOOLS: Final = "true", "false", "yes", "no", "t", "f", "y", "n"


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
    found = [f.path for path in inputs for f in store.files.find(path) if f.length]
    kinds = {kind or format_of(path) for path in found}
    if kinds - {"csv", "json", "parquet"} or not kinds:
        raise InvalidInput(
            expected="CSV, JSON or Parquet files with rows to infer a schema from",
            got=f"`{', '.join(kinds) or 'none'}`",
        )
    if len(kinds) > 1:
        raise InvalidInput(expected="files of one format to infer a schema from", got=f"`{', '.join(sorted(kinds))}`")
    rows = _rows(store, kinds.pop(), found, reading or Reading())
    names = [c for c in rows.columns if c not in skip and c != CORRUPT and NAME.fullmatch(c)]
    if not names:
        raise InvalidInput(f"Expected a column to infer an attribute from, got {', '.join(rows.columns)[:300]}")
    counts = rows.agg(*(measure for n in names for measure in _measures(n))).first()
    assert counts is not None
    types = {n: _type(counts, n) for n in names}
    few = [n for n in names if types[n] == "str" and _repeats(counts[f"{n} kinds"], counts[f"{n} all"])]
    values = _values(rows, few)
    attributes = [_attribute(n, types[n], counts, values.get(n)) for n in names if types[n]]
    if not attributes:
        raise InvalidInput("Expected a value in some column, got none", where=", ".join(inputs)[:300])
    return Schema(name, tuple(attributes))


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


def _measures(name: str) -> list[Column]:
    from pyspark.sql import functions as f

    text = f.trim(f.col(quoted(name)).cast("string"))
    number = text.try_cast("double")
    # Dates and the like are no numbers; NaN is, but not for us.
    number = f.when(~f.isnan(number) & (f.abs(number) < f.lit(1e300)), number)
    return [
        f.count(text).alias(f"{name} all"),
        f.count_if(text.rlike(_WHOLE)).alias(f"{name} whole"),
        f.count(number).alias(f"{name} numbers"),
        f.count_if(f.lower(text).isin(*_BOOLS)).alias(f"{name} bools"),
        f.min(number).alias(f"{name} least"),
        f.max(number).alias(f"{name} most"),
        f.count(text.try_cast("timestamp")).alias(f"{name} times"),
        f.approx_count_distinct(text).alias(f"{name} kinds"),
    ]


def _type(counts: Any, name: str) -> str:
    total = counts[f"{name} all"]
    if not total:
        return ""
    enough = _NEARLY * total
    if counts[f"{name} times"] >= enough and counts[f"{name} numbers"] < enough:
        return ""
    if counts[f"{name} whole"] >= enough:
        small = max(abs(counts[f"{name} least"]), abs(counts[f"{name} most"])) <= _LARGEST
        return "int" if small and counts[f"{name} whole"] >= _NEARLY * counts[f"{name} numbers"] else "float"
    if counts[f"{name} numbers"] >= enough:
        return "float"
    return "bool" if counts[f"{name} bools"] >= enough else "str"


def _repeats(kinds: int, total: int) -> bool:
    """Whether texts come again and again; those that hardly do are identifiers."""
    return kinds <= min(_FEW, max(8, total / 2))


def _values(rows: DataFrame, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    from pyspark.sql import functions as f

    if not names:
        return {}
    found = rows.agg(*(f.sort_array(f.collect_set(f.col(quoted(n)).cast("string"))).alias(n) for n in names)).first()
    assert found is not None
    return {n: tuple(found[n]) for n in names}


def _attribute(name: str, kind: str, counts: Any, values: tuple[str, ...] | None) -> Attribute:
    if kind == "str":
        return Attribute(name, "str", values=values if values and all(values) else None)
    if kind == "bool":
        return Attribute(name, "bool")
    lo, hi = domain_of(float(counts[f"{name} least"]), float(counts[f"{name} most"]))
    return Attribute(name, "int", lo=int(lo), hi=int(hi)) if kind == "int" else Attribute(name, "float", lo=lo, hi=hi)


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
