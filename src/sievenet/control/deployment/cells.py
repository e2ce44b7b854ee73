"""Cells that fit: the tables per out port that a switch holds of one lane, as its ideal tables change.

With a table per out port (`registrations.per_port`) an entry speaks for its port alone.  So a port's table may be any
set of cells that together hold all that its ideal cells hold.  The deployed table is a function of those and of merges,
which are cells too:

    ideal ──▶ each cell, or the smallest merge around it ──▶ without what changes nothing

- A **merge** of two cells is the smallest cell around both: the bits in which both are fixed and agree.

      1*0*  and  110*  →  1*0*          10**  and  0*1*  →  ****

- **Nothing changes** by leaving out a cell inside another, or by making one of two that differ in a single fixed bit.

Merges at once (LA) look at pairs within a port: the one that adds least space (LA-C), or that with the new cell in it
(LA-B).  When room returns, the largest merge is parted by one bit, the one that leaves the smallest two.

A port needs one entry at least, so a switch needs as many as there are ports in use.

Cost: a change costs O(n) for the n cells of its port, and one more look at its pairs, O(n²) simple operations in NumPy,
if the table is too large afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Bits", "CellDeployment", "Entry", "around", "inside", "reduced"]

#: A cell: value and mask, in a field of `CODE_BITS`.
Bits: TypeAlias = tuple[int, int]
#: A port and a cell.
Entry: TypeAlias = tuple[int, int, int]

_LOW: Final = (1 << 64) - 1
#: Merges that are tried in vain before the rest is left alone.
_TRIES: Final = 4


def inside(a: Bits, b: Bits) -> bool:
    """Whether cell a lies in b."""
    return not b[1] & ~a[1] and a[0] & b[1] == b[0]


def around(cells: Iterable[Bits]) -> Bits:
    """The smallest cell around some."""
    each = iter(cells)
    value, mask = next(each)
    for other, bits in each:
        mask &= bits & ~(value ^ other)
        value &= mask
    return value, mask


def reduced(cells: Iterable[Bits]) -> set[Bits]:
    """Cells that hold the same, without those inside others, and halves made one."""
    found = set(cells)
    fresh = list(found)
    while fresh:
        value, mask = cell = fresh.pop()
        if cell not in found:
            continue
        left = mask
        while left:
            bit = left & -left
            left ^= bit
            if (value ^ bit, mask) in found:
                found -= {cell, (value ^ bit, mask)}
                whole = (value & ~bit, mask & ~bit)
                found.add(whole)
                fresh.append(whole)
                break
    kept: list[Bits] = []
    for cell in sorted(found, key=lambda each: (each[1].bit_count(), each)):
        if not any(inside(cell, other) for other in kept):
            kept.append(cell)
    return set(kept)


class _Port:
    """The table of one out port."""

    def __init__(self) -> None:
        self.ideal: set[Bits] = set()
        self.merges: set[Bits] = set()
        self.table: set[Bits] = set()
        self._best: tuple[float, Bits, Bits] | None = None

    def owner(self, cell: Bits) -> Bits:
        """The smallest merge around a cell, or itself."""
        found = [each for each in self.merges if inside(cell, each)]
        return max(found, key=lambda each: (each[1].bit_count(), each), default=cell)

    def update(self) -> None:
        """Follow the ideal cells and merges; merges around nothing are forgotten."""
        owners = {self.owner(cell) for cell in self.ideal}
        self.merges &= owners
        self.table = reduced(owners)
        self._best = None

    def merge(self, cell: Bits) -> None:
        """Make all one that lies in a cell."""
        self.merges = {each for each in self.merges if not inside(each, cell)} | {cell}
        self.update()

    def part(self, merge: Bits) -> None:
        """Undo a merge by one step: two smaller ones, by the bit that leaves least space."""
        mine = [cell for cell in self.ideal if self.owner(cell) == merge]
        fixed = 0
        for _, mask in mine:
            fixed |= mask
        fixed &= ~merge[1]
        best: tuple[float, list[list[Bits]]] | None = None
        while fixed:
            bit = fixed & -fixed
            fixed ^= bit
            groups = [
                [cell for cell in mine if (not cell[1] & bit, cell[0] & bit) == (False, 0)],
                [cell for cell in mine if (not cell[1] & bit, cell[0] & bit) != (False, 0)],
            ]
            if all(groups):
                cells = [around(group) for group in groups]
                size = sum(map(space, cells))
                if merge not in cells and (best is None or size < best[0]):
                    best = size, groups
        self.merges.discard(merge)  # without such a bit all at once
        if best is not None:
            self.merges |= {around(group) for group in best[1] if len(group) > 1}
        self.update()

    def cheapest(self, near: Iterable[Bits] = ()) -> tuple[float, Bits, Bits] | None:
        """The pair whose merge adds least space, of all or of those with one of some cells; None without a pair."""
        if len(self.table) < 2:
            return None
        if near:
            some = sorted(self.table & set(near)) or sorted(self.table)[:1]
            return min(_pair(a, b) for a in some for b in self.table if a != b)
        if self._best is None:
            self._best = _cheapest(sorted(self.table))
        return self._best


def space(cell: Bits) -> float:
    """The share of all content that lies in a cell."""
    return 2.0 ** -cell[1].bit_count()


def _pair(a: Bits, b: Bits) -> tuple[float, Bits, Bits]:
    return space(around((a, b))) - space(a) - space(b), a, b


def _words(numbers: list[int]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    return np.array([n >> 64 for n in numbers], np.uint64), np.array([n & _LOW for n in numbers], np.uint64)


def _cheapest(cells: list[Bits]) -> tuple[float, Bits, Bits]:
    if len(cells) < 12:
        return min(_pair(a, b) for i, a in enumerate(cells) for b in cells[:i])
    common: Any = 0
    for words in zip(_words([v for v, _ in cells]), _words([m for _, m in cells]), strict=True):
        value, mask = words
        common = common + np.bitwise_count(mask[:, None] & mask[None, :] & ~(value[:, None] ^ value[None, :])).astype(
            np.int64
        )
    mine = np.ldexp(1.0, -np.array([m.bit_count() for _, m in cells]))
    added = np.ldexp(1.0, -common) - mine[:, None] - mine[None, :]
    np.fill_diagonal(added, np.inf)
    a, b = np.unravel_index(int(np.argmin(added)), added.shape)
    return float(added[a, b]), cells[int(a)], cells[int(b)]


class CellDeployment:
    """One lane's tables on one switch."""

    def __init__(self, root: Bits, ideal: Iterable[Entry] = ()) -> None:
        #: A cell around all of the lane.
        self.root = root
        self._ports: dict[int, _Port] = {}
        self._stale: set[int] = set()
        #: What the switch was last told.
        self._told: set[Entry] = set()
        for entry in ideal:
            self.put(entry, True)
        self.taken()

    def __len__(self) -> int:
        self.update()
        return sum(len(port.table) for port in self._ports.values())

    @property
    def told(self) -> int:
        """Entries that the switch had when changes were last taken."""
        return len(self._told)

    @property
    def ideal(self) -> list[Entry]:
        """The entries that there should be."""
        return [(number, *cell) for number, port in self._ports.items() for cell in port.ideal]

    @property
    def merges(self) -> set[Entry]:
        """Ports and cells of merges."""
        return {(number, *cell) for number, port in self._ports.items() for cell in port.merges}

    @property
    def table(self) -> set[Entry]:
        """What the switch is given."""
        self.update()
        return {(number, *cell) for number, port in self._ports.items() for cell in port.table}

    @property
    def least(self) -> int:
        """The fewest entries that would do: one for each port."""
        self.update()
        return len(self._ports)

    @property
    def wide(self) -> bool:
        """Whether no smaller table would do: an entry for everything, for each port."""
        self.update()
        return all(port.table <= {self.root} for port in self._ports.values())

    # -- what goes in ------------------------------------------------------------------------

    def put(self, entry: Entry, there: bool) -> None:
        """An entry of the ideal table comes or goes."""
        number, *cell = entry
        port = self._ports.setdefault(number, _Port())
        (port.ideal.add if there else port.ideal.discard)((cell[0], cell[1]))
        self._stale.add(number)

    def update(self) -> None:
        """Bring tables up to date, after any number of `put`."""
        while self._stale:
            number = self._stale.pop()
            self._ports[number].update()
            if not self._ports[number].ideal:
                del self._ports[number]

    def taken(self) -> tuple[set[Entry], set[Entry]]:
        """What came and what went since the last time."""
        table = self.table
        came, went = table - self._told, self._told - table
        self._told = table
        return came, went

    # -- merging -----------------------------------------------------------------------------

    def merge(self, entry: Entry) -> None:
        """Make all one that lies in a cell of a port."""
        self.update()
        if entry[0] in self._ports:
            self._ports[entry[0]].merge(entry[1:])

    def remerge(self, merges: Iterable[Entry]) -> None:
        """Have these merges and no others."""
        self.update()
        chosen: dict[int, set[Bits]] = {}
        for number, value, mask in merges:
            chosen.setdefault(number, set()).add((value, mask))
        for number, port in self._ports.items():
            if port.merges != chosen.get(number, set()):
                port.merges = {each for each in chosen.get(number, ()) if inside(each, self.root)}
                port.update()

    def fit(self, limit: int, *, least: bool = True, near: Iterable[Entry] = ()) -> None:
        """Merge until so many entries are left, as far as it can be: where that adds least, or beside these."""
        self.update()
        if limit < len(self._ports):
            for port in self._ports.values():
                if not port.table <= {self.root}:
                    port.merge(self.root)
            return
        beside: dict[int, list[Bits]] = {}
        for number, value, mask in () if least else near:
            beside.setdefault(number, []).append((value, mask))
        while (size := len(self)) > limit:
            ports = [number for number in beside if number in self._ports and len(self._ports[number].table) > 1]
            found = [(pair, number) for number in ports or self._ports if (pair := self._cheapest(number, beside))]
            (_, a, b), number = min(found)
            self._ports[number].merge(around((a, b)))
            if len(self) >= size:  # it took nothing along
                self._ports[number].merge(around(self._ports[number].table))

    def _cheapest(self, number: int, beside: dict[int, list[Bits]]) -> tuple[float, Bits, Bits] | None:
        return self._ports[number].cheapest(beside.get(number, ()))

    def relax(self, limit: int) -> None:
        """Undo merges as far as there is room, the largest first."""
        tried: set[Entry] = set()
        while len(self) < limit and len(tried) < _TRIES and (left := self.merges - tried):
            entry = min(left, key=lambda each: (each[2].bit_count(), each))
            port = self._ports[entry[0]]
            before = port.merges.copy()
            port.part(entry[1:])
            if len(self) > limit or entry[1:] in port.merges:
                port.merges = before
                port.update()
                tried.add(entry)

    def cost(self) -> Iterator[tuple[Entry, int, float]]:
        """Entries with merges in them: how many each stands for, the share of what it sends too far, if all is even."""
        self.update()
        for number, port in sorted(self._ports.items()):
            for cell in sorted(port.table):
                mine = [each for each in port.ideal if inside(each, cell)]
                if any(inside(each, cell) for each in port.merges):
                    wanted = sum(space(each) for each in reduced(mine))  # what several hold counts twice
                    yield (number, *cell), len(mine), max(0.0, 1.0 - wanted / space(cell))
