"""`sievenet hybrid`: what is filtered exactly inside the network, and what that saves and costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click

from sievenet.cli.fabric import asked, seconds_text, url_option
from sievenet.cli.output import json_option, show_json

__all__ = ["hybrid"]

#: Intervals after which a figure is old.
_OLD: Final = 2


@click.command()
@url_option
@json_option
def hybrid(url: str | None, as_json: bool) -> None:
    """Show what goes through matchers.

    Which subspaces are diverted to which matchers, how many false positives that saves on links, how many deliveries
    take the longer way, and how the matchers are.

    \b
    Examples:
      $ sievenet hybrid  # needs a running fabric
      $ sievenet hybrid --json  # needs a running fabric
    """
    found = asked(url, "hybrid", "")
    if as_json:
        show_json(found)
        return
    for line in hybrid_lines(found):
        click.echo(line)


def hybrid_lines(found: dict[str, Any]) -> Iterator[str]:
    """The answer for people."""
    bound = found["latency_bound"]
    if bound == 0:
        yield "the network filters alone: its latency bound is 0 (sievenet up --latency-bound TIME)"
    else:
        most = "anything" if bound is None else seconds_text(bound)
        yield f"mean latency at most {most}, chosen by {found['method']}"
    yield (f"measured: {_latency(found, 'network')} through the network, {_latency(found, 'matcher')} through matchers")
    for name, worth in found["categories"].items():
        of = worth["of"]
        share = f" ({100 * worth['false_positives_saved'] / of:.0f} %)" if of else ""
        yield (
            f"{name}: {worth['false_positives_saved']:,.0f} of {of:,.0f} false positives per second saved on links"
            f"{share}; {worth['deliveries_through_matchers']:,.0f} of {worth['deliveries']:,.0f} deliveries per second "
            "go through matchers"
        )
    for each in found["diverted"]:
        yield f"  {each['category']} {each['dz'] or 'all'} at {each['switch']} → {each['matcher']}"
    for each in found["matchers"]:
        yield (
            f"matcher {each['name']} at {each['host']} ({each['switch']}): {each['state']}, {each['subscriptions']:,} "
            f"subscriptions, {each['received']:,} events, {each['unwanted']:,} unwanted, {each['sent']:,} sent"
        )
    if not found["matchers"]:
        yield "no matchers: start some with `sievenet matcher --host HOST`, or `sievenet up --matchers N`"
    if found["failures"]:
        yield f"{found['failures']} times a matcher was given up; the last: {found['last_failure']}"


def _latency(found: dict[str, Any], way: str) -> str:
    """The mean latency of a way, and how old that is if nothing goes that way now."""
    seconds, age = found[f"latency_{way}"], found[f"latency_{way}_age"]
    if seconds is None:
        return "nothing yet"
    return f"{seconds_text(seconds)}{f' ({seconds_text(age)} ago)' if age > _OLD * found['interval'] else ''}"
