"""Spots: dz that might be carved out of merges, where packets are.

Entries of a table are broad, and packets are not spread evenly in them.  So where merges send most in vain, a smaller
dz than any entry may hold nearly all of it:

    merge at 1 → a, b, c           entry 10 → a          all packets are in 1011
    carved out 1011 → a            as the entry says     and the merge costs nothing

A spot has packets at one merge point that come to at least a part of what an entry is worth at the switch (the price of
`carvings`), and no other merge point in it.  It is as large as that allows, for a sample never has everything: what is
carved out is exact.  Inside there may be smaller ones, of the same kind.  At the next look, spots are merge points like
others, but for being no entries.  Those that were chosen stay.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sievenet.control.aggregation.points import Points, Spots
from sievenet.jit import compiled

__all__ = ["Packets", "spots"]

#: The part of an entry's worth that a spot has to save; what it saves beside others is known only when all are chosen.
_PART: Final = 0.2


class Packets(NamedTuple):
    """What arrives at a switch, in the order of codes."""

    codes: npt.NDArray[np.uint64]
    #: The innermost merge point, the row of the port each came in by, and how many it stands for.
    where: npt.NDArray[np.int64]
    came: npt.NDArray[np.int64]
    weight: npt.NDArray[np.float64]
    #: How often each is sent by those behind each port, if that is known.
    beyond: npt.NDArray[np.float32] | None


def spots(points: Points, chosen: Any, decides: Any, rows: Any, packets: Packets, price: float) -> tuple[Spots, float]:
    """Dz in which much is sent in vain by a table with merges, and those of such that are chosen.

    And how much is sent in vain.
    """
    codes, where, came, weight, beyond = packets
    further = np.zeros((0, 0), np.float32) if beyond is None else beyond
    vain = _vain(decides, rows, points.decider, points.ports, where, came, weight, further)
    some = np.flatnonzero(vain)
    code, length = _heavy(codes[some], vain[some], where[some], points.code, points.length, _PART * price)
    kept = chosen & (points.own == 0)
    found = Spots(np.concatenate([code, points.code[kept]]), np.concatenate([length, points.length[kept]]))
    return found, float(vain.sum())


@compiled
def _vain(decides: Any, rows: Any, decider: Any, ports: Any, where: Any, came: Any, weight: Any, further: Any) -> Any:
    """How often each packet is sent where it should not go, here and further on."""
    found = np.zeros(where.size)
    for i in range(where.size):
        at = where[i]
        if at < 0 or decides[at] < 0:
            continue
        sent, meant = decides[at], decider[at]
        for p in range(rows.shape[1]):
            if rows[sent, p] and p != came[i] and not (meant >= 0 and ports[meant, p]):
                found[i] += weight[i] * (1.0 + (further[i, p] if further.size else 0.0))
    return found


@compiled
def _heavy(codes: Any, vain: Any, where: Any, p_code: Any, p_length: Any, least: float) -> Any:
    """Dz around packets at one merge point that come to so much, the larger before those in them."""
    count = codes.size
    sums, changes = np.zeros(count + 1), np.zeros(count + 1, np.int64)
    for i in range(count):
        sums[i + 1] = sums[i] + vain[i]
        changes[i + 1] = changes[i] + (i > 0 and where[i] != where[i - 1])
    #: From, to, and the length of the dz that was halved.
    stack, top = np.empty((200, 3), np.int64), 0
    o_code, o_length, found = np.empty(2 * count + 1, np.uint64), np.empty(2 * count + 1, np.int64), 0
    if count:
        stack[0], top = (0, count, -1), 1
    while top:
        top -= 1
        low, high, outer = stack[top]
        if sums[high] - sums[low] < least:
            continue
        first, differ, shared = codes[low], codes[low] ^ codes[high - 1], 64
        while differ:
            differ >>= np.uint64(1)
            shared -= 1
        if changes[high] == changes[low + 1]:
            length = outer + 1
            while length < shared and _holds(p_code, p_length, first, length):
                length += 1
            o_code[found], o_length[found] = first & _mask(length), length
            found += 1
        if shared == 64:
            continue
        middle = (first & _mask(shared)) | np.uint64(1) << np.uint64(63 - shared)
        half = low + np.searchsorted(codes[low:high], middle)
        stack[top], stack[top + 1] = (low, half, shared), (half, high, shared)
        top += 2
    return o_code[:found].copy(), o_length[:found].copy()


@compiled
def _mask(length: int) -> Any:
    return np.uint64(0) if length == 0 else np.uint64(0xFFFFFFFFFFFFFFFF) << np.uint64(64 - length)


@compiled
def _holds(p_code: Any, p_length: Any, code: Any, length: int) -> Any:
    """Whether the dz of so many bits around a code has a merge point in it."""
    first = code & _mask(length)
    at = np.searchsorted(p_code, first)
    while at < p_code.size and p_code[at] & _mask(length) == first:
        if p_length[at] >= length:
            return True
        at += 1
    return False
