"""Many trees follow a change of ideal tables in one call: entries in, merges at once, changes out.

A request concerns some dozens of switches, a few entries each.  To call compiled code for every one of them, three
times, would cost more than the work.  So each tree is given by the addresses of its arrays, in a row of a *board*;
whoever calls keeps the arrays alive.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.np.numpy_support import carray

from sievenet.control.deployment.tree.choice import fit
from sievenet.control.deployment.tree.differences import steps
from sievenet.control.deployment.tree.layout import COLUMNS, ENTRIES, LENGTH, MADE, SETS, ZERO, Arrays
from sievenet.control.deployment.tree.merging import put_each
from sievenet.control.registrations.changes import HEAD
from sievenet.control.registrations.trie.kernels import bit
from sievenet.jit import compiled, intrinsic
from sievenet.jit.places import pointer

__all__ = ["sweep"]

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

#: Entries for which trees are gone through beforehand; of more, the first would be out of the caches again.
_TOGETHER = 1 << 10
#: Bytes.
_WORD = 8
_NODE = 4 * COLUMNS
_LOW = np.uint64(1)


@compiled
def _tree(row: Any) -> Any:
    room = row[_ROOM]
    return Arrays(
        carray(pointer(row[_NODES]), (room, COLUMNS), np.int32),
        carray(pointer(row[_KEYS]), (room, 2), np.uint64),
        carray(pointer(row[_MASKS]), (room, SETS, row[_WORDS]), np.uint64),
        carray(pointer(row[_BEST]), (room, COLUMNS // 2), np.float64),
        carray(pointer(row[_CHANGED]), (room,), np.int64),
        carray(pointer(row[_META]), (4,), np.int64),
    )


@compiled
def _bit(ports: Any, port: Any) -> Any:
    for at in range(ports.size):
        if ports[at] == port:
            return at
    return -1


@compiled
def _read(places: Any, numbers: Any, board: Any, terms: Any, entries: Any, into: Any, lacking: Any) -> None:
    """The entries that columns tell of, of all switches one after the other: keys, and sets by the bits of each."""
    sets, listed, switches, rows = int(numbers[1]), int(numbers[2]), int(numbers[3]), int(numbers[4])
    ports_at = HEAD + sets
    first, each = ports_at + listed + 2 * switches, 0
    for i in range(board.shape[0]):
        ports = carray(pointer(board[i, _PORTS]), (board[i, _KNOWN],), np.uint32)
        for at in range(first + terms[_START, i], first + terms[_END, i]):
            place = int(numbers[at + rows])
            for c in range(3):
                entries[each, c] = places[place, c]
            there = numbers[at] != _DELETE
            entries[each, 3] = np.uint64(there)
            if there:
                number = int(numbers[at + 2 * rows])
                begin = int(numbers[HEAD + number - 1]) if number else 0
                for p in range(begin, int(numbers[HEAD + number])):
                    which = _bit(ports, numbers[ports_at + p])
                    if which < 0:
                        lacking[i] = True
                    else:
                        into[each, which >> 6] |= _LOW << np.uint64(which & 63)
            each += 1


@intrinsic
def _fetch(typing: Any, address: Any) -> Any:
    """Have what is at an address brought into the processor's caches, and do not wait for it."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], context.get_value_type(types.voidptr))
        number = ir.IntType(32)
        function = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
        told = [number(each) for each in (0, 3, 1)]  # to read, to be kept, data
        builder.call(builder.module.declare_intrinsic("llvm.prefetch", (pointer.type,), function), [pointer, *told])
        return context.get_dummy_value()

    return types.none(types.int64), generate


@compiled
def _ahead(entries: Any, board: Any, terms: Any) -> None:
    """Go down to where entries belong, in all trees side by side, so that `put_each` finds what it needs in the caches.

    Nobody was in these trees for long: each step down waits for memory, longer than all else takes.  Here no step
    waits for those in other trees.
    """
    count = entries.shape[0]
    if count > _TOGETHER:
        return
    whose, under_way, at = np.empty(count, np.int64), np.arange(count), np.zeros(count, np.int64)
    left = 0
    for i in range(board.shape[0]):
        for _ in range(terms[_START, i], terms[_END, i]):
            whose[left] = i
            left += 1
        _fetch(board[i, _NODES])
    while left:
        going, left = left, 0
        for j in range(going):
            one = under_way[j]
            row, node, key = board[whose[one]], at[one], entries[one]
            nodes = carray(pointer(row[_NODES]), (row[_ROOM], COLUMNS), np.int32)
            child = np.int64(-1)
            if nodes[node, LENGTH] < np.int64(key[2]):
                child = np.int64(nodes[node, ZERO + bit(key[0], key[1], nodes[node, LENGTH])])
            if child >= 0:
                _fetch(row[_NODES] + _NODE * child)
                at[one], under_way[left] = child, one
                left += 1
            else:
                _fetch(row[_KEYS] + 2 * _WORD * node)
                _fetch(row[_MASKS] + SETS * row[_WORDS] * _WORD * node)


@compiled
def sweep(places: Any, numbers: Any, board: Any, terms: Any, slack: Any, least: bool) -> Any:
    """What to tell each switch (`differences.steps`), of all one after the other.

    Nothing changes if a tree has too little room for its entries, or ports have no bit: then it is said which.
    Per switch: whether it was merged, whether too much was (nothing is told then, merges are to be undone first), the
    most entries on the way, how many there are now, where its rows begin and end, and where the words of its sets end.
    A table may be so far below its limit after a merge (`slack`).
    """
    lacking, total = np.zeros(board.shape[0], np.bool_), 0
    for i in range(board.shape[0]):
        count = terms[_END, i] - terms[_START, i]
        meta = carray(pointer(board[i, _META]), (4,), np.int64)
        lacking[i] = meta[MADE] + 2 * count > board[i, _ROOM]
        total += count
    entries, into = np.empty((total, 4), np.uint64), np.zeros((total, board[:, _WORDS].max()), np.uint64)
    _read(places, numbers, board, terms, entries, into, lacking)
    found = np.zeros((board.shape[0], 7), np.int64)
    out, masks = np.empty((64, 4), np.uint64), np.empty(64, np.uint64)
    if lacking.any():
        return lacking, found, out, masks
    _ahead(entries, board, terms)
    told = words = total = 0
    for i in range(board.shape[0]):
        row = board[i]
        a = _tree(row)
        count, wide = terms[_END, i] - terms[_START, i], row[_WORDS]
        its = entries[total : total + count]
        put_each(a, its, into[total : total + count])
        total += count
        limit = terms[_LIMIT, i]
        if a.nodes[0, ENTRIES] > limit:
            fit(a, limit, least, its[0, 0], its[0, 1])
            found[i, 0] = 1
            found[i, 1] = a.nodes[0, ENTRIES] < limit - slack[i]
        elif limit < 1:
            fit(a, limit, True, its[0, 0], its[0, 1])
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
    return lacking[:0], found, out[:told], masks[:words]
