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
from sievenet.control.deployment.tree.differences import write_steps
from sievenet.control.deployment.tree.layout import (
    CAPACITY,
    CHEAPEST,
    COLUMNS,
    COUNTS,
    ELSEWHERE,
    END,
    ENTRIES,
    HOLDS,
    KEYS,
    KNOWN,
    LENGTH,
    MADE,
    MASKS,
    MERGED,
    MOST,
    NODES,
    NODES_CHANGED,
    NOTED,
    NUMBERS,
    PLACE,
    PORTS,
    ROOM,
    SETS,
    SHARE,
    SHARES,
    START,
    STATE,
    TOLD,
    TOO_FAR,
    WORDS,
    ZERO,
    Arrays,
)
from sievenet.control.deployment.tree.merging import put_each
from sievenet.control.deployment.tree.shares import keep, slack
from sievenet.control.registrations.changes import HEAD
from sievenet.control.registrations.trie.kernels import bit, leading
from sievenet.jit import compiled, intrinsic
from sievenet.jit.places import pointer

__all__ = ["settled", "sweep"]

#: Columns of a board, a row for each number of a switch: the address of its place (`layout`), and which row is its own
#: in the columns of `rooms`.
AT, ROW = range(2)
#: What a row of columns says (`registrations.columns`).
_DELETE = 3

#: Entries for which trees are gone through beforehand; of more, the first would be out of the caches again.
_TOGETHER = 1 << 10
#: What is missing that is told at a time.
_MISSING = 64
#: Bytes.
_WORD = 8
_NODE = 4 * COLUMNS
_LOW = np.uint64(1)


@compiled
def _place(at: int) -> Any:
    return carray(pointer(at), (PLACE,), np.int64)


