"""Flow tables compiled for batches.

With prefixes only, a table is a set of nested intervals.  Flattened, it is a sorted list of
*boundaries*, between which every code meets the same decision:

    flows      ├──────── 1 → 2 ────────┤
                    ├─ 10 → 2,3 ─┤
    boundaries 0    ▲    ▲       ▲          code ⇒ the last boundary at or before it ⇒ decision
    decision   none      2,3     2

One binary search finds it, whatever the number of flows that overlap there.  Compiling is one
sort and one sweep with a stack; priorities need not follow the nesting, because each stack
level remembers the decision of everything open below it.

Cells under arbitrary masks are no intervals.  A table that has any is searched group by group
(equal priority and mask: mask the codes, find the values), from the highest precedence down.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sievenet.dataplane.classifier import Entry
from sievenet.index import CODE_BITS
from sievenet.index.code import word_arrays

__all__ = ["Compiled", "Intervals", "Masks", "compile_classes", "compile_entries"]

_END = 1 << CODE_BITS

Decision = tuple[Entry, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """A compiled table of prefixes: boundaries and the decision from each to the next."""

    starts_hi: npt.NDArray[np.uint64]
    starts_lo: npt.NDArray[np.uint64]
    decision: npt.NDArray[np.int64]
    decisions: list[Decision]

    def find(self, hi: npt.NDArray[np.uint64], lo: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """For each code the number of its decision."""
        from sievenet.dataplane.kernels import locate  # loads numba

        found: npt.NDArray[np.int64] = self.decision[locate(hi, lo, self.starts_hi, self.starts_lo)]
        return found


@dataclass(frozen=True, slots=True, eq=False)
class _MaskGroup:
    table: int
    mask_hi: np.uint64
    mask_lo: np.uint64
    hi: npt.NDArray[np.uint64]
    lo: npt.NDArray[np.uint64]
    entry: npt.NDArray[np.int64]


@dataclass(slots=True, eq=False)
class Masks:
    """A compiled table with arbitrary masks; decisions are found as they occur."""

    entries: list[Entry]
    groups: list[_MaskGroup]
    tables: list[int]
    decisions: list[Decision]
    known: dict[tuple[int, ...], int]

    def find(self, hi: npt.NDArray[np.uint64], lo: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """For each code the number of its decision."""
        from sievenet.dataplane.kernels import locate

        columns = {table: np.full(hi.size, -1, np.int64) for table in self.tables}
        for group in self.groups:
            column = columns[group.table]
            open_rows = np.flatnonzero(column < 0)
            if not open_rows.size:
                continue
            masked_hi, masked_lo = hi[open_rows] & group.mask_hi, lo[open_rows] & group.mask_lo
            at = locate(masked_hi, masked_lo, group.hi, group.lo)
            hit = (group.hi[at] == masked_hi) & (group.lo[at] == masked_lo)
            column[open_rows[hit]] = group.entry[at[hit]]
        if not columns:
            return np.zeros(hi.size, np.int64)
        rows, which = np.unique(np.stack([columns[t] for t in self.tables], axis=1), axis=0, return_inverse=True)
        numbers = np.array([self._number(tuple(row)) for row in rows.tolist()], np.int64)
        return numbers[which.reshape(-1)]

    def _number(self, row: tuple[int, ...]) -> int:
        number = self.known.get(row)
        if number is None:
            number = self.known[row] = len(self.decisions)
            self.decisions.append(tuple(self.entries[i] for i in row if i >= 0))
        return number


Compiled = Intervals | Masks


def compile_entries(entries: Iterable[Entry], in_port: int | None) -> Compiled:
    """The entries of one category as they concern packets from one port (None: from any; then none may ask)."""
    chosen = [e for e in entries if e.flow.in_port is None or e.flow.in_port == in_port]
    if all(e.flow.match.is_prefix for e in chosen):
        return _intervals(chosen)
    return _masks(chosen)


def compile_classes(decisions: list[Decision]) -> Intervals:
    """A table for codes 0, 1, 2, …: the decision of each."""
    numbers: dict[Decision, int] = {(): 0}
    chosen = np.array([numbers.setdefault(decision, len(numbers)) for decision in decisions] or [0], np.int64)
    starts = np.arange(chosen.size, dtype=np.uint64)
    return Intervals(np.zeros(chosen.size, np.uint64), starts, chosen, list(numbers))


def _intervals(entries: list[Entry]) -> Intervals:
    numbers: dict[Decision, int] = {(): 0}
    decisions: list[Decision] = [()]
    starts, chosen = [0], [0]

    def mark(start: int, decision: Decision) -> None:
        number = numbers.get(decision)
        if number is None:
            number = numbers[decision] = len(decisions)
            decisions.append(decision)
        if starts[-1] == start:
            chosen[-1] = number
        elif chosen[-1] != number:
            starts.append(start)
            chosen.append(number)

    #: (end, decision of everything open here), innermost last.
    open_spans: list[tuple[int, Decision]] = [(_END, ())]
    for entry in sorted(entries, key=lambda e: (e.start, -e.end)):
        start = entry.start
        while open_spans[-1][0] <= start:
            end, _ = open_spans.pop()
            mark(end, open_spans[-1][1])
        decision = _with(open_spans[-1][1], entry)
        open_spans.append((entry.end, decision))
        mark(start, decision)
    while len(open_spans) > 1:
        end, _ = open_spans.pop()
        if end < _END:
            mark(end, open_spans[-1][1])
    hi, lo = word_arrays(starts)
    return Intervals(hi, lo, np.array(chosen, np.int64), decisions)


def _with(decision: Decision, entry: Entry) -> Decision:
    """A decision once another entry matches as well: per table, the one that takes precedence."""
    table = entry.flow.table
    for i, other in enumerate(decision):
        if other.flow.table == table:
            if other.precedence > entry.precedence:
                return decision
            return (*decision[:i], entry, *decision[i + 1 :])
    return tuple(sorted((*decision, entry), key=lambda e: e.flow.table)) if decision else (entry,)


def _masks(entries: list[Entry]) -> Masks:
    grouped: dict[tuple[int, ...], list[int]] = {}
    for i, entry in enumerate(entries):
        grouped.setdefault((entry.flow.table, *(-int(part) for part in entry.precedence)), []).append(i)
    groups = []
    for key in sorted(grouped):
        members = sorted(grouped[key], key=lambda i: entries[i].start)
        (mask_hi,), (mask_lo,) = word_arrays([entries[members[0]].flow.match.bits[1]])
        hi, lo = word_arrays(entries[i].start for i in members)
        groups.append(_MaskGroup(key[0], mask_hi, mask_lo, hi, lo, np.array(members, np.int64)))
    return Masks(entries, groups, sorted({e.flow.table for e in entries}), [()], {})
