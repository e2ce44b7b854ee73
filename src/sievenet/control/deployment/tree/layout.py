"""Layout: a deployed table with all that it follows from, as one prefix tree in arrays.

A node stands for a dz that has an entry in the ideal table, or a merge, or at which two such part; there is none in
between.  Node 0 is the dz around everything.

    nodes   per node: the one above, the two below, its length, and the numbers below
    keys    per node: its dz, left-aligned in two words
    masks   per node: sets of ports, a bit each (which bit is which port, `deployment.PortSets` knows)
    best    per node: what the cheapest merge below it costs; the last columns of `nodes`, as one number
    changed nodes of which the table was another when somebody last asked
    meta    how many nodes there are, where the list of free ones begins, and such

Columns of `nodes`:

    WANTED   whether there is an entry in the ideal table, with the ports WANT
    MERGE    whether there is a merge, to which entries with the ports INNER belong; MERGES counts those at and below
    GIVEN    whether there is an entry in the merged table, with the ports GIVES
    WHOLE    whether entries cover the dz completely: 1 with one set of ports (AS_ONE) everywhere, 2 with several
    THERE    whether there is an entry in the deployed table, with the ports AS_ONE; ENTRIES counts those at and below
    CHANGED  whether the node is in `changed`; then BEFORE and WAS are what THERE and AS_ONE were
    DIRTY    whether `best` is out of date

A request comes to trees that no cache of the processor has any more, so a row of `nodes` is one line of such a cache.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Arrays", "empty", "roomy", "wider"]

# Columns of `nodes`.
PARENT, ZERO, ONE, LENGTH, WANTED, MERGE, MERGES, GIVEN, WHOLE, THERE, ENTRIES, CHANGED, BEFORE, DIRTY = range(14)
COLUMNS = 16
# The column of `best` that is not a part of the others.
BEST = 7
# Columns of `masks`.
WANT, INNER, GIVES, AS_ONE, WAS = range(5)
SETS = 5
# What `meta` counts: nodes made, the first free one, nodes in `changed`, entries of the ideal table, and those that the
# switch had when changes were last taken.
MADE, FREE, NOTED, WANTS, TOLD = range(5)
NUMBERS = 5
_LINE = 64
#: What a place says: addresses of the arrays, nodes there is room for, words of a set, the address of ports by bit and
#: how many these are.
NODES, KEYS, MASKS, CHEAPEST, NODES_CHANGED, COUNTS, ROOM, WORDS, PORTS, KNOWN = range(10)
PLACE = 10
#: What becomes of a switch (`STATE`): it is told what follows, and was merged or not; so much was merged that some can
#: be undone (nothing is told then); its table is not here. Further the most entries on the way, and where its rows
#: begin and end.
FOLLOWS, MERGED, TOO_FAR, ELSEWHERE = range(4)
STATE, MOST, START, END = range(4)
#: Who has how much of a switch (`rooms`): columns per switch, what stands for a capacity where there is no limit, and
#: columns per holder and switch.
CAPACITY, SHARES, HELD = range(3)
NO_LIMIT = -1
SHARE, HOLDS = range(2)
#: What a row of changes says.
ADD, MODIFY, DELETE, OPEN, CLOSE = range(5)


class Arrays(NamedTuple):
    """A tree."""

    nodes: npt.NDArray[np.int32]
    keys: npt.NDArray[np.uint64]
    masks: npt.NDArray[np.uint64]
    best: npt.NDArray[np.float64]
    changed: npt.NDArray[np.int64]
    meta: npt.NDArray[np.int64]


def empty(hi: int, lo: int, length: int, words: int = 1) -> Arrays:
    """A tree of nothing but the dz around everything."""
    nodes = _lines(16)
    nodes[0, [PARENT, ZERO, ONE]] = -1
    nodes[0, [LENGTH, DIRTY]] = length, 1
    keys = np.zeros((16, 2), np.uint64)
    keys[0] = hi, lo
    masks = np.zeros((16, SETS, words), np.uint64)
    meta = np.array([1, -1, 0, 0, 0], np.int64)
    return Arrays(nodes, keys, masks, nodes.view(np.float64), np.zeros(16, np.int64), meta)


def _lines(size: int) -> npt.NDArray[np.int32]:
    """Rows of zeros, each a line of the processor's caches."""
    room = np.zeros((size + 1) * _LINE, np.uint8)
    skipped = -room.ctypes.data % _LINE
    return room[skipped : skipped + size * _LINE].view(np.int32).reshape(size, COLUMNS)


def roomy(a: Arrays, more: int) -> Arrays:
    """The tree with room for so many more nodes."""
    size = int(a.meta[MADE]) + more
    if len(a.nodes) >= size:
        return a
    size = max(size, 2 * len(a.nodes))
    more = size - len(a.nodes)
    nodes = _lines(size)
    nodes[: len(a.nodes)] = a.nodes
    keys, masks = (np.pad(each, [(0, more)] + [(0, 0)] * (each.ndim - 1)) for each in (a.keys, a.masks))
    return Arrays(nodes, keys, masks, nodes.view(np.float64), np.pad(a.changed, (0, more)), a.meta)


def wider(a: Arrays, words: int) -> Arrays:
    """The tree with sets of so many words."""
    more = words - a.masks.shape[2]
    return a._replace(masks=np.pad(a.masks, ((0, 0), (0, 0), (0, more)))) if more > 0 else a
