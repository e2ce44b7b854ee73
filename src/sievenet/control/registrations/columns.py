"""What a walk found, written into columns of numbers, and the check of such columns; compiled.

    rows     head (7) │ ends of sets │ ports of all sets │ first │ second
    first    switches │ ends │ whats │ places │ sets
    second   switches │ ends │ whats │ places │ sets │ sets until then

The head says how many places, sets, ports, and how many switches and rows either step has.  A switch's rows are beside
each other and `ends` says where they end.  `places` and `sets` are numbers of dz and of sets of ports; equal sets are
written once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sievenet.control.registrations.changes import HEAD
from sievenet.control.registrations.trie.kernels import leading
from sievenet.control.registrations.trie.layout import ADDED, GROWN, LESSENED, NOTHING
from sievenet.jit import compiled

__all__ = ["key", "sound", "written"]

#: What a row says.
ADD, MODIFY, DELETE = 1, 2, 3

_Words = npt.NDArray[np.uint64]
_Numbers = npt.NDArray[np.uint32]
_Longs = npt.NDArray[np.int64]

_NONE = np.uint64(0)
_ONE = np.uint64(1)
_PRIME = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(29)


@compiled
def key(hi: np.uint64, lo: np.uint64, length: int) -> tuple[np.uint64, np.uint64]:
    """Left-aligned bits as a key: behind a leading one, at the right."""
    if length == 0:
        return _NONE, _ONE
    if length < 64:
        return _NONE, (hi >> np.uint64(64 - length)) | (_ONE << np.uint64(length))
    if length == 64:
        return _ONE, hi
    down = np.uint64(128 - length)
    return (hi >> down) | (_ONE << np.uint64(length - 64)), (lo >> down) | (hi << (np.uint64(64) - down))


@compiled
def _number(masks: _Words, row: int, begin: int, words: int, slots: _Longs, firsts: _Longs, found: int) -> int:
    """The number of a mask among those seen so far; `found` if it is new."""
    mixed = _NONE
    for w in range(begin, begin + words):
        mixed = (mixed ^ masks[row, w]) * _PRIME
        mixed = mixed ^ (mixed >> _HALF)
    limit = slots.shape[0] - 1
    at = np.int64(mixed & np.uint64(limit))
    while slots[at] >= 0:
        number = slots[at]
        other, start = firsts[number, 0], firsts[number, 1]
        same = True
        for w in range(words):
            if masks[row, begin + w] != masks[other, start + w]:
                same = False
                break
        if same:
            return int(number)
        at = (at + 1) & limit
    slots[at] = found
    firsts[found, 0], firsts[found, 1] = row, begin
    return found


@compiled
def written(places: _Words, rows: _Words, masks: _Words, ports: _Numbers, switches: int) -> tuple[_Words, _Numbers]:
    """The keys of the dz in two columns, and everything else."""
    count, words = rows.shape[0], masks.shape[1] // 2
    keys = np.empty((2, places.shape[0]), np.uint64)
    for i in range(places.shape[0]):
        keys[0, i], keys[1, i] = key(places[i, 0], places[i, 1], int(places[i, 2]))
    # Sets of wires, each once.
    size = 16
    while size < 4 * count:
        size *= 2
    slots, firsts = np.full(size, -1, np.int64), np.empty((2 * count, 2), np.int64)
    here, after = np.zeros(count, np.int64), np.zeros(count, np.int64)
    sets = 0
    # Where the rows of each switch begin: in the first step those that add, that change and that delete.
    begins, ends = np.zeros(3 * switches + 1, np.int64), np.zeros(switches + 1, np.int64)
    for i in range(count):
        switch, now, then = int(rows[i, 1]), rows[i, 2], rows[i, 3]
        here[i] = _number(masks, i, 0, words, slots, firsts, sets)
        sets += here[i] == sets
        if now != NOTHING:
            rank = 0 if now == ADDED else 1 if now == GROWN else 2
            begins[3 * switch + rank + 1] += 1
        if then != NOTHING:
            ends[switch + 1] += 1
            after[i] = here[i]
            if then == LESSENED:
                after[i] = _number(masks, i, words, words, slots, firsts, sets)
                sets += after[i] == sets
    some, more = 0, 0
    for switch in range(switches):
        some += begins[3 * switch + 1] + begins[3 * switch + 2] + begins[3 * switch + 3] > 0
        more += ends[switch + 1] > 0
    for i in range(3 * switches):
        begins[i + 1] += begins[i]
    for i in range(switches):
        ends[i + 1] += ends[i]
    firstly, secondly = begins[3 * switches], ends[switches]
    total = 0
    for i in range(sets):
        for w in range(words):
            rest = masks[firsts[i, 0], firsts[i, 1] + w]
            while rest:
                rest = rest & (rest - _ONE)
                total += 1
    out = np.empty(HEAD + sets + total + 2 * some + 3 * firstly + 2 * more + 4 * secondly, np.uint32)
    out[0], out[1], out[2] = places.shape[0], sets, total
    out[3], out[4], out[5], out[6] = some, firstly, more, secondly
    at, base = HEAD + sets, HEAD + sets
    for i in range(sets):
        for w in range(words):
            rest = masks[firsts[i, 0], firsts[i, 1] + w]
            while rest:  # the lowest wire first
                lowest = rest & (~rest + _ONE)
                out[at] = ports[64 * w + 63 - leading(lowest)]
                at += 1
                rest = rest ^ lowest
        out[HEAD + i] = at - base
    for switch in range(switches):
        if begins[3 * switch + 3] > begins[3 * switch]:
            out[at], out[at + some] = switch, begins[3 * switch + 3]
            at += 1
    first = at + some
    second = first + 3 * firstly
    for switch in range(switches):
        if ends[switch + 1] > ends[switch]:
            out[second], out[second + more] = switch, ends[switch + 1]
            second += 1
    second += more
    for i in range(count):
        place, switch, now, then = rows[i, 0], int(rows[i, 1]), rows[i, 2], rows[i, 3]
        if now != NOTHING:
            rank = 0 if now == ADDED else 1 if now == GROWN else 2
            to = first + begins[3 * switch + rank]
            begins[3 * switch + rank] += 1
            out[to] = ADD if now == ADDED else MODIFY if now == GROWN else DELETE
            out[to + firstly], out[to + 2 * firstly] = place, here[i]
        if then != NOTHING:
            to = second + ends[switch]
            ends[switch] += 1
            out[to] = MODIFY if then == LESSENED else DELETE
            out[to + secondly], out[to + 2 * secondly] = place, after[i]
            out[to + 3 * secondly] = here[i]
    return keys, out


@compiled
def _sorted_to(out: _Numbers, at: int, count: int, end: int, strictly: bool) -> bool:
    """Whether some numbers ascend to `end`."""
    before = -1 if not strictly else 0
    for i in range(at, at + count):
        number = int(out[i])
        if number < before or (strictly and number == before):
            return False
        before = number
    return before == end if count else end == 0


@compiled
def sound(out: _Numbers, places: int, switches: int) -> bool:
    """Whether columns fit each other, and numbers what they number."""
    if out.shape[0] < HEAD:
        return False
    sets, ports = int(out[1]), int(out[2])
    total = HEAD + sets + ports
    for step in range(2):
        total += 2 * int(out[3 + 2 * step]) + (3 + step) * int(out[4 + 2 * step])
    if int(out[0]) != places or total != out.shape[0] or not _sorted_to(out, HEAD, sets, ports, False):
        return False
    at = HEAD + sets
    for i in range(at, at + ports):
        if out[i] == 0:
            return False
    at += ports
    for step in range(2):
        some, rows = int(out[3 + 2 * step]), int(out[4 + 2 * step])
        for i in range(at, at + some):
            if int(out[i]) >= switches:
                return False
        if not _sorted_to(out, at + some, some, rows, True):
            return False
        at += 2 * some
        for i in range(at, at + rows):
            if out[i] < ADD or out[i] > DELETE or int(out[i + rows]) >= places:
                return False
            for column in range(2, 3 + step):
                if int(out[i + column * rows]) >= sets:
                    return False
        at += (3 + step) * rows
    return True
