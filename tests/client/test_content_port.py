"""The port whose packets are addressed by content, on loopback: reading, gathering, pacing and closing."""

import asyncio
import socket

import numpy as np
import pytest

from sievenet.access.quota import Bucket
from sievenet.client.ports import datagrams, mmsg
from sievenet.client.ports.burst import Arrivals, Burst
from sievenet.client.ports.content import ContentPort
from sievenet.client.ports.pacing import BURST, TURN, Gathering
from sievenet.dataplane.packet import Packet, encode_datagram, encode_packet, publisher_at
from sievenet.errors import Unavailable


def bound():
    sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    sock.bind(("::1", 0))
    sock.setblocking(False)
    return sock


def number_of(sock):
    address, port, *_ = sock.getsockname()
    return publisher_at(socket.inet_pton(socket.AF_INET6, address), port)


class Harness:
    """A port and what it delivers."""

    def __init__(self):
        self.sock, self.peer = bound(), bound()
        self.sequences, self.matrices, self.deliveries = [], 0, 0
        self.port = ContentPort(self.sock, number_of(self.sock), self._deliver)
        self.port.resume()

    def _deliver(self, packets):
        self.matrices += isinstance(packets, Arrivals)
        self.deliveries += 1
        self.sequences += [packet.sequence for packet in packets]

    def datagram(self, sequence, body=b"body", publisher=None):
        publisher = number_of(self.peer) if publisher is None else publisher
        return encode_datagram(0, (encode_packet(Packet(1, 7 << 96, publisher, sequence, 9, 0, body)),))

    def send(self, *datagrams):
        for each in datagrams:
            self.peer.sendto(each, self.sock.getsockname())

    async def until(self, count):
        async with asyncio.timeout(30):
            while len(self.sequences) < count:
                await asyncio.sleep(0.001)

    def close(self):
        self.port.close()
        self.peer.close()


def with_harness(check):
    async def main():
        harness = Harness()
        try:
            await check(harness)
        finally:
            harness.close()

    asyncio.run(main())


@pytest.mark.parametrize("together", [True, False])
def test_floods_arrive_in_order_and_whole(together, monkeypatch):
    if not together:
        monkeypatch.setattr(mmsg, "available", False)

    async def check(harness):
        harness.send(harness.datagram(0))
        await harness.until(1)
        for start in range(1, 300, 60):
            harness.send(*(harness.datagram(i) for i in range(start, min(start + 60, 300))))
            await harness.until(min(start + 60, 300))
        # Others in between: longer ones, our own, and what is no packet at all.
        harness.send(harness.datagram(300, b"a longer body"), b"nonsense")
        harness.sock.sendto(harness.datagram(0, publisher=number_of(harness.sock)), harness.sock.getsockname())
        harness.send(*(harness.datagram(i) for i in range(301, 320)))
        await harness.until(320)
        assert harness.sequences == list(range(320))
        assert harness.port.malformed == 1
        assert (harness.matrices > 0) == (together and mmsg.available)
        # Then single ones again.
        for i in range(320, 325):
            harness.send(harness.datagram(i))
            await harness.until(i + 1)

    with_harness(check)


def test_packets_are_gathered_only_while_they_come_fast():
    def after(count, seconds, mixed=False):
        found = Gathering()
        assert found.nap(20, 1.0) == 0.001  # the pace is not known yet
        return found.nap(count, 1.0 + seconds, mixed)

    assert after(96, 0.001) == pytest.approx(0.002)  # at this pace, 192 come in two milliseconds
    assert after(400, 0.001, mixed=True) == pytest.approx(0.00256)  # several share a datagram: more are worth it
    assert after(70, 0.005) == pytest.approx(0.005)  # at this one they take too long to wait for all
    assert after(45, 0.005) == pytest.approx(0.0025)  # and this one is half-way between easy and hard
    assert [Gathering().nap(5, 1.0), after(5, 0.001), after(0, 0.001), after(5, 1.0)] == [None] * 4


