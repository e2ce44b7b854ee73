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
    store_argument,
)
from sievenet.cli.table import CommandRow

if TYPE_CHECKING:
    from sievenet.content import Schema

__all__ = ["pipeline", "profile", "report"]

_HERE = "sievenet.cli.pipeline"


@click.group(
    cls=LazyGroup,
    table={
        "ingest": CommandRow(
            "sievenet.cli.pipeline_ingest:ingest",
            "Read traces into a store: checked events, and a quarantine for the rest.",
        ),
        "run": CommandRow(
            "sievenet.cli.pipeline_run:run", "From a trace and subscriptions to a plan and a page about it, in one go."
        ),
        "profile": CommandRow(
            f"{_HERE}:profile", "Measure a workload: variance, matches and similarity of its dimensions."
        ),
        "plan": CommandRow(
            "sievenet.cli.pipeline_plan:plan", "Search for the index plan that makes the network carry least."
        ),
        "evaluate": CommandRow(
            "sievenet.cli.pipeline_plan:evaluate", "Count what plans make the network carry, and what of it is needed."
        ),
        "snapshot": CommandRow(
            "sievenet.cli.pipeline_snapshot:snapshot",
            "Put registrations, network and flow tables of a fabric into a store.",
        ),
        "aggregate": CommandRow(
            "sievenet.cli.pipeline_aggregate:aggregate", "Count what was published, for the choice of merges."
        ),
        "traffic": CommandRow(
            "sievenet.cli.pipeline_traffic:traffic", "Count packets per part of the event space, per link and per host."
        ),
        "place": CommandRow("sievenet.cli.pipeline_place:place", "Score every switch as a place for an event cache."),
        "watch": CommandRow(
            "sievenet.cli.watch:pipeline_watch", "Watch a fabric's tap and signal when another plan is better."
        ),
        "report": CommandRow(f"{_HERE}:report", "Say what a store holds."),
        "store": CommandRow("sievenet.cli.pipeline_store:store", "List, show and drop what a store holds."),
        "quarantine": CommandRow("sievenet.cli.pipeline_store:quarantine", "Show bad rows with their reasons."),
    },
)
def pipeline() -> None:
    """Learn index plans from traffic, with Spark."""


# -- the commands ---------------------------------------------------------------------------------------


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
    from sievenet.pipeline.report import Report

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
    from sievenet.pipeline.report import Report

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
