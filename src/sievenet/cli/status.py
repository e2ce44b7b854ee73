"""`sievenet status`: what a running fabric does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from sievenet.cli.fabric import asked, seconds_text, url_option
from sievenet.cli.output import json_option, plain, show, show_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import RenderableType
    from rich.table import Table

__all__ = ["percent", "status", "status_tables"]


@click.command()
@click.option("--clients", is_flag=True, help="List what every client advertises and subscribes to.")
@click.option("--client", metavar="NAME", help="The same of one client.")
@click.option(
    "--check", is_flag=True, help="Compare every switch's table with what it should hold; exit code 2 if one differs."
)
@url_option
@json_option
def status(clients: bool, client: str | None, check: bool, url: str | None, as_json: bool) -> None:
    """Show what a running fabric does.

    Traffic, with latency and false positives as clients report them; categories, clients, switches. What is unnecessary
    per link and per subscription is counted on a sample of the newest events (`sievenet up --tap` or `--tune`).
    Of a router (--url sievenet+router://…) what it knows of itself.

    \b
    Examples:
      $ sievenet status  # needs a running fabric
      $ sievenet status --json  # needs a running fabric
      $ sievenet status --clients  # needs a running fabric
      $ sievenet status --client watcher-1 --json  # needs a running fabric
      $ sievenet status --check  # needs a running fabric
    """
    if check:
        _check(asked(url, "check"), as_json)
        return
    if clients or client is not None:
        _registrations(asked(url, "registrations", client or ""), as_json)
        return
    found = asked(url, "status")
    if as_json:
        show_json(found)
    elif "traffic" not in found:
        for key, value in found.items():
            click.echo(f"{key:16} {plain(value)}")
    else:
        show(*status_tables(found))


def _registrations(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        show_json(found)
        return
    for each in found["clients"]:
        state = "connected" if each["connected"] else f"away, kept for {each['lease_left']:.0f} s more"
        totals = (f"{len(each[kind]) + each[f'more_{kind}']:,} {kind}" for kind in ("advertisements", "subscriptions"))
        click.echo(f"{each['name']} at {each['host']}, {state}: {', '.join(totals)}")
        for kind in ("advertisements", "subscriptions"):
            for text in each[kind]:
                click.echo(f"  {'publishes' if kind == 'advertisements' else 'wants    '} {text}")
            if (more := each[f"more_{kind}"]) > 0:
                click.echo(f"  … and {more:,} more {kind} (--client {each['name']} lists up to 1,000)")
    if found["more"]:
        click.echo(f"… and {found['more']:,} more clients")
    if not found["clients"]:
        click.echo("no clients")


def _check(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        show_json(found)
    else:
        for each in found["differing"]:
            click.echo(f"{each['switch']}: {len(each['missing'])} flows missing, {len(each['surplus'])} too many")
        click.echo(
            f"{found['switches'] - len(found['differing'])} of {found['switches']} switches hold what they should"
        )
    if not found["ok"]:
        raise click.exceptions.Exit(2)


def percent(rate: float | None) -> str:
    """A rate as people read it; `-` if it is not known, as without a tap."""
    return "-" if rate is None else f"{rate:.1%}"


def _epoch(number: int) -> str:
    """An epoch as people read it: behind the term of the daemon that gave it, where daemons take turns.

    >>> _epoch(7), _epoch(2 << 32 | 7)
    ('7', '2.7')
    """
    term, epoch = divmod(number, 1 << 32)
    return f"{term}.{epoch}" if term else str(epoch)


def _shared(shared: dict[str, Any] | None) -> Iterator[RenderableType]:
    """Who leads, where daemons take turns."""
    if shared is not None:
        trouble = f", which does not do what it is asked: {shared['trouble']}" if shared.get("trouble") else ""
        away = trouble if shared["reachable"] else ", which cannot be reached now"
        where = f"fabric {shared['fabric']} at {shared['store']}"
        yield f"{shared['leader']} leads in term {shared['term']}, by {where}{away}"


def _configurators(control: dict[str, Any] | None, table: Callable[..., Table]) -> Iterator[RenderableType]:
    """Who works out flow changes, if not one process alone."""
    if control is None:
        return
    if "turns" in control:
        yield (
            f"control sea: {control['working']} of {control['turns']} configurators work, "
            f"{control['waiting']} partitions wait"
        )
        return
    title = f"control {control['mode']}: epoch {_epoch(control['epoch'])}, {control['moved']} partitions moved, "
    title += f"{control['taken_over']} taken over, {control['stale']} answers too late"
    configurators = table(title, "configurator", "process", "state", "partitions", "waiting", "answered")
    for each in control["configurators"]:
        numbers = (f"{each[key]:,}" for key in ("partitions", "waiting", "answered"))
        configurators.add_row(each["name"], str(each["process"]), "well" if each["well"] else "silent", *numbers)
    if not control["configurators"]:
        configurators.add_row("none: the daemon works alone")
    yield configurators
    busiest = sorted(control["partitions"], key=lambda each: -each["waiting"])[:10]
    if busiest:
        partitions = table("partitions, those with most to do first", "partition", "owner", "epoch", "waiting")
        for each in busiest:
            row = each["name"], each["owner"] or "daemon", _epoch(each["epoch"]), f"{each['waiting']:,}"
            partitions.add_row(*row)
        if len(control["partitions"]) > len(busiest):
            partitions.add_row(f"… and {len(control['partitions']) - len(busiest)} more")
        yield partitions


def status_tables(found: dict[str, Any], rates: dict[str, float] | None = None) -> list[RenderableType]:
    """The tables that people see; with rates if two looks were taken."""
    from rich.table import Table

    def table(title: str, *columns: str) -> Table:
        made = Table(
            title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim"
        )
        for i, column in enumerate(columns):
            made.add_column(column, justify="left" if i == 0 else "right")
        return made

    traffic = found["traffic"]
    top = table(
        f"fabric {found['topology']}, up {seconds_text(found['uptime'])}", "traffic", "total", "now, per second"
    )
    for name in ("published", "transmissions", "received", "delivered", "false_positives", "duplicates", "dropped"):
        rate = "-" if rates is None else f"{rates.get(name, 0.0):,.0f}"
        top.add_row(name.replace("_", " "), f"{traffic[name]:,}", rate)
    for name in ("per_link", "per_host", "per_subscription"):
        now = f"{rates['per_host']:.1%}" if rates is not None and name == "per_host" else ""
        top.add_row(f"unnecessary {name.replace('_', ' ')}", percent(traffic[name]), now)
    top.add_row("latency p50", seconds_text(traffic["latency_p50"]), "")
    top.add_row("latency p99", seconds_text(traffic["latency_p99"]), "")
    categories = table("categories", "name", "plan", "epoch", "advertisements", "subscriptions")
    for each in found["categories"]:
        plan = f"{each['kind']}, {each['bits']} bits"
        categories.add_row(
            each["name"], plan, str(each["epoch"]), f"{each['advertisements']:,}", f"{each['subscriptions']:,}"
        )
    samples = {each["name"]: each["sample"] for each in found["categories"] if each["sample"] is not None}
    columns = list(next(iter(samples.values()), {}))
    newest = table("a sample of the newest events", "category", *(name.replace("_", " ") for name in columns))
    for category, sample in samples.items():
        cells = [percent(sample[n]) if n.startswith("per_") else f"{sample[n]:,}" for n in columns]
        newest.add_row(category, *cells)
    clients = table("clients", "name", "host", "state", "ads", "subs", "published", "delivered", "false pos.")
    for each in found["clients"][:20]:
        clients.add_row(
            each["name"],
            each["host"],
            "connected" if each["connected"] else "away",
            str(each["advertisements"]),
            f"{each['subscriptions']:,}",
            f"{each['published']:,}",
            f"{each['delivered']:,}",
            f"{each['false_positives']:,}",
        )
    if len(found["clients"]) > 20:
        clients.add_row(f"… and {len(found['clients']) - 20} more")
    switches = table("switches", "name", "state", "flows", "packets", "unmatched")
    if any("merged" in each for each in found["switches"]):
        switches.add_column("merged for", justify="right")
        switches.add_column("unwanted/s", justify="right")
    for each in found["switches"][:40]:
        switches.add_row(
            each["name"],
            "up" if each["up"] else "down",
            f"{each['flows']:,}" + (f" of {each['capacity']:,}" if each["capacity"] else ""),
            f"{each['packets']:,}",
            f"{each['unmatched']:,}",
            *([f"{each['merged']} for {each['stand_for']}", f"{each['unwanted']:,.1f}"] if "merged" in each else ()),
        )
    if len(found["switches"]) > 40:
        switches.add_row(f"… and {len(found['switches']) - 40} more")
    tables: list[RenderableType] = [top, categories, *([newest] if samples else []), clients, switches]
    tables += found.get("troubles", ())
    tables += _shared(found.get("shared"))
    tables += _configurators(found.get("control"), table)
    if line := found.get("tuning", {}).get("line"):
        tables.insert(1, line)
    if found.get("set_aside"):
        aside = table("set aside at the start: these records of the journal are not in effect", "record", "why")
        for each in found["set_aside"]:
            aside.add_row(each["what"], each["error"])
        if (more := found.get("set_aside_count", 0) - len(found["set_aside"])) > 0:
            aside.add_row(f"… and {more:,} more, in the file .aside beside the journal")
        tables.insert(1, aside)
    return [each for t in tables for each in (t, "")]
