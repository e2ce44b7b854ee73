"""What people ask of a market: a few symbols, a band of prices, enough volume.

Each subscription starts from an *anchor*, an actual quote: so popular symbols are asked
for often, and prices where prices are.  Around it:

    symbol    the anchor's and up to four others, rather few, popular ones rather
    prices    a band of a few percent around the anchor's
    volume    at least a part of the anchor's

A subscription always wants its anchor.  Which attributes it constrains is drawn: at least two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from sievenet.content import Schema
from sievenet.workload.draws import Floats, rows
from sievenet.workload.interests import Choices, Interests
from sievenet.workload.space import whole

__all__ = ["watchers"]

_MOST_SYMBOLS: Final = 5
#: Attributes that every subscription constrains at least.
_LEAST: Final = 2
#: Half-width of a band of prices, as a part of the price: at least and at most.
_BAND: Final = (0.005, 0.06)


def watchers(
    schema: Schema,
    seed: int,
    stream: int,
    start: int,
    symbols: npt.NDArray[np.int64],
    anchors: Mapping[str, Floats],
    odds: Mapping[str, float],
    weights: Floats,
) -> Interests:
    """Subscriptions ``start …`` around anchors: per row a symbol's ordinal and a value per number attribute.

    ``odds`` gives the probability that an attribute is constrained, ``weights`` the popularity of symbols.
    """
    count, names = len(symbols), [a.name for a in schema.attributes]
    d = len(names)
    chosen, wide, others, number = rows(
        seed,
        stream,
        start,
        count,
        lambda rng, n: (
            rng.random((n, d)),
            rng.random((n, d)),
            rng.choice(len(weights), size=(n, _MOST_SYMBOLS - 1), p=weights),
            rng.integers(1, _MOST_SYMBOLS, size=(2, n), endpoint=True).min(axis=0),
        ),
    )
    chance = np.array([odds[name] for name in names])
    # Whoever would constrain too little constrains what was nearest to being chosen.
    nearness = chosen / chance
    used = (nearness < 1.0) | (nearness <= np.sort(nearness, axis=1)[:, _LEAST - 1, None])
    lo, hi = np.empty((count, d)), np.empty((count, d))
    choices: dict[int, Choices] = {}
    for j, attribute in enumerate(schema.attributes):
        least, most = whole(attribute)
        lo[:, j], hi[:, j] = least, most
        on = used[:, j]
        if attribute.type == "str":
            sets = np.column_stack([symbols, others])
            choices[j] = _sets(sets, np.where(on, number, 0), attribute.values or ())
            continue
        anchor = anchors[attribute.name][on]
        if attribute.type == "int":
            lo[on, j] = np.clip(np.floor(anchor * (0.3 + 0.7 * wide[on, j])), least, most)
        else:
            half = anchor * (_BAND[0] + (_BAND[1] - _BAND[0]) * wide[on, j])
            lo[on, j] = np.clip(np.round(anchor - half, 2), least, most)
            hi[on, j] = np.clip(np.round(anchor + half, 2), least, most)
    return Interests(schema, lo, hi, used, choices)


def _sets(codes: npt.NDArray[np.int64], number: npt.NDArray[np.int64], categories: tuple[str, ...]) -> Choices:
    """The first ``number`` codes of each row, each once."""
    kept = np.arange(codes.shape[1]) < number[:, None]
    for k in range(1, codes.shape[1]):
        kept[:, k] &= ~(codes[:, :k] == codes[:, k : k + 1]).any(axis=1)
    offsets = np.concatenate(([0], np.cumsum(kept.sum(axis=1))))
    return Choices(offsets, codes[kept].astype(np.int32), categories)
