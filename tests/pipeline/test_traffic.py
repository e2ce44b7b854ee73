"""Traffic per prefix, link and host against plain counting."""

import collections
import contextlib
import itertools
import json

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

import sievenet.sync
from sievenet.cli import main
from sievenet.errors import InvalidInput
from sievenet.index import Plan
from sievenet.network import parse_topology, spanning_trees
from sievenet.pipeline.deployment import Deployment
from sievenet.pipeline.interests import Wanted
from sievenet.pipeline.traffic import dz_of, network_traffic, prefix_traffic
from sievenet.tuning.clusters import rectangles
from sievenet.tuning.covers import Covers, Interests
from sievenet.tuning.deliveries import Deliveries
from sievenet.tuning.subspace import subspace_plan
from sievenet.workload import Hotspots, grid
from sievenet.workload.samples import load_schema
from tests.fabric.harness import fabric_in_thread

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
        found = prefix_traffic(events_table(BATCH, publishers=who), plan, 5).to_pylist()
        codes = plan.encode_batch(BATCH)
        expected = {}
        for i in range(len(codes)):
            key = (who[codes.row[i]], codes.dz(i, 5))
            expected[key] = expected.get(key, 0) + 1
        assert {(r["publisher"], dz_of(r["dz"])): r["packets"] for r in found} == expected
    (whole,) = prefix_traffic(events_table(BATCH), Plan.regular(LOAD.schema, 16), 0).to_pylist()
    assert whole["packets"] == 300
    with pytest.raises(InvalidInput, match="prefixes of 0 to 32 bits, got 33"):
        prefix_traffic(events_table(BATCH), Plan.regular(LOAD.schema, 16), 33)


@pytest.mark.parametrize(("shape", "spread"), [("line,switches=3", 1), ("tree", 1), ("fattree,k=4", 2)])
def test_links_and_clients(events_table, shape, spread):
    topology = parse_topology(shape)
    trees = spanning_trees(topology, spread)
    # More clients than hosts: each has a port of its own, and gets its own packet.
    hosts = {f"c{i}": topology.hosts[i % len(topology.hosts)] for i in range(20)}
    place = np.arange(len(SUBS)) % 20
    clients = tuple(f"c{i}" for i in place)
    wanted = Wanted(LOAD.schema, tuple(SUBS), clients, tuple(hosts[c] for c in clients))
    deployment = Deployment(LOAD.schema, wanted, clients, hosts, topology, trees)
    publishers = {"c0": topology.hosts[0], "b": topology.hosts[-1]}
    who = ["c0" if i % 3 else "b" for i in range(300)]
    times = np.arange(300, dtype=np.int64) * 10_000
    plan = Plan.regular(LOAD.schema, 16)
    covers = Covers.of(plan, Interests.of(LOAD.schema, SUBS), 4)
    found = network_traffic(events_table(BATCH, times, who), plan, covers, deployment.sites({"b": publishers["b"]}))
    deliveries = Deliveries(plan, covers, len(SUBS))
    codes = plan.encode_batch(BATCH)
    links, seconds = {}, {}
    for i in range(300):
        tree = trees[int(codes.hi[i]) >> 64 - (spread - 1)] if spread > 1 else trees[0]
        switch = topology.attachment(publishers[who[i]]).switch
        owners = np.flatnonzero(deliveries.per_subscription(BATCH.take([i]))[1])
        crossed = {(who[i], switch)}
        for client in {f"c{place[o]}" for o in owners.tolist()} - {who[i]}:
            second = client, int(times[i] // 1_000_000)
            seconds[second] = seconds.get(second, 0) + 1
            path = tree.path(switch, topology.attachment(hosts[client]).switch)
            crossed |= set(itertools.pairwise(path)) | {(topology.attachment(hosts[client]).switch, client)}
        for link in crossed:
            links[link] = links.get(link, 0) + 1
    assert {link: packets for link, packets in found.links.items() if packets} == links
    assert found.transmissions == sum(links.values())
    assert found.seconds == seconds
    assert found.peaks() == {h: max(n for (x, _), n in seconds.items() if x == h) for h in {h for h, _ in seconds}}
    with pytest.raises(InvalidInput, match="a host of the topology"):
        deployment.sites({"b": "nowhere"})


def test_prediction_equals_the_counters_of_the_fabric(spark, tmp_path, monkeypatch):
    """From the command line: a fabric with two categories, a plan of regions, several clients at one host."""
    monkeypatch.chdir(tmp_path)
    batch = LOAD.events(400)
    names = list(LOAD.schema.positions)
    rows = [",".join(["time", "publisher", *names])]
    rows += [",".join([str(1_700_000_000 + i), "market", *map(str, e.values)]) for i, e in enumerate(batch)]
    (tmp_path / "trace.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "grid.json").write_bytes(LOAD.schema.to_json())
    # Rectangles that overlap, with several codes per event or one, and subspaces.
    several = Plan.combined(LOAD.schema, 20, mbrs=rectangles(LOAD.schema, SUBS, 3), rest=True)
    tiles = subspace_plan(batch, np.ones(len(batch), np.int64), 20, 4)
    plans = [several, msgspec.structs.replace(several, once=True), tiles]
    for number, plan in enumerate(plans):
        (tmp_path / f"plan{number}.json").write_bytes(plan.to_json())

    def call(*arguments):
        result = CliRunner().invoke(main, list(arguments))
        assert result.exit_code == 0, f"{result.stderr}\n{result.exception!r}"
        return result.stdout

    with (
        fabric_in_thread(topology="testbed", state=str(tmp_path / "state"), control__forwarding_delay=0.01) as daemon,
        contextlib.ExitStack() as stack,
    ):
        monkeypatch.setenv("SIEVENET_URL", daemon.url)
        for i in range(6):
            node = stack.enter_context(sievenet.sync.connect(daemon.url, name=f"s{i}", host=f"h{1 + i % 4}"))
            node.schema(load_schema("stock"))
            node.schema(LOAD.schema)
            for wanted in SUBS[i * 2 : i * 2 + 2]:
                node.subscribe(wanted)
        for number in range(len(plans)):
            call("plan", "apply", f"plan{number}.json")
            call("pub", "--schema", "grid", "--file", "trace.csv", "--name", "market", "--host", "h2")
        kept = json.loads(call("pipeline", "snapshot", "store", "state/journal.db", "--topology", "testbed", "--json"))
        counted = json.loads(call("topo", "--json"))
    call("pipeline", "ingest", "store", "trace.csv", "--schema", "grid.json")
    found = collections.Counter()
    for number in range(len(plans)):
        # The last plan is the snapshot's own.
        chosen = ["--plan", f"plan{number}.json"] if number < len(plans) - 1 else []
        said = call(
            "pipeline", "traffic", "store", "grid", "--snapshot", kept["id"], "--at", "market=h2", *chosen, "--json"
        )
        found.update({(k["from"], k["to"]): k["packets"] for k in json.loads(said)["links"]})
    topology = parse_topology("testbed")
    between = [k for k in counted["links"] if topology.is_switch(k["a"]) and topology.is_switch(k["b"])]
    links = {(k["a"], k["b"]): k["forth"] for k in between} | {(k["b"], k["a"]): k["back"] for k in between}
    ports = {(p["switch"], p["client"]): p["out"] for p in counted["ports"]}
    seen = {link: packets for link, packets in (links | ports).items() if packets}
    assert found.pop(("market", topology.attachment("h2").switch)) == sum(
        len(plan.encode_batch(batch)) for plan in plans
    )
    assert {link: packets for link, packets in found.items() if packets} == seen
    assert len(seen) > len(ports)
