"""Density: where events are, from a sample.

A sample of events, encoded by the plan and sorted, answers how much of the traffic a dz
or cell would get: a dz is an interval of codes, so two binary searches; a cell is looked
for inside the interval of its leading bits.  `Plan.cover` takes a density as ``weights``
and then spends its entries where traffic is, not where volume is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sievenet.content import EventBatch
from sievenet.index.cell import Cell
from sievenet.index.cellset import CellSet
from sievenet.index.code import CODE_BITS, split
from sievenet.index.codes import Codes
from sievenet.index.dz import Dz
from sievenet.index.dzset import DzSet
from sievenet.index.plan import Plan

__all__ = ["Density"]


@dataclass(frozen=True, slots=True, eq=False)
class Density:
    """A sample of events as a plan encodes them."""

    plan: Plan
    #: How many events were sampled (one may have several codes, or none).
    events: int
    #: The codes, ascending.
    codes: Codes
    #: Per region the grid coordinates of its sampled events, one row each.
    coordinates: tuple[npt.NDArray[np.int64], ...]

    @staticmethod
    def of(plan: Plan, batch: EventBatch, limit: int = 4096, seed: int = 0) -> Density:
        """The density of a batch; of a seeded sample of ``limit`` events if it has more."""
        if len(batch) > limit:
            chosen = np.random.default_rng(seed).choice(len(batch), limit, replace=False)
            batch = batch.take(np.sort(chosen))
        grids = []
        for region, rows in plan.encoder.members(batch):
            part = batch if rows is None else batch.take(rows)
            columns = [region.coordinates(i, part.columns[c]) for i, c in enumerate(region.columns)]
            grids.append((region, np.array(columns, np.int64).reshape(len(columns), len(part)).T.copy()))
        ordered = tuple(next(g for r, g in grids if r is region) for region in plan.encoder.regions)
        return Density(plan, len(batch), plan.encode_batch(batch).sorted(), ordered)

    def sample(self, axes: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The coordinates of all regions as one array of ``axes`` columns, and where each region's begin."""
        offsets = np.zeros(len(self.coordinates) + 1, np.int64)
        np.cumsum([len(p) for p in self.coordinates], out=offsets[1:])
        every = np.zeros((int(offsets[-1]), axes), np.int64)
        for part, at in zip(self.coordinates, offsets.tolist(), strict=False):
            every[at : at + len(part), : part.shape[1]] = part
        return every, offsets

    def weight(self, where: Dz | Cell | DzSet | CellSet) -> float:
        """The share of sampled codes in a dz, a cell or a union of them."""
        if not len(self.codes):
            return 0.0
        return self.count(where) / len(self.codes)

    def count(self, where: Dz | Cell | DzSet | CellSet) -> int:
        """How many sampled codes a dz, a cell or a union of them holds."""
        if isinstance(where, Dz):
            first, behind = self._interval(where)
            return behind - first
        if isinstance(where, DzSet):
            return sum(self.count(dz) for dz in where)
        if isinstance(where, CellSet):
            return int(where.matches(self.codes).sum())
        from sievenet.index.kernels import count_masked

        first, behind = self._interval(where.enclosing_dz)
        value_hi, value_lo, mask_hi, mask_lo = (np.uint64(w) for w in where.words())
        codes = self.codes.take(slice(first, behind))
        return int(count_masked(codes.hi, codes.lo, value_hi, value_lo, mask_hi, mask_lo))

    def _interval(self, dz: Dz) -> tuple[int, int]:
        lo, hi = dz.interval(CODE_BITS)
        return self._rank(lo), self._rank(hi)

    def _rank(self, code: int) -> int:
        """How many sampled codes are below a number of 128 bits."""
        if code >> CODE_BITS:
            return len(self.codes)
        high, low = map(np.uint64, split(code))
        first = int(np.searchsorted(self.codes.hi, high, "left"))
        behind = int(np.searchsorted(self.codes.hi, high, "right"))
        return first + int(np.searchsorted(self.codes.lo[first:behind], low, "left"))
