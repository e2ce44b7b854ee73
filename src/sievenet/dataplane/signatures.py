"""Signatures: classes of codes where flows have masks.

Under masks no interval of codes fares alike, but codes that are in the same cells do: the *signature* of a code is the
list of all cells, of all tables of a category, that hold it (found by `Bitmaps`).

    cells      0: 1***    1: **0*    2: 10*1
    code 1001  is in 0, 1, 2         walks, and decisions of switches, are remembered by (0, 1, 2)
    code 1101  is in 0, 1            … by (0, 1)

A flow in a cell that no flow was in before changes the signatures of the codes there, so nothing remembered is wrong.
A change in a cell that is known concerns the walks whose signature names it, no others (`users`).  Cells of flows that
are gone make classes finer than necessary, never wrong; `sweep_at` says when to start again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from sievenet.dataplane.classes import FEW_BOUNDARIES
from sievenet.dataplane.classifier import cell_key
from sievenet.index.bitmaps import Bitmaps
from sievenet.index.code import Words

if TYPE_CHECKING:
    from sievenet.dataplane.walks import Port

__all__ = ["Signatures"]

#: Codes whose signature is remembered.
_RECENT: Final = 1 << 16


class Signatures:
    """The cells of a category, and the classes of codes that they make."""

    masked: Final = True

    def __init__(self, category: int) -> None:
        #: The number of every cell.
        self.known: dict[tuple[int, int], int] = {}
        #: Whose walks depend on a cell, by its number.
        self.users: dict[int, set[tuple[Port, bytes]]] = {}
        self.sweep_at = FEW_BOUNDARIES
        self._cells: list[bytes] = []
        self._index = Bitmaps("covers", codes=True)
        self._recent: dict[int, bytes] = {}
        self._head = category.to_bytes(2, "big")

    def note(self, value: int, mask: int) -> set[tuple[Port, bytes]]:
        """A flow in this cell has come, changed or gone; the walks that may be wrong now."""
        number = self.known.get((value, mask))
        if number is not None:
            return self.users.pop(number, set())
        self.known[value, mask] = self._index.put(value, mask)
        self._cells.append(cell_key(value, mask))
        self._recent.clear()
        return set()

    def key(self, code: int) -> bytes:
        """The signature of a code, behind its category."""
        key = self._recent.get(code)
        if key is None:
            if len(self._recent) >= _RECENT:
                self._recent.clear()
            key = self._recent[code] = self._head + self._index.holding(code).tobytes()
        return key

    def use(self, port: Port, key: bytes) -> None:
        """A port remembers the walk of a signature."""
        for number in np.frombuffer(key, np.int32, offset=2).tolist():
            self.users.setdefault(number, set()).add((port, key))

    def cells(self, key: bytes) -> list[bytes]:
        """The cells of a signature, as `Classifier.decide` wants them."""
        return [self._cells[number] for number in np.frombuffer(key, np.int32, offset=2).tolist()]

    def classes(self, hi: Words, lo: Words) -> tuple[Words, list[list[bytes]]]:
        """For arrays of codes the number of each one's class, and the cells of the classes that occur."""
        starts, numbers = self._index.holding_many(hi, lo)
        data, at = numbers.tobytes(), (4 * starts).tolist()
        known: dict[bytes, int] = {}
        found = [known.setdefault(data[at[i] : at[i + 1]], len(known)) for i in range(hi.size)]
        return np.array(found, np.uint64), [self.cells(self._head + key) for key in known]
