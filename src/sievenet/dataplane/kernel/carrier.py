"""The devices of a network namespace, as the kernel tells of them (rtnetlink): which are up, which carry packets.

A device carries packets if it is up and its other end is too.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

__all__ = ["CarrierWatch", "DeviceState", "read_links"]

_NEWLINK, _DELLINK, _GETLINK = 16, 17, 18
_REQUEST_DUMP: Final = 0x301
_LINK_GROUP: Final = 1
_UP: Final = 0x1
_LOWER_UP: Final = 0x10000
_HEAD: Final = struct.Struct("=IHHII")
_INFO: Final = struct.Struct("=BxHiII")


class DeviceState(NamedTuple):
    """A device: whether it is up, and whether it carries packets."""

    device: int
    up: bool
    carries: bool
    #: It was removed.
    gone: bool = False


def read_links(data: bytes) -> list[DeviceState]:
    """What the kernel's messages say."""
    found = []
    at = 0
    while at + _HEAD.size <= len(data):
        length, kind, _, _, _ = _HEAD.unpack_from(data, at)
        if length < _HEAD.size or at + length > len(data):
            break
        if kind in (_NEWLINK, _DELLINK) and length >= _HEAD.size + _INFO.size:
            _, _, index, flags, _ = _INFO.unpack_from(data, at + _HEAD.size)
            up = kind == _NEWLINK and bool(flags & _UP)
            found.append(DeviceState(index, up, up and bool(flags & _LOWER_UP), kind == _DELLINK))
        at += (length + 3) & ~3
    return found


class CarrierWatch:
    """Calls back with the state of every device, at once and whenever it changes."""

    def __init__(self, told: Callable[[DeviceState], None]) -> None:
        """To be called inside the namespace; `start` may be called elsewhere."""
        self._told = told
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self._socket.bind((0, _LINK_GROUP))
        self._socket.setblocking(False)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ask for the present state, and listen from now on."""
        loop.add_reader(self._socket, self._readable)
        self._ask()

    def _ask(self) -> None:
        self._socket.send(_HEAD.pack(_HEAD.size + _INFO.size, _GETLINK, _REQUEST_DUMP, 1, 0) + bytes(_INFO.size))

    def _readable(self) -> None:
        while True:
            try:
                data = self._socket.recv(1 << 16)
            except BlockingIOError:
                return
            except OSError as error:
                # More happened than fitted: look at everything again.
                if error.errno == errno.ENOBUFS:
                    self._ask()
                    continue
                raise
            for state in read_links(data):
                self._told(state)

    def close(self, loop: asyncio.AbstractEventLoop) -> None:
        """Stop."""
        loop.remove_reader(self._socket)
        with contextlib.suppress(OSError):
            os.close(self._socket.detach())
