"""The tables of the offloading benchmark: loads of range filters, and posets and forests filled with them."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sievenet.content import Attribute, Filter, Schema
from sievenet.content.valueset import ValueSet
from sievenet.routers.forest import Forest
from sievenet.routers.offload.tables import ForestTable, PosetTable
from sievenet.routers.poset import Poset

SCHEMAS = {d: Schema(f"range{d}", tuple(Attribute(f"x{i}", "float", lo=0.0, hi=1.0) for i in range(d))) for d in (1, 2)}
KINDS = ("uniform", "gaussian", "zipf")
Floats = npt.NDArray[np.float64]


def draw(kind: str, count: int, dimensions: int, seed: int) -> Floats:
    """Bounds [filter, dimension, 2] in [0, 1]."""
    rng = np.random.default_rng((seed, dimensions))
    shape = (count, dimensions, 2)
    if kind == "uniform":
        ends = rng.random(shape)
    elif kind == "gaussian":
        ends = np.clip(rng.normal(0.5, 0.15, shape), 0.0, 1.0)
    else:
        weights = np.arange(1, 1001) ** -0.9
        ends = (rng.choice(1000, shape, p=weights / weights.sum()) + rng.random(shape)) / 1000
    return np.sort(ends, axis=2)


def filters_of(ends: Floats) -> list[Filter]:
    dimensions = ends.shape[1]
    schema = SCHEMAS[dimensions]
    return [
        Filter(schema, {f"x{i}": ValueSet.interval(lo, hi) for i, (lo, hi) in enumerate(row)}) for row in ends.tolist()
    ]


def innermost(numbers: npt.NDArray[np.int64], lo: Floats, hi: Floats) -> npt.NDArray[np.int64]:
    """The intervals that no other one of these is inside of."""
    if not len(numbers):
        return numbers
    order = np.lexsort((hi, -lo))
    least = np.minimum.accumulate(hi[order])
    kept: npt.NDArray[np.int64] = numbers[order[np.append(True, hi[order][1:] < least[:-1])]]
    return kept


@dataclass
class Setting:
    """A filled table, and filters to insert. Filling is not timed: a poset is made from relations that are known."""

    kind: str
    dimensions: int
    forest: bool
    interfaces: int
    table: PosetTable | ForestTable
    new: list[Filter]

    @staticmethod
    def fill(
        kind: str, dimensions: int, size: int, sample: int, forest: bool, interfaces: int, index: bool = False
    ) -> Setting:
        """A table of that many filters; with fewer interfaces than filters, each has only what no other of its own
        covers.
        """
        ends = draw(kind, size + sample, dimensions, 7)
        filters = filters_of(ends)
        few = interfaces < size
        table: PosetTable | ForestTable
        if forest:
            table = ForestTable(eliminate=few, index=index)
        else:
            table = PosetTable(Poset(index=index), eliminate=few)
        lo, hi = ends[:size, :, 0], ends[:size, :, 1]
        if few or forest:
            for i, each in enumerate(filters[:size]):
                table.insert(each, i % interfaces)
        else:
            assert isinstance(table, PosetTable)
            # From the widest to the narrowest: nothing is ever covered by what comes later.
            wide = np.argsort((lo - hi).sum(axis=1), kind="stable")
            lo, hi = lo[wide], hi[wide]
            for i, each in enumerate(wide.tolist()):
                over = np.flatnonzero(((lo[:i] <= lo[i]) & (hi[:i] >= hi[i])).all(axis=1))
                over = innermost(over, lo[over, 0], hi[over, 0]) if dimensions == 1 else over
                preds, _ = table.poset.immediate(set(over.tolist()), set())
                table.poset.link(filters[each], preds, set()).subscribers[each] = None
        new = [f for f in filters[size:] if table.number(f) is None]
        return Setting(kind, dimensions, forest, interfaces, table, new)

    @property
    def structure(self) -> Forest | Poset:
        """What the table is over."""
        return self.table.forest if isinstance(self.table, ForestTable) else self.table.poset

    def forget_index(self) -> None:
        """From now on, search by walking."""
        self.structure.bounds = None

    def remove(self, filters: list[Filter] | None = None) -> None:
        """Take filters out again; all of the new ones, if none are named."""
        structure = self.structure
        for each in self.new if filters is None else filters:
            structure.unsubscribe(each, "new")

    def searching(self, count: int | None = None) -> float:
        """Processor seconds per filter of the plain insert; of so many of the new ones."""
        new = self.new[:count]
        begin = time.process_time()
        for each in new:
            self.table.insert(each, "new")
        spent = time.process_time() - begin
        self.remove(new)
        return spent / len(new)
