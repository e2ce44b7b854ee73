"""`sievenet up`: run a fabric and watch it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from sievenet.cli.fabric import duration, run
from sievenet.cli.logs import configure, log_arguments
from sievenet.cli.output import json_option
from sievenet.cli.screen import watch
from sievenet.cli.settings import configured
from sievenet.cli.shutdown import stop_signal, unless_stopped
from sievenet.cli.startup import load_first
from sievenet.cli.tap import tap_options, tapping
from sievenet.errors import Unavailable

if TYPE_CHECKING:
    from sievenet.config import Config
    from sievenet.daemon.daemon import Daemon
    from sievenet.tap import Taps
    from sievenet.web.server import WebServer

__all__ = ["up"]

#: Where the page is if nothing else is said.
_WEB: Final = "127.0.0.1:7480"


@click.command()
@click.option("--config", "config_file", type=click.Path(dir_okay=False), help="A TOML file with settings.")
@click.option(
    "--topology",
    "--topo",
    "topology",
    metavar="SHAPE|FILE",
    help="The network, such as testbed, fattree,k=4 or a JSON or GraphML file.",
)
@click.option(
    "--dataplane",
    type=click.Choice(["embedded", "ovs", "kernel", "openflow"]),
    help="What forwards: software switches in this process, Open vSwitch or the Linux kernel on this machine (root), "
    "or OpenFlow switches that connect to us. Default: embedded.",
)
@click.option(
    "--listen",
    metavar="ADDRESS:PORT",
    help="Where switches connect (openflow; default 127.0.0.1:6653) or their agents (kernel: `sievenet switch`).",
)
@click.option(
    "--interfaces",
    metavar="DEVICES",
    help="With kernel, this machine is one switch of the network: its ports, such as eth1,eth2.",
)
@click.option("--switch", "own", metavar="NAME", help="With --interfaces, which switch this is. Default: the first.")
@click.option("--switches", type=click.IntRange(min=1), help="With openflow, how many switches to wait for. Default: 1")
@click.option(
    "--name", "network", metavar="NAME", help="With ovs or kernel, what its namespaces are called. Default: sievenet."
)
@click.option("--schema", "schemas", metavar="NAME|FILE", multiple=True, help="Register this schema; may be repeated.")
@click.option("--sample", "sample_name", metavar="NAME", help="Run a sample workload: stock.")
@click.option(
    "--rate", type=click.FloatRange(min=0.1), default=200.0, show_default=True, help="The sample's events per second."
)
@click.option(
    "--tune",
    type=click.Choice(["off", "suggest", "auto"]),
    help="Look for better index plans by itself, and tell of them or change to them. Default: auto with --sample, "
    "else off.",
)
@tap_options
@click.option(
    "--caches",
    type=click.IntRange(0, 64),
    default=0,
    show_default=True,
    help="Event caches in this process, for subscribers with --max-rate or --since.",
)
@click.option(
    "--place",
    type=click.Choice(["first", "auto"]),
    default="first",
    show_default=True,
    help="Where caches go: to the first hosts, or (auto) near the switches where they cost the network least.",
)
@click.option("--state", type=click.Path(file_okay=False), help="Directory for the journal. Default: nothing is kept.")
@click.option("--port", type=click.IntRange(0, 65535), help="TCP port for clients, 0 for a free one. Default: 7400.")
@click.option(
    "--data-port", type=click.IntRange(0, 65535), help="UDP port for events, 0 for a free one. Default: 7401."
)
@click.option("--host", metavar="ADDRESS", help="Address for clients and events. Default: 127.0.0.1.")
@click.option(
    "--access",
    type=click.Path(file_okay=False),
    metavar="FOLDER",
    help="Let in members only, with TLS (`sievenet keys authority` makes the folder).",
)
@click.option(
    "--web",
    metavar="[ADDRESS:PORT]",
    is_flag=False,
    flag_value=_WEB,
    help=f"Serve the live page, HTTP for publishers and subscribers, and metrics (extra `web`). Default: {_WEB}.",
)
@click.option(
    "--matchers",
    "count",
    type=click.IntRange(0, 4096),
    default=0,
    help="Run so many exact matchers in this process, at different switches.",
)
@click.option(
    "--latency-bound",
    "bound",
    metavar="TIME|none",
    callback=lambda ctx, param, value: inf if value == "none" else duration(ctx, param, value),
    help="Mean latency that matchers may lead to: 0 uses none, `none` filters all exactly. Default: 0.",
)
@click.option("--audit", type=click.Path(dir_okay=False), help="The audit log. Default: audit.jsonl in --state.")
@click.option("--insecure", is_flag=True, default=None, help="Let others connect though nobody has to be known.")
@click.option(
    "--capacity", type=click.IntRange(min=1), help="Entries that a switch holds. Default: as many as it says, or any."
)
@click.option(
    "--kind",
    type=click.Choice(["dz", "cells"]),
    help="What filters become in the plan of a new category: prefixes, or entries with masks. Default: dz.",
)
@click.option(
    "--control",
    type=click.Choice(["one", "sea", "sna", "sna-lb"]),
    help="Who works out flow changes: this process (one; sea: so many partitions at a time), or configurators, each a "
    "process (sna; sna-lb: work moves to where there is less). Default: one.",
)
@click.option(
    "--configurators",
    type=click.IntRange(1, 1024),
    help="How many processes, or with sea partitions at a time. Default: as many as there are cores; with --nats none "
    "but those that come.",
)
@click.option(
    "--nats",
    metavar="URL",
    help="Keep the journal in NATS JetStream, let configurators come from other machines, and take turns with other "
    "daemons of the same fabric (extra `nats`).",
)
@click.option("--lease", metavar="TIME", callback=duration, help="How long a silent client is kept. Default: 30s.")
@click.option("--for", "seconds", metavar="TIME", callback=duration, help="Stop after this time. Default: at Ctrl-C.")
@click.option("--every", metavar="TIME", callback=duration, default="1s", show_default=True, help="How often to look.")
@log_arguments
@json_option
@click.pass_context
def up(ctx: click.Context, /, **flags: Any) -> None:
    """Run a fabric.

    That is a network of switches, the control plane that fills their tables, and ports for clients. In a terminal, a
    table shows rates, latency, false positives and flows; elsewhere a line per look is printed, or with --json an
    object per line. --tap is the folder for a sample of what is published: the sample workload keeps it there, other
    publishers do with `sievenet pub --tap`; `sievenet pipeline ingest` and `watch` read it, and what is unnecessary per
    link and per subscription is counted on its newest events.

    \b
    Examples:
      $ sievenet up --sample stock --for 1s --port 0 --data-port 0
      $ sievenet up --sample stock --tune suggest --for 1s --port 0 --data-port 0
      $ sievenet up --sample stock --tap tap --for 1s --port 0 --data-port 0
      $ sievenet up --sample stock --web 127.0.0.1:0 --for 1s --port 0 --data-port 0
      $ sievenet up --log json --log-level info --log-file up.log --for 500ms --port 0 --data-port 0
      $ sievenet up --sample stock --matchers 2 --latency-bound 5ms --for 1s --port 0 --data-port 0
      $ sievenet up --sample stock --capacity 20 --for 1s --port 0 --data-port 0
      $ sievenet up --sample stock --kind cells --tune off --for 1s --port 0 --data-port 0
      $ sievenet up --topology line,switches=3 --for 500ms --port 0 --data-port 0 --json
      $ sievenet up --sample stock --caches 1 --place auto --for 1s --port 0 --data-port 0
      $ sievenet up --sample stock --control sna --configurators 2 --for 4s --port 0 --data-port 0
      $ sievenet up --control sna --nats nats://127.0.0.1:4222  # needs a NATS server
      $ sievenet up --dataplane ovs --topo testbed  # needs root and Ctrl-C to end
      $ sievenet up --access access --host 10.0.0.1  # needs an access folder and Ctrl-C to end
      $ sievenet up --dataplane openflow --listen 0.0.0.0:6653 --switches 4 --insecure  # needs switches
      $ sievenet up --topology fattree,k=4 --schema stock --state ./fabric  # needs Ctrl-C to end
    """
    config = configured(ctx)
    said, sample = config.run, config.run.sample
    if config.log != type(config.log)():
        configure(config.log.form, config.log.level, config.log.file)
    if config.kernel.interfaces is not None and config.dataplane != "kernel":
        raise click.UsageError("--interfaces makes this machine a switch in its kernel: give --dataplane kernel too")
    if ctx.params["own"] is not None and config.kernel.interfaces is None:
        raise click.UsageError("--switch says which switch this machine is: give its --interfaces too")
    if ctx.params["listen"] is not None and config.dataplane not in ("kernel", "openflow"):
        raise click.UsageError("--listen is where switches or agents connect: give --dataplane openflow or kernel")
    if sample is not None and config.access.folder is not None:
        raise click.UsageError("--sample cannot be used with --access: the sample's clients have no logins")
    if ctx.params["configurators"] is not None and config.control.mode == "one":
        raise click.UsageError("--configurators is for --control sea, sna or sna-lb: with one there are none")
    taps = None if config.tap is None or sample is None else tapping(config.tap, said.tap_factor)
    run(_up(config, taps))
    if taps is not None:
        lost = f", {taps.lost} of them lost" if taps.lost else ""
        click.echo(f"{taps.kept} events kept in {config.tap}{lost}", err=True)


async def _up(config: Config, taps: Taps | None) -> None:
    from sievenet.cli.matcher import matchers, spread
    from sievenet.control import warmup
    from sievenet.daemon.collector import collecting_seldom
    from sievenet.daemon.daemon import Daemon
    from sievenet.workload.samples import load_schema

    sample_name, as_json = config.run.sample, config.run.json
    web = _web(config)
    limited = config.data.capacity or config.control.capacity or config.control.capacities
    await load_first(partial(warmup.load, *([warmup.LIMITS] if limited else [])))
    stop = stop_signal()
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(collecting_seldom())
        daemon = await unless_stopped(stop, stack.enter_async_context(Daemon(config)))
        if daemon is None:
            return  # it had not begun, or waited for another one that leads
        daemon.on_deposed = stop.set
        if daemon.deposed is not None:
            stop.set()
        if sample_name is not None:
            await daemon.control.register_schema(load_schema(sample_name))
        await stack.enter_async_context(matchers(daemon, spread(daemon.plane.topology, config.run.matchers)))
        welcome = [*await _serve(stack, daemon, web), *_welcome(daemon, sample_name)]
        if as_json or not sys.stdout.isatty():
            click.echo("\n".join(welcome), err=as_json)
        if config.run.caches:
            from sievenet.cli import cache

            topology, run = daemon.plane.topology, config.run
            # What the journal knows of clients; how much each publishes it does not.
            clients = [
                {"host": each.host, "published": len(each.advertisements), "subscriptions": len(each.subscriptions)}
                for each in daemon.control.members()
            ]
            chosen = await asyncio.to_thread(cache.positions, topology, run.caches, run.place == "auto", clients)
            await stack.enter_async_context(cache.caches(daemon, chosen))
            at = ", ".join(f"{host} ({topology.attachment(host).switch})" for host in chosen)
            welcome.append(f"caches at {at}")
            if as_json or not sys.stdout.isatty():
                click.echo(welcome[-1], err=as_json)
        if sample_name is not None:
            from sievenet.cli.sample import sample

            hosts = daemon.plane.topology.hosts
            await stack.enter_async_context(sample(sample_name, daemon.url, config.run.rate, hosts, taps))
        await watch(daemon.answers.status, welcome, stop, config.run.seconds, config.run.every, as_json)
        if daemon.deposed is not None:
            raise Unavailable(f"Another daemon leads now, this one ends: {daemon.deposed}")


def _web(config: Config) -> type[WebServer] | None:
    """What serves the page, if that is wanted; refused before anything begins if it cannot be."""
    if config.web.listen is None:
        return None
    try:
        from sievenet.web.server import WebServer
    except ImportError as error:
        raise Unavailable(f"--web needs {error.name}: pip install 'sievenet[web]'") from None
    WebServer.check(config)
    return WebServer


async def _serve(stack: contextlib.AsyncExitStack, daemon: Daemon, web: type[WebServer] | None) -> list[str]:
    """Serve the page, if that is wanted; where it is."""
    if web is None:
        return []
    server = await stack.enter_async_context(web(daemon))
    return [f"the page is at {server.url}"]


def _welcome(daemon: Daemon, sample_name: str | None) -> Iterator[str]:
    topology = daemon.plane.topology
    yield (
        f"fabric {daemon.shape} is up: {len(topology.switches)} switches, {len(topology.hosts)} hosts, "
        f"clients at {daemon.url}, "
        + (f"events at {daemon.plane.endpoint[1]}/udp" if daemon.plane.endpoint else "events by their content")
    )
    if not daemon.keeper.known:
        yield _who(daemon)
    if sample_name == "stock":
        command = _own_command()
        where = "" if daemon.url.endswith(":7400") else f" --url {daemon.url}"
        yield "a sample market publishes; try in another terminal:"
        yield f"  {command} sub{where} 'stock: price > 420'"
        yield f"  {command} pub{where} 'stock: symbol=IBM, price=421.5, volume=1200'"
        if daemon.config.tuning.mode == "auto":
            yield f"  {command} status{where} --clients"
            yield "watch the false positives: the network looks for a better index by itself"
        else:
            yield f"  {command} plan apply{where} stock  # fewer false positives"


def _who(daemon: Daemon) -> str:
    """What it means that nobody has to be known."""
    if not daemon.config.access.insecure:
        return "everybody on this machine is an operator here; others cannot connect (docs/howto/secure.md)"
    return "INSECURE: everybody who reaches it may connect and publish, and nothing is encrypted"


def _own_command() -> str:
    """How to call this program from the current folder: `sievenet` if the shell would find it."""
    own = Path(sys.argv[0]).resolve()
    found = shutil.which("sievenet")
    if found is not None and Path(found).resolve() == own:
        return "sievenet"
    beside = Path(sys.executable).parent / "sievenet"
    if beside.exists():
        return os.path.relpath(beside) if beside.is_relative_to(Path.cwd()) else str(beside)
    return f"{sys.executable} -m sievenet"
