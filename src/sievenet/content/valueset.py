"""A constraint is a set of values.

All values lie on one ordered line, and a set of them is a union of disjoint
stretches of that line, written as the sorted tuple of its *cuts*: positions
between values at which membership changes.

    absent │ bools      │ numbers                      │ strings in code-point order
           │ false true │ … -1  0  1  1.5  2  …        │ ""  "A"  "A\\0" … "AA" … "B" …
          (1,)         (2,)                           (3,)                          (4,)

    {2 <= x < 5}     from 2 up to 5                     ((2, 2), (2, 5))
    {2 < x <= 5}     from behind 2 up to behind 5       ((2, 2.0000000000000004), (2, 5.000000000000001))
    {"AB"}           from "AB" up to its successor      ((3, "AB"), (3, "AB\\0"))
    prefix "AB"      up to the first string behind      ((3, "AB"), (3, "AC"))
    exists           everything but absent              ((1,), (4,))

A cut is a tuple ``(kind, value)``, the position just before that value; the bare
``(kind,)`` sorts before everything of that kind.  Every value has a next one: a string
itself and a zero character, a number the next float or whole number (see `number`).
So between two adjacent values there is exactly one cut, "greater than 2" is "from the
next number on", and equal sets have equal cuts: the form is canonical, equality and
hash are the tuple's own.  Numbers are sets of what computers can say, not of reals:
``0 < x < 5e-324`` is empty, ``x <= 2`` or ``x > 2`` is every number.

A domain may have fewer values than the line: integers (`ValueSet.rounded`), floats
(`ValueSet.floated`), an enumeration (`ValueSet.among`).  There a cut moves to the
domain's next value, and cuts that meet vanish.

Because intervals, string sets, complements, prefixes and booleans are all the same
thing, union, intersection, complement, covering and overlap are each one sweep over
the cuts, exact, and linear in their number.  ``absent`` is a value like others: it
makes schemaless filters ("the attribute must exist") part of the same algebra.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from sievenet.content.number import next_float, next_number
from sievenet.errors import FilterError

__all__ = [
    "ABSENT",
    "ALL",
    "BOOLS",
    "EMPTY",
    "MAX_STRING",
    "NUMBERS",
    "PRESENT",
    "STRINGS",
    "Cut",
    "Value",
    "ValueSet",
    "after",
    "before",
    "behind_prefix",
    "point",
]

Value = bool | int | float | str
#: ``(kind,)``, ``(NUMBER, value)``, ``(BOOL, 1)`` or ``(STRING, value)``.
Cut = tuple[Any, ...]

_ABSENT: Final = 0
BOOL: Final = 1
NUMBER: Final = 2
STRING: Final = 3
_END: Final = 4

#: Longest string value, in UTF-8 bytes.
MAX_STRING: Final = 4096

_KINDS: Final = {bool: BOOL, int: NUMBER, float: NUMBER, str: STRING}
_LAST_CHARACTER: Final = "\U0010ffff"


def before(value: Value) -> Cut:
    """The cut just before a value."""
    kind = type(value)
    if kind is float or kind is int:
        return (NUMBER, _finite(value))  # type: ignore[arg-type]
    if isinstance(value, bool):
        return (BOOL, 1) if value else (BOOL,)
    if isinstance(value, str):
        return (STRING, _encodable(value)) if value else (STRING,)
    return (NUMBER, _finite(value))


def after(value: Value) -> Cut:
    """The cut just after a value."""
    kind = type(value)
    if kind is float or kind is int:
        return (NUMBER, next_number(_finite(value)))  # type: ignore[arg-type]
    if isinstance(value, bool):
        return (NUMBER,) if value else (BOOL, 1)
    if isinstance(value, str):
        return (STRING, _encodable(value) + "\0")
    return (NUMBER, next_number(_finite(value)))


def point(value: Value | None) -> Cut:
    """The position of a value itself (of an absent one for ``None``), comparable with cuts."""
    if value is None:
        return (_ABSENT, 0)
    if isinstance(value, bool):
        return (BOOL, int(value))
    if isinstance(value, str):
        return (STRING, value)
    return (NUMBER, value)


def kind_of(value: Value) -> int:
    """The kind of a value: `BOOL`, `NUMBER` or `STRING`."""
    found = _KINDS.get(type(value))
    return before(value)[0] if found is None else found


def _finite(value: float) -> float:
    try:
        if math.isfinite(value):
            return value or 0  # also for -0.0
    except OverflowError:  # a whole number beyond every float
        raise FilterError(expected="a number below 2**1024", got=f"`{value.bit_length()} bits`") from None  # type: ignore[attr-defined]
    except TypeError:
        raise FilterError(expected="a bool, number or string", got=value) from None
    raise FilterError(expected="a finite number", got=value)


def _encodable(text: str) -> str:
    if not text.isascii():
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            raise FilterError(expected="text that UTF-8 can encode", got=text) from None
    else:
        size = len(text)
    if size > MAX_STRING:
        raise FilterError(expected=f"at most {MAX_STRING} bytes of text", got=f"`{size} bytes`")
    return text


def behind_prefix(prefix: str) -> Cut:
    """The cut behind every string that starts with ``prefix``."""
    stem = prefix.rstrip(_LAST_CHARACTER)
    if not stem:
        return (_END,)
    successor = ord(stem[-1]) + 1
    if 0xD800 <= successor <= 0xDFFF:  # surrogates are not characters; none can occur in between
        successor = 0xE000
    return (STRING, stem[:-1] + chr(successor))


@dataclass(frozen=True, slots=True, init=False)
class ValueSet:
    """A set of values: an even number of strictly ascending cuts, entering and leaving in turn."""

    cuts: tuple[Cut, ...]

    def __init__(self, cuts: tuple[Cut, ...]) -> None:
        _set_cuts(self, cuts)  # sets are made by the million: the slot itself, past `frozen`

    def __eq__(self, other: object) -> bool:
        return self.cuts == other.cuts if isinstance(other, ValueSet) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.cuts)

    # -- building ---------------------------------------------------------------------------

    @staticmethod
    def of(*values: Value) -> ValueSet:
        """Exactly these values."""
        return _united([(before(v), after(v)) for v in values])

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
        kind = kind_of(known)
        if hi is not None and kind_of(hi) != kind:
            raise FilterError(expected="two ends of one type", got=(lo, hi))
        start: Cut = (kind,) if lo is None else (after(lo) if open_lo else before(lo))
        stop: Cut = (kind + 1,) if hi is None else (before(hi) if open_hi else after(hi))
        return ValueSet((start, stop)) if start < stop else EMPTY

    @staticmethod
    def prefix(text: str) -> ValueSet:
        """Every string that starts with ``text``."""
        return ValueSet((before(text), behind_prefix(text)))

    @staticmethod
    def union_of(sets: Iterable[ValueSet]) -> ValueSet:
        """The union of many sets, in one sort and one sweep."""
        pools = [each.cuts for each in sets if each.cuts]
        if len(pools) < 2:
            return ValueSet(pools[0]) if pools else EMPTY
        stretches: list[tuple[Cut, Cut]] = []
        for pool in pools:
            stretches += zip(pool[::2], pool[1::2], strict=True)
        return _united(stretches)

    @staticmethod
    def of_cuts(cuts: Iterable[Cut]) -> ValueSet:
        """The set of cuts that were stored, also by version 0.1: there a number's cut had a side, 1 for behind it."""
        return _moved(ValueSet(tuple(cuts)), _without_side)

    # -- asking -----------------------------------------------------------------------------

    def __bool__(self) -> bool:
        return bool(self.cuts)

    def __contains__(self, value: Value | None) -> bool:
        return bool(bisect_right(self.cuts, point(value)) & 1)

    def stretches(self) -> Iterator[tuple[Cut, Cut]]:
        """The disjoint stretches as (entering, leaving) cuts."""
        return zip(self.cuts[::2], self.cuts[1::2], strict=True)

    def covers(self, other: ValueSet) -> bool:
        """Whether every value of ``other`` is in this set."""
        mine, theirs = self.cuts, other.cuts
        if len(mine) == 2 and theirs:  # one stretch: only the outer ends matter
            return mine[0] <= theirs[0] and theirs[-1] <= mine[1]
        for start, stop in zip(theirs[::2], theirs[1::2], strict=True):
            i = bisect_right(mine, start)
            if not i & 1 or mine[i] < stop:
                return False
        return True

    def overlaps(self, other: ValueSet) -> bool:
        """Whether some value is in both."""
        mine, theirs = self.cuts, other.cuts
        if len(mine) == 2 and len(theirs) == 2:
            return mine[0] < theirs[1] and theirs[0] < mine[1]
        if len(mine) < len(theirs):
            mine, theirs = theirs, mine
        for start, stop in zip(theirs[::2], theirs[1::2], strict=True):
            i = bisect_right(mine, start)
            if i & 1 or (i < len(mine) and mine[i] < stop):
                return True
        return False

    # -- combining --------------------------------------------------------------------------

    def __or__(self, other: ValueSet) -> ValueSet:
        a, b = self.cuts, other.cuts
        if len(a) == 2 and len(b) == 2:
            if b < a:
                a, b = b, a
            return ValueSet((*a, *b) if a[1] < b[0] else (a[0], max(a[1], b[1])))
        return ValueSet.union_of((self, other))

    def __and__(self, other: ValueSet) -> ValueSet:
        a, b = self.cuts, other.cuts
        if len(a) == 2 and len(b) == 2:
            start, stop = max(a[0], b[0]), min(a[1], b[1])
            return ValueSet((start, stop)) if start < stop else EMPTY
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
        first, last = ALL.cuts
        cuts = cuts[1:] if cuts and cuts[0] == first else (first, *cuts)
        return ValueSet(cuts[:-1] if cuts and cuts[-1] == last else (*cuts, last))

    def __sub__(self, other: ValueSet) -> ValueSet:
        return self & ~other

    # -- canonical forms for a domain ---------------------------------------------------------

    def rounded(self) -> ValueSet:
        """The same integers: number cuts moved to the one cut between neighbouring integers."""
        if len(self.cuts) == 2:
            start, stop = map(_integer_cut, self.cuts)
            return ValueSet((start, stop)) if start < stop else EMPTY
        return _moved(self, _integer_cut)

    def floated(self) -> ValueSet:
        """The same floats: number cuts moved to the next float, infinity behind the last."""
        if len(self.cuts) == 2:
            start, stop = map(_float_cut, self.cuts)
            return ValueSet((start, stop)) if start < stop else EMPTY
        return _moved(self, _float_cut)

    def among(self, members: tuple[str, ...]) -> ValueSet:
        """The same members of a sorted enumeration: each run of members becomes one stretch."""
        cuts: list[Cut] = []
        last = -1
        for start, stop in self.stretches():
            first, behind = _place(members, start), _place(members, stop)
            if first == behind:
                continue
            leaving = (STRING, members[behind - 1] + "\0")
            if first == last:
                cuts[-1] = leaving
            else:
                text = members[first]
                cuts += ((STRING, text) if text else (STRING,), leaving)
            last = behind
        return ValueSet(tuple(cuts))


