"""Ingest: files of any format become checked events, bad rows a quarantine with reasons.

    files ──(those no run has read)──▶ rows ──check──▶ good ──▶ events, by time
                                                    └─ bad  ──▶ quarantine (source, reason, row)

All checking is Spark SQL (`validation`), one scan if every row is good, two otherwise.  A file that cannot be read at
all is set aside with its reason, and the run goes on without it.  Running it again reads only what is new; the store
makes a run happen as a whole or not at all.
"""

from __future__ import annotations

import csv
import re
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from sievenet.content import Schema
from sievenet.errors import InvalidInput, SievenetError, Unavailable
from sievenet.pipeline.clock import HEAD, TIME_NAMES, clock_of, first_rows
from sievenet.pipeline.files import FileStatus
from sievenet.pipeline.sources import format_of, rows_of, tap_rows, trace_rows
from sievenet.pipeline.store import BadFile, Manifest, Store
from sievenet.pipeline.tables import TIME, check_names, event_ddl
from sievenet.pipeline.validation import REASON, SOURCE, Rule, checked
from sievenet.workload.trace import Reading, beginning, is_plain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "PUBLISHER_NAMES",
    "TIME_NAMES",
    "How",
    "awkward_names",
    "checked_rows",
    "clock_said",
    "ingest",
    "reasons_of",
]

PUBLISHER_NAMES: Final = ("publisher",)
#: Files that may turn out unreadable before a run gives up.
_MAX_BAD: Final = 1000
_FILE: Final = re.compile(r"(?:file|hdfs|s3a?|gs|abfss?|wasbs?)(?::/+|/)[^\s'\",;\])]+")

#: How Java says that a disk is full.
_FULL: Final = "No space left on device"

Say = Callable[[str], None]


def ingest(
    store: Store,
    schema: Schema,
    inputs: Sequence[str],
    *,
    kind: str | None = None,
    time: str | None = None,
    by: str | None = None,
    rules: Sequence[Rule] = (),
    how: How | None = None,
    say: Say = lambda text: None,
) -> Manifest:
    """Read what is new in ``inputs`` (files, folders, wildcards) into the store."""
    check_names(schema)
    found = [f for path in inputs for f in _found(store, path)]
    store.keep_schema(schema)
    store.remove_dead(schema.name)
    new = sorted(set(store.unread(schema.name, found)))
    by = by or slots_for(sum(f.length for f in new))
    run = uuid.uuid4().hex[:12]
    if not new:
        say("nothing new")
        return Manifest(run, (), 0, 0)
    say(f"{len(new)} new files of {len(found)}")
    if clock := clock_said(store, schema, new[0].path, kind, time, how or How()):
        say(clock)
    # Spark passes over these without a word.
    bad = [BadFile(f.path, "expected a Parquet file, got no bytes") for f in new if not f.length and _is(f, kind)]
    while True:
        good = [f for f in new if f.path not in {b.path for b in bad}]
        try:
            manifest = _run(store, schema, good, run, kind, time, by, rules, how or How())
            break
        except Exception as error:
            try:
                _set_aside(error, good, bad)
            except SievenetError:
                # The space that it takes may be what is missing.
                store.remove_run(schema.name, run)
                raise
            say(f"set aside: {bad[-1].path}: {bad[-1].reason}")
    whole = Manifest(
        run,
        tuple((f.path, f.length, f.modified) for f in new),
        manifest.events,
        manifest.quarantined,
        manifest.reasons,
        tuple(bad),
        manifest.span,
    )
    store.commit(schema.name, whole)
    return whole


def _is(file: FileStatus, kind: str | None) -> bool:
    return (kind or format_of(file.path)) == "parquet"


def _found(store: Store, path: str) -> list[FileStatus]:
    found = store.files.find(path)
    if not found:
        raise InvalidInput("Expected a file, a folder with files or wildcards that fit some, got none", where=path)
    return found


