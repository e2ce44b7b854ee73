"""`sievenet configurator`: work out flow changes for a daemon."""

from __future__ import annotations

import asyncio
import os
import re

import click

from sievenet.cli.fabric import run
from sievenet.cli.logs import log_options
from sievenet.cli.output import json_option, show_json
from sievenet.cli.shutdown import stop_signal, unless_stopped

__all__ = ["configurator"]


@click.command()
@click.option(
    "--nats", metavar="URL", help="The NATS servers of a fabric: serve whichever of its daemons leads (extra `nats`)."
)
@click.option("--fabric", metavar="NAME", default="sievenet", show_default=True, help="With --nats, which fabric.")
@click.option("--credentials", type=click.Path(dir_okay=False), help="With --nats, a file with credentials for it.")
@click.option("--authority", type=click.Path(dir_okay=False), help="With --nats, who signs its certificates (PEM).")
@click.option("--url", metavar="URL", help="A daemon's address for configurators, without NATS.")
@click.option("--name", metavar="NAME", help="The configurator's name. Default: the machine's, and the process.")
@log_options
@json_option
def configurator(
    nats: str | None,
    fabric: str,
    credentials: str | None,
    authority: str | None,
    url: str | None,
    name: str | None,
    as_json: bool,
) -> None:
    """Work out flow changes for a daemon.

    With --nats it runs on any machine that reaches NATS, and serves whichever daemon of the fabric leads (`sievenet up
    --control sna --nats URL`), until it is stopped. It reaches no switch and decides nothing, so it may be killed at
    any time.

    Without NATS nobody has to call this: `sievenet up --control sna` starts as many configurators as it is told to,
    gives each a secret, and starts another one when one ends. Such a one ends with its daemon.

    \b
    Examples:
      $ sievenet configurator --nats nats://127.0.0.1:4222  # needs a NATS server and Ctrl-C to end
      $ sievenet configurator --url sievenet+configurator://127.0.0.1:40001 --name configurator-1  # needs a daemon
    """
    if (nats is None) == (url is None):
        raise click.UsageError("Expected --nats, or --url with --name, and not both")
    if nats is not None:
        run(_serve(nats, fabric, credentials, authority, name, as_json))
        return
    assert url is not None
    if name is None:
        raise click.UsageError("Expected --name with --url")
    run(_configure(url, name, as_json))


async def _serve(
    nats: str, fabric: str, credentials: str | None, authority: str | None, name: str | None, as_json: bool
) -> None:
    from sievenet.config import NatsConfig
    from sievenet.control import warmup
    from sievenet.control.store.access import without_secrets
    from sievenet.daemon.delegate import Delegate
    from sievenet.daemon.reign import open_store, own_name
    from sievenet.errors import InvalidInput

    name = name or own_name()
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}", name) is None:
        raise InvalidInput(expected="letters, digits, - and _", got=name, where="name")
    stop = stop_signal()
    config = NatsConfig(url=nats, fabric=fabric, credentials=credentials, authority=authority)
    store = await unless_stopped(stop, open_store(config))
    if store is None:
        return
    try:
        await asyncio.to_thread(warmup.load)  # before the first order, which would have to wait for it
        delegate = Delegate(store, name)
        await delegate.start()
        if not as_json:
            click.echo(f"configurator {name} serves fabric {fabric} at {without_secrets(nats)}")
        await stop.wait()
        await delegate.close()
    finally:
        await store.close()
    if as_json:
        show_json({"name": name, "term": delegate.term, "answered": delegate.answered})


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
