"""Cells: a value under an arbitrary mask.

A switch compares a field under any mask, not only a prefix.  A cell is such an entry:
the bits of ``mask`` must equal those of ``value``, the others do not matter.  Written
with ``*`` for the bits that do not matter:

    value 1000, mask 1010   is   1*0*        holds 1000 1001 1100 1101

A dz is a cell whose mask is contiguous from the left.  Cells need not be nested, two
can cross, so the algebra is a little richer:

    covers      every bit I check, the other checks too, with the same value
    overlaps    no bit that both check has different values
    intersect   check what either checks
    minus       one disjoint piece per bit that the other checks and I do not

    1*** - *01*  =  1 1**  +  1 00*            peel one bit after the other

Everything costs a few operations on integers; `minus` at most as many pieces as bits.

    >>> [str(rest) for rest in Cell.parse("1***").minus(Cell.parse("*01*"))]
    ['11**', '100*']
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import total_ordering

from sievenet.errors import InvalidInput
from sievenet.index.code import CODE_BITS, split
from sievenet.index.dz import Dz

__all__ = ["Cell"]


@total_ordering
@dataclass(frozen=True, slots=True)
class Cell:
    """The codes of ``width`` bits that equal ``value`` in the bits of ``mask``."""

    value: int
    mask: int
    width: int

    def __post_init__(self) -> None:
        if not 0 <= self.width <= CODE_BITS:
            raise InvalidInput(expected=f"a width of 0 to {CODE_BITS} bits", got=self.width, where="cell")
        if not 0 <= self.mask < 1 << self.width:
            raise InvalidInput(expected=f"a mask of {self.width} bits", got=self.mask, where="cell")
        if self.value & ~self.mask:
            raise InvalidInput(expected="no value bits outside the mask", got=self.value, where="cell")

    @staticmethod
    def parse(text: str) -> Cell:
        """From zeros, ones and stars."""
        if len(text) > CODE_BITS or text.strip("01*"):
            raise InvalidInput(expected=f"up to {CODE_BITS} characters 0, 1 or *", got=text, where="cell")
        value = int("0" + text.replace("*", "0"), 2)
        return Cell(value, int("0" + text.replace("0", "1").replace("*", "0"), 2), len(text))

    def __str__(self) -> str:
        places = range(self.width - 1, -1, -1)
        return "".join(str(self.value >> i & 1) if self.mask >> i & 1 else "*" for i in places)

    def __repr__(self) -> str:
        return f"Cell({str(self)!r})"

    def __lt__(self, other: Cell) -> bool:
        if not isinstance(other, Cell):
            return NotImplemented
        return (self.width, self.value, self.mask) < (other.width, other.value, other.mask)

    # -- asking -----------------------------------------------------------------------------

    def covers(self, other: Cell) -> bool:
        """Whether every code of ``other`` is one of this cell's."""
        self._check(other)
        return not self.mask & ~other.mask and other.value & self.mask == self.value

    def overlaps(self, other: Cell) -> bool:
        """Whether some code is in both."""
        self._check(other)
        return not (self.value ^ other.value) & self.mask & other.mask

    def __contains__(self, code: int) -> bool:
        return code & self.mask == self.value

    @property
    def checked(self) -> int:
        """How many bits the mask checks."""
        return self.mask.bit_count()

    def measure(self) -> int:
        """The number of codes in the cell."""
        return 1 << (self.width - self.mask.bit_count())

    def volume(self) -> float:
        """The share of the whole space."""
        return 2.0 ** -self.mask.bit_count()

    # -- combining --------------------------------------------------------------------------

    def intersect(self, other: Cell) -> Cell | None:
        """The common part, or ``None`` if there is none."""
        if not self.overlaps(other):
            return None
        return Cell(self.value | other.value, self.mask | other.mask, self.width)

    def minus(self, other: Cell) -> tuple[Cell, ...]:
        """What remains without ``other``, as disjoint cells."""
        if not self.overlaps(other):
            return (self,)
        rest: list[Cell] = []
        value, mask = self.value, self.mask
        extra = other.mask & ~self.mask
        while extra:
            bit = 1 << (extra.bit_length() - 1)
            rest.append(Cell(value | (~other.value & bit), mask | bit, self.width))
            value, mask, extra = value | (other.value & bit), mask | bit, extra ^ bit
        return tuple(rest)

    def hull(self, other: Cell) -> Cell:
        """The smallest cell that covers both."""
        self._check(other)
        mask = self.mask & other.mask & ~(self.value ^ other.value)
        return Cell(self.value & mask, mask, self.width)

    def _check(self, other: Cell) -> None:
        if self.width != other.width:
            raise InvalidInput(expected=f"a cell of {self.width} bits", got=other.width, where="cell")

    # -- other forms --------------------------------------------------------------------------

    @property
    def is_dz(self) -> bool:
        """Whether the mask is contiguous from the left, so that the cell is a dz."""
        free = self.mask ^ ((1 << self.width) - 1)
        return not free & (free + 1)

    @property
    def dz(self) -> Dz:
        """The cell as a dz; an error if the mask has holes."""
        if not self.is_dz:
            raise InvalidInput(expected="a cell with a contiguous mask", got=str(self))
        return self.enclosing_dz

    @property
    def enclosing_dz(self) -> Dz:
        """The smallest dz that covers the cell: its bits up to the first star."""
        free = self.mask ^ ((1 << self.width) - 1)
        length = self.width - free.bit_length()
        return Dz(self.value >> (self.width - length), length)

    @property
    def masked(self) -> tuple[int, int]:
        """``(value, mask)`` left-aligned in `CODE_BITS` bits: a code lies in the cell iff ``code & mask == value``."""
        shift = CODE_BITS - self.width
        return self.value << shift, self.mask << shift

    @property
    def key(self) -> int:
        """The cell as one number, larger than any key of a dz."""
        return (1 << 8 | self.width) << 2 * CODE_BITS | self.mask << CODE_BITS | self.value

    @staticmethod
    def of_key(key: int) -> Dz | Cell:
        """The cell, or the dz, with this key."""
        if key >> 2 * CODE_BITS:
            low = (1 << CODE_BITS) - 1
            return Cell(key & low, key >> CODE_BITS & low, key >> 2 * CODE_BITS & 0xFF)
        return Dz.of_key(key)

    def words(self) -> tuple[int, int, int, int]:
        """The same as 64-bit words: value high, low, mask high, low."""
        value, mask = self.masked
        return *split(value), *split(mask)
