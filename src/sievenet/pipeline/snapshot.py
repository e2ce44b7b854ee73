"""Snapshot: the control plane as tables, from its journal: who wants and offers what, the network, its flow tables.

    ROOT/snapshots/ID.json                          the snapshot ID exists; what it is of, and how much there is
    ROOT/snapshots/ID/categories.json               number, schema, plan, epoch and budget of each category
    ROOT/snapshots/ID/interests/CATEGORY.parquet    subscriptions and advertisements (table `interests`)
    ROOT/snapshots/ID/topology.json                 the network, as `sievenet up --topology` takes it
    ROOT/snapshots/ID/trees.json                    the spanning trees of each category
    ROOT/snapshots/ID/links.parquet                 the same as a table
    ROOT/snapshots/ID/flows.parquet                 the flow tables of all switches

The journal holds what the control plane was asked for; flow tables follow from it, and the code that derives them here
is the controller itself, started on the journal's records with nobody to carry out what it says.  What depends on the
moment is not in a journal: no link is down, and clients have the port of their host in the topology.

A snapshot is named after its content, so taking it again when nothing happened changes nothing, and it becomes visible
all at once by the last file that is written.  The journal may be in use meanwhile.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from sievenet.control.config import ControlConfig
from sievenet.control.controller import Controller
from sievenet.control.inspection import Inspection
from sievenet.control.journal import read_records
from sievenet.control.signals import Placed
from sievenet.control.state import State
from sievenet.network import Flow, SpanningTree, Topology
from sievenet.network.files import dump_topology
from sievenet.pipeline.deployment import TreeRecord
from sievenet.pipeline.interests import interests_table, wanted_of

if TYPE_CHECKING:
    from sievenet.pipeline.store import Store

__all__ = ["FLOWS", "LINKS", "Snapshot", "Summary", "keep_snapshot", "take_snapshot"]

#: A flow: codes match if ``code & mask == value``; both are left-aligned in 128 bits, here as text of 0, 1 and *.
FLOWS: Final = pa.schema(
    [
        ("switch", pa.string()),
        ("category", pa.int32()),
        ("cell", pa.string()),
        ("priority", pa.int32()),
        ("in_port", pa.int32()),
        ("ports", pa.list_(pa.int32())),
        ("peers", pa.list_(pa.string())),
    ]
)
#: A link, once; ``host`` says whether one of its ends is a host.
LINKS: Final = pa.schema(
    [
        ("a", pa.string()),
        ("a_port", pa.int32()),
        ("b", pa.string()),
        ("b_port", pa.int32()),
        ("host", pa.bool_()),
        ("delay", pa.float64()),
    ]
)


class Summary(msgspec.Struct, frozen=True):
    """What a snapshot holds."""

    id: str
    #: Category → subscriptions and advertisements.
    categories: dict[str, tuple[int, int]]
    clients: int
    switches: int
    hosts: int
    links: int
    flows: int
    #: Clients whose host the network has not: they have no part in the flow tables.
    elsewhere: int


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The control plane as its journal has it."""

    id: str
    state: State
    topology: Topology
    tables: Mapping[str, tuple[Flow, ...]]
    elsewhere: int
    #: The trees of each category, by its number.
    trees: Mapping[int, tuple[SpanningTree, ...]]

    def summary(self) -> Summary:
        """What it holds, in figures."""
        counts = {
            category.name: tuple(
                len(wanted_of(self.state, category.schema, advertised=advertised)) for advertised in (False, True)
            )
            for category in self.state.categories.values()
        }
        return Summary(
            id=self.id,
            categories={name: (both[0], both[1]) for name, both in counts.items()},
            clients=len(self.state.clients),
            switches=len(self.topology.switches),
            hosts=len(self.topology.hosts),
            links=len(self.topology.links),
            flows=sum(map(len, self.tables.values())),
            elsewhere=self.elsewhere,
        )

    def files(self) -> dict[str, bytes]:
        """Everything but the summary, by name."""
        made = {
            "categories.json": msgspec.json.encode([_category(c) for c in self.state.categories.values()]),
            "topology.json": dump_topology(self.topology),
            "trees.json": msgspec.json.encode(self._trees()),
            "links.parquet": _parquet(pa.Table.from_pylist(self._links(), LINKS)),
            "flows.parquet": _parquet(pa.Table.from_pylist(list(self._flows()), FLOWS)),
        }
        for category in self.state.categories.values():
            parts = [
                interests_table(wanted_of(self.state, category.schema, advertised=advertised), kind)
                for kind, advertised in (("subscription", False), ("advertisement", True))
            ]
            made[f"interests/{category.name}.parquet"] = _parquet(pa.concat_tables(parts))
        return made

    def _trees(self) -> dict[str, list[TreeRecord]]:
        return {
            category.name: [TreeRecord(tree.root, dict(tree.parent)) for tree in self.trees[number]]
            for number, category in self.state.categories.items()
        }

    def _links(self) -> list[dict[str, Any]]:
        switch = self.topology.is_switch
        return [
            {
                "a": link.a,
                "a_port": link.a_port,
                "b": link.b,
                "b_port": link.b_port,
                "host": not (switch(link.a) and switch(link.b)),
                "delay": link.settings.delay,
            }
            for link in self.topology.links
        ]

    def _flows(self) -> Iterable[dict[str, Any]]:
        for switch, flows in self.tables.items():
            peers = self.topology.ports(switch)
            for flow in flows:
                ports = sorted(flow.ports)
                yield {
                    "switch": switch,
                    "category": flow.match.category,
                    "cell": str(flow.match.cell),
                    "priority": flow.priority,
                    "in_port": flow.in_port,
                    "ports": ports,
                    "peers": [peers[port] for port in ports],
                }


