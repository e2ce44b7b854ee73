"""What a connection is given to send: small messages that come together leave together.

An encrypted record and a system call cost more than a small message. What is written in one turn of the event loop is
kept until its end, and is one record then.
"""

from __future__ import annotations

import asyncio
from typing import Final

from sievenet.session.tls import closing

__all__ = ["WriteBuffer"]

#: Bytes that are not kept for more to come.
_ENOUGH: Final = 1 << 14


class WriteBuffer:
    """In front of a stream's writer."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        """Send this with what else is said in this turn."""
        self._parts.append(data)
        self._size += len(data)
        if self._size >= _ENOUGH:
            self.flush()
        elif len(self._parts) == 1:
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Give everything to the connection now."""
        if self._parts:
            data = b"".join(self._parts)
            self._parts.clear()
            self._size = 0
            if not closing(self._writer.transport):
                self._writer.write(data)

    @property
    def waiting(self) -> int:
        """Bytes that have not left."""
        try:
            return self._size + self._writer.transport.get_write_buffer_size()
        except AttributeError:  # an encrypted transport of asyncio, once it is closed
            return self._size
