"""What arrives at a switch, through the filters on the way: recorded packets (FA-PB), or traffic spread evenly (FA-LB).

Both are asked in the same ways, per directed link of a tree:

    published(sources)    what sources put on the network
    passed(arrived, …)    what of that which arrived at a switch it sends on by a port
    at(arrived, points)   where it lies among merge points, by which port each came in, and how much it is
    codes(arrived)        the codes of packets, in the same order, if it is packets

Packets are numbers of a sample that is sorted by code.  Even traffic is a step function over codes: from each border to
the next the same amount per code.  Its borders are those of advertisements and of the tables on the way, so that it is
exact: the share of a space that gets so far, times the traffic of who publishes in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from sievenet.control.aggregation.points import Points, locate

__all__ = ["Arrivals", "Even", "Recorded", "Sample", "Source"]

_Words = npt.NDArray[np.uint64]
_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Flags = npt.NDArray[np.bool_]
#: Where things lie, the port each came in by (its row), how much each is.
Placed: TypeAlias = tuple[_Ints, _Ints, _Floats]

_SPACE = float(1 << 64)


class Source(NamedTuple):
    """A publisher: where it is, the dz that it advertises, and how much it publishes."""

    switch: str
    port: int
    keys: tuple[int, ...]
    traffic: float = 1.0


class Sample(NamedTuple):
    """Recorded packets in the order of their codes: the first 64 bits, the source's number, how many."""

    codes: _Words
    sources: _Ints
    #: None means one each.
    counts: _Floats | None = None


class Arrivals(Protocol):
    """One way of counting what arrives."""

    def published(self, sources: Sequence[int]) -> Any:
        """What these sources publish."""

    def settle(self, came: Mapping[int, Any], points: Points, decides: _Ints, rows: _Flags) -> Any:
        """What arrived at a switch by the ports (their rows), and what its table does with it."""

    def passed(self, settled: Any, row: int) -> Any:
        """What a switch sends on by a port."""

    def at(self, came: Mapping[int, Any], points: Points) -> Placed:
        """Where that which arrived lies."""

    def codes(self, came: Mapping[int, Any]) -> _Words | None:
        """The codes of packets that arrived, in the order of `at`; None where there are no single packets."""


class Recorded:
    """Packets of a sample."""

    def __init__(self, sample: Sample, count: int) -> None:
        self._sample = sample
        self._count = count
        self._counts = np.ones(sample.codes.size) if sample.counts is None else sample.counts

    def published(self, sources: Sequence[int]) -> Any:
        """The numbers of their packets."""
        mine = np.zeros(self._count, np.bool_)
        mine[list(sources)] = True
        return np.flatnonzero(mine[self._sample.sources])

    def _joined(self, came: Mapping[int, Any]) -> tuple[_Ints, _Ints]:
        parts = [(np.asarray(which), row) for row, which in came.items()]
        which = np.concatenate([part for part, _ in parts]) if parts else np.zeros(0, np.int64)
        rows = np.concatenate([np.full(part.size, row) for part, row in parts]) if parts else np.zeros(0, np.int64)
        order = np.argsort(which, kind="stable")
        return which[order], rows[order]

    def at(self, came: Mapping[int, Any], points: Points) -> Placed:
        """As many as each is."""
        which, rows = self._joined(came)
        where = locate(points.code, points.length, self._sample.codes[which])
        return where, rows, self._counts[which]

    def codes(self, came: Mapping[int, Any]) -> _Words | None:
        """Of each packet."""
        return self._sample.codes[self._joined(came)[0]]

    def settle(self, came: Mapping[int, Any], points: Points, decides: _Ints, rows: _Flags) -> Any:
        """The packets, their ports, and the rows of ports that decide about them."""
        which, by = self._joined(came)
        where = locate(points.code, points.length, self._sample.codes[which])
        decided = np.where(where >= 0, decides[where], -1) if len(points) else np.full(which.size, -1)
        return which, by, decided, rows

    def passed(self, settled: Any, row: int) -> Any:
        """Those of which the table says so, and that did not come in there."""
        which, by, decided, rows = settled
        go = (decided >= 0) & (by != row)
        go[go] = rows[decided[go], row]
        return which[go]


class _Steps(NamedTuple):
    """A function that is constant from each border to the next."""

    borders: _Words
    values: _Floats


