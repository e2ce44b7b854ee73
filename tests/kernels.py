"""Compile the kernels into numba's cache, once, before several test processes each do it for themselves.

`make test` runs this first, as `python -m tests.kernels`. It does a little of what needs kernels;
what it does not reach, the first test that needs it compiles. A gap costs time, nothing else. The same goes for the
modules of tests, whose assertions pytest rewrites when they are first imported.
"""

from __future__ import annotations

import multiprocessing
import subprocess
import sys

import numpy as np

from benchmarks import decompose
from benchmarks._tcam_bound import bound
from sievenet.client import served
from sievenet.content import Attribute, EventBatch, Filter, Record, Schema, StringColumn, Subscription, ValueSet
from sievenet.control import warmup
from sievenet.control.hybrid import Model, Observation, csa
from sievenet.dataplane import Packet, Simulator
from sievenet.dataplane.switch import Switch
from sievenet.index import Cell, Density, Plan
from sievenet.matcher import Matcher, level
from sievenet.matcher import warmup as matching
from sievenet.network import Add, Flow, Line, Match
from sievenet.tuning.covers import Covers, Interests
from sievenet.tuning.deliveries import Deliveries, Wants
from sievenet.tuning.profile import profile_batches
from sievenet.tuning.task import solve
from sievenet.workload import Hotspots, Mixed, Ticks, grid

#: Whole numbers alone, all types, and strings of few values.
LOADS = (Hotspots(schema=grid(4, hi=255), selectivity=0.3, seed=2), Mixed(seed=5), Ticks(seed=3))


def read_only(batch: EventBatch) -> EventBatch:
    """The batch as it comes from a file or another process: to a compiler, what cannot be written is another type."""
    columns = []
    for column in batch.columns:
        numbers = (column.codes if isinstance(column, StringColumn) else column).copy()
        numbers.setflags(write=False)
        columns.append(StringColumn(numbers, column.categories) if isinstance(column, StringColumn) else numbers)
    return EventBatch(batch.schema, tuple(columns))


def match() -> None:
    """Events with and without a schema, one by one and in batches; subscriptions that come and go."""
    # Blocks and slices of their own even for few filters.
    level._WORTH = level._SLICED = 1
    for load in LOADS:
        found, batch = Matcher(load.schema), load.events(200)
        found.add_many(range(300), load.subscriptions(300))
        found.match(batch[0])
        found.match_batch(batch)
        found.match_batch(read_only(batch))
        found.counts_batch(batch)
        found.remove_many(range(100))
        found.match_batch(batch)
    loose = Matcher(None)
    records = [Record({"a": i, "b": f"{i}", "c": i / 2, "d": i % 2 == 0}) for i in range(60)]
    loose.add_many(range(60), [Filter(None, {"a": ValueSet.interval(0, i), "b": ValueSet.of("5")}) for i in range(60)])
    loose.match(records[0])
    loose.match_batch(records)
    matching.load()
    served.load()


def index() -> None:
    """Codes of events, covers of filters, and how well they fit, for plans of every kind."""
    for load in LOADS:
        batch, wanted = load.events(300), load.subscriptions(40).filters()
        interests = Interests.of(load.schema, wanted)
        for plan in (Plan.regular(load.schema, 12), Plan.regular(load.schema, 12, kind="cells")):
            for budget in (None, 4):
                deliveries = Deliveries(plan, Covers.of(plan, interests, budget), len(wanted))
                deliveries.per_subscription(batch)
                deliveries.reached(batch, np.arange(len(wanted)) % 7, 7)
            plan.encode_batch(read_only(batch))
        profile_batches([batch], load.schema, wanted)
        pairs = [Subscription(each) for each in zip(wanted[::2], wanted[1::2], strict=True)]
        for some in (wanted, pairs):
            Wants(load.schema, some).per_subscription(batch)
            Wants(load.schema, some).per_event(batch)
    few = Schema("few", (Attribute("x", "int", lo=0, hi=999),))
    batch = EventBatch.of(few, {"x": list(range(300))})
    Density.of(Plan.regular(few, 10), batch).weight(Cell.parse("1*0"))
    csa(Model.of([Observation("p", "s", 0, "s", 1.0, 1.0)], lambda a, b: (a,)), np.zeros(1, np.int64), 1, 1.0)


def forward() -> None:
    """Packets, one by one and many at once, where flows have masks."""
    sim = Simulator(Line.build(switches=1))
    sim.attach_now("h1", "a")
    port = sim.attach_now("h1", "b").port
    sim.apply_now("s1", [Add(Flow(Match(1, Cell.parse("1*0")), frozenset({port}), 2, table=port))])
    sim.send("a", Packet(1, 1 << 127, 1, 1, 0))
    sim.run()
    sim.send_batch("a", 1, np.zeros(3, np.uint64), np.zeros(3, np.uint64))
    switch = Switch("s1")
    switch.apply([Add(Flow(Match(1, Cell.parse("1")), frozenset({port}), 2))])
    switch.lookup_batch(1, np.zeros(3, np.uint64), np.zeros(3, np.uint64))


def search() -> None:
    """What a search for a plan needs: a fabric that tunes itself starts one in a process of its own."""
    from tests.tuning.test_task import task

    solve(task(seconds=2.0))


def measure() -> None:
    """What benchmarks compile themselves."""
    load = LOADS[0]
    decompose.ratios(Plan.regular(load.schema, 12), load.subscriptions(2).filters(), (4,))
    bound({2: frozenset({1})}, np.arange(4, dtype=np.uint64) << np.uint64(62), np.array([1, 2, 1, 2]), 1)


def rewrite() -> None:
    """Modules of tests; what is wrong with one, the tests will tell."""
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-n0", "-p", "no:cacheprovider"]
    subprocess.run(collect, stdout=subprocess.DEVNULL, check=False)


if __name__ == "__main__":
    # Apart, for they share next to nothing.
    other = multiprocessing.get_context("spawn").Process(target=match)
    other.start()
    warmup.load(warmup.FITTING)
    index()
    forward()
    search()
    measure()
    other.join()
    rewrite()
    raise SystemExit(other.exitcode)
