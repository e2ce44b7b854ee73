"""`sievenet router`: run a content router, or ask a running one."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from sievenet.cli.fabric import asked, duration, login_option, run
from sievenet.cli.logs import log_options
from sievenet.cli.output import json_option, plain, show_json
from sievenet.cli.shutdown import stop_signal
from sievenet.cli.startup import load_first
from sievenet.client.url import split_url
from sievenet.errors import Unavailable, shortened

if TYPE_CHECKING:
    from sievenet.access.doorkeeper import Doorkeeper
    from sievenet.routers.limits import Limits
    from sievenet.routers.offload.jobs import Offloading
    from sievenet.routers.routing import Settings
    from sievenet.routers.server import RouterServer
    from sievenet.web.monitor import Monitor

__all__ = ["router"]

_FORESTS = ("plain", "multi", "balanced", "lean")
#: Options that only some schemes heed.
_ONLY = {
    "bound": ("merging",),
    "width": ("bdrp", "edge"),
    "height": ("edge",),
    "ask_every": ("cbcb",),
    "advertisements": ("simple", "identity", "covering", "merging", "edge"),
}
_SCHEMES = ("simple", "identity", "covering", "merging", "cbcb", "bdrp", "edge")


@click.command()
@click.option("--name", metavar="NAME", help="The router's name in the overlay. Default: from where it listens.")
@click.option("--listen", metavar="HOST:PORT", default="127.0.0.1:7500", show_default=True, help="Where to listen.")
@click.option("--neighbours", metavar="HOST:PORT,…", default="", help="Routers to keep a connection to.")
@click.option("--scheme", type=click.Choice(_SCHEMES), default="covering", show_default=True, help="How to route.")
@click.option("--advertisements", is_flag=True, help="Send subscriptions only towards overlapping advertisements.")
@click.option("--bound", type=click.FloatRange(0, 1, max_open=True), default=0.0, help="How imperfect mergers may be.")
@click.option("--width", type=int, default=0, help="Bits of Bloom filters (bdrp, edge); 0: what is usual.")
@click.option("--height", type=int, default=0, help="Levels of a bftree, which divide the bits (edge); 0: an sbstree.")
@click.option(
    "--ask-every", metavar="TIME", callback=duration, help="Send a sender request so often (cbcb). Default: never."
)
@click.option(
    "--forest",
    type=click.Choice(_FORESTS),
    default="plain",
    show_default=True,
    help="Forest of local filters: plain; multi drops redundant filters of a subscription that it meets; balanced "
    "gathers them, too; lean drops all of them.",
)
@click.option(
    "--max-hops", type=click.IntRange(1, 255), default=64, show_default=True, help="Drop events after so many hops."
)
@click.option(
    "--lease", metavar="TIME", callback=duration, default="15s", show_default=True, help="Life of soft state."
)
@click.option(
    "--schema", "schemas", metavar="NAME|FILE", multiple=True, help="Make this schema known; may be repeated."
)
@click.option(
    "--offload",
    metavar="rto|ff[,NAME=VALUE…]",
    help="Let willing clients help with the table: rto,batch=10,wait=0.05,vector=100,copies=3,timeout=1,check=true,"
    "audit=0.01,mode=auto,secret=TEXT or ff,size=256.",
)
@click.option(
    "--gateway",
    "fabrics",
    metavar="URL",
    multiple=True,
    help="Join this fabric (sievenet://HOST:PORT): each side gets what it wants of the other; may be repeated.",
)
@click.option("--tls-cert", type=click.Path(exists=True, dir_okay=False), help="Certificate (PEM): speak TLS.")
@click.option("--tls-key", type=click.Path(exists=True, dir_okay=False), help="Its private key (PEM).")
@click.option(
    "--tls-ca",
    type=click.Path(exists=True, dir_okay=False),
    help="Who signs the certificates of neighbours (PEM); each has its router's name.",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Let in anybody who reaches the port: without TLS to do anything, with it as a client.",
)
@click.option(
    "--access",
    type=click.Path(file_okay=False),
    metavar="FOLDER",
    help="Let in members only, with TLS (`sievenet keys`); the router is the member --name.",
)
@click.option("--audit", type=click.Path(dir_okay=False), help="With --access, the audit log. Default: none.")
@click.option("--max-connections", type=click.IntRange(1), default=4096, show_default=True, help="Connections in all.")
@click.option(
    "--max-per-address", type=click.IntRange(1), default=1024, show_default=True, help="Connections from one address."
)
@click.option(
    "--metrics",
    metavar="ADDRESS:PORT",
    help="Serve /metrics for Prometheus, /healthz and /readyz there (extra `web`). Default: nowhere.",
)
@click.option("--for", "seconds", metavar="TIME", callback=duration, help="Stop after this time. Default: at Ctrl-C.")
@click.option("--explain", "wanted", metavar="FILTER", help="Ask the router at --url where this filter sits, and why.")
@click.option("--status", is_flag=True, help="Ask the router at --url what it does.")
@login_option
@click.option("--url", envvar="SIEVENET_URL", metavar="URL", help="A running router. Default: the one at --listen.")
@log_options
@json_option
def router(
    name: str | None,
    listen: str,
    neighbours: str,
    scheme: str,
    advertisements: bool,
    bound: float,
    width: int,
    height: int,
    ask_every: float | None,
    forest: str,
    max_hops: int,
    lease: float,
    schemas: tuple[str, ...],
    offload: str | None,
    fabrics: tuple[str, ...],
    tls_cert: str | None,
    tls_key: str | None,
    tls_ca: str | None,
    insecure: bool,
    access: str | None,
    audit: str | None,
    max_connections: int,
    max_per_address: int,
    metrics: str | None,
    seconds: float | None,
    wanted: str | None,
    status: bool,
    url: str | None,
    as_json: bool,
) -> None:
    """Run a content router, or ask a running one.

    Routers form an overlay of any shape; all of them must have the same scheme. Clients connect with
    sievenet+router://HOST:PORT.

    \b
    Examples:
      $ sievenet router --listen 127.0.0.1:0 --schema stock --for 300ms
      $ sievenet router --listen 127.0.0.1:0 --metrics 127.0.0.1:0 --log json --for 300ms
      $ sievenet router --name b --listen :7501 --neighbours 127.0.0.1:7500  # needs Ctrl-C to end
      $ sievenet router --listen 127.0.0.1:0 --scheme cbcb --ask-every 5s --for 300ms
      $ sievenet router --listen 127.0.0.1:0 --scheme edge --width 512 --height 8 --for 300ms
      $ sievenet router --listen 127.0.0.1:0 --scheme merging --bound 0.2 --forest lean --for 300ms
      $ sievenet router --listen 127.0.0.1:0 --offload rto,batch=5,copies=3,check=true --for 300ms
      $ sievenet router --gateway sievenet://127.0.0.1:7400 --neighbours router.example:7500  # needs a running fabric
      $ sievenet router --explain 'stock: price > 420'  # needs a running router
      $ sievenet router --status --url sievenet+router://127.0.0.1:7501  # needs a running router
    """
    host, port = _address(listen)
    if wanted is not None or status:
        where = url or f"sievenet+router://{host or '127.0.0.1'}:{port}"
        _ask(where, wanted, as_json)
        return
    from sievenet.access.doorkeeper import check_exposure
    from sievenet.routers.limits import Limits
    from sievenet.routers.offload.jobs import parse_offloading
    from sievenet.routers.routing import Settings
    from sievenet.session.tls import contexts

    offloading = None if offload is None else parse_offloading(offload)
    given = {"bound": bound, "width": width, "height": height, "ask_every": ask_every, "advertisements": advertisements}
    _heeded(scheme, given)
    settings = Settings(
        scheme,  # type: ignore[arg-type]
        advertisements,
        bound,
        lease,
        max_hops,
        width=width,
        height=height,
        ask_every=ask_every or 0.0,
        forest=forest,  # type: ignore[arg-type]
    )
    peers = [_address(each) for each in neighbours.split(",") if each.strip()]
    tls = contexts(tls_cert, tls_key, tls_ca, anybody=insecure)
    if access is not None and (tls_cert is not None or name is None):
        raise click.UsageError("--access has TLS of its own, and needs --name, which is the router's in the folder")
    instead, risk = "--tls-cert, --tls-key and --tls-ca", "publish, subscribe and be a neighbour"
    check_exposure(host, tls_ca is not None or access is not None, insecure, "--listen", instead, risk)
    keeper = _keeper(access, name, audit)
    limits = Limits(connections=max_connections, per_address=max_per_address)
    server = partial(_make, name, host, port, peers, settings, tls, offloading, limits, keeper)
    run(_serve(server, schemas, fabrics, seconds, partial(_monitor, metrics, keeper, insecure)))


def _heeded(scheme: str, given: dict[str, Any]) -> None:
    """Refuse options that the scheme would ignore."""
    for name, value in given.items():
        if value and scheme not in _ONLY[name]:
            option = "--" + name.replace("_", "-")
            raise click.UsageError(f"{option} is for --scheme {' or '.join(_ONLY[name])}, got --scheme {scheme}")


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    found = split_url(f"sievenet://{host or '127.0.0.1'}:{port}", "sievenet", -1)
    if found is None or found[1] < 0:
        raise click.BadParameter(f"Expected HOST:PORT, got {shortened(text)}")
    return found[:2]


def _make(
    name: str | None,
    host: str,
    port: int,
    peers: list[tuple[str, int]],
    settings: Settings,
    tls: tuple[ssl.SSLContext | None, ssl.SSLContext | None],
    offloading: Offloading | None,
    limits: Limits,
    keeper: Doorkeeper | None,
) -> RouterServer:
    from sievenet.routers.server import RouterServer

    own = name or f"router-{port}" if port else name or "router"
    return RouterServer(
        own,
        settings,
        host=host,
        port=port,
        neighbours=peers,
        tls=tls[0],
        dial_tls=tls[1],
        offloading=offloading,
        limits=limits,
        keeper=keeper,
    )


def _keeper(access: str | None, name: str | None, audit: str | None) -> Doorkeeper | None:
    if access is None:
        return None
    from sievenet.access.audit import AuditLog
    from sievenet.access.doorkeeper import Doorkeeper
    from sievenet.access.folder import Folder

    return Doorkeeper(Folder(access), name or "", None if audit is None else AuditLog.at(audit))


async def _serve(
    make: Callable[[], RouterServer],
    schemas: tuple[str, ...],
    fabrics: tuple[str, ...],
    seconds: float | None,
    monitor: Callable[[RouterServer], Monitor | None],
) -> None:
    from sievenet.client import connect
    from sievenet.gateway.gateway import Gateway
    from sievenet.matcher import warmup
    from sievenet.workload.samples import load_schema

    await load_first(warmup.load)
    stop = stop_signal()
    server = make()
    for each in schemas:
        server.router.register(load_schema(each))
    async with server, contextlib.AsyncExitStack() as stack:
        for fabric in fabrics:
            node = await stack.enter_async_context(connect(fabric))
            await stack.enter_async_context(Gateway(node, server))
        watched = monitor(server)
        if watched is not None:
            await stack.enter_async_context(watched)
            click.echo(f"metrics at {watched.url}metrics")
        click.echo(f"router {server.router.name} ({server.router.settings.scheme}) is up: {server.url}")
        if not server.listener.secure:
            click.echo(
                "without TLS nobody is checked: whoever reaches the port may be a client or a neighbour", err=True
            )
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), seconds)
        if server.dropped:
            click.echo(f"{server.dropped} events were dropped: a connection was too slow, or lost", err=True)


def _monitor(listen: str | None, keeper: Doorkeeper | None, insecure: bool, server: RouterServer) -> Monitor | None:
    """Serves the router's metrics, if that is wanted."""
    if listen is None:
        return None
    try:
        from sievenet.web.metrics import router_metrics
        from sievenet.web.monitor import Monitor
    except ImportError as error:
        raise Unavailable(f"--metrics needs {error.name}: pip install 'sievenet[web]'") from None
    return Monitor(
        listen,
        lambda: router_metrics(server.status()),
        ready=lambda: bool(server.status()["ready"]),
        keeper=keeper,
        insecure=insecure,
    )


def _ask(url: str, wanted: str | None, as_json: bool) -> None:
    found = asked(url, "status") if wanted is None else asked(url, "explain", wanted)
    if as_json:
        show_json(found)
    elif wanted is None:
        for key, value in found.items():
            click.echo(f"{key:16} {plain(value)}")
    else:
        for each in found:
            click.echo("\n".join(_explained(each)))


def _explained(found: dict[str, Any]) -> list[str]:
    lines = [f"{found['filter']}  ({found['scheme']}, {found['bytes']} bytes)"]
    place = "in the table" if found.get("present") else "not in the table"
    if "level" in found:
        place += f", level {found['level']}" + (", a root filter" if found["root"] else "")
    lines.append(f"  {place}; local subscribers: {plain(found['clients'])}")
    names = ("interfaces", "predecessors", "successors")
    lines += [f"  {name}: {'; '.join(found[name])}" for name in names if found.get(name)]
    lines += [f"  to {neighbour}: {verdict}" for neighbour, verdict in found["neighbours"].items()]
    return lines
