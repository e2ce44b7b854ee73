"""The processes of the broker benchmark: a publisher and a subscriber, over STOMP (ActiveMQ) or AMQP (RabbitMQ).

They take the same JSON lines as the processes of the fabric benchmark and do the same work: subscriptions tile x, and
every event goes to exactly one of them. Both clients are small and written for this: no library is in the way.
"""

from __future__ import annotations

import asyncio
import struct
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from benchmarks._fabric_worker import DOMAIN, Command, serve

#: When it left, x, y; filled up to what an event of the fabric takes.
_BODY = struct.Struct(">QII32x")
#: Connections that the subscriptions are dealt out to, as the fabric has nodes.
_CONNECTIONS = 4
_WINDOW = 1 << 20


class Client(Protocol):
    """A connection to a broker."""

    async def open(self, port: int, receive: Callable[[bytes], None]) -> None: ...

    async def subscribe(self, number: int, low: int, high: int) -> None: ...

    async def settle(self) -> None: ...

    async def clear(self) -> None: ...

    def publish(self, x: int, piece: int, body: bytes) -> None: ...

    async def drain(self) -> None: ...

    def close(self) -> None: ...


class Stomp:
    """STOMP 1.0 to ActiveMQ: one topic, a JMS selector for each subscription.

    Headers are text; ActiveMQ reads numbers out of them where a selector compares with one, so that the selectors say
    what Sievenet's filters say.
    """

    async def open(self, port: int, receive: Callable[[bytes], None]) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port, limit=_WINDOW)
        self._receive = receive
        self._receipts: dict[str, asyncio.Future[None]] = {}
        self._subscribed: list[int] = []
        self._receipt = 0
        self._writer.write(b"CONNECT\nhost:localhost\n\n\0")
        head = await self._reader.readuntil(b"\0")
        if not head.startswith(b"CONNECTED"):
            raise RuntimeError(f"no STOMP broker: {head[:100]!r}")
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while True:
            head = (await self._reader.readuntil(b"\n\n")).lstrip(b"\n")
            command, *lines = head.decode().strip().split("\n")
            headers = dict(line.split(":", 1) for line in lines)
            if "content-length" in headers:
                body = (await self._reader.readexactly(int(headers["content-length"]) + 1))[:-1]
            else:
                body = (await self._reader.readuntil(b"\0"))[:-1]
            if command == "MESSAGE":
                self._receive(body)
            elif command == "RECEIPT":
                self._receipts.pop(headers["receipt-id"]).set_result(None)
            else:
                raise RuntimeError(f"{command}: {body[:200]!r}")

    async def subscribe(self, number: int, low: int, high: int) -> None:
        self._subscribed.append(number)
        self._writer.write(
            f"SUBSCRIBE\nid:{number}\ndestination:/topic/points\nack:auto\nactivemq.prefetchSize:32000\n"
            f"selector:{self._selector(number, low, high)}\n\n\0".encode()
        )

    async def settle(self) -> None:
        """Until the broker has done all that was asked before."""
        self._receipt += 1
        name = str(self._receipt)
        future = self._receipts[name] = asyncio.get_running_loop().create_future()
        self._writer.write(f"SEND\ndestination:/topic/nothing\nreceipt:{name}\n\n\0".encode())
        await future

    async def clear(self) -> None:
        for number in self._subscribed:
            self._writer.write(f"UNSUBSCRIBE\nid:{number}\n\n\0".encode())
        self._subscribed = []
        await self.settle()

    def publish(self, x: int, piece: int, body: bytes) -> None:
        what = self._header(x, piece)
        head = f"SEND\ndestination:/topic/points\n{what}\ncontent-length:{len(body)}\n\n".encode()
        self._writer.write(head + body + b"\0")

    def _selector(self, number: int, low: int, high: int) -> str:
        return f"x >= {low} AND x <= {high}"

    def _header(self, x: int, piece: int) -> str:
        return f"x:{x}"

    async def drain(self) -> None:
        await self._writer.drain()

    def close(self) -> None:
        self._writer.close()


class EqualStomp(Stomp):
    """ActiveMQ with the simplest selectors there are: the publisher says in which piece of the tiling x lies."""

    def _selector(self, number: int, low: int, high: int) -> str:
        return f"piece = '{number}'"

    def _header(self, x: int, piece: int) -> str:
        return f"piece:{piece}"


