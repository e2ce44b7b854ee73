"""`sievenet pipeline plan` and `evaluate`: search for plans, and count what they carry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sievenet.cli.output import json_option
from sievenet.cli.pipeline_deployment import Asked, deployment_options
from sievenet.cli.pipeline_options import (
    Searching,
    budget_of,
    budget_option,
    finish,
    load_plan,
    master_option,
    opened,
    report_option,
    say,
    search_options,
    store_argument,
)

if TYPE_CHECKING:
    from sievenet.pipeline.planner import Planned
    from sievenet.pipeline.report import Report

__all__ = ["advice", "evaluate", "plan", "save_plan"]

#: Of a cost, what tables show.
_COLUMNS = ("transmissions", "received", "per_link", "per_host", "per_subscription")


@click.command()
@store_argument
@deployment_options
@search_options(60.0)
@click.option(
    "--kind", type=click.Choice(["dz", "cells"]), default="dz", show_default=True, help="What filters become."
)
@click.option(
    "--method",
    "recipes",
    multiple=True,
    metavar="NAME",
    help="Try this way only, such as EVS, GS+SI or CS+ASI; may be repeated. Default: all, the best first.",
)
@click.option(
    "--closed", is_flag=True, help="Drop events that nobody wants now, and refuse filters that want them later."
)
@click.option("--version", "version", default=1, show_default=True, help="The plan's version.")
@click.option("--output", "-o", default="plan.json", show_default=True, help="Where the plan goes.")
@master_option
@report_option
@json_option
def plan(
    store: str,
    category: str,
    asked: Asked,
    searching: Searching,
    kind: Any,
    recipes: tuple[str, ...],
    closed: bool,
    version: int,
    output: str,
    master: str | None,
    folder: str | None,
    as_json: bool,
) -> None:
    """Search for the index plan that makes the network carry least.

    The plan is written as `sievenet plan apply` takes it, with what it is predicted to carry and why it was chosen. A
    plan that carries more than the present one (of the snapshot, else the regular one) is not recommended, unless you
    ask for it with --objective or --method.

    \b
    --method takes a way to choose dimensions, alone or with one to index them:
      RI all, EVS by variance, EMCS by matches, CS by correlation, GS greedy, BRS every subset
      +SI rectangles, +SI1 with one code per event, +ASI subspaces, +QI quantiles, +SI+QI, +SI1+QI
      GB+RI, GB+SI, GB+SI1, GB+ASI: greedy bits, in regions of that kind

    \b
    Examples:
      $ sievenet pipeline plan store stock --subscriptions wanted.txt -o plan.json  # needs Spark
      $ sievenet pipeline plan store stock --snapshot 3f0c9a2b77de --bits 32 --report report  # needs Spark
      $ sievenet pipeline plan store stock --subscriptions wanted.txt --method GS+SI --method EVS+ASI  # needs Spark
    """
    from sievenet.pipeline.planner import plan_for
    from sievenet.pipeline.report import Report
    from sievenet.tuning.search import RECIPES

    unknown = [name for name in recipes if name not in RECIPES]
    if unknown:
        raise click.BadParameter(f"Expected one of {', '.join(RECIPES)}, got {unknown[0]!r}", param_hint="--method")
    with opened(store, master) as where:
        schema = where.schema(category)
        place = asked.deployment(where, schema)
        planned = plan_for(
            where.events(category),
            schema,
            place.wanted.subscriptions,
            **searching.settings(place.budget, place.plan is not None),
            kind=kind,
            rest=not closed,
            version=version,
            recipes=recipes,
            sites=asked.sites(place),
            present=place.plan,
            say=say,
        )
    save_plan(planned, output)
    report = Report(f"Plan for {category}")
    report.figures = {**planned.record(), "assumed": place.assumed}
    if place.assumed:
        report.text(place.assumed + ".")
    _candidates(report, planned)
    finish(report, folder, as_json, advice(planned, output))


def save_plan(planned: Planned, output: str) -> None:
    """Put the plan that is recommended into a file, all at once."""
    target = Path(output)
    target.parent.mkdir(parents=True, exist_ok=True)
    staged = target.with_name(f".{target.name}.part")
    staged.write_bytes(planned.predicted.plan.to_json())
    staged.replace(target)


def _candidates(report: Report, planned: Planned) -> None:
    """What was tried, the best of each kind."""
    report.text(planned.found.why)
    best: dict[str, Any] = {}
    for tried in sorted(planned.found.tried, key=lambda t: t.score):
        best.setdefault(tried.name, tried)
    rows = [
        (t.name, *(t.cost.summary()[c] for c in _COLUMNS), ", ".join(t.dimensions), t.rectangles) for t in best.values()
    ]
    title = "What was tried, the best of each kind, on the sample"
    report.table(title, ["", *_COLUMNS, "dimensions", "regions"], rows)
    report.bars("transmissions", [r[0] for r in rows], {"transmissions": [r[1] for r in rows]}, "transmissions")
    report.bars(
        "rates", [r[0] for r in rows], {c: [r[i + 3] for r in rows] for i, c in enumerate(_COLUMNS[2:])}, "rate"
    )


def advice(planned: Planned, output: str) -> str:
    """What to do, in a few lines."""
    now, best = planned.present, planned.predicted
    lines = [
        planned.found.why,
        "",
        f"Over all {best.events} events:",
        f"  present  {now.cost}",
        f"  chosen   {best.cost}",
    ]
    if not planned.better:
        return "\n".join([*lines, f"No plan carries less than the present one, which is in {output}."])
    if best.cost.transmissions > now.cost.transmissions:
        more = best.cost.transmissions / max(1, now.cost.transmissions)
        lines.append(f"The network would carry {more:.2f} times the packets of the present plan.")
    return "\n".join([*lines, f"The plan is in {output}; `sievenet plan apply {output}` puts it to use."])


@click.command()
@store_argument
@deployment_options
@click.option("--plan", "plans", multiple=True, type=click.Path(), help="A plan file; may be given several times.")
@click.option("--bits", default=23, show_default=True, help="Bits of the regular plan, if no plan is known.")
@budget_option
@master_option
@report_option
@json_option
def evaluate(
    store: str,
    category: str,
    asked: Asked,
    plans: tuple[str, ...],
    bits: int,
    budget: str | None,
    master: str | None,
    folder: str | None,
    as_json: bool,
) -> None:
    """Count what plans make the network carry, and what of it is needed.

    \b
    Examples:
      $ sievenet pipeline evaluate store stock --subscriptions wanted.txt --plan plan.json  # needs Spark
      $ sievenet pipeline evaluate store stock --snapshot 3f0c9a2b77de --plan plan.json  # needs Spark
    """
    from sievenet.index import Plan
    from sievenet.pipeline.evaluate import evaluate as run
    from sievenet.pipeline.report import Report

    most = budget_of(budget) if budget else 8
    loaded = [load_plan(path) for path in plans]
    with opened(store, master) as where:
        schema = where.schema(category)
        place = asked.deployment(where, schema)
        known = place.plan is not None
        names = [*plans, *(("present",) if known else ())] or [f"regular, {bits} bits"]
        every = [*loaded, *((place.plan,) if place.plan is not None else ())] or [Plan.regular(schema, bits)]
        most = place.budget if known and not budget else most
        results = run(where.events(category), schema, place.wanted.subscriptions, every, most, asked.sites(place))
    report = Report(f"Evaluation for {category}")
    report.figures = {
        name: {**r.summary(), "delivered_to": r.delivered.tolist(), "wanted_by": r.wanted.tolist()}
        for name, r in zip(names, results, strict=True)
    }
    if place.assumed:
        report.text(place.assumed + ".")
    columns = ["events", "packets", "delivered", "wanted", *_COLUMNS, "entries", "unmatched"]
    rows = [(name, *(r.summary()[c] for c in columns)) for name, r in zip(names, results, strict=True)]
    report.table("Plans", ["plan", *columns], rows)
    report.bars("rates", names, {c: [r.summary()[c] for r in results] for c in _COLUMNS[2:]}, "rate")
    lines = []
    for name, r in zip(names, results, strict=True):
        s = r.summary()
        lines.append(
            f"{name}: {r.cost}; {s['events']} events, {s['packets']} packets, {s['delivered']} deliveries, "
            f"{s['wanted']} wanted; {s['unmatched']} of {s['subscriptions']} subscriptions matched nothing"
        )
    finish(report, folder, as_json, "\n".join(lines))
