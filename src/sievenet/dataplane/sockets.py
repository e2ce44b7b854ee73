"""The sockets of the embedded plane: which are read, and which are left alone for a moment.

A flood of datagrams that are not welcome (forged, not advertised) would keep the plane busy refusing. A socket by which
mostly such came is left alone for a hundredth of a second, and up to eight if that goes on; one whose client is over
its quota, until that allows what was refused last, within the same bounds: what comes meanwhile is not refused but
waits. The system keeps what fits into its buffer and drops the rest, at no cost; others have sockets of their own and
notice nothing.

Also what is welcome takes time. While nothing waits at other sockets, a socket is read for a whole turn; as soon as
something does, its turn ends after `_SHORT` seconds.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable
from typing import Final

from sievenet.dataplane.endpoint import BUFFER

__all__ = ["NUISANCE", "Sockets"]

#: Datagrams that are refused in a turn, beyond those that are taken, after which a socket is left alone.
NUISANCE: Final = 8
#: Seconds that it is, and at most if that happens again and again.
_PAUSE: Final = 0.01
_LONGEST: Final = 0.08
#: Seconds that a socket is read in a turn while something waits at others.
_SHORT: Final = 1e-4


class Sockets:
    """``readable`` reads one: how many datagrams more were refused than taken, and seconds for which more would be."""

    def __init__(self, loop: asyncio.AbstractEventLoop, readable: Callable[[socket.socket], tuple[int, float]]) -> None:
        self._loop, self._readable = loop, readable
        #: Tells where something waits.
        self._epoll = select.epoll()
        self._begun = 0.0
        #: The one that strangers use too: whoever is new waits behind them, so it is not left alone for longer.
        self.shared: socket.socket | None = None
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
        refused, wait = self._readable(sock)
        if refused < enough:
            self._pauses.pop(sock, None)
        elif sock.fileno() >= 0:
            if wait:
                pause = min(max(wait, _PAUSE), _LONGEST)
            else:
                pause = min(2 * self._pauses.get(sock, _PAUSE / 2), _LONGEST) if sock is not self.shared else _PAUSE
            self._pauses[sock] = pause
            self._ignore(sock)
            self._resting[sock] = self._loop.call_later(pause, self.read, sock)

    def enough(self, sock: socket.socket) -> int:
        """So many datagrams more refused than taken are enough: few where it was no better the last time."""
        return 1 if sock in self._pauses and sock is not self.shared else NUISANCE

    def over(self, sock: socket.socket) -> bool:
        """Whether the turn of the socket that is being read is over: it took long enough, and others wait."""
        if self._loop.time() - self._begun < _SHORT:
            return False
        own = sock.fileno()
        return any(number != own for number, _ in self._epoll.poll(0, 2))

    def _ignore(self, sock: socket.socket) -> None:
        if self._loop.remove_reader(sock.fileno()):
            self._epoll.unregister(sock.fileno())

    def close(self, sock: socket.socket) -> None:
        """Read it no more."""
        self._pauses.pop(sock, None)
        timer = self._resting.pop(sock, None)
        if timer is not None:
            timer.cancel()
        self._ignore(sock)
        sock.close()

    def end(self) -> None:
        """No socket is read any more."""
        self._epoll.close()
