"""Sorted lists of narrow filters: how an event finds those that reach it.

A block whose filters are so narrow that hardly two of them overlap has no bitmaps. Its slots are sorted by where they
begin, and an event looks for the last one that begins before it, by bisection; then it goes back by as many slots as
may still reach it, which is written there. Between two batches other processes use the caches, so that bytes are what
this costs. The bisection goes over *marks* of two bytes, and all else that is needed of a slot is one row of *entries*,
half of a cache's line:

    marks      0     7     7     19    …    FFFF      where slots begin, behind the first, in steps of 2^shift
    entries    begin │ last │ key │ number · slots to go back · whether it has other constraints, to be checked

Slots whose marks are equal are told apart by where they begin. Unused slots have the highest mark, which no event has.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.jit import inlined
from sievenet.matcher.bitrow import SLOTS
from sievenet.matcher.records import Array

__all__ = [
    "BEGIN",
    "KEY",
    "LAST",
    "NUMBER",
    "TOP",
    "aligned",
    "back_of",
    "last_begun",
    "last_marked",
    "number_of",
    "numbered",
]

#: Columns of the entries.
BEGIN, LAST, KEY, NUMBER = range(4)
#: The highest mark of a slot that is used.
TOP: Final = 0xFFFE
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


@inlined
def last_marked(marks: Array, at: int, base: int, shift: int, x: int) -> int:
    """The last entry of the list at ``at`` that begins at x or before, or has the same mark; ``at - 1`` if none does.

    No entry is looked at. Whoever has many events asks for all of them first, and for their entries afterwards: those
    lie apart, and a processor fetches several at a time if none of them decides where the next one is.
    """
    found = at - 1
    if x >= base:
        mark = np.uint16(min((np.uint64(x) - np.uint64(base)) >> np.uint64(shift), np.uint64(TOP)))
        step = SLOTS >> 1
        while step:
            found += step if marks[found + step] <= mark else 0
            step >>= 1
        # Steps of 128 to 1 come to 255 slots; there may be one more.
        found += 1 if found + 1 < at + SLOTS and marks[found + 1] <= mark else 0
    return found


@inlined
def last_begun(marks: Array, entries: Array, at: int, base: int, shift: int, x: int) -> int:
    """The last entry of the list at ``at`` that begins at x or before; ``at - 1`` if none does."""
    found = last_marked(marks, at, base, shift, x)
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
