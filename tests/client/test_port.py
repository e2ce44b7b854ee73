"""The client's UDP socket against a data plane that the test plays: greeting, window, pausing, closing."""

import asyncio
import contextlib
import socket

import pytest

from sievenet.client.ports import open_port
from sievenet.client.ports.udp import UdpPort
from sievenet.control.protocol import DataEndpoint
from sievenet.dataplane.hostlink import HostLink
from sievenet.dataplane.packet import Kind, Packet, decode, encode_datagram, encode_packet
from sievenet.errors import InvalidInput, Unavailable

TOKEN = 77


def packet(sequence, size=10):
    return Packet(1, 0, 5, sequence, 0, 0, bytes(size))


class Plane(asyncio.DatagramProtocol):
    """The other end: answers greetings, and acknowledges if told to."""

    def __init__(self, greets=True, acknowledges=True):
        self.greets, self.acknowledges = greets, acknowledges
        self.link = HostLink(TOKEN)
        self.got = []
        self.greetings = 0
        self.address = None

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, address):
        self.address = address
        found = decode(data)
        if found.kind is Kind.HELLO:
            self.greetings += 1
            if self.greets:
                self.transport.sendto(self.link.hello(), address)
            return
        self.got += [each.sequence for each in found.packets]
        self.link.heard(found.sequence, found.acknowledged, found.window, asyncio.get_running_loop().time(), len(data))
        if self.acknowledges:
            self.flush()

    def flush(self):
        for datagram in self.link.datagrams(asyncio.get_running_loop().time()):
            self.transport.sendto(datagram, self.address)


@contextlib.asynccontextmanager
async def plane(**settings):
    transport, other = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: Plane(**settings), local_addr=("127.0.0.1", 0)
    )
    other.endpoint = DataEndpoint("udp", *transport.get_extra_info("sockname"), TOKEN)
    try:
        yield other
    finally:
        transport.close()


def run(work):
    async def limited():
        async with asyncio.timeout(20):
            await work

    asyncio.run(limited())


async def until(condition):
    while not condition():
        await asyncio.sleep(0.001)


def test_what_is_sent_arrives_in_order_and_what_comes_is_delivered():
    async def main():
        came = []
        async with plane() as other:
            port = await open_port(other.endpoint, came.extend)
            assert port.send([packet(i) for i in range(300)])
            await port.flushed(0)
            await until(lambda: len(other.got) == 300)
            assert other.got == list(range(300))
            other.link.push(encode_packet(packet(9)))
            other.flush()
            await until(lambda: came)
            assert came == [packet(9)]
            port.close()
            port.close()
            with pytest.raises(Unavailable):
                port.send([packet(1)])

    run(main())


def test_more_than_the_window_waits_for_acknowledgements():
    async def main():
        async with plane(acknowledges=False) as other:
            port = await open_port(other.endpoint, lambda packets: None)
            assert not port.send([packet(i, 1000) for i in range(6000)])
            waiting = asyncio.create_task(port.flushed(1000))
            done_later = asyncio.create_task(port.flushed(0))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            assert len(other.got) < 1000
            other.acknowledges = True
            other.flush()
            await waiting
            await done_later
            await until(lambda: len(other.got) == 6000)
            assert other.got == list(range(6000))
            port.close()

    run(main())


def test_closing_releases_who_waits():
    async def main():
        async with plane(acknowledges=False) as other:
            port = await open_port(other.endpoint, lambda packets: None)
            port.send([packet(i, 1000) for i in range(6000)])
            waiting = asyncio.create_task(port.flushed(0))
            await asyncio.sleep(0)
            port.close()
            with pytest.raises(Unavailable):
                await waiting

    run(main())


def test_a_paused_port_reads_nothing_and_loses_nothing():
    async def main():
        came = []
        async with plane() as other:
            port = await open_port(other.endpoint, came.extend)
            port.pause()
            for i in range(5):
                other.link.push(encode_packet(packet(i)))
            other.address = port._socket.getsockname()
            other.flush()
            await asyncio.sleep(0.02)
            assert came == []
            port.resume()
            await until(lambda: len(came) == 5)
            port.close()

    run(main())


def test_a_plane_that_does_not_answer_is_greeted_again_and_then_given_up():
    async def main():
        async with plane(greets=False) as other:
            with pytest.raises(Unavailable, match=r"did not answer within 0\.2 s"):
                await open_port(other.endpoint, lambda packets: None, timeout=0.2)
            assert other.greetings > 1

    run(main())


def test_a_port_where_nobody_listens_counts_refusals():
    async def main():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            taken.bind(("127.0.0.1", 0))
            number = taken.getsockname()[1]
        with pytest.raises(Unavailable):
            await open_port(DataEndpoint("udp", "127.0.0.1", number, TOKEN), lambda packets: None, timeout=0.1)
        async with plane() as other:
            port = await open_port(other.endpoint, lambda packets: None)
            other.transport.close()
            await asyncio.sleep(0)
            for i in range(5):
                port.send([packet(i)])
                await asyncio.sleep(0.005)
            assert port.refused > 0
            port.close()

    run(main())


def test_other_kinds_and_strange_addresses_are_refused():
    async def main():
        with pytest.raises(InvalidInput, match="udp"):
            await open_port(DataEndpoint("carrier pigeon", "x", 1, 1), lambda packets: None)
        with pytest.raises(Unavailable):
            await UdpPort.open(DataEndpoint("udp", "::1.2.3", 1, 1), lambda packets: None, 0.1)

    run(main())


def test_a_socket_that_is_full_is_tried_again():
    async def main():
        async with plane() as other:
            port = await open_port(other.endpoint, lambda packets: None)
            real, busy = port._socket, [3]

            class Full:
                def send(self, data):
                    if busy[0]:
                        busy[0] -= 1
                        raise BlockingIOError
                    return real.send(data)

                def __getattr__(self, name):
                    return getattr(real, name)

            port._socket = Full()
            port.send([packet(1)])
            await port.flushed(0)
            await until(lambda: other.got == [1])
            assert busy == [0]
            port.close()

    run(main())


def test_datagrams_with_a_wrong_token_do_not_count_as_an_answer():
    async def main():
        async with plane(greets=False) as other:
            opening = asyncio.create_task(open_port(other.endpoint, lambda packets: None))
            await until(lambda: other.greetings)
            other.transport.sendto(encode_datagram(TOKEN + 1, (), kind=Kind.HELLO), other.address)
            await asyncio.sleep(0.01)
            assert not opening.done()
            other.greets = True
            port = await opening
            assert port.malformed == 1
            port.close()

    run(main())
