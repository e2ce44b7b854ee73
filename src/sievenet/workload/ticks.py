"""A synthetic market for the `stock` schema: no file needed, the same for the same seed.

Every symbol's price is a geometric random walk; a tick picks a symbol (Zipf), moves its
price and has a log-normal volume.  Prices are reflected, in their logarithm, at 1 and at
the domain's upper end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sievenet.content import Attribute, EventBatch, Schema, StringColumn
from sievenet.errors import InvalidInput
from sievenet.workload.draws import Floats, rows, zipf_weights
from sievenet.workload.drift import reflected
from sievenet.workload.interests import Interests
from sievenet.workload.samples import load_schema
from sievenet.workload.watch import watchers

__all__ = ["Ticks"]

_TICKS, _ANCHORS, _WATCHERS, _OPENING = range(4)
#: How likely a subscription constrains each attribute.
_ODDS = {"symbol": 0.7, "price": 0.7, "volume": 0.4}


def _stock() -> Schema:
    return load_schema("stock")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticks:
    """Settings of the synthetic market, and the market itself.

    >>> Ticks(seed=1).events(3)[0].schema.name
    'stock'
    """

    #: Attributes symbol (an enumeration), price (float) and volume (int).
    schema: Schema = field(default_factory=_stock)
    #: Zipf exponent of the symbols' popularity.
    popularity: float = 0.8
    #: Standard deviation of the logarithm of one move.
    volatility: float = 0.002
    #: Median volume of a tick.
    volume: float = 500.0
    seed: int = 0

    def __post_init__(self) -> None:
        types = {a.name: a.type for a in self.schema.attributes}
        if types != {"symbol": "str", "price": "float", "volume": "int"} or not self.schema["symbol"].values:
            raise InvalidInput(
                expected="a schema with symbol (enumeration), price (float), volume (int)", got=types, where="schema"
            )
        if not self.volatility >= 0 or not self.volume > 0:
            raise InvalidInput(
                expected="volatility >= 0 and volume > 0", got=(self.volatility, self.volume), where="ticks"
            )

    @property
    def _symbols(self) -> int:
        return len(self.schema["symbol"].values or ())

    def _popularity(self) -> Floats:
        """The symbols' weights; the order in which they are popular is not the alphabet's."""
        order = np.random.default_rng((self.seed, _OPENING, 1)).permutation(self._symbols)
        weights = np.empty(self._symbols)
        weights[order] = zipf_weights(self._symbols, self.popularity)
        return weights

    def opening(self) -> Floats:
        """The price of each symbol before the first tick."""
        draws = np.random.default_rng((self.seed, _OPENING)).uniform(0.2, 0.95, self._symbols)
        return np.asarray(np.exp(draws * math.log(self._price.hi or 0.0)), np.float64)

    @property
    def _price(self) -> Attribute:
        return self.schema["price"]

    def events(self, count: int, *, start: int = 0) -> EventBatch:
        """Ticks ``start`` to ``start + count``."""
        weights = self._popularity()
        which, moves, sizes = rows(
            self.seed,
            _TICKS,
            0,
            start + count,
            lambda rng, n: (rng.random(n), rng.standard_normal(n), rng.standard_normal(n)),
        )
        symbols = np.searchsorted(np.cumsum(weights)[:-1], which, side="right")
        walked = _sums_per_group(symbols, moves * self.volatility, self._symbols)
        top = math.log(self._price.hi or 0.0)
        prices = np.exp(top * reflected((np.log(self.opening())[symbols] + walked) / top))
        most = self.schema["volume"].hi or 0
        volumes = np.clip(np.round(self.volume * np.exp(1.2 * sizes)), 1, most).astype(np.int64)
        return EventBatch.of(
            self.schema,
            {
                "symbol": StringColumn(symbols[start:].astype(np.int32), self.schema["symbol"].values or ()),
                "price": np.minimum(np.round(prices[start:], 2), self._price.hi or 0.0),
                "volume": volumes[start:],
            },
        )

    def subscriptions(self, count: int, *, start: int = 0) -> Interests:
        """Subscriptions ``start`` to ``start + count``."""
        weights = self._popularity()
        which, near, size = rows(
            self.seed,
            _ANCHORS,
            start,
            count,
            lambda rng, n: (rng.random(n), rng.standard_normal(n), rng.standard_normal(n)),
        )
        symbols = np.searchsorted(np.cumsum(weights)[:-1], which, side="right")
        anchors = {
            "price": self.opening()[symbols] * np.exp(0.05 * near),
            "volume": self.volume * np.exp(1.2 * size),
        }
        return watchers(self.schema, self.seed, _WATCHERS, start, symbols, anchors, _ODDS, weights)


def _sums_per_group(groups: npt.NDArray[np.int64], values: Floats, count: int) -> Floats:
    """Running sums of values, separately for each group, in the rows' order."""
    order = np.argsort(groups, kind="stable")
    sums = np.cumsum(values[order])
    sizes = np.bincount(groups, minlength=count)
    before = np.concatenate(([0.0], sums))[np.cumsum(sizes) - sizes]
    result = np.empty_like(values)
    result[order] = sums - np.repeat(before, sizes)
    return result
