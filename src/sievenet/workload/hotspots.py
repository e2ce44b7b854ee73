"""The interest popularity model: everybody looks at the same few places.

Up to eight *hotspots* lie in the event space.  Every event and every subscription belongs
to one, the r-th with probability proportional to ``r ** -popularity`` (Zipf), and lies at
an offset from its centre.  The offset has these controls per dimension:

    spread        its standard deviation, as a part of the domain: the *variance factor*
    correlation   how much it follows the one factor that all dimensions of a row share;
                  a negative loading follows it inversely, 0 leaves the dimension alone
    selectivity   how wide a subscription is there, as a part of the domain

        density of one dimension's offset          two dimensions, loadings 0.9 and 0.9
                    │                                       ·  ::
                    ┃                                     · ::##:·
                   ▄█▄                                   ·:##::·
             ▁▁▂▂▄▄███▄▄▂▂▁▁                            ·::··

The distance from the centre is Zipf-distributed over `_RANKS` rings (exponent
``concentration``).  Correlation must not change that shape, so it is applied before it: a
row draws normal numbers ``z = loading * shared + sqrt(1 - loading**2) * own`` and each is
sent through the monotone map from normal to Zipf quantiles, one interpolated table for
all.  Rows that leave the domain are reflected at its border, so that no values pile up
there; a wide spread near a border is therefore narrower than asked for.

Cost: a handful of array operations; about three million values (rows times attributes) a second.

The PLEROMA evaluations use this model with eight hotspots, attributes in [0, 1023] or
[0, 4095], a variance factor that is uniform or random per dimension (`random_factor`) and
a correlation factor, and let hotspots shift by up to a tenth of the domain every 10,000
events.  Their texts leave the shape around a hotspot open; the one above is ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from sievenet.content import EventBatch, Schema
from sievenet.errors import InvalidInput
from sievenet.workload.draws import Floats, per_dimension, rows, zipf_weights
from sievenet.workload.drift import Drift, reflected
from sievenet.workload.interests import Interests
from sievenet.workload.space import batch_at, grid, slots
from sievenet.workload.widths import check_constrained, chosen_attributes, interests_around, widths

__all__ = ["MAX_HOTSPOTS", "Hotspots", "random_factor"]

MAX_HOTSPOTS: Final = 8
#: Rings around a centre; the k-th is hit with probability proportional to k ** -concentration.
_RANKS: Final = 1000

_EVENTS, _SUBSCRIPTIONS, _CENTRES, _DRIFT, _FACTOR, _BACKGROUND = range(6)

#: When a row happens, in seconds: one time for all rows or one per row.
Times = float | Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Hotspots:
    """Settings of the interest popularity workload, and the workload itself.

    >>> load = Hotspots(schema=grid(8, hi=4095), hotspots=8, spread=0.05, seed=3)
    >>> batch, wanted = load.events(1000), load.subscriptions(100)
    >>> float(wanted.matches_per_event(batch).mean()) > 0
    True
    """

    #: Any schema without free text.
    schema: Schema = field(default_factory=grid)
    #: How many, 1 to 8.
    hotspots: int = MAX_HOTSPOTS
    #: Zipf exponent between hotspots; 0 makes them equally popular.
    popularity: float = 1.0
    #: Zipf exponent of the distance from a hotspot; 0 makes it uniform, larger ones more peaked.
    concentration: float = 1.0
    #: Standard deviation around a hotspot as a part of the domain; one number or one per attribute.
    spread: float | tuple[float, ...] = 0.05
    #: Mean part of a constrained attribute's domain that a subscription wants; one number or one per attribute.
    selectivity: float | tuple[float, ...] = 0.1
    #: Loading on the shared factor, -1 to 1; one number or one per attribute.
    correlation: float | tuple[float, ...] = 0.0
    #: Part of the events that is spread evenly over the whole space instead.
    background: float = 0.0
    #: Least and most attributes that a subscription constrains; None is all of them.
    constrained: tuple[int, int] | None = None
    #: How the hotspots of the events move with time; None if they do not.
    drift: Drift | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for attribute in self.schema.attributes:
            slots(attribute)
        if not 1 <= self.hotspots <= MAX_HOTSPOTS:
            raise InvalidInput(expected=f"1 to {MAX_HOTSPOTS} hotspots", got=self.hotspots, where="hotspots")
        if not 0.0 <= self.background <= 1.0:
            raise InvalidInput(expected="a part in [0, 1]", got=self.background, where="background")
        for name in ("popularity", "concentration"):
            if not 0.0 <= getattr(self, name) <= 10.0:
                raise InvalidInput(expected="an exponent in [0, 10]", got=getattr(self, name), where=name)
        self._factors()
        check_constrained(self.constrained, self._dimensions)

    @property
    def _dimensions(self) -> int:
        return len(self.schema.attributes)

    def _factors(self) -> tuple[Floats, Floats, Floats]:
        d = self._dimensions
        return (
            per_dimension(self.spread, d, "spread", 0.0, 1.0),
            per_dimension(self.selectivity, d, "selectivity", 0.0, 1.0),
            per_dimension(self.correlation, d, "correlation", -1.0, 1.0),
        )

    def centres(self, now: float = 0.0) -> Floats:
        """Where the hotspots are at a time, as [hotspot, attribute] in the unit cube."""
        return np.asarray(self._centres(np.array([now]))[0], np.float64)

    def _centres(self, times: Floats) -> Floats:
        """Where the hotspots are at each time: [time, hotspot, attribute]."""
        h, d = self.hotspots, self._dimensions
        home = np.random.default_rng((self.seed, _CENTRES)).random((h, d))
        if self.drift is None:
            return np.broadcast_to(home, (len(times), h, d))
        moves = self.drift.path(self.seed, _DRIFT, times, h * d)
        return reflected(home + moves.reshape(-1, h, d))

    def events(self, count: int, *, start: int = 0, times: Times = 0.0) -> EventBatch:
        """Events ``start`` to ``start + count``; each is near where its hotspot is at its time."""
        d = self._dimensions
        which, normal, shared = rows(
            self.seed,
            _EVENTS,
            start,
            count,
            lambda rng, n: (rng.random(n), rng.standard_normal((n, d)), rng.standard_normal(n)),
        )
        places = self._near(which, normal, shared, times)
        if self.background:
            even, cube = rows(self.seed, _BACKGROUND, start, count, lambda rng, n: (rng.random(n), rng.random((n, d))))
            places = np.where((even < self.background)[:, None], cube, places)
        return batch_at(self.schema, places)

    def subscriptions(self, count: int, *, start: int = 0, times: Times = 0.0) -> Interests:
        """Subscriptions ``start`` to ``start + count``, around the hotspots as they are at ``times``."""
        d = self._dimensions
        which, normal, shared, sizes, keys, counts = rows(
            self.seed,
            _SUBSCRIPTIONS,
            start,
            count,
            lambda rng, n: (
                rng.random(n),
                rng.standard_normal((n, d)),
                rng.standard_normal(n),
                rng.random((n, d)),
                rng.random((n, d)),
                rng.random(n),
            ),
        )
        used = chosen_attributes(keys, counts, check_constrained(self.constrained, d))
        width = widths(sizes, self._factors()[1])
        return interests_around(self.schema, self._near(which, normal, shared, times), width, used)

    def _near(self, which: Floats, normal: Floats, shared: Floats, times: Times) -> Floats:
        """Positions in the unit cube around each row's hotspot."""
        spread, _, loading = self._factors()
        rank = np.searchsorted(np.cumsum(zipf_weights(self.hotspots, self.popularity))[:-1], which, side="right")
        mixed = loading * shared[:, None] + np.sqrt(1.0 - loading**2) * normal
        return reflected(self._places(rank, times) + spread * _zipf_of(self.concentration, mixed))

    def _places(self, rank: npt.NDArray[np.int64], times: Times) -> Floats:
        if isinstance(times, int | float):
            return self.centres(times)[rank]
        if times.shape != rank.shape:
            raise InvalidInput(expected=f"one time or {len(rank)} of them", got=times.shape, where="times")
        distinct, at = np.unique(times, return_inverse=True)
        return self._centres(distinct)[at, rank]


