"""Sorted lists of narrow filters: how an event finds those that reach it.

A block whose filters are so narrow that hardly two of them overlap has no bitmaps. Its slots are sorted by where they
begin, and an event looks for the last one that begins before it; then it goes back by as many slots as may still reach
it, which is written there. Between two batches other processes use the caches, so that bytes are what this costs. It
looks at *marks* of two bytes, and all else that is needed of a slot is one row of *entries*, half of a cache's line:

    marks      7 19 … FFFF │ 0 … 7 │ 7 … 19 │ … │ … FFFF    where slots begin, behind the first, in steps of 2^shift
               tops        └ sixteen groups of sixteen ┘
    entries    begin │ last │ key │ number · slots to go back · whether it has other constraints, to be checked

In front are the *tops*, the last mark of each group.  Sixteen marks are compared at a time, first the tops, then those
of one group: two cache lines, and no step that decides where the next one is but one.  Slots whose marks are equal are
told apart by where they begin. Unused slots have the highest mark, which no event has.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.np.arrayobj import make_array

from sievenet.jit import inlined, intrinsic
from sievenet.matcher.bitrow import SLOTS
from sievenet.matcher.records import Array

__all__ = [
    "BEGIN",
    "GROUP",
    "KEY",
    "LAST",
    "NUMBER",
    "TOP",
    "aligned",
    "back_of",
    "last_begun",
    "mark_of",
    "number_of",
    "numbered",
    "up_to",
]

_array_of: Any = make_array

#: Columns of the entries.
BEGIN, LAST, KEY, NUMBER = range(4)
#: The highest mark of a slot that is used.
TOP: Final = 0xFFFE
#: Marks that are compared at a time; there are as many groups of them in a list.
GROUP: Final = 16
assert GROUP * GROUP == SLOTS == 1 << 8
#: Bits below the number of a record: slots to go back, fewer than a block has; whether there is more to check.
_BELOW: Final = 9
#: Bytes of a cache's line.
_LINE: Final = 64


@inlined
def numbered(number: Any, back: int, more: int) -> Any:
    """What an entry says beside begin, last and key."""
    return number << _BELOW | back << 1 | more


@inlined
def number_of(said: int) -> int:
    """The number of an entry's record."""
    return said >> _BELOW


@inlined
def back_of(said: int) -> int:
    """How many slots before this one may reach an event that lies here."""
    return said >> 1 & (SLOTS - 1)


@intrinsic
def up_to(context: Any, marks: Any, row: Any, mark: Any) -> Any:
    """How many marks of a list are at most this one.

    Written out, for a function that is handed an array counts who holds it, and that would take most of the time.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made = _array_of(signature.args[0])(context, builder, args[0])
        begin = builder.mul(args[1], builder.extract_value(made.strides, 0))
        data = builder.bitcast(made.data, ir.IntType(8).as_pointer())  # pointers know what they point to in old LLVM
        wide, several = ir.IntType(64), ir.VectorType(ir.IntType(16), GROUP)
        none = ir.Constant(several, ir.Undefined)
        single = builder.insert_element(none, args[2], ir.Constant(ir.IntType(32), 0))
        every = builder.shuffle_vector(single, none, ir.Constant(ir.VectorType(ir.IntType(32), GROUP), [0] * GROUP))

        def among(group: Any) -> Any:
            """How many of a group; the tops are the first one."""
            ahead = builder.add(begin, builder.mul(group, wide(2 * GROUP)))
            place = builder.gep(data, [ahead], source_etype=ir.IntType(8))
            found = builder.load(builder.bitcast(place, several.as_pointer()), typ=several)
            found.align = 2
            said = builder.bitcast(builder.icmp_unsigned("<=", found, every), ir.IntType(GROUP))
            return builder.zext(builder.ctpop(said), wide)

        whole = among(wide(0))
        most = wide(GROUP - 1)
        group = builder.select(builder.icmp_unsigned("<", whole, most), whole, most)
        return builder.add(builder.mul(group, wide(GROUP)), among(builder.add(group, wide(1))))

    return types.int64(marks, types.int64, types.uint16), generate


@inlined
def mark_of(x: int, base: int, shift: int) -> Any:
    """The mark of something that is not before the first slot of a list."""
    return np.uint16(min((np.uint64(x) - np.uint64(base)) >> np.uint64(shift), np.uint64(TOP)))


@inlined
def last_begun(marks: Array, entries: Array, at: int, base: int, shift: int, x: int) -> int:
    """The last entry of the list at ``at`` that begins at x or before; ``at - 1`` if none does."""
    found = at - 1
    if x >= base:
        found += up_to(marks, at >> 8, mark_of(x, base, shift))
    while found >= at and entries[found, BEGIN] > x:  # the first one does not
        found -= 1
    return found


def aligned(entries: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """A copy of entries, none of which lies in two of a cache's lines."""
    room = np.empty(entries.nbytes + _LINE, np.uint8)
    start = -room.ctypes.data % _LINE
    found = room[start : start + entries.nbytes].view(np.int64).reshape(entries.shape)
    found[:] = entries
    return found
