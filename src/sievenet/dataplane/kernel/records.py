"""The flows of a kernel switch as its program reads them: a row of 64 bytes for each, `struct flow` there.

    bits  mask     what it matches: category and code, 128 bits each
    range          its only output, or where its outputs are (`ranges`)       slots      of a cell: who wants it,
    row in ones    the row of a special flow, its in-port, its bits of code              a bit for each port
    packets bytes  what it has counted

A row is written before anything names it, and its number is somebody else's only when no program reads it any more
(`pool`).  What changes meanwhile, the range and each half of the slots, is one word.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from sievenet.dataplane.kernel.chunks import Chunks
from sievenet.dataplane.kernel.pool import Pool
from sievenet.dataplane.plane import Count
from sievenet.index import MAX_BITS

__all__ = ["SIZE", "Record", "Records"]

#: Bytes of a row.
SIZE: Final = 64
_ROW: Final = struct.Struct("=16s16sQIHHQQ")
_LONGS: Final = SIZE // 8
#: Masks of ordinary flows, by their bits of code.
_MASKS: Final = tuple(
    ((1 << 16 + length) - 1 << MAX_BITS - length).to_bytes(16, "big") for length in range(MAX_BITS + 1)
)
_RANGE, _COUNTED = 4, 6


class Record(NamedTuple):
    """What is said of one flow."""

    bits: int
    outputs: int
    row: int
    in_port: int
    ones: int


class Records:
    """All rows of one switch; number 0 is none."""

    def __init__(self, flows: Chunks) -> None:
        self._chunks = flows
        self._longs = self._chunks.longs
        self._pool = Pool(1, max(self._chunks.rows, 1), self._grow)

    def _grow(self) -> int:
        if self._chunks.rows == self._chunks.most:
            return 0
        self._chunks.grow()
        return self._chunks.rows

    def add(self, bits: int, mask: int, outputs: int, row: int = 0, in_port: int = 0, ones: int = 0) -> int:
        """A row for a flow, of which nobody knows yet; its number."""
        number = self._pool.take()
        packed, packed_mask = bits.to_bytes(16, "big"), mask.to_bytes(16, "big")
        _ROW.pack_into(self._chunks.bytes, number * SIZE, packed, packed_mask, outputs, row, in_port, ones, 0, 0)
        return number

    def add_prefix(self, prefix: int, length: int, outputs: int) -> int:
        """The same for an ordinary flow: a one, its category, and so many bits of a code."""
        number = self._pool.take()
        bits = (prefix ^ 1 << 16 + length) << MAX_BITS - length
        row = bits.to_bytes(16, "big"), _MASKS[length], outputs, 0, 0, length, 0, 0
        _ROW.pack_into(self._chunks.bytes, number * SIZE, *row)
        return number

    def read(self, number: int) -> Record:
        """What `add` was told, with what has changed since."""
        bits, _, outputs, row, in_port, ones, _, _ = _ROW.unpack_from(self._chunks.bytes, number * SIZE)
        return Record(int.from_bytes(bits, "big"), outputs, row, in_port, ones)

    def redirect(self, number: int, outputs: int) -> None:
        """Its packets go elsewhere from now on."""
        self._longs[number * _LONGS + _RANGE] = outputs

    def slots(self, number: int) -> int:
        """Who wants a cell, as bits."""
        at = number * _LONGS + _RANGE
        return self._longs[at] | self._longs[at + 1] << 64

    def want(self, number: int, slot: int, wanted: bool) -> None:
        """Somebody wants a cell, or wants it no more."""
        at, bit = number * _LONGS + _RANGE + slot // 64, 1 << slot % 64
        self._longs[at] = self._longs[at] | bit if wanted else self._longs[at] & ~bit

    def forget(self, number: int) -> None:
        """Nothing names it any more."""
        self._pool.give(number)

    def keep(self, numbers: Iterable[int]) -> None:
        """These are in use, all others are not."""
        self._pool.keep(numbers)

    def count(self, number: int) -> Count:
        """What it has counted."""
        at = number * _LONGS + _COUNTED
        return Count(self._longs[at], self._longs[at + 1])

    def reset(self, number: int) -> None:
        """Count from zero again."""
        at = number * _LONGS + _COUNTED
        self._longs[at] = self._longs[at + 1] = 0
