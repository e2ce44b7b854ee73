"""`sievenet pipeline aggregate`: what was published, counted for the choice of merges."""

from __future__ import annotations

from pathlib import Path

import click

from sievenet.cli.output import json_option
from sievenet.cli.pipeline_options import finish, load_plan, master_option, opened, report_option, store_argument

__all__ = ["aggregate"]


@click.command()
@store_argument
@click.option("--plan", "plan_file", type=click.Path(), help="The plan in use (`sievenet plan show CATEGORY --json`).")
@click.option("--bits", default=32, show_default=True, help="Bits of the regular plan, if no plan is given.")
@click.option("--prefix", default=32, show_default=True, help="Bits of the dz that packets are counted by, at most 32.")
@click.option("--to", "target", type=click.Path(dir_okay=False), default="traffic.json", show_default=True)
@master_option
@report_option
@json_option
def aggregate(
    store: str,
    category: str,
    plan_file: str | None,
    bits: int,
    prefix: int,
    target: str,
    master: str | None,
    folder: str | None,
    as_json: bool,
) -> None:
    """Count what was published, for the choice of merges.

    Events of a store become packets per publisher and dz of the plan in use, in a file that `sievenet tables fit
    --traffic` reads. However many events there are, the file has the dz with most packets.

    \b
    Examples:
      $ sievenet pipeline aggregate store stock --plan plan.json --to traffic.json  # needs Spark
    """
    import msgspec

    from sievenet.cli.tables import ROWS
    from sievenet.index import Plan
    from sievenet.pipeline.evaluate import check_plans
    from sievenet.pipeline.report import Report
    from sievenet.pipeline.traffic import dz_of, prefix_traffic

    report = Report(f"Traffic of {category} for merging")
    with opened(store, master) as where:
        schema = where.schema(category)
        plan = load_plan(plan_file) if plan_file else Plan.regular(schema, bits)
        check_plans(schema, [plan])
        found = prefix_traffic(where.events(category), plan, prefix)
    most = found.sort_by([("packets", "descending"), ("dz", "ascending")]).slice(0, ROWS).to_pylist()
    rows = [(row["publisher"], dz_of(row["dz"]).code >> 64, row["packets"]) for row in most]
    data = {"category": category, "plan": plan.to_json().decode(), "rows": rows}
    Path(target).write_bytes(msgspec.json.encode(data))
    packets = sum(count for _, _, count in rows)
    report.figures = {"rows": len(rows), "packets": packets, "file": target}
    finish(report, folder, as_json, f"{packets} packets in {len(rows)} rows: {target}")
