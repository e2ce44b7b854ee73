"""`sievenet pipeline traffic`: packets per part of the event space, per link and per host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from sievenet.cli.output import json_option
from sievenet.cli.pipeline_options import (
    budget_of,
    budget_option,
    finish,
    load_plan,
    master_option,
    opened,
    report_option,
    store_argument,
)

if TYPE_CHECKING:
    from sievenet.pipeline.reporting import Report
    from sievenet.pipeline.store import Store

__all__ = ["traffic"]


@click.command()
@store_argument
@click.option("--plan", "plan_file", type=click.Path(), help="A plan file. Default: the regular plan.")
@click.option("--bits", default=23, show_default=True, help="Bits of the regular plan, if no plan is given.")
@click.option("--prefix", default=8, show_default=True, help="Bits of the dz that packets are counted by.")
@click.option(
    "--subscriptions", "interests", type=click.Path(), help="A journal or table; with --topology, adds links."
)
@click.option("--topology", help="A network such as fattree,k=4: packets per link and per host.")
@budget_option
@master_option
@report_option
@json_option
def traffic(
    store: str,
    category: str,
    plan_file: str | None,
    bits: int,
    prefix: int,
    interests: str | None,
    topology: str | None,
    budget: str,
    master: str | None,
    folder: str | None,
    as_json: bool,
) -> None:
    """Count packets per part of the event space, per link and per host.

    What merging flows would cost (packets per dz of the publishers), and where caches pay (packets per host and
    second).

    \b
    Examples:
      $ sievenet pipeline traffic store stock --prefix 10  # needs Spark
      $ sievenet pipeline traffic store stock --subscriptions fabric.db --topology testbed  # needs Spark
    """
    from sievenet.index import Plan
    from sievenet.pipeline.evaluate import check_plans
    from sievenet.pipeline.reporting import Report
    from sievenet.pipeline.traffic import dz_of, prefix_traffic

    report = Report(f"Traffic of {category}")
    with opened(store, master) as where:
        schema = where.schema(category)
        used = load_plan(plan_file) if plan_file else Plan.regular(schema, bits)
        check_plans(schema, [used])
        events = where.events(category)
        found = prefix_traffic(events, used, prefix).orderBy("packets", ascending=False).limit(10_000).collect()
        if interests and topology:
            _links(report, where, category, used, interests, topology, budget_of(budget))
    rows = [(row["publisher"], str(dz_of(row["dz"])), row["packets"]) for row in found]
    report.figures["prefixes"] = [{"publisher": p, "dz": dz, "packets": n} for p, dz, n in rows]
    report.table("Packets by dz, most first", ["publisher", "dz", "packets"], rows[:100])
    text = "\n".join(f"{n:>12}  {dz}  {p}" for p, dz, n in rows[:20])
    finish(report, folder, as_json, text or "no events")


def _links(
    report: Report, where: Store, category: str, plan: Any, interests: str, topology: str, budget: int | None
) -> None:
    """Add packets per link and host to a report."""
    from sievenet.network import parse_topology
    from sievenet.pipeline.covers import Covers, Interests
    from sievenet.pipeline.interests import load_wanted
    from sievenet.pipeline.traffic import Network, network_traffic

    network = Network.of(parse_topology(topology))
    wanted = load_wanted(interests, plan.schema)
    # Subscribers whose host is not known are spread evenly.
    places = [
        host if host in network.hosts else network.hosts[i % len(network.hosts)] for i, host in enumerate(wanted.hosts)
    ]
    covers = Covers.of(plan, Interests.of(plan.schema, wanted.subscriptions), budget)
    clients = dict(zip(wanted.clients, places, strict=True))
    found = network_traffic(where.events(category), plan, covers, places, network, clients)
    links = sorted(found.links.items(), key=lambda item: -item[1])
    report.figures["links"] = [{"from": a, "to": b, "packets": n} for (a, b), n in links]
    report.figures["peaks"] = found.peaks()
    report.table("Packets by link", ["from", "to", "packets"], [(a, b, n) for (a, b), n in links])
    report.table("Most packets in a second, by host", ["host", "packets"], sorted(found.peaks().items()))
