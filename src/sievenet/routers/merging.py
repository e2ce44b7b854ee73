"""Merging: few filters in place of many, exactly their union or a little more.

Two filters that differ in one attribute at most have a *perfect* merger: the union of that attribute's values, and
nothing is added. Finding such partners needs no search: each filter is filed under "all of it but attribute a", for
each of its attributes, and filters under the same heading merge. Which mergers are best is NP-complete; this is greedy,
in the order in which filters come.

An *imperfect* merger covers more than its parts. Its cost is the share of the merged box that nobody asked for, as a
fraction of the box (`excess`); ``bound`` limits it. Shares are taken over the schema's domains; where a domain has no
size (free text, schemaless) only perfect mergers are made. False positives are the price, never false negatives.

A merger remembers its members. Taking one out takes the merger apart and merges the rest again.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from sievenet.content.filter import Filter
from sievenet.content.schema import Attribute
from sievenet.content.valueset import NUMBER, ValueSet

__all__ = ["Merger", "excess", "share"]

#: Filters among which a partner for an imperfect merger is sought.
_CANDIDATES: Final = 32

_Heading = tuple[str, frozenset[tuple[str, ValueSet]]]


class Merger:
    """A set of filters and the smaller set that stands for it."""

    def __init__(self, bound: float = 0.0) -> None:
        self._bound = bound
        #: What is told, and the members each stands for.
        self.merged: dict[Filter, set[Filter]] = {}
        self._home: dict[Filter, Filter] = {}
        self._headings: dict[_Heading, Filter] = {}
        self._changed: dict[Filter, bool] = {}

    def add(self, member: Filter) -> None:
        """Add a filter to the set."""
        if member not in self._home:
            self._enter(member, {member})

    def remove(self, member: Filter) -> None:
        """Take a filter out; the others of its merger are merged anew."""
        home = self._home.pop(member, None)
        if home is not None:
            rest = self._take(home) - {member}
            for each in sorted(rest, key=str):
                self._enter(each, {each})

    def changes(self) -> tuple[list[Filter], list[Filter]]:
        """What is new and what is gone in the merged set since the last call."""
        changed, self._changed = self._changed, {}
        return [f for f, new in changed.items() if new], [f for f, new in changed.items() if not new]

    def _enter(self, wanted: Filter, members: set[Filter]) -> None:
        while True:
            if wanted in self.merged:
                members |= self._take(wanted)
            partner = self._partner(wanted)
            if partner is None:
                break
            members |= self._take(partner)
            wanted = wanted.merge(partner).filter
        self.merged[wanted] = members
        for member in members:
            self._home[member] = wanted
        for heading in _headings(wanted):
            self._headings[heading] = wanted
        self._note(wanted, True)

    def _partner(self, wanted: Filter) -> Filter | None:
        for heading in _headings(wanted):
            found = self._headings.get(heading)
            if found is not None:
                return found
        if self._bound > 0:
            for other in islice(reversed(self.merged), _CANDIDATES):
                if excess(wanted, other) <= self._bound:
                    return other
        return None

    def _take(self, merged: Filter) -> set[Filter]:
        for heading in _headings(merged):
            if self._headings.get(heading) == merged:
                del self._headings[heading]
        self._note(merged, False)
        return self.merged.pop(merged)

    def _note(self, merged: Filter, is_new: bool) -> None:
        if self._changed.get(merged) is (not is_new):
            del self._changed[merged]
        else:
            self._changed[merged] = is_new


def _headings(wanted: Filter) -> list[_Heading]:
    every = frozenset(wanted.constraints.items())
    return [(name, every - {(name, values)}) for name, values in wanted.constraints.items()]


def excess(one: Filter, other: Filter) -> float:
    """The share of the merger of two filters that neither wants; 1.0 if it cannot be told."""
    merged, perfect = one.merge(other)
    if perfect:
        return 0.0
    whole, mine, theirs = share(merged), share(one), share(other)
    if whole is None or mine is None or theirs is None or whole == 0.0:
        return 1.0
    both = share(one.intersect(other)) or 0.0
    return 1.0 - (mine + theirs - both) / whole


def share(wanted: Filter) -> float | None:
    """How much of the event space a filter covers, as a fraction; ``None`` if that has no measure."""
    if wanted.empty:
        return 0.0
    if wanted.schema is None:
        return None
    total = 1.0
    for name, values in wanted.constraints.items():
        part = _part(wanted.schema[name], values)
        if part is None:
            return None
        total *= part
    return total


def _part(attribute: Attribute, values: ValueSet) -> float | None:
    if attribute.type == "bool":
        return 0.5
    if attribute.type == "str":
        if attribute.values is None:
            return None
        return sum(v in values for v in attribute.values) / len(attribute.values)
    lo, hi = attribute.lo or 0, attribute.hi or 0
    # Whole numbers have one cut before each; the last one ends a step later.
    step = 1 if attribute.type == "int" else 0
    size = hi - lo + step
    if not size:
        return 1.0
    covered = 0.0
    for start, stop in values.stretches():
        first = start[1] if len(start) > 1 and start[0] == NUMBER else lo
        last = min(stop[1], hi + step) if len(stop) > 1 and stop[0] == NUMBER else hi + step
        covered += max(0, last - first)
    return covered / size
