"""Layout: the prefix tree of registrations in arrays.

A node stands for a dz that somebody registered, or at which two such part; there is none in between.

    nodes   per node: the one above, the two below, the length of its dz, its lists of items
            (those who want, those who offer), its row in `was`, whether it or one below has such a row
    keys    per node: its dz, left-aligned in two words
    sub     per node: the ways (see `routes`) to all who want, and from all who offer, it or a dz below; this
            tells a walk from above what it would find without going there
    items   in lists: a client's wire, how often it is registered, the next of the list
    was     per node that changed: the ways to and from those registered at it, as the switches know them
    idle    nodes that nobody may be registered at any more; they stay until changes are asked for, because
            their flows have to be taken away
    ways    per wire in use: to and from the client behind it
    meta    counts, and where the lists of free nodes and items begin

A set of wires is a row of words here, and a Python integer everywhere else.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = [
    "ADDED",
    "COUNT",
    "COVERED",
    "DELETED",
    "FREE",
    "FREE_ITEM",
    "FRM",
    "GROWN",
    "IDLE",
    "ITEMS",
    "LENGTH",
    "LESSENED",
    "LIVE",
    "MADE",
    "NEXT",
    "NOTHING",
    "OFFERS",
    "ONE",
    "PARENT",
    "REMEMBERED",
    "STALE",
    "TO",
    "WANTS",
    "WAS",
    "WIRE",
    "ZERO",
    "Arrays",
    "Told",
    "aligned",
    "empty",
]

# Columns of `nodes`.  WANTS and OFFERS are the first items of lists; WAS is a row of `was`; all -1 if there is none.
PARENT, ZERO, ONE, LENGTH, WANTS, OFFERS, WAS, STALE = range(8)
# Columns of `items`.
WIRE, COUNT, NEXT = range(3)
# What `meta` counts: nodes made, the first free one, live ones; the same of items; rows of `was`; nodes in `idle`.
MADE, FREE, LIVE, ITEMS, FREE_ITEM, REMEMBERED, IDLE = range(7)
#: The two sides: ways to those who want, from those who offer.
TO, FRM = range(2)
#: What a change is, in the first step and in the second.
NOTHING, ADDED, GROWN, COVERED, LESSENED, DELETED = range(6)
#: Bytes of a line of the processor's cache.
_LINE: Final = 64


class Arrays(NamedTuple):
    """A tree."""

    nodes: npt.NDArray[np.int64]
    keys: npt.NDArray[np.uint64]
    sub: npt.NDArray[np.uint64]
    items: npt.NDArray[np.int64]
    was: npt.NDArray[np.uint64]
    idle: npt.NDArray[np.int64]
    meta: npt.NDArray[np.int64]
    ways: npt.NDArray[np.uint64]


class Told(NamedTuple):
    """What a walk found."""

    #: The nodes concerned, each after those above it: the words of its key, and the length.
    places: npt.NDArray[np.uint64]
    #: Changes: a number among `places`, a switch's number, what to do first, what to do then.
    rows: npt.NDArray[np.uint64]
    #: For each change the wires of the switch between the steps, then those after both.
    masks: npt.NDArray[np.uint64]
    #: All wires in use at those nodes.
    used: npt.NDArray[np.uint64]


def aligned(shape: tuple[int, ...], kind: npt.DTypeLike) -> npt.NDArray[Any]:
    """A new array whose rows begin where a line of the cache does, if they are as long: each costs one line less."""
    size = math.prod(shape) * np.dtype(kind).itemsize
    room = np.empty(size + _LINE, np.uint8)
    begin = -room.ctypes.data % _LINE
    return room[begin : begin + size].view(kind).reshape(shape)


def empty(words: int) -> Arrays:
    """A tree of nothing but the root, with masks of so many words."""
    nodes = np.full((64, 8), -1, np.int64)
    nodes[0, LENGTH] = nodes[0, STALE] = 0
    meta = np.zeros(7, np.int64)
    meta[MADE] = meta[LIVE] = 1
    meta[FREE] = meta[FREE_ITEM] = -1
    return Arrays(
        nodes=nodes,
        keys=np.zeros((64, 2), np.uint64),
        sub=np.zeros((64, 2, words), np.uint64),
        items=np.zeros((64, 3), np.int64),
        was=np.zeros((64, 2, words), np.uint64),
        idle=np.zeros(64, np.int64),
        meta=meta,
        ways=np.zeros((64, 2, words), np.uint64),
    )
