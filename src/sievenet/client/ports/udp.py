"""A data port of the embedded data plane: a connected UDP socket, so that the kernel itself drops what comes from
elsewhere.

The rules (token, window, acknowledgements, bounded queue) are `dataplane.hostlink`, the same at both ends; here is only
the socket around them. A greeting makes the client's address known and is answered in kind, so that a port that is open
is reachable. A port that is paused closes the other end's window, whose queue then holds what it can.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Iterable
from itertools import groupby
from typing import Final

import numpy as np

from sievenet.access.seal import Channel
from sievenet.client.ports.burst import Arrivals, Burst, uniform
from sievenet.client.ports.port import DataPort, Deliver, enlarge
from sievenet.control.protocol import DataEndpoint
from sievenet.dataplane.hostlink import HostLink
from sievenet.dataplane.packet import DATAGRAM_HEADER, Kind, Packet, encode_packet, header, packets_of
from sievenet.errors import CodecError, Unavailable

__all__ = ["UdpPort"]

#: Bytes that the operating system may hold of what was not read yet (it may grant less).
_BUFFER: Final = 8 << 20
#: Datagrams read at most before others get their turn.
_BURST: Final = 64
_LARGEST: Final = 1 << 16
#: Packets of a datagram from which on they are worth a matrix.
_SEVERAL: Final = 8
#: Seconds between greetings until one is answered.
_GREET_EVERY: Final = 0.05
#: Packets that may wait for the window before a publisher has to wait too.
_AHEAD: Final = 4096


class UdpPort(DataPort):
    """A connected UDP socket: the kernel itself drops what comes from elsewhere."""

    def __init__(self, sock: socket.socket, token: int, deliver: Deliver, key: bytes = b"") -> None:
        super().__init__(sock, deliver)
        self._link = HostLink(token, channel=Channel(key, down=False) if key else None)
        self._greeted: asyncio.Future[None] = self._loop.create_future()
        #: Done when something has come.
        self._news: asyncio.Future[None] = self._loop.create_future()
        #: Datagrams that the socket could not take at once.
        self._unsent: deque[bytes] = deque()

    @classmethod
    async def open(cls, endpoint: DataEndpoint, deliver: Deliver, timeout: float) -> UdpPort:
        """A socket that the data plane knows."""
        family = socket.AF_INET6 if ":" in endpoint.address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_DGRAM)
        sock.setblocking(False)
        enlarge(sock, _BUFFER)
        try:
            sock.connect((endpoint.address, endpoint.port))
        except OSError as error:
            sock.close()
            raise Unavailable(f"No data plane at {endpoint.address}:{endpoint.port}: {error}") from None
        port = cls(sock, endpoint.token, deliver, endpoint.key)
        port.resume()
        try:
            await port.greet(timeout)
        except BaseException:
            port.close()
            raise
        return port

    def rekey(self, key: bytes) -> None:
        """Seal with another key from now on; an empty one seals nothing."""
        if not key:
            self._link.channel = None
        elif self._link.channel is None:
            self._link.channel = Channel(key, down=False)
        else:
            self._link.channel.rekey(key)

    async def greet(self, timeout: float) -> None:
        """Greet the data plane until it answers."""
        self._greeted = self._loop.create_future()
        try:
            async with asyncio.timeout(timeout):
                while not self._greeted.done():
                    with contextlib.suppress(OSError):
                        self._socket.send(self._link.hello())
                    await asyncio.wait((self._greeted,), timeout=_GREET_EVERY)
        except TimeoutError:
            raise Unavailable(f"The data plane did not answer within {timeout:g} s") from None

    @property
    def drops(self) -> int:
        """Datagrams that are known to be lost, by the system or by their numbers."""
        return super().drops + self._link.lost

    # -- sending --------------------------------------------------------------------------

    def send(self, packets: Iterable[Packet] | Burst) -> bool:
        """Queue packets and send as many as the window allows."""
        if self._closed:
            raise Unavailable("The data port is closed")
        if isinstance(packets, Burst):
            if len(packets):
                self._departures.given += self._link.push_rows(packets.matrix.data.cast("B"), packets.matrix.shape[1])
        else:
            push = self._link.push
            for packet in packets:
                self._departures.given += push(encode_packet(packet))
        self._flush()
        return self._link.queued <= _AHEAD

    async def flushed(self, ahead: int = _AHEAD // 2) -> None:
        """Wait until no more than ``ahead`` of the packets given to `send` so far wait here."""
        if self._link.queued > ahead or self._unsent:
            await self._departures.wait(ahead)

    async def arrived(self) -> None:
        """Wait until the data plane has read what was given to `send` so far: a probe behind it is acknowledged."""
        await self.flushed(0)
        number, probe = self._link.probe(self._loop.time())
        while not self._closed and not self._link.arrived(number):
            with contextlib.suppress(OSError):
                self._socket.send(probe)
            await self._more()
            _, probe = self._link.probe(self._loop.time())

    async def caught_up(self, number: int = 0) -> None:
        """Wait until all that the data plane sent before a datagram is given away."""
        while not self._closed and not self._link.reached(number):
            await self._more()

    async def _more(self) -> None:
        """Wait until something has come, for a while."""
        if self._news.done():
            self._news = self._loop.create_future()
        await asyncio.wait((self._news,), timeout=_GREET_EVERY)

    def _flush(self) -> None:
        self._unsent.extend(self._link.datagrams(self._loop.time()))
        while self._unsent:
            try:
                self._socket.send(self._unsent[0])
            except (BlockingIOError, InterruptedError):
                self._loop.add_writer(self._socket, self._writable)
                return
            except OSError:
                # Nobody listens just now; the control connection will notice.
                self.refused += 1
            self._unsent.popleft()
        self._departures.queued(self._link.queued)
        due = self._link.due()
        if due is None or (self._timer is not None and self._timer.when() <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._again)

    def _writable(self) -> None:
        self._loop.remove_writer(self._socket)
        self._flush()

    def _again(self) -> None:
        self._timer = None
        self._flush()

    # -- receiving ------------------------------------------------------------------------

    def _readable(self) -> None:
        #: In order of arrival; matrices in a row that are equally wide become one.
        found: list[Packet | Arrivals] = []
        now = self._loop.time()
        for turn in range(_BURST):
            try:
                datagram = self._socket.recv(_LARGEST)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                self.refused += 1
                break
            try:
                self._heard(datagram, found, now)
            except CodecError:
                self.malformed += 1
            if not turn and len(found) == 1 and isinstance(alone := found[0], Packet):
                # A single event that comes alone does not wait until it is known that nothing else came.
                found.clear()
                self._deliver([alone])
                if self._paused:
                    break
        if len(found) == 1 and isinstance(only := found[0], Arrivals):
            self._deliver(only)
        else:
            for kind, group in groupby(found, _width):
                some = list(group)
                self._deliver(_joined(some) if kind else some)  # type: ignore[arg-type]
        if not self._news.done():
            self._news.set_result(None)
        if not self._closed:
            self._flush()

    def _heard(self, datagram: bytes, found: list[Packet | Arrivals], now: float) -> None:
        token, kind, sequence, acknowledged, window, count = header(datagram)
        if token != self._link.token:
            raise CodecError("Expected our own token", where="datagram")
        at = DATAGRAM_HEADER
        if self._link.channel is not None:
            opened = self._link.channel.open(memoryview(datagram), now)
            if opened is None:
                raise CodecError("Expected a datagram that is sealed, and new", where="datagram")
            datagram, at = opened, 0
        size = len(datagram) - at
        width, rest = divmod(size, count or 1)
        several = None
        if count >= _SEVERAL and not rest:
            several = uniform(np.frombuffer(datagram, np.uint8, offset=at).reshape(count, width))
        if several is not None:
            found.append(several)
        else:
            packets = packets_of(datagram, count, at)
            self.malformed += count - len(packets)
            found += packets
        self._link.heard(sequence, acknowledged, window, now, DATAGRAM_HEADER + size)
        if kind == Kind.HELLO and not self._greeted.done():
            self._greeted.set_result(None)


def _width(found: Packet | Arrivals) -> int:
    return found.matrix.shape[1] if isinstance(found, Arrivals) else 0


def _joined(several: list[Arrivals]) -> Arrivals | list[Packet]:
    if len(several) == 1:
        return several[0]
    # Sound each; but they may be of several categories.
    return uniform(np.concatenate([each.matrix for each in several])) or [packet for each in several for packet in each]
