"""One of ten clients, attacking a fabric at full speed until it is killed: each attack once stopped or slowed a daemon.

It has a login of its own and speaks the protocols itself, without the client library's manners.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import sys
import time
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

from benchmarks._fabric_worker import SCHEMA, say
from sievenet.access.identity import Role
from sievenet.access.login import load_login
from sievenet.access.seal import CLEAR, Channel
from sievenet.client.url import parse_url
from sievenet.content import Attribute, Filter, Schema, Subscription, ValueSet
from sievenet.content.codec import encode_event, encode_subscription
from sievenet.control import protocol as p
from sievenet.dataplane.packet import Kind, Packet, encode_datagram, encode_packet, publisher_of
from sievenet.session.framing import frame

Attack = Callable[["Attacker"], Coroutine[Any, Any, None]]
WIDE = Schema("wide", tuple(Attribute(f"a{i}", "int", lo=0, hi=1 << 20) for i in range(64)))


class Wire:
    """A connection of bare frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._framer = p.CONTROL.dialling()
        self._heard: list[Any] = []

    async def hear(self) -> Any:
        while not self._heard:
            data = await self.reader.read(1 << 16)
            if not data:
                raise ConnectionError
            self._heard += self._framer.feed(data)
        return self._heard.pop(0)

    async def say(self, message: Any) -> None:
        self.writer.write(message if isinstance(message, bytes) else frame(message))
        await self.writer.drain()

    async def drink(self) -> None:
        """Read whatever comes."""
        with contextlib.suppress(OSError, ConnectionError):
            while await self.reader.read(1 << 18):
                pass


class Attacker:
    """Where to attack, and with whose login."""

    def __init__(self, url: str) -> None:
        self._address = parse_url(url)
        login = os.environ.get("SIEVENET_LOGIN")
        self._login = None if login is None else load_login(login)
        self._tls = None if self._login is None else self._login.dialling()
        self._begun = False

    def begun(self) -> None:
        """Say so, once."""
        if not self._begun:
            self._begun = True
            say({})

    async def connect(self) -> Wire:
        host, port, _ = self._address
        wire = Wire(*await asyncio.open_connection(host, port, ssl=self._tls))
        self.begun()
        return wire

    async def enter(self, role: Role = Role.CLIENT, token: str | None = None) -> tuple[Wire, Any]:
        wire = await self.connect()
        mine = "" if self._login is None else self._login.token
        await wire.say(p.Hello(p.PROTOCOL, role, token=mine if token is None else token))
        return wire, await wire.hear()

    async def category(self, wire: Wire, schema: Schema | None = None) -> int:
        await wire.say(p.LookUp(1, "point") if schema is None else p.Register(1, schema))
        return int((await wire.hear()).category.number)


