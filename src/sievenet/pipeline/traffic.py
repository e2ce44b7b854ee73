"""Traffic: how many packets each part of the event space, each link and each host gets.

    prefixes   packets per publisher and dz of so many bits: what merging flows would cost (aggregation)
    links      packets per direction of every link of a spanning tree, for a plan and its subscriptions
    hosts      packets per host and second: where bursts meet slow subscribers (placement of caches)

A packet crosses a link of the tree if, behind it, there is a subscription whose cover holds its code: flows on a tree
deliver the union of what is wanted behind a port.  So per packet a bitmap of the hosts it reaches is enough, and a
link's packets are those whose bitmap meets the hosts behind it.

dz are whole numbers with a leading one: `1` followed by the bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sievenet.errors import InvalidInput
from sievenet.index import Dz, Plan
from sievenet.network import SpanningTree, Topology
from sievenet.pipeline.broadcasting import Shared
from sievenet.pipeline.counting import Deliveries
from sievenet.pipeline.covers import Covers
from sievenet.pipeline.scan import mapped
from sievenet.pipeline.tables import PUBLISHER, TIME, batch_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["PREFIXES", "Network", "NetworkTraffic", "dz_of", "network_traffic", "prefix_traffic"]

#: Longest prefixes that are counted.
MAX_PREFIX: Final = 32
PREFIXES: Final = "publisher string, dz bigint, packets bigint"
_REACHED: Final = "kind int, i bigint, j bigint, packets bigint"
_REACHED_FIELDS: Final = pa.schema(
    [("kind", pa.int32()), ("i", pa.int64()), ("j", pa.int64()), ("packets", pa.int64())]
)
_LINK, _HOST = range(2)


def dz_of(number: int) -> Dz:
    """The dz behind a number with a leading one."""
    length = int(number).bit_length() - 1
    return Dz(int(number) - (1 << length), length)


# -- prefixes -------------------------------------------------------------------------------------


def prefix_traffic(events: DataFrame, plan: Plan, length: int) -> DataFrame:
    """Packets per publisher and dz of ``length`` bits (`PREFIXES`)."""
    from pyspark.sql import functions as f

    if not 0 <= length <= MAX_PREFIX:
        raise InvalidInput(expected=f"prefixes of 0 to {MAX_PREFIX} bits", got=length)
    shared = Shared(events.sparkSession, Plan.from_json, plan.to_json())
    rows = mapped(events, plan.schema, lambda parts: _prefixes(shared, parts, length), PREFIXES, (PUBLISHER,))
    return rows.groupBy("publisher", "dz").agg(f.sum("packets").alias("packets"))


def _prefixes(shared: Shared[Plan], parts: Iterable[pa.RecordBatch], length: int) -> Iterator[pa.RecordBatch]:
    plan = shared.get()
    for part in parts:
        codes = plan.encode_batch(batch_of(plan.schema, part))
        names = part.column(PUBLISHER).dictionary_encode()
        who = np.asarray(names.indices.to_numpy(zero_copy_only=False), np.int64)[codes.row]
        shifted = (codes.hi >> np.uint64(64 - length)).astype(np.int64) if length else np.zeros(len(codes), np.int64)
        marked = shifted | np.int64(1 << length)
        keys, counts = np.unique(np.stack([who, marked]), axis=1, return_counts=True)
        publishers = pa.array(names.dictionary.to_pylist(), pa.string()).take(pa.array(keys[0]))
        yield pa.RecordBatch.from_arrays(
            [publishers, pa.array(keys[1]), pa.array(counts.astype(np.int64))], names=["publisher", "dz", "packets"]
        )


# -- links and hosts --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """A spanning tree as bitmaps: per link the hosts behind it."""

    hosts: tuple[str, ...]
    #: Directions of links: from, to.
    links: tuple[tuple[str, str], ...]
    #: Links × words: the hosts behind each.
    behind: npt.NDArray[np.uint64]

    @staticmethod
    def of(topology: Topology, tree: SpanningTree | None = None) -> Network:
        """From a topology and one of its spanning trees."""
        tree = tree or SpanningTree.shortest(topology, topology.switches[0])
        hosts = tuple(topology.hosts)
        at = {host: topology.attachment(host).switch for host in hosts}
        links: list[tuple[str, str]] = []
        members: list[list[int]] = []
        for a, b in sorted(tree.links()):
            for source, target in ((a, b), (b, a)):
                links.append((source, target))
                members.append([i for i, h in enumerate(hosts) if tree.next_hop(source, at[h]) == target])
        for i, host in enumerate(hosts):
            links.append((at[host], host))
            members.append([i])
        behind = np.zeros((len(links), max(1, -(-len(hosts) // 64))), np.uint64)
        for row, inside in enumerate(members):
            for i in inside:
                behind[row, i >> 6] |= np.uint64(1) << np.uint64(i & 63)
        return Network(hosts, tuple(links), behind)

    def number(self, host: str) -> int:
        """A host's place."""
        if host not in self.hosts:
            raise InvalidInput(expected=f"a host of the topology ({', '.join(self.hosts[:8])} …)", got=host)
        return self.hosts.index(host)


