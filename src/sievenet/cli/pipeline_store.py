"""`sievenet pipeline store` and `quarantine`: what a store holds, what is bad, and getting rid of it."""

from __future__ import annotations

import click

from sievenet.cli.app import LazyGroup
from sievenet.cli.output import json_option, show_json
from sievenet.cli.pipeline_options import master_option, opened, store_argument
from sievenet.cli.table import CommandRow

__all__ = ["drop", "list_store", "quarantine", "show_quarantine", "show_store", "store"]

_HERE = "sievenet.cli.pipeline_store"


@click.group(
    cls=LazyGroup,
    table={
        "list": CommandRow(f"{_HERE}:list_store", "List the categories of a store."),
        "show": CommandRow(f"{_HERE}:show_store", "Show the schema and the runs of a category."),
        "drop": CommandRow(f"{_HERE}:drop", "Remove a category from a store: events, quarantine, schema."),
    },
)
def store() -> None:
    """List, show and drop what a store holds."""


@click.group(
    cls=LazyGroup,
    table={"show": CommandRow(f"{_HERE}:show_quarantine", "Show bad rows of a category, by their reasons.")},
)
def quarantine() -> None:
    """Show bad rows with their reasons."""


@click.command("list")
@click.argument("store")
@master_option
@json_option
def list_store(store: str, master: str | None, as_json: bool) -> None:
    """List the categories of a store.

    \b
    Examples:
      $ sievenet pipeline store list store  # needs Spark
    """
    with opened(store, master) as where:
        found = []
        for name in where.categories():
            runs = where.manifests(name)
            events, bad = sum(m.events for m in runs), sum(m.quarantined for m in runs)
            found.append({"category": name, "runs": len(runs), "events": events, "quarantined": bad})
    if as_json:
        show_json(found)
        return
    for each in found:
        click.echo(f"{each['category']}: {each['events']} events, {each['quarantined']} bad rows, {each['runs']} runs")
    if not found:
        click.echo("no categories yet")


@click.command("show")
@store_argument
@master_option
@json_option
def show_store(store: str, category: str, master: str | None, as_json: bool) -> None:
    """Show the schema and the runs of a category.

    \b
    Examples:
      $ sievenet pipeline store show store stock  # needs Spark
    """
    import msgspec

    with opened(store, master) as where:
        schema, runs = where.schema(category), where.manifests(category)
    if as_json:
        show_json({"schema": msgspec.json.decode(schema.to_json()), "runs": msgspec.to_builtins(runs)})
        return
    click.echo(f"{schema.name} version {schema.version}")
    for attribute in schema.attributes:
        click.echo(f"  {attribute.name}: {attribute.describes}")
    for run in runs:
        click.echo(f"run {run.run}: {len(run.files)} files, {run.events} events, {run.quarantined} bad rows")


@click.command()
@store_argument
@master_option
@json_option
def drop(store: str, category: str, master: str | None, as_json: bool) -> None:
    """Remove a category from a store: events, quarantine, schema.

    The files that it was read from are not touched; they can be ingested again, with another schema if you like.

    \b
    Examples:
      $ sievenet pipeline store drop store stock  # needs Spark
    """
    with opened(store, master) as where:
        runs = where.drop(category)
    if as_json:
        show_json({"category": category, "runs": runs})
    else:
        click.echo(f"{category}: {runs} runs removed")


@click.command("show")
@store_argument
@click.option("--examples", type=click.IntRange(1, 100), default=3, show_default=True, help="Rows per reason.")
@master_option
@json_option
def show_quarantine(store: str, category: str, examples: int, master: str | None, as_json: bool) -> None:
    """Show bad rows of a category, by their reasons.

    \b
    Examples:
      $ sievenet pipeline quarantine show store stock  # needs Spark
    """
    from sievenet.pipeline.preview import bad_examples

    with opened(store, master) as where:
        found = bad_examples(where, category, examples)
    if as_json:
        show_json(found)
        return
    for reason, each in found.items():
        click.echo(f"{each['rows']}  {reason}")
        for example in each["examples"]:
            click.echo(f"    {example['source'].rsplit('/', 1)[-1]}: {example['row']}")
    if not found:
        click.echo("no bad rows")
