"""The control plane as tables: what the journal of a real fabric leads to is what its switches have."""

import contextlib
import json

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import sievenet
from sievenet.cli import main
from sievenet.content import Subscription
from sievenet.network import parse_topology
from sievenet.network.files import load_topology
from sievenet.pipeline.interests import load_wanted
from sievenet.pipeline.snapshot import keep_snapshot, take_snapshot
from sievenet.pipeline.store import Store
from sievenet.workload import Hotspots, grid
from tests.fabric.harness import fabric, run
from tests.pipeline.test_interests import journal

LOAD = Hotspots(schema=grid(3, hi=255), selectivity=0.2, seed=4)
WANTED = LOAD.subscriptions(12).filters()
SHAPE = "fattree,k=4"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """The folder of a fabric that has ended, and the tables that its switches had."""
    folder = tmp_path_factory.mktemp("fabric")

    async def live():
        async with fabric(topology=SHAPE, state=str(folder)) as daemon, contextlib.AsyncExitStack() as stack:
            publisher = await stack.enter_async_context(sievenet.connect(daemon.url, name="p", host="h1"))
            await publisher.advertise(LOAD.schema)
            for i, wanted in enumerate(WANTED):
                node = await stack.enter_async_context(sievenet.connect(daemon.url, name=f"s{i}", host=f"h{2 + i}"))
                await node.subscribe(wanted, callback=lambda event: None)
            topology = daemon.plane.topology
            tables = {switch: await daemon.plane.table(switch) for switch in topology.switches}
            # Read while all of it is there: clients that leave take their registrations back.
            return take_snapshot(folder / "journal.db", topology), tables

    return run(live())


def seen(topology, switch, flows):
    """The flows of a switch, its clients' ports only counted: which ones they get depends on the moment."""
    known = {port for port, peer in topology.ports(switch).items() if topology.is_switch(peer)}
    return sorted((str(f.match), f.priority, sorted(f.ports & known), len(f.ports - known)) for f in flows)


def test_flow_tables_are_those_of_the_fabric(world):
    snapshot, live = world
    assert sum(map(len, snapshot.tables.values())) > 20
    for switch, flows in snapshot.tables.items():
        assert seen(snapshot.topology, switch, flows) == seen(snapshot.topology, switch, live[switch])


@pytest.mark.spark
def test_kept_in_a_store_once(spark, world, tmp_path):
    snapshot, _ = world
    store = Store(spark, str(tmp_path / "store"))
    summary = keep_snapshot(store, snapshot)
    assert summary.categories == {"grid": (12, 1)}
    assert (summary.clients, summary.switches, summary.hosts, summary.elsewhere) == (13, 20, 16, 0)
    folder = tmp_path / "store" / "snapshots" / summary.id
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.*")}
    assert keep_snapshot(store, snapshot) == summary
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.*")} == before
    wanted = load_wanted(folder / "interests" / "grid.parquet", LOAD.schema)
    assert set(wanted.subscriptions) == {Subscription([f], LOAD.schema) for f in WANTED}
    assert load_topology((folder / "topology.json").read_bytes()) == snapshot.topology
    assert len(pq.read_table(folder / "links.parquet")) == summary.links
    flows = spark.read.parquet(str(folder / "flows.parquet"))
    assert flows.count() == summary.flows
    hosts = {peer for row in flows.select("peers").collect() for peer in row["peers"] if peer.startswith("h")}
    assert hosts <= {f"h{i}" for i in range(2, 14)}
    (category,) = json.loads((folder / "categories.json").read_bytes())
    assert (category["name"], category["schema"]["name"], category["plan"]["version"]) == ("grid", "grid", 1)


@pytest.mark.spark
def test_command(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    journal(tmp_path / "journal.db")
    arguments = ["pipeline", "snapshot", "store", "journal.db", "--topology", "line,switches=2"]
    said = CliRunner().invoke(main, [*arguments, "--report", "report"])
    assert said.exit_code == 0, said.stderr
    assert "grid: 2 subscriptions, 1 advertisements" in said.stdout
    again = json.loads(CliRunner().invoke(main, [*arguments, "--json"]).stdout)
    assert f"snapshot {again['id']}:" in said.stdout
    assert [p.name for p in (tmp_path / "store" / "snapshots").glob("*.json")] == [f"{again['id']}.json"]
    missing = CliRunner().invoke(main, ["pipeline", "snapshot", "store", "none.db", "--topology", "testbed"])
    assert missing.exit_code != 0
    assert "no such file" in missing.stderr


def test_hosts_that_the_network_has_not(tmp_path):
    journal(tmp_path / "journal.db")
    small = take_snapshot(tmp_path / "journal.db", parse_topology("line,switches=1"))
    assert small.elsewhere == 1
    other = take_snapshot(tmp_path / "journal.db", parse_topology("line,switches=2"))
    assert (other.elsewhere, other.id != small.id) == (0, True)
