"""What a cache may use: memory, disk and a folder, which is its own while it runs."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import msgspec

from sievenet.cache.ring import Ring
from sievenet.cache.spill import Spill
from sievenet.errors import InvalidInput, Unavailable

__all__ = ["CacheSettings", "claimed"]


class CacheSettings(msgspec.Struct, frozen=True):
    """What a cache may use."""

    #: Seconds that events are kept for those who may need them.
    seconds: float = 30.0
    #: Bytes in memory, of each category.
    memory: int = 256 << 20
    #: Bytes on disk, of each category; 0 spills nothing.
    disk: int = 0
    folder: Path | None = None
    #: Write everything to disk as it comes, and begin with what is there.
    durable: bool = False
    #: Events that may wait for one subscriber.
    queue: int = 1_000_000

    def check(self) -> None:
        """`InvalidInput` if a cache could not work with these."""
        for name in ("seconds", "memory", "queue"):
            if not getattr(self, name) > 0:
                raise InvalidInput(expected="a number above 0", got=getattr(self, name), where=f"cache, {name}")
        if self.durable and (self.folder is None or not self.disk):
            raise InvalidInput(expected="a folder, and bytes on disk, for a durable cache", got="none", where="cache")

    def ring(self, category: str) -> Ring:
        """The ring of a category."""
        spill = None
        if self.folder is not None and self.disk:
            spill = Spill(self.folder / category, self.disk)
        return Ring(seconds=self.seconds, max_bytes=self.memory, spill=spill, durable=self.durable)


def claimed(folder: Path) -> int:
    """Make a folder this cache's own; close what is returned to give it back, or die.

    `Unavailable` if there can be none, or if another cache has it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Unavailable(f"Cannot keep events in {folder}: {error}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise Unavailable(f"Expected a folder that no other cache uses, got {folder}: one is using it") from None
    return handle
