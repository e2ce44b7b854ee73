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
        #: First and last of each span, ascending, and its number; the first two are the same for a point.
        self._closed: list[tuple[int, int, int]] = []
        #: How many there were: two may be at the same offset, one after the other.
        self.count = 0
        #: Where the span began that has not ended.
        self.begun: int | None = None

    def __bool__(self) -> bool:
        return bool(self._closed) or self.begun is not None

    def point(self, offset: int) -> None:
        """Something may be missing just before an offset."""
        if self.begun is None:
            self._close(offset, offset)

    def begin(self, offset: int) -> None:
        """Something may be missing from before an offset on."""
        if self.begun is None:
            self.begun = offset

    def end(self, offset: int) -> None:
        """Nothing is missing behind an offset."""
        if self.begun is not None:
            self._close(self.begun, offset)
            self.begun = None

    def _close(self, start: int, end: int) -> None:
        self.count += 1
        self._closed = [*(each for each in self._closed if each[:2] != (start, end)), (start, end, self.count)]

    def forget(self, first: int) -> None:
        """The ring begins with an offset now."""
        self._closed = [each for each in self._closed if each[1] > first or first == 0]

    def beyond(self, offset: int, count: int) -> Interruptions:
        """Those that were not over at an offset, when there were so many, as far as they are behind it."""
        found = Interruptions()
        new = [each for each in self._closed if each[1] > offset or each[2] > count]
        found._closed = [(max(start, offset), max(end, offset), number) for start, end, number in new]
        found.begun = None if self.begun is None else max(self.begun, offset)
        return found

    @property
    def last(self) -> int | None:
        """The offset behind which nothing is missing; None if nothing is anywhere."""
        return max((end for _, end, _ in self._closed), default=None)

    @property
    def points(self) -> frozenset[int]:
        """The offsets before which something of any source may be missing."""
        return frozenset(start for start, end, _ in self._closed if start == end)

    def edges(self, end: int) -> frozenset[int]:
        """The same for both ends of spans; ``end`` is the offset that comes next."""
        found = {offset for start, end, _ in self._closed if start < end for offset in (start, end)}
        return frozenset(found if self.begun is None else {*found, self.begun, end})

    def inside(self, offset: int) -> bool:
        """Whether any jump before this offset may be a loss."""
        if self.begun is not None and offset >= self.begun:
            return True
        return any(start <= offset < end for start, end, _ in self._closed)

    def after(self, offset: int) -> bool:
        """Whether there was a span before this offset: what a source said first may be missing."""
        if self.begun is not None and offset >= self.begun:
            return True
        return any(start < end and offset >= start for start, end, _ in self._closed)
