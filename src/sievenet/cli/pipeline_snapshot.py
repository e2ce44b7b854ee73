"""`sievenet pipeline snapshot`: the control plane's journal as tables."""

from __future__ import annotations

import click

from sievenet.cli.output import json_option
from sievenet.cli.pipeline_options import finish, master_option, opened, report_option

__all__ = ["snapshot"]


@click.command()
@click.argument("store")
@click.argument("journal", type=click.Path())
@click.option("--topology", help="The fabric's network: a shape such as fattree,k=4, or a file.")
@click.option(
    "--config", "config_file", type=click.Path(dir_okay=False), help="The fabric's TOML file, if it was given one."
)
@master_option
@report_option
@json_option
def snapshot(
    store: str,
    journal: str,
    topology: str | None,
    config_file: str | None,
    master: str | None,
    folder: str | None,
    as_json: bool,
) -> None:
    """Put registrations, network and flow tables of a fabric into a store.

    JOURNAL is `journal.db` in the folder of `sievenet up --state`; the fabric may be running. Flow tables and spanning
    trees are those that follow from the journal when all links work. A snapshot is named after its content; nothing is
    kept twice.

    \b
    Examples:
      $ sievenet pipeline snapshot store fabric/journal.db --topology testbed  # needs Spark
    """
    import msgspec

    from sievenet.config import load_config
    from sievenet.network import parse_topology
    from sievenet.pipeline.report import Report
    from sievenet.pipeline.snapshot import keep_snapshot, take_snapshot

    if config_file is None and topology is None:
        raise click.UsageError("Expected --topology, or --config with a file that names it")
    config = load_config(config_file, topology=topology)
    taken = take_snapshot(journal, parse_topology(config.topology), config.control if config_file else None)
    with opened(store, master) as where:
        kept = keep_snapshot(where, taken)
    report = Report(f"Snapshot {kept.id}")
    report.figures = msgspec.to_builtins(kept)
    rows = [(name, *counts) for name, counts in kept.categories.items()]
    report.table("Registrations", ["category", "subscriptions", "advertisements"], rows)
    report.table("Flows", ["switch", "flows"], [(switch, len(flows)) for switch, flows in taken.tables.items()])
    lines = [f"snapshot {kept.id}: {kept.clients} clients, {kept.switches} switches, {kept.flows} flows"]
    lines += [f"  {name}: {wanted} subscriptions, {offered} advertisements" for name, wanted, offered in rows]
    if kept.elsewhere:
        lines.append(f"  {kept.elsewhere} clients are at hosts that this network has not: not in the flow tables")
    finish(report, folder, as_json, "\n".join(lines))
