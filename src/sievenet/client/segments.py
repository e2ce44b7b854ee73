"""Matching one event in few steps: the line of one attribute, cut where some subscription begins or ends.

    x      ──────┬────────┬────┬──────────
    wanted       [ a ─────]
                          [ b ─]
                 [ c, and y > 3 ──────────
    holds   -    │ a, c?  │b,c?│ c?               c? is asked in full, a and b need no second look

Within a segment the answer of every filter on that attribute is the same, so that an event finds its segment by
bisection and asks only those filters there that say something about other attributes too. The attribute is chosen that
leaves the fewest to ask. The compiled `Matcher` serves any number of filters and of events better, but not a single
event in a process that has just woken up: entering it alone takes longer than all of this.

A filter lies in every segment that it spans. `Segments.of` gives up where that would be many: where most filters
overlap most others, nothing is gained by cutting the line.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from sievenet.content.event import Event
from sievenet.content.filter import Filter, Subscription
from sievenet.content.schema import Attribute, Schema
from sievenet.content.valueset import NUMBER, ValueSet

__all__ = ["Segments"]

#: Entries of all segments together, for each filter and in all, and entries of a segment on average, beyond which
#: cutting is not worth it.
_EACH: Final = 8
_FREE: Final = 64
_SHARE: Final = 8

#: Keys that match whatever else the event says, and filters that have to be asked, with theirs.
_Segment = tuple[tuple[int, ...], tuple[tuple[int, Filter], ...]]


class Segments:
    """The subscriptions of one schema along one of its attributes."""

    def __init__(self, column: int, bounds: Sequence[float], table: Sequence[_Segment]) -> None:
        self._column = column
        self._bounds = bounds
        self._table = table

    @classmethod
    def of(cls, schema: Schema | None, subscriptions: Mapping[int, Subscription]) -> Segments | None:
        """The best there is; None if none is good, as for filters without a schema."""
        if schema is None:
            return None
        filters = [(key, each) for key, wanted in sorted(subscriptions.items()) for each in wanted if not each.empty]
        best: tuple[float, int, list[float], list[list[tuple[int, Filter]]]] | None = None
        for column, attribute in enumerate(schema.attributes):
            if attribute.type not in ("int", "float"):
                continue
            found = _cut(attribute, filters)
            if found is not None:
                bounds, table = found
                share = sum(map(len, table)) / len(table)
                if best is None or share < best[0]:
                    best = share, column, bounds, table
        if best is None or best[0] > _SHARE:
            return None
        _, column, bounds, table = best
        name = schema.attributes[column].name
        return cls(column, bounds, [_segment(entries, name) for entries in table])

    def match(self, event: Event) -> Sequence[int]:
        """The keys of the subscriptions that match an event of the schema."""
        keys, doubtful = self._table[bisect_right(self._bounds, event.values[self._column])]
        if not doubtful:
            return keys
        found = set(keys)
        found.update(key for key, wanted in doubtful if wanted.matches(event))
        return sorted(found)


def _cut(
    attribute: Attribute, filters: Sequence[tuple[int, Filter]]
) -> tuple[list[float], list[list[tuple[int, Filter]]]] | None:
    """Where segments begin, and the filters of each; None if there are too many."""
    spans = [(key, each, list(_spans(each.constraints.get(attribute.name)))) for key, each in filters]
    bounds = sorted({end for _, _, some in spans for span in some for end in span if abs(end) != float("inf")})
    table: list[list[tuple[int, Filter]]] = [[] for _ in range(len(bounds) + 1)]
    room = _EACH * len(filters) + _FREE
    for key, each, some in spans:
        for lo, hi in some:
            first = 0 if lo == -float("inf") else bisect_right(bounds, lo)
            last = len(bounds) if hi == float("inf") else bisect_right(bounds, hi) - 1
            room -= last - first + 1
            if room < 0:
                return None
            for at in range(first, last + 1):
                table[at].append((key, each))
    return bounds, table


def _spans(values: ValueSet | None) -> Iterator[tuple[Any, Any]]:
    """From where up to where numbers are in a set; all of them if nothing is said."""
    if values is None:
        yield -float("inf"), float("inf")
        return
    ends = [cut[1] if len(cut) > 1 and cut[0] == NUMBER else _beyond(cut) for cut in values.cuts]
    yield from list(pairwise(ends))[::2]


def _beyond(cut: tuple[Any, ...]) -> float:
    return -float("inf") if cut <= (NUMBER,) else float("inf")


def _segment(entries: Sequence[tuple[int, Filter]], name: str) -> _Segment:
    sure = {key for key, each in entries if not each.constraints.keys() - {name}}
    return tuple(sorted(sure)), tuple((key, each) for key, each in entries if key not in sure)