class Even:
    """Traffic that is spread evenly over what its source advertises."""

    def __init__(self, sources: Sequence[Source]) -> None:
        groups: dict[tuple[int, ...], float] = {}
        self._of: list[tuple[tuple[int, ...], float]] = []
        for source in sources:
            keys = tuple(sorted(source.keys))
            groups.setdefault(keys, 0.0)
            self._of.append((keys, source.traffic))
        self._spread = {keys: _evenly(keys) for keys in groups}

    def published(self, sources: Sequence[int]) -> Any:
        """The sum of theirs."""
        amount: dict[tuple[int, ...], float] = {}
        for number in sources:
            keys, traffic = self._of[number]
            amount[keys] = amount.get(keys, 0.0) + traffic
        return _sum([(self._spread[keys], traffic) for keys, traffic in amount.items()])

    def at(self, came: Mapping[int, Any], points: Points) -> Placed:
        """The pieces between borders, of the functions and of the points."""
        wheres, rows, weights = [], [], []
        edges = _edges(points)
        for row, steps in came.items():
            assert isinstance(steps, _Steps)
            borders = np.union1d(steps.borders, edges)
            values = _values(steps, borders)
            some = values > 0
            wheres.append(locate(points.code, points.length, borders[some]))
            weights.append((values * _widths(borders))[some])
            rows.append(np.full(int(some.sum()), row))
        if not wheres:
            return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
        return np.concatenate(wheres), np.concatenate(rows), np.concatenate(weights)

    def codes(self, _came: Mapping[int, Any]) -> _Words | None:
        """There are none."""
        return None

    def settle(self, came: Mapping[int, Any], points: Points, decides: _Ints, rows: _Flags) -> Any:
        """The functions by port, and the table's decisions between its borders."""
        edges = _edges(points)
        where = locate(points.code, points.length, edges)
        decided = np.where(where >= 0, decides[where], -1) if len(points) else np.full(edges.size, -1)
        return came, edges, decided, rows

    def passed(self, settled: Any, row: int) -> Any:
        """The sum of what came by other ports, where the table sends it on."""
        came, edges, decided, rows = settled
        total = _sum([(steps, 1.0) for other, steps in came.items() if other != row])
        sent = np.zeros(edges.size)
        some = decided >= 0
        sent[some] = rows[decided[some], row]
        borders = np.union1d(total.borders, edges)
        values = _values(total, borders) * _values(_Steps(edges, sent), borders)
        keep = np.ones(borders.size, np.bool_)
        keep[1:] = values[1:] != values[:-1]
        return _Steps(borders[keep], values[keep])


def _edges(points: Points) -> _Words:
    """Where points begin and end, in order."""
    ends = points.code + np.where(
        points.length > 0, np.uint64(1) << (64 - np.maximum(points.length, 1)).astype(np.uint64), 0
    )
    return np.unique(np.concatenate([np.zeros(1, np.uint64), points.code, ends.astype(np.uint64)]))


def _widths(borders: _Words) -> _Floats:
    widths = np.empty(borders.size)
    widths[:-1] = (borders[1:] - borders[:-1]).astype(np.float64)
    widths[-1] = _SPACE - float(borders[-1])
    return widths


def _values(steps: _Steps, borders: _Words) -> _Floats:
    found: _Floats = steps.values[np.searchsorted(steps.borders, borders, side="right") - 1]
    return found


def _sum(parts: Iterable[tuple[_Steps, float]]) -> _Steps:
    some = list(parts)
    borders = np.zeros(1, np.uint64)
    for steps, _ in some:
        borders = np.union1d(borders, steps.borders)
    values = np.zeros(borders.size)
    for steps, factor in some:
        values += factor * _values(steps, borders)
    return _Steps(borders, values)


def _evenly(keys: Sequence[int]) -> _Steps:
    """One unit over some dz."""
    spans = []
    for key in keys:
        length = key.bit_length() - 1
        first = (key ^ 1 << length) << 64 >> length if length <= 64 else (key ^ 1 << length) >> (length - 64)
        spans.append((first, first + max(1, (1 << 64) >> length)))
    borders = sorted({0, *(first for first, _ in spans), *(last for _, last in spans if last < 1 << 64)})
    inside = [float(any(first <= border < last for first, last in spans)) for border in borders]
    steps = _Steps(np.array(borders, np.uint64), np.array(inside))
    space = float((steps.values * _widths(steps.borders)).sum())
    return _Steps(steps.borders, steps.values / space if space else steps.values)
