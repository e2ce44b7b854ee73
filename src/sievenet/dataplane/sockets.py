"""The sockets of the embedded plane: which are read, and which are left alone for a moment.

A flood of datagrams that are not welcome (forged, over a quota, not advertised) would keep the plane busy refusing.
A socket by which mostly such came in a turn is left alone for a hundredth of a second. The system keeps what fits into
its buffer and drops the rest, at no cost; others have sockets of their own and notice nothing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from sievenet.dataplane.endpoint import BUFFER

__all__ = ["Sockets"]

#: Datagrams that were refused in a turn, beyond those that were taken, after which a socket is left alone.
_NUISANCE: Final = 16
#: Seconds that it is.
_PAUSE: Final = 0.01


class Sockets:
    """``readable`` reads one; how many datagrams more were refused than taken."""

    def __init__(self, loop: asyncio.AbstractEventLoop, readable: Callable[[socket.socket], int]) -> None:
        self._loop, self._readable = loop, readable
        self._resting: dict[socket.socket, asyncio.TimerHandle] = {}

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
        if self._readable(sock) >= _NUISANCE and sock.fileno() >= 0:
            self._loop.remove_reader(sock.fileno())
            self._resting[sock] = self._loop.call_later(_PAUSE, self.read, sock)

    def close(self, sock: socket.socket) -> None:
        """Read it no more."""
        timer = self._resting.pop(sock, None)
        if timer is not None:
            timer.cancel()
        self._loop.remove_reader(sock.fileno())
        sock.close()
