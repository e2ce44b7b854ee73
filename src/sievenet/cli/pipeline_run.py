"""`sievenet pipeline run`: from a trace and subscriptions to a plan and a page about it, in one go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sievenet.cli.file_options import reading_of
from sievenet.cli.output import json_option, show_json
from sievenet.cli.pipeline_deployment import deployment_of, deployment_options, sources_of
from sievenet.cli.pipeline_ingest import schema_of, time_of, trace_options
from sievenet.cli.pipeline_options import budget_of, master_option, opened, say
from sievenet.cli.pipeline_plan import advice, save_plan

__all__ = ["run"]


@click.command()
@click.argument("inputs", nargs=-1, required=True)
@trace_options
@deployment_options
@click.option("--bits", default=23, show_default=True, help="Bits of a code.")
@click.option("--budget", help="Most entries per subscription, or `any`. Default: that in use, else 8.")
@click.option("--seconds", default=20.0, show_default=True, help="How long to search.")
@click.option(
    "--objective",
    type=click.Choice(["links", "host", "subscription"]),
    default="links",
    show_default=True,
    help="What is to be least: transmissions, packets received by hosts, or the false-positive rate per subscription.",
)
@click.option("--store", metavar="FOLDER", help="Where events are kept. Default: `store` in the report's folder.")
@click.option("--output", "-o", help="Where the plan goes. Default: plan.json in the report's folder.")
@click.option(
    "--report",
    "folder",
    default="report",
    show_default=True,
    type=click.Path(file_okay=False),
    help="Folder for the page with charts (index.html).",
)
@master_option
@json_option
def run(
    inputs: tuple[str, ...],
    schema_name: str | None,
    category: str | None,
    kind: str | None,
    columns: str | None,
    separator: str | None,
    encoding: str | None,
    rename: tuple[str, ...],
    select: str | None,
    pairs: str | None,
    time_column: str | None,
    time_format: str | None,
    publisher: str | None,
    interests: str | None,
    snapshot_id: str | None,
    topology: str | None,
    config_file: str | None,
    at: tuple[str, ...],
    bits: int,
    budget: str | None,
    seconds: float,
    objective: Any,
    store: str | None,
    output: str | None,
    folder: str,
    master: str | None,
    as_json: bool,
) -> None:
    """From a trace and subscriptions to a plan and a page about it, in one go.

    Does what `ingest`, `profile`, `plan`, `evaluate` and `traffic` do, in one session of Spark, and leaves a page with
    pictures: what was read, where events and filters are, what was tried, and what each link carries before and after.
    A second run with the same folder reads what is new.

    \b
    Examples:
      $ sievenet pipeline run trips.csv --subscriptions wanted.txt --report report  # needs Spark
      $ sievenet pipeline run tap --schema stock --subscriptions journal.db --topology testbed  # needs Spark
    """
    from sievenet.pipeline.ingest import How
    from sievenet.pipeline.page import page
    from sievenet.pipeline.run import Journal
    from sievenet.pipeline.run import run as whole
    from sievenet.workload.samples import load_schema

    given = load_schema(schema_name) if schema_name else None
    how = How(reading_of(columns, separator, encoding, rename, select, pairs, kind), time_format, publisher)
    asked = budget_of(budget) if budget else 8
    journal = Journal(say)
    root = store or str(Path(folder) / "store")
    plan_file = output or str(Path(folder) / "plan.json")
    with opened(root, master, inputs) as where:
        time_column = time_of(where, inputs, time_column, how)
        schema = given or schema_of(where, category, inputs, kind, time_column, how, journal)
        place = deployment_of(where, schema, interests, snapshot_id, topology, config_file)
        known = place.plan is not None
        done = whole(
            where,
            schema,
            inputs,
            place,
            bits,
            sites=place.sites(*sources_of(at)) if known or topology else None,
            journal=journal,
            kind=kind,
            time_column=time_column,
            how=how,
            budget=place.budget if known and not budget else asked,
            seconds=seconds,
            objective=objective,
        )
    save_plan(done.planned, plan_file)
    made = page(done, plan_file)
    say(f"page in {made.write(folder)}")
    if as_json:
        show_json(made.figures)
    else:
        click.echo(advice(done.planned, plan_file))
