"""Bad input and limits: a clear error to whoever caused it, and nobody else notices."""

import asyncio
import contextlib
import random
import socket
import struct

import msgspec
import pytest

import sievenet
from sievenet.content import Attribute, Schema
from sievenet.control import protocol as p
from sievenet.control.directed import OVERHEAD
from sievenet.control.journal import FileJournal
from sievenet.daemon.ticket import Tickets
from sievenet.dataplane.packet import MAX_BODY, Kind, Packet, encode_datagram, encode_packet
from sievenet.errors import (
    EventError,
    FilterError,
    InvalidInput,
    ParseError,
    PlanError,
    Rejected,
    SchemaError,
    SievenetError,
    Unavailable,
)
from sievenet.index import Plan
from sievenet.session.framing import frame
from tests.fabric.harness import SCHEMA, eventually, fabric, publisher, reading, run, take
from tests.seeds import seeds


@contextlib.asynccontextmanager
async def healthy(daemon):
    """A publisher and a subscriber that must go on working whatever else happens; yields a check."""
    async with (
        publisher(daemon, name="healthy-source") as source,
        sievenet.connect(daemon.url, name="healthy-node") as node,
    ):
        feed = await node.subscribe("reading: kind = cold")

        async def check(count=20):
            await source.publish_many([reading(i, kind="cold") for i in range(count)])
            assert [e["x"] for e in await take(feed, count)] == list(range(count))

        await check()
        yield check
        await check()
        assert source.statistics().losses == node.statistics().losses == 0
        assert node.statistics().received.malformed == 0


def test_every_kind_of_wrong_request_says_what_is_wrong():
    async def main():
        async with fabric() as daemon, healthy(daemon) as check, sievenet.connect(daemon.url, name="clumsy") as node:
            with pytest.raises(SchemaError, match="writing"):
                await node.subscribe("writing: x > 1")
            with pytest.raises(ParseError, match="column 10"):
                await node.subscribe("reading: z > 1")
            with pytest.raises(FilterError):
                await node.subscribe("reading: x = abc")
            with pytest.raises(ParseError):
                await node.subscribe("reading: x >")
            with pytest.raises(SchemaError, match="in front"):
                await node.subscribe("> 5")
            with pytest.raises(InvalidInput):
                await node.subscribe(5)
            with pytest.raises(EventError, match=r"int in \[0, 1023\], got 5000 - at reading.x"):
                await node.publish(reading(5000))
            with pytest.raises(EventError):
                await node.publish("reading: x=1")
            with pytest.raises(Rejected, match="before publishing"):
                await node.publish(reading(1))
            await node.advertise("reading: x < 10")
            await node.publish(reading(9))
            with pytest.raises(Rejected, match="within what this node advertises"):
                await node.publish(reading(10))
            with pytest.raises(Rejected, match="advertises"):
                await node.publish_many([reading(1), reading(10)])
            await check()

    run(main())


def test_publishing_needs_the_advertisement_to_stand():
    async def main():
        async with fabric() as daemon, sievenet.connect(daemon.url) as node:
            async with await node.advertise(SCHEMA) as offer:
                await node.publish(reading(1))
                assert str(offer).startswith("reading")
            with pytest.raises(Rejected):
                await node.publish(reading(1))

    run(main())


def test_another_schema_of_the_same_name():
    async def main():
        other = Schema("reading", (Attribute("z", "int", lo=0, hi=1),))
        async with fabric() as daemon, healthy(daemon) as check, sievenet.connect(daemon.url) as node:
            with pytest.raises(SievenetError, match="reading"):
                await node.schema(other)
            with pytest.raises(SievenetError, match="reading"):
                await node.advertise(other)
            await node.schema("reading")
            with pytest.raises(SchemaError, match="as registered"):
                await node.publish(other.event(z=1))
            await check()

    run(main())


