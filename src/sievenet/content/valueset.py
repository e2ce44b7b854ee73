"""A constraint is a set of values.

All values lie on one ordered line, and a set of them is a union of disjoint
stretches of that line, written as the sorted tuple of its *cuts*: positions
between values at which membership changes.

    absent │ bools      │ numbers                      │ strings in code-point order
           │ false true │ … -1  0  1  1.5  2  …        │ ""  "A"  "A\\0" … "AA" … "B" …
          (1,)         (2,)                           (3,)                          (4,)

    {2 <= x < 5}     cuts before 2, before 5            ((2, 2, 0), (2, 5, 0))
    {2 < x <= 5}     cuts after 2, after 5              ((2, 2, 1), (2, 5, 1))
    {"AB"}           from "AB" up to its successor      ((3, "AB"), (3, "AB\\0"))
    prefix "AB"      up to the first string behind      ((3, "AB"), (3, "AC"))
    exists           everything but absent              ((1,), (4,))

A cut is a tuple whose first item is the kind; the bare ``(kind,)`` sorts before
everything of that kind.  Between two adjacent values there is exactly one cut,
so equal sets have equal cuts: the form is canonical, equality and hash are the
tuple's own.  (Reals have two cuts per number, before and after it, since between
two reals there is always another.  An integer attribute's domain rounds them to
the one cut between neighbours: `ValueSet.rounded`.)

Because intervals, string sets, complements, prefixes and booleans are all the same
thing, union, intersection, complement, covering and overlap are each one sweep over
the cuts, exact, and linear in their number.  ``absent`` is a value like others: it
makes schemaless filters ("the attribute must exist") part of the same algebra.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from sievenet.errors import FilterError

__all__ = [
    "ABSENT",
    "ALL",
    "BOOLS",
    "EMPTY",
    "NUMBERS",
    "PRESENT",
    "STRINGS",
    "Cut",
    "Value",
    "ValueSet",
    "after",
    "before",
    "point",
]

Value = bool | int | float | str
#: ``(kind,)``, ``(NUMBER, value, side)``, ``(BOOL, 1)`` or ``(STRING, value)``.
Cut = tuple[Any, ...]

_ABSENT: Final = 0
BOOL: Final = 1
NUMBER: Final = 2
STRING: Final = 3
_END: Final = 4

_LAST_CHARACTER: Final = "\U0010ffff"


def before(value: Value) -> Cut:
    """The cut just before a value."""
    if isinstance(value, bool):
        return (BOOL, 1) if value else (BOOL,)
    if isinstance(value, str):
        return (STRING, value) if value else (STRING,)
    return (NUMBER, _finite(value), 0)


def after(value: Value) -> Cut:
    """The cut just after a value."""
    if isinstance(value, bool):
        return (NUMBER,) if value else (BOOL, 1)
    if isinstance(value, str):
        return (STRING, value + "\0")
    return (NUMBER, _finite(value), 1)


def point(value: Value | None) -> Cut:
    """The position of a value itself (of an absent one for ``None``), comparable with cuts."""
    if value is None:
        return (_ABSENT, 0)
    if isinstance(value, bool):
        return (BOOL, int(value))
    if isinstance(value, str):
        return (STRING, value)
    return (NUMBER, value, 0)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise FilterError(expected="a finite number", got=value)
    return value


def _behind_prefix(prefix: str) -> Cut:
    """The cut behind every string that starts with ``prefix``."""
    stem = prefix.rstrip(_LAST_CHARACTER)
    if not stem:
        return (_END,)
    successor = ord(stem[-1]) + 1
    if 0xD800 <= successor <= 0xDFFF:  # surrogates are not characters; none can occur in between
        successor = 0xE000
    return (STRING, stem[:-1] + chr(successor))


@dataclass(frozen=True, slots=True)
class ValueSet:
    """A set of values: an even number of strictly ascending cuts, entering and leaving in turn."""

    cuts: tuple[Cut, ...]

    # -- building ---------------------------------------------------------------------------

    @staticmethod
    def of(*values: Value) -> ValueSet:
        """Exactly these values."""
        return ValueSet.union_of(ValueSet((before(v), after(v))) for v in values)

    @staticmethod
    def interval(
        lo: Value | None,
        hi: Value | None,
        *,
        open_lo: bool = False,
        open_hi: bool = False,
    ) -> ValueSet:
        """From ``lo`` to ``hi``; ``None`` on a side leaves it unbounded within the other's kind."""
        known = lo if lo is not None else hi
        if known is None:
            raise FilterError("An interval needs at least one end")
        start: Cut = _kind_cut(known) if lo is None else (after(lo) if open_lo else before(lo))
        stop: Cut = (
            (_kind_cut(known)[0] + 1,) if hi is None else (before(hi) if open_hi else after(hi))
        )
        if start[0] != before(known)[0] or (hi is not None and _kind_cut(hi) != _kind_cut(known)):
            raise FilterError(expected="two ends of one type", got=(lo, hi))
        return ValueSet((start, stop)) if start < stop else EMPTY

    @staticmethod
    def prefix(text: str) -> ValueSet:
        """Every string that starts with ``text``."""
        return ValueSet((before(text), _behind_prefix(text)))

    @staticmethod
    def union_of(sets: Iterable[ValueSet]) -> ValueSet:
        """The union of many sets, in one sort and one sweep."""
        stretches = sorted(pair for each in sets for pair in each.stretches())
        cuts: list[Cut] = []
        for start, stop in stretches:
            if cuts and start <= cuts[-1]:
                if stop > cuts[-1]:
                    cuts[-1] = stop
            else:
                cuts += (start, stop)
        return ValueSet(tuple(cuts))

    # -- asking -----------------------------------------------------------------------------

    def __bool__(self) -> bool:
        return bool(self.cuts)

    def __contains__(self, value: Value | None) -> bool:
        return bool(bisect_right(self.cuts, point(value)) & 1)

    def stretches(self) -> Iterator[tuple[Cut, Cut]]:
        """The disjoint stretches as (entering, leaving) cuts."""
        cuts = iter(self.cuts)
        return zip(cuts, cuts, strict=True)

    def covers(self, other: ValueSet) -> bool:
        """Whether every value of ``other`` is in this set."""
        mine = self.cuts
        for start, stop in other.stretches():
            i = bisect_right(mine, start)
            if not i & 1 or mine[i] < stop:
                return False
        return True

    def overlaps(self, other: ValueSet) -> bool:
        """Whether some value is in both."""
        if len(self.cuts) < len(other.cuts):
            self, other = other, self
        mine = self.cuts
        for start, stop in other.stretches():
            i = bisect_right(mine, start)
            if i & 1 or (i < len(mine) and mine[i] < stop):
                return True
        return False

    # -- combining --------------------------------------------------------------------------

    def __or__(self, other: ValueSet) -> ValueSet:
        return ValueSet.union_of((self, other))

    def __and__(self, other: ValueSet) -> ValueSet:
        a, b = self.cuts, other.cuts
        cuts: list[Cut] = []
        i = j = 0
        while i < len(a) and j < len(b):
            start, stop = max(a[i], b[j]), min(a[i + 1], b[j + 1])
            if start < stop:
                cuts += (start, stop)
            if a[i + 1] <= b[j + 1]:
                i += 2
            else:
                j += 2
        return ValueSet(tuple(cuts))

    def __invert__(self) -> ValueSet:
        cuts = self.cuts
        head = cuts[1:] if cuts and cuts[0] == ALL.cuts[0] else (ALL.cuts[0], *cuts)
        return ValueSet(head[:-1] if head[-1] == ALL.cuts[1] else (*head, ALL.cuts[1]))

    def __sub__(self, other: ValueSet) -> ValueSet:
        return self & ~other

    # -- canonical forms for a domain ---------------------------------------------------------

    def rounded(self) -> ValueSet:
        """The same integers: number cuts moved to the one cut between neighbouring integers."""
        return _moved(self, _integer_cut)

    def floated(self) -> ValueSet:
        """The same floats: integers that no float can represent replaced by their neighbours."""
        return _moved(self, _float_cut)

    def among(self, members: tuple[str, ...]) -> ValueSet:
        """The same members of a sorted enumeration: each run of members becomes one stretch."""
        cuts: list[Cut] = []
        keys = [point(m) for m in members]
        for start, stop in self.stretches():
            first, behind = bisect_left(keys, start), bisect_left(keys, stop)
            if first == behind:
                continue
            entering, leaving = before(members[first]), after(members[behind - 1])
            if cuts and cuts[-1] == after(members[first - 1]):
                cuts[-1] = leaving
            else:
                cuts += (entering, leaving)
        return ValueSet(tuple(cuts))


