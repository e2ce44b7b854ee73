"""`sievenet worker`: compute for a content router."""

from __future__ import annotations

import asyncio
import contextlib

import click

from sievenet.cli.fabric import duration, run
from sievenet.cli.output import json_option, show_json
from sievenet.cli.shutdown import stop_signal

__all__ = ["worker"]


@click.command()
@click.option(
    "--url",
    envvar="SIEVENET_URL",
    metavar="URL",
    default="sievenet+router://127.0.0.1:7500",
    show_default=True,
    help="The router.",
)
@click.option("--name", metavar="NAME", help="The worker's name at its router. Default: the router gives one.")
@click.option("--limit", metavar="N", default=100_000, show_default=True, help="Filters to keep for the router.")
@click.option("--for", "seconds", metavar="TIME", callback=duration, help="Stop after this time. Default: at Ctrl-C.")
@json_option
def worker(url: str, name: str | None, limit: int, seconds: float | None, as_json: bool) -> None:
    """Compute for a content router.

    A router that was started with --offload asks its willing clients how new filters relate to those of its table. Any
    client may be willing (`OverlayNode.volunteer`); this one does nothing else.

    \b
    Examples:
      $ sievenet worker --url sievenet+router://127.0.0.1:7500  # needs a running router
    """
    run(_work(url, name, limit, seconds, as_json))


async def _work(url: str, name: str | None, limit: int, seconds: float | None, as_json: bool) -> None:
    from sievenet.client.overlay.node import OverlayNode

    stop = stop_signal()
    node = await OverlayNode(url, name=name).start()
    try:
        await node.volunteer(limit)
        click.echo(f"worker {node.name} computes for {node.host}", err=as_json)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), seconds)
        found = node.helped()
        if as_json:
            show_json(found)
        else:
            click.echo(f"{found['answered']} requests answered, {found['left_out']} left out")
    finally:
        await node.close()
