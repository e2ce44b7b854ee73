"""A broadcast: one sequence of messages, written to any number of streams.

What comes together is written together: the first message of a turn of the event loop schedules a flush, and by then
whatever came with it is there too. A flush makes the bytes once for each kind of stream and writes them to all that
follow, so a further stream costs one system call.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

from sievenet.web.frame import Kind
from sievenet.web.stream import Stream
from sievenet.web.window import Window

__all__ = ["Broadcast"]


class Broadcast:
    """A `Source` of streams."""

    def __init__(self, size: int) -> None:
        self.life = secrets.token_hex(4)
        self.window = Window(size)
        #: All streams, and those of them that have everything up to the last flush.
        self.streams: set[Stream] = set()
        self._following: set[Stream] = set()
        self._scheduled = False
        #: Messages that streams which have ended missed.
        self.missed = 0

    def add(self, message: bytes, about: Any = None) -> None:
        """A message for everybody."""
        self.window.add(message, about)
        if not self._scheduled and self._following:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        made: dict[tuple[Kind, int], tuple[bytes, int, int]] = {}
        for stream in list(self._following):
            key = stream.kind, stream.cursor
            found = made.get(key)
            if found is None:
                found = made[key] = stream.read()
            if found[0]:
                stream.write(*found)
                if stream.cursor < self.window.next and stream in self._following:
                    # More than one piece: the rest at the pace of its socket.
                    self._following.discard(stream)
                    stream.begin()

    def enter(self, stream: Stream) -> None:
        """A stream begins."""
        self.streams.add(stream)
        stream.begin()

    def follow(self, stream: Stream) -> None:
        """A stream has caught up."""
        if stream in self.streams:
            self._following.add(stream)

    def leave(self, stream: Stream) -> None:
        """A stream does not follow any more, or has ended."""
        self._following.discard(stream)
        if stream.ended.is_set() and stream in self.streams:
            self.streams.discard(stream)
            self.missed += stream.missed

    def end(self, reason: str) -> None:
        """End all streams."""
        for stream in list(self.streams):
            stream.end(reason)
