"""The contract suite on real Open vSwitch."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from sievenet.dataplane import namespaces
from sievenet.dataplane.openflow.channel import Refused
from sievenet.dataplane.openflow.ovs import OvsNetwork
from sievenet.dataplane.openflow.tables import Table
from sievenet.errors import Rejected
from sievenet.index import Cell, Dz
from sievenet.network import Add, Delete, Flow, FlowTable, Match, parse_topology
from sievenet.testing.dataplane_contract import CAPACITY, CHECKS, with_harness
from tests.openflow.harness import make_network, on_ovs, remove_network

pytestmark = [pytest.mark.root, pytest.mark.ovs, pytest.mark.xdist_group("ovs")]


#: Checks in which links matter; the others would say the same twice.
LINKED = ("check_packets_follow_tables", "check_counters", "check_departed", "check_switch_failure")
LINKED += ("check_link_failure",)


@pytest.fixture(scope="module")
def network():
    # Room for the entry that counts what nobody wanted.
    network = make_network(capacity=CAPACITY + 1)
    yield network
    remove_network(network)


@pytest.fixture(scope="module")
def patched():
    network = make_network(kind="svp", links="patch")
    yield network
    remove_network(network)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_open_vswitch(network, check):
    asyncio.run(with_harness(partial(on_ovs, network), check))


@pytest.mark.parametrize("check", [c for c in CHECKS if c.__name__ in LINKED], ids=lambda check: check.__name__)
def test_switches_joined_by_patches(patched, check):
    asyncio.run(with_harness(partial(on_ovs, patched), check))


def test_packets_out_and_in(network):
    """What the controller lets one switch send, the next switch gives back to the controller."""

    async def main():
        async with on_ovs(network) as harness:
            plane, came = harness.plane, []
            plane.on_packet = lambda switch, packet: came.append((switch, packet.in_port, packet.data))
            frame = bytes.fromhex("0180c200000e025356000001") + b"\x88\xcc" + b"who is there".ljust(50, b"\0")
            topology = plane.topology
            plane.send_packet("s1", topology.port("s1", "s2"), frame)
            for _ in range(500):
                if came:
                    break
                await asyncio.sleep(0.01)
            assert came == [("s2", topology.port("s2", "s1"), frame)]

    asyncio.run(main())


def test_capacity_is_known_and_a_full_table_says_which_change(network):
    async def main():
        async with on_ovs(network) as harness:
            plane = harness.plane
            assert (await plane.counters("s1")).capacity == CAPACITY + 1
            flows = [Flow.of(1, Dz(i, 10), 1) for i in range(CAPACITY + 5)]
            with pytest.raises(Refused, match=r"Switch s1 refuses change 65: table full") as caught:
                await plane.apply("s1", [Add(flow) for flow in flows])
            assert (caught.value.change, caught.value.partly) == (CAPACITY, False)
            assert len(await plane.table("s1")) == 0

    asyncio.run(main())


def test_tables_of_ports_run_out_and_are_used_again(network):
    def cell(text, port):
        return Flow(Match(1, Cell.parse(text)), frozenset({port}), 2, table=port)

    async def main():
        async with on_ovs(network) as harness:
            plane = harness.plane
            tables = plane._switches["s1"]._translator.tables
            tables.limit(range(4))
            assert not plane.per_port  # plans of kind cells are refused then
            tables.limit(range(254))
            assert plane.per_port
            tables.last = Table.FIRST + 1
            first = [cell("1*0", 1), cell("0*0", 1), cell("1*1", 2)]
            await plane.apply("s1", [Add(flow) for flow in first])
            with pytest.raises(Rejected, match=r"Switch s1 has tables for 2 out ports .* kind dz"):
                await plane.apply("s1", [Delete(first[0]), Add(cell("1*0", 3))])
            assert await plane.table("s1") == FlowTable(first)
            # Where nothing is left of a port's cells, another port gets the table.
            await plane.apply("s1", [Delete(flow) for flow in first[:2]])
            await plane.apply("s1", [Delete(first[0]), Add(cell("1*0", 3))])
            assert await plane.table("s1") == FlowTable([first[2], cell("1*0", 3)])

    asyncio.run(main())


def test_what_a_crash_left_is_removed_and_what_runs_is_adopted():
    topology = parse_topology("line,switches=1")
    network = make_network(topology, "svc")
    try:
        assert not network.adopt()
        network.connect()
        assert OvsNetwork(topology, network.name, run_dir=network.run_dir).prepare()
        network.kill_switches()
        other = OvsNetwork(parse_topology("line,switches=2"), network.name, run_dir=network.run_dir)
        assert not other.prepare()
        assert len(namespaces.listing(f"{network.name}-")) == 3
    finally:
        remove_network(network)
    assert namespaces.listing(f"{network.name}-") == []


def test_switches_keep_their_memory(network):
    """A switch that looks at its ports gets no memory from the system for it: that took longer than forwarding."""
    network.connect()

    def faults() -> int:
        pid = (network.run_dir / "ovs-vswitchd.pid").read_text().strip()
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[7])

    network.control("version")
    before = faults()
    for _ in range(10):
        network.control("version")
    assert faults() - before < 100
