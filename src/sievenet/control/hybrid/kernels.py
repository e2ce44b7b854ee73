"""The inner loop of choosing, compiled: what each row of the model has left, in one pass down and one up."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sievenet.jit import compiled

__all__ = ["sums"]

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
