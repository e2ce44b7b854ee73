"""Flow operations saved by sorting waiting requests and by taking them together, by size of slices.

5,000 subscriptions wait at once; then 5,000 are taken back at once. Three ways to take them, in slices of the same
size:

    one by one   in the order of arrival
    sorted       one by one, within a slice the broader first (narrower, if they are taken back): `control.slice`
    together     a slice becomes one difference of tables: `control.batch`

All lead to the same tables, which is checked. Latency is in virtual time: switches acknowledge after 2 ms, the
processor takes no time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from benchmarks._slow_switches import Course, course
from benchmarks.control import network
from benchmarks.harness import Bench, Report, least, most
from sievenet.content import Filter, Schema
from sievenet.control.config import ControlConfig
from sievenet.network import Topology
from sievenet.workload import Hotspots, Uniform, grid

#: What it should come to, with the largest slice.
GOALS = {
    "saved": ">= 28 %",
    "saved_sorted": ">= 28 %",
    "saved_over_sorted": ">= 0",
    "longest_over_one_by_one": "<= 1",
    "tables_differ": "<= 0",
}

#: Coarse, so that requests concern each other; about what hardware switches could follow.
BITS, BUDGET = 10, 4
DELAY = 0.002


def taken(topology: Topology, schema: Schema, filters: Sequence[Filter], batch: int, size: int, undo: bool) -> Course:
    """So many at a time become one difference, in slices of a size."""
    config = ControlConfig(bits=BITS, budget=BUDGET, batch=batch, slice=size, lease=86400.0)
    return course(topology, schema, filters, None, DELAY, config, undo=undo)


def run(bench: Bench) -> Report:
    report = Report(GOALS)
    topology, schema = network(bench), grid(10, hi=1024)
    count = bench.size(5_000, quick=20)
    sizes = bench.size((10, 50, 100, 500, 1_000, 5_000), quick=(20,))
    saved, ordering, over_sorted, longest, differing = [], [], [], [], 0
    loads: dict[str, Uniform | Hotspots] = {
        "uniform": Uniform(schema=schema, seed=3),
        "zipf": Hotspots(schema=schema, seed=3),
    }
    for (load_name, load), undo in product(loads.items(), (False, True)):
        name = f"{load_name}_undone" if undo else load_name
        filters = load.subscriptions(count).filters()
        with bench.step(f"{name}, one by one"):
            alone = taken(topology, schema, filters, 1, 1, undo)
        rows: list[list[object]] = [[1, *2 * (alone.operations, "0 %", alone.mean_ms, alone.longest_ms)]]
        for size in bench.track(sizes, f"{name}, slices of up to {sizes[-1]:,}"):
            ordered = taken(topology, schema, filters, 1, size, undo)
            united = taken(topology, schema, filters, size, 1, undo)
            differing += (ordered.tables != alone.tables) + (united.tables != alone.tables)
            gain = 1 - united.operations / alone.operations
            less = 1 - ordered.operations / alone.operations
            rows.append(
                [
                    size,
                    *(united.operations, f"{gain:.1%}", united.mean_ms, united.longest_ms),
                    *(ordered.operations, f"{less:.1%}", ordered.mean_ms, ordered.longest_ms),
                ]
            )
            report.figure(f"{name}_saved_{size}", gain)
            report.figure(f"{name}_saved_sorted_{size}", less)
            for figure in ("mean_ms", "longest_ms"):
                report.figure(f"{name}_sorted_{size}_{figure}", getattr(ordered, figure), "ms")
            if size == sizes[-1]:
                saved.append(100 * gain)
                ordering.append(100 * less)
                over_sorted.append((ordered.operations - united.operations) / alone.operations)
                longest.append(united.longest_ms / alone.longest_ms)
        ways = ("operations", "saved", "mean, ms", "longest, ms")
        columns = ["slice", *(f"{each}, {way}" for way in ("together", "sorted") for each in ways)]
        done = "taken back" if undo else "made"
        report.table(f"{count:,} subscriptions {done}, {load_name}", columns, rows)
    report.goal("saved", least(saved))
    report.goal("saved_sorted", least(ordering))
    report.goal("saved_over_sorted", least(over_sorted))
    report.goal("longest_over_one_by_one", most(longest))
    report.goal("tables_differ", differing)
    report.note(
        f"102 switches, 64 hosts that all publish everything, 10 attributes in [0, 1024]; {BITS} bits, at most "
        f"{BUDGET} dz; one partition; switches acknowledge a bundle after {1e3 * DELAY:g} ms, in virtual time."
    )
    report.note("The goals are judged at the largest slice, on the workload where they come off worst.")
    return report
