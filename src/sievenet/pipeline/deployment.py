"""A deployment: who wants and offers what of a category, where they are, and the trees that its events travel on.

    snapshot in a store     everything as the control plane had it
    journal and topology    the same, worked out by the control plane's own code
    subscriptions alone     what is not known is assumed, and said (`assumed`)

What a plan costs depends on where subscribers are: two that share a link share its packets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from sievenet.content import Schema
from sievenet.control.config import ControlConfig
from sievenet.control.space import tree_of
from sievenet.errors import InvalidInput
from sievenet.index import Plan
from sievenet.network import SpanningTree, Topology, spanning_trees
from sievenet.network.files import load_topology
from sievenet.pipeline.interests import Wanted, wanted_from, wanted_of
from sievenet.tuning.sites import Sites

if TYPE_CHECKING:
    from sievenet.pipeline.snapshot import Snapshot
    from sievenet.pipeline.store import Store

__all__ = ["Deployment", "TreeRecord", "assumed", "kept_deployment", "snapshot_deployment"]


class TreeRecord(msgspec.Struct, frozen=True):
    """A spanning tree in a file: its root, and the next switch toward it of every other."""

    root: str
    parent: dict[str, str | None]


@dataclass(frozen=True, slots=True, eq=False)
class Deployment:
    """A category as it is deployed."""

    schema: Schema
    wanted: Wanted
    #: The client that each subscription belongs to, and every client's host.
    clients: tuple[str, ...]
    hosts: Mapping[str, str]
    topology: Topology
    #: The trees of the category; several share the event space by its first bits.
    trees: tuple[SpanningTree, ...]
    #: The plan in use and its budget, if they are known.
    plan: Plan | None = None
    budget: int | None = None
    #: What was not known and is assumed instead, as a sentence; empty if everything was known.
    assumed: str = ""

    def sites(self, publishers: Mapping[str, str] | None = None, default: str | None = None) -> Sites:
        """Where everybody is; publishers that are no clients by name, all others at the host ``default``."""
        return Sites.of(self.topology, self.trees, self.hosts, self.clients, publishers, default)


def _deployed(wanted: Wanted, offered: Wanted, topology: Topology, trees: tuple[SpanningTree, ...]) -> Deployment:
    """Clients at hosts that the network does not have are left out, as the control plane does."""
    known = set(topology.hosts)
    here = [i for i, host in enumerate(wanted.hosts) if host in known]
    wanted = wanted if len(here) == len(wanted) else wanted.take(here)
    pairs = [*zip(wanted.clients, wanted.hosts, strict=True), *zip(offered.clients, offered.hosts, strict=True)]
    hosts = {client: host for client, host in pairs if host in known}
    return Deployment(wanted.schema, wanted, wanted.clients, hosts, topology, trees)


def snapshot_deployment(snapshot: Snapshot, schema: Schema) -> Deployment:
    """A category of a snapshot that was just taken."""
    category = snapshot.state.named(schema.name)
    made = _deployed(
        wanted_of(snapshot.state, schema),
        wanted_of(snapshot.state, schema, advertised=True),
        snapshot.topology,
        snapshot.trees[category.number],
    )
    return _with(made, category.plan, category.budget)


def kept_deployment(store: Store, id: str, schema: Schema) -> Deployment:
    """A category of a snapshot in a store."""
    folder = f"{store.root}/snapshots/{id}"
    if not store.files.exists(f"{folder}.json"):
        known = [
            f.path.rsplit("/", 1)[-1].removesuffix(".json") for f in store.files.find(f"{store.root}/snapshots/*.json")
        ]
        raise InvalidInput(expected=f"a snapshot of the store ({', '.join(known) or 'none yet'})", got=id)
    categories = msgspec.json.decode(store.files.read(f"{folder}/categories.json"))
    category = next((c for c in categories if c["name"] == schema.name), None)
    if category is None:
        raise InvalidInput(expected=f"a category of snapshot {id}", got=schema.name)
    topology = load_topology(store.files.read(f"{folder}/topology.json"))
    records = msgspec.json.decode(store.files.read(f"{folder}/trees.json"), type=dict[str, list[TreeRecord]])
    trees = tuple(SpanningTree(topology, each.root, each.parent) for each in records[schema.name])
    table = store.files.read(f"{folder}/interests/{schema.name}.parquet")
    wanted, offered = (wanted_from(table, schema, kind) for kind in ("subscription", "advertisement"))
    plan = Plan.from_json(msgspec.json.encode(category["plan"]))
    return _with(_deployed(wanted, offered, topology, trees), plan, category["budget"])


def _with(made: Deployment, plan: Plan, budget: int) -> Deployment:
    values: dict[str, Any] = {name: getattr(made, name) for name in Deployment.__slots__}
    return Deployment(**{**values, "plan": plan, "budget": budget})


def assumed(wanted: Wanted, topology: Topology | None = None) -> Deployment:
    """Subscriptions of which the place is not known: each is a client of its own, spread over the hosts in turn.

    Without a topology they are all at one switch.
    """
    where = "spread evenly over the hosts"
    if topology is None:
        from sievenet.network import parse_topology

        topology, where = parse_topology("line,switches=1"), "all at one switch"
    hosts = tuple(topology.hosts)
    clients = tuple(client or f"subscriber {i + 1}" for i, client in enumerate(wanted.clients))
    places: dict[str, str] = {}
    unplaced = 0
    for client, host in zip(clients, wanted.hosts, strict=True):
        if client not in places:
            known = host in hosts
            unplaced += not known
            places[client] = host if known else hosts[len(places) % len(hosts)]
    settings = ControlConfig()
    trees = spanning_trees(topology, settings.trees)
    used = tuple(trees[tree_of(1, group, len(trees))] for group in range(settings.spread))
    said = (
        f"{unplaced} subscribers of unknown place are assumed to be clients of their own, {where}" if unplaced else ""
    )
    return Deployment(wanted.schema, wanted, clients, places, topology, used, assumed=said)
