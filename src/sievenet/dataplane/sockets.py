"""The sockets of the embedded plane: which are read, and which are left alone for a moment.

A flood of datagrams that are not welcome (forged, over a quota, not advertised) would keep the plane busy refusing. A
socket by which mostly such came is left alone for a hundredth of a second, and up to eight if that goes on. The
system keeps what fits into its buffer and drops the rest, at no cost; others have sockets of their own and notice
nothing.
"""

from __future__ import annotations

import asyncio
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


class Sockets:
    """``readable`` reads one; how many datagrams more were refused than taken."""

    def __init__(self, loop: asyncio.AbstractEventLoop, readable: Callable[[socket.socket], int]) -> None:
        self._loop, self._readable = loop, readable
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

    def _ready(self, sock: socket.socket) -> None:
        if self._readable(sock) < NUISANCE:
            self._pauses.pop(sock, None)
        elif sock.fileno() >= 0:
            pause = min(2 * self._pauses.get(sock, _PAUSE / 2), _LONGEST) if sock is not self.shared else _PAUSE
            self._pauses[sock] = pause
            self._loop.remove_reader(sock.fileno())
            self._resting[sock] = self._loop.call_later(pause, self.read, sock)

    def close(self, sock: socket.socket) -> None:
        """Read it no more."""
        self._pauses.pop(sock, None)
        timer = self._resting.pop(sock, None)
        if timer is not None:
            timer.cancel()
        self._loop.remove_reader(sock.fileno())
        sock.close()
