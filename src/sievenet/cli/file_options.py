"""Options that say how files are to be read; `pub` and `pipeline ingest` share them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from sievenet.workload.trace import Reading

__all__ = ["reading_of", "reading_options"]

F = TypeVar("F", bound=Callable[..., Any])


def reading_options(command: F) -> F:
    """``--columns``, ``--separator``, ``--encoding``, ``--rename``, ``--select`` and ``--pairs``."""
    options = (
        click.option("--columns", metavar="A,B,…", help="Names of the columns of a CSV file that has no header."),
        click.option("--separator", metavar="CHAR", help="What divides the columns, or `tab`. Default: found out."),
        click.option("--encoding", metavar="NAME", help="Such as utf-16 or latin-1. Default: found out."),
        click.option("--rename", multiple=True, metavar="OLD=NEW", help="Another name for a column; may be repeated."),
        click.option("--select", metavar="A,B,…", help="The columns to use. Default: all."),
        click.option(
            "--pairs", type=click.Path(dir_okay=False), help="A JSON file that names lists of names and values (SenML)."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def reading_of(
    columns: str | None,
    separator: str | None,
    encoding: str | None,
    rename: tuple[str, ...],
    select: str | None,
    pairs: str | None,
    form: str | None = None,
) -> Reading:
    """What the options say."""
    import msgspec

    from sievenet.errors import InvalidInput
    from sievenet.workload.trace import Pairs, Reading

    if any("=" not in each for each in rename):
        raise click.BadParameter("Expected OLD=NEW", param_hint="--rename")
    found = None
    if pairs is not None:
        try:
            found = msgspec.json.decode(Path(pairs).read_bytes(), type=Pairs)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidInput(
                f'Expected a mapping such as {{"list": "e", "name": "n"}}; {error}', where=pairs
            ) from None
    said = bool(columns or separator or encoding or rename or select or pairs)
    return Reading(
        tuple(n.strip() for n in columns.split(",")) if columns else (),
        separator,
        encoding,
        dict(each.split("=", 1) for each in rename),
        tuple(n.strip() for n in select.split(",")) if select else (),
        found,
        form if said and form in ("csv", "json") else None,
    )
