"""`sievenet journal`: look whether a journal is whole, and save what can be saved of one that is not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from sievenet.cli.app import LazyGroup, Refusal
from sievenet.cli.output import json_option, show_json
from sievenet.cli.table import CommandRow

if TYPE_CHECKING:
    from sievenet.control.aside import Aside
    from sievenet.control.examination import Examination

__all__ = ["check", "journal", "repair"]

_HERE = "sievenet.cli.journal"
#: Lines about records that are not in effect; JSON has them all.
_SHOWN: Final = 100


@click.group(
    cls=LazyGroup,
    table={
        "check": CommandRow(f"{_HERE}:check", "Check a journal; say what is lost if it is damaged."),
        "repair": CommandRow(f"{_HERE}:repair", "Keep what can be made out of a damaged journal."),
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
    from sievenet.control.examination import examine

    path = Path(file)
    found = examine(path)
    if as_json:
        show_json(_facts(path, found))
    else:
        _tell(path, found)
    if found.damage is not None:
        raise click.exceptions.Exit(2)


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--yes", is_flag=True, help="Do it; without this, only what would be lost is shown.")
@json_option
def repair(file: str, yes: bool, as_json: bool) -> None:
    """Keep what can be made out of a damaged journal.

    Says what is lost: the damaged records, and whole ones that cannot be carried out without them. The next start
    repeats it in its log and in `sievenet status`. The damaged file stays beside it, as FILE.damaged. The daemon must
    not run.

    \b
    Examples:
      $ sievenet journal repair fabric/journal.db  # needs a journal
      $ sievenet journal repair fabric/journal.db --yes  # needs a journal
    """
    from sievenet.control import examination

    path, kept = Path(file), None
    found = examination.examine(path)
    if yes and found.damage is not None:
        found, kept = examination.repair(path)
    if as_json:
        show_json({**_facts(path, found), "repaired": kept is not None})
    else:
        _tell(path, found)
    if kept is not None:
        if not as_json:
            click.echo(f"repaired; the damaged file is {kept}")
    elif found.damage is not None:
        raise Refusal("Nothing is changed; with --yes the journal is repaired")


def _facts(path: Path, found: Examination) -> dict[str, Any]:
    return {
        "file": str(path),
        "damage": found.damage,
        "records": found.whole,
        "kept": found.counts(),
        "lost": _listed(found.lost),
        "not_in_effect": _listed(found.idle),
        "set_aside": _listed(_set_aside(path, found)),
    }


def _listed(records: list[Aside]) -> list[dict[str, str]]:
    return [{"what": each.what, "error": each.error} for each in records]


def _set_aside(path: Path, found: Examination) -> list[Aside]:
    """What earlier starts could not carry out, without what is told anyway."""
    from sievenet.control.aside import read_aside
    from sievenet.control.journal import aside_path

    told = {each.record for each in (*found.lost, *found.idle)}
    return [each for each in read_aside(aside_path(path)) if each.record not in told]


def _tell(path: Path, found: Examination) -> None:
    damaged = found.damage is not None
    if damaged:
        click.echo(f"{path}: damaged, {found.damage}")
        if not found.lost:
            click.echo("nothing is lost: every record can be made out")
    for each in found.lost:
        click.echo(f"lost: {each.what}")
    _tell_some("lost with it" if found.lost else "not in effect", found.idle)
    counts = ", ".join(f"{count:,} {name if count != 1 else _SINGULAR[name]}" for name, count in found.counts().items())
    click.echo(f"{'kept' if damaged else f'{path}: whole'}, {found.whole} record{'s' * (found.whole != 1)}: {counts}")
    _tell_some("set aside at a start", _set_aside(path, found))


_SINGULAR: Final = {
    "categories": "category",
    "clients": "client",
    "advertisements": "advertisement",
    "subscriptions": "subscription",
}


def _tell_some(title: str, records: list[Aside]) -> None:
    for each in records[:_SHOWN]:
        click.echo(f"{title}: {each.what} ({each.error})")
    if len(records) > _SHOWN:
        click.echo(f"{title}: {len(records) - _SHOWN} more (--json lists them all)")
