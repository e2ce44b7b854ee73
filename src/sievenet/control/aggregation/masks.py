"""Masks: which cells to merge at switches with a table per out port, by what was published.

A merge of cells is the smallest cell around them (`deployment.cells`), and concerns one out port.  It costs the packets
in it that the port does not get otherwise.  The cheapest pair of a switch is made one, again and again, until tables
fit; cells inside a merge go with it, and packets that a merge sends already cost nothing further.

Without a sample, and where it has no packets, the smaller merge is the cheaper one.

Departure from dz (`aggregation`): which packets reach a switch at all is not worked out; all that were published count.
Packets are told apart by their first 64 bits.

Cost: O(n² · packets) for the n cells of a port, in compiled code; of a larger sample some packets are taken.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sievenet.control.aggregation.arrivals import Sample
from sievenet.jit import compiled

__all__ = ["Masked", "merge_cells"]

#: A port, and the value and mask of a cell.
_Entry = tuple[int, int, int]
_LOW: Final = (1 << 64) - 1
#: Packets that are looked at.
_PACKETS: Final = 2048


class Masked(NamedTuple):
    """The tables of one lane of cells, without merges, by switch; room there, and what was published."""

    tables: Mapping[str, Collection[_Entry]]
    limits: Mapping[str, int]
    sample: Sample | None = None


def merge_cells(lanes: Iterable[Masked]) -> list[dict[str, set[_Entry]]]:
    """For each lane, by switch, the cells to merge at."""
    found = []
    for lane in lanes:
        codes, counts = _packets(lane.sample)
        chosen = {}
        for switch, table in lane.tables.items():
            entries = sorted(table)
            if len(entries) > lane.limits[switch]:
                chosen[switch] = _chosen(entries, lane.limits[switch], codes, counts)
        found.append(chosen)
    return found


def _packets(sample: Sample | None) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.float64]]:
    if sample is None:
        return np.zeros(0, np.uint64), np.zeros(0)
    every = -(-sample.codes.size // _PACKETS) or 1
    counts = np.ones(sample.codes.size) if sample.counts is None else sample.counts
    return sample.codes[::every], counts[::every].astype(np.float64)


def _chosen(entries: list[_Entry], limit: int, codes: Any, counts: Any) -> set[_Entry]:
    ports = np.array([port for port, _, _ in entries], np.int64)
    words = [[value >> 64, value & _LOW, mask >> 64, mask & _LOW] for _, value, mask in entries]
    rows, merged = _merge(ports, np.array(words, np.uint64).reshape(-1, 4), limit, codes, counts)
    listed = zip(ports.tolist(), rows.tolist(), merged.tolist(), strict=True)
    return {(port, row[0] << 64 | row[1], row[2] << 64 | row[3]) for port, row, flag in listed if flag}


@compiled
def _around(rows: Any, i: int, j: int, out: Any) -> None:
    for w in range(2):
        out[2 + w] = rows[i, 2 + w] & rows[j, 2 + w] & ~(rows[i, w] ^ rows[j, w])
        out[w] = rows[i, w] & out[2 + w]


@compiled
def _inside(rows: Any, i: int, cell: Any) -> Any:
    beside = np.uint64(0)
    for w in range(2):
        beside |= (cell[2 + w] & ~rows[i, 2 + w]) | (rows[i, w] & cell[2 + w] ^ cell[w])
    return beside == np.uint64(0)


@compiled
def _price(rows: Any, i: int, j: int, sent: Any, codes: Any, counts: Any, even: float, cell: Any) -> Any:
    """What a merge of two cells sends that the port does not get otherwise."""
    _around(rows, i, j, cell)
    bits, price = 0, 0.0
    for w in range(2, 4):
        rest = cell[w]
        while rest:
            rest &= rest - np.uint64(1)
            bits += 1
    for k in range(codes.size):
        if not sent[k] and codes[k] & cell[2] == cell[0]:
            price += counts[k]
    return price + even * 2.0**-bits


@compiled
def _look(
    i: int, ports: Any, rows: Any, alive: Any, sent: Any, codes: Any, counts: Any, even: float, best: Any, with_: Any
) -> None:
    """The cheapest partner of a cell."""
    cell = np.empty(4, np.uint64)
    best[i], with_[i] = np.inf, -1
    for j in range(ports.size):
        if j != i and alive[j] and ports[j] == ports[i]:
            price = _price(rows, i, j, sent, codes, counts, even, cell)
            if price < best[i]:
                best[i], with_[i] = price, j


@compiled
def _merge(ports: Any, rows: Any, limit: int, codes: Any, counts: Any) -> Any:
    """The cells that are left, with merges in the place of one of theirs; and which are left and merges."""
    count = ports.size
    rows, alive, merged = rows.copy(), np.ones(count, np.bool_), np.zeros(count, np.bool_)
    best, with_ = np.full(count, np.inf), np.full(count, -1, np.int64)
    even = 1e-6
    for k in range(codes.size):
        even += 1e-6 * counts[k]
    # What each port gets: entries of a port are side by side.
    place, sets = np.zeros(count, np.int64), 0
    for i in range(count):
        if i and ports[i] != ports[i - 1]:
            sets += 1
        place[i] = sets
    sent = np.zeros((sets + 1, codes.size), np.bool_)
    for i in range(count):
        for k in range(codes.size):
            if codes[k] & rows[i, 2] == rows[i, 0]:
                sent[place[i], k] = True
    for i in range(count):
        _look(i, ports, rows, alive, sent[place[i]], codes, counts, even, best, with_)
    left, cell = count, np.empty(4, np.uint64)
    while left > limit:
        at = -1
        for i in range(count):
            if alive[i] and with_[i] >= 0 and (at < 0 or best[i] < best[at]):
                at = i
        if at < 0:
            break  # one for each port
        _around(rows, at, with_[at], cell)
        for i in range(count):
            if i != at and alive[i] and ports[i] == ports[at] and _inside(rows, i, cell):
                alive[i] = False
                left -= 1
        for w in range(4):
            rows[at, w] = cell[w]
        merged[at] = True
        got = sent[place[at]]
        for k in range(codes.size):
            if codes[k] & cell[2] == cell[0]:
                got[k] = True
        _look(at, ports, rows, alive, got, codes, counts, even, best, with_)
        for i in range(count):
            if alive[i] and i != at and ports[i] == ports[at]:
                if with_[i] < 0 or with_[i] == at or not alive[with_[i]]:
                    _look(i, ports, rows, alive, got, codes, counts, even, best, with_)
                else:
                    price = _price(rows, i, at, got, codes, counts, even, cell)
                    if price < best[i]:
                        best[i], with_[i] = price, at
    return rows, merged & alive
