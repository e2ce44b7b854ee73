"""Covering: a filter becomes at most so many entries that enclose it.

A filter is a box of grid coordinates per region (or a few boxes, when a constraint is a
union).  One entry can hold, on each axis, an *atom*; as dz the axes' bits come in the
plan's order, as cells each axis has a prefix of its own, whatever the others do:

    binary     aligned blocks                 |···+···|···+···|      [4k, 4k+4), [2k, 2k+2) …
    Gray       and pairs of neighbours        |·······+·······|
                across any boundary               |===+===|          one entry, one bit masked

In Gray code neighbours differ in one bit.  Masking that bit joins two neighbouring blocks of
equal size, so atoms are all stretches of 2**m coordinates that start at a multiple of
2**(m-1).  A stretch that lies across a large boundary, say the middle, needs the whole axis
as one aligned block, but at most four times its own length as an atom, on average twice.
In d dimensions that factor counts d times: this is why cells beat dz, and Gray-coded cells
beat plain ones (figures in docs/topics/index.md).

The search is best-first.  Start with the smallest entry around all boxes; then again and
again split the piece whose split saves most, until the budget is spent:

    ┌───────────────┐        ┌───────┬───────┐       what is saved is volume, or events of a
    │   ▓▓▓▓▓▓▓     │        │   ▓▓▓▓│▓▓▓    │       sample when a density is given
    │   ▓▓▓▓▓▓▓     │   →    │   ▓▓▓▓├───┐   │
    │               │        └───┬───┘▓▓▓│   │       each part shrinks to the smallest entry
    └───────────────┘                └───┘           around what it must hold, at no cost

A plan may have a *grain*, the price of an entry: a split that saves less ends the search, and then a filter may have
several times as many entries as the budget.  Large filters get many and small ones few, and all together waste far less
with as many (`grain` finds one).  With a price, splits of cells are judged by what they lead to as well (`outlook`).

Cells are split on the axis that saves most, at the best of up to 16 places; dz at their
next bit.  Each part lies inside the piece it comes from, and a larger budget continues the
same sequence of splits: so covers for growing budgets are nested, and never get worse.
Pieces have disjoint targets but, as Gray atoms, may overlap; entries that another covers
are dropped at the end.

Cost: per split two assessments of ``axes · 16`` cuts, about 0.1 ms for 32 entries in 10
dimensions; a density of n events adds ``n · axes`` per assessment.  With a grain some 10 µs per entry in 5 dimensions.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from sievenet.content import Filter, Subscription
from sievenet.errors import PlanError
from sievenet.index.cell import Cell
from sievenet.index.cellset import CellSet
from sievenet.index.code import CODE_BITS, joined
from sievenet.index.cover.boxes import Boxes, boxes_of
from sievenet.index.dz import Dz
from sievenet.index.dzset import DzSet

if TYPE_CHECKING:
    from sievenet.index.density import Density
    from sievenet.index.plan import Plan

__all__ = ["Boxes", "boxes_of", "cover", "cover_pieces", "cover_words"]


def cover(
    plan: Plan,
    wanted: Filter | Subscription,
    budget: int,
    weights: Density | None = None,
    kind: Literal["dz", "cells"] = "dz",
) -> DzSet | CellSet:
    """At most ``budget`` dz or cells that hold the codes of every event that matches."""
    rows = cover_words(plan, boxes_of(plan, wanted), budget, weights, kind)
    budget = plan.most(budget)
    shift = CODE_BITS - plan.bits
    cells = [Cell(joined(vh, vl) >> shift, joined(mh, ml) >> shift, plan.bits) for vh, vl, mh, ml in rows.tolist()]
    if kind == "cells":
        if len(cells) > budget:
            return CellSet(_hulls(cells, budget), plan.bits)
        return CellSet._canonical(cells, plan.bits)
    strings = [cell.dz for cell in cells]
    return DzSet(_prefixes(strings, budget) if len(strings) > budget else strings)


def cover_words(
    plan: Plan, boxes: Boxes, budget: int, weights: Density | None = None, kind: Literal["dz", "cells"] = "dz"
) -> npt.NDArray[np.uint64]:
    """A cover as rows of value and mask words, left-aligned in 128 bits.

    There are more rows than the budget only if the boxes lie in more regions than that.
    """
    from sievenet.index.cover import kernels

    region, start, size = cover_pieces(plan, boxes, budget, weights, kind)
    layout = boxes.layout
    rows: npt.NDArray[np.uint64] = kernels.emit(
        region, start, size, layout.bits, layout.positions, layout.bases, plan.gray
    )
    return rows


def cover_pieces(
    plan: Plan, boxes: Boxes, budget: int, weights: Density | None = None, kind: Literal["dz", "cells"] = "dz"
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """A cover in grid coordinates: the region of every entry, and start and size (log2) of its atoms."""
    from sievenet.index.plan import MAX_BUDGET

    if not 1 <= budget <= MAX_BUDGET:
        raise PlanError(expected=f"a budget of 1 to {MAX_BUDGET} entries", got=budget, where="cover")
    if weights is not None and weights.plan is not plan and weights.plan != plan:
        raise PlanError("Expected weights encoded by the same plan", where="cover")
    budget = plan.most(budget)
    layout = boxes.layout
    if weights is None:
        sample, offsets = layout.no_sample
    else:
        sample, offsets = weights.sample(layout.bits.shape[1])
    if kind == "cells":
        from sievenet.index.cover.cells import cover_cells

        return cover_cells(
            boxes.lo,
            boxes.hi,
            boxes.offsets,
            layout.bits,
            layout.shares,
            plan.gray,
            budget,
            sample,
            offsets,
            plan.grain,
        )
    from sievenet.index.cover.dz import cover_dz

    return cover_dz(
        boxes.lo,
        boxes.hi,
        boxes.offsets,
        layout.bits,
        layout.orders,
        layout.lengths,
        layout.shares,
        budget,
        sample,
        offsets,
        plan.grain,
    )


def _prefixes(strings: list[Dz], budget: int) -> list[Dz]:
    """More regions than entries: join neighbours by their common prefix, smallest result first."""
    pieces = list(DzSet(strings))
    while len(pieces) > budget:
        joined = [a.common_prefix(b) for a, b in itertools.pairwise(pieces)]
        best = max(range(len(joined)), key=lambda i: joined[i].length)
        pieces = list(DzSet([*pieces, joined[best]]))
    return pieces


def _hulls(cells: list[Cell], budget: int) -> list[Cell]:
    """The same for cells: join neighbours by the smallest cell around both."""
    pieces = sorted(cells)
    while len(pieces) > budget:
        joined = [a.hull(b) for a, b in itertools.pairwise(pieces)]
        best = max(range(len(joined)), key=lambda i: joined[i].checked)
        pieces[best : best + 2] = [joined[best]]
    return pieces
