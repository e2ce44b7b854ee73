"""Publishers that come back under their name, and clients that pretend to be others, on real Open vSwitch."""

import asyncio
import socket
import sys
from hashlib import blake2b
from itertools import count

import pytest

import sievenet
from sievenet.dataplane import namespaces
from sievenet.dataplane.packet import Packet, encode_datagram, encode_packet
from sievenet.errors import Rejected
from sievenet.index.address import Head
from sievenet.workload.samples import load_schema
from tests.openflow.test_fabric import POINT, fabric, folder  # noqa: F401

pytestmark = [pytest.mark.root, pytest.mark.ovs, pytest.mark.xdist_group("ovs")]

STOCK = load_schema("stock")
EACH = 20


async def pub(url, *arguments):
    """`sievenet pub` as a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sievenet", "pub", "--url", url, *arguments, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    assert process.returncode == 0, said.decode()


async def take(feed, count):
    async with asyncio.timeout(30):
        return [await feed.next() for _ in range(count)]


def test_all_events_of_a_publisher_that_comes_back_arrive(folder):  # noqa: F811
    """Three `sievenet pub --name market` in a row; then the name dies without a word, and another host takes it."""

    async def main():
        async with (
            fabric(folder, control__lease=1.0) as daemon,
            sievenet.connect(daemon.url, name="reader", host="h3") as reader,
        ):
            await daemon.control.register_schema(STOCK)
            feed = await reader.subscribe("stock: price > 420", queue=10_000)
            event = "stock: symbol=IBM, price=421.5, volume=1200"
            for _ in range(3):
                await pub(daemon.url, "--name", "market", "--host", "h1", "--repeat", str(EACH), event)
            got = await take(feed, 3 * EACH)
            lives = {delivery.incarnation for delivery in got}
            assert len(lives) == 3
            assert len({delivery.publisher for delivery in got}) == 1
            assert all(sorted(d.sequence for d in got if d.incarnation == life) == list(range(EACH)) for life in lives)

            dying = await sievenet.connect(daemon.url, name="market", host="h1", reconnect=False)
            await dying.advertise(STOCK)
            await dying.publish(STOCK.event(symbol="IBM", price=500.0, volume=1))
            dying._session._link.writer.transport.abort()
            dying._session.port.close()
            async with asyncio.timeout(30):
                while True:
                    try:
                        heir = await sievenet.connect(daemon.url, name="market", host="h2")
                        break
                    except Rejected:  # until the lease of the dead one has ended
                        await asyncio.sleep(0.1)
            await heir.advertise(STOCK)
            for _ in range(EACH):
                await heir.publish(STOCK.event(symbol="GE", price=500.0, volume=1))
            got = await take(feed, 1 + EACH)
            assert [delivery.event["symbol"] for delivery in got].count("GE") == EACH
            # Another place, another number; nothing was taken for a copy.
            assert len({delivery.publisher for delivery in got}) == 2
            assert reader.statistics().received.duplicates == 0
            await heir.close()
            await dying.close()

    asyncio.run(main())


def test_nobody_uses_up_the_numbers_of_another(folder):  # noqa: F811
    """A client that sends with another's number, and a host that sends from another's address, silence nobody."""

    async def main():
        async with (
            fabric(folder) as daemon,
            sievenet.connect(daemon.url, name="reader", host="h3") as reader,
            sievenet.connect(daemon.url, name="victim", host="h1") as victim,
            sievenet.connect(daemon.url, name=namesake("victim"), host="h2") as forger,
        ):
            feed = await reader.subscribe("point: x < 900", queue=10_000)
            for node in (victim, forger):
                await node.advertise(POINT)
            source, port = victim._outbox, forger._session.port
            [sample] = forger._outbox.packets(POINT.event(x=5, n=0), 1)

            def forged(number, code=sample.code):
                return Packet(1, code, source.publisher, number, 1, 0, sample.body, source.incarnation)

            for number in (*range(100), 1 << 40, (1 << 63) - 1):
                port.send([forged(number)])
            await port.flushed(0)
            # Worse: a client at another switch that was given the same UDP port, and sends from the victim's address.
            here, there = (daemon.plane.clients()[name] for name in ("victim", forger.name))
            assert (here.port, here.switch) != (there.port, there.switch)
            assert here.port == there.port
            port.close()
            address, udp, _ = Head.of(sample.category, sample.code)
            target = (socket.inet_ntop(socket.AF_INET6, address.to_bytes(16, "big")), udp)
            with namespaces.inside(there.namespace, lambda: borrowed(here.endpoint[0], here.port)) as gun:
                for number in range(100):
                    gun.sendto(encode_datagram(0, [encode_packet(forged(number))]), target)
            await asyncio.sleep(0.1)
            for n in range(100):
                await victim.publish(POINT.event(x=7, n=n))
            got = await take(feed, 100)
            assert [delivery.event["n"] for delivery in got] == list(range(100))
            assert {delivery.event["x"] for delivery in got} == {7}
            counts = reader.statistics().received
            assert (counts.forged, counts.duplicates) == (102, 0)

    asyncio.run(main())


def borrowed(address, port):
    """A socket that sends from an address that is not this host's."""
    sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    sock.setsockopt(socket.IPPROTO_IPV6, getattr(socket, "IPV6_FREEBIND", 78), 1)
    sock.setsockopt(socket.IPPROTO_IPV6, 75, 1)  # IPV6_TRANSPARENT
    sock.bind((address, port))
    return sock


def namesake(name):
    """Another name that gets the same port number at another switch."""

    def number(each):
        return int.from_bytes(blake2b(each.encode(), digest_size=4).digest(), "big") % (0x7FFF - 1024 + 1)

    return next(each for i in count() if number(each := f"forger{i}") == number(name))
