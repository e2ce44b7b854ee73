"""Many trees follow a change of ideal tables in one call: entries in, merges at once, changes out.

A request concerns some dozens of switches, a few entries each.  To call compiled code for every one of them, three
times, would cost more than the work.  So each tree is given by the addresses of its arrays, in a row of a *board*;
whoever calls keeps the arrays alive.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.np.numpy_support import carray

from sievenet.control.deployment.tree.choice import fit
from sievenet.control.deployment.tree.differences import steps
from sievenet.control.deployment.tree.layout import COLUMNS, ENTRIES, MADE, SETS, Arrays
from sievenet.control.deployment.tree.merging import put_each
from sievenet.control.registrations.changes import HEAD
from sievenet.jit import compiled, intrinsic

__all__ = ["lacking", "sweep"]

#: Columns of a board, a row per switch: addresses of the arrays, nodes there is room for, words of a set, the address
#: of ports by bit and how many these are.
(
    _NODES,
    _KEYS,
    _MASKS,
    _BEST,
    _CHANGED,
    _META,
    _ROOM,
    _WORDS,
    _PORTS,
    _KNOWN,
) = range(10)
#: Rows of terms, a column per switch: entries told, the limit, and which rows of the first step are the switch's.
_TOLD, _LIMIT, _START, _END = range(4)
#: What a row of columns says (`registrations.columns`).
_DELETE = 3

_LOW = np.uint64(1)


@intrinsic
def _pointer(typing: Any, address: Any) -> Any:
    """An address as compiled code takes it."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.int64), generate


@compiled
def _tree(row: Any) -> Any:
    room = row[_ROOM]
    return Arrays(
        carray(_pointer(row[_NODES]), (room, COLUMNS), np.int32),
        carray(_pointer(row[_KEYS]), (room, 2), np.uint64),
        carray(_pointer(row[_MASKS]), (room, SETS, row[_WORDS]), np.uint64),
        carray(_pointer(row[_BEST]), (room, COLUMNS // 2), np.float64),
        carray(_pointer(row[_CHANGED]), (room,), np.int64),
        carray(_pointer(row[_META]), (4,), np.int64),
    )


@compiled
def _bit(ports: Any, port: Any) -> Any:
    for bit in range(ports.size):
        if ports[bit] == port:
            return bit
    return -1


@compiled
def lacking(numbers: Any, board: Any, terms: Any) -> Any:
    """Which rows of a board have too little room for their entries, or ports without a bit."""
    sets, listed, switches, rows = int(numbers[1]), int(numbers[2]), int(numbers[3]), int(numbers[4])
    ports_at = HEAD + sets
    first = ports_at + listed + 2 * switches
    found = np.zeros(board.shape[0], np.bool_)
    for i in range(board.shape[0]):
        row = board[i]
        meta = carray(_pointer(row[_META]), (4,), np.int64)
        ports = carray(_pointer(row[_PORTS]), (row[_KNOWN],), np.uint32)
        found[i] = meta[MADE] + 2 * (terms[_END, i] - terms[_START, i]) > row[_ROOM]
        for at in range(terms[_START, i], terms[_END, i]):
            if numbers[first + at] != _DELETE:
                number = int(numbers[first + 2 * rows + at])
                begin = int(numbers[HEAD + number - 1]) if number else 0
                for p in range(begin, int(numbers[HEAD + number])):
                    found[i] |= _bit(ports, numbers[ports_at + p]) < 0
    return found


@compiled
def sweep(places: Any, numbers: Any, board: Any, terms: Any, slack: Any, least: bool) -> Any:
    """What to tell each switch (`differences.steps`), of all one after the other.

    Per switch: whether it was merged, whether too much was (nothing is told then, merges are to be undone first), the
    most entries on the way, how many there are now, where its rows begin and end, and where the words of its sets end.
    A table may be so far below its limit after a merge (`slack`).
    """
    sets, listed, switches, rows = int(numbers[1]), int(numbers[2]), int(numbers[3]), int(numbers[4])
    ports_at = HEAD + sets
    first = ports_at + listed + 2 * switches
    found = np.zeros((board.shape[0], 7), np.int64)
    out, masks = np.empty((64, 4), np.uint64), np.empty(64, np.uint64)
    told = words = 0
    for i in range(board.shape[0]):
        row = board[i]
        a = _tree(row)
        ports = carray(_pointer(row[_PORTS]), (row[_KNOWN],), np.uint32)
        start, count, wide = terms[_START, i], terms[_END, i] - terms[_START, i], row[_WORDS]
        entries, into = np.empty((count, 4), np.uint64), np.zeros((count, wide), np.uint64)
        for e in range(count):
            at = first + start + e
            place = int(numbers[at + rows])
            entries[e, 0], entries[e, 1], entries[e, 2] = places[place, 0], places[place, 1], places[place, 2]
            there = numbers[at] != _DELETE
            entries[e, 3] = np.uint64(there)
            if there:
                number = int(numbers[at + 2 * rows])
                begin = int(numbers[HEAD + number - 1]) if number else 0
                for p in range(begin, int(numbers[HEAD + number])):
                    bit = _bit(ports, numbers[ports_at + p])
                    into[e, bit >> 6] |= _LOW << np.uint64(bit & 63)
        put_each(a, entries, into)
        limit = terms[_LIMIT, i]
        if a.nodes[0, ENTRIES] > limit:
            fit(a, limit, least, entries[0, 0], entries[0, 1])
            found[i, 0] = 1
            found[i, 1] = a.nodes[0, ENTRIES] < limit - slack[i]
        elif limit < 1:
            fit(a, limit, True, entries[0, 0], entries[0, 1])
        found[i, 4] = told
        if not found[i, 1]:
            size = terms[_TOLD, i]
            changes, their, found[i, 2] = steps(a, size, max(size, a.nodes[0, ENTRIES]) + 1)
            more = changes.shape[0]
            while told + more > out.shape[0]:
                larger = np.empty((2 * out.shape[0], 4), np.uint64)
                larger[:told] = out[:told]
                out = larger
            while words + more * wide > masks.size:
                longer = np.empty(2 * masks.size, np.uint64)
                longer[:words] = masks[:words]
                masks = longer
            for r in range(more):
                for c in range(4):
                    out[told, c] = changes[r, c]
                told += 1
                for w in range(wide):
                    masks[words] = their[r, w]
                    words += 1
        found[i, 3], found[i, 5], found[i, 6] = a.nodes[0, ENTRIES], told, words
    return found, out[:told], masks[:words]
