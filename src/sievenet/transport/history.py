"""What a publisher remembers of what it sent, so that it can say what any number was: departure and bits.

A record or a digest describes the last messages; a receiver that was cut off for longer asks (`control.Inquiry`) and is
told from here, page by page, the newest first. An entry takes some 200 bytes and reaches back as far as the log, so
whatever can still be repaired can also be named. What is older is gone, and that is said too.
"""

from __future__ import annotations

from sievenet.transport.bloom import Bits
from sievenet.transport.codec import Record, record_entry

__all__ = ["History"]


class History:
    """The last so many messages of one stream."""

    def __init__(self, limit: int, width: int) -> None:
        self._limit, self._width = limit, width
        self._entries: dict[int, tuple[float, bytes]] = {}
        self._next = 0

    def add(self, departure: float, apart: int, bits: Bits) -> bytes:
        """One more message was sent, so many microseconds after the one before; its entry."""
        number = self._next
        entry = record_entry(apart, bits, self._width)
        self._entries[number] = (departure, entry)
        self._entries.pop(number - self._limit, None)
        self._next = number + 1
        return entry

    @property
    def first(self) -> int:
        """The oldest message that is remembered."""
        return self._next - len(self._entries)

    def age(self, number: int, now: float) -> int:
        """Microseconds since a message left; 0 for one that is not remembered."""
        found = self._entries.get(number)
        return 0 if found is None else max(0, int((now - found[0]) * 1e6))

    def record(self, last: int, count: int) -> Record:
        """The record of up to ``count`` messages that end with ``last``."""
        first = max(self.first, last - count + 1)
        data = b"".join([self._entries[number][1] for number in range(last, first - 1, -1)])
        return Record(self._width, max(0, last - first + 1), data)
