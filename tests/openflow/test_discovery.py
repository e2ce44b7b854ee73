"""Finding a network by what its switches hear."""

import asyncio
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.dataplane.openflow.discovery import Discovery, Scout, lldp, read_lldp
from sievenet.errors import CodecError, InvalidInput, Unavailable
from sievenet.network import parse_topology
from tests.openflow.harness import make_network, remove_network


@given(st.integers(0, (1 << 64) - 1), st.integers(1, 999))
def test_frames(datapath, port):
    assert read_lldp(lldp(datapath, port)) == (datapath, port)
    assert len(lldp(datapath, port)) >= 60


@given(st.binary(max_size=100), st.integers(0, 80), st.integers(0, 255))
def test_frames_from_anybody(data, at, byte):
    damaged = bytearray(lldp(1, 2))
    if at < len(damaged):
        damaged[at] = byte
    for frame in (data, lldp(1, 2)[:14] + data, bytes(damaged), bytes(damaged[:at])):
        with contextlib.suppress(CodecError):
            read_lldp(frame)


@pytest.mark.parametrize("shape", ["line,switches=3,hosts=2", "testbed", "ring,switches=5", "fattree,k=4"])
def test_any_network_is_found(shape):
    """What every switch would hear in a topology gives that topology back, but for the names of hosts."""
    topology = parse_topology(shape)
    numbers = {switch: 100 + i for i, switch in enumerate(topology.switches)}
    discovery = Discovery()
    for switch, datapath in numbers.items():
        discovery.switch(datapath, frozenset(topology.ports(switch)) | {0xFFFFFFFE})
    for switch, datapath in numbers.items():
        for port, peer in topology.ports(switch).items():
            if topology.is_switch(peer):
                to, to_port = topology.peer_port(switch, port)
                discovery.heard(numbers[to], to_port, lldp(datapath, port))
    found = discovery.found()
    assert found.datapaths == {number: switch for switch, number in numbers.items()}
    assert len(found.topology.hosts) == len(topology.hosts)
    for switch in topology.switches:
        ours = {port: peer if topology.is_switch(peer) else "host" for port, peer in topology.ports(switch).items()}
        theirs = found.topology.ports(switch).items()
        assert {port: peer if found.topology.is_switch(peer) else "host" for port, peer in theirs} == ours


def test_strangers_say_nothing():
    discovery = Discovery()
    discovery.switch(1, frozenset({1}))
    discovery.heard(1, 1, lldp(99, 1))
    assert discovery.found().topology.hosts == ("h1",)


def test_switches_that_do_not_come():
    async def main():
        with pytest.raises(Unavailable, match="0 of 2 switches"):
            await Scout().look(2, port=0, timeout=0.05)
        with pytest.raises(InvalidInput):
            await Scout().look(0)

    asyncio.run(main())


@pytest.mark.root
@pytest.mark.ovs
@pytest.mark.xdist_group("ovs")
def test_open_vswitch_is_found():
    topology = parse_topology("ring,switches=4")
    network = make_network(topology, "svd")

    async def main():
        scout = Scout()
        looking = asyncio.create_task(scout.look(4, sock=network.controller_socket()))
        await asyncio.sleep(0)
        await asyncio.to_thread(network.connect)
        found = await looking
        assert found.datapaths == network.datapaths
        assert found.topology.hosts == topology.hosts
        for switch in topology.switches:
            assert found.topology.ports(switch) == topology.ports(switch)
        assert scout.malformed == 0

    try:
        asyncio.run(main())
    finally:
        remove_network(network)
