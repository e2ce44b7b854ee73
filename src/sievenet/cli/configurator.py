"""`sievenet configurator`: work out flow changes for a daemon."""

from __future__ import annotations

import asyncio
import os

import click

from sievenet.cli.fabric import run
from sievenet.cli.output import json_option, show_json
from sievenet.cli.shutdown import stop_signal

__all__ = ["configurator"]


@click.command()
@click.option("--url", metavar="URL", required=True, help="The daemon's address for configurators.")
@click.option("--name", metavar="NAME", required=True, help="The configurator's name.")
@json_option
def configurator(url: str, name: str, as_json: bool) -> None:
    """Work out flow changes for a daemon.

    Nobody has to call this: `sievenet up --control sna` starts as many configurators as it is told to, gives each a
    secret, and starts another one when one ends. It ends with its daemon.

    \b
    Examples:
      $ sievenet configurator --url sievenet+configurator://127.0.0.1:40001 --name configurator-1  # needs a daemon
    """
    run(_configure(url, name, as_json))


async def _configure(url: str, name: str, as_json: bool) -> None:
    from urllib.parse import urlsplit

    from sievenet.control.configurators.messages import CONFIGURATORS
    from sievenet.daemon.configurator import Configurator
    from sievenet.daemon.configurators import SECRET
    from sievenet.errors import InvalidInput

    found = urlsplit(url)
    try:
        host, port = found.hostname, found.port
    except ValueError:
        host, port = None, None
    if found.scheme != CONFIGURATORS.scheme or host is None or port is None:
        raise InvalidInput(expected=f"{CONFIGURATORS.scheme}://ADDRESS:PORT", got=url, where="url")
    stop = asyncio.create_task(stop_signal().wait())
    work = asyncio.create_task(Configurator(host, port, name, os.environ.get(SECRET, "")).run())
    await asyncio.wait((stop, work), return_when=asyncio.FIRST_COMPLETED)
    if work.done():
        reason = str(work.result())
        if as_json:
            show_json({"name": name, "ended": reason})
        else:
            click.echo(f"{name}: {reason}", err=True)
    work.cancel()
    stop.cancel()
    await asyncio.gather(work, stop, return_exceptions=True)
