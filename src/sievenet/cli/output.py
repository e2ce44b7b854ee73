"""What commands share: options, and output for people or, with --json, for programs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sievenet.content import Schema

__all__ = ["json_option", "marked", "plain", "schema_option", "schema_prefix", "schema_said", "show", "show_json"]

F = TypeVar("F", bound=Callable[..., Any])

_CATEGORY = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_.-]*)\s*:")


def json_option(command: F) -> F:
    """``--json``, as the argument ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(command)


def schema_option(command: F) -> F:
    """``--schema``, as the argument ``schema_name``."""
    return click.option(
        "--schema",
        "schema_name",
        metavar="NAME|FILE",
        help="A built-in schema (see `sievenet schema list`) or a JSON file. Default: the name before the colon.",
    )(command)


def schema_prefix(text: str) -> str | None:
    """The name before the colon of ``stock: …``, if there is one."""
    found = _CATEGORY.match(text)
    return found[1] if found else None


def schema_said(schema_name: str | None, *texts: str) -> Schema | None:
    """The schema that ``--schema`` or the text (``stock: …``) names; None if neither does."""
    from sievenet.workload.samples import load_schema

    name = schema_name or next((said for text in texts if (said := schema_prefix(text))), None)
    return None if name is None else load_schema(name)


def show_json(data: Any) -> None:
    """Print data as JSON, one line per item where that is readable."""
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())


def show(*renderables: RenderableType) -> None:
    """Print tables and the like through rich; no colours where stdout is no terminal."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    for each in renderables:
        console.print(each)


def plain(value: Any) -> str:
    """A value of an answer as people read it: dicts and lists in one line."""
    if isinstance(value, dict):
        return ", ".join(f"{k} {v}" for k, v in value.items()) or "-"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return str(value)


def marked(text: str) -> str:
    """Lines with ✓ in green and ✗ in red; click drops the colours where there is no terminal."""
    return text.replace("✓", click.style("✓", fg="green")).replace("✗", click.style("✗", fg="red"))
