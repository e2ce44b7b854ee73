"""The inner loops of choosing, compiled: passes down and up the rows of the model, in which parents come first."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sievenet.jit import compiled

__all__ = ["apart", "sums"]

_Bools = npt.NDArray[np.bool_]
_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]


@compiled
def sums(parent: _Ints, link: _Floats, hosts: _Floats, wanted: _Floats, selected: _Bools) -> tuple[_Floats, _Floats]:
    """Benefit and penalty of each row when these are selected; parents come before their children."""
    count = len(parent)
    below = np.zeros(count, np.bool_)
    benefit, penalty = np.zeros(count), np.zeros(count)
    for row in range(count):
        above = parent[row]
        below[row] = selected[row] or (above >= 0 and below[above])
    for row in range(count - 1, -1, -1):
        above = parent[row]
        if not below[row]:
            benefit[row] += hosts[row]
            penalty[row] += wanted[row]
        if above >= 0 and not below[above]:
            benefit[above] += benefit[row] + link[row]
            penalty[above] += penalty[row]
    return benefit, penalty


@compiled
def apart(parent: _Ints, rows: _Ints, starts: _Ints, pairs: _Ints) -> _Ints:
    """Of pairs in the order of their worth those that have no row above or below one of a pair before them.

    The rows of pair i are ``rows[starts[i]:starts[i + 1]]``.
    """
    taken, above = np.zeros(len(parent), np.bool_), np.zeros(len(parent), np.bool_)
    found = np.empty(len(pairs), np.int64)
    count = 0
    for pair in pairs:
        free = True
        for i in range(starts[pair], starts[pair + 1]):
            row = rows[i]
            free = free and not above[row]
            while free and row >= 0:
                free = not taken[row]
                row = parent[row]
        if not free:
            continue
        found[count] = pair
        count += 1
        for i in range(starts[pair], starts[pair + 1]):
            taken[rows[i]] = True
            row = parent[rows[i]]
            while row >= 0 and not above[row]:
                above[row] = True
                row = parent[row]
    return found[:count]
