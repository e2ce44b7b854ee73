"""`sievenet keys`: make an authority, certificates and tokens, one command each."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any, Final

import click

from sievenet.cli.app import LazyGroup
from sievenet.cli.output import json_option, show_json
from sievenet.cli.table import CommandRow

__all__ = ["authority", "certificate", "keys", "members", "revoke", "token"]

_HERE: Final = "sievenet.cli.keys"
_ROLES: Final = ("observer", "client", "operator", "component")


@click.group(
    cls=LazyGroup,
    table={
        "authority": CommandRow(f"{_HERE}:authority", "Make an access folder with an authority of its own."),
        "certificate": CommandRow(f"{_HERE}:certificate", "Make a certificate for a member, as a login file."),
        "token": CommandRow(f"{_HERE}:token", "Make a token for a member, as a login file."),
        "revoke": CommandRow(f"{_HERE}:revoke", "Let certificates and tokens of a member count no more."),
        "members": CommandRow(f"{_HERE}:members", "Show who may connect, and what each may do."),
    },
)
def keys() -> None:
    """Make certificates and tokens; say who may connect."""


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _made(path: Path, name: str, as_json: bool) -> None:
    if as_json:
        show_json({"name": name, "login": str(path)})
    else:
        click.echo(f"{path}: a secret; whoever has it is {name}")


_folder = click.argument("folder", type=click.Path(file_okay=False))
_role = click.option("--role", type=click.Choice(_ROLES), help="What a new member is.")


@click.command()
@_folder
@click.option("--days", type=click.IntRange(1, 36500), default=3650, show_default=True, help="How long it counts.")
@json_option
def authority(folder: str, days: int, as_json: bool) -> None:
    """Make an access folder with an authority of its own.

    The folder holds everything by which a daemon or a router knows who connects. Keep it to yourself; authority.key
    signs certificates, and may be kept away from the machines that run.

    \b
    Examples:
      $ sievenet keys authority access
    """
    from sievenet.access.folder import Folder

    Folder(folder).make(days, _now())
    if as_json:
        show_json({"folder": folder})
        return
    click.echo(f"{folder} is an access folder now; next, a certificate for the daemon:")
    click.echo(f"  sievenet keys certificate {folder} daemon --role component")


@click.command()
@_folder
@click.argument("name")
@_role
@click.option("--days", type=click.IntRange(1, 36500), default=365, show_default=True, help="How long it counts.")
@click.option(
    "--address", "addresses", multiple=True, help="Where a component is reached, besides this machine; may be repeated."
)
@json_option
def certificate(folder: str, name: str, role: str | None, days: int, addresses: tuple[str, ...], as_json: bool) -> None:
    """Make a certificate for a member, as a login file.

    NAME.login in the folder is all that NAME needs to connect: hand it over and remove it. A daemon and each router
    need one too, with the role component. Earlier certificates count until they expire or are revoked.

    \b
    Examples:
      $ sievenet keys certificate access daemon --role component --address 10.0.0.1  # needs an access folder
      $ sievenet keys certificate access alice --role client  # needs an access folder
    """
    from sievenet.access.folder import Folder
    from sievenet.access.identity import Role

    path = Folder(folder).certificate(name, None if role is None else Role(role), days, _now(), addresses)
    _made(path, name, as_json)


@click.command()
@_folder
@click.argument("name")
@_role
@click.option("--days", type=click.IntRange(1, 36500), help="How long it counts. Default: until it is revoked.")
@json_option
def token(folder: str, name: str, role: str | None, days: int | None, as_json: bool) -> None:
    """Make a token for a member, as a login file.

    NAME.login in the folder is all that NAME needs to connect: hand it over and remove it. The folder itself keeps
    only a salted hash. Earlier tokens count until they are revoked.

    \b
    Examples:
      $ sievenet keys token access alice --role client  # needs an access folder
      $ sievenet keys token access alice --days 30  # needs an access folder
    """
    from sievenet.access.folder import Folder
    from sievenet.access.identity import Role

    expires = None if days is None else (_now() + datetime.timedelta(days=days)).date()
    path = Folder(folder).token(name, None if role is None else Role(role), expires)
    _made(path, name, as_json)


@click.command()
@_folder
@click.argument("name")
@click.option("--old", is_flag=True, help="All but the newest of each: the end of a rotation.")
@json_option
def revoke(folder: str, name: str, old: bool, as_json: bool) -> None:
    """Let certificates and tokens of a member count no more.

    Connections that were made with them end within seconds. To take everything from a member, remove it from
    members.toml.

    \b
    Examples:
      $ sievenet keys revoke access alice --old  # needs an access folder
    """
    from sievenet.access.folder import Folder

    tokens, certificates = Folder(folder).revoke(name, keep_newest=old)
    if as_json:
        show_json({"name": name, "tokens": tokens, "certificates": certificates})
        return
    click.echo(f"{name}: {tokens} tokens and {certificates} certificates count no more")


@click.command()
@_folder
@json_option
def members(folder: str, as_json: bool) -> None:
    """Show who may connect, and what each may do.

    Says what is wrong if the files do not make sense; then a running daemon goes on with what they said before.

    \b
    Examples:
      $ sievenet keys members access  # needs an access folder
    """
    from sievenet.access.folder import Folder

    found: list[dict[str, Any]] = Folder(folder).listing()
    if as_json:
        show_json(found)
        return
    for each in found:
        until = ", ".join(each["certificates"]) or "none"
        click.echo(f"{each['name']}  {each['role']}  tokens {each['tokens']}  certificates until {until}")
        for rule in each["rules"]:
            click.echo(f"  {rule}")
    if not found:
        click.echo("nobody yet: `sievenet keys token` and `sievenet keys certificate` add members")
