"""The knapsack: which items, each with a value and a weight, are worth most within a limit.

Up to `EXACT` items the answer is exact: branch and bound, where the bound is what the rest would be worth if the last
item could be cut.  With more, weights are rounded up to `STEPS` steps of the limit and the table is filled (dynamic
programming): never too heavy, and nearly the best.

Pure; items of no value are left out, those of no weight are taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

__all__ = ["EXACT", "knapsack"]

#: Items up to which the answer is exact.
EXACT: Final = 24
#: Steps of the limit for more items than that.
STEPS: Final = 4096


def knapsack(values: Sequence[float], weights: Sequence[float], limit: float) -> list[int]:
    """The numbers of the items to take, ascending.

    >>> knapsack([60, 100, 120], [10, 20, 30], 50)
    [1, 2]
    """
    taken = [i for i, (v, w) in enumerate(zip(values, weights, strict=True)) if v > 0 and w <= 0]
    open_ = [i for i, (v, w) in enumerate(zip(values, weights, strict=True)) if v > 0 and 0 < w <= limit]
    found = _exact(open_, values, weights, limit) if len(open_) <= EXACT else _table(open_, values, weights, limit)
    return sorted(taken + found)


def _exact(items: list[int], values: Sequence[float], weights: Sequence[float], limit: float) -> list[int]:
    order = sorted(items, key=lambda i: values[i] / weights[i], reverse=True)
    best: tuple[float, list[int]] = (0.0, [])

    def bound(at: int, left: float) -> float:
        """The most that the rest can add, if one item may be cut."""
        more = 0.0
        for i in order[at:]:
            if weights[i] > left:
                return more + values[i] * left / weights[i]
            left -= weights[i]
            more += values[i]
        return more

    def go(at: int, left: float, value: float, chosen: list[int]) -> None:
        nonlocal best
        if value > best[0]:
            best = value, list(chosen)
        if at == len(order) or value + bound(at, left) <= best[0]:
            return
        item = order[at]
        if weights[item] <= left:
            go(at + 1, left - weights[item], value + values[item], [*chosen, item])
        go(at + 1, left, value, chosen)

    go(0, limit, 0.0, [])
    return best[1]


def _table(items: list[int], values: Sequence[float], weights: Sequence[float], limit: float) -> list[int]:
    steps = [int(np.ceil(weights[i] / limit * STEPS)) for i in items]
    best = np.zeros(STEPS + 1)
    took = np.zeros((len(items), STEPS + 1), np.bool_)
    for row, (item, step) in enumerate(zip(items, steps, strict=True)):
        if step <= STEPS:
            more = best[: STEPS + 1 - step] + values[item]
            took[row, step:] = more > best[step:]
            best[step:] = np.maximum(best[step:], more)
    left, found = STEPS, []
    for row in range(len(items) - 1, -1, -1):
        if took[row, left]:
            found.append(items[row])
            left -= steps[row]
    return found
