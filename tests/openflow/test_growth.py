"""Switches that come while the fabric runs: found, used and shown; and strangers that disturb nobody."""

import asyncio
import contextlib
import json
import random
import socket
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.dataplane import namespaces
from sievenet.dataplane.openflow.discovery import SILENCE, Discovery, Names, lldp
from sievenet.errors import InvalidInput
from sievenet.network import parse_topology
from tests.openflow.foreign import HOSTS, Foreign
from tests.openflow.test_existing import SIEVENET, URL, Process

KEY = b"a key"


def ends(topology, numbers, switch):
    """(port, frame's sender and port) of the links of a switch."""
    for port, peer in topology.ports(switch).items():
        if topology.is_switch(peer):
            to, to_port = topology.peer_port(switch, port)
            yield numbers[to], to_port, lldp(numbers[switch], port, KEY)


@given(st.permutations(range(1, 6)), st.integers(0, 4))
def test_names_stay_and_only_what_is_linked_belongs(order, later):
    """Whatever the order in which switches come, those that are there keep their names."""
    topology = parse_topology("line,switches=5,hosts=1")
    numbers = {f"s{i}": 16 * (1 + order.index(i)) for i in order}
    discovery = Discovery(KEY)
    first = [f"s{i}" for i in range(1, 2 + later)]
    names = {}
    for now, switch in enumerate([*first, *sorted(set(topology.switches) - set(first))]):
        discovery.switch(numbers[switch], frozenset(topology.ports(switch)), now * 10.0)
        if switch in first[:-1]:
            continue
        for each in topology.switches:
            if numbers[each] in discovery.ports:
                for to, port, frame in ends(topology, numbers, each):
                    discovery.heard(to, port, frame)
        found = discovery.found(now * 10.0 + 2 * SILENCE)
        assert names.items() <= found.datapaths.items()
        names = found.datapaths
        assert set(names) == set(discovery.ports)
    assert len(found.topology.links) == len(topology.links)
    for switch in topology.switches:
        ours = sum(topology.is_switch(peer) for peer in topology.ports(switch).values())
        assert len(found.topology.neighbours(names[numbers[switch]])) == ours


def test_a_switch_without_links_waits_and_a_port_is_a_host_only_after_silence():
    discovery = Discovery(KEY)
    discovery.switch(1, frozenset({1, 2}))
    assert discovery.found().topology.hosts == ("h1", "h2")
    discovery.switch(9, frozenset({5, 6}), 10.0)
    assert discovery.found(100.0).topology.switches == ("s1",)
    # Forged, and damaged: no key, somebody else's.
    assert not discovery.heard(1, 2, lldp(9, 5))
    assert not discovery.heard(1, 2, lldp(9, 5, b"another"))
    assert discovery.heard(1, 2, lldp(9, 5, KEY))
    assert not discovery.heard(1, 2, lldp(9, 5, KEY))
    found = discovery.found(10.0 + SILENCE / 2)
    # Where a host was thought to be is a link, and of the new ports nobody knows yet.
    assert found.topology.switches == ("s1", "s2")
    assert found.topology.hosts == ("h1",)
    assert found.topology.neighbours("s1") == ("s2",)
    assert discovery.found(10.0 + SILENCE).topology.hosts == ("h1", "h3")
    # A cable that is moved to another port of the same two switches, and one beside it that is not used.
    discovery.switch(9, frozenset({6, 7}), 20.0)
    assert discovery.heard(1, 2, lldp(9, 7, KEY))
    assert discovery.found(21.0).topology.peer_port("s1", 2) == ("s2", 7)
    discovery.forget(9)


