"""Cover boxes by dz and by cells: volume covered over volume wanted, and time, against the budget."""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt

from benchmarks.harness import Bench, Report, most
from sievenet.content import Attribute, Filter, Schema, ValueSet
from sievenet.index import Plan
from sievenet.index.cover import boxes_of, cover_pieces
from sievenet.jit import compiled

_Ints = npt.NDArray[np.int64]

#: What it should come to.
GOALS = {
    "worst_over_prototype_5d": "<= 1",
    "worst_over_prototype_8d": "<= 1",
    "cells_over_dz_5d_k8": "<= 1/15",
    "cells_over_dz_5d_k32": "<= 1/15",
    "ms_per_filter_k32": "<= 1",
}

BUDGETS = (1, 2, 4, 8, 16, 32, 64, 128)
#: Sides of the random boxes relative to the domain.  Those for 5 and 8 dimensions are chosen so
#: that plain dz and plain cells at 60 bits come close to the figures of the prototype.
SIDES = {2: (0.05, 0.3), 5: (0.05, 0.3), 8: (0.1, 0.5), 10: (0.1, 0.5)}
#: The prototype at 60 bits, means over random boxes, for budgets 1, 4, 8, 32, 128.
PROTOTYPE = {
    (5, "dz"): (3965, 406, 176, 44, 9.1),
    (5, "cells"): (296, 20, 8.9, 2.8, 1.5),
    (8, "dz"): (17092, 7303, 3396, 1229, 258),
    (8, "cells"): (1125, 125, 56, 15, 5.2),
}
PROTOTYPE_BUDGETS = (1, 4, 8, 32, 128)
SIDE = (1 << 62) - 1
#: How filters become entries: name, kind of plan, Gray-coded.
WAYS = (("dz", "dz", False), ("plain cells", "cells", False), ("cells", "cells", True))


def random_boxes(dimensions: int, count: int, seed: int = 7) -> list[Filter]:
    """Boxes with uniform sides at uniform places."""
    rng = np.random.default_rng(seed)
    schema = Schema("space", tuple(Attribute(f"a{i}", "int", lo=0, hi=SIDE) for i in range(dimensions)))
    low, high = SIDES[dimensions]
    found = []
    for _ in range(count):
        side = rng.uniform(low, high, dimensions)
        at = rng.random(dimensions) * (1 - side)
        spans = {
            f"a{i}": ValueSet.interval(int(a * SIDE), int((a + s) * SIDE))
            for i, (a, s) in enumerate(zip(at.tolist(), side.tolist(), strict=True))
        }
        found.append(Filter(schema, spans))
    return found


@compiled
def union_volume(start: _Ints, size: _Ints, bits: _Ints) -> float:
    """The volume of a union of pieces of one region: each without those before it."""
    n, axes = start.shape
    room = 4096
    below = np.empty((room, axes), np.int64)
    above = np.empty((room, axes), np.int64)
    at = np.empty(room, np.int64)
    x = np.empty(axes, np.int64)
    y = np.empty(axes, np.int64)
    total = 0.0
    for i in range(n):
        for d in range(axes):
            below[0, d] = start[i, d]
            above[0, d] = start[i, d] + (1 << size[i, d])
        at[0] = 0
        top = 1
        while top:
            top -= 1
            x[:] = below[top]
            y[:] = above[top]
            j = at[top]
            while j < i:
                apart = False
                for d in range(axes):
                    if start[j, d] >= y[d] or start[j, d] + (1 << size[j, d]) <= x[d]:
                        apart = True
                        break
                if not apart:
                    break
                j += 1
            if j == i:
                volume = 1.0
                for d in range(axes):
                    volume *= (y[d] - x[d]) * 2.0 ** -bits[d]
                total += volume
                continue
            for d in range(axes):
                first = start[j, d]
                behind = first + (1 << size[j, d])
                if x[d] < first:
                    below[top] = x
                    above[top] = y
                    above[top, d] = first
                    at[top] = j + 1
                    top += 1
                    x[d] = first
                if y[d] > behind:
                    below[top] = x
                    above[top] = y
                    below[top, d] = behind
                    at[top] = j + 1
                    top += 1
                    y[d] = behind
    return total


