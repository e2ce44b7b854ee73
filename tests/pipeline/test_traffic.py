"""Traffic per prefix, link and host against plain counting."""

import itertools

import numpy as np
import pytest

from sievenet.errors import InvalidInput
from sievenet.index import Plan
from sievenet.index.clustering import rectangles
from sievenet.network import SpanningTree, parse_topology
from sievenet.pipeline.counting import Deliveries
from sievenet.pipeline.covers import Covers, Interests
from sievenet.pipeline.traffic import Network, dz_of, network_traffic, prefix_traffic
from sievenet.workload import Hotspots, grid

pytestmark = pytest.mark.spark

LOAD = Hotspots(schema=grid(3, hi=255), selectivity=0.2, seed=2)
BATCH = LOAD.events(300)
SUBS = LOAD.subscriptions(40).filters()


def test_prefixes(events_table):
    who = ["a" if i % 3 else "b" for i in range(300)]
    for plan in (
        Plan.regular(LOAD.schema, 16),
        Plan.combined(LOAD.schema, 16, mbrs=rectangles(LOAD.schema, SUBS, 3), rest=True),
    ):
        found = prefix_traffic(events_table(BATCH, publishers=who), plan, 5).collect()
        codes = plan.encode_batch(BATCH)
        expected = {}
        for i in range(len(codes)):
            key = (who[codes.row[i]], codes.dz(i, 5))
            expected[key] = expected.get(key, 0) + 1
        assert {(r["publisher"], dz_of(r["dz"])): r["packets"] for r in found} == expected
    (whole,) = prefix_traffic(events_table(BATCH), Plan.regular(LOAD.schema, 16), 0).collect()
    assert whole["packets"] == 300
    with pytest.raises(InvalidInput, match="prefixes of 0 to 32 bits, got 33"):
        prefix_traffic(events_table(BATCH), Plan.regular(LOAD.schema, 16), 33)


@pytest.mark.parametrize("shape", ["line,switches=3", "tree", "fattree,k=4"])
def test_links_and_hosts(events_table, shape):
    topology = parse_topology(shape)
    tree = SpanningTree.shortest(topology, topology.switches[0])
    network = Network.of(topology, tree)
    places = [network.hosts[i % len(network.hosts)] for i in range(len(SUBS))]
    publishers = {"a": network.hosts[0], "b": network.hosts[-1]}
    who = ["a" if i % 3 else "b" for i in range(300)]
    times = np.arange(300, dtype=np.int64) * 10_000
    plan = Plan.regular(LOAD.schema, 16)
    covers = Covers.of(plan, Interests.of(LOAD.schema, SUBS), 4)
    found = network_traffic(events_table(BATCH, times, who), plan, covers, places, network, publishers)
    deliveries = Deliveries(plan, covers, len(SUBS))
    links, hosts = dict.fromkeys(network.links, 0), {}
    for i in range(300):
        source = publishers[who[i]]
        owners = np.flatnonzero(deliveries.per_subscription(BATCH.take([i]))[1])
        reached = {places[o] for o in owners.tolist()}
        crossed = set()
        for host in reached:
            hosts[host, int(times[i] // 1_000_000)] = hosts.get((host, int(times[i] // 1_000_000)), 0) + 1
            if host == source:
                continue
            path = tree.path(topology.attachment(source).switch, topology.attachment(host).switch)
            crossed |= set(itertools.pairwise(path)) | {(topology.attachment(host).switch, host)}
        for link in crossed:
            links[link] += 1
    assert found.links == links
    assert found.hosts == hosts
    assert found.peaks() == {h: max(n for (x, _), n in hosts.items() if x == h) for h in {h for h, _ in hosts}}
    with pytest.raises(InvalidInput, match="a host of the topology"):
        network_traffic(events_table(BATCH), plan, covers, ["nowhere"] * len(SUBS), network, {})
