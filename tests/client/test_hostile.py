"""Packets that nobody of good will would send, among good ones: each costs itself, and the good ones all arrive."""

import asyncio
import contextlib
import random
import socket
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievenet.client.edge import Edge
from sievenet.client.ports import mmsg
from sievenet.client.ports.burst import HEAD, Arrivals, uniform
from sievenet.client.ports.content import ContentPort
from sievenet.client.ports.udp import UdpPort
from sievenet.client.receiver import Receiver
from sievenet.content import Attribute, Schema, parse_subscription
from sievenet.content.codec import encode_event
from sievenet.dataplane.packet import (
    DATAGRAM_HEADER,
    MAX_NUMBER,
    PACKET_HEADER,
    Packet,
    encode_datagram,
    encode_packet,
    packets_of,
    publisher_at,
)
from sievenet.errors import CodecError
from sievenet.index import Plan

SCHEMA = Schema("t", (Attribute("x", "int", lo=0, hi=255), Attribute("y", "int", lo=0, hi=255)))
PLAN = Plan.regular(SCHEMA, 6)
CATEGORY = 5
TOKEN = 99
EXTREMES = (0, 1, (1 << 31) - 1, 1 << 31, (1 << 63) - 2, MAX_NUMBER, 1 << 63, (1 << 64) - 2, (1 << 64) - 1)


class Sink:
    def __init__(self):
        self.false_positives = 0
        self.got = []

    def accept(self, delivery):
        self.got.append(delivery)
        return True


def receiving():
    edge = Edge(SCHEMA)
    edge.adopt(lambda: PLAN, 8)
    edge.add(0, parse_subscription("any", SCHEMA))
    receiver, sink = Receiver(), Sink()
    receiver.enter(CATEGORY, edge)
    receiver.connect(0, sink)
    return receiver, sink


def good(sequence, publisher=1):
    event = SCHEMA.event(x=sequence % 256, y=7)
    [dz] = PLAN.encode(event)
    return encode_packet(
        Packet(CATEGORY, dz.bits << (128 - dz.length), publisher, sequence, 1000, 0, encode_event(event))
    )


def bad(publisher=2):
    """A good packet with one field at each of its extremes."""
    whole = good(3, publisher)
    for name, (kind, at, *_) in HEAD.fields.items():
        for value in {each & ((1 << 8 * kind.itemsize) - 1) for each in EXTREMES}:
            if name != "publisher":
                yield whole[:at] + value.to_bytes(kind.itemsize, "big") + whole[at + kind.itemsize :]


def names(sink, publisher=1):
    return sorted(d.sequence for d in sink.got if d.publisher == publisher)


def test_absurd_numbers_cost_their_packet_and_not_the_datagram():
    together = b"".join(
        good(i) + good(i, 2)[:38] + struct.pack(">QQ", 1 << 63 | i, 1) + good(i, 2)[54:] for i in range(9)
    )
    data = encode_datagram(TOKEN, [together])
    assert [p.publisher for p in packets_of(data, 18)] == [1] * 9
    for at in (38, 46):
        whole = bytearray(good(1))
        whole[at] = 0x80
        assert packets_of(encode_datagram(TOKEN, [bytes(whole), good(2)]), 2) == packets_of(
            encode_datagram(TOKEN, [good(2)]), 1
        )


