"""Numbers of messages of which nothing is known yet, as stretches: sorted, disjoint, few.

A receiver has to account for every number that a publisher has used. Most are settled at once (the message came, or a
record showed that it is not wanted); what is left is here until somebody says what it was. The lowest stretch holds
back what is above it, if order is kept.
"""

from __future__ import annotations

from bisect import bisect_right
from math import inf
from typing import Final

import msgspec

__all__ = ["Stretch", "Stretches"]

#: Stretches kept at most.
_MOST: Final = 1024


class Stretch(msgspec.Struct):
    """Messages ``first`` to ``last``."""

    first: int
    last: int
    #: By then they should have come.
    deadline: float
    #: They did not come in time, and the publisher is asked what they were.
    asked: bool = False


class Stretches:
    """The unknown numbers of one stream."""

    __slots__ = ("_spans",)

    def __init__(self) -> None:
        self._spans: list[Stretch] = []

    def __bool__(self) -> bool:
        return bool(self._spans)

    def __len__(self) -> int:
        return len(self._spans)

    def __contains__(self, number: int) -> bool:
        return self._at(number) >= 0

    def _at(self, number: int) -> int:
        place = bisect_right(self._spans, number, key=lambda each: each.first) - 1
        return place if place >= 0 and number <= self._spans[place].last else -1

    def add(self, first: int, last: int, deadline: float) -> Stretch | None:
        """These numbers, above or below all others, are unknown; the lowest stretch, if there are too many now."""
        spans = self._spans
        place = bisect_right(spans, first, key=lambda each: each.first)
        spans.insert(place, Stretch(first, last, deadline))
        return spans.pop(0) if len(spans) > _MOST else None

    def discard(self, number: int) -> bool:
        """A number is settled; whether it was unknown."""
        place = self._at(number)
        if place < 0:
            return False
        span = self._spans[place]
        if span.first == span.last:
            del self._spans[place]
        elif number == span.last:
            span.last -= 1
        elif number == span.first:
            span.first += 1
        else:
            self._spans.insert(place + 1, Stretch(number + 1, span.last, span.deadline, span.asked))
            span.last = number - 1
        return True

    def remove(self, first: int, last: int) -> list[tuple[int, int]]:
        """Numbers are settled together; those of them that were unknown, as ranges."""
        gone: list[tuple[int, int]] = []
        kept: list[Stretch] = []
        for span in self._spans:
            if span.last < first or span.first > last:
                kept.append(span)
                continue
            gone.append((max(first, span.first), min(last, span.last)))
            if span.first < first:
                kept.append(Stretch(span.first, first - 1, span.deadline, span.asked))
            if span.last > last:
                kept.append(Stretch(last + 1, span.last, span.deadline, span.asked))
        self._spans = kept
        return gone

    def postpone(self, first: int, last: int, deadline: float) -> None:
        """These numbers have until then to come."""
        for span in reversed(self._spans):
            if span.last < first:
                break
            if span.first <= last:
                span.deadline = deadline

    def lowest(self, start: int, *, asked: bool) -> float:
        """The lowest unknown number from ``start`` on, perhaps without those that were asked for; infinite if none."""
        for span in self._spans:
            if span.last >= start and (asked or not span.asked):
                return max(span.first, start)
        return inf

    def timer(self) -> float:
        """The next deadline."""
        return min((span.deadline for span in self._spans if not span.asked), default=inf)

    def overdue(self, now: float) -> list[Stretch]:
        """Stretches whose deadline has passed and that are not asked for."""
        return [span for span in self._spans if not span.asked and span.deadline <= now]

    def asking(self) -> tuple[int, int] | None:
        """First and last number that are asked for."""
        if not self._spans:
            return None
        asked = [span for span in self._spans if span.asked]
        return (asked[0].first, asked[-1].last) if asked else None
