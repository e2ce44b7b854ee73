"""What a publisher remembers of what it sent, so that it can say what any number was: departure and bits.

A record or a digest describes the last messages; a receiver that was cut off for longer asks (`control.Inquiry`) and is
told from here, page by page, the newest first. An entry takes some 200 bytes and reaches back as far as the log, so
whatever can still be repaired can also be named. What is older is gone, and that is said too.

Bits may look wanted where the message is not. Where there is no log to repair from, what a message said (without its
payload) is kept here too, as a function that encodes it when somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable

from sievenet.transport.bloom import Bits
from sievenet.transport.codec import Record, record_entry

__all__ = ["Content", "History"]

#: What a message said, encoded when it is asked for.
Content = Callable[[], bytes]


class History:
    """The last so many messages of one stream."""

    def __init__(self, limit: int, width: int) -> None:
        self._limit, self._width = limit, width
        self._entries: dict[int, tuple[float, bytes, Content | None]] = {}
        self._next = 0

    def add(self, departure: float, apart: int, bits: Bits, content: Content | None = None) -> bytes:
        """One more message was sent, so many microseconds after the one before; its entry."""
        number = self._next
        entry = record_entry(apart, bits, self._width)
        self._entries[number] = (departure, entry, content)
        self._entries.pop(number - self._limit, None)
        self._next = number + 1
        return entry

    @property
    def first(self) -> int:
        """The oldest message that is remembered."""
        return self._next - len(self._entries)

    def content(self, number: int) -> bytes:
        """What a message said; empty if that is not known."""
        found = self._entries.get(number)
        return b"" if found is None or found[2] is None else found[2]()

    def age(self, number: int, now: float) -> int:
        """Microseconds since a message left; 0 for one that is not remembered."""
        found = self._entries.get(number)
        return 0 if found is None else max(0, int((now - found[0]) * 1e6))

    def record(self, last: int, count: int) -> Record:
        """The record of up to ``count`` messages that end with ``last``."""
        first = max(self.first, last - count + 1)
        data = b"".join([self._entries[number][1] for number in range(last, first - 1, -1)])
        return Record(self._width, max(0, last - first + 1), data)