@pytest.mark.parametrize("rows", [2, 40])
def test_batches_with_absurd_numbers_go_one_by_one(rows):
    matrix = np.frombuffer(b"".join(good(i) for i in range(rows)), np.uint8).reshape(rows, -1).copy()
    assert isinstance(uniform(matrix), Arrivals)
    for name in ("sequence", "departure"):
        for value in ((1 << 64) - 1, 1 << 63):
            spoilt = matrix.copy()
            at = HEAD.fields[name][1]
            spoilt[rows // 2, at : at + 8] = np.frombuffer(value.to_bytes(8, "big"), np.uint8)
            assert uniform(spoilt) is None


@settings(max_examples=30)
@given(st.integers(0, 1 << 32))
def test_whatever_comes_with_them_good_packets_are_delivered(seed):
    """Mixed in one read: good packets of one publisher, and of another every field at its extremes."""
    rng = random.Random(seed)
    receiver, sink = receiving()
    evil = [*bad(), *(rng.randbytes(rng.randrange(120)) for _ in range(20))]
    datagrams = [encode_datagram(TOKEN, [good(i)]) for i in range(50)]
    for each in rng.sample(evil, 30):
        with contextlib.suppress(Exception):
            datagrams.append(encode_datagram(TOKEN, [each]))
    rng.shuffle(datagrams)
    came = []
    for data in datagrams:
        with contextlib.suppress(CodecError):
            came += packets_of(data, 1)
    receiver.take(came, 2000)
    assert names(sink) == list(range(50))
    receiver.statistics()
    receiver.recent.quantiles([0.5])


def test_every_extreme_is_taken_or_dropped_by_the_receiver():
    receiver, sink = receiving()
    for each in bad():
        data = encode_datagram(TOKEN, [each])
        try:
            receiver.take(packets_of(data, 1), 2000)
        except CodecError:
            continue
    receiver.take(packets_of(encode_datagram(TOKEN, [good(0)]), 1), 2000)
    assert names(sink) == [0]
    counts = receiver.statistics()
    assert counts.received > counts.matched > 1
    assert all(value is not None for value in receiver.recent.quantiles([0.5, 0.99]))


def bound(family, address):
    sock = socket.socket(family, socket.SOCK_DGRAM)
    sock.bind((address, 0))
    sock.setblocking(False)
    return sock


async def arrived(sink, count):
    async with asyncio.timeout(30):
        while len(names(sink)) < count:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("together", [True, False])
def test_a_content_port_reads_good_packets_among_bad_ones(together, monkeypatch):
    if not together:
        monkeypatch.setattr(mmsg, "available", False)

    async def main():
        receiver, sink = receiving()
        here, friend, foe = (bound(socket.AF_INET6, "::1") for _ in range(3))
        number, other = (
            publisher_at(socket.inet_pton(socket.AF_INET6, "::1"), s.getsockname()[1]) for s in (friend, foe)
        )
        port = ContentPort(here, 1, lambda packets: receiver.take(packets, 2000))
        port.resume()
        rng = random.Random(5)
        try:
            for start in range(0, 400, 40):
                for i in range(start, start + 40):
                    friend.sendto(encode_datagram(0, [good(i, number)]), here.getsockname())
                    evil = rng.choice(list(bad(other)))
                    if rng.random() < 0.3:
                        evil = rng.randbytes(rng.randrange(200))
                    whole = encode_datagram(0, [evil])
                    foe.sendto(whole if rng.random() < 0.7 else whole[: rng.randrange(len(whole))], here.getsockname())
                    # With the friend's number, far ahead and exactly where the friend is: neither counts.
                    foe.sendto(encode_datagram(0, [good(rng.choice((i, 1 << 40)), number)]), here.getsockname())
                async with asyncio.timeout(30):
                    while len(names(sink, number)) < start + 40:
                        await asyncio.sleep(0.001)
            assert names(sink, number) == list(range(400))
            assert port.malformed > 0
            assert port.forged >= 400
        finally:
            port.close()
            friend.close()
            foe.close()

    asyncio.run(main())


def test_a_port_of_the_embedded_plane_reads_good_packets_among_bad_ones():
    async def main():
        receiver, sink = receiving()
        plane = bound(socket.AF_INET, "127.0.0.1")
        here = bound(socket.AF_INET, "127.0.0.1")
        here.connect(plane.getsockname())
        port = UdpPort(here, TOKEN, lambda packets: receiver.take(packets, 2000))
        port.resume()
        rng = random.Random(6)
        try:
            for start in range(0, 400, 40):
                several = [good(i) for i in range(start, start + 20)]
                # One that is absurd in a train of good ones, in front and at the end too.
                for each in (
                    good(9, 2)[:38] + b"\xff" * 8 + good(9, 2)[46:],
                    good(9, 2)[:46] + b"\xff" * 8 + good(9, 2)[54:],
                ):
                    several.insert(rng.randrange(len(several) + 1), each)
                plane.sendto(encode_datagram(TOKEN, several, sequence=start + 1), here.getsockname())
                for i in range(start + 20, start + 40):
                    plane.sendto(encode_datagram(TOKEN, [good(i)]), here.getsockname())
                    whole = encode_datagram(TOKEN, [rng.choice(list(bad()))])
                    plane.sendto(
                        whole if rng.random() < 0.7 else whole[: rng.randrange(len(whole))], here.getsockname()
                    )
                    plane.sendto(rng.randbytes(rng.randrange(100)), here.getsockname())
                await arrived(sink, start + 40)
            assert names(sink) == list(range(400))
            assert port.malformed > 20
        finally:
            port.close()
            plane.close()

    asyncio.run(main())


def test_headers_are_where_these_tests_think():
    assert [HEAD.fields[name][1] for name in ("sequence", "departure")] == [38, 46]
    assert PACKET_HEADER == 54
    assert DATAGRAM_HEADER == 24
