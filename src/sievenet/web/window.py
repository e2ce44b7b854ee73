"""The window: the last messages of a stream, numbered, so that whoever was away for a moment misses nothing.

    numbers   … 17 18 │ 19 20 21 22 23 │ 24 …
               gone       the window     to come

A reader has a *cursor*, the number that it wants next. Readers keep no queue of their own: one that is slow, or comes
back with the last number that it saw, reads on from its cursor; one whose cursor is gone is told how many it missed.
So a thousand slow readers hold no more memory than one. The window is bounded in bytes. Pure.

What readers may have can become less while messages are kept for them (`hold_to`): those that came before that are
looked at when they are read, and left out if they are not allowed then. Their numbers stay.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple

__all__ = ["Part", "Window"]


class Part(NamedTuple):
    """What a cursor finds."""

    #: Messages that were gone already.
    missed: int
    #: The number of the first message, and the messages; empty ones are left out.
    first: int
    messages: list[bytes]

    @property
    def cursor(self) -> int:
        """Where to read on."""
        return self.first + len(self.messages)


class Window:
    """Messages in order, the newest ``size`` bytes of them; the newest one always."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._messages: deque[bytes] = deque()
        #: What each message is about, for `hold_to`.
        self._about: deque[Any] = deque()
        #: Messages before this number are shown to `_allows` first.
        self._doubtful = 0
        self._allows: Callable[[Any, bytes], bool] = lambda about, message: True
        self._first = 1
        #: Bytes of the messages held.
        self.held = 0

    @property
    def next(self) -> int:
        """The number of the next message."""
        return self._first + len(self._messages)

    def add(self, message: bytes, about: Any = None) -> None:
        """One message more."""
        self._messages.append(message)
        self._about.append(about)
        self.held += len(message)
        if self.held > self._size:
            self._trim()

    def resize(self, size: int) -> None:
        """Hold so many bytes from now on."""
        self._size = size
        self._trim()

    def hold_to(self, allows: Callable[[Any, bytes], bool]) -> None:
        """From now on, of the messages that are here only those may be read that this allows.

        >>> window = Window(100)
        >>> for text in (b"one", b"two", b"three"): window.add(text)
        >>> window.hold_to(lambda about, message: message != b"two")
        >>> window.add(b"two")
        >>> window.read(1, 100).messages
        [b'one', b'', b'three', b'two']
        """
        self._doubtful, self._allows = self.next, allows

    def _trim(self) -> None:
        while self.held > self._size and len(self._messages) > 1:
            self.held -= len(self._messages.popleft())
            self._about.popleft()
            self._first += 1

    def read(self, cursor: int, most: int) -> Part:
        """What is there from a cursor on, up to ``most`` bytes (one message at least).

        >>> window = Window(6)
        >>> for text in (b"one", b"two", b"three"): window.add(text)
        >>> window.read(1, 100)
        Part(missed=2, first=3, messages=[b'three'])
        """
        first = max(cursor, self._first)
        found: list[bytes] = []
        start = first - self._first
        kept = zip(islice(self._messages, start, None), islice(self._about, start, None), strict=True)
        for number, (message, about) in enumerate(kept, first):
            most -= len(message)
            if most < 0 and found:
                break
            found.append(message if number >= self._doubtful or self._allows(about, message) else b"")
        return Part(first - cursor, first, found)
