"""Carrying hosts' packets to the control plane and back."""

import asyncio
import struct
from ipaddress import IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.dataplane.hosts import host_commands
from sievenet.dataplane.openflow import tunnel
from sievenet.dataplane.openflow.inband import BURST, LONGEST, STAY, Ferry, InBand, Place
from sievenet.dataplane.openflow.messages import PacketIn
from sievenet.errors import InvalidInput, Unavailable
from sievenet.network import parse_topology

HERE, THERE = Place("s1", 2), Place("s2", 2)
CARD = bytes.fromhex("025356000001")


def packed(address):
    return IPv6Address(address).packed


def checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def echo(source="fd0f:1::7", target="fd0f::1", size=16, kind=128, protocol=58):
    """A frame with an echo request."""
    body = struct.pack(">BBHHH", kind, 0, 0, 1, 1) + bytes(size)
    pseudo = packed(source) + packed(target) + struct.pack(">II", len(body), protocol)
    body = body[:2] + struct.pack(">H", checksum(pseudo + body)) + body[4:]
    head = struct.pack(">IHBB", 6 << 28, len(body), protocol, 64) + packed(source) + packed(target)
    return CARD + CARD + b"\x86\xdd" + head + body


def test_there_and_back():
    ferry = Ferry()
    packet = ferry.inward(HERE, echo() + b"\0" * 7, 1.0)
    assert packet == echo()[14:]
    assert ferry.place_of("fd0f:1::7") == HERE
    answer = packet[:8] + packet[24:40] + packet[8:24] + packet[40:]
    assert ferry.outward(answer) == (HERE, CARD + CARD + b"\x86\xdd" + answer)
    assert (ferry.inward_packets, ferry.outward_packets, ferry.refused) == (1, 1, {})


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (echo()[:54], "short"),
        (echo(target="fd0f::2"), "not for us"),
        (echo()[:12] + b"\x08\x00" + echo()[14:], "not for us"),
        (echo()[:-1], "length"),
        (echo(size=LONGEST), "length"),
        (echo(kind=135), "protocol"),
        (echo(protocol=17), "protocol"),
        (echo(source="fd0e::7"), "source"),
        (echo(source="fd0f::1"), "source"),
        (echo()[:6] + b"\xff" + echo()[7:], "source"),
    ],
)
def test_what_is_not_carried(frame, reason):
    ferry = Ferry()
    assert ferry.inward(HERE, frame, 0.0) is None
    assert ferry.refused == {reason: 1}
    assert ferry.place_of("fd0f:1::7") is None


@given(st.binary(max_size=200), st.integers(0, 80), st.integers(0, 255))
def test_frames_from_anybody(data, at, byte):
    """Whatever comes, what is carried is a whole packet for us, and nothing raises."""
    ferry = Ferry()
    damaged = bytearray(echo())
    damaged[at % len(damaged)] = byte
    for frame in (data, echo()[:14] + data, bytes(damaged), bytes(damaged[:at])):
        packet = ferry.inward(HERE, frame, 0.0)
        if packet is not None:
            assert packet[24:40] == packed("fd0f::1")
            assert len(packet) == 40 + struct.unpack_from(">H", packet, 4)[0] <= LONGEST
        ferry.outward(data)
        ferry.outward(bytes(damaged[14:]))


def test_nobody_speaks_for_a_neighbour_but_hosts_may_move():
    ferry = Ferry()
    assert ferry.inward(HERE, echo(), 0.0)
    assert ferry.inward(THERE, echo(), STAY - 1) is None
    assert ferry.refused == {"somebody else's address": 1}
    assert ferry.place_of("fd0f:1::7") == HERE
    assert ferry.inward(THERE, echo(), STAY + 1)
    assert ferry.place_of("fd0f:1::7") == THERE


def test_each_port_has_a_rate():
    ferry = Ferry()
    assert sum(ferry.inward(HERE, echo(), 0.0) is not None for _ in range(int(BURST) + 9)) == BURST
    assert ferry.refused == {"too fast": 9}
    assert ferry.inward(THERE, echo(source="fd0f:1::8"), 0.0)
    assert ferry.inward(HERE, echo(), 0.01)


def test_memory_is_bounded():
    ferry = Ferry(known=2)
    for number in (1, 2, 3):
        assert ferry.inward(HERE, echo(source=f"fd0f:1::{number}"), 0.0)
    assert ferry.place_of("fd0f:1::1") is None
    assert ferry.place_of("fd0f:1::3") == HERE
    assert ferry.outward(echo(source="fd0f::1", target="fd0f:1::1")[14:]) is None
    assert ferry.refused == {"unknown host": 1}


def test_commands_of_hosts():
    assert "address add fd0f:2::7/128 dev eth1 nodad" in host_commands("eth1", "fd0f:2::7")
    for device, address in (("eth1", "fd0f::1"), ("eth1", "fd0e::1"), ("eth1", "home"), ("a b", "fd0f::7")):
        with pytest.raises(InvalidInput):
            host_commands(device, address)


class Plane:
    """Remembers what switches were told to send."""

    topology = parse_topology("line,switches=2,hosts=1")
    on_packet = None

    def __init__(self):
        self.sent = asyncio.Queue()

    def send_packet(self, switch, port, data):
        self.sent.put_nowait((switch, port, data))


@pytest.mark.root
def test_the_system_answers():
    async def main():
        plane = Plane()
        descriptor, sock = await asyncio.to_thread(tunnel.open_tunnel, 7400)
        with sock:
            assert sock.getsockname()[:2] == ("fd0f::1", 7400)
            in_band = InBand(plane, descriptor)
            home, link = plane.topology.port("s2", "h2"), plane.topology.port("s2", "s1")
            plane.on_packet("s2", PacketIn(link, 0, 0, echo(source="fd0f:1::9")))
            async with asyncio.timeout(60):
                while plane.sent.empty():  # a new device may lose the first packets, and hosts ask again
                    plane.on_packet("s2", PacketIn(home, 0, 0, echo()))
                    await asyncio.sleep(0.2)
            switch, port, frame = plane.sent.get_nowait()
            assert (switch, port) == ("s2", home)
            # An echo reply, from us to the host.
            assert frame[:14] == echo()[:14]
            assert frame[14 + 40] == 129
            assert frame[22:38] == packed("fd0f::1")
            assert in_band.host_of("fd0f:1::7") == "h2"
            assert in_band.host_of("fd0f:1::9") is None
            in_band.close()
            assert plane.on_packet is None

    asyncio.run(main())


def test_no_tunnel(monkeypatch):
    def refuse(port):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(tunnel, "_made", refuse)
    with pytest.raises(Unavailable, match="Operation not permitted"):
        tunnel.open_tunnel(0)
