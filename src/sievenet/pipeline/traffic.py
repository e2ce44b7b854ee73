"""Traffic: how many packets each part of the event space, each link and each host gets.

    prefixes   packets per publisher and dz of so many bits: what merging flows would cost (aggregation)
    links      packets per direction of every link, as the fabric's switches count them (see `network`)
    hosts      packets per client and second: where bursts meet slow subscribers (placement of caches)

dz are whole numbers with a leading one: `1` followed by the bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from sievenet.errors import InvalidInput
from sievenet.index import Dz, Plan
from sievenet.pipeline.broadcast import Shared
from sievenet.pipeline.scan import summed
from sievenet.pipeline.tables import PUBLISHER, TIME, batch_of
from sievenet.tuning.covers import Covers
from sievenet.tuning.crossings import Crossings
from sievenet.tuning.deliveries import Deliveries
from sievenet.tuning.sites import Sites

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["PREFIXES", "NetworkTraffic", "dz_of", "network_traffic", "prefix_traffic"]

#: Longest prefixes that are counted.
MAX_PREFIX: Final = 32
PREFIXES: Final = pa.schema([("publisher", pa.string()), ("dz", pa.int64()), ("packets", pa.int64())])
_REACHED: Final = pa.schema(
    [("kind", pa.int32()), ("name", pa.string()), ("i", pa.int64()), ("j", pa.int64()), ("packets", pa.int64())]
)
_LINK, _PLACE, _SENT = range(3)


def dz_of(number: int) -> Dz:
    """The dz behind a number with a leading one."""
    length = int(number).bit_length() - 1
    return Dz(int(number) - (1 << length), length)


# -- prefixes -------------------------------------------------------------------------------------


def prefix_traffic(events: DataFrame, plan: Plan, length: int) -> pa.Table:
    """Packets per publisher and dz of ``length`` bits (`PREFIXES`)."""
    if not 0 <= length <= MAX_PREFIX:
        raise InvalidInput(expected=f"prefixes of 0 to {MAX_PREFIX} bits", got=length)
    shared = Shared(events.sparkSession, Plan.from_json, plan.to_json())
    work = partial(_prefixes, shared, length)
    return summed(events, plan.schema, work, PREFIXES, ("publisher", "dz"), (PUBLISHER,))


def _prefixes(shared: Shared[Plan], length: int, parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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
            [publishers, pa.array(keys[1]), pa.array(counts.astype(np.int64))], schema=PREFIXES
        )


# -- links and hosts --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class NetworkTraffic:
    """Packets per direction of each link, and per client and second."""

    #: From and to: switches, and clients at the edge.
    links: dict[tuple[str, str], int]
    #: Packets that a client got, by the second.
    seconds: dict[tuple[str, int], int]

    @property
    def transmissions(self) -> int:
        """Packets over all links."""
        return sum(self.links.values())

    def peaks(self) -> dict[str, int]:
        """The most packets that each client gets in one second."""
        found: dict[str, int] = {}
        for (client, _), count in self.seconds.items():
            found[client] = max(found.get(client, 0), count)
        return found


def network_traffic(
    events: DataFrame,
    plan: Plan,
    covers: Covers,
    sites: Sites,
) -> NetworkTraffic:
    """What a plan sends where."""
    network = sites.network
    shared = Shared(events.sparkSession, _reaching, plan.to_json(), covers, sites)
    keys = ("kind", "name", "i", "j")
    work = lambda parts: _reached(shared.get(), parts)  # noqa: E731
    found = summed(events, plan.schema, work, _REACHED, keys, (TIME, PUBLISHER)).to_pylist()
    links = dict.fromkeys(network.links, 0)
    links |= {(network.switches[network.at[i]], name): 0 for i, name in enumerate(network.places)}
    seconds: dict[tuple[str, int], int] = {}
    for row in found:
        i, packets = row["i"], row["packets"]
        if row["kind"] == _LINK:
            links[network.links[i]] = packets
        elif row["kind"] == _SENT:
            links[row["name"], network.switches[i]] = packets
        else:
            seconds[network.places[i], row["j"]] = packets
            links[network.switches[network.at[i]], network.places[i]] += packets
    return NetworkTraffic(links, seconds)


def _reaching(plan: bytes, covers: Covers, sites: Sites) -> tuple[Deliveries, Sites]:
    return Deliveries(Plan.from_json(plan), covers, len(sites.place)), sites


def _reached(state: tuple[Deliveries, Sites], parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    deliveries, sites = state
    network, plan = sites.network, deliveries.plan
    crossings = Crossings(network)
    seconds: dict[tuple[int, int], int] = {}
    sent: dict[tuple[str, int], int] = {}
    for part in parts:
        batch = batch_of(plan.schema, part)
        events, reached = deliveries.reached(batch, sites.place, len(network.places))
        names = part.column(PUBLISHER).dictionary_encode()
        who = names.dictionary.to_pylist()
        table = sites.located(who)
        number = np.asarray(names.indices.to_numpy(zero_copy_only=False), np.int64)[events]
        for i, count in enumerate(np.bincount(number, minlength=len(who)).tolist()):
            key = (who[i] or "", int(table[i, 0]))
            sent[key] = sent.get(key, 0) + count
        crossings.add(reached, table[number, 0], table[number, 1], deliveries.group(batch, network, len(events)))
        times = np.asarray(part.column(TIME).to_numpy(), np.int64)[events] // 1_000_000
        for place in range(len(network.places)):
            got = (reached[:, place >> 6] >> np.uint64(place & 63)) & np.uint64(1) == 1
            when, counts = np.unique(times[got], return_counts=True)
            for second, count in zip(when.tolist(), counts.tolist(), strict=True):
                seconds[place, second] = seconds.get((place, second), 0) + count
    rows: list[tuple[int, str, int, int, int]] = [
        (_LINK, "", link, 0, int(crossings.links[link])) for link in np.flatnonzero(crossings.links).tolist()
    ]
    rows += [(_PLACE, "", place, second, count) for (place, second), count in seconds.items()]
    rows += [(_SENT, name, switch, 0, count) for (name, switch), count in sent.items() if count]
    columns = zip(*rows, strict=True) if rows else ((), (), (), (), ())
    arrays = [pa.array(list(c), f.type) for c, f in zip(columns, _REACHED, strict=True)]
    yield pa.RecordBatch.from_arrays(arrays, schema=_REACHED)
