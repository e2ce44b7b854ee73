"""`sievenet pipeline traffic`: packets per part of the event space, per link and per host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sievenet.cli.output import json_option
from sievenet.cli.pipeline_deployment import Asked, deployment_options, sources_of
from sievenet.cli.pipeline_options import (
    budget_of,
    finish,
    load_plan,
    master_option,
    opened,
    report_option,
    store_argument,
)

if TYPE_CHECKING:
    from sievenet.index import Plan
    from sievenet.pipeline.deployment import Deployment
    from sievenet.pipeline.report import Report
    from sievenet.pipeline.store import Store

__all__ = ["traffic"]


@click.command()
@store_argument
@click.option(
    "--plan", "plan_file", type=click.Path(), help="A plan file. Default: that of the snapshot, else the regular plan."
)
@click.option("--bits", default=23, show_default=True, help="Bits of the regular plan, if no plan is given.")
@click.option("--prefix", default=8, show_default=True, help="Bits of the dz that packets are counted by.")
@deployment_options
@click.option("--budget", help="Most entries per subscription, or `any`. Default: that of the snapshot, else 8.")
@master_option
@report_option
@json_option
def traffic(
    store: str,
    category: str,
    plan_file: str | None,
    bits: int,
    prefix: int,
    asked: Asked,
    budget: str | None,
    master: str | None,
    folder: str | None,
    as_json: bool,
) -> None:
    """Count packets per part of the event space, per link and per host.

    What merging flows would cost (packets per dz of the publishers), and where caches pay (packets per client and
    second). With a snapshot, or subscriptions and a topology, packets per link are predicted: on the trees that the
    control plane uses, as the switches count them (`sievenet topo --json`).

    \b
    Examples:
      $ sievenet pipeline traffic store stock --prefix 10  # needs Spark
      $ sievenet pipeline traffic store stock --snapshot 3f0c9a2b77de --at market=h1  # needs Spark
      $ sievenet pipeline traffic store stock --subscriptions journal.db --topology testbed  # needs Spark
    """
    from sievenet.index import Plan
    from sievenet.pipeline.evaluate import check_plans
    from sievenet.pipeline.report import Report
    from sievenet.pipeline.traffic import dz_of, prefix_traffic

    report = Report(f"Traffic of {category}")
    with opened(store, master) as where:
        schema = where.schema(category)
        place = None
        if asked.snapshot_id or (asked.interests and asked.topology):
            place = asked.deployment(where, schema)
        present = place.plan if place is not None and place.plan is not None else Plan.regular(schema, bits)
        used = load_plan(plan_file) if plan_file else present
        check_plans(schema, [used])
        found = prefix_traffic(where.events(category), used, prefix)
        rows = found.sort_by([("packets", "descending"), ("dz", "ascending")]).slice(0, 10_000).to_pylist()
        if place is not None:
            most = budget_of(budget) if budget else place.budget or 8
            _links(report, where, used, place, most, asked.at)
    dz = [(row["publisher"], str(dz_of(row["dz"])), row["packets"]) for row in rows]
    report.figures["prefixes"] = [{"publisher": p, "dz": code, "packets": n} for p, code, n in dz]
    report.table("Packets by dz, most first", ["publisher", "dz", "packets"], dz[:100])
    lines = [f"{n:>12}  {code}  {p}" for p, code, n in dz[:20]]
    lines += [f"{k['packets']:>12}  {k['from']} → {k['to']}" for k in report.figures.get("links", [])[:20]]
    finish(report, folder, as_json, "\n".join(lines) or "no events")


def _links(
    report: Report, where: Store, plan: Plan, place: Deployment, budget: int | None, at: tuple[str, ...]
) -> None:
    """Add packets per link and client to a report."""
    import msgspec

    from sievenet.pipeline.traffic import network_traffic
    from sievenet.tuning.covers import Covers, Interests

    # The control plane's entries are dz, whatever the plan would rather have.
    plan = msgspec.structs.replace(plan, kind="dz")
    covers = Covers.of(plan, Interests.of(plan.schema, place.wanted.subscriptions), budget)
    named, others = sources_of(at)
    events = where.events(plan.schema.name)
    found = network_traffic(events, plan, covers, place.sites(named, others))
    links = sorted(found.links.items(), key=lambda item: -item[1])
    report.figures["transmissions"] = found.transmissions
    report.figures["links"] = [{"from": a, "to": b, "packets": n} for (a, b), n in links]
    report.figures["peaks"] = found.peaks()
    if place.assumed:
        report.figures["assumed"] = place.assumed
        report.text(place.assumed + ".")
    report.table("Packets by link", ["from", "to", "packets"], [(a, b, n) for (a, b), n in links])
    report.table("Most packets in a second, by client", ["client", "packets"], sorted(found.peaks().items()))
