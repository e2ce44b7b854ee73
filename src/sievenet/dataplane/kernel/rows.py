"""Short tables that change as a whole: the rows of special flows, and the masks of cells.

A program goes through such a table from its beginning, so that nothing may move meanwhile.  A change writes another
version of the table aside, and then the word that says which version is in force (`state`; 0: there is nothing).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sievenet.dataplane.kernel import bpf
from sievenet.dataplane.kernel.entry import Row
from sievenet.dataplane.kernel.pool import Pool

__all__ = ["MASK_SIZE", "ROWS", "ROW_SIZE", "VERSIONS", "SpecialRows", "Versions"]

#: Rows of a table, its versions, and bytes of a row of each kind.
ROWS: Final = 32
VERSIONS: Final = 64
ROW_SIZE: Final = 32
MASK_SIZE: Final = 24


class Versions:
    """One table; `at` is the place of its word in `state`."""

    def __init__(self, table: bpf.Map, state: NDArray[Any], at: int) -> None:
        self._table = table.view(np.dtype((np.void, table.value_size)))
        self._size = table.value_size
        self._state, self._at = state, at
        self._pool = Pool(1, table.rows)
        if state[at]:
            self._pool.keep([int(state[at])])

    def show(self, rows: Sequence[bytes]) -> None:
        """These are the rows from now on."""
        before, version = int(self._state[self._at]), 0
        if rows:
            version = self._pool.take()
            self._table[version] = b"".join(rows).ljust(self._size, b"\0")
            bpf.fence()
        self._state[self._at] = version
        if before:
            self._pool.give(before)

    def read(self) -> list[bytes]:
        """The rows in force, and empty ones after them."""
        if not self._state[self._at]:
            return []
        whole = self._table[self._state[self._at]].tobytes()
        return [whole[at : at + self._size // ROWS] for at in range(0, self._size, self._size // ROWS)]


class SpecialRows:
    """The rows of special flows, in order of precedence; each has a number that no other ever had."""

    def __init__(self, versions: Versions) -> None:
        self._versions = versions
        self._order: list[Row] = []
        #: Number and flows of each.
        self._rows: dict[Row, list[int]] = {}
        for data in versions.read():
            row, number = Row.decode(data)
            if number:
                self._order.append(row)
                self._rows[row] = [number, 0]
        self._next = max((number for number, _ in self._rows.values()), default=0) + 1

    def __contains__(self, row: Row) -> bool:
        return row in self._rows

    def __len__(self) -> int:
        return len(self._order)

    def by_number(self) -> dict[int, Row]:
        """All of them."""
        return {number: row for row, (number, _) in self._rows.items()}

    def enter(self, row: Row) -> int:
        """The number of a row, which is there from now on, for one more flow."""
        known = self._rows.get(row)
        if known is None:
            known = self._rows[row] = [self._next, 0]
            self._next += 1
            self._order.insert(bisect_left(self._order, _last_first(row), key=_last_first), row)
            self._show()
        known[1] += 1
        return known[0]

    def leave(self, row: Row) -> None:
        """One flow less."""
        self._rows[row][1] -= 1
        if not self._rows[row][1]:
            self._order.remove(row)
            del self._rows[row]
            self._show()

    def tidy(self) -> None:
        """Rows without flows go: an earlier process had them."""
        for row in [row for row, (_, flows) in self._rows.items() if not flows]:
            self._order.remove(row)
            del self._rows[row]
        self._show()

    def _show(self) -> None:
        self._versions.show([row.encode(self._rows[row][0]) for row in self._order])


def _last_first(row: Row) -> tuple[int, ...]:
    """For ascending order of what is tried first."""
    return tuple(-int(value) for value in row)
