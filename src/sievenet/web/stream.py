"""A stream: one client that is sent what a broadcast has, at the pace at which it reads.

    following    its cursor is where the broadcast is: each flush writes the same bytes to all that follow
    catching up  it came back, or its socket is full: reads the window piece by piece, as the socket empties

Nothing is queued for a stream but what its socket's buffer holds, and that is bounded: what a slow client has not read
waits in the window, and if it is gone from there, the client is told how many messages it missed.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from sievenet.web.frame import Kind, chunk, identifier, message
from sievenet.web.window import Window

__all__ = ["Source", "Stream"]

#: Bytes that may wait in the socket's buffer: above the upper bound a stream stops following, below the lower one it
#: is written to again.
_HIGH: Final = 1 << 18
_LOW: Final = 1 << 16
_PIECE: Final = 1 << 16
#: Seconds between looks whether a full socket has room.
_SOON: Final = 0.02
_LATE: Final = 0.5


class Source(Protocol):
    """What streams read."""

    #: Tells messages of one life from those of another.
    life: str
    window: Window

    def follow(self, stream: Stream) -> None:
        """A stream has caught up."""

    def leave(self, stream: Stream) -> None:
        """A stream has ended."""


class Stream:
    """One client's end of a broadcast."""

    def __init__(self, source: Source, transport: asyncio.Transport, kind: Kind, cursor: int, unread: float) -> None:
        self._source, self._transport = source, transport
        self.kind: Kind = kind
        self.cursor = cursor
        #: Set when nothing more is written.
        self.ended = asyncio.Event()
        #: Why the server ended it; empty if the client did.
        self.reason = ""
        #: Messages that were gone from the window before this client could be sent them.
        self.missed = 0
        self._unread = unread
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Send what the window has from the cursor on, then follow."""
        self._task = asyncio.get_running_loop().create_task(self._catch_up())

    @property
    def full(self) -> bool:
        """Whether its socket has too much to send already."""
        return self._transport.get_write_buffer_size() > _HIGH

    def write(self, data: bytes, cursor: int, missed: int) -> None:
        """Write what all that follow are sent; whoever does not read is left behind."""
        if self._transport.is_closing():
            self.end()
        elif self.full:
            self._source.leave(self)
            self.begin()
        else:
            self._transport.write(data)
            self.cursor = cursor
            self.missed += missed

    def say(self, name: str, data: bytes) -> None:
        """Send a message that is not part of the broadcast."""
        if not self._transport.is_closing() and not self.ended.is_set():
            self._transport.write(chunk(self.kind, message(self.kind, name, data)))

    def read(self) -> tuple[bytes, int, int]:
        """What is there from the cursor on, as it is written, the next cursor, and how many messages were gone."""
        part = self._source.window.read(self.cursor, _PIECE)
        texts = []
        if part.missed:
            texts.append(message(self.kind, "missed", b'{"missed":%d}' % part.missed))
        life = self._source.life
        texts += (
            message(self.kind, "event", each, identifier(life, number))
            for number, each in enumerate(part.messages, part.first)
            if each
        )
        return chunk(self.kind, b"".join(texts)) if texts else b"", part.cursor, part.missed

    async def _catch_up(self) -> None:
        while not self.ended.is_set():
            if not await self._room():
                return
            data, cursor, missed = self.read()
            if cursor == self.cursor:
                self._source.follow(self)
                return
            if data:
                self._transport.write(data)
            else:  # nothing of it may be read: others have their turn
                await asyncio.sleep(0)
            self.cursor = cursor
            self.missed += missed

    async def _room(self) -> bool:
        """Wait until the socket has room; False if the client is gone, or reads nothing for too long."""
        wait, size, waited = _SOON, 1 << 62, 0.0
        while (held := self._transport.get_write_buffer_size()) > _LOW:
            if self._transport.is_closing():
                self.end()
                return False
            waited = waited + wait if held >= size else 0.0
            if waited > self._unread:
                self.end(f"nothing was read for {self._unread:g} s")
                self._transport.abort()
                return False
            size = held
            await asyncio.sleep(wait)
            wait = min(2 * wait, _LATE)
        return not self.ended.is_set()

    def end(self, reason: str = "") -> None:
        """Write nothing more."""
        if not self.ended.is_set():
            self.reason = reason
            self.ended.set()
            self._source.leave(self)
            if self._task is not None and self._task is not asyncio.current_task():
                self._task.cancel()
