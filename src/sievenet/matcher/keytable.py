"""A table from 64-bit keys to row numbers in 20 to 40 bytes per key; a dictionary of ints would take over 100."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from sievenet.matcher import records

__all__ = ["KeyTable"]

Ints = npt.NDArray[np.int64]
_LEAST = 64


class KeyTable:
    """Open addressing with linear probing, at most three quarters full."""

    def __init__(self) -> None:
        self._table: Ints = np.full((_LEAST, 2), records.UNUSED, np.int64)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[int]:
        used = self._table[:, 1] != records.UNUSED
        return iter(self._table[used, 0].tolist())

    @property
    def nbytes(self) -> int:
        """Bytes of the table."""
        return self._table.nbytes

    def find(self, key: int) -> int:
        """The row of a key, negative if there is none."""
        return int(records.find_key(self._table, key))

    def put(self, key: int, row: int) -> int:
        """Enter a key or change its row; the row it had, negative if it is new."""
        self._room(1)
        old = int(records.put_key(self._table, key, row))
        self._size += old < 0
        return old

    def put_many(self, keys: Ints, rows: Ints) -> Ints:
        """Enter many keys; the rows they had, negative where new."""
        self._room(len(keys))
        old: Ints = records.put_keys(self._table, keys, rows)
        self._size += int(np.count_nonzero(old < 0))
        return old

    def _room(self, more: int) -> None:
        if 4 * (self._size + more) > 3 * len(self._table):
            self._resize(1 << (4 * (self._size + more) // 3).bit_length())

    def take(self, key: int) -> int:
        """Remove a key; its row, negative if there was none."""
        row = int(records.take_key(self._table, key))
        if row >= 0:
            self._size -= 1
            if 8 * self._size < len(self._table) > _LEAST:
                self._resize(len(self._table) // 2)
        return row

    def _resize(self, capacity: int) -> None:
        old = self._table[self._table[:, 1] != records.UNUSED]
        self._table = np.full((capacity, 2), records.UNUSED, np.int64)
        records.put_keys(self._table, np.ascontiguousarray(old[:, 0]), np.ascontiguousarray(old[:, 1]))
