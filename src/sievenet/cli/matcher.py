"""`sievenet matcher`: filter exactly inside the network."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

import click

from sievenet.cli.fabric import duration, run, url_option
from sievenet.cli.output import json_option, show_json
from sievenet.cli.shutdown import stop_signal
from sievenet.cli.startup import load_first

if TYPE_CHECKING:
    from sievenet.daemon.daemon import Daemon
    from sievenet.network.topology import Topology

__all__ = ["matcher", "matchers", "spread"]


@click.command()
@url_option
@click.option("--name", metavar="NAME", help="The matcher's name. Default: the daemon gives one.")
@click.option("--host", metavar="HOST", help="The host where it is attached. Default: the daemon chooses.")
@click.option("--workers", type=click.IntRange(1, 256), default=1, show_default=True, help="Processes, one per core.")
@click.option("--for", "seconds", metavar="TIME", callback=duration, help="Stop after this time. Default: at Ctrl-C.")
@json_option
def matcher(
    url: str | None, name: str | None, host: str | None, workers: int, seconds: float | None, as_json: bool
) -> None:
    """Filter exactly inside the network.

    A matcher is attached at a host and serves the switch of that host. When the fabric's latency bound allows it
    (`sievenet up --latency-bound`), some of that switch's traffic goes through the matcher, which compares each event
    with the exact subscriptions and sends it on to those who want it. `sievenet hybrid` shows what goes through it.

    \b
    Examples:
      $ sievenet matcher --host h1  # needs a running fabric
      $ sievenet matcher --host h1 --workers 4  # needs a running fabric
    """
    if workers > 1:
        if os.environ.get("SIEVENET_LOGIN"):
            raise click.UsageError("A component has exactly its member's name: start each worker with its own --login")
        run(_workers(url, name or f"matcher-{os.getpid()}", host, workers, seconds))
    else:
        run(_match(url, name, host, seconds, as_json))


async def _match(url: str | None, name: str | None, host: str | None, seconds: float | None, as_json: bool) -> None:
    from sievenet.access.login import load_login
    from sievenet.client.matcher import MatcherNode, load
    from sievenet.daemon.collector import collecting_seldom

    await load_first(load)
    stop = stop_signal()
    login = os.environ.get("SIEVENET_LOGIN")
    known = None if login is None else load_login(login)
    node = MatcherNode(url, name=name or (None if known is None else known.name), host=host, login=known)
    await node.start()
    click.echo(f"matcher {node.node.name} at {node.node.host}", err=as_json)
    with collecting_seldom(), contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
    counts = {"received": node.received, "sent": node.sent, "unwanted": node.unwanted, "malformed": node.malformed}
    await node.close()
    if as_json:
        show_json(counts)
    else:
        click.echo(f"{node.received} events, {node.unwanted} of them wanted by nobody; {node.sent} sent on")


async def _workers(url: str | None, name: str, host: str | None, workers: int, seconds: float | None) -> None:
    stop = stop_signal()
    command = [sys.executable, "-m", "sievenet", "matcher"]
    for option, value in (("--url", url), ("--host", host), ("--for", seconds)):
        command += [option, str(value)] if value is not None else []
    some = [await asyncio.create_subprocess_exec(*command, "--name", f"{name}-{i}") for i in range(1, workers + 1)]
    ended = [asyncio.create_task(each.wait()) for each in some]
    waiting = asyncio.create_task(_until(stop))
    while not waiting.done() and not all(each.done() for each in ended):
        await asyncio.wait([waiting, *ended], return_when=asyncio.FIRST_COMPLETED, timeout=1.0)
    waiting.cancel()
    for each in some:
        if each.returncode is None:
            each.terminate()
    codes = await asyncio.gather(*ended)
    if any(codes):
        raise click.ClickException(f"{sum(map(bool, codes))} of {workers} workers ended with an error")


async def _until(stop: asyncio.Event) -> int:
    await stop.wait()
    return 0


def spread(topology: Topology, count: int) -> list[str]:
    """Hosts for so many matchers: one at each switch that has hosts, those with most first, then once more."""
    at: dict[str, list[str]] = {}
    for host in topology.hosts:
        at.setdefault(topology.attachment(host).switch, []).append(host)
    order = sorted(at.values(), key=len, reverse=True)
    turns = (divmod(i, len(order)) for i in range(count if order else 0))
    return [order[place][turn % len(order[place])] for turn, place in turns]


@contextlib.asynccontextmanager
async def matchers(daemon: Daemon, hosts: Sequence[str]) -> AsyncIterator[None]:
    """Matchers in a daemon's process, at these hosts: those of `sievenet up --matchers`."""
    from sievenet.client.matcher import MatcherNode

    async with contextlib.AsyncExitStack() as stack:
        for i, host in enumerate(hosts, 1):
            name, login = daemon.keeper.own_login(f"matcher-{i}")
            node = MatcherNode(daemon.url, name=name, host=host, login=login)
            await node.start()
            stack.push_async_callback(node.close)
        yield
