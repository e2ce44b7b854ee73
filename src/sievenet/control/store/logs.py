"""Entries of any size in a log: cut into pieces that a store takes, and put together again.

    piece    1 byte: does an entry begin here (1), does it end here (2)   |   bytes

A writer that dies in the middle leaves pieces without an end.  Whoever writes next begins anew, and a reader drops what
did not end: nobody was ever told that it is safe.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from sievenet.control.store.store import Item, Store
from sievenet.errors import CodecError

__all__ = ["Reader", "Writer", "read_all"]

_BEGINS: Final = 1
_ENDS: Final = 2


class Writer:
    """Writes entries; nobody else may, which the store sees to."""

    def __init__(self, store: Store, log: str, after: int = 0) -> None:
        self._store = store
        self.log = log
        #: The number of the last piece.
        self.at = after

    async def write(self, data: bytes, *, anew: bool = False) -> int:
        """Add an entry; with ``anew`` instead of all before it.  `Fenced` if somebody else wrote meanwhile."""
        size = self._store.limit - 1
        begins = _BEGINS
        for start in range(0, max(1, len(data)), size):
            mark = begins | (_ENDS if start + size >= len(data) else 0)
            piece = bytes((mark,)) + data[start : start + size]
            self.at = await self._store.append(self.log, piece, self.at, anew=anew and bool(begins))
            begins = 0
        return self.at


class Reader:
    """Reads entries, one after the other."""

    def __init__(self, store: Store, log: str) -> None:
        self._store = store
        self._log = log
        #: The number of the last piece that was read, whole entry or not.
        self.at = 0
        self._parts: list[bytes] | None = None

    async def next(self) -> Item | None:
        """The next entry that is there; None if there is none yet."""
        while (piece := await self._store.read(self._log, self.at)) is not None:
            whole = self.take(piece)
            if whole is not None:
                return whole
        return None

    async def upto(self, number: int) -> AsyncIterator[Item]:
        """The next entries up to a piece; of a log that is new here all in one go: every question takes a while."""
        if not self.at and number:
            for piece in await self._store.scan(self._log):
                if piece.number <= number and (whole := self.take(piece)) is not None:
                    yield whole
        while self.at < number and (entry := await self.next()) is not None:
            yield entry

    def take(self, piece: Item) -> Item | None:
        """The entry that ends with a piece, if one does."""
        mark = piece.data[0] if piece.data else 4
        if mark > _BEGINS | _ENDS:
            raise CodecError(expected="a piece of an entry", got=mark, where=f"log {self._log}")
        self.at = piece.number
        if mark & _BEGINS:
            self._parts = []
        if self._parts is None:
            return None  # the log begins in the middle of an entry: what came before was replaced
        self._parts.append(piece.data[1:])
        if not mark & _ENDS:
            return None
        parts, self._parts = self._parts, None
        return Item(b"".join(parts), piece.number)


async def read_all(store: Store, log: str) -> tuple[list[bytes], int]:
    """All entries of a log, and the number to write behind."""
    reader = Reader(store, log)
    found = [whole.data for piece in await store.scan(log) if (whole := reader.take(piece)) is not None]
    return found, reader.at
