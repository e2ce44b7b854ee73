"""Data ports: how a client's packets reach the network and come from it.

The daemon's welcome says which kind its data plane needs (`DataEndpoint.kind`), `open_port` makes it. The embedded data
plane speaks UDP: every datagram carries the client's token and one or more packets; a datagram without packets is the
greeting by which the plane learns the client's address, answered in kind, so that a port that is open is reachable.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from sievenet.control.protocol import DataEndpoint
from sievenet.dataplane.packet import Kind, Packet, decode, encode
from sievenet.errors import CodecError, InvalidInput, Unavailable

__all__ = ["DataPort", "Deliver", "UdpPort", "open_port"]

Deliver = Callable[[list[Packet]], None]

#: Bytes that the operating system may hold of what was not read yet (it may grant less).
_BUFFER: Final = 8 << 20
#: Datagrams read at most before others get their turn.
_BURST: Final = 64
_LARGEST: Final = 1 << 16
#: Seconds between greetings until one is answered.
_GREET_EVERY: Final = 0.05


class DataPort(Protocol):
    """A client's own port of the data plane."""

    #: Datagrams that were no packets for this client.
    malformed: int

    async def greet(self, timeout: float) -> None:
        """Make this port known to the data plane (again); `Unavailable` if it does not answer."""

    def offer(self, packets: Sequence[Packet]) -> Sequence[bytes]:
        """Send packets without waiting; what the operating system could not take comes back, for `finish`."""

    async def finish(self, rest: Sequence[bytes]) -> None:
        """Send the rest of an `offer`, waiting as long as it takes."""

    def pause(self) -> None:
        """Read nothing until `resume`."""

    def resume(self) -> None:
        """Read again."""

    def close(self) -> None:
        """Give the port up."""


async def open_port(endpoint: DataEndpoint, deliver: Deliver, timeout: float = 5.0) -> DataPort:
    """The port that an endpoint describes, known to the data plane and reading."""
    if endpoint.kind != "udp":
        raise InvalidInput(expected="a data plane of kind udp", got=endpoint.kind, where="welcome.data")
    return await UdpPort.open(endpoint, deliver, timeout)


class UdpPort:
    """A connected UDP socket: the kernel itself drops what comes from elsewhere."""

    def __init__(self, sock: socket.socket, token: int, deliver: Deliver) -> None:
        self._socket = sock
        self._token = token
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()
        self._greeted: asyncio.Future[None] = self._loop.create_future()
        self._paused = True
        self._closed = False
        self.malformed = 0
        #: Datagrams that could not be sent since nobody listens there any more.
        self.refused = 0

    @classmethod
    async def open(cls, endpoint: DataEndpoint, deliver: Deliver, timeout: float) -> UdpPort:
        """A socket that the data plane knows."""
        family = socket.AF_INET6 if ":" in endpoint.address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_DGRAM)
        sock.setblocking(False)
        _enlarge(sock)
        try:
            sock.connect((endpoint.address, endpoint.port))
        except OSError as error:
            sock.close()
            raise Unavailable(f"No data plane at {endpoint.address}:{endpoint.port}: {error}") from None
        port = cls(sock, endpoint.token, deliver)
        port.resume()
        try:
            await port.greet(timeout)
        except BaseException:
            port.close()
            raise
        return port

    async def greet(self, timeout: float) -> None:
        """Greet the data plane until it answers."""
        self._greeted = self._loop.create_future()
        try:
            async with asyncio.timeout(timeout):
                while not self._greeted.done():
                    for datagram in encode(self._token, ()):
                        with contextlib.suppress(OSError):
                            self._socket.send(datagram)
                    await asyncio.wait((self._greeted,), timeout=_GREET_EVERY)
        except TimeoutError:
            raise Unavailable(f"The data plane did not answer within {timeout:g} s") from None

    def offer(self, packets: Sequence[Packet]) -> Sequence[bytes]:
        """Send packets, several to a datagram, as far as it goes without waiting."""
        datagrams = encode(self._token, packets)
        for i, datagram in enumerate(datagrams):
            if not self._try_send(datagram):
                return datagrams[i:]
        return ()

    async def finish(self, rest: Sequence[bytes]) -> None:
        """Send what an `offer` left."""
        for datagram in rest:
            while not self._try_send(datagram):
                await self._writable()

    def _try_send(self, datagram: bytes) -> bool:
        if self._closed:
            raise Unavailable("The data port is closed")
        try:
            self._socket.send(datagram)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            # Nobody listens just now; the control connection will notice, and the transport repairs.
            self.refused += 1
        return True

    async def _writable(self) -> None:
        ready: asyncio.Future[None] = self._loop.create_future()

        def set_ready() -> None:
            if not ready.done():
                ready.set_result(None)

        self._loop.add_writer(self._socket, set_ready)
        try:
            await ready
        finally:
            if not self._closed:
                self._loop.remove_writer(self._socket)

    def _readable(self) -> None:
        packets: list[Packet] = []
        for _ in range(_BURST):
            try:
                datagram = self._socket.recv(_LARGEST)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                self.refused += 1
                break
            try:
                found = decode(datagram)
            except CodecError:
                self.malformed += 1
                continue
            if found.token != self._token:
                self.malformed += 1
            elif found.kind is Kind.HELLO:
                if not self._greeted.done():
                    self._greeted.set_result(None)
            else:
                packets += found.packets
        if packets:
            self._deliver(packets)

    def pause(self) -> None:
        """Stop reading; the operating system holds what it can."""
        if not self._paused and not self._closed:
            self._paused = True
            self._loop.remove_reader(self._socket)

    def resume(self) -> None:
        """Read again."""
        if self._paused and not self._closed:
            self._paused = False
            self._loop.add_reader(self._socket, self._readable)

    def close(self) -> None:
        """Give the socket back."""
        if not self._closed:
            self.pause()
            self._closed = True
            self._loop.remove_writer(self._socket)
            self._socket.close()


def _enlarge(sock: socket.socket) -> None:
    """As large a receive buffer as this process may have; a privileged one may pass the system's limit."""
    force = getattr(socket, "SO_RCVBUFFORCE", 33)
    try:
        sock.setsockopt(socket.SOL_SOCKET, force, _BUFFER)
    except OSError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
