"""`sievenet sub`: subscribe, and print what comes."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from base64 import b64encode
from collections import Counter
from typing import TYPE_CHECKING, Any

import click
import msgspec

from sievenet.cli.app import Refusal
from sievenet.cli.fabric import duration, run, seconds_text, url_option
from sievenet.cli.output import json_option
from sievenet.cli.startup import told_if_long
from sievenet.cli.transport import gap_json, received_text, subscriber_options, subscribing

if TYPE_CHECKING:
    from sievenet.client import Delivery, Feed, Node
    from sievenet.transport import Gap, ReceiverStatistics

__all__ = ["sub"]


def _rate(ctx: click.Context, param: click.Parameter, value: str | None) -> float | str | None:
    if value is None or value == "measured":
        return value
    try:
        return float(value)
    except ValueError:
        raise click.BadParameter(f"Expected events per second, or `measured`, got {value!r}", ctx, param) from None


def _since(ctx: click.Context, param: click.Parameter, value: str | None) -> float | tuple[int, ...] | None:
    """Seconds before now, or an event to begin behind."""
    if value is None or "/" not in value:
        return duration(ctx, param, value)
    found = re.fullmatch(r"([0-9a-f]{1,16})/([0-9a-f]{1,16})/(\d{1,18})", value.strip().lower())
    if found is None:
        expected = "PUBLISHER/INCARNATION/NUMBER as `sub --json` prints them"
        raise click.BadParameter(f"Expected a time such as 10m, or {expected}, got {value!r}", ctx, param)
    return int(found[1], 16), int(found[2], 16), int(found[3])


@click.command()
@click.argument("filters", metavar="FILTER...", nargs=-1, required=True)
@click.option("-n", "--count", type=click.IntRange(min=1), help="End after so many events.")
@click.option("--for", "seconds", callback=duration, metavar="TIME", help="End after this time, such as 10s.")
@click.option("--name", help="The name of this subscriber in the fabric.")
@click.option("--host", help="The host to attach to. Default: the least loaded.")
@click.option("--schema", "schema_name", metavar="NAME|FILE", help="Register this schema first.")
@click.option("--queue", type=click.IntRange(min=1), default=10_000, show_default=True, help="Events that may wait.")
@click.option(
    "--when-full",
    type=click.Choice(["wait", "drop_oldest", "drop_newest"]),
    default="drop_oldest",
    show_default=True,
    help="What happens to events when that many wait.",
)
@click.option(
    "--max-rate",
    metavar="N|measured",
    callback=_rate,
    help="Events per second that are enough; while more come, a cache feeds this subscriber.",
)
@click.option(
    "--on-full",
    type=click.Choice(["end", "oldest", "newest"]),
    default="end",
    show_default=True,
    help="With --max-rate: what happens when the cache is full. The subscription ends, or events are dropped.",
)
@click.option(
    "--since",
    callback=_since,
    metavar="TIME|PUBLISHER/INCARNATION/NUMBER",
    help="Begin with what came in this time before now, or behind that event (as --json prints it), from a cache.",
)
@click.option("--payload", "payloads", is_flag=True, help="Print payloads too: in JSON as base64.")
@subscriber_options
@url_option
@json_option
def sub(
    filters: tuple[str, ...],
    count: int | None,
    seconds: float | None,
    name: str | None,
    host: str | None,
    schema_name: str | None,
    queue: int,
    when_full: Any,
    max_rate: Any,
    on_full: Any,
    since: float | tuple[int, ...] | None,
    payloads: bool,
    url: str | None,
    as_json: bool,
    **transport: Any,
) -> None:
    """Subscribe and print events as they come.

    FILTER begins with the schema's name; the name alone means everything. Several filters are several subscriptions.
    On exit, what was received goes to stderr: events, false positives, latency. With --order, --recover or
    --rate-control also what the transport did for them, for publishers that use it (`sievenet pub --transport`): events
    held back, lost, recovered, gone for good, and the rate. With --json that is the last line, and gaps are lines. What
    is still missing in the end is told as gaps; so is that a publisher fell silent, as a gap without an end. While
    there is no connection it says so and tries again; if there is none in the end, it fails.

    \b
    Examples:
      $ sievenet sub 'stock: price > 420'  # needs a running fabric
      $ sievenet sub 'stock: symbol = "IBM"' stock -n 5 --json  # needs a running fabric
      $ sievenet sub stock --order --recover --rate-control --for 10s  # needs a running fabric
      $ sievenet sub stock --recover --repair auto --for 10s  # needs a running fabric
      $ sievenet sub stock --max-rate 100 --on-full oldest  # needs a running fabric with a cache
      $ sievenet sub stock --since 30s -n 100  # needs a running fabric with a cache
      $ sievenet sub stock --since 1f3a09c455b10e27/00000000a81b2c3d/41  # needs a running fabric with a cache
    """
    asked = subscribing(transport)
    if max_rate is None and since is None and on_full != "end":
        raise click.UsageError(
            f"--on-full {on_full} says what a full cache does: expected --max-rate or --since with it"
        )
    if max_rate is not None or since is not None:
        asked |= {"max_rate": max_rate, "on_full": on_full, "since": since}
    run(_sub(filters, count, seconds, name, host, schema_name, queue, when_full, payloads, url, as_json, asked))


async def _sub(
    filters: tuple[str, ...],
    count: int | None,
    seconds: float | None,
    name: str | None,
    host: str | None,
    schema_name: str | None,
    queue: int,
    when_full: Any,
    payloads: bool,
    url: str | None,
    as_json: bool,
    transport: dict[str, Any],
) -> None:
    from sievenet.client.connector import connect

    def gone(gap: Gap) -> None:
        click.echo(msgspec.json.encode(gap_json(gap)).decode() if as_json else str(gap), err=not as_json)

    # The past is counted from here, however long connecting takes.
    began, since = time.monotonic(), transport.get("since")
    left = [count]
    printed: Counter[Feed] = Counter()
    feeds: list[Feed] = []
    readers: list[asyncio.Task[None]] = []
    try:
        async with connect(url, name=name, host=host, timeout=10.0) as node:
            if schema_name is not None:
                from sievenet.workload.samples import load_schema

                await node.schema(load_schema(schema_name))
            options: dict[str, Any] = {**transport, "on_gap": gone} if transport else {}
            with told_if_long("subscribing; the first time, the inner loops are loaded or compiled …"):
                for each in filters:
                    if isinstance(since, float):
                        options["since"] = since + time.monotonic() - began
                    feeds.append(await node.subscribe(each, queue=queue, when_full=when_full, **options))
            for feed in feeds:
                click.echo(f"{node.name} at {node.host} subscribed to {feed}", err=True)
            readers += [asyncio.create_task(_print(feed, left, printed, as_json, payloads)) for feed in feeds]
            try:
                await asyncio.wait(readers, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                for reader in readers:
                    if reader.done():
                        reader.result()
                state = node.statistics()
                if not state.connected and not state.alone and not any(reader.done() for reader in readers):
                    raise Refusal("There was no connection in the end: what was published since is not here")
            finally:
                seen = [feed.statistics().transport for feed in feeds]
    finally:
        # The node is closed: readers print what was held back and end, and gaps are told.
        await asyncio.gather(*readers, return_exceptions=True)
        if readers:
            _sum_up(node, feeds, printed, seen, as_json)


async def _print(feed: Feed, left: list[int | None], printed: Counter[Feed], as_json: bool, payloads: bool) -> None:
    async for delivery in feed.deliveries():
        if left[0] is not None:
            if left[0] <= 0:
                return
            left[0] -= 1
        printed[feed] += 1
        try:
            click.echo(_json(feed, delivery, payloads) if as_json else _text(delivery, payloads))
        except BrokenPipeError:
            # The reader of our output (head, say) has had enough.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return
        if left[0] == 0:
            return


def _text(delivery: Delivery, payloads: bool) -> str:
    payload = delivery.event.payload
    if not payloads or not payload:
        return str(delivery.event)
    text = payload.decode("utf-8", "replace")
    return f"{delivery.event}  | {text if text.isprintable() else payload.hex(' ')}"


def _json(feed: Feed, delivery: Delivery, payloads: bool) -> str:
    marks: dict[str, Any] = {name: True for name in ("recovered", "late") if getattr(delivery, name)}
    if payloads:
        marks["payload_base64"] = b64encode(delivery.event.payload).decode()
    return msgspec.json.encode(
        {
            "schema": delivery.event.schema.name,
            "event": dict(delivery.event.items()),
            "payload": len(delivery.event.payload),
            "subscription": str(feed),
            "publisher": f"{delivery.publisher:016x}",
            "incarnation": f"{delivery.incarnation:016x}",
            "sequence": delivery.sequence,
            "latency": round(delivery.latency, 6),
            **marks,
        }
    ).decode()


def _sum_up(
    node: Node, feeds: list[Feed], printed: Counter[Feed], open_: list[ReceiverStatistics | None], as_json: bool
) -> None:
    received = node.statistics().received
    for feed, before in zip(feeds, open_, strict=True):
        seen = feed.statistics()
        click.echo(
            f"{printed[feed]} events of {feed}, {seen.dropped} dropped, "
            f"{seen.false_positives} false positives ({seen.false_positive_rate:.1%}), "
            f"latency p50 {seconds_text(seen.latency_p50)}, p99 {seconds_text(seen.latency_p99)}",
            err=True,
        )
        if (cached := seen.caches) is not None:
            served = f"{cached.cached} events from a cache, which took over {cached.activations} times"
            if cached.dropped:
                served += f"; it was full, and {cached.dropped} are lost"
            click.echo(f"  {served}", err=True)
            if as_json:
                click.echo(msgspec.json.encode({"subscription": str(feed), "caches": cached}).decode())
        if seen.transport is not None and before is not None:
            # A closed subscription has no rate any more: that of its end is shown.
            last = {"rate": before.rate, "allowed": before.allowed, "sessions": before.sessions}
            done = msgspec.structs.replace(seen.transport, **last)
            click.echo(f"  {received_text(done)}", err=True)
            if as_json:
                click.echo(msgspec.json.encode({"subscription": str(feed), "transport": done}).decode())
    if received.duplicates or received.malformed:
        click.echo(f"{received.duplicates} duplicates, {received.malformed} malformed", err=True)
