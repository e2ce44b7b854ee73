"""What a host may put on its wire: whatever is no content of an attached client is dropped and counted, or left to the
system; nothing of it disturbs the switch or reaches a subscriber.
"""

import asyncio
import random
import socket
import struct

import pytest

from sievenet.dataplane import namespaces as ns
from sievenet.dataplane.hosts import MAC
from sievenet.dataplane.packet import Packet, encode_datagram, encode_packet
from sievenet.index import ROOT
from sievenet.network import Add, Flow, parse_topology
from tests.kernel.harness import make_network, on_kernel, remove_network
from tests.kernel.test_tables import packet

pytestmark = [pytest.mark.root]

ONE = parse_topology("line,switches=1,hosts=3")
ETHERNET = bytes.fromhex(MAC.replace(":", "")) * 2


@pytest.fixture(scope="module")
def network():
    network = make_network(ONE, kind="svh")
    yield network
    remove_network(network)


def raw(network, host):
    """A socket that puts frames on a host's wire as they are."""

    def make():
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        sock.bind(("eth0", 0))
        return sock

    return ns.inside(network.host_namespace(host), make)


def checksum(source, target, udp):
    data = source + target + struct.pack(">II", len(udp), 17) + udp + b"\0" * (len(udp) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF or 0xFFFF


def content(
    a,
    number,
    *,
    source=None,
    port=None,
    body=None,
    hops=64,
    next_header=17,
    extension=b"",
    category=1,
    length=None,
    to=0x8000,
):
    """A frame of content as client `a` would send it, or nearly."""
    target = struct.pack(">HH", 0xFD0E, category) + bytes(12)
    source = source or socket.inet_pton(socket.AF_INET6, a.endpoint[0])
    what = Packet(category, 0, a.publisher, number, 17, 0, b"", 0)
    data = encode_datagram(0, (encode_packet(what),)) if body is None else body
    udp = struct.pack(">HHHH", port or a.port, to, 8 + len(data) if length is None else length, 0) + data
    udp = udp[:6] + struct.pack(">H", checksum(source, target, udp)) + udp[8:]
    payload = extension + udp
    head = struct.pack(">IHBB", 6 << 28, len(payload), next_header, hops)
    return head + source + target + payload


def framed(packet, kind=0x86DD, tag=b""):
    return ETHERNET + tag + struct.pack(">H", kind) + packet


def attacked(network, frames, *, drops=(), arrives=(), passes=None):
    """Send frames from h1's wire; what the switch counts as dropped, by reason, and what the subscriber gets."""

    async def main():
        async with on_kernel(network) as harness:
            plane, switch = harness.plane, network.switches["s1"]
            a, b = await plane.attach("h1", "a"), await plane.attach("h2", "b")
            await plane.apply("s1", [Add(Flow.of(1, ROOT, b.port))])
            await harness.send(a, [packet(a, 1000, 1, 5)])
            before = switch.reasons()
            with raw(network, "h1") as wire:
                for frame in frames(a):
                    wire.send(frame)
            await harness.send(a, [packet(a, 1001, 1, 5)])
            await harness.settle()
            after = switch.reasons()
            dropped = {name: after[name] - before[name] for name in after if after[name] != before[name]}
            assert dropped == dict(drops)
            [counted] = switch.counters().flows.values()
            assert counted.packets == 2 + (len(arrives) if passes is None else passes)
            assert [each.sequence for each in harness.received(b)] == [1000, *arrives, 1001]

    asyncio.run(main())


def test_what_a_client_may_send_arrives(network):
    """The frames of this test are right, so that the others fail for what they say."""
    attacked(network, lambda a: [framed(content(a, 5)), framed(content(a, 6, hops=2))], arrives=[5, 6])


def test_another_port_or_address_is_not_let_in(network):
    def frames(a):
        other = socket.inet_pton(socket.AF_INET6, "fd0f:1::2")
        yield framed(content(a, 5, port=a.port + 1))
        yield framed(content(a, 5, port=80))
        yield framed(content(a, 5, source=other))

    attacked(network, frames, drops={"unadmitted": 3})


def test_hop_limits_end(network):
    frames = lambda a: [framed(content(a, 5, hops=hops)) for hops in (0, 1)]  # noqa: E731
    attacked(network, frames, drops={"expired": 2})


def test_extension_headers_and_fragments_are_no_content(network):
    def frames(a):
        for kind, extension in ((0, b"\x11\0" + bytes(6)), (60, b"\x11\0" + bytes(6)), (44, b"\x11\0\0\1" + bytes(4))):
            yield framed(content(a, 5, next_header=kind, extension=extension))
        yield framed(content(a, 5, next_header=6))
        yield framed(content(a, 5, next_header=59))

    attacked(network, frames, drops={"malformed": 5})


def test_tagged_frames_are_not_forwarded(network):
    """A VLAN is another network: what is in one does not leave it, or enter ours."""

    def frames(a):
        for tag in (b"\x81\0\0\x07", b"\x88\xa8\0\x07", b"\x81\0\0\x07\x81\0\0\x08"):
            yield framed(content(a, 5), tag=tag)

    attacked(network, frames)


def test_short_and_strange_frames(network):
    def frames(a):
        rng = random.Random(5)
        good = framed(content(a, 5))
        for length in (14, 15, 38, 40, 53, 54, 61):
            yield good[:length]
        for kind in (0x0800, 0x0806, 0x88CC, 0x1234, 0xFFFF):
            yield framed(content(a, 5), kind)
        for _ in range(300):
            yield ETHERNET + rng.randbytes(rng.randrange(2, 200))
        yield framed(rng.randbytes(8900))
        # An IPv4 packet that says it is IPv6, and content that is not: version 4 in the first bits.
        yield framed(b"\x45" + content(a, 5)[1:])[:60]

    attacked(network, frames)


def several(a, *numbers, count=None, size=None):
    """A body of several events, which may say that they are more, or longer."""
    packets = [bytearray(encode_packet(Packet(1, 0, a.publisher, number, 17, 0, b"", 0))) for number in numbers]
    if size is not None:
        packets[0][:2] = struct.pack(">H", size)
    return encode_datagram(0, map(bytes, packets), count=count)


def test_several_events_in_one_packet(network):
    def frames(a):
        yield framed(content(a, 0, to=1, body=several(a, 5, 6, 7)))
        yield framed(content(a, 0, to=1, body=several(a, *range(8, 24))))

    attacked(network, frames, arrives=[5, 6, 7, *range(8, 24)])


def test_packets_of_several_events_that_are_none(network):
    """What says that it has several events has as many as it says, and no more than may share a packet."""

    def frames(a):
        for count in (0, 17, 65535):
            yield framed(content(a, 0, to=1, body=several(a, 5, 6, 7, count=count)))
        yield framed(content(a, 0, to=1, body=b""))
        yield framed(content(a, 0, to=1, body=several(a, 5)[:5]))

    attacked(network, frames, drops={"malformed": 5})


def test_packets_whose_events_are_longer_than_they(network):
    """They count as as many as they say."""

    def frames(a):
        yield framed(content(a, 0, to=1, body=several(a, 5, 6, 7, count=4)))
        yield framed(content(a, 0, to=1, body=several(a, 5, 6, 7, size=1)))
        yield framed(content(a, 0, to=1, body=several(a, 5, 6, 7, size=65535)))

    attacked(network, frames, drops={"malformed": 10})


def test_several_events_are_let_in_as_one_is(network):
    def frames(a):
        other = socket.inet_pton(socket.AF_INET6, "fd0f:1::2")
        yield framed(content(a, 0, to=1, port=a.port + 1, body=several(a, 5, 6)))
        yield framed(content(a, 0, to=1, source=other, body=several(a, 5, 6)))
        yield framed(content(a, 0, to=1, hops=1, body=several(a, 5, 6)))

    attacked(network, frames, drops={"unadmitted": 4, "expired": 2})


def test_bad_lengths_and_checksums_do_not_reach_clients(network):
    def frames(a):
        yield framed(content(a, 5, length=4))
        yield framed(content(a, 5, length=9000))
        broken = bytearray(framed(content(a, 5)))
        broken[-1] ^= 1
        yield bytes(broken)

    # Whether a packet is whole is for its receiver to tell, as everywhere.
    attacked(network, frames, passes=3)


def test_packets_that_are_too_long_do_not_pass(network):
    """The sender's system cuts what is larger than the link takes into pieces, which are no content."""

    async def main():
        async with on_kernel(network) as harness:
            a, b = await harness.plane.attach("h1", "a"), await harness.plane.attach("h2", "b")
            await harness.plane.apply("s1", [Add(Flow.of(1, ROOT, b.port))])
            largest = harness.plane.max_body
            await harness.send(a, [Packet(1, 0, a.publisher, i, 17, 0, bytes(largest + i)) for i in range(2)])
            await harness.send(a, [packet(a, 2, 1, 5)])
            await harness.settle()
            assert [each.sequence for each in harness.received(b)] == [0, 2]
            assert network.switches["s1"].reasons()["malformed"] == 2

    asyncio.run(main())
