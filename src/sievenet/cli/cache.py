"""`sievenet cache`: an event cache, which feeds subscribers that get more than they can take."""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from sievenet.cli.fabric import asked, duration, run, url_option
from sievenet.cli.output import json_option, show_json
from sievenet.cli.shutdown import stop_signal
from sievenet.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from sievenet.cachehost import CacheHost, CacheSettings
    from sievenet.daemon.daemon import Daemon
    from sievenet.network import Topology

__all__ = ["cache", "caches", "positions", "size"]

#: Random host states that positions are scored over.
_STATES: Final = 200

_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def size(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Callback of an option that takes bytes: 64M, 2G, or a plain number."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d+)\s*([kmg]?)i?b?", value.strip().lower())
    if found is None:
        raise click.BadParameter(f"Expected bytes such as 64M or 2G, got {value!r}", ctx, param)
    return int(found[1]) * _UNITS[found[2]]


@click.command()
@click.argument("keep", metavar="[FILTER...]", nargs=-1)
@click.option("--name", help="Its name in the fabric. Default: its login's, or the daemon gives one.")
@click.option("--host", help="The host to attach to. Default: the least loaded.")
@click.option(
    "--seconds", callback=duration, metavar="TIME", default="30s", show_default=True, help="Keep events so long."
)
@click.option(
    "--memory", callback=size, metavar="BYTES", default="256M", show_default=True, help="In memory, per category."
)
@click.option("--disk", callback=size, metavar="BYTES", default="1G", show_default=True, help="On disk, per category.")
@click.option("--folder", type=click.Path(file_okay=False), help="Where events go that memory has no room for.")
@click.option("--durable", is_flag=True, help="Write everything to --folder as it comes; a restart finds it there.")
@click.option(
    "--queue", type=click.IntRange(min=1), default=1_000_000, show_default=True, help="Events per subscriber."
)
@click.option(
    "--for", "seconds_run", metavar="TIME", callback=duration, help="Stop after this time. Default: at Ctrl-C."
)
@click.option("--list", "show", is_flag=True, help="Show the caches that serve, and end.")
@url_option
@json_option
def cache(
    keep: tuple[str, ...],
    name: str | None,
    host: str | None,
    seconds: float,
    memory: int,
    disk: int,
    folder: str | None,
    durable: bool,
    queue: int,
    seconds_run: float | None,
    show: bool,
    url: str | None,
    as_json: bool,
) -> None:
    """Run an event cache, for subscribers who get too much.

    It is responsible for subscriptions with a limit (`sievenet sub --max-rate`) and keeps what they want for some
    seconds. When one gets more than it can take, the cache queues for it and sends at its pace, until it has caught up.
    With FILTER it also keeps what matches, for those who ask for the past (`sievenet sub --since`).

    Events that do not fit into memory go to --folder. A --durable cache writes everything there at once, so that it
    goes on where it was after it was killed. In a fabric with members it needs a component's login.

    \b
    Examples:
      $ sievenet cache  # needs a running fabric
      $ sievenet cache 'stock: price > 420' --durable --folder ./past --seconds 1h  # needs a running fabric
      $ sievenet cache --list --json  # needs a running fabric
    """
    if show:
        rows = asked(url, "caches")
        if as_json:
            show_json(rows)
        elif not rows:
            click.echo("no cache serves")
        else:
            for row in rows:
                click.echo(_text(row))
        return
    from sievenet.cachehost import CacheSettings

    if durable and folder is None:
        raise click.UsageError("--durable writes to disk: give --folder too")
    settings = CacheSettings(
        seconds=seconds,
        memory=memory,
        disk=disk if folder is not None else 0,
        folder=None if folder is None else Path(folder),
        durable=durable,
        queue=queue,
    )
    run(_cache(url, settings, name, host, keep, seconds_run, as_json))


def _text(row: dict[str, Any]) -> str:
    kept = row["memory"] / 1e6
    return (
        f"{row['cache']}: responsible for {row['assigned']} subscriptions, serves {row['active']}, "
        f"standby for {row['standby']}, {row['rate']:,.0f} events/s, "
        f"{row['waiting']} events wait, {row['received']} received, {row['sent']} sent, {row['dropped']} dropped, "
        f"{kept:.1f} MB in memory, {row['disk'] / 1e6:.1f} MB on disk" + _durable(row)
    )


def _durable(row: dict[str, Any]) -> str:
    if row["trouble"]:
        return f", not durable for {row['unwritten']:,.0f} s: {row['trouble']}"
    return ", durable" if row["durable"] else ""


async def _cache(
    url: str | None,
    settings: CacheSettings,
    name: str | None,
    host: str | None,
    keep: tuple[str, ...],
    seconds: float | None,
    as_json: bool,
) -> None:
    from sievenet.access.login import load_login
    from sievenet.cachehost import CacheHost
    from sievenet.daemon.collector import collecting_seldom

    file = os.environ.get("SIEVENET_LOGIN")
    stop = stop_signal()
    login = None if file is None else load_login(file)
    async with CacheHost(url, settings, name=name, host=host, keep=keep, login=login, timeout=10.0) as found:
        with collecting_seldom():
            if as_json:
                show_json({"cache": found.name, "host": found.host})
            else:
                click.echo(f"cache {found.name} serves at {found.host}")
            waiting = asyncio.ensure_future(stop.wait())
            await asyncio.wait((waiting,), timeout=seconds)
            waiting.cancel()
        _sum_up(found)


def _sum_up(found: CacheHost) -> None:
    done = found.statistics()
    click.echo(f"{done.received} events received, {done.sent} sent, {done.dropped} dropped", err=True)


def positions(topology: Topology, count: int, placed: bool, clients: Sequence[Mapping[str, Any]] = ()) -> list[str]:
    """Hosts for so many caches: the first ones, or those nearest to the best switches.

    Where ``clients`` are known from before, with publishers and subscribers among them, it is best for what they do.
    """
    hosts = topology.hosts
    if not placed:
        return [hosts[number % len(hosts)] for number in range(count)]
    from sievenet.cache.placement import Placement, observed_states, random_states

    placement = Placement(topology)
    try:
        states = observed_states(topology, clients)
    except InvalidInput:
        states = random_states(len(hosts), _STATES, seed=1)
    ranked = placement.ranked(placement.scores(states))
    return placement.hosts([switch for switch, _ in ranked], count)


@asynccontextmanager
async def caches(daemon: Daemon, hosts: list[str]) -> AsyncIterator[list[CacheHost]]:
    """Caches in a daemon's process, at these hosts: those of `sievenet up --caches`."""
    from sievenet.cachehost import CacheHost

    async with AsyncExitStack() as stack:
        found = []
        for number, host in enumerate(hosts, 1):
            name, login = daemon.keeper.own_login(f"cache-{number}")
            found.append(await stack.enter_async_context(CacheHost(daemon.url, name=name, host=host, login=login)))
        yield found
