"""Candidates: plans of every kind for one workload, made from a profile, a sample and clusters of its subscriptions.

RI     regular: dimensions halved in turn
SI     selective: inside rectangles around clusters of subscriptions; an event has a code in each that holds it
SI1    the same with one code per event, that of the first rectangle that holds it: entries instead of copies
ASI    adaptive: subspaces, each split where its own workload is halved (`subspace`)
QI     axes split by quantiles of their own workload, the same for the whole axis (`splits`)
SI+QI  rectangles with such axes inside
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from sievenet.index import Plan
from sievenet.index.plan import Kind
from sievenet.tuning.clusters import Clustering, Rectangle
from sievenet.tuning.deliveries import Wants
from sievenet.tuning.judge import Judge
from sievenet.tuning.profile import Profile
from sievenet.tuning.splits import split_points
from sievenet.tuning.subspace import subspace_plan

__all__ = ["Candidates", "random_sets"]

#: Bits of split points on an adaptive axis.
_SPLIT_BITS: Final = 8

Splits = dict[str, tuple[int | float, ...]]


@dataclass(slots=True)
class Candidates:
    """Makes plans."""

    judge: Judge
    profile: Profile
    clusters: Clustering
    bits: int
    kind: Kind = "dz"
    #: Whether plans must take events and filters outside of all rectangles.
    rest: bool = True
    version: int = 1
    _matching: npt.NDArray[np.int64] | None = None
    _areas: dict[tuple[int, tuple[str, ...]], list[Rectangle]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """All dimensions."""
        return list(self.profile.schema.positions)

    @property
    def matching(self) -> npt.NDArray[np.int64]:
        """How many subscriptions want each event of the sample."""
        if self._matching is None:
            wants = Wants(self.profile.schema, self.judge.interests.wanted)
            self._matching = wants.per_event(self.judge.batch)
        return self._matching

    def regular(self, names: Sequence[str]) -> Plan:
        """RI on some dimensions."""
        ordered = [n for n in self.names if n in names]
        return Plan.regular(self.profile.schema, self.bits, ordered, self.kind, version=self.version)

    def quantiles(self, names: Sequence[str]) -> Plan:
        """QI on some dimensions."""
        found = {n: s for n, s in self.profile.splits(_SPLIT_BITS).items() if n in names}
        return Plan.adaptive(self.profile.schema, found, self.bits, names, self.kind, version=self.version)

    def subspaces(self, names: Sequence[str], levels: int) -> Plan:
        """ASI on some dimensions."""
        batch = self.judge.batch
        return subspace_plan(batch, self.matching, self.bits, levels, names, self.kind, version=self.version)

    def selective(self, names: Sequence[str], count: int, *, once: bool) -> tuple[Plan, int]:
        """SI or, with ``once``, SI1 on some dimensions, and the number of rectangles."""
        key = (count, tuple(names))
        if key not in self._areas:
            self._areas[key] = self.clusters(count, names)
        areas = self._areas[key]
        return self._combined(areas, names, None, once), len(areas)

    def split(self, plan: Plan) -> Plan:
        """The rectangles of a plan with axes split by quantiles inside."""
        areas = [{b.attribute: (b.lo, b.hi) for b in r.bounds} for r in plan.regions if not r.rest]
        found = [{n: s for n, s in each.items() if n in plan.dimensions} for each in self.splits(areas)]
        return self._combined(areas, plan.dimensions, found, plan.once)

    def splits(self, areas: Sequence[Mapping[str, tuple[float, float]]]) -> list[Splits]:
        """Split points that balance the workload of the sample inside each area."""
        return [split_points(self.judge.batch, self.matching, _SPLIT_BITS, bounds=area) for area in areas]

    def _combined(self, areas: Sequence[Any], names: Sequence[str], splits: Any, once: bool) -> Plan:
        whole = any(not area for area in areas)
        made = Plan.combined(
            self.profile.schema,
            self.bits,
            mbrs=areas,
            splits=splits,
            dimensions=list(names),
            kind=self.kind,
            rest=False,
            version=self.version,
        )
        if once:
            # The finest first: what several rectangles hold is encoded where most bits are left for it.
            order = sorted(made.regions, key=lambda r: r.share(made.schema))
            made = msgspec.structs.replace(made, regions=tuple(order), once=True)
        return made.with_rest() if self.rest and not whole else made


def random_sets(names: Sequence[str], seed: int = 0) -> list[tuple[str, ...]]:
    """RS: dimensions in a random order, the first n of them for every n; for comparison."""
    order = np.random.default_rng(seed).permutation(len(names))
    return [
        tuple(n for i, n in enumerate(names) if i in set(order[:size].tolist())) for size in range(1, len(names) + 1)
    ]
