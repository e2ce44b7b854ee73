"""`sievenet pipeline run`: from a trace and subscriptions to a plan and a page about it, in one go."""

from __future__ import annotations

from pathlib import Path

import click

from sievenet.cli.output import json_option, show_json
from sievenet.cli.pipeline_deployment import Asked, deployment_options
from sievenet.cli.pipeline_ingest import Trace, trace_options
from sievenet.cli.pipeline_options import Searching, master_option, opened, say, search_options
from sievenet.cli.pipeline_plan import advice, save_plan

__all__ = ["run"]


@click.command()
@click.argument("inputs", nargs=-1, required=True)
@trace_options
@deployment_options
@search_options(20.0)
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
    trace: Trace,
    asked: Asked,
    searching: Searching,
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
    from sievenet.pipeline.page import page
    from sievenet.pipeline.run import Journal
    from sievenet.pipeline.run import run as whole

    journal = Journal(say)
    root = store or str(Path(folder) / "store")
    plan_file = output or str(Path(folder) / "plan.json")
    with opened(root, master, inputs) as where:
        schema, time = trace.found(where, inputs, journal)
        place = asked.deployment(where, schema)
        done = whole(
            where,
            schema,
            inputs,
            place,
            sites=asked.sites(place),
            journal=journal,
            kind=trace.kind,
            time_column=time,
            how=trace.how,
            **searching.settings(place.budget, place.plan is not None),
        )
    save_plan(done.planned, plan_file)
    made = page(done, plan_file)
    say(f"page in {made.write(folder)}")
    if as_json:
        show_json(made.figures)
    else:
        click.echo(advice(done.planned, plan_file))
