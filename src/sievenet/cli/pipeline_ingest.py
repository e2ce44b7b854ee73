"""`sievenet pipeline ingest`: files as they come become checked events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from sievenet.cli.file_options import reading_of, reading_options
from sievenet.cli.output import json_option, show_json
from sievenet.cli.pipeline_options import bundled, finish, master_option, opened, report_option, say

if TYPE_CHECKING:
    from sievenet.content import Schema
    from sievenet.pipeline.ingest import How
    from sievenet.pipeline.store import Store

__all__ = ["Trace", "ingest", "schema_of", "time_of", "trace_options"]


@dataclass(frozen=True)
class Trace:
    """What was said about traces."""

    schema_name: str | None
    category: str | None
    kind: str | None
    columns: str | None
    separator: str | None
    encoding: str | None
    rename: tuple[str, ...]
    select: str | None
    pairs: str | None
    time_column: str | None
    time_format: str | None
    publisher: str | None

    @property
    def how(self) -> How:
        """How files are read."""
        from sievenet.pipeline.ingest import How

        said = (self.columns, self.separator, self.encoding, self.rename, self.select, self.pairs, self.kind)
        return How(reading_of(*said), self.time_format, self.publisher)

    def found(
        self, store: Store, inputs: tuple[str, ...], say: Callable[[str], None] = say
    ) -> tuple[Schema, str | None]:
        """The schema (as said, the store's own, or one made from the files), and the column of the time."""
        from sievenet.workload.samples import load_schema

        given = load_schema(self.schema_name) if self.schema_name else None
        time = time_of(store, inputs, self.time_column, self.how)
        return given or schema_of(store, self.category, inputs, self.kind, time, self.how, say), time


_KINDS = click.Choice(["csv", "json", "parquet", "tap"])
#: How traces are read, up to ``--publisher``, as the argument ``trace``.
trace_options = bundled(
    "trace",
    Trace,
    click.option(
        "--schema",
        "schema_name",
        metavar="NAME|FILE",
        help="A built-in schema or a JSON file. Default: from the files.",
    ),
    click.option(
        "--category", metavar="NAME", help="What a schema from the files is called. Default: as the first file."
    ),
    click.option("--format", "kind", type=_KINDS, help="Default: by file name."),
    reading_options,
    click.option(
        "--time", "time_column", metavar="COLUMN", help="Where the time is. Default: time, timestamp, date, …"
    ),
    click.option("--time-format", metavar="PATTERN", help="How times are written, such as dd/MM/yyyy HH:mm."),
    click.option("--publisher", metavar="COLUMN", help="Who published. Default: publisher, if there is such a column."),
)


@click.command()
@click.argument("store")
@click.argument("inputs", nargs=-1, required=True)
@trace_options
@click.option(
    "--by",
    type=click.Choice(["hour", "day", "month", "year"]),
    help="How finely to lay events by time. Default: by size.",
)
@click.option("--dry-run", is_flag=True, help="Show the schema, ten rows and what would be set aside; keep nothing.")
@master_option
@report_option
@json_option
def ingest(
    store: str,
    inputs: tuple[str, ...],
    trace: Trace,
    by: str | None,
    dry_run: bool,
    master: str | None,
    folder: str | None,
    as_json: bool,
) -> None:
    """Read traces into a store: checked events, and a quarantine for the rest.

    INPUTS are files, folders or wildcards of CSV, JSON lines, Parquet or tap segments. What an earlier run has read is
    not read again. Bad rows go to a quarantine with their reasons; a file that cannot be read is set aside. Without a
    schema, the store's own or one made from the files is used. Separators, encodings and packing are found out.

    \b
    Examples:
      $ sievenet pipeline ingest store trades/*.csv --schema stock  # needs Spark
      $ sievenet pipeline ingest store quotes.csv --category quote --dry-run  # needs Spark
      $ sievenet pipeline ingest store bars.txt --format csv --columns day,price --time day  # needs Spark
      $ sievenet pipeline ingest store /var/tap --schema stock.json --report report  # needs Spark
    """
    import msgspec

    from sievenet.pipeline.ingest import ingest as run
    from sievenet.pipeline.report import Report

    with opened(store, master, inputs) as where:
        schema, time = trace.found(where, inputs)
        if dry_run:
            _shown(where, schema, inputs, trace.kind, time, trace.how, as_json)
            return
        done = run(where, schema, inputs, kind=trace.kind, time=time, by=by, how=trace.how, say=say)
    report = Report(f"Ingest of {schema.name}")
    report.figures = msgspec.to_builtins(done)
    report.text(f"{done.events} events, {done.quarantined} bad rows, {len(done.bad_files)} unreadable files.")
    report.table("Reasons", ["reason", "rows"], list(done.reasons.items()))
    report.table("Files set aside", ["file", "reason"], [(b.path, b.reason) for b in done.bad_files])
    lines = [f"{done.events} events from {len(done.files)} files; {done.quarantined} bad rows in quarantine"]
    lines += [f"  {done.between}"] if done.events else []
    lines += [f"  {count}  {reason}" for reason, count in done.reasons.items()]
    lines += [f"  set aside: {bad.path}: {bad.reason}" for bad in done.bad_files]
    finish(report, folder, as_json, "\n".join(lines))


def time_of(store: Store, inputs: tuple[str, ...], said: str | None, how: How) -> str | None:
    """The column of the time: as said, or, with a pattern and no column of a usual name, one written like that."""
    from sievenet.errors import InvalidInput
    from sievenet.pipeline.clock import TIME_NAMES, first_rows, patterned

    found = next((f.path for path in inputs for f in store.files.find(path)), None)
    if said or how.time_format is None or found is None:
        return said
    rows = first_rows(store, found, how.reading)
    if not rows or any(name in rows[0] for name in TIME_NAMES):
        return None
    column = patterned(rows, how.time_format)
    if column is None:
        names = ", ".join(rows[0])
        raise InvalidInput(
            f"Expected a column whose values are written like {how.time_format}, got none ({names}): --time names it",
            where=found,
        )
    return column


def schema_of(
    store: Store,
    category: str | None,
    inputs: tuple[str, ...],
    kind: str | None,
    time: str | None,
    how: How,
    say: Callable[[str], None] = say,
) -> Schema:
    """The schema that the store has of a category, or one made from the files."""
    from sievenet.pipeline.clock import TIME_NAMES
    from sievenet.pipeline.inference import category_of, infer_schema
    from sievenet.pipeline.ingest import PUBLISHER_NAMES

    name = category or category_of(inputs[0])
    if store.files.exists(f"{store.root}/schemas/{name}.json"):
        return store.schema(name)
    say(f"no schema given: making one for {name} from the files")
    skip = [*((time,) if time else TIME_NAMES), *((how.publisher,) if how.publisher else PUBLISHER_NAMES)]
    found = infer_schema(store, name, inputs, skip, kind, how.reading)
    for attribute in found.attributes:
        say(f"  {attribute.name}: {attribute.describes}")
    return found


def _shown(
    store: Store,
    schema: Schema,
    inputs: tuple[str, ...],
    kind: str | None,
    time: str | None,
    how: How,
    as_json: bool,
) -> None:
    """What an ingest would do."""
    from sievenet.pipeline.ingest import clock_said
    from sievenet.pipeline.preview import preview

    events, good, counted = preview(store, schema, inputs, kind, time, how)
    if as_json:
        import msgspec

        show_json({"schema": msgspec.json.decode(schema.to_json()), "events": events, "rows": good, "bad": counted})
        return
    lines = [f"{schema.name}: {len(schema.attributes)} attributes"]
    lines += [f"  {a.name}: {a.describes}" for a in schema.attributes]
    first = next(f.path for path in inputs for f in store.files.find(path))
    lines += [f"  {clock}"] if (clock := clock_said(store, schema, first, kind, time, how)) else []
    lines += [", ".join(f"{name}={value}" for name, value in row.items()) for row in good]
    lines.append(f"{events} events; {sum(counted.values())} bad rows; nothing is kept (--dry-run)")
    lines += [f"  {count}  {reason}" for reason, count in counted.items()]
    click.echo("\n".join(lines))
