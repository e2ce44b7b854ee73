"""Small blocking clients for the router benchmark: of a content router, NATS, MQTT, ActiveMQ; and a publishing process.

    python -m benchmarks._brokers router|nats|mqtt|activemq HOST PORT COUNT BATCH RATE SUBSCRIPTIONS

Each speaks its protocol directly, so that what is measured is the broker and not a client library.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec
import numpy as np

from sievenet.content import Attribute, EventBatch, Filter, Schema, Subscription, encode_batch, encode_subscription
from sievenet.content.codec import encode_schema
from sievenet.routers import protocol as p
from sievenet.routers.messages import Carried, category_of
from sievenet.session.framing import frame

SCHEMA = Schema("load", (Attribute("x", "int", lo=0, hi=999_999), Attribute("y", "int", lo=0, hi=999)))
#: Bytes of a message for brokers that do not look inside: about as many as an event has.
SIZE = 32


class Broker(Protocol):
    """A connection to a broker."""

    def subscribe(self, filters: Iterable[Filter]) -> None:
        """Subscribe; brokers by topic to the topic of what the filters want."""

    def publish(self, wanted: np.ndarray[tuple[int], np.dtype[np.bool_]], columns: EventBatch) -> None:
        """Publish events; brokers by topic use one topic for those that are wanted, and one for the others."""

    def receive(self) -> tuple[int, list[int]]:
        """How many events came, and when some of them were sent (nanoseconds)."""


class RouterClient:
    """A client of a content router."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = _connected(host, port)
        self._framer = p.ROUTING.dialling()
        self._send(p.Hello(p.PROTOCOL))
        self._read(1)
        self._send(p.Register(1, encode_schema(SCHEMA)))
        self._read(1)
        self._category = category_of(SCHEMA)
        self._next = 0

    def _send(self, *messages: msgspec.Struct) -> None:
        self._socket.sendall(b"".join(map(frame, messages)))

    def _read(self, count: int) -> list[object]:
        found: list[object] = []
        while len(found) < count:
            data = self._socket.recv(1 << 20)
            if not data:
                raise ConnectionError("the router closed the connection")
            came = list(self._framer.feed(data))
            if any(isinstance(each, p.Alive) for each in came):
                self._send(p.Alive())
            found += [each for each in came if not isinstance(each, p.Alive)]
        return found

    def subscribe(self, filters: Iterable[Filter]) -> None:
        """Subscribe to many filters; returns when all routers know them."""
        every = list(filters)
        for start in range(0, len(every), 1000):
            messages = [
                p.Subscribe(2 + i, i, self._category, encode_subscription(Subscription([each])))
                for i, each in enumerate(every[start : start + 1000], start)
            ]
            self._send(*messages)
            for answer in self._read(len(messages)):
                if not isinstance(answer, p.Done):
                    raise ConnectionError(f"expected Done, got {answer}")

    def publish(self, wanted: np.ndarray[tuple[int], np.dtype[np.bool_]], columns: EventBatch) -> None:
        """Publish a batch."""
        self._send(p.Publish(self._category, self._next, time.time_ns(), encode_batch(columns)))
        self._next += len(columns)

    def receive(self) -> tuple[int, list[int]]:
        """Events that came."""
        count, times = 0, []
        for message in self._read(1):
            if not isinstance(message, Carried):
                continue  # a sign of life
            count += len(message.sequences) // 8
            times.append(int.from_bytes(message.departures[:8], "little"))
        return count, times


