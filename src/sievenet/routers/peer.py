"""One connection of a router, and its buffer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

__all__ = ["FULL", "Peer"]

#: Bytes in a buffer from which on events are dropped.
FULL: Final = 1 << 26


@dataclass(slots=True, eq=False)
class Peer:
    """One connection."""

    writer: asyncio.StreamWriter
    dialled: bool
    role: str = ""
    name: str = ""
    publisher: int = 0
    dropped: int = 0

    def send(self, data: bytes, droppable: bool = False) -> bool:
        """Write; False if the buffer is full and the data can be done without."""
        transport = self.writer.transport
        if transport.is_closing():
            return False
        if droppable and transport.get_write_buffer_size() > FULL:
            return False
        self.writer.write(data)
        return True
