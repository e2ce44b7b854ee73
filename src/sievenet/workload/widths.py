"""How subscriptions are shaped: which attributes they constrain, and how widely."""

from __future__ import annotations

import numpy as np

from sievenet.content import Schema
from sievenet.errors import InvalidInput
from sievenet.workload.draws import Floats
from sievenet.workload.interests import Bools, Interests
from sievenet.workload.space import ranges_at, whole

__all__ = ["check_constrained", "chosen_attributes", "interests_around", "widths"]


def check_constrained(constrained: tuple[int, int] | None, dimensions: int) -> tuple[int, int]:
    """How many attributes a subscription constrains, at least and at most; ``None`` is all."""
    least, most = constrained or (dimensions, dimensions)
    if not 1 <= least <= most <= dimensions:
        raise InvalidInput(expected=f"1 <= least <= most <= {dimensions}", got=(least, most), where="constrained")
    return least, most


def chosen_attributes(draws: Floats, counts: Floats, constrained: tuple[int, int]) -> Bools:
    """A random choice of attributes per row: the k smallest of the row's draws, k from ``counts``."""
    least, most = constrained
    wanted = least + np.minimum((counts * (most - least + 1)).astype(np.int64), most - least)
    ranks = np.argsort(np.argsort(draws, axis=1), axis=1)
    return np.asarray(ranks < wanted[:, None], np.bool_)


def widths(draws: Floats, selectivity: Floats) -> Floats:
    """Widths in the unit cube with the mean ``selectivity``: uniform, as spread as the unit allows."""
    slack = np.minimum(selectivity, 1.0 - selectivity)
    return np.asarray(selectivity + (2.0 * draws - 1.0) * slack, np.float64)


def interests_around(schema: Schema, centres: Floats, width: Floats, used: Bools) -> Interests:
    """Boxes of the given widths around centres, pushed inside the cube where they stick out."""
    start = np.clip(centres - width / 2.0, 0.0, 1.0 - width)
    lo, hi = np.empty_like(start), np.empty_like(start)
    for j, attribute in enumerate(schema.attributes):
        first, last = ranges_at(attribute, start[:, j], start[:, j] + width[:, j])
        least, most = whole(attribute)
        lo[:, j] = np.where(used[:, j], first, least)
        hi[:, j] = np.where(used[:, j], last, most)
    return Interests(schema, lo, hi, used)
