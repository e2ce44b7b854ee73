"""Many datagrams with one system call: `sendmmsg` and `recvmmsg` of Linux, on matrices of bytes.

A system call for each datagram costs more than the datagram. These two take an array of message headers, each pointing
to its bytes and its address; NumPy lays them out, since all that differs between rows is an offset:

    headers ──▶ addresses   row i: fd0e:…           names[i]
            ╰─▶ vectors ──▶ matrix of bytes         row i, so many bytes

On systems without them `available` is False, and ports go datagram by datagram.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.content.layout import Bytes

__all__ = ["NAME", "Inlet", "Outlet", "available"]

#: `struct sockaddr_in6`.
NAME: Final = np.dtype([("family", "u2"), ("port", ">u2"), ("flow", "u4"), ("address", "u1", (16,)), ("scope", "u4")])
_VECTOR: Final = np.dtype([("base", "u8"), ("length", "u8")])
#: `struct mmsghdr`, where pointers have 64 bits.
_HEADER: Final = np.dtype(
    [
        ("name", "u8"),
        ("name_length", "u4"),
        ("pad1", "u4"),
        ("vectors", "u8"),
        ("vector_count", "u8"),
        ("control", "u8"),
        ("control_length", "u8"),
        ("flags", "i4"),
        ("pad2", "u4"),
        ("length", "u4"),
        ("pad3", "u4"),
    ]
)

_libc: Final = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
available: Final = _libc is not None and sys.maxsize > 1 << 32 and hasattr(_libc, "recvmmsg")


def _address(array: npt.NDArray[Any]) -> int:
    return int(array.ctypes.data)


def _rows(matrix: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    return np.uint64(_address(matrix)) + np.arange(len(matrix), dtype=np.uint64) * np.uint64(matrix.strides[0])


class Outlet:
    """Rows of bytes, ready to be sent, each to its own address, with so many packets in each."""

    def __init__(self, matrix: Bytes, names: npt.NDArray[Any], together: int = 1) -> None:
        self.together = together
        # The headers point into these: they must live as long, and stay where they are.
        self._matrix = np.ascontiguousarray(matrix)
        self._names = np.ascontiguousarray(names)
        self._vectors = np.empty(len(matrix), _VECTOR)
        self._vectors["base"], self._vectors["length"] = _rows(self._matrix), matrix.shape[1]
        self._headers = np.zeros(len(matrix), _HEADER)
        self._headers["name"], self._headers["name_length"] = _rows(self._names), NAME.itemsize
        self._headers["vectors"], self._headers["vector_count"] = _rows(self._vectors), 1
        self._at = 0

    def __len__(self) -> int:
        """Datagrams that are still to be sent."""
        return len(self._headers) - self._at

    def send(self, sock: socket.socket, count: int) -> int:
        """Send up to so many; returns how many went. `BlockingIOError` or another `OSError` if not even one."""
        assert _libc is not None
        start = _address(self._headers) + self._at * _HEADER.itemsize
        sent = _libc.sendmmsg(sock.fileno(), ctypes.c_void_p(start), min(count, len(self)), 0)
        if sent < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self._at += sent
        return int(sent)

    def skip(self) -> None:
        """Give up the next one."""
        self._at += 1


class Inlet:
    """Room for datagrams that are read together."""

    def __init__(self, rows: int, width: int) -> None:
        self._matrix = np.empty((rows, width), np.uint8)
        self._vectors = np.empty(rows, _VECTOR)
        self._vectors["base"], self._vectors["length"] = _rows(self._matrix), width
        self._names = np.zeros(rows, NAME)
        self._headers = np.zeros(rows, _HEADER)
        self._headers["name"], self._headers["name_length"] = _rows(self._names), NAME.itemsize
        self._headers["vectors"], self._headers["vector_count"] = _rows(self._vectors), 1
        self._start = ctypes.c_void_p(_address(self._headers))

    def read(self, sock: socket.socket) -> list[tuple[Bytes, npt.NDArray[Any]]]:
        """What waits, as much as there is room for: datagrams in a row that are equally long share a matrix.

        With each matrix come the addresses (`NAME`) that its rows were sent from.

        Valid until the next call. Nothing if nothing waits; `OSError` if something else is wrong.
        """
        assert _libc is not None
        count = _libc.recvmmsg(sock.fileno(), self._start, len(self._headers), socket.MSG_DONTWAIT, None)
        if count < 0:
            number = ctypes.get_errno()
            error = OSError(number, os.strerror(number))
            if isinstance(error, BlockingIOError | InterruptedError):
                return []
            raise error
        lengths = self._headers["length"][:count]
        ends = np.flatnonzero(np.diff(lengths)) + 1
        return [
            (self._matrix[start:end, : int(lengths[start])], self._names[start:end])
            for start, end in zip([0, *ends.tolist()], [*ends.tolist(), count], strict=True)
            if end > start
        ]
