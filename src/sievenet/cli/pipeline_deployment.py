"""What commands of the pipeline ask about a deployment: who wants what, and where."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sievenet.cli.pipeline_options import bundled, say

if TYPE_CHECKING:
    from sievenet.content import Schema
    from sievenet.pipeline.deployment import Deployment
    from sievenet.pipeline.store import Store
    from sievenet.tuning.sites import Sites

__all__ = ["Asked", "deployment_options", "placed", "sources_of"]


@dataclass(frozen=True)
class Asked:
    """What was said about who wants what, and where."""

    interests: str | None
    snapshot_id: str | None
    topology: str | None
    config_file: str | None
    at: tuple[str, ...]

    def deployment(self, store: Store, schema: Schema) -> Deployment:
        """The deployment that the options describe."""
        from sievenet.pipeline.deployment import kept_deployment

        if (self.interests is None) == (self.snapshot_id is None):
            raise click.UsageError("Expected --subscriptions FILE or --snapshot ID, one of them")
        if self.snapshot_id is not None:
            return kept_deployment(store, self.snapshot_id, schema)
        assert self.interests is not None
        found = placed(self.interests, schema, self.topology, self.config_file)
        if found.assumed:
            say(found.assumed)
        return found

    def sites(self, place: Deployment) -> Sites | None:
        """Where everybody is; None if nothing is known of the network."""
        if place.plan is None and not self.topology:
            return None
        return place.sites(*sources_of(self.at))


#: ``--subscriptions``, ``--snapshot``, ``--topology``, ``--config`` and ``--at``, as the argument ``asked``.
deployment_options = bundled(
    "asked",
    Asked,
    click.option(
        "--subscriptions",
        "interests",
        type=click.Path(),
        help="Who wants what: the journal of a fabric, a Parquet table, or text with a filter per line.",
    ),
    click.option(
        "--snapshot", "snapshot_id", metavar="ID", help="Take subscriptions, network and trees from this snapshot."
    ),
    click.option("--topology", help="The network of the subscriptions, such as fattree,k=4, or a file."),
    click.option(
        "--config", "config_file", type=click.Path(dir_okay=False), help="The fabric's TOML file, with a journal."
    ),
    click.option(
        "--at",
        "at",
        multiple=True,
        metavar="[NAME=]HOST",
        help="Where a publisher is that the network does not know; without NAME, where all others are.",
    ),
)


def placed(interests: str, schema: Schema, topology: str | None, config_file: str | None = None) -> Deployment:
    """Who wants what and where: with a journal and a topology as the control plane has it, else assumed."""
    from sievenet.network import parse_topology
    from sievenet.pipeline.deployment import assumed, snapshot_deployment
    from sievenet.pipeline.interests import is_journal, load_wanted

    network = parse_topology(topology) if topology else None
    if network is not None and Path(interests).is_file() and is_journal(interests):
        from sievenet.config import load_config
        from sievenet.pipeline.snapshot import take_snapshot

        control = load_config(config_file).control if config_file else None
        return snapshot_deployment(take_snapshot(interests, network, control), schema)
    return assumed(load_wanted(interests, schema), network)


def sources_of(at: tuple[str, ...]) -> tuple[dict[str, str], str | None]:
    """Hosts of publishers by name, and that of all others."""
    named = dict(each.split("=", 1) for each in at if "=" in each)
    others = [each for each in at if "=" not in each]
    return named, others[-1] if others else None
