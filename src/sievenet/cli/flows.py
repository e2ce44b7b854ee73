"""`sievenet flows`: the flow table of a switch."""

from __future__ import annotations

import click

from sievenet.cli.fabric import asked, url_option
from sievenet.cli.output import json_option, show, show_json

__all__ = ["flows"]


@click.command()
@click.argument("switch")
@click.option("--limit", type=click.IntRange(min=1), default=200, show_default=True, help="Flows to show at most.")
@url_option
@json_option
def flows(switch: str, limit: int, url: str | None, as_json: bool) -> None:
    """Show the flow table of a switch.

    For each flow: what it matches as bits and as content, where it sends to, and how much it has carried.

    \b
    Examples:
      $ sievenet flows s1  # needs a running fabric
      $ sievenet flows s1 --json  # needs a running fabric
    """
    found = asked(url, "flows", switch)
    if as_json:
        show_json(found)
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim", title_justify="left", title_style="bold")
    table.title = f"{found['switch']}: {len(found['flows'])} flows, {found['unmatched']:,} packets unmatched"
    if found.get("merged"):
        table.title += f"; room for {found['capacity']:,}, {found['merged']} stand for {found['stand_for']:,}"
    table.add_column("category")
    table.add_column("dz or cell", overflow="fold")
    table.add_column("to")
    table.add_column("priority", justify="right")
    table.add_column("packets", justify="right")
    table.add_column("content", overflow="fold")
    for flow in found["flows"][:limit]:
        target = ", ".join(f"{port['port']} {port['peer']}" for port in flow["ports"]) or "drop"
        inside = f" (in {flow['in_port']})" if flow["in_port"] is not None else ""
        table.add_row(
            flow["category"],
            (flow["cell"] or "all") + inside + (f" ({flow['stands_for']} merged)" if flow["stands_for"] > 1 else ""),
            target,
            str(flow["priority"]),
            f"{flow['packets']:,}",
            flow["content"],
        )
    show(table)
    if len(found["flows"]) > limit:
        click.echo(f"… and {len(found['flows']) - limit} more: --limit, or --json for all")
