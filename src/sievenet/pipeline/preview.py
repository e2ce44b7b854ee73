"""Preview: what an ingest would do, and what is in the quarantine, in a few rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sievenet.content import Schema
from sievenet.errors import InvalidInput
from sievenet.pipeline.ingest import How, checked_rows
from sievenet.pipeline.store import Store
from sievenet.pipeline.tables import PUBLISHER, TIME, quoted
from sievenet.pipeline.validation import REASON

__all__ = ["Preview", "bad_examples", "preview"]


class Preview(NamedTuple):
    """How many events there would be, some of them, and bad rows by their reasons."""

    events: int
    rows: list[dict[str, Any]]
    bad: dict[str, int]


def preview(
    store: Store,
    schema: Schema,
    inputs: Sequence[str],
    kind: str | None = None,
    time: str | None = None,
    how: How | None = None,
    count: int = 10,
) -> Preview:
    """What an ingest would read; nothing is kept."""
    from pyspark.sql import functions as f

    paths = [found.path for path in inputs for found in store.files.find(path) if found.length]
    if not paths:
        raise InvalidInput("Expected a file, a folder with files or wildcards that fit some, got none", where=inputs[0])
    rows = checked_rows(store, schema, paths, kind, time, how=how).cache()
    try:
        moment = f.timestamp_micros(TIME).cast("string").alias(TIME)
        chosen = [*(f.col(quoted(n)) for n in schema.positions), moment, f.col(PUBLISHER)]
        some = rows.where(f.col(REASON).isNull()).select(*chosen).limit(count).collect()
        why = f.regexp_extract(REASON, "^(?:line [0-9]+: )?(.*?)(?:, got .*)?$", 1).alias("why")
        counted = {row["why"]: row["count"] for row in rows.groupBy(why).count().collect()}
    finally:
        rows.unpersist()
    events = counted.pop(None, 0)
    return Preview(events, [row.asDict() for row in some], counted)


def bad_examples(store: Store, category: str, count: int) -> dict[str, dict[str, Any]]:
    """Per reason, most first: how many bad rows there are, and some of them."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    store.schema(category)
    why = f.regexp_extract("reason", "^(?:line [0-9]+: )?(.*?)(?:, got .*)?$", 1)
    same = Window.partitionBy("why")
    rows = store.quarantine(category).withColumn("why", why).withColumn("all", f.count("*").over(same))
    numbered = rows.withColumn("nth", f.row_number().over(same.orderBy("source", "row")))
    found: dict[str, dict[str, Any]] = {}
    for row in sorted(numbered.where(f.col("nth") <= count).collect(), key=lambda r: (-r["all"], r["why"], r["nth"])):
        each = found.setdefault(row["why"], {"rows": row["all"], "examples": []})
        each["examples"].append({"source": row["source"], "reason": row["reason"], "row": row["row"]})
    return found
