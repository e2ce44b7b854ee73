"""Events on the links of a network, counted one by one: what matchers could remove from them.

Every event's way is worked out from the cells of the subscriptions (whom it reaches) and from their filters (who wants
it): on the tree of its publisher a link carries it if somebody behind it is reached, and in vain if nobody behind it
wants it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from sievenet.content import EventBatch, Filter, Schema
from sievenet.control.descriptions import CELL_BITS, MAX_CELLS
from sievenet.control.hybrid import Model, Observation
from sievenet.control.hybrid.selection import clusters, numbered
from sievenet.index import Dz, Plan
from sievenet.matcher import Matcher
from sievenet.network import SpanningTree, Topology, spanning_trees

Bools = npt.NDArray[np.bool_]


@dataclass
class Setting:
    """Subscriptions dealt out to hosts, events to publishers."""

    topology: Topology
    schema: Schema
    batch: EventBatch
    wanted: list[Filter]
    plan: Plan
    publishers: int = 16
    budget: int = 8
    tree: SpanningTree = field(init=False)
    #: Hosts × events.
    reached: Bools = field(init=False)
    wants: Bools = field(init=False)
    cells: npt.NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.tree = spanning_trees(self.topology)[0]
        plan = self.plan
        codes = plan.encode_batch(self.batch)
        first = np.unique(codes.row, return_index=True)[1]
        hi = codes.hi[first].astype(np.uint64)
        self.cells = (hi >> np.uint64(64 - CELL_BITS)).astype(np.int64)
        shape = len(self.topology.hosts), len(self.batch)
        self.reached, self.wants = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
        entries: dict[int, dict[int, set[int]]] = {}
        for i, each in enumerate(self.wanted):
            for dz in plan.cover(each, budget=self.budget):
                assert isinstance(dz, Dz)
                entries.setdefault(dz.length, {}).setdefault(dz.bits, set()).add(i % shape[0])
        for length, values in entries.items():
            prefix = hi >> np.uint64(64 - length) if length else np.zeros(shape[1], np.uint64)
            for value in np.unique(prefix).tolist():
                if value in values:
                    rows = np.array(sorted(values[value]), np.int64)
                    self.reached[np.ix_(rows, np.flatnonzero(prefix == value))] = True
        matcher = Matcher(self.schema)
        matcher.add_many(range(len(self.wanted)), self.wanted)
        found = matcher.match_batch(self.batch)
        self.wants[found.keys % shape[0], found.events] = True
        assert not (self.wants & ~self.reached).any()  # no false negative

    @property
    def sources(self) -> list[str]:
        """The hosts that publish."""
        hosts = self.topology.hosts
        return [hosts[i * len(hosts) // self.publishers] for i in range(self.publishers)]

    def own_links(self) -> int:
        """False positives on publishers' own links: events that nobody wants."""
        return int((~self.wants.any(axis=0)).sum())

    def model(self, count: int) -> tuple[Model, list[Dz]]:
        """What each link carries in vain, exactly, by publisher and cluster; and the clusters."""
        vain = (self.reached & ~self.wants).sum(axis=0).astype(np.float64)
        regions = clusters(self.cells, vain, CELL_BITS, count)
        cluster = numbered(self.cells, CELL_BITS, regions)
        switches = self.topology.switches
        number = {name: i for i, name in enumerate(switches)}
        at = np.array([number[self.topology.attachment(host).switch] for host in self.topology.hosts])
        columns: list[list[Any]] = [[] for _ in range(7)]
        for p, host in enumerate(self.sources):
            mine = np.arange(p, len(self.batch), self.publishers)
            self._rows(columns, self.topology.attachment(host).switch, number, at, mine, cluster[mine], len(regions))
        node, parent, depth, cells = (np.array(each, np.int64) for each in columns[:4])
        link, hosts, wanted = (np.array(each, np.float64) for each in columns[4:])
        return Model(switches, node, parent, depth, cells, link, hosts, wanted), regions

    def _rows(
        self,
        columns: list[list[Any]],
        origin: str,
        number: dict[str, int],
        at: npt.NDArray[np.int64],
        mine: npt.NDArray[np.int64],
        cluster: npt.NDArray[np.int64],
        count: int,
    ) -> None:
        order, above, depth = [origin], {origin: ""}, {origin: 0}
        for switch in order:
            for peer in self.tree.tree_ports(switch).values():
                if peer not in above:
                    above[peer], depth[peer] = switch, depth[switch] + 1
                    order.append(peer)
        reached = np.zeros((len(number), len(mine)), np.bool_)
        wants = np.zeros_like(reached)
        hosts = np.zeros((len(number), len(mine)), np.int64)
        wanted = np.zeros_like(hosts)
        np.logical_or.at(reached, at, self.reached[:, mine])
        np.logical_or.at(wants, at, self.wants[:, mine])
        np.add.at(hosts, at, self.reached[:, mine] & ~self.wants[:, mine])
        np.add.at(wanted, at, self.wants[:, mine])
        for switch in reversed(order[1:]):
            i, j = number[switch], number[above[switch]]
            reached[j] |= reached[i]
            wants[j] |= wants[i]
        which = np.zeros((len(mine), count))
        which[np.arange(len(mine)), cluster] = 1.0
        vain, got = (reached & ~wants) @ which, reached @ which
        at_hosts, delivered = hosts @ which, wanted @ which
        for each in range(count):
            where: dict[str, int] = {}
            for switch in order:
                i = number[switch]
                if got[i, each]:
                    where[switch] = len(columns[0])
                    root = switch == origin
                    row = (i, -1 if root else where[above[switch]], depth[switch], each)
                    counts = (0.0 if root else vain[i, each], at_hosts[i, each], delivered[i, each])
                    for column, value in zip(columns, (*row, *counts), strict=True):
                        column.append(value)

    def observations(self) -> list[Observation]:
        """What subscribers report of all this: the largest counts of each."""
        found = []
        attached = [self.topology.attachment(host).switch for host in self.topology.hosts]
        origins = [self.topology.attachment(host).switch for host in self.sources]
        source = np.arange(len(self.batch)) % self.publishers
        key = self.cells * self.publishers + source
        keys, which = np.unique(key, return_inverse=True)
        for host, switch in enumerate(attached):
            wanted = np.bincount(which, self.wants[host], len(keys))
            total = np.bincount(which, self.reached[host], len(keys))
            for i in np.argsort(-total, kind="stable")[:MAX_CELLS].tolist():
                if total[i]:
                    cell, p = divmod(int(keys[i]), self.publishers)
                    found.append(
                        Observation(f"p{p}", origins[p], cell, switch, float(wanted[i]), float(total[i] - wanted[i]))
                    )
        return found
