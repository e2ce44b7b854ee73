"""Rows that programs read and this process writes, in chunks: as many as a table needs.

An array of the kernel has its size from the beginning.  So the rows are in arrays of `ROWS` rows each, and a map has
the arrays.  Here they are one piece of memory: a range of addresses is set aside for as many as there may be, and each
chunk is mapped to its place in it.
"""

from __future__ import annotations

import ctypes
import mmap
import weakref
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sievenet.dataplane.kernel import bpf
from sievenet.errors import Unavailable

__all__ = ["ROWS", "Chunks", "create"]

#: Rows of a chunk.
ROWS: Final = 4096

_SHARED, _FIXED, _ANONYMOUS, _PRIVATE, _NORESERVE = 1, 0x10, 0x20, 2, 0x4000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


def create(name: str, row_size: int, chunks: int) -> bpf.Map:
    """A map for so many chunks, without any."""
    like = bpf.Map.create("chunk", bpf.ARRAY, 4, row_size, ROWS)
    try:
        return bpf.Map.create(name, bpf.MAPS, 4, 4, chunks, like)
    finally:
        like.close()


class Chunks:
    """All rows of one kind."""

    def __init__(self, maps: bpf.Map, row_size: int) -> None:
        self._maps = maps
        self._chunk = ROWS * row_size
        size = self._chunk * maps.rows
        self._begin = _map(None, size, _PRIVATE | _ANONYMOUS | _NORESERVE, -1)
        memory = (ctypes.c_char * size).from_address(self._begin)
        weakref.finalize(memory, _libc.munmap, self._begin, size)
        #: Everything, as bytes, and as words of four and eight bytes.
        self.bytes = memoryview(memory).cast("B")
        self.words = self.bytes.cast("I")
        self.longs = self.bytes.cast("Q")
        self._row_size = row_size
        self._count = 0
        while self._count < maps.rows and (found := maps.get(maps.key(self._count))) is not None:
            self._show(bpf.Map(bpf.by_id(int.from_bytes(found, "little")), 4, row_size, ROWS))

    @property
    def rows(self) -> int:
        """How many there are."""
        return self._count * ROWS

    @property
    def most(self) -> int:
        """How many there may be."""
        return self._maps.rows * ROWS

    def view(self, kind: np.dtype[Any]) -> NDArray[Any]:
        """The rows that are there."""
        return np.frombuffer(self.bytes, dtype=kind, count=self.rows * self._row_size // kind.itemsize)

    def grow(self) -> None:
        """Twice as many rows; when this returns, no program runs any more that was running when it was called."""
        count = min(max(self._count, 1), self._maps.rows - self._count)
        fresh = [bpf.Map.create("chunk", bpf.ARRAY, 4, self._row_size, ROWS) for _ in range(count)]
        keys = [self._maps.key(self._count + i) for i in range(count)]
        self._maps.put_all(keys, [each.descriptor.to_bytes(4, "little") for each in fresh])
        for each in fresh:
            self._show(each)

    def _show(self, chunk: bpf.Map) -> None:
        """Map a chunk to its place, which keeps it; its descriptor is not needed any more."""
        _map(self._begin + self._count * self._chunk, self._chunk, _SHARED | _FIXED, chunk.descriptor)
        chunk.close()
        self._count += 1


def _map(where: int | None, size: int, flags: int, descriptor: int) -> int:
    found: int = _libc.mmap(where, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, 0)
    if found == ctypes.c_void_p(-1).value:
        raise Unavailable(f"Expected {size} bytes of memory for a switch's tables, got error {ctypes.get_errno()}")
    return found