def random_factor(dimensions: int, lo: float, hi: float, seed: int = 0) -> tuple[float, ...]:
    """A factor that differs at random between dimensions, for ``spread``, ``selectivity`` or ``correlation``."""
    return tuple(np.random.default_rng((seed, _FACTOR)).uniform(lo, hi, dimensions).tolist())


def _zipf_of(concentration: float, normal: Floats) -> Floats:
    """Normal numbers turned into Zipf-distributed offsets of standard deviation 1, order kept."""
    grid_points, offsets = _quantiles(concentration)
    return np.interp(normal, grid_points, offsets)


@lru_cache(maxsize=16)
def _quantiles(concentration: float) -> tuple[Floats, Floats]:
    """The table behind `_zipf_of`."""
    weights = zipf_weights(_RANKS, concentration)
    rings = np.arange(_RANKS + 1) / _RANKS
    scale = math.sqrt(float(weights @ ((rings[1:] - 0.5 / _RANKS) ** 2 + 1.0 / (12 * _RANKS**2))))
    points = np.linspace(-6.0, 6.0, 24_001)
    # P(|Z| < |z|) is the part of rows nearer to the centre.
    nearer = np.array([math.erf(abs(z) / math.sqrt(2.0)) for z in points.tolist()])
    distance = np.interp(nearer, np.concatenate(([0.0], np.cumsum(weights))), rings)
    return points, np.sign(points) * distance / scale
