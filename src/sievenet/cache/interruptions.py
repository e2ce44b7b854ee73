"""Interruptions: where in a ring something may be missing.

Whoever asks for what a ring has wants to know too what it may lack. There are two kinds of places:

    point   offset 7       the cache was away: between 6 and 7 events may be missing, of any source
    span    offsets 9…14   its port dropped something while these came, and nobody knows behind which of them

    ring    5  6 ║ 7  8 [ 9 10 11 12 13 ] 14 15

In a span every jump in a source's numbers may be a loss, and so may one at each of its ends. A span begins where the
port was last known to have dropped nothing, and ends when what waited in it has surely come. Pure: no clock.
"""

from __future__ import annotations

__all__ = ["Interruptions"]


class Interruptions:
    """Those of one ring, by offset."""

    def __init__(self) -> None:
        #: First and last of each span, ascending; both are the same for a point.
        self._closed: list[tuple[int, int]] = []
        #: Where the span began that has not ended.
        self.begun: int | None = None

    def __bool__(self) -> bool:
        return bool(self._closed) or self.begun is not None

    def point(self, offset: int) -> None:
        """Something may be missing just before an offset."""
        if self.begun is None and (offset, offset) not in self._closed:
            self._closed.append((offset, offset))

    def begin(self, offset: int) -> None:
        """Something may be missing from before an offset on."""
        if self.begun is None:
            self.begun = offset

    def end(self, offset: int) -> None:
        """Nothing is missing behind an offset."""
        if self.begun is not None:
            self._closed.append((self.begun, offset))
            self.begun = None

    def forget(self, first: int) -> None:
        """The ring begins with an offset now."""
        self._closed = [each for each in self._closed if each[1] > first or first == 0]

    def beyond(self, offset: int) -> Interruptions:
        """Those that are not over before an offset, as far as they are behind it."""
        found = Interruptions()
        found._closed = [(max(start, offset), end) for start, end in self._closed if end > offset]
        found.begun = None if self.begun is None else max(self.begun, offset)
        return found

    @property
    def points(self) -> frozenset[int]:
        """The offsets before which something of any source may be missing."""
        return frozenset(start for start, end in self._closed if start == end)

    def edges(self, end: int) -> frozenset[int]:
        """The same for both ends of spans; ``end`` is the offset that comes next."""
        found = {offset for span in self._closed if span[0] < span[1] for offset in span}
        return frozenset(found if self.begun is None else {*found, self.begun, end})

    def inside(self, offset: int) -> bool:
        """Whether any jump before this offset may be a loss."""
        if self.begun is not None and offset >= self.begun:
            return True
        return any(start <= offset < end for start, end in self._closed)

    def after(self, offset: int) -> bool:
        """Whether there was a span before this offset: what a source said first may be missing."""
        if self.begun is not None and offset >= self.begun:
            return True
        return any(start < end and offset >= start for start, end in self._closed)