def take_snapshot(journal: str | Path, topology: Topology, config: ControlConfig | None = None) -> Snapshot:
    """The control plane of a journal on a network; ``config`` as the fabric has it."""
    records = read_records(journal)
    settings = config or ControlConfig()
    controller = Controller(topology, settings, records)
    trees = len(controller.state.trees)
    if config is None and trees not in (0, settings.trees):
        # The journal knows how many trees the fabric has.
        settings = msgspec.structs.replace(settings, trees=trees)
        controller = Controller(topology, settings, records)
    hosts = set(topology.hosts)
    elsewhere = 0
    for client in list(controller.state.clients.values()):
        if client.host in hosts:
            at = topology.attachment(client.host)
            controller.handle(Placed(client.name, at.switch, at.port), 0.0)
        else:
            elsewhere += 1
    # What it tells the switches to do is nobody's business: whole tables are taken.
    controller.start(0.0)
    tables = {
        switch: tuple(flow for space in controller.spaces.values() for flow in space.table(switch))
        for switch in topology.switches
    }
    inspection = Inspection(controller)
    trees_of = {number: inspection.trees(number) for number in controller.spaces}
    digest = hashlib.sha256(msgspec.json.encode(settings) + dump_topology(topology))
    for record in controller.state.snapshot():
        digest.update(len(record).to_bytes(8, "big") + record)
    return Snapshot(digest.hexdigest()[:12], controller.state, topology, tables, elsewhere, trees_of)


def keep_snapshot(store: Store, snapshot: Snapshot) -> Summary:
    """Put a snapshot into a store, unless it is there already."""
    summary = snapshot.summary()
    last = f"{store.root}/snapshots/{snapshot.id}.json"
    if not store.files.exists(last):
        for name, data in snapshot.files().items():
            store.files.write(f"{store.root}/snapshots/{snapshot.id}/{name}", data)
        store.files.write(last, msgspec.json.encode(summary))
    return summary


def _category(category: Any) -> dict[str, Any]:
    return {
        "number": category.number,
        "name": category.name,
        "schema": msgspec.Raw(category.schema.to_json()),
        "plan": msgspec.Raw(category.plan.to_json()),
        "epoch": category.epoch,
        "budget": category.budget,
    }


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue().to_pybytes())
