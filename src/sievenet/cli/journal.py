"""`sievenet journal`: look whether a journal is whole, and save what can be saved of one that is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sievenet.cli.app import LazyGroup, Refusal
from sievenet.cli.output import json_option, show_json
from sievenet.cli.table import Entry

__all__ = ["check", "journal", "repair"]

_HERE = "sievenet.cli.journal"


@click.group(
    cls=LazyGroup,
    table={
        "check": Entry(f"{_HERE}:check", "Check a journal; say what is lost if it is damaged."),
        "repair": Entry(f"{_HERE}:repair", "Keep what can be made out of a damaged journal."),
    },
)
def journal() -> None:
    """Check and repair the journal of a fabric."""


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@json_option
def check(file: str, as_json: bool) -> None:
    """Check a journal; say what is lost if it is damaged.

    FILE is `journal.db` in the folder of `sievenet up --state`; the fabric may be running. Ends with exit code 2 if
    the journal is damaged.

    \b
    Examples:
      $ sievenet journal check fabric/journal.db  # needs a journal
    """
    found = _examined(Path(file))
    if as_json:
        show_json(found)
    else:
        _tell(found)
    if found["damage"]:
        raise click.exceptions.Exit(2)


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--yes", is_flag=True, help="Do it; without this, only what would be lost is shown.")
@json_option
def repair(file: str, yes: bool, as_json: bool) -> None:
    """Keep what can be made out of a damaged journal.

    The damaged file stays beside it, as FILE.damaged. The daemon must not run.

    \b
    Examples:
      $ sievenet journal repair fabric/journal.db  # needs a journal
      $ sievenet journal repair fabric/journal.db --yes  # needs a journal
    """
    from sievenet.control.journal import exclusive, write_whole
    from sievenet.control.logfile import salvage

    path = Path(file)
    found = _examined(path)
    if as_json:
        show_json({**found, "repaired": bool(found["damage"]) and yes})
    else:
        _tell(found)
    if not found["damage"]:
        return
    if not yes:
        raise Refusal("Nothing is changed; with --yes this would be lost")
    with exclusive(path):
        data = path.read_bytes()
        kept = path.with_name(f"{path.name}.damaged")
        kept.touch(0o600)
        kept.write_bytes(data)
        write_whole(path, salvage(data)[0])
    if not as_json:
        click.echo(f"repaired: {found['records']} records are kept; the damaged file is {kept}")


def _examined(path: Path) -> dict[str, Any]:
    from sievenet.control.aside import read_aside
    from sievenet.control.journal import aside_path, read_records
    from sievenet.control.logfile import MAGIC, Damaged, salvage

    aside = [{"what": each.what, "error": each.error} for each in read_aside(aside_path(path))]
    try:
        records = read_records(path)
    except Damaged as error:
        data = path.read_bytes()
        if not data.startswith(MAGIC[:1]) and MAGIC not in data[:64]:
            raise
        saved, lost = salvage(data)
        return {"file": str(path), "records": len(saved), "damage": str(error), "lost": lost, "set_aside": aside}
    return {"file": str(path), "records": len(records), "damage": None, "lost": [], "set_aside": aside}


def _tell(found: dict[str, Any]) -> None:
    if found["damage"] is None:
        click.echo(f"{found['file']}: whole, {found['records']} records")
    else:
        click.echo(found["damage"])
        for each in found["lost"]:
            click.echo(f"lost: {each}")
        click.echo(f"{found['records']} records can be made out")
    for each in found["set_aside"]:
        click.echo(f"set aside at a start: {each['what']} ({each['error']})")
