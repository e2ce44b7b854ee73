"""The profile: everything about a workload that choosing a plan needs, in one pass over the events.

    moments     per dimension count, sum and sum of squares of values scaled to their domains   → EVS
    pairs       per two dimensions how many (event, filter) pairs match in both;
                its diagonal is how many match in one                                           → EMCS, CS
    workload    per dimension a histogram of matching subscriptions over the axis               → adaptive splits
    cells       events per dz of a few bits of the regular plan                                 → traffic, density

All are sums over events, so batches can be counted anywhere and their sums added.  Counts are whole numbers
and the same however the events are divided; the three sums of EVS are of doubles, whose last bits depend on the order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.content import EventBatch, Schema
from sievenet.index import Dz, Plan
from sievenet.tuning import dimensions
from sievenet.tuning.arrays import domains, each_filter, points
from sievenet.tuning.boxes import Asked, Groups, hold, places_of
from sievenet.tuning.covers import Interest
from sievenet.tuning.deliveries import Wants
from sievenet.tuning.similarity import Similarity
from sievenet.tuning.splits import edges, histogram, splits

__all__ = ["CELL_BITS", "Profile", "Profiling", "Sums", "profile_batches"]

_I64 = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]

#: Bits of the dz whose events are counted.
CELL_BITS: Final = 12


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """What is known of a workload."""

    schema: Schema
    events: int
    #: Filters, each subscription's counted on its own.
    filters: int
    #: (event, subscription) pairs that match.
    wanted: int
    moments: _Floats
    pairs: _I64
    #: Attribute → matching subscriptions per bin; attributes with an order only.
    workload: dict[str, _I64]
    #: Events per dz of the regular plan's first bits.
    cells: dict[Dz, int]

    @property
    def evs(self) -> _Floats:
        """Selectivity factors by variance."""
        return dimensions.evs(self.moments)

    @property
    def emcs(self) -> _Floats:
        """Selectivity factors by matches per dimension."""
        return dimensions.emcs(np.diagonal(self.pairs), self.events, self.filters)

    @property
    def cs(self) -> _Floats:
        """Selectivity factors by correlation."""
        return dimensions.cs(self.pairs, self.events, self.filters)

    def splits(self, bits: int, spread: float | None = None) -> dict[str, tuple[int | float, ...]]:
        """Split points that balance the workload, as `Plan.adaptive` takes them."""
        more: dict[str, Any] = {} if spread is None else {"spread": spread}
        found = {}
        for name, mass in self.workload.items():
            attribute = self.schema[name]
            borders = edges(attribute)
            found[name] = splits(mass.astype(np.float64), borders, bits, attribute.type != "float", **more)
        return found

    def report(self) -> dict[str, Any]:
        """The figures for people, by attribute."""
        names = list(self.schema.positions)
        columns = {"evs": self.evs, "emcs": self.emcs, "cs": self.cs}
        return {
            "events": self.events,
            "filters": self.filters,
            "wanted": self.wanted,
            "attributes": {
                name: {label: float(column[i]) for label, column in columns.items()} for i, name in enumerate(names)
            },
            "similarity": (self.pairs / max(self.events * self.filters, 1)).tolist(),
        }


class Sums:
    """What is counted over events; `concluded` says what follows."""

    def __init__(self, schema: Schema, filters: int) -> None:
        self.schema, self.filters = schema, filters
        #: The attributes with an order.
        self.ordered = [n for n in schema.positions if schema[n].type != "str" or schema[n].values is not None]
        self.borders = {name: edges(schema[name]) for name in self.ordered}
        count = len(schema.attributes)
        self.events = self.wanted = 0
        self.moments = np.zeros((3, count))
        self.pairs = np.zeros((count, count), np.int64)
        self.workload = {name: np.zeros(len(self.borders[name]) - 1, np.int64) for name in self.ordered}
        self.cells = np.zeros(1 << CELL_BITS, np.int64)

    def concluded(self) -> Profile:
        """The profile that has these sums."""
        # A schema of few values has shorter codes.
        length = min(CELL_BITS, max(r.length for r in Plan.regular(self.schema, CELL_BITS).regions))
        some = np.flatnonzero(self.cells).tolist()
        cells = {Dz(at >> (CELL_BITS - length), length): int(self.cells[at]) for at in some}
        both = np.maximum(self.pairs, self.pairs.T)
        return Profile(
            self.schema, self.events, self.filters, self.wanted, self.moments, both, dict(self.workload), cells
        )


class Profiling:
    """Subscriptions made ready; batch after batch is added to sums."""

    def __init__(self, asked: Asked) -> None:
        self.schema = schema = asked.schema
        self.filters = asked.filters
        self.low, self.high = domains(schema)
        rest = asked.rest()
        #: Subscriptions that are boxes: their bitmaps say who wants an event.
        self.exact = Groups(asked.boxes.first, asked.boxes.behind, asked.boxes.owners)
        self.similarity = Similarity(schema, each_filter(rest))
        self.others = Wants(schema, rest)
        self.plan = Plan.regular(schema, CELL_BITS)

    def empty(self) -> Sums:
        """Sums of no events."""
        return Sums(self.schema, self.filters)

    def add(self, batch: EventBatch, sums: Sums) -> None:
        """Count a batch."""
        from sievenet.tuning.kernels import pair_counts

        if not len(batch):
            return
        points_ = points(batch)
        places = places_of(batch)
        sums.events += len(batch)
        sums.moments += dimensions.moments(points_, self.low, self.high)
        matching = self.others.per_event(batch)
        for group, _, ranks in self.exact.ranked(places):
            pair_counts(ranks, group.bitmaps, group.starts, sums.pairs)
            hold(group, ranks, matching)
        sums.pairs += self.similarity.pairs(batch)
        sums.wanted += int(matching.sum())
        for name in sums.ordered:
            mass = histogram(points_[:, self.schema.positions[name]], matching, sums.borders[name])
            sums.workload[name] += mass.astype(np.int64)
        codes = self.plan.encode_batch(batch)
        sums.cells += np.bincount((codes.hi >> np.uint64(64 - CELL_BITS)).astype(np.int64), minlength=1 << CELL_BITS)


def profile_batches(batches: Iterable[EventBatch], schema: Schema, wanted: Sequence[Interest]) -> Profile:
    """The profile of some batches."""
    profiling = Profiling(Asked.of(schema, wanted))
    sums = profiling.empty()
    for batch in batches:
        profiling.add(batch, sums)
    return sums.concluded()