def test_an_event_too_large_for_a_packet_is_refused_at_its_publisher():
    wide = Schema("wide", tuple(Attribute(f"s{i}", "str") for i in range(20)))

    async def main():
        async with fabric() as daemon, healthy(daemon), sievenet.connect(daemon.url) as node:
            await node.advertise(wide)
            feed = await node.subscribe(wide)
            values = {f"s{i}": "x" * 4000 for i in range(20)}
            with pytest.raises(EventError, match=f"at most {MAX_BODY - OVERHEAD} bytes"):
                await node.publish(wide.event(**values))
            with pytest.raises(EventError, match=f"at most {MAX_BODY - OVERHEAD} bytes"):
                await node.publish_many([wide.event(**values)])
            with pytest.raises(EventError, match="payload"):
                await node.publish(reading(payload=bytes(40_000)))
            other = await sievenet.connect(daemon.url)
            await other.advertise(wide)
            large = wide.event(**{f"s{i}": "x" * 3000 for i in range(20)})
            await other.publish(large)
            assert (await take(feed, 1))[0] == large
            await other.close()

    run(main())


def test_a_taken_name_is_refused_and_its_owner_not_disturbed():
    async def main():
        async with fabric() as daemon, healthy(daemon):
            with pytest.raises(Rejected, match="taken"):
                await sievenet.connect(daemon.url, name="healthy-node")
            for name in ("no spaces", "", "x" * 65, "ü"):
                with pytest.raises(InvalidInput, match="a name of letters"):
                    await sievenet.connect(daemon.url, name=name or "-")
                [failure] = told(await raw(daemon, frame(p.Hello(p.PROTOCOL, name=name or "-"))))
                assert failure.kind == "CodecError"

    run(main())


def test_a_name_cannot_be_taken_over_with_a_forged_ticket():
    async def main():
        async with fabric() as daemon, healthy(daemon):
            for ticket in (b"", b"x" * 32, Tickets().issue("healthy-node"), daemon.service._tickets.issue("other")):
                [failure] = told(
                    await raw(daemon, frame(p.Hello(p.PROTOCOL, name="healthy-node", ticket=ticket)), close=False)
                )
                assert failure.kind == "Rejected"
                assert "taken" in failure.message

    run(main())


def test_unknown_hosts_and_questions():
    async def main():
        async with fabric() as daemon, healthy(daemon):
            with pytest.raises(InvalidInput, match="h99"):
                await sievenet.connect(daemon.url, host="h99")
            async with sievenet.connect(daemon.url, observer=True) as node:
                with pytest.raises(InvalidInput, match="status"):
                    await node.ask("weather")
                with pytest.raises(InvalidInput, match="s99"):
                    await node.ask("flows", "s99")
                with pytest.raises(SchemaError):
                    await node.ask("trace", "writing: x=1")

    async def lonely():
        async with fabric() as daemon, sievenet.connect(daemon.url) as node:
            await node.schema(SCHEMA)
            with pytest.raises(EventError, match="advertises"):
                await node.ask("trace", "reading: x=1, y=1, kind=hot, ok=true")

    run(main())
    run(lonely())


def test_wrong_plans_are_refused():
    async def main():
        async with fabric() as daemon, healthy(daemon) as check, sievenet.connect(daemon.url) as node:
            other = Plan.regular(Schema("reading", (Attribute("z", "int", lo=0, hi=1),)), 8)
            with pytest.raises(PlanError, match="another schema"):
                await node.apply_plan("reading", other.to_json())
            with pytest.raises(PlanError):
                await node.apply_plan("reading", b"{}")
            with pytest.raises(SchemaError):
                await node.apply_plan("writing", other.to_json())
            await check()

    run(main())


def test_a_full_disk_refuses_requests_and_keeps_what_was_accepted(tmp_path):
    async def main():
        journal = FileJournal(tmp_path / "journal.db", max_bytes=60_000)
        async with (
            fabric(journal=journal) as daemon,
            healthy(daemon) as check,
            publisher(daemon) as source,
            sievenet.connect(daemon.url) as node,
        ):
            accepted, refusal = [], None
            while refusal is None:
                start = len(accepted)
                text = " or ".join(f"x = {(start + 20 * i) % 1024} and y < 0.{i + 10}" for i in range(50))
                try:
                    accepted.append(await node.subscribe(f"reading: {text}"))
                except Rejected as error:
                    refusal = str(error)
            assert "journal" in refusal
            assert len(accepted) > 10
            await check()
            # What was accepted is delivered, and the client is still welcome.
            for x, feed in enumerate(accepted[:20]):
                await source.publish(reading(x, 0.05))
                assert (await take(feed, 1))[0]["x"] == x
            status = await node.ask("status")
            assert sum(c["subscriptions"] for c in status["categories"]) == len(accepted) + 1

    run(main())