def _kind_cut(value: Value) -> Cut:
    return (before(value)[0],)


def _moved(values: ValueSet, move: Any) -> ValueSet:
    """Every cut mapped by a monotone function; stretches that become empty or adjacent vanish."""
    cuts: list[Cut] = []
    for cut in values.cuts:
        there = move(cut)
        if cuts and cuts[-1] == there:
            cuts.pop()
        else:
            cuts.append(there)
    return ValueSet(tuple(cuts))


def _integer_cut(cut: Cut) -> Cut:
    if cut[0] != NUMBER or len(cut) == 1:
        return cut
    _, value, side = cut
    return (NUMBER, math.floor(value) + 1 if side else math.ceil(value), 0)


def _float_cut(cut: Cut) -> Cut:
    if cut[0] != NUMBER or len(cut) == 1 or isinstance(cut[1], float):
        return cut
    _, value, side = cut
    near = float(value)
    if near == value:
        return (NUMBER, near, side)
    return (NUMBER, near, 0 if near > value else 1)


EMPTY: Final = ValueSet(())
ALL: Final = ValueSet(((_ABSENT,), (_END,)))
ABSENT: Final = ValueSet(((_ABSENT,), (BOOL,)))
PRESENT: Final = ValueSet(((BOOL,), (_END,)))
BOOLS: Final = ValueSet(((BOOL,), (NUMBER,)))
NUMBERS: Final = ValueSet(((NUMBER,), (STRING,)))
STRINGS: Final = ValueSet(((STRING,), (_END,)))
