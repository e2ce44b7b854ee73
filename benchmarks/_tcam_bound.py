"""The least that any table of so many dz sends in vain: a bound that no choice of entries can go below.

A table of dz that serves everybody and has at most n entries, each with any set of ports: how few packets does it send
where nobody wants them?  With a price λ for each entry, instead of a number of them, the best one follows exactly, from
the leaves of the tree of all dz upwards.  Let f(v, U) be the least for all at and below a dz v, if the entry around it
has the ports U; the packets at v itself cost what U has and they should not go to, or all is lost if U lacks a port:

    under(v, U) = cost(v, U) + Σ f(child, U)
    f(v, U)     = min( under(v, U),  λ + min over all U' of under(v, U') )

The sum f(root, ∅) - λn is not more than the cost of any table with n entries, whatever λ is (Lagrange); the largest of
those is the bound.  All dz are tried: those of entries, of packets, where they part, and the first below each of these.
The sets are all 2ᵖ of the switch's p ports, so that p is small.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sievenet.control.aggregation.points import locate
from sievenet.jit import compiled

__all__ = ["Bound", "bound"]

_ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_Words = npt.NDArray[np.uint64]
_Ints = npt.NDArray[np.int64]


class Bound(NamedTuple):
    """What is sent in vain at least, and by the best table that was found on the way; and how many entries that has."""

    least: float
    found: float
    entries: int


def bound(table: Mapping[int, frozenset[int]], codes: _Words, came: _Ints, limit: int, rounds: int = 24) -> Bound:
    """For packets of these codes that came in by these ports (`came`), and a table that serves what `table` does."""
    ports = sorted(frozenset(came.tolist()).union(*table.values()))
    bit = {port: 1 << i for i, port in enumerate(ports)}
    sets = {_words(key): sum(bit[port] for port in out) for key, out in table.items()}
    first = np.array([code for code, _ in sets], np.uint64)
    code, length, parent = _tree(first, np.array([n for _, n in sets], np.int64), codes)
    meant = np.zeros(code.size, np.int64)
    for v, dz in enumerate(zip(code.tolist(), length.tolist(), strict=True)):
        meant[v] = sets.get(dz, meant[parent[v]] if v else 0)
    cost = _costs(meant, parent, length, *_packets(code, length, codes, came, ports), 1 << len(ports))
    low, high, least, best = 0.0, float(codes.size), 0.0, Bound(0.0, np.inf, 0)
    for _ in range(rounds):
        price = (low + high) / 2
        value, entries = _solved(parent, cost, price)
        least = max(least, value - price * limit)
        if entries > limit:
            low = price
        else:
            high, best = price, Bound(0.0, value - price * entries, int(entries))
    return best._replace(least=least)


def _words(key: int) -> tuple[int, int]:
    length = key.bit_length() - 1
    return (key ^ 1 << length) << (64 - length), length


def _mask(length: _Ints) -> _Words:
    found: _Words = np.where(length > 0, _ALL << (64 - np.maximum(length, 1)).astype(np.uint64), np.uint64(0))
    return found


def _sorted(code: _Words, length: _Ints) -> tuple[_Words, _Ints]:
    order = np.lexsort((length, code))
    code, length = code[order], length[order]
    fresh = np.ones(code.size, np.bool_)
    fresh[1:] = (code[1:] != code[:-1]) | (length[1:] != length[:-1])
    return code[fresh], length[fresh]


def _tree(first: _Words, lengths: _Ints, codes: _Words) -> tuple[_Words, _Ints, _Ints]:
    """All dz that matter, each before those in it, and which one each lies in (-1: none)."""
    some = np.concatenate([np.zeros(1, np.uint64), first, codes])
    code, length = _sorted(some, np.concatenate([[0], lengths, np.full(codes.size, 64)]))
    shared = np.minimum(_leading(code[1:] ^ code[:-1]), np.minimum(length[1:], length[:-1]))
    code, length = _sorted(np.concatenate([code, code[1:] & _mask(shared)]), np.concatenate([length, shared]))
    parent = _parents(code, length)
    # Between two dz nothing differs but how much of the empty space beside the inner one goes along: all, or none.
    apart = np.flatnonzero(length > length[parent] + 1)
    upper = length[parent[apart]] + 1
    code, length = _sorted(np.concatenate([code, code[apart] & _mask(upper)]), np.concatenate([length, upper]))
    return code, length, _parents(code, length)


@compiled
def _leading(words: Any) -> Any:
    found = np.zeros(words.size, np.int64)
    for i in range(words.size):
        count, word = 0, words[i]
        while count < 64 and not word >> np.uint64(63 - count) & np.uint64(1):
            count += 1
        found[i] = count
    return found


@compiled
def _parents(code: Any, length: Any) -> Any:
    parent, stack, top = np.full(code.size, -1, np.int64), np.empty(80, np.int64), 0
    for i in range(code.size):
        while top:
            at = length[stack[top - 1]]
            if at == 0 or not (code[stack[top - 1]] ^ code[i]) >> np.uint64(64 - at):
                break
            top -= 1
        parent[i] = stack[top - 1] if top else -1
        stack[top] = i
        top += 1
    return parent


def _packets(code: _Words, length: _Ints, codes: _Words, came: _Ints, ports: list[int]) -> tuple[_Ints, _Ints]:
    """Where packets are, and the bit of the port that each came in by."""
    order = np.argsort(codes, kind="stable")
    bits: _Ints = np.left_shift(1, np.searchsorted(ports, came[order])).astype(np.int64)
    return locate(code, length, codes[order]), bits


@compiled
def _costs(meant: Any, parent: Any, length: Any, where: Any, came: Any, sets: int) -> Any:
    """What the packets at a dz itself cost by the ports of what decides there; infinite if it lacks one."""
    count = meant.size
    cost, halves = np.zeros((count, sets)), np.zeros(count, np.int64)
    for v in range(1, count):
        halves[parent[v]] += length[v] == length[parent[v]] + 1
    for i in range(where.size):
        for some in range(sets):
            extra = some & ~meant[where[i]] & ~came[i]
            while extra:
                extra &= extra - 1
                cost[where[i], some] += 1.0
    for v in range(count):
        for some in range(sets):
            if halves[v] < 2 and meant[v] & ~some:
                cost[v, some] = np.inf
    return cost


@compiled
def _solved(parent: Any, cost: Any, price: float) -> Any:
    """The least at a price, and the entries of a table that has it."""
    count, sets = cost.shape
    under, entries = cost.copy(), np.zeros((count, sets), np.int64)
    for v in range(count - 1, -1, -1):
        own = 0
        for some in range(1, sets):
            if under[v, some] < under[v, own]:
                own = some
        for some in range(sets):
            as_entry = under[v, own] + price < under[v, some]
            value = under[v, own] + price if as_entry else under[v, some]
            used = entries[v, own] + 1 if as_entry else entries[v, some]
            if v == 0:
                return value, used  # nothing is around everything
            under[parent[v], some] += value
            entries[parent[v], some] += used
    return 0.0, 0
