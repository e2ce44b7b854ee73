"""The connections of a router: one and its buffer, and what long buffers mean for all."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["FULL", "Peer", "Pressure"]

#: Bytes in a buffer from which on events are dropped.
FULL: Final = 1 << 26
#: Bytes in a neighbour's buffer from which on clients are not read.
_HIGH: Final = 1 << 22
#: Seconds after which long buffers are looked at again.
_AGAIN: Final = 0.002


@dataclass(slots=True, eq=False)
class Peer:
    """One connection."""

    writer: asyncio.StreamWriter
    dialled: bool
    role: str = ""
    name: str = ""
    publisher: int = 0
    dropped: int = 0
    #: Whether this client computes for the router.
    helps: bool = False

    def send(self, data: bytes, droppable: bool = False) -> bool:
        """Write; False if the buffer is full and the data can be done without."""
        transport = self.writer.transport
        if transport.is_closing():
            return False
        if droppable and transport.get_write_buffer_size() > FULL:
            return False
        self.writer.write(data)
        return True

    @property
    def waiting(self) -> int:
        """Bytes in the buffer."""
        return self.writer.transport.get_write_buffer_size()


class Pressure:
    """Whether clients are read: not while a neighbour's buffer is long."""

    def __init__(self, neighbours: Mapping[str, Peer]) -> None:
        self._neighbours = neighbours
        self._calm = asyncio.Event()
        self._calm.set()

    @property
    def calm(self) -> bool:
        """Whether clients are read."""
        return self._calm.is_set()

    async def wait(self) -> None:
        """Until clients are read."""
        await self._calm.wait()

    def look(self, peer: Peer) -> None:
        """A neighbour was sent something."""
        if peer.waiting > _HIGH:
            self._calm.clear()
            asyncio.get_running_loop().call_later(_AGAIN, self.ease)

    def ease(self) -> None:
        """Read clients again once no neighbour's buffer is long."""
        if self._calm.is_set():
            return
        if max((peer.waiting for peer in self._neighbours.values()), default=0) <= _HIGH // 2:
            self._calm.set()
        else:
            asyncio.get_running_loop().call_later(_AGAIN, self.ease)
