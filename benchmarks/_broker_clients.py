"""Clients of brokers, written for speed: STOMP (ActiveMQ), AMQP (RabbitMQ), and bare UDP, which is no broker at all.

No library is in the way, and no task: what comes is taken apart where the event loop hands it over, a message is one
call to write.
"""

from __future__ import annotations

import asyncio
import struct
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["CLIENTS", "Client", "relay"]

_FRAME = struct.Struct(">BHI")
_HELLO = b"here I am"


class Client(Protocol):
    """A connection to a broker."""

    async def open(self, port: int, receive: Callable[[bytes], None]) -> None: ...

    async def subscribe(self, number: int, low: int, high: int) -> None: ...

    async def settle(self) -> None: ...

    async def clear(self) -> None: ...

    def publish(self, x: int, piece: int, body: bytes) -> None: ...

    async def drain(self) -> None: ...


class Stream(asyncio.Protocol, ABC):
    """A TCP connection whose bytes go to `parse`, which says how many of them were whole messages."""

    def __init__(self) -> None:
        self._rest = b""
        self._writable = asyncio.Event()
        self._writable.set()
        self._replies: deque[asyncio.Future[None]] = deque()

    async def open(self, port: int, receive: Callable[[bytes], None]) -> None:
        self._receive = receive
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: self, "127.0.0.1", port)
        self._write: Callable[[bytes], None] = transport.write
        await self._greet()

    @abstractmethod
    async def _greet(self) -> None: ...

    @abstractmethod
    def _parse(self, data: bytes) -> int: ...

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        self._rest = data[self._parse(data) :]

    def connection_lost(self, exc: Exception | None) -> None:
        # A benchmark without its broker is over.
        asyncio.get_running_loop().stop()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def drain(self) -> None:
        await self._writable.wait()

    async def _ask(self, data: bytes) -> None:
        """Write something that is answered, in the order of asking."""
        future = asyncio.get_running_loop().create_future()
        self._replies.append(future)
        self._write(data)
        await future

    def _answered(self) -> None:
        self._replies.popleft().set_result(None)


class Stomp(Stream):
    """STOMP 1.0 to ActiveMQ: one topic, a JMS selector for each subscription.

    Headers are text; ActiveMQ reads numbers out of them where a selector compares with one, so that the selectors say
    what Sievenet's filters say.
    """

    async def _greet(self) -> None:
        self._subscribed: list[int] = []
        await self._ask(b"CONNECT\nhost:localhost\n\n\0")

    def _parse(self, data: bytes) -> int:
        at = 0
        while True:
            while data.startswith(b"\n", at):
                at += 1
            head = data.find(b"\n\n", at)
            if head < 0:
                return at
            length = data.find(b"\ncontent-length:", at, head)
            if length < 0:
                end = data.find(b"\0", head + 2)
            else:
                end = head + 2 + int(data[length + 16 : data.index(b"\n", length + 16)])
            if not 0 <= end < len(data):
                return at
            if data.startswith(b"MESSAGE", at):
                self._receive(data[head + 2 : end])
            elif data.startswith((b"RECEIPT", b"CONNECTED"), at):
                self._answered()
            else:
                raise RuntimeError(f"ActiveMQ says {data[at:end]!r}")
            at = end + 1

    async def subscribe(self, number: int, low: int, high: int) -> None:
        self._subscribed.append(number)
        self._write(
            f"SUBSCRIBE\nid:{number}\ndestination:/topic/points\nack:auto\nactivemq.prefetchSize:32000\n"
            f"selector:{self._selector(number, low, high)}\n\n\0".encode()
        )

    async def settle(self) -> None:
        """Until the broker has done all that was asked before."""
        await self._ask(b"SEND\ndestination:/topic/nothing\nreceipt:done\n\n\0")

    async def clear(self) -> None:
        for number in self._subscribed:
            self._write(f"UNSUBSCRIBE\nid:{number}\n\n\0".encode())
        self._subscribed = []
        await self.settle()

    def publish(self, x: int, piece: int, body: bytes) -> None:
        head = f"SEND\ndestination:/topic/points\n{self._header(x, piece)}\ncontent-length:{len(body)}\n\n".encode()
        self._write(head + body + b"\0")

    def _selector(self, number: int, low: int, high: int) -> str:
        return f"x >= {low} AND x <= {high}"

    def _header(self, x: int, piece: int) -> str:
        return f"x:{x}"


class EqualStomp(Stomp):
    """ActiveMQ with the simplest selectors there are: the publisher says in which piece of the tiling x lies."""

    def _selector(self, number: int, low: int, high: int) -> str:
        return f"piece = '{number}'"

    def _header(self, x: int, piece: int) -> str:
        return f"piece:{piece}"