def ratios(plan: Plan, boxes: list[Filter], budgets: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """Boxes × budgets: the volume of the union of the entries over the volume of the box in the grid."""
    found = np.empty((len(boxes), len(budgets)))
    for row, each in enumerate(boxes):
        grid = boxes_of(plan, each)
        wanted = grid.wanted()
        for column, budget in enumerate(budgets):
            _, start, size = cover_pieces(plan, grid, budget, kind=plan.kind)
            found[row, column] = union_volume(start, size, grid.layout.bits[0]) / wanted
    return found


def milliseconds(plan: Plan, boxes: list[Filter], budget: int, rounds: int = 3) -> float:
    """Mean processor time of `Plan.cover`, from filter to set of entries; the best of some rounds."""
    plan.cover(boxes[0], budget)
    spent = []
    for _ in range(rounds):
        began = time.process_time()
        for each in boxes:
            plan.cover(each, budget)
        spent.append(time.process_time() - began)
    return min(spent) / len(boxes) * 1e3


def run(bench: Bench) -> Report:
    """All dimensions, widths and budgets."""
    report = Report(GOALS)
    count = bench.size(300, quick=2)
    _against_prototype(bench, report, count)
    slowest = 0.0
    for dimensions in (2, 5, 8, 10):
        rows = []
        boxes = random_boxes(dimensions, count)
        curves: dict[str, list[float]] = {}
        for bits in (23, 64, 96):
            means = {}
            for name, kind, gray in WAYS:
                plan = Plan.regular(_schema(boxes), bits, kind=kind, gray=gray)  # type: ignore[arg-type]
                with bench.step(f"{dimensions} dimensions, {bits} bits, {name}"):
                    values = ratios(plan, boxes, BUDGETS)
                    spent = milliseconds(plan, boxes[:50], 32)
                if name != "plain cells":
                    slowest = max(slowest, spent)
                means[name] = values.mean(axis=0)
                rows.append([f"{bits} bits, {name}", *(_short(v) for v in means[name]), round(spent, 3)])
                if bits == 64:
                    curves[name] = means[name].tolist()
            if dimensions == 5 and bits == 64:
                for budget in (8, 32):
                    at = BUDGETS.index(budget)
                    report.figure(f"dz_5d_k{budget}", means["dz"][at])
                    report.figure(f"cells_5d_k{budget}", means["cells"][at])
                    report.goal(f"cells_over_dz_5d_k{budget}", means["cells"][at] / means["dz"][at])
        report.table(
            f"{dimensions} dimensions, covered over wanted (mean)",
            ["", *(f"k={b}" for b in BUDGETS), "ms at k=32"],
            rows,
        )
        bench.plot_lines(
            f"decompose-{dimensions}d", list(BUDGETS), curves, xlabel="entries", ylabel="covered / wanted", log="xy"
        )
    report.goal("ms_per_filter_k32", slowest)
    report.note("covered: exact volume of the union of the entries; wanted: the box in grid coordinates")
    report.note(f"boxes: sides uniform in {SIDES} of the domain by dimensions, places uniform; arithmetic means")
    report.note("time: processor time, slowest mean over all dimensions and widths, from filter to set of entries")
    return report


def _against_prototype(bench: Bench, report: Report, count: int) -> None:
    rows = []
    for dimensions in (5, 8):
        boxes = random_boxes(dimensions, count)
        for name, kind, gray in WAYS:
            plan = Plan.regular(_schema(boxes), 60, kind=kind, gray=gray)  # type: ignore[arg-type]
            with bench.step(f"{dimensions} dimensions, 60 bits, {name}"):
                means = ratios(plan, boxes, PROTOTYPE_BUDGETS).mean(axis=0)
            rows.append([f"{dimensions} dimensions, {name}", *(_short(v) for v in means)])
            if name == "cells":
                prototype = PROTOTYPE[dimensions, "cells"]
                worst = most(v / p for v, p in zip(means.tolist(), prototype, strict=True))
                report.goal(f"worst_over_prototype_{dimensions}d", worst)
        rows += [
            [f"{dimensions} dimensions, prototype's {kind}", *map(_short, PROTOTYPE[dimensions, kind])]
            for kind in ("dz", "cells")
        ]
    report.table("60 bits, covered over wanted (mean)", ["", *(f"k={b}" for b in PROTOTYPE_BUDGETS)], rows)


def _schema(boxes: list[Filter]) -> Schema:
    schema = boxes[0].schema
    assert schema is not None
    return schema


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
