"""A whole network for the benchmark of merging: who wants what, the tables that follow, and what events cross."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sievenet.content import EventBatch, Filter, Subscription, encode_subscription
from sievenet.control.aggregation import Sample, Source, Tables, aggregate
from sievenet.control.aggregation.aggregation import _points
from sievenet.control.aggregation.points import locate
from sievenet.control.covering import Coverer
from sievenet.control.deployment import Deployment
from sievenet.control.registrations import Registrations
from sievenet.control.routes import Routes, Wires
from sievenet.index import Dz, Plan
from sievenet.network import Delete, Topology, spanning_trees

__all__ = ["Carried", "Locally", "Network", "Table"]

_Ints = npt.NDArray[np.int64]
Table = Mapping[int, frozenset[int]]


class Carried(NamedTuple):
    """Transmissions, counted per link."""

    all: int
    #: Of them those that tables without limits make as well.
    needed: int

    @property
    def unneeded(self) -> int:
        """Those that merging added."""
        return self.all - self.needed

    @property
    def added(self) -> float:
        """Their share."""
        return self.unneeded / max(1, self.all)


@dataclass
class Network:
    """One category on one tree; some hosts publish everything, all others subscribe."""

    topology: Topology
    plan: Plan
    budget: int
    publishers: int
    seed: int = 1
    wires: Wires = field(init=False)

    def __post_init__(self) -> None:
        topology = self.topology
        self.tree = spanning_trees(topology, 1)[0]
        self.wires = Wires(topology)
        self.routes = Routes(self.wires, self.tree)
        self.random = np.random.default_rng(self.seed)
        hosts = self.random.permutation(len(topology.hosts))
        places = [topology.attachment(topology.hosts[i]) for i in hosts]
        self.places = places[self.publishers :]
        self.at = [self.wires.attach(place.switch, place.port) for place in self.places]
        self.sources = [Source(place.switch, place.port, (1,)) for place in places[: self.publishers]]
        self.links = {switch: dict(self.tree.tree_ports(switch)) for switch in topology.switches}
        self.coverer = Coverer(self.plan, self.budget)
        self._known: tuple[Mapping[str, Table], dict[str, Any]] = ({}, {})
        self.fresh()

    def fresh(self) -> None:
        """Nobody wants anything yet."""
        self.registrations = Registrations(1, self.wires, self.routes)
        for source in self.sources:
            self.registrations.offer(self.wires.attach(source.switch, source.port), [1])
        self.registrations.changes()

    def keys_of(self, filters: Sequence[Filter]) -> list[tuple[int, list[int]]]:
        """Who wants which dz: a wire and keys, for each filter."""
        wanted = [Subscription([each]) for each in filters]
        encoded = [encode_subscription(each) for each in wanted]
        ready = self.coverer.many(zip(encoded, wanted, strict=True))
        keys = [ready.get(data) or self.coverer.keys(each, True) for data, each in zip(encoded, wanted, strict=True)]
        who = self.random.integers(len(self.at), size=len(wanted))
        return [(self.at[w], each) for w, each in zip(who, keys, strict=True)]

    def build(self, wanted: Sequence[tuple[int, list[int]]]) -> tuple[dict[str, dict[int, frozenset[int]]], float]:
        """All tables from scratch, and the seconds of processor time that it took."""
        self.fresh()
        begin = time.process_time()
        for wire, keys in wanted:
            self.registrations.want(wire, keys)
        self.registrations.changes()
        found = {
            switch: {flow.match.cell.key: flow.ports for flow in self.registrations.table(switch)}
            for switch in self.topology.switches
        }
        return found, time.process_time() - begin

    def sample(self, batch: EventBatch) -> Sample:
        """Events as packets of random publishers."""
        codes = self.plan.encode_batch(batch).hi
        order = np.argsort(codes, kind="stable")
        return Sample(codes[order], self.random.integers(len(self.sources), size=codes.size))

    def part(self, sample: Sample, share: float) -> Sample:
        """Some of a sample, at random."""
        keep = self.random.random(sample.codes.size) < share
        return Sample(sample.codes[keep], sample.sources[keep])

    # -- merging -----------------------------------------------------------------------------

    def fitted(self, tables: Mapping[str, Table], limit: int, sample: Sample | None) -> tuple[dict[str, Table], float]:
        """The tables merged for the whole network, and the seconds of processor time that it took."""
        begin = time.process_time()
        lane = Tables(tables, self.links, self.sources, sample)
        (found,) = aggregate([lane], dict.fromkeys(tables, limit))
        spent = time.process_time() - begin
        deployed: dict[str, Table] = {}
        for switch, table in tables.items():
            if len(table) > limit:
                deployment = Deployment(1, table)
                deployment.remerge(found.get(switch, ()))
                deployment.fit(limit)
                deployment.relax(limit)
                deployed[switch] = deployment.table
            else:
                deployed[switch] = table
        return deployed, spent

    # -- what crosses ------------------------------------------------------------------------

    def carried(self, sample: Sample, tables: Mapping[str, Table], ideal: Mapping[str, Table]) -> Carried:
        """What links carry with these tables, and what of it those without limits would."""
        ready = {switch: self._ready(tables[switch]) for switch in tables}
        if self._known[0] is not ideal:  # several are compared with the same
            self._known = ideal, {switch: self._ready(ideal[switch]) for switch in ideal}
        needed = self._known[1]
        frontier: dict[tuple[str, int], list[tuple[_Ints, npt.NDArray[np.bool_]]]] = {}
        for number, source in enumerate(self.sources):
            mine = np.flatnonzero(sample.sources == number)
            if mine.size:
                frontier.setdefault((source.switch, source.port), []).append((mine, np.ones(mine.size, np.bool_)))
        total = wanted = 0
        while frontier:
            further: dict[tuple[str, int], list[tuple[_Ints, npt.NDArray[np.bool_]]]] = {}
            for (switch, came), parts in frontier.items():
                which = np.concatenate([part for part, _ in parts])
                wants = np.concatenate([want for _, want in parts])
                order = np.argsort(which, kind="stable")
                which, wants = which[order], wants[order]
                sent = self._sent(ready[switch], sample.codes[which])
                also = self._sent(needed[switch], sample.codes[which])
                for port in ready[switch][2]:
                    if port == came:
                        continue
                    go = sent(port)
                    if not go.any():
                        continue
                    good = also(port)[go] & wants[go]
                    total += int(go.sum())
                    wanted += int(good.sum())
                    peer = self.links[switch].get(port)
                    if peer is not None:
                        back = self.topology.port(peer, switch)
                        further.setdefault((peer, back), []).append((which[go], good))
            frontier = further
        return Carried(total, wanted)

    def arrived(self, sample: Sample, tables: Mapping[str, Table], switch: str) -> tuple[_Ints, _Ints]:
        """Which packets arrive at a switch through tables without limits, and by which port."""
        behind: dict[str, int] = {}
        ways = [(port, switch, peer) for port, peer in self.links[switch].items()]
        while ways:
            port, last, at = ways.pop()
            behind[at] = port
            ways += [(port, at, peer) for peer in self.links[at].values() if peer != last]
        came: _Ints = np.array([behind.get(each.switch, each.port) for each in self.sources], np.int64)[sample.sources]
        ready = self._ready(tables[switch])
        sent = self._sent(ready, sample.codes)
        # Others send here what somebody on another side wants, and of one's own publishers everything comes.
        own = ~np.isin(came, list(self.links[switch]))
        some = np.flatnonzero(own | np.any([sent(port) & (came != port) for port in ready[2]], axis=0))
        return some, came[some]

    @staticmethod
    def _ready(table: Table) -> tuple[Any, Any, dict[int, int]]:
        row = {port: i for i, port in enumerate(sorted(frozenset().union(*table.values())))}
        points = _points(table, row)
        return points, points.decider, row

    @staticmethod
    def _sent(ready: tuple[Any, Any, dict[int, int]], codes: npt.NDArray[np.uint64]) -> Any:
        points, decider, row = ready
        where = locate(points.code, points.length, codes)
        decided = np.where(where >= 0, decider[where], -1) if len(points) else np.full(codes.size, -1)

        def by(port: int) -> npt.NDArray[np.bool_]:
            if port not in row:
                return np.zeros(codes.size, np.bool_)
            found: npt.NDArray[np.bool_] = (decided >= 0) & points.ports[decided, row[port]]
            return found

        return by


class Locally:
    """Deployed tables that follow subscriptions as they come, merged at once where one does not fit."""

    def __init__(self, network: Network, limit: int, *, least: bool, unused: int | None = None) -> None:
        self.network = network
        self.limit = limit
        self.least = least
        #: Entries that a merge may leave unused before others are undone for them; None: any number.
        self.unused = unused
        self.deployments = {switch: Deployment(1) for switch in network.topology.switches}
        network.fresh()

    def add(self, wanted: Sequence[tuple[int, list[int]]], batch: int) -> None:
        """Subscriptions come, so many at a time."""
        for at in range(0, len(wanted), batch):
            self._add(wanted[at : at + batch])

    def _add(self, some: Sequence[tuple[int, list[int]]]) -> None:
        registrations, limit = self.network.registrations, self.limit
        for wire, keys in some:
            registrations.want(wire, keys)
        changes = registrations.changes()
        for step in (changes.first, changes.second):
            for switch, told in step.items():
                deployment = self.deployments[switch]
                entries: dict[int, frozenset[int] | None] = {}
                for change in told:
                    dz = change.flow.match.cell
                    assert isinstance(dz, Dz)
                    entries[dz.key] = None if isinstance(change, Delete) else change.flow.ports
                deployment.put_all(entries.items())
                if len(deployment) > limit:
                    deployment.fit(limit, least=self.least, near=entries)
                    if self.unused is not None and len(deployment) < limit - self.unused:
                        deployment.relax(limit)
                deployment.forget()

    def refit(self, sample: Sample) -> None:
        """Choose merges for the whole network (FA-PB)."""
        tables = {switch: dict(deployment.wanted) for switch, deployment in self.deployments.items()}
        lane = Tables(tables, self.network.links, self.network.sources, sample)
        (found,) = aggregate([lane], dict.fromkeys(tables, self.limit))
        for switch, deployment in self.deployments.items():
            deployment.remerge(found.get(switch, ()))
            deployment.fit(self.limit, least=self.least)

    def tables(self) -> dict[str, Table]:
        """As they are now."""
        return {switch: deployment.table for switch, deployment in self.deployments.items()}

    def ideal(self) -> dict[str, Table]:
        """As they would be without a limit."""
        return {switch: deployment.ideal for switch, deployment in self.deployments.items()}
