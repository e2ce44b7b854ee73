"""One cache's inner work on real sockets: datagrams in, ring and queues, datagrams to every subscriber out.

Every event is a datagram of its own, as real switches carry them. What comes is put into the socket's buffer first, so
that only the cache's work is timed: reading, parsing, keeping, queueing, releasing, wrapping and sending. The baseline
reads the same datagrams and sends each of them to every subscriber as it is. Both read and send many with one system
call. Nobody reads at the other end; the kernel drops what its buffer has no room for.
"""

from __future__ import annotations

import socket
import time

import numpy as np

from sievenet.cache.cache import Cache
from sievenet.cache.messages import Progress, Take, Taken
from sievenet.cache.ring import Ring
from sievenet.cachehost.envelope import gathered, records_of, rows_of
from sievenet.cachehost.filters import SchemaFilters
from sievenet.client.directed import wrapped_many
from sievenet.client.ports.burst import Burst, uniform
from sievenet.client.ports.mmsg import NAME, Inlet, Outlet
from sievenet.content import Attribute, EventBatch, Filter, Schema, Subscription
from sievenet.content.layout import Bytes, layout_of

SCHEMA = Schema("point", (Attribute("x", "int", lo=0, hi=65535), Attribute("y", "int", lo=0, hi=65535)))
#: Datagrams that are read together.
TOGETHER = 256


def packets(count: int, first: int) -> Bytes:
    """Packets with numbers that follow each other, one in each row."""
    layout = layout_of(SCHEMA)
    assert layout is not None
    columns = (np.arange(count, dtype=np.int64) % 65536, np.arange(count, dtype=np.int64) % 65536)
    bodies = layout.encode(EventBatch(SCHEMA, columns))
    assert bodies is not None
    burst = Burst(3, np.zeros(count, np.uint64), np.zeros(count, np.uint64), bodies)
    burst.stamp(9, 9, np.arange(count, dtype=np.uint64) + np.uint64(first), time.time_ns())
    return burst.matrix


class Sockets:
    """What a process reads from, and where it sends."""

    def __init__(self) -> None:
        family, kind = socket.AF_INET6, socket.SOCK_DGRAM
        self.inward, self.outward, self.sink = (socket.socket(family, kind) for _ in range(3))
        for each in (self.inward, self.sink):
            each.bind(("::1", 0))
        for option in (socket.SO_RCVBUF, 33):  # 33: beyond the usual bound, for root
            try:
                self.inward.setsockopt(socket.SOL_SOCKET, option, 64 << 20)
            except PermissionError:
                continue
        self._inlet = Inlet(TOGETHER, 512)

    def _send(self, matrix: Bytes, to: socket.socket) -> int:
        names = np.zeros(len(matrix), NAME)
        names["family"], names["port"] = socket.AF_INET6, to.getsockname()[1]
        names["address"][:, 15] = 1
        outlet = Outlet(matrix, names)
        while len(outlet):
            outlet.send(self.outward, 1024)
        return len(matrix)

    def fill(self, matrix: Bytes) -> None:
        self._send(matrix, self.inward)

    def send(self, matrix: Bytes) -> int:
        return self._send(matrix, self.sink)

    def read(self) -> list[Bytes]:
        return [matrix for matrix, _ in self._inlet.read(self.inward)]

    def close(self) -> None:
        for each in (self.inward, self.outward, self.sink):
            each.close()


def resend(sockets: Sockets, subscribers: int) -> int:
    """The baseline: read and send."""
    sent = 0
    while some := sockets.read():
        for matrix in some:
            for _ in range(subscribers):
                sent += sockets.send(matrix)
    return sent


class Pump:
    """A cache with subscribers that take everything at once."""

    def __init__(self, sockets: Sockets, subscribers: int, together: bool = True) -> None:
        self._sockets, self._together = sockets, together
        self._cache = Cache(seed=1)
        self._cache.open("point", Ring, SchemaFilters(SCHEMA), 0.0)
        wanted = Subscription([Filter(SCHEMA)], SCHEMA)
        self._streams: dict[int, int] = {}
        for number in range(subscribers):
            self._cache.assign(number, "point", wanted, number, 0.0)
            answer = self._cache.hear(number, Take(1, back=1.0, age=1.0), 0.0)
            assert isinstance(answer, Taken)
            self._streams[number] = answer.stream
        self._taken = dict.fromkeys(self._streams, 0)

    def run(self) -> int:
        """Read everything, and send it to everybody."""
        sent, now = 0, time.monotonic()
        while some := self._sockets.read():
            for matrix in some:
                arrivals = uniform(matrix)
                assert arrivals is not None
                heads = arrivals.heads
                keys = (heads["publisher"], heads["incarnation"], heads["sequence"])
                self._cache.arrive("point", records_of(arrivals), now, keys)
            sent += self._send(now)
            now += 0.05
        while more := self._send(now):
            sent += more
            now += 0.05
        self._cache.tick(now)
        return sent

    def _send(self, now: float) -> int:
        sent = 0
        for sending in self._cache.send(now):
            [member] = sending.members
            for run in sending.runs:
                rows = rows_of(run, 3)
                assert rows is not None
                for matrix in gathered(rows) if self._together else [rows]:
                    to = np.full(len(matrix), member, np.uint32)
                    codes = to.astype(np.uint64) << np.uint64(32)
                    burst = Burst(4, codes, np.zeros(len(to), np.uint64), wrapped_many(to, matrix))
                    burst.stamp(5, 5, np.arange(len(to), dtype=np.uint64), 0)
                    self._sockets.send(burst.matrix)
                sent += len(rows)
                self._taken[member] = run.first + len(run.records)
            number = self._taken[member]
            self._cache.hear(member, Progress(1, self._streams[member], number, number), now + 0.03)
        return sent