class Amqp:
    """AMQP 0-9-1 to RabbitMQ: a headers exchange, a queue for each subscription.

    A headers exchange compares for equality alone, so the publisher has to say in which piece x lies.
    """

    async def open(self, port: int, receive: Callable[[bytes], None]) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port, limit=_WINDOW)
        self._receive = receive
        self._replies: asyncio.Queue[bytes] = asyncio.Queue()
        self._queues: list[str] = []
        self._writer.write(b"AMQP\0\0\x09\x01")
        await self._frame()  # connection.start
        plain = b"\0guest\0guest"
        start = (
            struct.pack(">HHI", 10, 11, 0) + _short("PLAIN") + struct.pack(">I", len(plain)) + plain + _short("en_US")
        )
        self._method(0, start)
        await self._frame()  # connection.tune
        self._method(0, struct.pack(">HHHIH", 10, 31, 100, 131072, 0))
        self._method(0, struct.pack(">HH", 10, 40) + _short("/") + b"\0\0")
        await self._frame()
        self._method(1, struct.pack(">HHB", 20, 10, 0))
        await self._frame()
        declare = struct.pack(">HHH", 40, 10, 0) + _short("points") + _short("headers") + struct.pack(">BI", 0, 0)
        self._method(1, declare)
        await self._frame()
        self._task = asyncio.create_task(self._read())

    async def _frame(self) -> tuple[int, bytes]:
        kind, _, size = struct.unpack(">BHI", await self._reader.readexactly(7))
        payload = await self._reader.readexactly(size + 1)
        return kind, payload[:-1]

    def _method(self, channel: int, payload: bytes) -> None:
        self._writer.write(struct.pack(">BHI", 1, channel, len(payload)) + payload + b"\xce")

    async def _read(self) -> None:
        while True:
            kind, payload = await self._frame()
            if kind == 3:
                self._receive(payload)
            elif kind == 1:
                if payload[:4] in (struct.pack(">HH", 10, 50), struct.pack(">HH", 20, 40)):
                    raise RuntimeError(f"RabbitMQ closes: {payload!r}")
                if payload[:4] != struct.pack(">HH", 60, 60):  # a delivery's head
                    self._replies.put_nowait(payload)

    async def _call(self, payload: bytes) -> None:
        self._method(1, payload)
        await self._replies.get()

    async def subscribe(self, number: int, low: int, high: int) -> None:
        name = f"q{id(self) & 0xFFFF}-{number}"
        self._queues.append(name)
        piece = _table({"x-match": "all", "piece": number})
        # Exclusive, gone with its connection.
        await self._call(struct.pack(">HHH", 50, 10, 0) + _short(name) + struct.pack(">BI", 0b0100, 0))
        bind = struct.pack(">HHH", 50, 20, 0) + _short(name) + _short("points") + _short("") + b"\0" + piece
        await self._call(bind)
        consume = struct.pack(">HHH", 60, 20, 0) + _short(name) + _short(name) + struct.pack(">BI", 0b0010, 0)
        await self._call(consume)

    async def settle(self) -> None:
        """Each call has been answered already."""

    async def clear(self) -> None:
        for name in self._queues:
            await self._call(struct.pack(">HHH", 50, 40, 0) + _short(name) + b"\0")
        self._queues = []

    def publish(self, x: int, piece: int, body: bytes) -> None:
        self._method(1, struct.pack(">HHH", 60, 40, 0) + _short("points") + _short("") + b"\0")
        head = struct.pack(">HHQH", 60, 0, len(body), 1 << 13) + _table({"piece": piece})
        self._writer.write(
            struct.pack(">BHI", 2, 1, len(head))
            + head
            + b"\xce"
            + struct.pack(">BHI", 3, 1, len(body))
            + body
            + b"\xce"
        )

    async def drain(self) -> None:
        await self._writer.drain()

    def close(self) -> None:
        self._writer.close()


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


CLIENTS: dict[str, Callable[[], Client]] = {"activemq": Stomp, "activemq_equal": EqualStomp, "rabbitmq": Amqp}


async def publisher(kind: str, port: int) -> None:
    """Publishes at a rate, or as fast as the broker takes it."""
    client = CLIENTS[kind]()
    rng = np.random.default_rng(1)

    async def start() -> tuple[dict[str, Any], dict[str, Command]]:
        await client.open(port, lambda body: None)
        return {}, {"steady": steady, "flood": flood}

    def send(x: int, y: int, width: int) -> None:
        client.publish(x, x // width, _BODY.pack(time.time_ns(), x, y))

    async def steady(order: dict[str, Any]) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        due = loop.time()
        for x, y in rng.integers(DOMAIN, size=(order["count"], 2)).tolist():
            due += 1 / order["rate"]
            await asyncio.sleep(max(0.0, due - loop.time()))
            send(x, y, order["width"])
            await client.drain()
        return {"published": order["count"]}

    async def flood(order: dict[str, Any]) -> dict[str, Any]:
        points = rng.integers(DOMAIN, size=(order["count"], 2)).tolist()
        begin = time.time()
        for i, (x, y) in enumerate(points):
            send(x, y, order["width"])
            if i % 64 == 0:
                await client.drain()
        await client.drain()
        return {"published": order["count"], "begin": begin}

    await serve(start)


async def subscriber(kind: str, port: int) -> None:
    """Subscriptions that tile x."""
    clients: list[Client] = []
    state: dict[str, Any] = {"latencies": [], "last": 0.0}

    def receive(body: bytes) -> None:
        now = time.time_ns()
        state["latencies"].append(now - _BODY.unpack(body)[0])
        state["last"] = now / 1e9

    async def start() -> tuple[dict[str, Any], dict[str, Command]]:
        for _ in range(_CONNECTIONS):
            clients.append(CLIENTS[kind]())
            await clients[-1].open(port, receive)
        return {}, {"tile": tile, "wait": wait, "reset": reset}

    async def tile(order: dict[str, Any]) -> dict[str, Any]:
        for client in clients:
            await client.clear()
        count = order["count"]
        width = DOMAIN // count
        begin = time.perf_counter()
        for i in range(count):
            await clients[i % _CONNECTIONS].subscribe(i, i * width, (i + 1) * width - 1)
        for client in clients:
            await client.settle()
        return {"seconds": time.perf_counter() - begin}

    async def reset(order: dict[str, Any]) -> dict[str, Any]:
        state["latencies"] = []
        return {}

    async def wait(order: dict[str, Any]) -> dict[str, Any]:
        before = -1
        while len(state["latencies"]) < order["count"] and len(state["latencies"]) != before:
            before = len(state["latencies"])
            for _ in range(300):
                await asyncio.sleep(0.01)
                if len(state["latencies"]) >= order["count"]:
                    break
        answer: dict[str, Any] = {"seen": len(state["latencies"]), "last": state["last"]}
        if order.get("latencies"):
            answer["latencies"] = state["latencies"]
        return answer

    await serve(start)


if __name__ == "__main__":
    role, kind, port = sys.argv[1:]
    asyncio.run((publisher if role == "publisher" else subscriber)(kind, int(port)))
