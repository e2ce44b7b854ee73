"""DzSet: unions of dz in canonical form.

The one form: no member covers another, and two siblings never stay apart but become
their parent.  Equivalently the members are the *largest* dz inside the union, so equal
unions are equal values.

A dz is an interval of the numbers of 128 bits, and the members in order are disjoint
ascending intervals.  Union, intersection and difference are sweeps over those; turning
intervals back into dz is the usual cutting into aligned blocks.  Everything is linear
in the members (of both sides) times the bits in the worst case.

    {00, 010} ∪ {011}   intervals  [0,¼) [¼,⅜) [⅜,½)  →  [0,½)   →   {0}
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sievenet.index.code import CODE_BITS
from sievenet.index.dz import Dz

if TYPE_CHECKING:
    from sievenet.index.cellset import CellSet
    from sievenet.index.codes import Codes

__all__ = ["DzSet"]

_Spans = list[tuple[int, int]]


@dataclass(frozen=True, slots=True, init=False)
class DzSet:
    """A union of dz: a sorted antichain in which no two siblings remain."""

    members: tuple[Dz, ...]

    def __init__(self, members: Iterable[Dz] = ()) -> None:
        stack: list[Dz] = []
        for dz in sorted(members):
            if stack and stack[-1].covers(dz):
                continue
            while stack and dz.length and stack[-1].length == dz.length and stack[-1].bits ^ 1 == dz.bits:
                stack.pop()
                dz = dz.parent
            stack.append(dz)
        object.__setattr__(self, "members", tuple(stack))

    @staticmethod
    def parse(text: str) -> DzSet:
        """From dz separated by spaces or commas; ``-`` stands for the whole space."""
        return DzSet(Dz.parse("" if t == "-" else t) for t in text.replace(",", " ").split())

    @classmethod
    def _canonical(cls, members: Iterable[Dz]) -> DzSet:
        new = object.__new__(cls)
        object.__setattr__(new, "members", tuple(members))
        return new

    def __iter__(self) -> Iterator[Dz]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)

    def __str__(self) -> str:
        return "{" + ", ".join(str(m) or "-" for m in self.members) + "}"

    def __repr__(self) -> str:
        return f"DzSet({self})"

    # -- asking -----------------------------------------------------------------------------

    def __contains__(self, dz: Dz) -> bool:
        """Whether the union covers a dz."""
        i = bisect_right(self.members, dz) - 1
        return i >= 0 and self.members[i].covers(dz)

    def covers(self, other: Dz | DzSet) -> bool:
        """Whether everything of ``other`` is in this union.

        Members are the largest dz inside the union, so a dz inside lies in one member.
        """
        return all(dz in self for dz in _members(other))

    def overlaps(self, other: Dz | DzSet) -> bool:
        """Whether the two have anything in common."""
        mine = self.members
        for dz in _members(other):
            i = bisect_right(mine, dz)
            if (i and mine[i - 1].covers(dz)) or (i < len(mine) and dz.covers(mine[i])):
                return True
        return False

    def measure(self, width: int = CODE_BITS) -> int:
        """The number of codes of ``width`` bits in the union."""
        return sum(1 << (width - m.length) for m in self.members)

    def volume(self) -> float:
        """The share of the whole space."""
        return self.measure() / (1 << CODE_BITS)

    def matches(self, codes: Codes) -> npt.NDArray[np.bool_]:
        """For each code whether the union holds it."""
        return codes.inside(self.words())

    def words(self) -> npt.NDArray[np.uint64]:
        """One row per member: value high, low, mask high, low, left-aligned in 128 bits."""
        rows = [m.cell(CODE_BITS).words() for m in self.members]
        return np.array(rows, np.uint64).reshape(len(rows), 4)

    # -- combining --------------------------------------------------------------------------

    def union(self, other: Dz | DzSet) -> DzSet:
        """What is in either."""
        return DzSet((*self.members, *_members(other)))

    def intersect(self, other: Dz | DzSet) -> DzSet:
        """What is in both: of each overlapping pair the longer one."""
        mine, theirs = self.members, _members(other)
        found: list[Dz] = []
        i = j = 0
        while i < len(mine) and j < len(theirs):
            a, b = mine[i], theirs[j]
            if a.covers(b):
                found.append(b)
                j += 1
            elif b.covers(a):
                found.append(a)
                i += 1
            elif a < b:
                i += 1
            else:
                j += 1
        return DzSet(found)

    def minus(self, other: Dz | DzSet) -> DzSet:
        """What is in this and not in ``other``."""
        rest: _Spans = []
        holes = [m.interval(CODE_BITS) for m in _members(other)]
        j = 0
        for lo, hi in (m.interval(CODE_BITS) for m in self.members):
            while j < len(holes) and holes[j][1] <= lo:
                j += 1
            k = j
            while lo < hi and k < len(holes) and holes[k][0] < hi:
                if lo < holes[k][0]:
                    rest.append((lo, holes[k][0]))
                lo = max(lo, holes[k][1])
                k += 1
            if lo < hi:
                rest.append((lo, hi))
        return DzSet(dz for span in rest for dz in blocks(*span))

    def __or__(self, other: DzSet) -> DzSet:
        return self.union(other)

    def __and__(self, other: DzSet) -> DzSet:
        return self.intersect(other)

    def __sub__(self, other: DzSet) -> DzSet:
        return self.minus(other)

    # -- other forms --------------------------------------------------------------------------

    def cells(self, width: int) -> CellSet:
        """The same union as cells."""
        from sievenet.index.cellset import CellSet

        return CellSet((m.cell(width) for m in self.members), width)


def blocks(lo: int, hi: int, width: int = CODE_BITS) -> Iterator[Dz]:
    """The interval ``[lo, hi)`` of numbers of ``width`` bits as the fewest dz, ascending."""
    while lo < hi:
        size = min((lo & -lo) if lo else 1 << width, 1 << ((hi - lo).bit_length() - 1))
        length = width - size.bit_length() + 1
        yield Dz(lo >> (width - length), length)
        lo += size


def _members(other: Any) -> tuple[Dz, ...]:
    return (other,) if isinstance(other, Dz) else other.members
