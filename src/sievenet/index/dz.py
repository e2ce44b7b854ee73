"""dz: the subspaces that halving makes, as bit strings.

Halve the event space, then each half, and so on: every subspace that can appear is
named by the string of choices, ``0`` or ``1``, that led to it.

    ""  ─┬─ 0 ─┬─ 00          a shorter string is a larger subspace
         │     └─ 01          a covers b    iff  a is a prefix of b
         └─ 1 ─┬─ 10          a overlaps b  iff  one of them covers the other
               └─ 11

Of two dz either one holds the other or they are apart, which is what makes them fast:
a dz of length l is the interval ``[bits << (L-l), (bits+1) << (L-l))`` of the numbers
of L bits, so sets of dz are sorted intervals (`DzSet`) and whole flow tables compile to
sorted boundaries.  `Cell` is the general case, a value under any mask.

    >>> Dz.parse("10").covers(Dz.parse("1011"))
    True
    >>> [str(rest) for rest in Dz.parse("10").minus(Dz.parse("1011"))]
    ['100', '1010']
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import total_ordering
from typing import TYPE_CHECKING, Final

from sievenet.errors import InvalidInput
from sievenet.index.code import CODE_BITS, split

if TYPE_CHECKING:
    from sievenet.index.cell import Cell

__all__ = ["ROOT", "Dz"]


@total_ordering
@dataclass(frozen=True, slots=True)
class Dz:
    """A bit string: the low ``length`` bits of ``bits``, first bit highest.

    Ordered as strings are: a dz comes before everything it covers.
    """

    bits: int
    length: int

    def __post_init__(self) -> None:
        if not 0 <= self.length <= CODE_BITS:
            raise InvalidInput(expected=f"a dz of 0 to {CODE_BITS} bits", got=self.length)
        if not 0 <= self.bits < 1 << self.length:
            raise InvalidInput(expected=f"a number of {self.length} bits", got=self.bits, where="dz")

    @staticmethod
    def parse(text: str) -> Dz:
        """From zeros and ones; the empty string is the whole space."""
        if len(text) > CODE_BITS or text.strip("01"):
            raise InvalidInput(expected=f"up to {CODE_BITS} characters 0 or 1", got=text, where="dz")
        return Dz(int(text, 2) if text else 0, len(text))

    def __str__(self) -> str:
        return f"{self.bits:0{self.length}b}" if self.length else ""

    def __repr__(self) -> str:
        return f"Dz({str(self)!r})"

    def __len__(self) -> int:
        return self.length

    def __bool__(self) -> bool:
        return True  # the empty string is the whole space, not nothing

    def __lt__(self, other: Dz) -> bool:
        if not isinstance(other, Dz):
            return NotImplemented
        return (self.bits << (CODE_BITS - self.length), self.length) < (
            other.bits << (CODE_BITS - other.length),
            other.length,
        )

    @property
    def code(self) -> int:
        """The bits left-aligned in `CODE_BITS` bits, zeros behind: what packets carry."""
        return self.bits << (CODE_BITS - self.length)

    @property
    def masked(self) -> tuple[int, int]:
        """``(value, mask)`` in `CODE_BITS` bits: a code lies in the subspace iff ``code & mask == value``."""
        shift = CODE_BITS - self.length
        return self.bits << shift, ((1 << self.length) - 1) << shift

    # -- asking -----------------------------------------------------------------------------

    def covers(self, other: Dz) -> bool:
        """Whether ``other`` is this subspace or a part of it."""
        gap = other.length - self.length
        return gap >= 0 and other.bits >> gap == self.bits

    def overlaps(self, other: Dz) -> bool:
        """Whether the two share anything: one covers the other."""
        return self.covers(other) or other.covers(self)

    def interval(self, width: int) -> tuple[int, int]:
        """The numbers of ``width`` bits that begin with this string, as ``[lo, hi)``."""
        if width < self.length:
            raise InvalidInput(expected=f"a width of at least {self.length}", got=width, where="dz")
        shift = width - self.length
        return self.bits << shift, (self.bits + 1) << shift

    def volume(self) -> float:
        """The share of the whole space."""
        return 2.0**-self.length

    # -- combining --------------------------------------------------------------------------

    def intersect(self, other: Dz) -> Dz | None:
        """The common part: the longer of the two, or ``None`` if they are apart."""
        if self.covers(other):
            return other
        return self if other.covers(self) else None

    def minus(self, other: Dz) -> tuple[Dz, ...]:
        """What remains without ``other``: the siblings along the way down to it, sorted."""
        if other.covers(self):
            return ()
        if not self.covers(other):
            return (self,)
        rest = [
            Dz((other.bits >> (other.length - length)) ^ 1, length)
            for length in range(self.length + 1, other.length + 1)
        ]
        return tuple(sorted(rest))

    def common_prefix(self, other: Dz) -> Dz:
        """The smallest dz that covers both."""
        length = min(self.length, other.length)
        mine, theirs = self.bits >> (self.length - length), other.bits >> (other.length - length)
        differing = (mine ^ theirs).bit_length()
        return Dz(mine >> differing, length - differing)

    # -- moving in the tree -------------------------------------------------------------------

    @property
    def parent(self) -> Dz:
        """The dz that this is half of."""
        if not self.length:
            raise InvalidInput("The whole space has no parent", where="dz")
        return Dz(self.bits >> 1, self.length - 1)

    @property
    def sibling(self) -> Dz:
        """The other half of the parent."""
        if not self.length:
            raise InvalidInput("The whole space has no sibling", where="dz")
        return Dz(self.bits ^ 1, self.length)

    @property
    def children(self) -> tuple[Dz, Dz]:
        """The two halves."""
        return Dz(self.bits << 1, self.length + 1), Dz(self.bits << 1 | 1, self.length + 1)

    def append(self, other: Dz) -> Dz:
        """The string followed by another: a subspace of a subspace."""
        return Dz(self.bits << other.length | other.bits, self.length + other.length)

    def prefix(self, length: int) -> Dz:
        """The first ``length`` bits; the dz itself if it has no more."""
        return self if length >= self.length else Dz(self.bits >> (self.length - length), length)

    def prefixes(self) -> Iterator[Dz]:
        """Every dz that covers this one, from the whole space to itself."""
        return (self.prefix(length) for length in range(self.length + 1))

    # -- other forms --------------------------------------------------------------------------

    def cell(self, width: int) -> Cell:
        """The same subspace as a value under a mask."""
        from sievenet.index.cell import Cell

        lo, hi = self.interval(width)
        return Cell(lo, ((1 << width) - 1) ^ (hi - lo - 1), width)

    def words(self) -> tuple[int, int]:
        """The bits left-aligned in 128, as the high and the low 64-bit word."""
        return split(self.code)

    @property
    def key(self) -> int:
        """The dz as one number, its bits behind a leading one."""
        return 1 << self.length | self.bits

    @staticmethod
    def of_key(key: int) -> Dz:
        """The dz of a key."""
        length = key.bit_length() - 1
        return Dz(key ^ 1 << length, length)

    @staticmethod
    def of_keys(keys: Sequence[int]) -> list[Dz]:
        """The dz of many keys, each made in half the time, since they are checked together."""
        if keys and not 1 <= min(keys) <= max(keys) < 2 << CODE_BITS:
            raise InvalidInput(expected=f"keys of dz of 0 to {CODE_BITS} bits", got=f"{min(keys)} to {max(keys)}")
        made = []
        for key in keys:
            dz, length = _new(Dz), key.bit_length() - 1
            _set_bits(dz, key ^ 1 << length)
            _set_length(dz, length)
            made.append(dz)
        return made


# What `Dz(…)` would do if it were not frozen, and checked nothing.
_new: Final = Dz.__new__
_set_bits: Final = vars(Dz)["bits"].__set__
_set_length: Final = vars(Dz)["length"].__set__

#: The whole space.
ROOT: Final = Dz(0, 0)