def test_names_outlive_the_daemon(tmp_path):
    file = tmp_path / "state" / "network.json"
    assert Names.load(None) == Names.load(file) == Names({}, {})
    names = Names({0xA1: "s1", 0x2B: "s3"}, {(0xA1, 9): "h2"})
    names.save(file)
    assert Names.load(file) == names
    discovery = Discovery(KEY, Names.load(file))
    for number in (0x2B, 0xA1, 0x01):
        discovery.switch(number, frozenset({9}))
    assert discovery.found().datapaths == {0xA1: "s1", 0x2B: "s3", 0x01: "s4"}
    assert discovery.found().topology.ports("s1") == {9: "h2"}
    for bad in (
        "{",
        '{"switches": {}}',
        '{"switches": {"x": "s1"}, "hosts": {}}',
        '{"switches": {"1": "q"}, "hosts": {}}',
    ):
        file.write_text(bad)
        with pytest.raises(InvalidInput, match=r"network\.json"):
            Names.load(file)


@pytest.mark.root
@pytest.mark.ovs
@pytest.mark.xdist_group("ovs")
@pytest.mark.slow
def test_a_switch_that_comes_late_is_used(tmp_path):
    settings = (
        f'dataplane = "openflow"\nstate = "{tmp_path}/state"\n[openflow]\nlisten = "127.0.0.1:6653"\nswitches = 2\n'
    )
    (tmp_path / "fabric.toml").write_text(settings)
    with Foreign() as network:
        network.point_to(6653, ["left", "middle"])
        command = [*SIEVENET, "up", "--config", str(tmp_path / "fabric.toml"), "--schema", "stock", "--every", "200ms"]
        left, right = map(network.host, HOSTS)
        with Process(network.switches, *command) as daemon:
            assert "2 switches" in daemon.line("is up")
            strangers = [namespaces.inside(f"{network.switches}", stranger) for _ in range(5)]
            network.point_to(6653, ["right"])
            asked = [*SIEVENET, "topo", "--url", "sievenet://127.0.0.1:7400", "--json"]
            deadline = time.monotonic() + 40
            while True:
                shown = json.loads(network.inside(network.switches, *asked))
                if len(shown["switches"]) == 3 and len(shown["hosts"]) == 2:
                    break
                assert time.monotonic() < deadline, shown
                speak(strangers)
            assert all(switch["up"] for switch in shown["switches"])
            status = network.inside(
                network.switches, *SIEVENET, "status", "--url", "sievenet://127.0.0.1:7400", "--json"
            )
            assert len(json.loads(status)["switches"]) == 3
            # From a host at the first switch to one at the switch that came last.
            listening = [*SIEVENET, "sub", "--url", URL, "stock: price > 420", "--count", "1", "--json"]
            with Process(right, *listening) as subscriber:
                subscriber.line("subscribed to")
                said = "stock: symbol=IBM, price={}, volume=1200"
                speak(strangers)
                network.inside(left, *SIEVENET, "pub", "--url", URL, said.format(410), said.format(421.5))
                assert json.loads(subscriber.line("{"))["event"]["price"] == 421.5
            for each in strangers:
                each.close()


def stranger():
    """Something that connects as switches do."""
    sock = socket.socket()
    sock.settimeout(5)
    sock.connect(("127.0.0.1", 6653))
    return sock


def speak(strangers):
    """Garbage of several kinds, as long as they are listened to."""
    rng = random.Random(1)
    for i, sock in enumerate(strangers):
        said = rng.randbytes(200) if i % 2 else b"\x04\x00\x00\x08\x00\x00\x00\x00" + rng.randbytes(100)
        if i == 4:
            # Greets, says who it is (datapath 0x77), and then answers no question.
            said = (
                b"\x04\x00\x00\x08\x00\x00\x00\x00"
                + b"\x04\x06\x00\x20\x00\x00\x00\x01"
                + bytes(7)
                + b"\x77"
                + bytes(16)
            )
        with contextlib.suppress(OSError):
            sock.sendall(said)


def test_the_clock_of_the_plane_moves_on_without_anybody():
    """Looking for what is new ends with the plane."""
    from sievenet.dataplane.openflow.plane import OpenFlowDataPlane

    async def main():
        plane = OpenFlowDataPlane(parse_topology("line,switches=2"), {1: "s1", 2: "s2"}, discovery=Discovery(KEY))
        await plane.start(port=0)
        await asyncio.sleep(0)
        await plane.close()
        assert all(task.done() for task in plane._tasks)

    asyncio.run(main())
