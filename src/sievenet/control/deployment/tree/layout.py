"""Layout: a deployed table with all that it follows from, as one prefix tree in arrays.

A node stands for a dz that has an entry in the ideal table, or a merge, or at which two such part; there is none in
between.  Node 0 is the dz around everything.

    nodes   per node: the one above, the two below, its length, and the numbers below
    keys    per node: its dz, left-aligned in two words
    masks   per node: sets of ports, a bit each (which bit is which port, `deployment.PortSets` knows)
    best    per node: what the cheapest merge below it costs
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
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Arrays", "empty", "roomy", "wider"]

# Columns of `nodes`.
PARENT, ZERO, ONE, LENGTH, WANTED, MERGE, MERGES, GIVEN, WHOLE, THERE, ENTRIES, CHANGED, BEFORE, DIRTY = range(14)
COLUMNS = 14
# Columns of `masks`.
WANT, INNER, GIVES, AS_ONE, WAS = range(5)
SETS = 5
# What `meta` counts: nodes made, the first free one, nodes in `changed`, entries of the ideal table.
MADE, FREE, NOTED, WANTS = range(4)
#: What a row of changes says.
ADD, MODIFY, DELETE, OPEN, CLOSE = range(5)


class Arrays(NamedTuple):
    """A tree."""

    nodes: npt.NDArray[np.int64]
    keys: npt.NDArray[np.uint64]
    masks: npt.NDArray[np.uint64]
    best: npt.NDArray[np.float64]
    changed: npt.NDArray[np.int64]
    meta: npt.NDArray[np.int64]


def empty(hi: int, lo: int, length: int, words: int = 1) -> Arrays:
    """A tree of nothing but the dz around everything."""
    nodes = np.zeros((16, COLUMNS), np.int64)
    nodes[0, [PARENT, ZERO, ONE]] = -1
    nodes[0, [LENGTH, DIRTY]] = length, 1
    keys = np.zeros((16, 2), np.uint64)
    keys[0] = hi, lo
    masks = np.zeros((16, SETS, words), np.uint64)
    return Arrays(nodes, keys, masks, np.full(16, np.inf), np.zeros(16, np.int64), np.array([1, -1, 0, 0], np.int64))


def roomy(a: Arrays, more: int) -> Arrays:
    """The tree with room for so many more nodes."""
    size = int(a.meta[MADE]) + more
    if len(a.nodes) >= size:
        return a
    size = max(size, 2 * len(a.nodes))
    more = size - len(a.nodes)
    grown = {name: np.pad(each, [(0, more)] + [(0, 0)] * (each.ndim - 1)) for name, each in a._asdict().items()}
    return Arrays(**{**grown, "meta": a.meta})


def wider(a: Arrays, words: int) -> Arrays:
    """The tree with sets of so many words."""
    more = words - a.masks.shape[2]
    return a._replace(masks=np.pad(a.masks, ((0, 0), (0, 0), (0, more)))) if more > 0 else a