@compiled
def _tree(place: Any) -> Any:
    room = place[ROOM]
    return Arrays(
        carray(pointer(place[NODES]), (room, COLUMNS), np.int32),
        carray(pointer(place[KEYS]), (room, 2), np.uint64),
        carray(pointer(place[MASKS]), (room, SETS, place[WORDS]), np.uint64),
        carray(pointer(place[CHEAPEST]), (room, COLUMNS // 2), np.float64),
        carray(pointer(place[NODES_CHANGED]), (room,), np.int64),
        carray(pointer(place[COUNTS]), (NUMBERS,), np.int64),
    )


@compiled
def _bit(ports: Any, port: Any) -> Any:
    for at in range(ports.size):
        if ports[at] == port:
            return at
    return -1


@compiled
def _lack(missing: Any, count: int, i: int, entries: int, port: int) -> int:
    """A switch has too little room for its entries, or a port has no bit; some are told at a time."""
    if count and missing[count - 1, 0] == i and missing[count - 1, 2] == port:
        return count
    if count < _MISSING:
        missing[count, 0], missing[count, 1], missing[count, 2] = i, entries, port
        count += 1
    return count


@compiled
def _reach(numbers: Any, board: Any, tables: Any, found: Any, missing: Any) -> Any:
    """Which switches have their tables here, how many entries concern these, how wide sets are, how much is missing."""
    at = HEAD + int(numbers[1]) + int(numbers[2])
    begin = entries = widest = lacking = 0
    for i in range(found.shape[0]):
        number, end = numbers[at + i], numbers[at + found.shape[0] + i]
        if not board[number, AT] or tables[board[number, ROW], CAPACITY] < 0:
            found[i, STATE] = ELSEWHERE
        else:
            place, count = _place(board[number, AT]), end - begin
            if carray(pointer(place[COUNTS]), (NUMBERS,), np.int64)[MADE] + 2 * count > place[ROOM]:
                lacking = _lack(missing, lacking, i, count, 0)
            entries += count
            widest = max(widest, place[WORDS])
        begin = end
    return entries, widest, lacking


@compiled
def _read(
    places: Any, numbers: Any, board: Any, found: Any, entries: Any, into: Any, whose: Any, missing: Any, lacking: int
) -> Any:
    """The entries that columns tell of, of all switches one after the other: keys, and sets by the bits of each.

    Returns how much is missing.
    """
    switches, rows = found.shape[0], int(numbers[4])
    ports_at = HEAD + int(numbers[1])
    at = ports_at + int(numbers[2])
    first, begin, each = at + 2 * switches, 0, 0
    for i in range(switches):
        end = int(numbers[at + switches + i])
        if found[i, STATE] == ELSEWHERE:
            begin = end
            continue
        place = _place(board[numbers[at + i], AT])
        ports = carray(pointer(place[PORTS]), (place[KNOWN],), np.uint32)
        for row in range(first + begin, first + end):
            dz = int(numbers[row + rows])
            for c in range(3):
                entries[each, c] = places[dz, c]
            there = numbers[row] != _DELETE
            entries[each, 3] = np.uint64(there)
            if there:
                number = int(numbers[row + 2 * rows])
                start = int(numbers[HEAD + number - 1]) if number else 0
                for p in range(start, int(numbers[HEAD + number])):
                    which = _bit(ports, numbers[ports_at + p])
                    if which < 0:
                        lacking = _lack(missing, lacking, i, end - begin, int(numbers[ports_at + p]))
                    else:
                        into[each, which >> 6] |= _LOW << np.uint64(which & 63)
            whose[each] = board[numbers[at + i], AT]
            each += 1
        begin = end
    return lacking


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
def _ahead(entries: Any, whose: Any) -> None:
    """Go down to where entries belong, in all trees side by side, so that `put_each` finds what it needs in the caches.

    Nobody was in these trees for long: each step down waits for memory, longer than all else takes.  Here no step
    waits for those in other trees.
    """
    count = entries.shape[0]
    if count > _TOGETHER:
        return
    under_way, at = np.arange(count), np.zeros(count, np.int64)
    for one in range(count):
        if not one or whose[one] != whose[one - 1]:
            _fetch(_place(whose[one])[NODES])
    left = count
    while left:
        going, left = left, 0
        for j in range(going):
            one = under_way[j]
            place, node, key = _place(whose[one]), at[one], entries[one]
            nodes = carray(pointer(place[NODES]), (place[ROOM], COLUMNS), np.int32)
            child = np.int64(-1)
            if nodes[node, LENGTH] < np.int64(key[2]):
                child = np.int64(nodes[node, ZERO + bit(key[0], key[1], nodes[node, LENGTH])])
            if child >= 0:
                _fetch(place[NODES] + _NODE * child)
                at[one], under_way[left] = child, one
                left += 1
            else:
                _fetch(place[KEYS] + 2 * _WORD * node)
                _fetch(place[MASKS] + SETS * place[WORDS] * _WORD * node)


@compiled
def sweep(places: Any, numbers: Any, board: Any, tables: Any, part: Any, least: bool) -> Any:
    """The ideal tables of switches change by the first step of columns; each is merged where it exceeds its limit.

    Returns what is missing (`_lack`), if something is; then nothing changes.  Further what becomes of each switch
    (`STATE`), and what they are told, one after the other: rows (`differences.steps`), all ports, and where those of
    each row end.
    """
    switches = int(numbers[3])
    found = np.zeros((switches, 4), np.int64)
    missing = np.empty((_MISSING, 3), np.int64)
    total, widest, lacking = _reach(numbers, board, tables, found, missing)
    entries, into = np.empty((total, 4), np.uint64), np.zeros((total, widest), np.uint64)
    whose = np.empty(total, np.int64)
    out, masks = np.empty((4 * total + 16, 4), np.uint64), np.empty((4 * total + 16, widest), np.uint64)
    listed, ends, ports = np.empty(16 * total + 64, np.uint32), np.empty(4 * total + 16, np.int64), 0
    lacking = _read(places, numbers, board, found, entries, into, whose, missing, lacking)
    if lacking:
        return missing[:lacking], found, out[:0], listed[:0], ends[:0]
    _ahead(entries, whose)
    stale, lost = np.empty(total, np.int64), np.empty((total + 1, widest), np.uint64)
    at, told, begin, first = HEAD + int(numbers[1]) + int(numbers[2]), 0, 0, 0
    for i in range(switches):
        number, end = int(numbers[at + i]), int(numbers[at + switches + i])
        count, begin = end - begin, end
        found[i, START] = found[i, END] = told
        if found[i, STATE] == ELSEWHERE:
            continue
        place, row = _place(board[number, AT]), board[number, ROW]
        a = _tree(place)
        limit = tables[row, CAPACITY] - 1 - tables[row, SHARES] + part[row, SHARE]
        its = entries[first : first + count]
        put_each(a, its, into[first : first + count], stale, lost)
        first += count
        if a.nodes[0, ENTRIES] > limit:
            fit(a, limit, least, its[0, 0], its[0, 1])
            found[i, STATE] = TOO_FAR if a.nodes[0, ENTRIES] < limit - slack(limit) else MERGED
        elif limit < 1:
            fit(a, limit, True, its[0, 0], its[0, 1])
        keep(tables, part, row, SHARE, a.nodes[0, ENTRIES])
        if found[i, STATE] == TOO_FAR:
            continue
        more = 3 * a.meta[NOTED]
        if told + more > out.shape[0]:
            size = 2 * (told + more)
            rows, further = np.empty((size, 4), np.uint64), np.empty(size, np.int64)
            rows[:told], further[:told] = out[:told], ends[:told]
            out, ends, masks = rows, further, np.empty((size, widest), np.uint64)
        told, found[i, MOST] = write_steps(a, max(a.meta[TOLD], a.nodes[0, ENTRIES]) + 1, out, masks, told)
        found[i, END] = told
        most = ports + 64 * place[WORDS] * (told - found[i, START])
        if most > listed.size:
            longer = np.empty(2 * most, np.uint32)
            longer[:ports] = listed[:ports]
            listed = longer
        ports = _list(place, masks, found[i, START], told, listed, ends, ports)
    return missing[:0], found, out[:told], listed[:ports], ends[:told]


@compiled
def _list(place: Any, masks: Any, first: int, end: int, listed: Any, ends: Any, ports: int) -> int:
    """List the ports of sets behind others; returns how many there are now."""
    order = carray(pointer(place[PORTS]), (place[KNOWN],), np.uint32)
    for row in range(first, end):
        for w in range(place[WORDS]):
            rest = masks[row, w]
            while rest:
                lowest = rest & (~rest + _LOW)
                listed[ports] = order[64 * w + 63 - leading(lowest)]
                ports += 1
                rest ^= lowest
        ends[row] = ports
    return ports


@compiled
def settled(board: Any, switches: Any, tables: Any, part: Any) -> None:
    """Nothing is under way at these switches: a holder has its table there, and no more."""
    for number in switches:
        if tables[board[number, ROW], CAPACITY] < 0:
            continue
        nodes = carray(pointer(_place(board[number, AT])[NODES]), (1, COLUMNS), np.int32)
        for column in (SHARE, HOLDS):
            keep(tables, part, board[number, ROW], column, nodes[0, ENTRIES])