class Amqp(Stream):
    """AMQP 0-9-1 to RabbitMQ: a headers exchange, a queue for each subscription.

    A headers exchange compares for equality alone, so the publisher has to say in which piece x lies.
    """

    async def _greet(self) -> None:
        self._queues: list[str] = []
        await self._ask(b"AMQP\0\0\x09\x01")
        plain = b"\0guest\0guest"
        start = struct.pack(">HHI", 10, 11, 0) + _short("PLAIN") + struct.pack(">I", len(plain)) + plain
        await self._ask(_method(0, start + _short("en_US")))
        self._write(_method(0, struct.pack(">HHHIH", 10, 31, 100, 131072, 0)))
        await self._ask(_method(0, struct.pack(">HH", 10, 40) + _short("/") + b"\0\0"))
        await self._ask(_method(1, struct.pack(">HHB", 20, 10, 0)))
        declare = struct.pack(">HHH", 40, 10, 0) + _short("points") + _short("headers") + struct.pack(">BI", 0, 0)
        await self._ask(_method(1, declare))

    def _parse(self, data: bytes) -> int:
        at = 0
        while len(data) - at >= 8:
            kind, _, size = _FRAME.unpack_from(data, at)
            end = at + 7 + size
            if end >= len(data):
                break
            payload = data[at + 7 : end]
            at = end + 1
            if kind == 3:
                self._receive(payload)
            elif kind == 1:
                if payload[:4] in (b"\x00\x0a\x00\x32", b"\x00\x14\x00\x28"):
                    raise RuntimeError(f"RabbitMQ closes: {payload!r}")
                if payload[:4] != b"\x00\x3c\x00\x3c":  # a delivery's head
                    self._answered()
        return at

    async def subscribe(self, number: int, low: int, high: int) -> None:
        name = f"q{id(self) & 0xFFFF}-{number}"
        self._queues.append(name)
        # Exclusive, gone with its connection.
        declare = struct.pack(">HHH", 50, 10, 0) + _short(name) + struct.pack(">BI", 0b0100, 0)
        await self._ask(_method(1, declare))
        piece = _table({"x-match": "all", "piece": number})
        bind = struct.pack(">HHH", 50, 20, 0) + _short(name) + _short("points") + _short("") + b"\0" + piece
        await self._ask(_method(1, bind))
        consume = struct.pack(">HHH", 60, 20, 0) + _short(name) + _short(name) + struct.pack(">BI", 0b0010, 0)
        await self._ask(_method(1, consume))

    async def settle(self) -> None:
        """Each call has been answered already."""

    async def clear(self) -> None:
        for name in self._queues:
            await self._ask(_method(1, struct.pack(">HHH", 50, 40, 0) + _short(name) + b"\0"))
        self._queues = []

    def publish(self, x: int, piece: int, body: bytes) -> None:
        head = struct.pack(">HHQH", 60, 0, len(body), 1 << 13) + _table({"piece": piece})
        parts = _PUBLISH, _FRAME.pack(2, 1, len(head)), head, b"\xce", _FRAME.pack(3, 1, len(body)), body, b"\xce"
        self._write(b"".join(parts))


def _method(channel: int, payload: bytes) -> bytes:
    return _FRAME.pack(1, channel, len(payload)) + payload + b"\xce"


def _short(text: str) -> bytes:
    return struct.pack(">B", len(text)) + text.encode()


def _table(values: dict[str, str | int]) -> bytes:
    parts = b""
    for name, value in values.items():
        if isinstance(value, str):
            parts += _short(name) + b"S" + struct.pack(">I", len(value)) + value.encode()
        else:
            parts += _short(name) + b"I" + struct.pack(">i", value)
    return struct.pack(">I", len(parts)) + parts


_PUBLISH = _method(1, struct.pack(">HHH", 60, 40, 0) + _short("points") + _short("") + b"\0")


class Bare(asyncio.DatagramProtocol):
    """No broker, but a process that sends on what it gets: what two hops between processes cost at the very least."""

    async def open(self, port: int, receive: Callable[[bytes], None]) -> None:
        self._receive = receive
        self._transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: self, remote_addr=("127.0.0.1", port)
        )

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._receive(data)

    async def subscribe(self, number: int, low: int, high: int) -> None:
        self._transport.sendto(_HELLO)

    async def settle(self) -> None:
        """A datagram on this machine is there when it is sent."""

    async def clear(self) -> None:
        """Whoever greeted last gets everything."""

    def publish(self, x: int, piece: int, body: bytes) -> None:
        self._transport.sendto(body)

    async def drain(self) -> None:
        """Nothing waits."""


class _Relay(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self._to: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if data == _HELLO:
            self._to = addr
        elif self._to is not None:
            self._transport.sendto(data, self._to)


async def relay(port: int) -> None:
    """What `Bare` talks to; it also listens as brokers do, so that one sees it is there."""
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(_Relay, local_addr=("127.0.0.1", port))
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", port)
    await server.serve_forever()


CLIENTS: dict[str, Callable[[], Client]] = {
    "activemq": Stomp,
    "activemq_equal": EqualStomp,
    "rabbitmq": Amqp,
    "bare": Bare,
}
