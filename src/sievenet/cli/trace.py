"""`sievenet trace`: an event's way through the network, without sending it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from sievenet.cli.fabric import asked, url_option
from sievenet.cli.output import json_option, marked, show_json
from sievenet.errors import Unavailable

__all__ = ["trace", "trace_lines"]


@click.command()
@click.argument("event")
@click.option("--from", "origin", metavar="CLIENT|HOST", help="Where it comes in. Default: at whoever advertises it.")
@click.option(
    "--otlp",
    metavar="URL",
    help="Send its way to a collector of OpenTelemetry too, such as http://localhost:4318/v1/traces (extra `otel`).",
)
@url_option
@json_option
def trace(event: str, origin: str | None, otlp: str | None, url: str | None, as_json: bool) -> None:
    """Follow an event through the network.

    The event is not sent. Shows which switch it passes, which flow decides there, which ports it leaves by, who gets
    it, and who does not and why. EVENT begins with the schema's name.

    \b
    Examples:
      $ sievenet trace 'stock: symbol=IBM, price=421.5, volume=1200' --from h1  # needs a running fabric
      $ sievenet trace 'stock: symbol=GE, price=7, volume=1' --otlp http://localhost:4318/v1/traces  # needs a collector
    """
    found = asked(url, "trace", f"from {origin}: {event}" if origin else event)
    if otlp is not None:
        click.echo(f"trace {_exported(found, otlp)} is at {otlp}", err=True)
    if as_json:
        show_json(found)
    else:
        for line in trace_lines(found):
            click.echo(marked(line))


def _exported(found: dict[str, Any], otlp: str) -> str:
    try:
        from sievenet.web.spans import export
    except ImportError as error:
        raise Unavailable(f"--otlp needs {error.name}: pip install 'sievenet[otel]'") from None
    return export(found, otlp)


def trace_lines(found: dict[str, Any]) -> Iterator[str]:
    """The answer for people."""
    yield f"{found['event']}"
    yield f"  comes in from {found['from']}, as {', '.join(found['codes']) or 'nothing: no filter can want it'}"
    for hop in found["hops"]:
        pad = "  " * (hop["depth"] + 1)
        yield f"{pad}[{hop['switch']}] in by port {hop['in_port']}"
        if not hop["flows"]:
            yield f"{pad}  no flow matches: dropped"
        for flow in hop["flows"]:
            yield f"{pad}  flow {flow}"
        for out in hop["out"]:
            stopped = f" ({out['stopped']})" if out["stopped"] else ""
            yield f"{pad}  out by port {out['port']} to {out['to'] or 'nobody'}{stopped}"
    for name in found.get("matchers", ()):
        yield f"→ {name} matches it exactly, and sends it to those who want it"
    for each in found["delivered"]:
        mark = "✓" if each["reached"] else "✗ not reached:"
        way = " from the matcher" if each.get("by_matcher") else ""
        yield f"{mark} {each['client']} gets it{way}: {'; '.join(each['subscriptions'])}"
    for client in found["false_positives"]:
        yield f"✗ {client} receives the packet and filters it out: a false positive"
    for each in found["not_wanted"]:
        yield f"✗ {each['client']} does not want it: {each['subscription']}"
        for line in each["why"].splitlines():
            yield f"    {line}"
    if found["not_shown"]:
        yield f"… and {found['not_shown']:,} more subscriptions that do not want it"
