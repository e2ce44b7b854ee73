"""`sievenet pipeline place`: at which switches event caches cost the network least."""

from __future__ import annotations

import click

from sievenet.cli.fabric import asked, url_option
from sievenet.cli.output import json_option
from sievenet.cli.pipeline_options import finish, master_option, report_option, say

__all__ = ["place"]


@click.command()
@click.argument("topology", metavar="SHAPE|FILE")
@click.option(
    "--states", type=click.IntRange(1, 10_000_000), default=1000, show_default=True, help="Random host states."
)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Of the random states.")
@click.option("--rate", type=click.FloatRange(1), default=1000.0, show_default=True, help="Events/s of each publisher.")
@click.option("--link-rate", type=click.FloatRange(1), default=10_000.0, show_default=True, help="Events/s of a link.")
@click.option(
    "--weights",
    metavar="A,B,C,D,E",
    help="Weights of flows to and from the cache, published and cached transmissions, and overload. Default: 1 each.",
)
@click.option("--observed", is_flag=True, help="Use what a running fabric (--url) does now, not random states.")
@url_option
@master_option
@report_option
@json_option
def place(
    topology: str,
    states: int,
    seed: int,
    rate: float,
    link_rate: float,
    weights: str | None,
    observed: bool,
    url: str | None,
    master: str | None,
    folder: str | None,
    as_json: bool,
) -> None:
    """Score every switch as a place for an event cache.

    Over many random states of the hosts (each publishes, subscribes, does both or neither) it counts what a cache at
    each switch adds: flows to it and from it, transmissions while publishers publish and while it sends, and events
    that links cannot carry. With --observed, over what the clients of a running fabric do.

    \b
    Examples:
      $ sievenet pipeline place testbed --states 2000 --report placement  # needs Spark
      $ sievenet pipeline place fattree,k=4 --weights 1,1,2,2,1 --json  # needs Spark
      $ sievenet pipeline place testbed --observed  # needs a running fabric
    """
    from sievenet.cache.placement import METRICS, Placement, observed_states
    from sievenet.network import parse_topology
    from sievenet.pipeline.placement import place as on_spark
    from sievenet.pipeline.placement import placement_report

    network = parse_topology(topology)
    chosen = _weights(weights, len(METRICS))
    if observed:
        clients = asked(url, "status")["clients"]
        scores = Placement(network, link_rate).scores(observed_states(network, clients))
        of = f"what {len(clients)} clients do now"
    else:
        from sievenet.pipeline.spark import spark_session

        say(f"starting Spark on {master or 'local[*]'}")
        with spark_session(master, small=True) as spark:
            scores = on_spark(spark, network, states, seed, rate, link_rate)
        of = f"{states:,} random host states"
    report = placement_report(network, scores, chosen, of)
    rows = report.figures["positions"][:20]
    lines = [f"{row['score']:.3f}  {row['switch']}" for row in rows]
    finish(report, folder, as_json, "\n".join(lines))


def _weights(text: str | None, count: int) -> list[float] | None:
    if text is None:
        return None
    try:
        found = [float(each) for each in text.split(",")]
    except ValueError:
        found = []
    if len(found) != count or min(found) < 0 or not any(found):
        expected = f"{count} numbers such as 1,1,2,2,1, none below 0 and not all 0"
        raise click.BadParameter(f"Expected {expected}, got {text!r}", param_hint="--weights")
    return found
