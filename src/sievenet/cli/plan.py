"""`sievenet plan`: show and change the index plan of a category."""

from __future__ import annotations

from typing import Any, Literal

import click

from sievenet.cli.app import LazyGroup
from sievenet.cli.fabric import run, seconds_text, url_option
from sievenet.cli.output import json_option, show_json
from sievenet.cli.table import CommandRow

__all__ = ["apply", "plan", "show_plan", "suggested"]

_HERE = "sievenet.cli.plan"


@click.group(
    cls=LazyGroup,
    table={
        "show": CommandRow(f"{_HERE}:show_plan", "Show the index plan of a category."),
        "suggested": CommandRow(f"{_HERE}:suggested", "Print a plan that the fabric found better than the one in use."),
        "apply": CommandRow(f"{_HERE}:apply", "Change the index plan of a category, under traffic."),
    },
)
def plan() -> None:
    """Show and change index plans of a running fabric."""


@click.command("show")
@click.argument("category")
@url_option
@json_option
def show_plan(category: str, url: str | None, as_json: bool) -> None:
    """Show the index plan of a category.

    With --json it is printed as `sievenet plan apply` reads it.

    \b
    Examples:
      $ sievenet plan show stock  # needs a running fabric
      $ sievenet plan show stock --json  # needs a running fabric
    """
    from sievenet.client.connector import connect
    from sievenet.index.plan import Plan

    async def look() -> bytes:
        async with connect(url, observer=True, reconnect=False, timeout=10.0) as node:
            return await node.plan(category)

    data = run(look())
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(data, indent=2).decode())
    else:
        click.echo(str(Plan.from_json(data)))


@click.command()
@click.argument("category")
@url_option
@json_option
def suggested(category: str, url: str | None, as_json: bool) -> None:
    """Print a plan that the fabric found better than the one in use.

    There is one if the fabric tunes itself by `--tune suggest`; `sievenet status` tells what it would save. It is
    printed as JSON, as `sievenet plan apply` reads it.

    \b
    Examples:
      $ sievenet plan suggested stock > plan.json  # needs a running fabric
    """
    from sievenet.cli.fabric import asked

    show_json(asked(url, "suggestion", category))


@click.command()
@click.argument("file")
@click.option(
    "--kind",
    type=click.Choice(["dz", "cells"]),
    help="What filters become, whatever the file says: prefixes in one table, or masks in a table per out port.",
)
@url_option
@json_option
def apply(file: str, kind: Literal["dz", "cells"] | None, url: str | None, as_json: bool) -> None:
    """Change the index plan of a category, under traffic.

    FILE is a plan as JSON, such as `sievenet plan show --json` and `sievenet pipeline plan` write; it names its schema
    itself. `stock` is the built-in plan for the sample market. No event is lost while publishers and switches change
    over; the command returns when they have.

    \b
    Examples:
      $ sievenet plan apply plan.json  # needs a running fabric
      $ sievenet plan apply stock  # needs a running fabric
      $ sievenet plan apply stock --kind cells  # needs a running fabric
    """
    from msgspec.structs import replace

    from sievenet.client.connector import connect
    from sievenet.workload.samples import load_plan

    wanted = load_plan(file)
    if kind is not None:
        wanted = replace(wanted, kind=kind, gray=kind == "cells")

    async def change() -> Any:
        async with connect(url, operator=True, reconnect=False, timeout=600.0) as node:
            return await node.apply_plan(wanted.schema.name, wanted.to_json())

    report = run(change())
    if as_json:
        show_json(report)
    else:
        took = seconds_text(sum(report["stages"].values()))
        click.echo(f"{wanted.schema.name}: plan of epoch {report['epoch']} in use after {took}")
