"""Checking rows against a schema, in Spark SQL: typed columns, or the reason why not.

Rows come with whatever types their files have: text from CSV and JSON, anything from Parquet.  Each attribute becomes
a pair of expressions, the typed value and a reason (null if the value is good):

    text "12"  ─▶ 12        text "12.5" for an int ─▶ "expected int in [0, 99] for x, got 12.5"
    null       ─▶           "expected int in [0, 99] for x, got nothing"

The first reason of a row is its reason.  A good row is an event that `EventBatch.of` would take: the tests compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from sievenet.content import MAX_STRING, Attribute, Schema
from sievenet.pipeline.tables import PUBLISHER, TIME, ddl_of, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["CORRUPT", "REASON", "SOURCE", "WHY", "Rule", "checked"]

REASON: Final = "_reason"
#: The file that a row comes from.
SOURCE: Final = "_source"
#: The text of a row that is none, and why it is none, if that is known.
CORRUPT: Final = "_corrupt"
WHY: Final = "_why"
_TRUE: Final = ("true", "t", "yes", "y", "1")
_FALSE: Final = ("false", "f", "no", "n", "0")


class Rule(NamedTuple):
    """A condition on typed columns that good rows meet, in SQL, and what to say otherwise."""

    condition: str
    reason: str


def checked(
    rows: DataFrame,
    schema: Schema,
    time: str | None,
    publisher: str | None,
    rules: Sequence[Rule] = (),
    time_format: str | None = None,
) -> DataFrame:
    """Typed columns of the events table, `_source`, `_reason` and, for bad rows, `_row` as text.

    ``time`` and ``publisher`` name columns of the rows; without one, the time is that of the file.  ``time_format`` is
    a pattern of Spark (``dd/MM/yyyy HH:mm``) for times that are written otherwise than ISO 8601.
    """
    from pyspark.sql import functions as f

    kinds = dict(rows.dtypes)
    pairs = [_attribute(a, kinds[a.name]) for a in schema.attributes]
    clock, clock_reason = _time(time, kinds, time_format)
    name = f.col(quoted(publisher)).cast("string") if publisher else f.lit("")
    # Only bad rows are kept as text; their columns are many and their number is small.
    shown = [f.col(quoted(c)) for c in rows.columns if c not in (SOURCE, "_modified", WHY)]
    corrupt = f.col(CORRUPT).isNotNull() if CORRUPT in rows.columns else f.lit(False)
    torn = f.when(corrupt, f.lit("expected a row of the file's columns, got something else"))
    if WHY in rows.columns:
        torn = f.coalesce(f.col(WHY), torn)
    first = rows.select(
        *(value.alias(a.name) for (value, _), a in zip(pairs, schema.attributes, strict=True)),
        clock.alias(TIME),
        f.coalesce(name, f.lit("")).alias(PUBLISHER),
        f.col(SOURCE),
        f.coalesce(torn, *(reason for _, reason in pairs), clock_reason, f.lit(None).cast("string")).alias(REASON),
        f.struct(*shown).alias("_whole"),
    )
    broken = [f.when(~f.expr(rule.condition), f.lit(rule.reason)) for rule in rules]
    reason = f.coalesce(f.col(REASON), *broken, f.lit(None).cast("string"))
    row = f.when(reason.isNotNull(), f.to_json("_whole"))
    return first.withColumn("_row", row).withColumn(REASON, reason).drop("_whole")


def _attribute(attribute: Attribute, kind: str) -> tuple[Column, Column]:
    """The typed value of a column, and why it is bad."""
    from pyspark.sql import functions as f

    given = f.col(quoted(attribute.name))
    value, good = _typed(attribute, given, kind)
    good = f.coalesce(good & value.isNotNull(), f.lit(False))
    said = f.when(given.isNull(), f.lit("nothing")).otherwise(f.substring(given.cast("string"), 1, 60))
    expected = f"expected {attribute.describes[:200]} for {attribute.name}, got "
    # NaN and the like must not survive in a row that is otherwise kept.
    return value, f.when(~good, f.concat(f.lit(expected), f.coalesce(said, f.lit("nothing"))))


def _typed(attribute: Attribute, given: Column, kind: str) -> tuple[Column, Column]:
    from pyspark.sql import functions as f

    sql = ddl_of(attribute)
    lo, hi = attribute.lo or 0, attribute.hi or 0
    text = f.trim(given.cast("string"))
    if attribute.type == "str":
        plain = given.cast("string")
        if attribute.values is not None:
            return plain, plain.isin(list(attribute.values))
        return plain, f.octet_length(plain) <= MAX_STRING
    if attribute.type == "bool":
        if kind == "boolean":
            return given, f.lit(True)
        low = f.lower(text)
        value = f.when(low.isin(list(_TRUE)), f.lit(True)).when(low.isin(list(_FALSE)), f.lit(False))
        return value, value.isNotNull()
    if attribute.type == "float":
        value = given.cast("double") if kind in _NUMBERS else text.try_cast("double")
        return value, value.between(lo, hi) & ~f.isnan(value)
    if kind in _WHOLE:
        return given.cast(sql), given.between(lo, hi)
    # A whole number may be written as one with zeros behind the point.
    whole = text.rlike(r"^[+-]?[0-9]{1,19}(\.0*)?$")
    number = f.when(whole, f.regexp_replace(text, r"\.0*$", "")).try_cast("decimal(20,0)")
    return number.try_cast(sql), number.between(lo, hi)


_WHOLE: Final = frozenset({"tinyint", "smallint", "int", "bigint"})
_NUMBERS: Final = _WHOLE | {"float", "double"}


#: What a column of times may hold.
TIMES: Final = "ISO 8601, yyyyMMdd, or seconds, ms, µs or ns since 1970; --time-format says otherwise"


def _time(name: str | None, kinds: dict[str, str], pattern: str | None = None) -> tuple[Column, Column]:
    """Microseconds since 1970, and why there are none."""
    from pyspark.sql import functions as f

    if name is None:
        return f.unix_micros(f.col("_modified")), f.lit(None).cast("string")
    given, kind = f.col(quoted(name)), kinds[name]
    text = f.trim(given.cast("string"))
    if pattern is not None:
        value = f.unix_micros(f.try_to_timestamp(text, f.lit(pattern)))
    elif kind in _NUMBERS or kind.startswith("decimal"):
        value = _since_1970(given.cast("double"))
    elif kind in ("timestamp", "timestamp_ntz", "date"):
        value = f.unix_micros(given.cast("timestamp"))
    else:
        day = f.when(text.rlike("^(19|20)[0-9]{6}$"), f.try_to_timestamp(text, f.lit("yyyyMMdd")))
        # Four digits would pass for a year.
        moment = f.when(~text.rlike("^[0-9]{1,7}$"), text.try_cast("timestamp"))
        value = f.coalesce(f.unix_micros(day), f.unix_micros(moment), _since_1970(text.try_cast("double")))
    said = f.coalesce(f.substring(given.cast("string"), 1, 60), f.lit("nothing"))
    return value, f.when(value.isNull(), f.concat(f.lit(f"expected a time in {name} ({TIMES}), got "), said))


def _since_1970(number: Column) -> Column:
    """Microseconds, from whatever unit makes the year plausible (before 5138)."""
    from pyspark.sql import functions as f

    size = f.abs(number)
    micros = (
        f.when(size < 1e11, number * 1e6)
        .when(size < 1e14, number * 1e3)
        .when(size < 1e17, number)
        .otherwise(number / 1e3)
    )
    return f.when(~f.isnan(number), micros.cast("bigint"))
