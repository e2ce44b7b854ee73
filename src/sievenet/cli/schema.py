"""`sievenet schema`: check, show and list schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from sievenet.cli.app import LazyGroup, Refusal
from sievenet.cli.output import json_option, marked, show, show_json
from sievenet.cli.table import Entry

if TYPE_CHECKING:
    from sievenet.content import Attribute, Schema

__all__ = ["check", "list_samples", "schema", "show_schema"]

_HERE = "sievenet.cli.schema"


@click.group(
    cls=LazyGroup,
    table={
        "check": Entry(f"{_HERE}:check", "Check schema files."),
        "show": Entry(f"{_HERE}:show_schema", "Show the attributes of a schema."),
        "list": Entry(f"{_HERE}:list_samples", "List the built-in schemas."),
    },
)
def schema() -> None:
    """Check and show schemas."""


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