@pytest.mark.parametrize("piece", [60, 150, 300, 500])
def test_floods_that_come_in_pieces_are_read_in_large_groups(piece):
    pace, gathering = 40_000, Gathering()
    groups, read, now = [], 0, 0.0
    while now < 1.0:
        came = int(now * pace / piece) * piece - read
        if came:
            groups.append(min(came, TURN))
            read += groups[-1]
        nap = gathering.nap(min(came, TURN), now)
        if came >= TURN:
            now += 0.0001
        elif nap is not None:
            now += nap
        else:  # something comes, and is waited for if more is expected behind it
            now = (read // piece + 1) * piece / pace
            now += 0.001 if gathering.expects(now) else 0.0
    assert sum(groups) / len(groups) > min(piece, 130) * 0.9


def test_a_port_of_a_component_reads_all_that_waits_with_one_call():
    async def check(harness):
        harness.port.close()
        harness.sock = bound()
        harness.port = ContentPort(harness.sock, number_of(harness.sock), harness._deliver, whole=True)
        harness.send(*(harness.datagram(i) for i in range(50)))
        harness.port.resume()
        await harness.until(50)
        assert harness.sequences == list(range(50))
        assert harness.deliveries == 1 or not mmsg.available
        await asyncio.sleep(0.05)
        harness.send(harness.datagram(50))
        await harness.until(51)

    with_harness(check)


def test_nothing_is_read_while_paused():
    async def check(harness):
        harness.send(*(harness.datagram(i) for i in range(50)))
        await harness.until(10)
        harness.port.pause()
        seen = len(harness.sequences)
        harness.send(*(harness.datagram(i) for i in range(50, 120)))
        await asyncio.sleep(0.01)
        assert len(harness.sequences) == seen
        harness.port.resume()
        await harness.until(120)
        assert harness.sequences == list(range(120))

    with_harness(check)


def burst_of(count, lo=1 << 32, publisher=5):
    """Packets whose address, without the prefix of content, is that of loopback."""
    burst = Burst(0, np.zeros(count, np.uint64), np.full(count, lo, np.uint64), np.zeros((count, 4), np.uint8))
    burst.stamp(publisher, 0, np.arange(count, dtype=np.uint64), 9)
    return burst


@pytest.fixture
def to_loopback(monkeypatch):
    monkeypatch.setattr(datagrams, "CONTENT_PREFIX", 0)

    def to(sock):
        for name in ("CONTENT_PORT", "SEVERAL_PORT"):
            monkeypatch.setattr(datagrams, name, sock.getsockname()[1])

    return to


@pytest.mark.skipif(not mmsg.available, reason="needs sendmmsg")
@pytest.mark.parametrize("room", [0, 400, 9_000])
def test_bursts_are_paced_and_whole(to_loopback, room):
    """Also where several share a datagram: six of them in 400 bytes."""

    async def check(harness):
        to_loopback(harness.sock)
        count = 130
        sender = ContentPort(out := bound(), number_of(out), lambda packets: None, room)
        sender._pace = Bucket(20_000.0, 50)
        try:
            assert sender.send(burst_of(count, publisher=number_of(out)))
            # More than may go at once: the rest waits for its time.
            await sender.flushed(0)
            await harness.until(count)
            assert harness.sequences == list(range(count))
            assert sender.refused == 0
        finally:
            sender.close()

    with_harness(check)


@pytest.mark.parametrize("gathered", [True, False])
def test_several_in_a_datagram(gathered, monkeypatch):
    """They arrive as they would alone; those of another publisher, and what is no packet, cost themselves."""
    if not gathered:
        monkeypatch.setattr(mmsg, "available", False)

    async def check(harness):
        own, mixed = number_of(harness.peer), []
        take = harness.port._deliver
        harness.port._deliver = lambda packets: (mixed.append(getattr(packets, "mixed", None)), take(packets))

        def several(start, count, publisher=own, body=b"body", said=None):
            packets = [encode_packet(Packet(1, 7 << 96, publisher, start + i, 9, 0, body)) for i in range(count)]
            return encode_datagram(0, packets, count=said)

        harness.send(*(several(start, 16) for start in range(0, 160, 16)))
        await harness.until(160)
        harness.send(several(160, 2), several(900, 5, publisher=own ^ 1), several(162, 3, body=b"longer"))
        harness.send(several(900, 3, said=4), several(900, 16)[:-1], b"no", harness.datagram(165), several(166, 16))
        await harness.until(182)
        # More than clients send together, and of different lengths: taken all the same.
        parts = [encode_packet(Packet(1, 7 << 96, own, 182 + i, 9, 0, bytes(i))) for i in range(20)]
        harness.send(encode_datagram(0, parts))
        await harness.until(202)
        assert harness.sequences == list(range(202))
        assert harness.port.forged == 5
        assert harness.port.malformed == 3
        assert set(mixed) == {True, None}

    with_harness(check)


@pytest.mark.skipif(not mmsg.available, reason="needs sendmmsg")
def test_what_the_system_does_not_take_is_counted(to_loopback, monkeypatch):
    async def check(harness):
        to_loopback(harness.sock)
        # An address of no use: the unspecified one, with port 0.
        monkeypatch.setattr(datagrams, "CONTENT_PORT", 0)
        harness.port.send(burst_of(10, lo=0))
        await harness.port.flushed()
        assert harness.port.refused == 10

    with_harness(check)


@pytest.mark.skipif(not mmsg.available, reason="needs sendmmsg")
def test_closing_ends_waiting(to_loopback):
    async def check(harness):
        to_loopback(harness.sock)
        assert not harness.port.send(burst_of(BURST + 10_000))
        waiting = asyncio.create_task(harness.port.flushed(0))
        await asyncio.sleep(0)
        harness.port.close()
        harness.port.close()
        with pytest.raises(Unavailable, match="was closed"):
            await waiting
        with pytest.raises(Unavailable, match="is closed"):
            harness.port.send(burst_of(1))

    with_harness(check)
