"""What commands share: options, and output for people or, with --json, for programs."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sievenet.content import Schema

__all__ = ["LinePrinter", "json_option", "marked", "plain", "schema_option", "schema_prefix", "schema_said"]
__all__ += ["show", "show_json"]

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


class LinePrinter:
    """Prints lines beside an event loop: a reader that does not read, such as a paused terminal, holds up nobody.

    While a line waits to be read, further ones are left out.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        #: Lines left out.
        self.left_out = 0

    def __call__(self, text: str) -> None:
        """Print a line if the one before it has gone."""
        try:
            descriptor = sys.stdout.fileno()
        except OSError:  # no file, as in tests of commands
            click.echo(text)
            return
        if self._thread is not None and self._thread.is_alive():
            self.left_out += 1
            return
        sys.stdout.flush()
        # Not through Python's buffer: a thread that waits there would keep the process from ending.
        self._thread = threading.Thread(target=_write, args=(descriptor, f"{text}\n".encode()), daemon=True)
        self._thread.start()
        self._thread.join(0.01)


def _write(descriptor: int, data: bytes) -> None:
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(descriptor, data) :]


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
