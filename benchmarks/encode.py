"""Encode 1 M events × 10 attributes to 64-bit dz on one core, against a NumPy loop over bits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from benchmarks.harness import Bench, Report, best_of, ratio
from sievenet.content import Attribute, EventBatch, Schema
from sievenet.index import Plan

#: What it should come to.
GOALS = {"speedup": ">= 5"}

ATTRIBUTES = 10
BITS = 64
HIGH = 1023


def schema_of(high: int = HIGH) -> Schema:
    return Schema("events", tuple(Attribute(f"a{i}", "int", lo=0, hi=high) for i in range(ATTRIBUTES)))


def events(schema: Schema, count: int, seed: int = 1) -> EventBatch:
    rng = np.random.default_rng(seed)
    return EventBatch.of(schema, {a.name: rng.integers(0, HIGH, count, endpoint=True) for a in schema.attributes})


def loop_over_bits(batch: EventBatch, plan: Plan) -> npt.NDArray[np.uint64]:
    """The plain way: scale each column, then move bit after bit to its place, all events at once."""
    region = plan.regions[0]
    code = np.zeros(len(batch), np.uint64)
    grids = []
    for axis in region.axes:
        attribute = plan.schema[axis.attribute]
        assert isinstance(attribute.lo, int)
        assert isinstance(attribute.hi, int)
        column: npt.NDArray[np.int64] = batch.column(axis.attribute)  # type: ignore[assignment]
        grids.append(((column - attribute.lo) << axis.bits) // (attribute.hi - attribute.lo + 1))
    taken = [0] * len(region.axes)
    for position, i in enumerate(region.order):
        shift = region.axes[i].bits - 1 - taken[i]
        taken[i] += 1
        code |= ((grids[i] >> shift) & 1).astype(np.uint64) << np.uint64(63 - position)
    return code


def run(bench: Bench) -> Report:
    """Compare on the same events; codes must be equal."""
    report = Report(GOALS)
    count = bench.size(1_000_000, quick=50_000)
    schema = schema_of()
    plan = Plan.regular(schema, BITS)
    with bench.step("generating events"):
        batch = events(schema, count)
    with bench.step("checking that both give the same codes"):
        same = bool(np.array_equal(plan.encode_batch(batch).hi, loop_over_bits(batch, plan)))
    with bench.step("encoding"):
        pair = ratio(
            lambda: loop_over_bits(batch, plan),
            lambda: plan.encode_batch(batch),
            repeats=bench.size(7, quick=2),
        )
    report.figure("events_per_s", pair.candidate.per_second(count), "events/s")
    report.figure("numpy_events_per_s", pair.baseline.per_second(count), "events/s")
    report.figure("codes_equal", same)
    report.goal("speedup", pair.speedup if same else float("nan"))
    rows = []
    with bench.step("other plans"):
        for label, other, data in variants(schema, batch, count):
            timing = best_of(lambda other=other, data=data: other.encode_batch(data), repeats=3)  # type: ignore[misc]
            rows.append([label, timing.per_second(count) / 1e6])
    report.table("other plans, M events/s", ["plan", "M events/s"], rows)
    report.note("one core; best of the repeats; events are columns of int64 in [0, 1023], uniform")
    return report


def variants(schema: Schema, batch: EventBatch, count: int) -> list[tuple[str, Plan, EventBatch]]:
    """Plans of other kinds over the same number of events."""
    rng = np.random.default_rng(2)
    reals = Schema("reals", tuple(Attribute(f"a{i}", "float", lo=0, hi=1000) for i in range(ATTRIBUTES)))
    real = EventBatch.of(reals, {a.name: rng.uniform(0, 1000, count) for a in reals.attributes})
    points = {a.name: sorted(rng.integers(0, 1023, 63).tolist()) for a in schema.attributes}
    halves = [{"a0": (0, 400)}, {"a0": (350, 800)}]
    return [
        ("23 bits", Plan.regular(schema, 23), batch),
        ("96 bits", Plan.regular(schema, 96), batch),
        ("64 bits, Gray-coded (cells)", Plan.regular(schema, 64, kind="cells"), batch),
        ("64 bits, floats", Plan.regular(reals, 64), real),
        ("64 bits, adaptive, 63 split points", Plan.adaptive(schema, points, 64), batch),
        ("64 bits, selective, 2 rectangles and the rest", Plan.selective(schema, halves, 64, rest=True), batch),
    ]
