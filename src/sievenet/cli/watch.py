"""`sievenet watch`: watch the tap, and change the plan when another is better."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import click

from sievenet.cli.fabric import duration, run, url_option
from sievenet.cli.output import json_option, show_json
from sievenet.cli.pipeline_options import interests_option, load_plan, master_option, report_option, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sievenet.content import Subscription
    from sievenet.index import Plan
    from sievenet.pipeline.deployment import Deployment
    from sievenet.pipeline.watch import Watcher

__all__ = ["pipeline_watch", "watch"]


@click.command()
@click.argument("tap")
@interests_option
@click.option("--topology", help="The network of a fabric's journal, such as testbed: plans are judged on its links.")
@click.option(
    "--config", "config_file", type=click.Path(dir_okay=False), help="The fabric's TOML file, with a topology."
)
@click.option("--plan", "plan_file", required=True, type=click.Path(), help="The plan in use when the watch begins.")
@click.option(
    "--state", required=True, metavar="FOLDER", help="Where the watch keeps what it knows; it resumes from there."
)
@click.option("--every", callback=duration, help="Look for new segments that often, until stopped. Default: once.")
@click.option("--window", default="60s", show_default=True, callback=duration, help="Length of a window.")
@click.option(
    "--threshold", default=0.05, show_default=True, help="Part of the transmissions that a new plan must save."
)
@click.option("--budget", default=8, show_default=True, help="Most entries per subscription.")
@click.option("--seconds", default=20.0, show_default=True, help="How long a search may take.")
@click.option("--apply", "applied", is_flag=True, help="Apply better plans to the running fabric, under traffic.")
@url_option
@master_option
@report_option
@json_option
def watch(
    tap: str,
    interests: str,
    topology: str | None,
    config_file: str | None,
    plan_file: str,
    state: str,
    every: float | None,
    window: float,
    threshold: float,
    budget: int,
    seconds: float,
    applied: bool,
    url: str | None,
    master: str | None,
    folder: str | None,
    as_json: bool,
) -> None:
    """Watch a fabric's tap and signal when another plan is better.

    TAP is the folder that publishers sample their events into. What each window makes the network carry, how much of it
    is unnecessary (per link, per host, per subscription) and drift are kept in the state folder; when a search finds a
    plan that is better by the threshold, it is signalled, and with --apply the fabric changes to it without losing an
    event. With the fabric's journal and --topology, subscribers are where they are; without, each is taken as a host of
    its own at one switch.

    \b
    Examples:
      $ sievenet watch /var/tap --subscriptions fabric.db --plan plan.json --state watch  # needs Spark
      $ sievenet watch tap --subscriptions fabric.db --topology testbed --plan p.json --state w --apply  # needs Spark
    """
    from sievenet.cli.pipeline_deployment import placed
    from sievenet.pipeline.interests import load_wanted
    from sievenet.pipeline.spark import spark_session
    from sievenet.pipeline.watch import Settings, Watcher

    plan = load_plan(plan_file)
    settings = Settings(window=window, threshold=threshold, budget=budget, seconds=seconds)
    say(f"starting Spark on {master or 'local[*]'}")
    # Read anew for every batch: subscribers come and go.
    places: list[Deployment] = []

    def wanted() -> Sequence[Subscription]:
        if topology is None:
            return load_wanted(interests, plan.schema).subscriptions
        places[:] = [placed(interests, plan.schema, topology, config_file)]
        return places[0].wanted.subscriptions

    with spark_session(master) as spark:
        watcher = Watcher(
            spark,
            state,
            plan,
            wanted,
            settings,
            sites=lambda: places[0].sites() if places else None,
            apply=(lambda better: _apply(url, better)) if applied else None,
            say=say,
        )
        query = watcher.start(tap, every=every)
        try:
            query.awaitTermination()
        except KeyboardInterrupt:
            query.stop()
        _finish(watcher, folder, as_json)


#: The same under `sievenet pipeline`, with its own examples.
pipeline_watch = copy.copy(watch)
pipeline_watch.help = (watch.help or "").replace("$ sievenet watch", "$ sievenet pipeline watch")


def _apply(url: str | None, plan: Plan) -> None:
    """Give a plan to the running fabric."""
    from sievenet.client.connector import connect

    async def change() -> Any:
        async with connect(url, operator=True, reconnect=False, timeout=600.0) as node:
            return await node.apply_plan(plan.schema.name, plan.to_json())

    done = run(change())
    say(f"plan of epoch {done['epoch']} in use")


def _finish(watcher: Watcher, folder: str | None, as_json: bool) -> None:
    import msgspec

    from sievenet.pipeline.report import Report
    from sievenet.tuning.cost import RATES, Cost

    windows, signals = watcher.windows(), watcher.signals()
    report = Report(f"Watch of {watcher.schema.name}")
    report.figures = {
        "windows": [{"start": w.start, **w.cost.summary(), "drift": w.drift} for w in windows],
        "signals": [msgspec.structs.asdict(msgspec.structs.replace(s, plan="")) for s in signals],
    }
    if windows:
        times = [w.start - windows[0].start for w in windows]
        lines = {name.replace("_", " "): [w.cost.summary()[name] for w in windows] for name in RATES}
        report.lines("windows", times, {**lines, "drift": [w.drift for w in windows]}, "seconds")
    rows = [(w.start, *w.cost.summary().values(), w.drift) for w in windows]
    report.table("Windows", ["start", *Cost().summary(), "drift"], rows)
    report.table(
        "Signals", ["batch", "plan", "before", "after"], [(s.batch, s.name, s.before, s.after) for s in signals]
    )
    if folder:
        say(f"report in {report.write(folder)}")
    if as_json:
        show_json(report.figures)
        return
    for w in windows:
        click.echo(f"{w.start:.0f}: {w.events} events, {w.cost}; drift {w.drift:.2f}")
    for s in signals:
        click.echo(f"batch {s.batch}: {s.name} takes {s.after:.2f} instead of {s.before:.2f} transmissions per event")
