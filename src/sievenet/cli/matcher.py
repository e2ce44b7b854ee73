"""`sievenet matcher`: filter exactly inside the network."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Final

import click

from sievenet.cli.fabric import duration, run, url_option
from sievenet.cli.output import json_option, show_json
from sievenet.cli.shutdown import end_with_input, stop_signal
from sievenet.cli.startup import load_first

if TYPE_CHECKING:
    from sievenet.daemon.daemon import Daemon
    from sievenet.network.topology import Topology

__all__ = ["matcher", "matchers", "spread"]

#: Seconds until a worker that died is started again, at first and at most.
_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0

#: Why there are no workers where members are known, and what to do instead.
_NO_WORKERS: Final = (
    "--workers is for fabrics without members: with a login a component has exactly its member's name, so each process "
    "needs a member of its own. Make one for each (sievenet keys certificate FOLDER NAME --role component), and start "
    "`sievenet matcher --host HOST --login NAME.login` once for each: at the same host they share the work just so"
)


@click.command()
@url_option
@click.option("--name", metavar="NAME", help="The matcher's name. Default: its login's, or the daemon gives one.")
@click.option("--host", metavar="HOST", help="The host where it is attached. Default: the daemon chooses.")
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Processes, one per core. Not with --login.",
)
@click.option("--for", "seconds", metavar="TIME", callback=duration, help="Stop after this time. Default: at Ctrl-C.")
@click.option("--worker", is_flag=True, hidden=True, help="Ends when standard input does: one of --workers.")
@json_option
def matcher(
    url: str | None,
    name: str | None,
    host: str | None,
    workers: int,
    seconds: float | None,
    worker: bool,
    as_json: bool,
) -> None:
    """Filter exactly inside the network.

    A matcher is attached at a host and serves the switch of that host. When the fabric's latency bound allows it
    (`sievenet up --latency-bound`), some of that switch's traffic goes through the matcher, which compares each event
    with the exact subscriptions and sends it on to those who want it. `sievenet hybrid` shows what goes through it.

    With --workers there are several processes, NAME-1, NAME-2 and so on, which share the work and end together. In a
    fabric with members a matcher needs a component's login, and --workers is refused: start one matcher for each login,
    at the same host.

    \b
    Examples:
      $ sievenet matcher --host h1  # needs a running fabric
      $ sievenet matcher --host h1 --workers 4  # needs a running fabric
    """
    if worker:
        end_with_input()
    if workers > 1:
        if os.environ.get("SIEVENET_LOGIN"):
            raise click.UsageError(_NO_WORKERS)
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


class _Worker:
    """One of several processes, which is started again when it dies."""

    def __init__(self, name: str, options: Sequence[str], stop: asyncio.Event) -> None:
        self.name, self._options, self._stop = name, options, stop
        self._process: asyncio.subprocess.Process | None = None
        #: Whether it has served, and set when that is known.
        self.served = False
        self.known = asyncio.Event()

    async def run(self) -> int:
        """Until it is to stop, ends by itself, or could not even begin; the code that it ended with."""
        try:
            return await self._run()
        finally:
            self.known.set()

    async def _run(self) -> int:
        pause = _PAUSE
        while True:
            begun, served = time.monotonic(), False
            # Nothing is ever written to its input: it ends with this process, however this one ends.
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "sievenet", "matcher", "--worker", *self._options),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            if self._stop.is_set():
                self.end()
            assert self._process.stdout is not None
            async for line in self._process.stdout:
                click.echo(line, nl=False)
                if line.startswith(f"matcher {self.name} ".encode()):
                    served = self.served = True
                    self.known.set()
            code = await self._process.wait()
            if self._stop.is_set() and code == -signal.SIGTERM:
                return 0  # it was told so early that nothing had to be closed
            if not code or not served or self._stop.is_set():
                return code
            pause = _PAUSE if time.monotonic() - begun > _LONGEST_PAUSE else min(2 * pause, _LONGEST_PAUSE)
            click.echo(f"worker {self.name} ended with {code}: it is started again in {pause:g} s", err=True)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), pause)
                return 0

    def end(self) -> None:
        """Ask it to stop."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()


async def _workers(url: str | None, name: str, host: str | None, workers: int, seconds: float | None) -> None:
    stop = stop_signal()
    options: list[str] = []
    for option, value in (("--url", url), ("--host", host)):
        options += [option, value] if value is not None else []
    names = [f"{name}-{i}" for i in range(1, workers + 1)]
    some = [_Worker(each, [*options, "--name", each], stop) for each in names]
    ended = asyncio.create_task(_all(some, stop))
    waiting = asyncio.create_task(stop.wait())
    await asyncio.wait((waiting, ended), return_when=asyncio.FIRST_COMPLETED, timeout=seconds)
    stop.set()
    for each in some:
        each.end()
    codes = await ended
    waiting.cancel()
    if any(codes):
        if len(codes) > 1:
            click.echo(f"{sum(map(bool, codes))} of {workers} workers ended with an error", err=True)
        code = next(filter(None, codes))
        raise click.exceptions.Exit(code if code > 0 else 128 - code)


async def _all(some: Sequence[_Worker], stop: asyncio.Event) -> list[int]:
    """Run workers; the codes that they ended with.

    What keeps the first from serving, such as a login that is missing, would keep all of them, and is said once.
    """
    first = asyncio.create_task(some[0].run())
    await some[0].known.wait()
    others = some[1:] if some[0].served and not stop.is_set() else ()
    return await asyncio.gather(first, *(each.run() for each in others))


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
