"""`sievenet schema`: check, show and list schemas; register and remove them in a running fabric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from sievenet.cli.app import LazyGroup, Refusal
from sievenet.cli.fabric import run, url_option
from sievenet.cli.output import json_option, marked, show, show_json
from sievenet.cli.table import CommandRow

if TYPE_CHECKING:
    from sievenet.content import Attribute, Schema

__all__ = ["check", "list_samples", "register", "remove", "schema", "show_schema"]

_HERE = "sievenet.cli.schema"


@click.group(
    cls=LazyGroup,
    table={
        "check": CommandRow(f"{_HERE}:check", "Check schema files."),
        "show": CommandRow(f"{_HERE}:show_schema", "Show the attributes of a schema."),
        "list": CommandRow(f"{_HERE}:list_samples", "List the built-in schemas."),
        "register": CommandRow(f"{_HERE}:register", "Register a schema, or a newer version of one."),
        "remove": CommandRow(f"{_HERE}:remove", "Remove a category from a running fabric."),
    },
)
def schema() -> None:
    """Check, show, register and remove schemas."""


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@json_option
def check(files: tuple[str, ...], as_json: bool) -> None:
    """Check schema files.

    Prints one line per file and ends with exit code 2 if one of them is no schema. A built-in schema can be checked by
    its name.

    \b
    Examples:
      $ sievenet schema check stock
      $ sievenet schema check examples/schemas/trip.json stock --json
      $ sievenet schema check nowhere.json  # fails
    """
    answers = [_checked(file) for file in files]
    if as_json:
        show_json(answers)
    else:
        for answer in answers:
            click.echo(marked(_line(answer)))
    bad = sum(not answer["ok"] for answer in answers)
    if bad:
        raise Refusal(f"{bad} of {len(answers)} {'is' if bad == 1 else 'are'} no schema")


@click.command("show")
@click.argument("name", metavar="NAME|FILE")
@json_option
def show_schema(name: str, as_json: bool) -> None:
    """Show the attributes of a schema.

    \b
    Examples:
      $ sievenet schema show stock
      $ sievenet schema show examples/schemas/trip.json --json
    """
    from sievenet.workload.samples import load_schema

    found = load_schema(name)
    if as_json:
        show_json(found)
    else:
        show(_table(found))


@click.command("list")
@json_option
def list_samples(as_json: bool) -> None:
    """List the built-in schemas.

    \b
    Examples:
      $ sievenet schema list
    """
    from sievenet.workload.samples import load_schema, sample_names

    schemas = [load_schema(name) for name in sample_names()]
    if as_json:
        show_json(schemas)
    else:
        for each in schemas:
            click.echo(f"{each.name:<8} {', '.join(f'{a.name} {a.type}' for a in each.attributes)}")


@click.command()
@click.argument("name", metavar="NAME|FILE")
@url_option
@json_option
def register(name: str, url: str | None, as_json: bool) -> None:
    """Register a schema, or a newer version of one.

    A newer version has a higher number, and may add attributes and values of enumerations. It comes beside the older
    ones, whose publishers and subscribers go on; the command returns when subscribers of all versions get its events.

    \b
    Examples:
      $ sievenet schema register trip-2.json  # needs a running fabric
    """
    from sievenet.client.connector import connect
    from sievenet.workload.samples import load_schema

    wanted = load_schema(name)

    async def ask() -> None:
        async with connect(url, operator=True, reconnect=False, timeout=120.0) as node:
            await node.schema(wanted)

    run(ask())
    if as_json:
        show_json({"registered": wanted.name, "version": wanted.version})
    else:
        click.echo(marked(f"✓ {wanted.name} version {wanted.version} is registered"))


@click.command()
@click.argument("name")
@click.option("--version", type=click.IntRange(min=1), help="Which version. Default: the only one.")
@click.option("--force", is_flag=True, help="Remove it though it is in use; registrations in it end with an error.")
@url_option
@json_option
def remove(name: str, version: int | None, force: bool, url: str | None, as_json: bool) -> None:
    """Remove a category from a running fabric.

    Refused while anybody has registered something in it. A client that uses the schema and was away registers it
    anew when it comes back.

    \b
    Examples:
      $ sievenet schema remove trip --version 1  # needs a running fabric
      $ sievenet schema remove trip --force  # needs a running fabric
    """
    from sievenet.client.connector import connect

    async def ask() -> None:
        async with connect(url, operator=True, reconnect=False, timeout=60.0) as node:
            await node.remove_schema(name, version or 0, force=force)

    run(ask())
    if as_json:
        show_json({"removed": name, "version": version})
    else:
        click.echo(marked(f"✓ {name}{f' version {version}' if version else ''} is removed"))


def _checked(file: str) -> dict[str, Any]:
    from sievenet.errors import SievenetError
    from sievenet.workload.samples import load_schema

    try:
        found = load_schema(file)
    except SievenetError as error:
        return {"file": file, "ok": False, "error": str(error)}
    attributes = [a.name for a in found.attributes]
    return {"file": file, "ok": True, "name": found.name, "version": found.version, "attributes": attributes}


def _line(answer: dict[str, Any]) -> str:
    if not answer["ok"]:
        return f"✗ {answer['file']}: {answer['error']}"
    count = len(answer["attributes"])
    return f"✓ {answer['file']}: {answer['name']} version {answer['version']}, {count} attributes"


def _table(found: Schema) -> Any:
    from rich.table import Table

    table = Table(title=f"{found.name}, version {found.version}", title_justify="left", box=None, pad_edge=False)
    for heading in ("attribute", "type", "domain"):
        table.add_column(heading, overflow="fold")
    for attribute in found.attributes:
        table.add_row(attribute.name, attribute.type, _domain(attribute))
    return table


def _domain(attribute: Attribute) -> str:
    match attribute.type:
        case "bool":
            return "false, true"
        case "str" if attribute.values is None:
            return "any text"
        case "str":
            values = attribute.values or ()
            return f"{len(values)} values: {', '.join(values[:8])}{', …' if len(values) > 8 else ''}"
        case _:
            return f"{attribute.lo} to {attribute.hi}"
