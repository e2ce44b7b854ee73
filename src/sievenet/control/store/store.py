"""The interface of a store: logs, cells and words.  `sievenet.testing.store_contract` says what all must do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import msgspec

__all__ = ["UNREADABLE", "Item", "Store"]

#: What decoding raises at what is none of ours: whoever reaches a store may have written anything.
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Item(NamedTuple):
    """What a log or a cell holds, and its number: larger than that of all before it."""

    data: bytes
    number: int


class Store(Protocol):
    """Shared by all who connect to it.  What takes a while is tried again until it is done, or the store is closed.

    If it says that it does not do it, and goes on saying so, whoever waits gets `Unavailable`.

    Names are words of letters, digits, `-` and `_`, joined by dots.
    """

    @property
    def limit(self) -> int:
        """Bytes of the largest entry, value or word."""
        ...

    #: Why it does not do what it is asked; nothing if it does.
    trouble: str

    # -- logs ------------------------------------------------------------------------------

    async def append(self, log: str, data: bytes, after: int, *, anew: bool = False) -> int:
        """Add an entry behind the one with this number (0: the log is empty); returns its number.

        `Fenced`, and nothing is added, if another one is last.  With ``anew`` it takes the place of all before it.
        """
        ...

    async def read(self, log: str, after: int = 0) -> Item | None:
        """The first entry behind this number; None if there is none."""
        ...

    async def scan(self, log: str) -> list[Item]:
        """All entries, which is quicker than one by one."""
        ...

    async def last(self, log: str) -> int:
        """The number of the last entry; 0 if there is none."""
        ...

    async def discard(self, logs: str) -> None:
        """Remove a log, or with a dot and a star at the end (`partition.3.*`) all whose names begin so."""
        ...

    # -- cells -----------------------------------------------------------------------------

    async def get(self, cell: str) -> Item | None:
        """What a cell holds; None if nothing was ever put there."""
        ...

    async def put(self, cell: str, data: bytes, revision: int) -> int:
        """Change a cell that has this revision (0: it is new); returns the next.  `Fenced` if it has another."""
        ...

    async def forget(self, cells: str) -> None:
        """Remove cells, named as by `discard`."""
        ...

    # -- words -----------------------------------------------------------------------------

    async def say(self, subject: str, data: bytes) -> None:
        """Tell whoever listens now; nobody knows whether it arrives."""
        ...

    async def hear(self, subject: str, callback: Callable[[bytes], None]) -> None:
        """Call with everything that is said about a subject from now on, in the order in which one sender says it."""
        ...

    async def unheard(self, callback: Callable[[str], None]) -> None:
        """Call with the subject of what this one says from now on while nobody listens to it."""
        ...

    @property
    def reachable(self) -> bool:
        """Whether the last that is known of it is that it answers."""
        ...

    async def close(self) -> None:
        """Leave; whoever waits gets `Unavailable`."""
        ...