def _place(members: tuple[str, ...], cut: Cut) -> int:
    """How many members of a sorted enumeration lie before a cut."""
    if cut[0] != STRING:
        return 0 if cut[0] < STRING else len(members)
    return bisect_left(members, cut[1]) if len(cut) > 1 else 0


def _united(stretches: list[tuple[Cut, Cut]]) -> ValueSet:
    """The union of stretches that are not empty, in any order (which changes)."""
    stretches.sort()
    cuts: list[Cut] = []
    leaving: Cut = ()
    for start, stop in stretches:
        if start > leaving:
            cuts += (start, stop)
            leaving = stop
        elif stop > leaving:
            cuts[-1] = leaving = stop
    return ValueSet(tuple(cuts))


def _moved(values: ValueSet, move: Callable[[Cut], Cut]) -> ValueSet:
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
    if cut[0] != NUMBER or len(cut) == 1 or type(cut[1]) is int:
        return cut
    return (NUMBER, math.ceil(cut[1]))


def _float_cut(cut: Cut) -> Cut:
    if cut[0] != NUMBER or len(cut) == 1 or type(cut[1]) is float:
        return cut
    return (NUMBER, next_float(cut[1]))


def _without_side(cut: Cut) -> Cut:
    if len(cut) < 3:
        return cut
    return after(cut[1]) if cut[2] else before(cut[1])


_set_cuts: Final = vars(ValueSet)["cuts"].__set__

EMPTY: Final = ValueSet(())
ALL: Final = ValueSet(((_ABSENT,), (_END,)))
ABSENT: Final = ValueSet(((_ABSENT,), (BOOL,)))
PRESENT: Final = ValueSet(((BOOL,), (_END,)))
BOOLS: Final = ValueSet(((BOOL,), (NUMBER,)))
NUMBERS: Final = ValueSet(((NUMBER,), (STRING,)))
STRINGS: Final = ValueSet(((STRING,), (_END,)))