def _set_aside(error: Exception, good: list[FileStatus], bad: list[BadFile]) -> None:
    """Blame the file that an error names; raise the error if it names none of ours."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if not isinstance(error, PySparkException | Py4JError):
        raise error
    text = str(error)
    if _FULL in text:
        raise Unavailable(f"The disk is full: {_line_with(text, _FULL)}; nothing of this run is kept") from error
    named = [_plain(path) for path in _FILE.findall(text)]
    guilty = next((f for f in good if _plain(f.path) in named), None)
    if guilty is None or len(bad) >= _MAX_BAD:
        raise Unavailable(f"Spark could not finish the run: {_said(text)}") from error
    bad.append(BadFile(guilty.path, _said(text)))


def _line_with(text: str, part: str) -> str:
    return next(line.strip() for line in text.splitlines() if part in line)[:300]


def _plain(path: str) -> str:
    """A path without the ways in which the number of slashes behind its file system is written."""
    from urllib.parse import unquote

    return unquote(re.sub(r"^([a-z0-9]+):/*", r"\1:/", path.rstrip(".")))


def _said(text: str) -> str:
    """The line of an error that tells most."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith(("Caused by:", "java.", "org.apache"))]
    return (causes[-1] if causes else lines[0])[:300]


def _run(
    store: Store,
    schema: Schema,
    files: list[FileStatus],
    run: str,
    kind: str | None,
    time: str | None,
    by: str,
    rules: Sequence[Rule],
    how: How,
) -> Manifest:
    """Check and write some files; nothing is visible yet."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    if not files:
        return Manifest(run, (), 0, 0)
    rows = checked_rows(store, schema, [f.path for f in files], kind, time, rules, how)
    seen = Observation()
    good = f.count_if(f.col(REASON).isNull()).alias("good")
    moment = f.when(f.col(REASON).isNull(), f.col(TIME))
    ends = f.min(moment).alias("first"), f.max(moment).alias("last")
    watched = rows.observe(seen, good, f.count_if(f.col(REASON).isNotNull()).alias("bad"), *ends)
    own = [name.strip().split(" ")[0] for name in event_ddl(schema).split(", ")]
    store.write_events(watched.where(f.col(REASON).isNull()).select(*own), schema.name, run, by)
    counts = seen.get
    reasons: dict[str, int] = {}
    if counts["bad"]:
        wrong = rows.where(f.col(REASON).isNotNull())
        quarantine = wrong.select(
            f.col(SOURCE).alias("source"), f.col(REASON).alias("reason"), f.col("_row").alias("row")
        )
        store.write_quarantine(quarantine, schema.name, run)
        written = store.spark.read.parquet(f"{store.root}/quarantine/{schema.name}/_run={run}")
        reasons = reasons_of(written)
    span = (counts["first"], counts["last"]) if counts["good"] else None
    return Manifest(run, (), counts["good"], sum(reasons.values()), reasons, (), span)


def reasons_of(quarantine: DataFrame) -> dict[str, int]:
    """How many bad rows there are of each kind, most first: reasons up to what came."""
    from pyspark.sql import functions as f

    kind = f.regexp_extract("reason", "^(.*?)(?:, got .*)?$", 1).alias("kind")
    counted = quarantine.groupBy(kind).count().orderBy(f.desc("count"), "kind")
    return {row["kind"]: row["count"] for row in counted.limit(50).collect()}


class How(msgspec.Struct, frozen=True):
    """What is said about files and their columns beyond where the time is."""

    reading: Reading = Reading()
    time_format: str | None = None
    #: The column that says who published.
    publisher: str | None = None


def slots_for(size: int) -> str:
    """How finely to lay events by time: about as many files as there are hundreds of megabytes, not one per hour."""
    return next((by for limit, by in ((1 << 28, "year"), (1 << 32, "month"), (1 << 36, "day")) if size < limit), "hour")


def checked_rows(
    store: Store,
    schema: Schema,
    paths: Sequence[str],
    kind: str | None = None,
    time: str | None = None,
    rules: Sequence[Rule] = (),
    how: How | None = None,
) -> DataFrame:
    """All rows of some files, checked; those of awkward files are read by Python."""
    said = how or How()
    kinds: dict[tuple[str, tuple[str, ...] | None], list[str]] = {}
    for path in paths:
        kinds.setdefault(_kind_of(store, path, kind, said.reading), []).append(path)
    parts = [_checked(store, schema, form, some, time, rules, said, header) for (form, header), some in kinds.items()]
    rows = parts[0]
    for part in parts[1:]:
        rows = rows.unionByName(part)
    return rows


def _kind_of(store: Store, path: str, kind: str | None, reading: Reading) -> tuple[str, tuple[str, ...] | None]:
    """The format of a file and its header, for Spark reads files of one header at a time; None if it is awkward."""
    form = kind or format_of(path)
    if form not in ("csv", "json"):
        return form, ()
    head = store.files.head(path, HEAD)
    if not is_plain(head, path, reading):
        return form, None
    if form == "json":
        return form, ()
    lines = beginning(head).decode("utf-8", "replace").splitlines()[:1]
    header = next(csv.reader(lines, delimiter="\t" if ".tsv" in path.lower() else ","), [])
    return form, tuple(header) if header and len(set(header)) == len(header) else None


def awkward_names(store: Store, paths: Sequence[str], reading: Reading) -> list[str]:
    """The columns of awkward files: all that their first rows have."""
    rows = (row for path in list(paths)[:20] for row in first_rows(store, path, reading))
    return list(dict.fromkeys(name for row in rows for name in row))


def _checked(
    store: Store,
    schema: Schema,
    kind: str,
    paths: list[str],
    time: str | None,
    rules: Sequence[Rule],
    how: How,
    header: tuple[str, ...] | None,
) -> DataFrame:
    binary = store.spark.read.format("binaryFile")
    if kind == "tap":
        return tap_rows(binary.load(paths), schema)
    guessed = clock_of(first_rows(store, paths[0], how.reading), schema).column if _is_text(kind, time) else None
    more = [n for n in ((time,) if time else TIME_NAMES) + PUBLISHER_NAMES if n not in schema]
    more += [n for n in (how.publisher, guessed) if n and n not in schema and n not in more]
    if header is not None:
        rows = rows_of(store.spark, kind, paths, schema, more, header)
    else:
        reading = how.reading
        there = awkward_names(store, paths, reading)
        missing = [n for n in schema.positions if n not in there]
        if missing and there:
            raise InvalidInput(
                f"Expected columns {', '.join(schema.positions)}; missing: {', '.join(missing)}; "
                f"found: {', '.join(there)[:300]}",
                where=paths[0],
            )
        names = [*schema.positions, *(n for n in more if n in there)]
        rows = trace_rows(binary.load(paths), names, reading)
    if time is not None and time not in rows.columns:
        raise InvalidInput(expected=f"a column {time} for the time", got=rows.columns, where=paths[0])
    clock = time or _first_used(rows, (*TIME_NAMES, *([guessed] if guessed else [])), schema, kind)
    publisher = how.publisher or _first_used(rows, PUBLISHER_NAMES, schema, kind)
    if publisher is not None and publisher not in rows.columns:
        raise InvalidInput(expected=f"a column {publisher} for the publisher", got=rows.columns, where=paths[0])
    return checked(rows, schema, clock, publisher, rules, how.time_format)


def _is_text(kind: str, time: str | None) -> bool:
    """Whether the column of the time has to be found among texts."""
    return time is None and kind in ("csv", "json")


def clock_said(store: Store, schema: Schema, path: str, kind: str | None, time: str | None, how: How) -> str:
    """Where the time of a file's rows comes from, as a line for people; nothing to say of taps and Parquet."""
    if (kind or format_of(path)) not in ("csv", "json"):
        return ""
    return str(clock_of(first_rows(store, path, how.reading), schema, time, how.time_format))


def _first_used(rows: DataFrame, names: Sequence[str], schema: Schema, kind: str) -> str | None:
    """The first of some columns that the rows have and that is no attribute."""
    from pyspark.sql import functions as f

    there = [n for n in names if n in rows.columns and n not in schema]
    if kind != "json" or not there:
        return there[0] if there else None
    # Every column that we asked for is there; which one is filled?
    first = rows.select(*there).limit(1000).agg(*(f.count(n).alias(n) for n in there)).first()
    return next((n for n in there if first is not None and first[n]), None)
