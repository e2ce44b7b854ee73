"""The sockets of the embedded plane: which are read, and which are left alone for a moment.

A flood of datagrams that are not welcome (forged, not advertised) would keep the plane busy refusing. A socket by which
mostly such came is left alone for a hundredth of a second, and up to eight if that goes on; one whose client is over
its quota, until that allows what was refused, within the same bounds: what comes meanwhile is not refused but
waits. The system keeps what fits into its buffer and drops the rest, at no cost; others have sockets of their own and
notice nothing.

Strangers share a socket, and so does whoever is new, until its greeting is read. While many come by it that are not
welcome, it is read for `_SHORT` seconds at a time (`_FEWEST` datagrams at least, so that a slow machine gets through
what waits as well: whoever is new waits behind it), and the system drops all but *small* datagrams, such as
greetings, before they get there (a filter of the socket; Linux). A known client whose address has changed is then
heard as soon as it sends a small one, which it does when nothing is acknowledged.

Also what is welcome takes time. While nothing waits at other sockets, a socket is read for a whole turn; as soon as
something does, its turn ends after `_SHORT` seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import select
import socket
import struct
import sys
from collections.abc import Callable
from typing import Final, NamedTuple

from sievenet.access.seal import SEAL
from sievenet.dataplane.endpoint import BUFFER
from sievenet.dataplane.packet import DATAGRAM_HEADER

__all__ = ["NUISANCE", "Sockets"]

#: Datagrams that are refused in a turn, beyond those that are taken, after which a socket is left alone.
NUISANCE: Final = 8
#: Seconds that it is, and at most if that happens again and again.
_PAUSE: Final = 0.01
_LONGEST: Final = 0.08
#: Seconds that a socket is read in a turn while something waits at others.
_SHORT: Final = 1e-4
#: Seconds that the socket of strangers is left alone: whoever is new waits behind them.
_STRANGERS: Final = 0.005
#: Datagrams that are read of it in a turn, at least: a full buffer, 11,000 small ones, takes less than four seconds.
_FEWEST: Final = 16
#: Seconds that only small datagrams come by it, at most, until that has to show as necessary again.
_FILTERED: Final = 1.0

#: Bytes of a small datagram, with the header of UDP: a greeting, or any other without packets, and its seal.
_SMALL: Final = 8 + DATAGRAM_HEADER + SEAL
_ATTACH_FILTER, _DETACH_FILTER = 26, 27
#: A program for the system (classic BPF): "if the length is more than that, take 0 bytes of it, else all".
_PROGRAM: Final = ctypes.create_string_buffer(
    b"".join(
        struct.pack("HBBI", *each)
        for each in ((0x80, 0, 0, 0), (0x25, 0, 1, _SMALL), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF))
    )
)


class Turn(NamedTuple):
    """What came of reading a socket for a while."""

    #: Datagrams that were refused, less those that were taken.
    refused: int
    #: Seconds until the quota of its client allows what was refused for it.
    wait: float
    #: Whether nothing more waited.
    emptied: bool


class Sockets:
    """``readable`` reads one; ``homeless`` says whether clients without a socket of their own use the shared one."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        readable: Callable[[socket.socket], Turn],
        homeless: Callable[[], bool] = lambda: False,
    ) -> None:
        self._loop, self._readable, self._homeless = loop, readable, homeless
        #: Tells where something waits.
        self._epoll = select.epoll()
        self._begun = 0.0
        #: The one that strangers use too.
        self.shared: socket.socket | None = None
        #: Ends the time in which only small datagrams come by it; None while all do.
        self._unfilter: asyncio.TimerHandle | None = None
        self._resting: dict[socket.socket, asyncio.TimerHandle] = {}
        #: How long those that were left alone last time were.
        self._pauses: dict[socket.socket, float] = {}

    def open(self, like: socket.socket) -> socket.socket:
        """Another socket at the same address."""
        own = socket.socket(like.family, socket.SOCK_DGRAM)
        try:
            own.setblocking(False)
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
            own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            own.bind(like.getsockname())
        except OSError:
            own.close()
            raise
        return own

    def read(self, sock: socket.socket) -> None:
        """Read a socket from now on."""
        self._resting.pop(sock, None)
        self._loop.add_reader(sock.fileno(), self._ready, sock)
        self._epoll.register(sock.fileno(), select.EPOLLIN)

    def _ready(self, sock: socket.socket) -> None:
        self._begun, enough = self._loop.time(), self.enough(sock)
        turn, shared = self._readable(sock), sock is self.shared
        if sock.fileno() < 0:
            return
        if turn.refused >= enough or (turn.wait and not shared):
            if shared:
                pause = _STRANGERS
                self._filter(not self._homeless())
            elif turn.wait:
                pause = min(max(turn.wait, _PAUSE), _LONGEST)
            else:
                pause = min(2 * self._pauses.get(sock, _PAUSE / 2), _LONGEST)
            self._pauses[sock] = pause
            self._ignore(sock)
            self._resting[sock] = self._loop.call_later(pause, self.read, sock)
        elif turn.emptied or (shared and turn.refused < 0):  # else it says nothing: others waited
            self._pauses.pop(sock, None)
            if shared:
                self._filter(False)

    @property
    def filtered(self) -> bool:
        """Whether only small datagrams come by the shared socket."""
        return self._unfilter is not None

    def _filter(self, on: bool) -> None:
        """Have the system drop all but small datagrams that come by the shared socket, or not any more."""
        if on == self.filtered or self.shared is None or sys.platform != "linux":
            return
        with contextlib.suppress(OSError):
            if on:
                program = struct.pack("HP", len(_PROGRAM) // 8, ctypes.addressof(_PROGRAM))
                self.shared.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)
                self._unfilter = self._loop.call_later(_FILTERED, self._filter, False)
            elif self._unfilter is not None:
                self._unfilter.cancel()
                self._unfilter = None
                self.shared.setsockopt(socket.SOL_SOCKET, _DETACH_FILTER, 0)

    def enough(self, sock: socket.socket) -> int:
        """So many datagrams more refused than taken are enough: few where it was no better the last time."""
        return 1 if sock in self._pauses else NUISANCE

    def over(self, sock: socket.socket, count: int) -> bool:
        """Whether the turn of a socket is over after so many datagrams: it took long enough, and others wait."""
        if self._loop.time() - self._begun < _SHORT:
            return False
        if sock is self.shared and sock in self._pauses:
            return count >= _FEWEST
        own = sock.fileno()
        return any(number != own for number, _ in self._epoll.poll(0, 2))

    def _ignore(self, sock: socket.socket) -> None:
        if self._loop.remove_reader(sock.fileno()):
            self._epoll.unregister(sock.fileno())

    def close(self, sock: socket.socket) -> None:
        """Read it no more."""
        self._pauses.pop(sock, None)
        timers = [self._resting.pop(sock, None)]
        if sock is self.shared:
            timers.append(self._unfilter)
            self.shared = self._unfilter = None
        for timer in timers:
            if timer is not None:
                timer.cancel()
        self._ignore(sock)
        sock.close()

    def end(self) -> None:
        """No socket is read any more."""
        self._epoll.close()
