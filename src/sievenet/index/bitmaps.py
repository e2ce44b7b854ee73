"""Bitmaps: which of very many cells hold a code, or cover, lie in, or meet another cell.

Cells cross, so no tree finds them.  Cut into groups of four bits, a cell is a word over 81 letters (each bit is 0, 1 or
``*``).  For every place and every letter that may be asked for there is a bitmap, one bit per cell: whether the cell
goes with that letter at that place.  A question is then one *and* over all places:

    cells        place 0   place 1        asked: 1011 0110
    0  1*** ****   ✓         ✓            bitmap of 1011 at place 0      1 1 0
    1  10** 0***   ✓         ✓            bitmap of 0110 at place 1      1 1 1
    2  0*** ****   -         ✓            both                           1 1 0   → cells 0 and 1 hold the code

Nothing is approximate, nothing depends on how cells lie to each other, and nothing has to be compiled after a change:
to add a cell is to write its bit into the bitmaps of each place.

Cost, for n cells of b bits: a question reads at most b/4 · n/64 words: about 4 microseconds for 10,000 cells and 15 for
100,000, calling it from Python included (cells of 25 bits, in five dimensions).  A change writes 81 · b/4 bits per
relation (16 if only codes are asked for), and that is the memory per cell: 100 bytes at 40 bits, or 20 for codes.

The idea is Lakshman and Stiliadis' (bit vectors per field of a packet), with groups of bits for fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from sievenet.index.code import CODE_BITS, Words

__all__ = ["Bitmaps", "Relation"]

Relation = Literal["covers", "inside", "meets"]

_Ints = npt.NDArray[np.int32]
_BYTES: Final = CODE_BITS // 8
_PLACES: Final = CODE_BITS // 4
_WHOLE: Final = np.frombuffer(b"\xff" * _BYTES, np.uint8)
#: Words of a bitmap at first.
_FEW: Final = 4


def _letters() -> tuple[npt.NDArray[np.int64], list[tuple[int, int]]]:
    """The number of the letter of each (mask, value) of four bits; letters without ``*`` are numbers 0 to 15."""
    numbers = np.full((16, 16), -1, np.int64)
    found: list[tuple[int, int]] = []
    for mask in range(15, -1, -1):
        for value in range(16):
            if not value & ~mask:
                numbers[mask, value] = len(found)
                found.append((value, mask))
    return numbers, found


_NUMBERS, _LETTERS = _letters()


def _related(relation: Relation, x: tuple[int, int], asked: tuple[int, int]) -> bool:
    (v, m), (av, am) = x, asked
    if relation == "covers":
        return not m & ~am and av & m == v
    if relation == "inside":
        return not am & ~m and v & am == av
    return not (v ^ av) & m & am


class Bitmaps:
    """A set of cells, each with a number, and who of them goes with a code or cell; ``codes`` if only those are asked.

    >>> cells = Bitmaps("covers", codes=True)
    >>> top = 1 << 127
    >>> cells.put(top, top), cells.put(0, 0), cells.put(0, top)
    (0, 1, 2)
    >>> cells.holding(top).tolist()
    [0, 1]
    """

    def __init__(self, *relations: Relation, codes: bool = False) -> None:
        self._relations: Final = {relation: i for i, relation in enumerate(relations)}
        asked = _LETTERS[:16] if codes else _LETTERS
        self._table: Final = np.array(
            [[[_related(relation, x, a) for a in asked] for x in _LETTERS] for relation in relations], np.bool_
        )
        #: By number; None for a free one.
        self._cells: list[tuple[int, int] | None] = []
        self._free: list[int] = []
        self._places = 1
        self._bits: npt.NDArray[np.uint64] = self._room(_FEW)
        self._out: _Ints = np.empty(64 * _FEW, np.int32)

    def _room(self, words: int) -> npt.NDArray[np.uint64]:
        return np.zeros((len(self._relations), self._places, self._table.shape[2], words), np.uint64)

    def __len__(self) -> int:
        return len(self._cells) - len(self._free)

    # -- changing ------------------------------------------------------------------------------

    def put(self, value: int, mask: int) -> int:
        """Add a cell (left-aligned in `CODE_BITS`); its number."""
        number = self._free.pop() if self._free else len(self._cells)
        if number == len(self._cells):
            self._cells.append(None)
        self._cells[number] = value, mask
        places = _PLACES - ((mask & -mask).bit_length() - 1) // 4 if mask else 1
        words = self._bits.shape[3]
        if number >= 64 * words:
            larger = self._room(2 * words)
            larger[:, :, :, :words] = self._bits
            self._bits, self._out = larger, np.empty(128 * words, np.int32)
        if places > self._places:
            self._places = places
            self._bits = self._room(self._bits.shape[3])
            for i, cell in enumerate(self._cells):
                if cell is not None:
                    self._write(i, *cell)
        else:
            self._write(number, value, mask)
        return number

    def _write(self, number: int, value: int, mask: int) -> None:
        from sievenet.index.bitmap_kernels import write  # loads numba

        write(self._bits, number, _bytes(value), _bytes(mask), _NUMBERS, self._table)

    def remove(self, number: int) -> None:
        """Take a cell away; its number may be given to another."""
        if self._cells[number] is None:
            raise KeyError(number)
        self._cells[number] = None
        self._free.append(number)
        self._bits[:, 0, :, number // 64] &= ~np.uint64(1 << number % 64)  # where one place is empty, nothing is found

    # -- asking --------------------------------------------------------------------------------

    def holding(self, code: int) -> _Ints:
        """The numbers of the cells that hold a code, ascending; valid until the next question."""
        return self._find("covers", _bytes(code), _WHOLE)

    def holders(self) -> tuple[npt.NDArray[np.uint64], int, _Ints]:
        """What compiled code needs to find the cells that hold a code (`holding`): bitmaps, words of each, and room."""
        return self._bits[self._relations["covers"]], (len(self._cells) + 63) // 64, self._out

    def holding_many(self, hi: Words, lo: Words) -> tuple[npt.NDArray[np.int64], _Ints]:
        """The same for arrays of codes: where each one's numbers begin (and the last ones end), and the numbers."""
        from sievenet.index.bitmap_kernels import find_many

        kernel: Any = find_many
        starts, parts, at = [np.zeros(1, np.int64)], [np.zeros(0, np.int32)], 0
        total, words = 0, (len(self._cells) + 63) // 64
        room = max(4 * len(self._cells), 1 << 16)
        while at < hi.size:
            out, ends = np.empty(room, np.int32), np.empty(hi.size - at, np.int64)
            done, count = kernel(self._bits[self._relations["covers"]], words, hi[at:], lo[at:], out, ends)
            starts.append(ends[:done] + total)
            parts.append(out[:count].copy())
            at += done
            total += count
        return np.concatenate(starts), np.concatenate(parts)

    def related(self, relation: Relation, value: int, mask: int) -> list[int]:
        """The numbers of the cells that cover a cell, lie inside it or meet it, itself among them."""
        found: list[int] = self._find(relation, _bytes(value), _bytes(mask)).tolist()
        return found

    def _find(self, relation: Relation, value: npt.NDArray[np.uint8], mask: npt.NDArray[np.uint8]) -> _Ints:
        from sievenet.index.bitmap_kernels import find

        kernel: Any = find
        half, odd = divmod(self._places, 2)
        if relation == "inside" and (mask[half + odd :].any() or (odd and mask[half] & 15)):
            return self._out[:0]  # no cell here checks those bits
        words = (len(self._cells) + 63) // 64
        bits = self._bits[self._relations[relation]]
        return self._out[: kernel(bits, words, value, mask, _NUMBERS, self._out)]

    def cells(self) -> Iterable[tuple[int, int]]:
        """All cells, as (value, mask)."""
        return [cell for cell in self._cells if cell is not None]


def _bytes(code: int) -> npt.NDArray[np.uint8]:
    return np.frombuffer(code.to_bytes(_BYTES, "big"), np.uint8)