class NatsClient:
    """A client of NATS, core protocol."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = _connected(host, port)
        self._buffer = b""
        while b"\r\n" not in self._buffer:
            self._buffer += self._socket.recv(65536)
        self._buffer = b""
        self._socket.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\nPING\r\n')
        self._pong()

    def _pong(self) -> None:
        while not self._buffer.endswith(b"PONG\r\n"):
            self._buffer += self._socket.recv(65536)
        self._buffer = b""

    def subscribe(self, filters: Iterable[Filter]) -> None:
        """Subscribe to the topic of wanted events."""
        self._socket.sendall(b"SUB yes 1\r\nPING\r\n")
        self._pong()

    def publish(self, wanted: np.ndarray[tuple[int], np.dtype[np.bool_]], columns: EventBatch) -> None:
        """Publish one message per event."""
        body = struct.pack("<q", time.time_ns()).ljust(SIZE, b".") + b"\r\n"
        yes, no = b"PUB yes %d\r\n" % SIZE + body, b"PUB no %d\r\n" % SIZE + body
        self._socket.sendall(b"".join([yes if w else no for w in wanted.tolist()]))

    def receive(self) -> tuple[int, list[int]]:
        """Messages that came."""
        data = self._buffer + self._socket.recv(1 << 20)
        size = len(b"MSG yes 1 %d\r\n" % SIZE) + SIZE + 2
        if data.startswith(b"PING"):
            self._socket.sendall(b"PONG\r\n")
            data = data[6:]
        count = len(data) // size
        self._buffer = data[count * size :]
        head = size - SIZE - 2
        return count, [struct.unpack_from("<q", data, head)[0]] if count else []


class MqttClient:
    """A client of MQTT 3.1.1, quality of service 0."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = _connected(host, port)
        name = b"bench%d" % time.perf_counter_ns()
        body = b"\0\4MQTT\4\2\0\0" + struct.pack("!H", len(name)) + name
        self._socket.sendall(b"\x10" + bytes([len(body)]) + body)
        self._socket.recv(4)
        self._buffer = b""

    def subscribe(self, filters: Iterable[Filter]) -> None:
        """Subscribe to the topic of wanted events."""
        self._socket.sendall(b"\x82\x08\0\1\0\3yes\0")
        self._socket.recv(5)

    def publish(self, wanted: np.ndarray[tuple[int], np.dtype[np.bool_]], columns: EventBatch) -> None:
        """Publish one message per event."""
        body = struct.pack("<q", time.time_ns()).ljust(SIZE, b".")
        yes = b"\x30" + bytes([5 + SIZE]) + b"\0\3yes" + body
        no = b"\x30" + bytes([4 + SIZE]) + b"\0\2no" + body
        self._socket.sendall(b"".join([yes if w else no for w in wanted.tolist()]))

    def receive(self) -> tuple[int, list[int]]:
        """Messages that came."""
        data = self._buffer + self._socket.recv(1 << 20)
        size = 7 + SIZE
        count = len(data) // size
        self._buffer = data[count * size :]
        return count, [struct.unpack_from("<q", data, 7)[0]] if count else []


