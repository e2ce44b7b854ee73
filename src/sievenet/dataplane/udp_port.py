"""A client's end of its port, over UDP.

    port = await UdpPort.open(endpoint, token, receive)
    port.send(packets)        # queued; leaves in this turn of the event loop
    await port.drain()        # waits while too much is queued
    port.close()

The protocol is in `hostlink`; this is the socket around it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterable
from typing import Final

from sievenet.dataplane.hostlink import STALL, HostLink, LinkStatistics
from sievenet.dataplane.packet import (
    MAX_DATAGRAM,
    Kind,
    Packet,
    decode,
    encode_packet,
    publisher_of,
)
from sievenet.errors import CodecError, Unavailable

__all__ = ["UdpPort", "udp_socket"]

#: Bytes of socket buffer to ask for; the system may grant less.
_BUFFER: Final = 4 << 20
#: Datagrams to read per turn, so that a flood does not stop everything else.
_PER_TURN: Final = 64
#: Packets in the queue above which `drain` waits.
_HIGH_WATER: Final = 2048
_HELLOS: Final = 20


def udp_socket(address: tuple[str, int]) -> socket.socket:
    """A non-blocking UDP socket with large buffers, bound to an address."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock


class UdpPort:
    """A client's UDP socket to its switch."""

    def __init__(
        self,
        sock: socket.socket,
        link: HostLink,
        receive: Callable[[list[Packet]], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._sock = sock
        self._link = link
        self._receive = receive
        self._loop = loop
        self._greeted = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._flush_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        #: Datagrams that were none of ours.
        self.malformed = 0
        #: The number that this client's packets must carry.
        self.publisher: Final = publisher_of(link.token)

    @classmethod
    async def open(
        cls,
        endpoint: tuple[str, int],
        token: int,
        receive: Callable[[list[Packet]], None],
        *,
        timeout: float = 2.0,
    ) -> UdpPort:
        """Make oneself known to the plane; `Unavailable` if it does not answer."""
        loop = asyncio.get_running_loop()
        sock = udp_socket(("::1" if ":" in endpoint[0] else "127.0.0.1", 0))
        try:
            sock.connect(endpoint)
        except OSError as error:
            sock.close()
            raise Unavailable(f"Cannot reach the data plane at {endpoint[0]}:{endpoint[1]}: {error}") from None
        port = cls(sock, HostLink(token), receive, loop)
        loop.add_reader(sock.fileno(), port._readable)
        try:
            for _ in range(_HELLOS):
                port._transmit(port._link.hello())
                try:
                    await asyncio.wait_for(port._greeted.wait(), timeout / _HELLOS)
                    return port
                except TimeoutError:
                    continue
        except BaseException:
            port.close()
            raise
        port.close()
        raise Unavailable(f"The data plane at {endpoint[0]}:{endpoint[1]} did not answer within {timeout:g} s")

    # -- sending -------------------------------------------------------------------------------

    def send(self, packets: Iterable[Packet]) -> int:
        """Queue packets; returns how many were dropped because the queue is full."""
        if self._closed:
            raise Unavailable("The data port is closed")
        dropped = sum(not self._link.push(encode_packet(packet)) for packet in packets)
        if self._link.queued > _HIGH_WATER:
            self._room.clear()
        self._flush_soon()
        return dropped

    async def drain(self) -> None:
        """Wait until the queue has room; at least lets the loop send."""
        await self._room.wait() if not self._room.is_set() else await asyncio.sleep(0)
        if self._closed:
            raise Unavailable("The data port is closed")

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        if self._closed:
            return
        for datagram in self._link.datagrams(self._loop.time()):
            self._transmit(datagram)
        if self._link.queued <= _HIGH_WATER // 2:
            self._room.set()
        if not self._link.idle and self._timer is None:
            self._timer = self._loop.call_later(STALL, self._retry)

    def _retry(self) -> None:
        self._timer = None
        self._flush()

    def _transmit(self, datagram: bytes) -> None:
        with contextlib.suppress(OSError):  # the other end is away, or buffers are full: the window will notice
            self._sock.send(datagram)

    # -- receiving -----------------------------------------------------------------------------

    def _readable(self) -> None:
        packets: list[Packet] = []
        link = self._link
        now = self._loop.time()
        for _ in range(_PER_TURN):
            try:
                data = self._sock.recv(MAX_DATAGRAM + 1)
            except BlockingIOError:
                break
            except OSError:
                continue  # an ICMP error of an earlier datagram
            try:
                datagram = decode(data)
            except CodecError:
                self.malformed += 1
                continue
            if datagram.token != link.token:
                self.malformed += 1
                continue
            link.heard(datagram.sequence, datagram.acknowledged, datagram.window, now)
            if datagram.kind is Kind.HELLO:
                self._greeted.set()
            packets += datagram.packets
        if link.owes or not link.idle:
            self._flush_soon()
        if packets:
            self._receive(packets)

    # -- the rest ------------------------------------------------------------------------------

    def statistics(self) -> LinkStatistics:
        """What the port has counted."""
        return self._link.statistics()

    def close(self) -> None:
        """Give the socket back; what is queued is lost."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()
        self._room.set()
