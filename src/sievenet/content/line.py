"""Lines: the values of an attribute as whole numbers in the same order.

Every attribute but free text has a line: its values are numbered, one by one, by 64-bit *keys*.

    int       the number itself               … 41  42  43 …
    float     the float's key (`number`)      neighbouring floats have neighbouring keys
    bool      false 0, true 1
    enum      the position among the sorted values

A key stands for exactly one value and nothing lies between two neighbours, so a set of values is a few closed
intervals of keys, and whatever compares integers exactly is exact about values: huge whole numbers, open ends,
neighbouring floats.  Matcher, index, pipeline and routers all take their numbers from here.

Free text has no such numbering (between two strings there are always others); those who need one rank the strings
they have (`matcher.lines`) or hash them (`index.axis`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.content.number import float_at, float_key, float_keys
from sievenet.content.valueset import BOOL, Value, ValueSet

if TYPE_CHECKING:
    from sievenet.content.batch import Column
    from sievenet.content.schema import Attribute

__all__ = ["Keys", "Line", "line_of"]

Keys = npt.NDArray[np.int64]

_MAX: Final = (1 << 63) - 1
_TWO_DOUBLES: Final = struct.Struct("=2d")
_TWO_LONGS: Final = struct.Struct("=2q")


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """The keys of one attribute's values."""

    #: The keys of the least and the greatest value.
    first: int
    last: int
    #: The key of a value of the attribute, and the value of a key.
    key: Callable[[Any], int]
    value: Callable[[int], Value]
    #: First and last key of every stretch of a set in the attribute's canonical form, flat and ascending.
    pairs: Callable[[ValueSet], list[int]]
    #: Whether keys are those of floats.
    real: bool = False

    def keys(self, column: Column) -> Keys:
        """The keys of a column of values."""
        if self.real:
            return float_keys(column)  # type: ignore[arg-type]
        return np.asarray(getattr(column, "codes", column), np.int64)

    def hull(self, values: ValueSet) -> tuple[int, int]:
        """The first and the last key of a set that is not empty."""
        pairs = self.pairs(values)
        return pairs[0], pairs[-1]


def line_of(attribute: Attribute) -> Line | None:
    """The line of an attribute, ``None`` for free text; kept as `Attribute.line`."""
    if attribute.type == "bool":
        return Line(0, 1, int, bool, _bool_pairs)
    if attribute.type == "str":
        members = attribute.values
        if members is None:
            return None
        return Line(0, len(members) - 1, attribute.ordinals.__getitem__, members.__getitem__, _listed_pairs(members))
    assert attribute.lo is not None
    assert attribute.hi is not None
    if attribute.type == "int":
        return Line(int(attribute.lo), int(attribute.hi), int, int, _whole_pairs)
    return Line(float_key(attribute.lo), float_key(attribute.hi), float_key, float_at, _real_pairs, real=True)


def _whole_pairs(values: ValueSet) -> list[int]:
    cuts = values.cuts
    if len(cuts) == 2:
        return [cuts[0][1], cuts[1][1] - 1]
    return [cut[1] - (i & 1) for i, cut in enumerate(cuts)]


def _real_pairs(values: ValueSet) -> list[int]:
    cuts = values.cuts
    if len(cuts) == 2:
        first, behind = _TWO_LONGS.unpack(_TWO_DOUBLES.pack(cuts[0][1], cuts[1][1]))
        return [first if first >= 0 else -(first & _MAX), (behind if behind >= 0 else -(behind & _MAX)) - 1]
    bits = struct.unpack(f"={len(cuts)}q", struct.pack(f"={len(cuts)}d", *[cut[1] for cut in cuts]))
    return [(b if b >= 0 else -(b & _MAX)) - (i & 1) for i, b in enumerate(bits)]


def _bool_pairs(values: ValueSet) -> list[int]:
    first, last = values.cuts
    return [len(first) - 1, 0 if last[0] == BOOL else 1]


def _listed_pairs(members: tuple[str, ...]) -> Callable[[ValueSet], list[int]]:
    # A canonical set begins at a member and ends right behind one: its cut is (STRING, member + "\0").
    first: dict[str | None, int] = {member: i for i, member in enumerate(members)}
    first[None] = 0
    last = {member + "\0": i for i, member in enumerate(members)}

    def pairs(values: ValueSet) -> list[int]:
        cuts = iter(values.cuts)
        keys: list[int] = []
        for entering, leaving in zip(cuts, cuts, strict=True):
            keys += (first[entering[1] if len(entering) > 1 else None], last[leaving[1]])
        return keys

    return pairs
