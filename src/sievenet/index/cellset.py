"""CellSet: unions of cells.

No member covers another, members are sorted.  Unlike with dz there is no unique
smallest set of cells for a union (that is the minimisation of two-level logic), so
equality is that of the members; `equivalent` compares what they hold.

Exact questions about unions are answered by subtraction: a union covers a cell if
nothing of the cell remains when every member is taken away; the size of a union is that
of its members made disjoint.  Subtraction of crossing cells makes pieces, so these can
cost much more than the same questions about dz; they serve tests, planning and the
control plane, never the path of an event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sievenet.errors import InvalidInput
from sievenet.index.cell import Cell
from sievenet.index.code import MAX_BITS

if TYPE_CHECKING:
    from sievenet.index.codes import Codes

__all__ = ["CellSet"]


@dataclass(frozen=True, slots=True, init=False)
class CellSet:
    """A union of cells of one width: sorted, no member covers another."""

    members: tuple[Cell, ...]
    width: int

    def __init__(self, members: Iterable[Cell] = (), width: int | None = None) -> None:
        every = sorted(set(members), key=_larger_first)
        if width is None:
            width = every[0].width if every else MAX_BITS
        kept: list[Cell] = []
        for cell in every:
            if cell.width != width:
                raise InvalidInput(expected=f"cells of {width} bits", got=cell.width, where="cell set")
            if not any(k.covers(cell) for k in kept):
                kept.append(cell)
        object.__setattr__(self, "members", tuple(sorted(kept)))
        object.__setattr__(self, "width", width)

    @classmethod
    def _canonical(cls, members: Iterable[Cell], width: int) -> CellSet:
        """From members none of which covers another."""
        new = object.__new__(cls)
        object.__setattr__(new, "members", tuple(sorted(members)))
        object.__setattr__(new, "width", width)
        return new

    @staticmethod
    def parse(text: str) -> CellSet:
        """From cells separated by spaces or commas."""
        return CellSet(Cell.parse(t) for t in text.replace(",", " ").split())

    def __iter__(self) -> Iterator[Cell]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)

    def __str__(self) -> str:
        return "{" + ", ".join(map(str, self.members)) + "}"

    def __repr__(self) -> str:
        return f"CellSet({self})"

    # -- asking -----------------------------------------------------------------------------

    def __contains__(self, cell: Cell) -> bool:
        """Whether the union covers a cell."""
        return not self._uncovered([cell])

    def covers(self, other: Cell | CellSet) -> bool:
        """Whether everything of ``other`` is in this union (exact)."""
        return all(cell in self for cell in _members(other))

    def overlaps(self, other: Cell | CellSet) -> bool:
        """Whether the two have anything in common."""
        return any(a.overlaps(b) for b in _members(other) for a in self.members)

    def equivalent(self, other: CellSet) -> bool:
        """Whether both hold the same codes."""
        return self.covers(other) and other.covers(self)

    def measure(self) -> int:
        """The number of codes in the union."""
        return sum(c.measure() for c in self.disjoint())

    def volume(self) -> float:
        """The share of the whole space."""
        return self.measure() / (1 << self.width)

    def matches(self, codes: Codes) -> npt.NDArray[np.bool_]:
        """For each code whether the union holds it."""
        return codes.inside(self.words())

    def words(self) -> npt.NDArray[np.uint64]:
        """One row per member: value high, low, mask high, low, left-aligned in 128 bits."""
        rows = [m.words() for m in self.members]
        return np.array(rows, np.uint64).reshape(len(rows), 4)

    # -- combining --------------------------------------------------------------------------

    def union(self, other: Cell | CellSet) -> CellSet:
        """What is in either."""
        return CellSet((*self.members, *_members(other)), self.width)

    def intersect(self, other: Cell | CellSet) -> CellSet:
        """What is in both."""
        pairs = (a.intersect(b) for a in self.members for b in _members(other))
        return CellSet((c for c in pairs if c is not None), self.width)

    def minus(self, other: Cell | CellSet) -> CellSet:
        """What is in this and not in ``other``."""
        rest = list(self.members)
        for hole in _members(other):
            rest = [piece for cell in rest for piece in cell.minus(hole)]
        return CellSet(rest, self.width)

    def __or__(self, other: CellSet) -> CellSet:
        return self.union(other)

    def __and__(self, other: CellSet) -> CellSet:
        return self.intersect(other)

    def __sub__(self, other: CellSet) -> CellSet:
        return self.minus(other)

    # -- other forms --------------------------------------------------------------------------

    def disjoint(self) -> list[Cell]:
        """The same union as cells that do not overlap, larger members left whole."""
        done: list[Cell] = []
        for cell in sorted(self.members, key=_larger_first):
            pieces = [cell]
            for other in done:
                pieces = [p for piece in pieces for p in piece.minus(other)]
            done += pieces
        return done

    def compact(self) -> CellSet:
        """The same union with twins merged: two members that differ in one bit become one."""
        members = set(self.members)
        again = True
        while again:
            again = False
            for cell in sorted(members, key=_larger_first, reverse=True):
                twin = next((t for t in _twins(cell) if t in members), None)
                if twin is not None and cell in members:
                    members -= {cell, twin}
                    members.add(cell.hull(twin))
                    again = True
        return CellSet(members, self.width)

    def _uncovered(self, rest: list[Cell]) -> list[Cell]:
        for mine in self.members:
            rest = [piece for cell in rest for piece in cell.minus(mine)]
            if not rest:
                break
        return rest


def _twins(cell: Cell) -> Iterator[Cell]:
    bits = cell.mask
    while bits:
        bit = bits & -bits
        yield Cell(cell.value ^ bit, cell.mask, cell.width)
        bits ^= bit


def _larger_first(cell: Cell) -> tuple[int, int, int]:
    return cell.mask.bit_count(), cell.value, cell.mask


def _members(other: Any) -> tuple[Cell, ...]:
    return (other,) if isinstance(other, Cell) else other.members
