"""A store in memory: for tests, and for simulations in virtual time, where it takes a while, is away, and loses words.

A `Shelf` is what is shared; each `MemoryStore` is one who uses it, as a connection to a server would be.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from fnmatch import fnmatchcase
from random import Random
from typing import Final

from sievenet.control.store.store import Item
from sievenet.errors import Fenced, Unavailable

__all__ = ["MemoryStore", "Shelf"]

_LIMIT: Final = 1 << 20


class Shelf:
    """Logs, cells and listeners."""

    def __init__(self, *, random: Random | None = None, delay: float = 0.0, lost: float = 0.0) -> None:
        self.logs: dict[str, list[Item]] = {}
        self.cells: dict[str, Item] = {}
        self.listeners: dict[str, list[_Listener]] = {}
        self.number = 0
        self.random = random or Random(0)
        #: Seconds that anything takes at most, and which share of words is lost.
        self.delay, self.lost = delay, lost
        #: Cleared while nobody can reach it.
        self.up = asyncio.Event()
        self.up.set()

    def next(self) -> int:
        """A number that was never given."""
        self.number += 1
        return self.number


class _Listener:
    """Hears words a while later, in their order."""

    def __init__(self, store: MemoryStore, callback: Callable[[bytes], None]) -> None:
        self.store, self._callback = store, callback
        self._words: deque[bytes] = deque()

    def tell(self, data: bytes, delay: float) -> None:
        """Somebody says something."""
        self._words.append(data)
        asyncio.get_running_loop().call_later(delay, self._hear)

    def _hear(self) -> None:
        word = self._words.popleft()
        if self.store.listening:
            self._callback(word)


class MemoryStore:
    """One who uses a shelf."""

    def __init__(self, shelf: Shelf | None = None, limit: int = _LIMIT) -> None:
        self.shelf = shelf or Shelf()
        self.limit = limit
        self.trouble = ""
        #: Cleared while this one alone cannot reach the shelf.
        self.linked = asyncio.Event()
        self.linked.set()
        self._closed = False
        self._unheard: Callable[[str], None] | None = None

    @property
    def reachable(self) -> bool:
        """Whether it answers."""
        return self.shelf.up.is_set() and self.linked.is_set()

    @property
    def listening(self) -> bool:
        """Whether it hears words."""
        return self.reachable and not self._closed

    async def _pass(self) -> None:
        """The way there, or back."""
        while True:
            if self._closed:
                raise Unavailable("The store is closed")
            if self.reachable:
                break
            await self.linked.wait()
            await self.shelf.up.wait()
        await asyncio.sleep(self.shelf.random.random() * self.shelf.delay)

    async def append(self, log: str, data: bytes, after: int, *, anew: bool = False) -> int:
        """Add an entry."""
        assert len(data) <= self.limit
        await self._pass()
        entries = self.shelf.logs.setdefault(log, [])
        last = entries[-1].number if entries else 0
        if last != after:
            raise Fenced(f"Expected entry {after} at the end of {log}, got {last}: somebody else writes it")
        entry = Item(data, self.shelf.next())
        if anew:
            entries.clear()
        entries.append(entry)
        await self._pass()
        return entry.number

    async def read(self, log: str, after: int = 0) -> Item | None:
        """The next entry."""
        await self._pass()
        return next((entry for entry in self.shelf.logs.get(log, ()) if entry.number > after), None)

    async def scan(self, log: str) -> list[Item]:
        """All entries."""
        await self._pass()
        return list(self.shelf.logs.get(log, ()))

    async def last(self, log: str) -> int:
        """The last entry's number."""
        await self._pass()
        entries = self.shelf.logs.get(log)
        return entries[-1].number if entries else 0

    async def discard(self, logs: str) -> None:
        """Remove logs."""
        await self._pass()
        for name in [name for name in self.shelf.logs if fnmatchcase(name, logs)]:
            del self.shelf.logs[name]

    async def get(self, cell: str) -> Item | None:
        """What a cell holds."""
        await self._pass()
        return self.shelf.cells.get(cell)

    async def put(self, cell: str, data: bytes, revision: int) -> int:
        """Change a cell."""
        await self._pass()
        held = self.shelf.cells.get(cell)
        now = held.number if held is not None else 0
        if now != revision:
            raise Fenced(f"Expected revision {revision} of {cell}, got {now}: somebody else has changed it")
        self.shelf.cells[cell] = Item(data, self.shelf.next())
        number = self.shelf.number
        await self._pass()
        return number

    async def forget(self, cells: str) -> None:
        """Remove cells."""
        await self._pass()
        for name in [name for name in self.shelf.cells if fnmatchcase(name, cells)]:
            del self.shelf.cells[name]

    async def say(self, subject: str, data: bytes) -> None:
        """Tell who listens."""
        shelf = self.shelf
        if self._closed or not self.reachable or shelf.random.random() < shelf.lost:
            return
        listeners = [each for each in shelf.listeners.get(subject, ()) if each.store.listening]
        for listener in listeners:
            listener.tell(data, shelf.delay / 2)
        if not listeners and self._unheard is not None:
            asyncio.get_running_loop().call_later(shelf.delay / 2, self._unheard, subject)

    async def hear(self, subject: str, callback: Callable[[bytes], None]) -> None:
        """Listen."""
        self.shelf.listeners.setdefault(subject, []).append(_Listener(self, callback))

    async def unheard(self, callback: Callable[[str], None]) -> None:
        """Tell what nobody heard."""
        self._unheard = callback

    async def close(self) -> None:
        """Leave."""
        self._closed = True
        for listeners in self.shelf.listeners.values():
            listeners[:] = [each for each in listeners if each.store is not self]