# -- the two ports under fire ------------------------------------------------------------------


async def raw(daemon, data, close=True):
    """Send bytes to the control port; what comes back until the other side closes."""
    host, port = daemon.url.removeprefix("sievenet://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    if close:
        writer.write_eof()
    try:
        async with asyncio.timeout(30):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def told(data):
    return list(p.CONTROL.dialling().feed(data))


def test_wrong_bytes_on_the_control_port_are_answered_and_closed():
    async def main():
        async with fabric() as daemon, healthy(daemon):
            [failure] = told(await raw(daemon, b"GET / HTTP/1.1\r\n\r\n", close=False))
            assert failure.kind == "CodecError"
            assert "frame" in failure.message
            [failure] = told(await raw(daemon, struct.pack("!I", 3) + b"\x01\x02\x03", close=False))
            assert failure.kind == "CodecError"
            [failure] = told(await raw(daemon, frame(p.LookUp(1, "reading")), close=False))
            assert "hello" in failure.message
            [failure] = told(await raw(daemon, frame(p.Hello(99)), close=False))
            assert f"protocol version {p.PROTOCOL}" in failure.message
            assert told(await raw(daemon, b"")) == []
            assert told(await raw(daemon, frame(p.Hello(1))[:7])) == []

    run(main())


def test_malformed_requests_after_hello_are_answered_until_patience_ends():
    async def main():
        async with fabric() as daemon, healthy(daemon):
            body = msgspec.msgpack.encode({"type": "LookUp", "request": 3, "name": 7})
            bad = struct.pack("!I", len(body)) + body
            hello = frame(p.Hello(p.PROTOCOL, role="observer"))
            welcome, *failures = told(await raw(daemon, hello + bad * 5 + frame(p.LookUp(9, "reading"))))
            assert isinstance(welcome, p.Welcome)
            assert sorted(f.request for f in failures) == [3] * 5 + [9]
            *_, last = told(await raw(daemon, hello + bad * 200, close=False))
            assert (last.request, last.kind) == (0, "CodecError")
            assert "at most 100 malformed" in last.message
            second = told(await raw(daemon, hello + frame(p.Hello(p.PROTOCOL, request=5))))[1]
            assert "a second" in second.message

    run(main())


def test_a_client_that_never_says_hello_is_shown_out():
    async def main():
        async with fabric(listen__hello=0.05) as daemon, healthy(daemon):
            [failure] = told(await raw(daemon, b"", close=False))
            assert "hello within 0.05 s" in failure.message

    run(main())


def test_too_many_connections_are_turned_away():
    async def main():
        async with fabric(listen__max_clients=3) as daemon, healthy(daemon):
            third = await sievenet.connect(daemon.url)
            with pytest.raises(Rejected, match="at most 3 connections"):
                await sievenet.connect(daemon.url)
            assert daemon.server.turned_away == 1
            await third.close()
            await eventually(lambda: len(daemon.server.connections) < 3)
            await (await sievenet.connect(daemon.url)).close()

    run(main())


@pytest.mark.parametrize("seed", seeds(1))
def test_garbage_on_both_ports_disturbs_nobody(seed):
    rng = random.Random(seed)

    def noise():
        good = frame(p.Subscribe(5, 1, 1, b"\x20")) if rng.random() < 0.5 else frame(p.Hello(p.PROTOCOL, name="noise"))
        data = bytearray(
            rng.choice([good, rng.randbytes(rng.randrange(1, 300)), frame(p.Hello(p.PROTOCOL, role="observer")) + good])
        )
        for _ in range(rng.randrange(4)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        return bytes(data)

    async def main():
        async with fabric(listen__hello=0.2) as daemon, healthy(daemon) as check:
            endpoint = daemon.plane.endpoint
            token = daemon.plane.clients()["healthy-source"].token
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gun:
                for _round in range(15):
                    await asyncio.gather(*(raw(daemon, noise()) for _ in range(10)))
                    for _ in range(60):
                        data = bytearray(encode_datagram(token ^ 1, [encode_packet(Packet(1, 0, 1, 1, 1, 0, b"x"))]))
                        kind = rng.randrange(3)
                        if kind == 0:
                            data = bytearray(rng.randbytes(rng.randrange(1, 1400)))
                        elif kind == 1:
                            data[rng.randrange(len(data) - 8)] ^= 1 << rng.randrange(8)
                            data[16:24] = (token ^ 1).to_bytes(8, "big")
                        gun.sendto(bytes(data), endpoint)
                    await check(5)
            counts = daemon.plane.statistics()
            assert counts.malformed > 0
            assert counts.unknown > 0

    run(main(), timeout=120)


def test_a_client_cannot_speak_with_anothers_number():
    async def main():
        async with (
            fabric() as daemon,
            sievenet.connect(daemon.url) as node,
            publisher(daemon) as source,
            publisher(daemon) as forger,
        ):
            feed = await node.subscribe("reading")
            [packet] = forger._outbox.packets(reading(1), 1)
            forged = Packet(packet.category, packet.code, source._outbox.publisher, 0, 1, 0, packet.body)
            forger._session.port.send([forged])
            await source.publish(reading(2))
            assert (await take(feed, 1))[0]["x"] == 2
            await eventually(lambda: daemon.plane.statistics().forged == 1)

    run(main())


def test_what_is_not_advertised_goes_nowhere():
    """A client may send only in categories that it advertises in, now; others are dropped and shown by `status`."""

    async def main():
        async with (
            fabric() as daemon,
            sievenet.connect(daemon.url) as node,
            publisher(daemon) as source,
            sievenet.connect(daemon.url) as forger,
        ):
            feed = await node.subscribe("reading")

            async def shown():
                return (await node.ask("status"))["datagrams"]["unadvertised"]

            def send(number):
                [packet] = source._outbox.packets(reading(number), 1)
                own = Packet(packet.category, packet.code, forger._outbox.publisher, number, 1, 0, packet.body)
                forger._session.port.send([own])

            async def refused(count):
                return await shown() == count

            send(1)
            await eventually(lambda: refused(1))
            advertisement = await forger.advertise(SCHEMA)
            send(2)
            assert (await take(feed, 1))[0]["x"] == 2
            await forger.unadvertise(advertisement)
            send(3)
            await eventually(lambda: refused(2))
            await source.publish(reading(4))
            assert (await take(feed, 1))[0]["x"] == 4

    run(main())


def test_datagrams_that_are_none_are_counted_by_the_client():
    async def main():
        async with fabric() as daemon, sievenet.connect(daemon.url, name="n") as node, publisher(daemon) as source:
            feed = await node.subscribe("reading")
            port = node._session.port
            address = port._socket.getsockname()
            token = daemon.plane.clients()["n"].token
            sock = daemon.plane._sock
            sock.sendto(b"garbage", address)
            sock.sendto(encode_datagram(token ^ 1, (), kind=Kind.HELLO), address)
            bad = Packet(1, 0, 7, 7, 7, 0, b"\xff\xff")
            sock.sendto(encode_datagram(token, [encode_packet(bad)]), address)
            await source.publish(reading(4))
            assert (await take(feed, 1))[0]["x"] == 4
            await eventually(lambda: port.malformed == 2)
            assert node.statistics().received.malformed == 3

    run(main())


def test_an_address_in_use_is_said_plainly():
    async def main():
        async with fabric() as daemon:
            port = int(daemon.url.rsplit(":", 1)[1])
            with pytest.raises(Unavailable, match="Cannot listen"):
                async with fabric(listen__port=port):
                    pass
            with pytest.raises(Unavailable, match="UDP"):
                async with fabric(data__port=daemon.plane.endpoint[1]):
                    pass

    run(main())