class ActiveMqClient:
    """A client of ActiveMQ over STOMP, with a JMS selector for each subscription.

    Headers are text; ActiveMQ reads numbers out of them where a selector compares with one. An event comes once for
    each selector that it matches.
    """

    def __init__(self, host: str, port: int) -> None:
        self._socket = _connected(host, port)
        self._buffer = b""
        self._socket.sendall(b"CONNECT\nhost:localhost\n\n\0")
        self._frames(1)

    def _frames(self, least: int) -> list[bytes]:
        found: list[bytes] = []
        while len(found) < least:
            data = self._socket.recv(1 << 20)
            if not data:
                raise ConnectionError("ActiveMQ closed the connection")
            *whole, self._buffer = (self._buffer + data).split(b"\0")
            found += [frame.lstrip(b"\n") for frame in whole]
        for each in found:
            if each.startswith(b"ERROR"):
                raise ConnectionError(each.decode(errors="replace")[:300])
        return found

    def subscribe(self, filters: Iterable[Filter]) -> None:
        """One selector for each filter; returns when the broker has them all."""
        every = [each["x"].cuts for each in filters]
        for start in range(0, len(every), 500):
            frames = [
                f"SUBSCRIBE\nid:{i}\ndestination:/topic/load\nack:auto\nactivemq.prefetchSize:32000\n"
                f"selector:x >= {first[1]} AND x < {last[1]}\n\n\0"
                for i, (first, last) in enumerate(every[start : start + 500], start)
            ]
            self._socket.sendall("".join(frames).encode() + b"SEND\ndestination:/topic/none\nreceipt:done\n\n\0")
            while not any(frame.startswith(b"RECEIPT") for frame in self._frames(1)):
                continue

    def publish(self, wanted: np.ndarray[tuple[int], np.dtype[np.bool_]], columns: EventBatch) -> None:
        """Publish one message per event."""
        x = columns.columns[0]
        assert isinstance(x, np.ndarray)
        body = str(time.time_ns()).ljust(SIZE, ".")
        frames = [f"SEND\ndestination:/topic/load\nx:{each}\n\n{body}\0" for each in x.tolist()]
        self._socket.sendall("".join(frames).encode())

    def receive(self) -> tuple[int, list[int]]:
        """Messages that came."""
        bodies = [f.partition(b"\n\n")[2] for f in self._frames(1) if f.startswith(b"MESSAGE")]
        return len(bodies), [int(bodies[0].rstrip(b"."))] if bodies else []


CLIENTS: dict[str, Callable[[str, int], Broker]] = {
    "router": RouterClient,
    "nats": NatsClient,
    "mqtt": MqttClient,
    "activemq": ActiveMqClient,
}


def _connected(host: str, port: int) -> socket.socket:
    found = socket.create_connection((host, port), timeout=120)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found


def events(count: int, seed: int) -> EventBatch:
    """Events, evenly spread."""
    rng = np.random.default_rng(seed)
    return EventBatch.of(SCHEMA, {"x": rng.integers(0, 1_000_000, count), "y": rng.integers(0, 1000, count)})


def wanted_by(
    starts: np.ndarray[tuple[int], np.dtype[np.int64]], width: int, batch: EventBatch
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which events one of the filters ``start <= x < start + width`` wants."""
    x = batch.columns[0]
    assert isinstance(x, np.ndarray)
    ordered = np.sort(starts)
    before = np.searchsorted(ordered, x, side="right") - 1
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = (before >= 0) & (x < ordered[before] + width)
    return found


def matches_of(starts: np.ndarray[tuple[int], np.dtype[np.int64]], width: int, batch: EventBatch) -> int:
    """How often one of the filters matches an event."""
    x = batch.columns[0]
    assert isinstance(x, np.ndarray)
    ordered = np.sort(starts)
    begun, ended = np.searchsorted(ordered, x, side="right"), np.searchsorted(ordered + width, x, side="right")
    return int((begun - ended).sum())


def starts_of(subscriptions: int) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], int]:
    """Where the filters begin, and how wide each is: together they want about half of the events."""
    rng = np.random.default_rng(subscriptions)
    width = max(1, 700_000 // subscriptions)
    return rng.integers(0, 1_000_000 - width, subscriptions), width


def main(arguments: list[str]) -> None:
    """Publish, at a rate (0: as quickly as the broker takes it)."""
    kind, host, port, count, batch, rate, subscriptions = arguments
    client: Broker = CLIENTS[kind](host, int(port))
    every = events(int(count), 1)
    wanted = wanted_by(*starts_of(int(subscriptions)), every)
    step = int(batch)
    begin = time.perf_counter()
    for start in range(0, len(every), step):
        rows = slice(start, start + step)
        if float(rate):
            ahead = begin + start / float(rate) - time.perf_counter()
            if ahead > 0:
                time.sleep(ahead)
        client.publish(wanted[rows], every.take(rows))
    sys.stdin.read()  # stay until told to go: some brokers drop what a gone client sent


if __name__ == "__main__":
    main(sys.argv[1:])
