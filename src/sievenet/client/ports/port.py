"""What every data port is: a socket of a node's own in the data plane, which can be paused, resumed and closed.

A port gives packets away as they come (`Deliver`), from within the event loop, and counts those it was given to send
until they have left (`Departures`). How packets are written, and what keeps a port from sending faster than is good,
is the business of each kind.

Whoever waits until packets have left waits for a count, so that packets given later prolong nobody's wait:

    given   0 ─────────────── left ── until ───────── given
                                      wakes the waiter once sent ≥ submitted − allowed backlog
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Final

from sievenet.client.ports.burst import Arrivals, Burst
from sievenet.dataplane.packet import Packet
from sievenet.errors import Unavailable

__all__ = ["Alone", "DataPort", "Deliver", "Departures", "dropped", "enlarge"]

#: `SO_MEMINFO` of Linux: nine numbers, of which the last counts drops.
_SO_MEMINFO: Final = 55
_MEMORY: Final = struct.Struct("9I")
_DROPS: Final = 8
#: Bytes that the smallest datagram takes of a buffer, at least.
_SMALLEST: Final = 256
#: Seconds between looks at what waits to be read.
_LOOK: Final = 0.002

#: Takes packets that came, singly or as a matrix (which iterates as packets).
Deliver = Callable[[list[Packet] | Arrivals], None]
#: Takes a datagram that came alone, of a publisher; False: it has to be given away as packets.
Alone = Callable[[bytes, int], bool]


class Departures:
    """Counts and waiters of one port."""

    def __init__(self) -> None:
        #: Packets ever given that had to wait; what leaves at once is not counted.
        self.given = 0
        self._left = 0
        self._waiting: dict[asyncio.Future[None], int] = {}

    @property
    def here(self) -> int:
        """Packets that have not left."""
        return self.given - self._left

    async def wait(self, ahead: int) -> None:
        """Until no more than ``ahead`` of the packets given so far are here; `Unavailable` if the port closes."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[done] = self.given - ahead
        try:
            await done
        finally:
            del self._waiting[done]

    def queued(self, count: int) -> None:
        """So many of them have not left."""
        self._left = left = self.given - count
        for waiter, until in self._waiting.items():
            if left >= until and not waiter.done():
                waiter.set_result(None)

    def close(self) -> None:
        """No more will leave: whoever waits is told."""
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(Unavailable("The data port was closed"))


class DataPort(ABC):
    """A client's own port of the data plane."""

    #: Whether the plane forwards without the daemon.
    independent = False
    #: Whether a packet may be sent with `send_alone`.
    single = False

    def __init__(self, sock: socket.socket, deliver: Deliver) -> None:
        self._socket = sock
        self._deliver = deliver
        #: Asked first about a datagram that comes alone, where datagrams have senders.
        self.alone: Alone | None = None
        self._loop = asyncio.get_running_loop()
        self._departures = Departures()
        #: Sends again what could not go at once.
        self._timer: asyncio.TimerHandle | None = None
        self._paused = True
        self._closed = False
        #: Datagrams that were read.
        self.read = 0
        #: Datagrams that were no packets for this client, and packets with absurd numbers.
        self.malformed = 0
        #: Packets that claim to be of another publisher than the one whose address they come from.
        self.forged = 0
        #: Datagrams that the system did not take, or that nobody listens to.
        self.refused = 0

    @abstractmethod
    async def greet(self, timeout: float) -> None:
        """Make this port known to the data plane (again); `Unavailable` if it does not answer."""

    def rekey(self, key: bytes) -> None:  # noqa: B027
        """Seal with another key from now on; nothing to do where packets are not ours to define."""

    @abstractmethod
    def send(self, packets: Iterable[Packet] | Burst) -> bool:
        """Send packets. False: many wait already, `flushed` before sending more."""

    def send_alone(self, datagram: bytes, category: int, code: bytes) -> bool:
        """Send a datagram of one packet at once; False: it has to be given to `send`."""
        return False

    async def arrived(self) -> None:
        """Wait until the other end has what was given to `send` so far, as far as that can be known here."""
        await self.flushed(0)

    @abstractmethod
    async def flushed(self, ahead: int = 0) -> None:
        """Wait until no more than ``ahead`` of the packets given to `send` so far wait here."""

    @property
    def waiting(self) -> int:
        """Packets given to `send` that wait here."""
        return self._departures.here

    async def caught_up(self, number: int = 0) -> None:
        """Wait until all before a datagram is given away; where they have no numbers, all that the system holds now."""
        last = self.read + held(self._socket)
        while not self._closed and self.read < last and _readable(self._socket):
            await asyncio.sleep(_LOOK)

    @property
    def drops(self) -> int:
        """Datagrams for this port that are known to be lost: the system had no room for them until they were read."""
        return 0 if self._closed else dropped(self._socket)

    @abstractmethod
    def _readable(self) -> None:
        """There is something to read."""

    def pause(self) -> None:
        """Read nothing until `resume`."""
        if not self._paused and not self._closed:
            self._paused = True
            self._loop.remove_reader(self._socket)

    def resume(self) -> None:
        """Read again."""
        if self._paused and not self._closed:
            self._paused = False
            self._loop.add_reader(self._socket, self._readable)

    def close(self) -> None:
        """Give the socket back; who waits for it to be flushed waits no more."""
        if self._closed:
            return
        self.pause()
        self._closed = True
        self._loop.remove_writer(self._socket)
        self._socket.close()
        if self._timer is not None:
            self._timer.cancel()
        self._departures.close()


def dropped(sock: socket.socket) -> int:
    """Datagrams that the system dropped because nobody read them in time; 0 where it does not tell."""
    return _memory(sock)[_DROPS]


def held(sock: socket.socket) -> int:
    """Datagrams that wait to be read, at most."""
    return _memory(sock)[0] // _SMALLEST or 1 << 62


def _memory(sock: socket.socket) -> tuple[int, ...]:
    """What the system says of a socket's buffers; zeros where it does not."""
    try:
        return _MEMORY.unpack(sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMORY.size))
    except (OSError, struct.error):
        return (0,) * 9


def _readable(sock: socket.socket) -> bool:
    look = select.poll()
    look.register(sock, select.POLLIN)
    return bool(look.poll(0))


def enlarge(sock: socket.socket, size: int) -> None:
    """As large a receive buffer as this process may have; a privileged one may pass the system's limit."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_RCVBUFFORCE", 33), size)
    except OSError:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
