"""`sievenet pipeline`: Spark jobs from traces to index plans."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sievenet.cli.app import LazyGroup
from sievenet.cli.output import json_option
from sievenet.cli.pipeline_options import (
    finish,
    interests_option,
    master_option,
    opened,
    report_option,
    say,
    store_argument,
)
from sievenet.cli.table import Entry

if TYPE_CHECKING:
    from sievenet.content import Schema
    from sievenet.pipeline.store import Store

__all__ = ["ingest", "pipeline", "profile", "report"]

_HERE = "sievenet.cli.pipeline"


@click.group(
    cls=LazyGroup,
    table={
        "ingest": Entry(f"{_HERE}:ingest", "Read traces into a store: checked events, and a quarantine for the rest."),
        "profile": Entry(f"{_HERE}:profile", "Measure a workload: variance, matches and similarity of its dimensions."),
        "plan": Entry(
            "sievenet.cli.pipeline_plan:plan", "Search for the index plan that makes the network carry least."
        ),
        "evaluate": Entry(
            "sievenet.cli.pipeline_plan:evaluate", "Count what plans make the network carry, and what of it is needed."
        ),
        "snapshot": Entry(
            "sievenet.cli.pipeline_snapshot:snapshot",
            "Put registrations, network and flow tables of a fabric into a store.",
        ),
        "traffic": Entry(
            "sievenet.cli.pipeline_traffic:traffic", "Count packets per part of the event space, per link and per host."
        ),
        "watch": Entry(
            "sievenet.cli.watch:pipeline_watch", "Watch the tap of a fabric and signal when another plan is better."
        ),
        "report": Entry(f"{_HERE}:report", "Say what a store holds."),
    },
)
def pipeline() -> None:
    """Learn index plans from traffic, with Spark."""


# -- the commands ---------------------------------------------------------------------------------------


@click.command()
@click.argument("store")
@click.argument("inputs", nargs=-1, required=True)
@click.option(
    "--schema", "schema_name", metavar="NAME|FILE", help="A built-in schema or a JSON file. Default: from the files."
)
@click.option("--category", metavar="NAME", help="What a schema from the files is called. Default: as the first file.")
@click.option("--format", "kind", type=click.Choice(["csv", "json", "parquet", "tap"]), help="Default: by file name.")
@click.option("--time", "time_column", metavar="COLUMN", help="Where the time is. Default: time, timestamp, date, …")
@click.option("--by", type=click.Choice(["hour", "day", "month", "year"]), default="hour", show_default=True)
@master_option
@report_option
@json_option
def ingest(
    store: str,
    inputs: tuple[str, ...],
    schema_name: str | None,
    category: str | None,
    kind: str | None,
    time_column: str | None,
    by: str,
    master: str | None,
    folder: str | None,
    as_json: bool,
) -> None:
    """Read traces into a store: checked events, and a quarantine for the rest.

    INPUTS are files, folders or wildcards of CSV, JSON lines, Parquet or tap segments. What an earlier run has read is
    not read again. Bad rows go to a quarantine with their reasons; a file that cannot be read is set aside. Without a
    schema, the store's own or one made from the files is used.

    \b
    Examples:
      $ sievenet pipeline ingest store trades/*.csv --schema stock  # needs Spark
      $ sievenet pipeline ingest store quotes.csv --category quote --by year  # needs Spark
      $ sievenet pipeline ingest store /var/tap --schema stock.json --report report  # needs Spark
    """
    import msgspec

    from sievenet.pipeline.ingest import ingest as run
    from sievenet.pipeline.reporting import Report
    from sievenet.workload.samples import load_schema

    given = load_schema(schema_name) if schema_name else None
    with opened(store, master) as where:
        schema = given or _schema_of(where, category, inputs, kind, time_column)
        done = run(where, schema, inputs, kind=kind, time=time_column, by=by, say=say)
    report = Report(f"Ingest of {schema.name}")
    report.figures = msgspec.to_builtins(done)
    report.text(f"{done.events} events, {done.quarantined} bad rows, {len(done.bad_files)} unreadable files.")
    report.table("Reasons", ["reason", "rows"], list(done.reasons.items()))
    report.table("Files set aside", ["file", "reason"], [(b.path, b.reason) for b in done.bad_files])
    lines = [f"{done.events} events from {len(done.files)} files; {done.quarantined} bad rows in quarantine"]
    lines += [f"  {count}  {reason}" for reason, count in done.reasons.items()]
    lines += [f"  set aside: {bad.path}: {bad.reason}" for bad in done.bad_files]
    finish(report, folder, as_json, "\n".join(lines))


def _schema_of(
    store: Store, category: str | None, inputs: tuple[str, ...], kind: str | None, time: str | None
) -> Schema:
    """The schema that the store has of a category, or one made from the files."""
    from sievenet.pipeline.inference import category_of, infer_schema
    from sievenet.pipeline.ingest import PUBLISHER_NAMES, TIME_NAMES

    name = category or category_of(inputs[0])
    if store.files.exists(f"{store.root}/schemas/{name}.json"):
        return store.schema(name)
    say(f"no schema given: making one for {name} from the files")
    found = infer_schema(store, name, inputs, [*((time,) if time else TIME_NAMES), *PUBLISHER_NAMES], kind)
    for attribute in found.attributes:
        say(f"  {attribute.name}: {attribute.describes}")
    return found


@click.command()
@store_argument
@interests_option
@master_option
@report_option
@json_option
def profile(store: str, category: str, interests: str, master: str | None, folder: str | None, as_json: bool) -> None:
    """Measure a workload: variance, matches and similarity of its dimensions.

    \b
    Examples:
      $ sievenet pipeline profile store stock --subscriptions wanted.txt  # needs Spark
    """
    from sievenet.pipeline.interests import load_wanted
    from sievenet.pipeline.profile import profile as run
    from sievenet.pipeline.reporting import Report

    with opened(store, master) as where:
        schema = where.schema(category)
        found = run(where.events(category), schema, load_wanted(interests, schema).subscriptions)
    report = Report(f"Profile of {category}")
    report.figures = found.report()
    names = list(schema.positions)
    ranks = {"EVS": found.evs, "EMCS": found.emcs, "CS": found.cs}
    rows = [(name, *(float(column[i]) for column in ranks.values())) for i, name in enumerate(names)]
    report.text(f"{found.events} events, {found.filters} filters, {found.wanted} matches.")
    report.table("Selectivity of dimensions", ["dimension", *ranks], rows)
    report.bars("selectivity", names, {k: v.tolist() for k, v in ranks.items()}, "factor")
    lines = [f"{found.events} events, {found.filters} filters, {found.wanted} matches", ""]
    lines += [f"{'':16}{''.join(f'{k:>10}' for k in ranks)}"]
    lines += [f"{row[0]:16}{''.join(f'{value:10.4f}' for value in row[1:])}" for row in rows]
    finish(report, folder, as_json, "\n".join(lines))


@click.command()
@click.argument("store")
@click.argument("category")
@master_option
@report_option
@json_option
def report(store: str, category: str, master: str | None, folder: str | None, as_json: bool) -> None:
    """Say what a store holds.

    \b
    Examples:
      $ sievenet pipeline report store stock  # needs Spark
    """
    from sievenet.pipeline.reporting import Report

    with opened(store, master) as where:
        schema: Schema = where.schema(category)
        runs = where.manifests(category)
    made = Report(f"Store of {category}")
    events, bad = sum(m.events for m in runs), sum(m.quarantined for m in runs)
    made.figures = {
        "schema": schema.name,
        "version": schema.version,
        "runs": len(runs),
        "events": events,
        "quarantined": bad,
    }
    reasons: dict[str, int] = {}
    for run in runs:
        for reason, count in run.reasons.items():
            reasons[reason] = reasons.get(reason, 0) + count
    made.figures["reasons"] = reasons
    made.table(
        "Runs", ["run", "files", "events", "bad rows"], [(m.run, len(m.files), m.events, m.quarantined) for m in runs]
    )
    made.table("Reasons", ["reason", "rows"], list(reasons.items()))
    text = f"{schema.name} version {schema.version}: {events} events in {len(runs)} runs, {bad} bad rows in quarantine"
    finish(made, folder, as_json, text)