@dataclass(frozen=True, slots=True, eq=False)
class NetworkTraffic:
    """Packets per direction of each link, and per host and second."""

    links: dict[tuple[str, str], int]
    hosts: dict[tuple[str, int], int]

    def peaks(self) -> dict[str, int]:
        """The most packets that each host gets in one second."""
        found: dict[str, int] = {}
        for (host, _), count in self.hosts.items():
            found[host] = max(found.get(host, 0), count)
        return found


def network_traffic(
    events: DataFrame,
    plan: Plan,
    covers: Covers,
    places: Sequence[str],
    network: Network,
    publishers: Mapping[str, str],
    default: str | None = None,
) -> NetworkTraffic:
    """What a plan sends where: ``places`` has the host of each subscription, ``publishers`` that of each publisher.

    Publishers that are not named are at the host ``default`` (the first, if it is not given).
    """
    from pyspark.sql import functions as f

    place = np.array([network.number(host) for host in places], np.int64)
    known = {name: network.number(host) for name, host in publishers.items()}
    other = network.number(default) if default else 0
    shared = Shared(events.sparkSession, _reaching, plan.to_json(), covers, place, network, known, other)
    rows = mapped(events, plan.schema, lambda parts: _reached(shared.get(), parts), _REACHED, (TIME, PUBLISHER))
    found = rows.groupBy("kind", "i", "j").agg(f.sum("packets").alias("packets")).collect()
    links = dict.fromkeys(network.links, 0)
    hosts: dict[tuple[str, int], int] = {}
    for row in found:
        if row["kind"] == _LINK:
            links[network.links[row["i"]]] = row["packets"]
        else:
            hosts[network.hosts[row["i"]], row["j"]] = row["packets"]
    return NetworkTraffic(links, hosts)


@dataclass(frozen=True, slots=True, eq=False)
class _Reaching:
    deliveries: Deliveries
    place: npt.NDArray[np.int64]
    network: Network
    known: dict[str, int]
    other: int


def _reaching(
    plan: bytes, covers: Covers, place: npt.NDArray[np.int64], network: Network, known: dict[str, int], other: int
) -> _Reaching:
    return _Reaching(Deliveries(Plan.from_json(plan), covers, len(place)), place, network, known, other)


def _reached(state: _Reaching, parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    network, plan = state.network, state.deliveries.plan
    links = np.zeros(len(network.links), np.int64)
    seconds: dict[tuple[int, int], int] = {}
    for part in parts:
        events, reached = state.deliveries.reached(batch_of(plan.schema, part), state.place, len(network.hosts))
        names = part.column(PUBLISHER).dictionary_encode()
        table = np.array([state.known.get(n, state.other) for n in names.dictionary.to_pylist()], np.int64)
        source = table[np.asarray(names.indices.to_numpy(zero_copy_only=False), np.int64)][events]
        times = np.asarray(part.column(TIME).to_numpy(), np.int64)[events] // 1_000_000
        word, bit = source >> 6, np.uint64(1) << (source & 63).astype(np.uint64)
        for number, behind in enumerate(network.behind):
            # Away from the publisher only: a link whose far side holds it is crossed the other way.
            away = (behind[word] & bit) == 0
            crossed = away & (reached & behind).any(axis=1)
            links[number] += int(crossed.sum())
        for host in range(len(network.hosts)):
            got = (reached[:, host >> 6] >> np.uint64(host & 63)) & np.uint64(1) == 1
            when, counts = np.unique(times[got], return_counts=True)
            for second, count in zip(when.tolist(), counts.tolist(), strict=True):
                seconds[host, second] = seconds.get((host, second), 0) + count
    some = np.flatnonzero(links)
    kinds = np.concatenate([np.full(len(some), _LINK), np.full(len(seconds), _HOST)]).astype(np.int32)
    i = np.concatenate([some, np.array([k[0] for k in seconds], np.int64)])
    j = np.concatenate([np.zeros(len(some), np.int64), np.array([k[1] for k in seconds], np.int64)])
    count = np.concatenate([links[some], np.array(list(seconds.values()), np.int64)])
    yield pa.RecordBatch.from_arrays([pa.array(c) for c in (kinds, i, j, count)], schema=_REACHED_FIELDS)