async def again(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do something again and again, whatever the other side makes of it."""
    while True:
        with contextlib.suppress(OSError, ConnectionError, ssl.SSLError, AttributeError):
            await work()
        await asyncio.sleep(0)


async def filters(a: Attacker) -> None:
    """Subscriptions of 1,024 filters with 64 attributes each."""
    boxes = [
        Filter(WIDE, {f"a{i}": ValueSet.interval(j * 7 + i, 1000 + j * 11 + i) for i in range(64)}) for j in range(1024)
    ]
    content = encode_subscription(Subscription(boxes))

    async def once() -> None:
        wire, _ = await a.enter()
        number = await a.category(wire, WIDE)
        drinking = asyncio.create_task(wire.drink())
        for i in range(1000):
            await wire.say(p.Subscribe(i + 2, i, number, content))
        drinking.cancel()

    await again(once)


async def schemas(a: Attacker) -> None:
    """Large schemas under ever new names."""
    values = tuple(f"value-{i:06}" for i in range(20_000))

    async def once() -> None:
        wire, _ = await a.enter()
        drinking = asyncio.create_task(wire.drink())
        for i in range(1000):
            await wire.say(p.Register(i + 1, Schema(f"s{time.time_ns()}", (Attribute("v", "str", values=values),))))
        drinking.cancel()

    await again(once)


async def questions(a: Attacker) -> None:
    """Twenty observers ask for the topology and the status."""

    async def once() -> None:
        wire, _ = await a.enter(Role.OBSERVER)
        drinking = asyncio.create_task(wire.drink())
        for i in range(100_000):
            await wire.say(p.Ask(i + 1, "topology" if i % 2 else "status"))
        drinking.cancel()

    await asyncio.gather(*(again(once) for _ in range(20)))


async def idle(a: Attacker) -> None:
    """Connections that say nothing, or only hello, as many as there may be."""
    kept: list[Wire] = []

    async def once() -> None:
        wire = (await a.enter(Role.OBSERVER))[0] if len(kept) % 2 else await a.connect()
        kept.append(wire)
        if len(kept) > 600:
            kept.pop(0).writer.close()

    await again(once)


async def unread(a: Attacker) -> None:
    """Questions whose answers are never read, and requests of a megabyte."""

    async def once() -> None:
        wire, _ = await a.enter()
        large = p.Ask(1, "trace", "x" * 60_000)
        for i in range(20_000):
            wire.writer.write(frame(p.Ask(i + 1, "status") if i % 2 else large))
            if i % 50 == 0:
                await asyncio.wait_for(wire.writer.drain(), 2)

    async def limited() -> None:
        with contextlib.suppress(TimeoutError):
            await once()

    await again(limited)


async def guesses(a: Attacker) -> None:
    """Hellos with wrong tokens, each with a handshake of its own."""

    async def once() -> None:
        wire, _ = await a.enter(token=f"reader.{time.time_ns()}")
        wire.writer.close()

    await asyncio.gather(*(again(once) for _ in range(8)))


async def malformed(a: Attacker) -> None:
    """Frames that are none."""

    async def once() -> None:
        wire, _ = await a.enter()
        for _ in range(200):
            await wire.say((64).to_bytes(4, "big") + os.urandom(64))
        wire.writer.close()

    await again(once)


async def tables(a: Attacker) -> None:
    """Ever more small subscriptions, to fill the flow tables."""

    async def once() -> None:
        wire, _ = await a.enter()
        number = await a.category(wire)
        drinking = asyncio.create_task(wire.drink())
        for i in range(100_000):
            x, y = i * 7919 % 16_000, i * 104_729 % 16_000
            box = {"x": ValueSet.interval(x, x), "y": ValueSet.interval(y, y)}
            await wire.say(p.Subscribe(i + 2, i, number, encode_subscription(Subscription([Filter(SCHEMA, box)]))))
        drinking.cancel()

    await again(once)


async def datagrams(a: Attacker, advertised: bool, sealed: bool) -> None:
    """Packets as fast as the socket takes them."""
    wire, welcome = await a.enter()
    number = await a.category(wire)
    if advertised:
        await wire.say(p.Advertise(2, 1, number, encode_subscription(Subscription([Filter(SCHEMA)]))))
        await wire.hear()
    drinking = asyncio.create_task(wire.drink())
    data = welcome.data
    channel = Channel(data.key, down=False) if data.key and sealed else None
    body = encode_event(SCHEMA.event(x=1, y=1))
    packet = Packet(number, 0, publisher_of(data.token), 0, time.time_ns(), 0, body, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((data.address, data.port))
        for sequence in count(1):
            kind = Kind.HELLO if sequence == 1 else Kind.DATA
            several = [] if sequence == 1 else [encode_packet(packet)] * 20
            datagram = encode_datagram(data.token, several, kind=kind, sequence=sequence, window=96)
            with contextlib.suppress(OSError):
                sock.send(datagram if channel is None else channel.seal(datagram[:CLEAR], datagram[CLEAR:]))
            if sequence % 100 == 0:
                await wire.say(p.Renew(sequence % (1 << 31) + 10))
                await asyncio.sleep(0)
    drinking.cancel()


async def nothing(a: Attacker) -> None:
    """No attack: a process that computes, so that machines of few processors are as busy as under the others."""
    a.begun()
    while True:
        sum(range(10_000))
        await asyncio.sleep(0)


ATTACKS: dict[str, Attack] = {
    "filters": filters,
    "schemas": schemas,
    "questions": questions,
    "idle": idle,
    "unread": unread,
    "guesses": guesses,
    "malformed": malformed,
    "tables": tables,
    "unadvertised": lambda a: datagrams(a, advertised=False, sealed=True),
    "flood": lambda a: datagrams(a, advertised=True, sealed=True),
    "forged": lambda a: datagrams(a, advertised=True, sealed=False),
}


async def main(url: str, name: str) -> None:
    """Attack until killed."""
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of each write to a connection that was cut off
    await {**ATTACKS, "nothing": nothing}[name](Attacker(url))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
