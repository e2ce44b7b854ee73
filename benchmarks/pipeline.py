"""Spark: steps on a small trace between empty jobs; 0.1 to 10 M events beside one process."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks._pipeline_steps import steps
from benchmarks.harness import Bench, Report, most
from sievenet.content import Filter
from sievenet.index import Plan
from sievenet.pipeline.archive import VARIABLE
from sievenet.pipeline.evaluate import Counting, evaluate, local_counts
from sievenet.pipeline.ingest import ingest
from sievenet.pipeline.planner import plan_for
from sievenet.pipeline.profile import profile
from sievenet.pipeline.spark import spark_session
from sievenet.pipeline.store import Store
from sievenet.pipeline.tables import arrow_of, batch_of
from sievenet.tuning.covers import Covers, Interests
from sievenet.tuning.profile import profile_batches
from sievenet.workload import Hotspots, grid

#: What it should come to.
GOALS = {
    "profile_speedup_over_single_process": ">= 1",
    "evaluate_speedup_over_single_process": ">= 1",
    "speedup_over_cross_join": ">= 50",
    "cost_per_event_growth": "<= 1",
    "slowest_step_over_empty_job": "<= 2",
    "run_over_empty_job": "<= 4",
    "lines_printed_by_java": "<= 0",
}

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BITS: Final = 23
DIMENSIONS: Final = 8
LOAD: Final = Hotspots(schema=grid(DIMENSIONS, hi=4095), spread=0.05, selectivity=0.1, seed=1)
#: Entries per subscription.
BUDGET: Final = 8
#: What is evaluated.
PLAN: Final = Plan.regular(LOAD.schema, BITS, ["x0", "x1", "x2", "x3"])
#: Rows per file of input.
FILE: Final = 1_000_000

#: Seconds by job, events and subscriptions.
Costs = dict[tuple[str, int, int], float]


def run(bench: Bench) -> Report:
    """All sizes."""
    report = Report(GOALS)
    folder = Path(tempfile.mkdtemp(prefix="sievenet-bench-"))
    try:
        # Before there is a session here: each step is a process of its own.
        (folder / "steps").mkdir()
        steps(bench, report, folder / "steps")
        with bench.step("starting Spark"):
            if bench.quick:
                # A single short run does not pay for one.
                os.environ.setdefault(VARIABLE, "off")
            settings = {"spark.driver.memory": "2g"}
            if bench.quick:
                settings["spark.driver.extraJavaOptions"] = "-XX:TieredStopAtLevel=1"
            begun = time.perf_counter()
            context = spark_session("local[2]", name="benchmark", settings=settings)
            spark = context.__enter__()
            report.figure("start_seconds", time.perf_counter() - begun, "s")
        try:
            _measure(bench, report, spark, folder)
        finally:
            context.__exit__(None, None, None)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report.note("the cross join is measured on fewer pairs and compared by pair; everything else at full size")
    report.note("two cores, local[2]; Python processes of Spark are reused, so kernels are compiled or loaded once")
    report.note("Spark's Python processes read the store's files themselves, as the single process does")
    report.note("memory: resident sizes while Spark works, those of its Python processes together, shared pages twice")
    report.note(f"{DIMENSIONS} attributes in [0, 4095], 8 hotspots, {BITS} bits, {BUDGET} entries per subscription")
    return report


def _measure(bench: Bench, report: Report, spark: SparkSession, folder: Path) -> None:
    sizes = bench.size((100_000, 1_000_000, 10_000_000), (2_000, 4_000))
    crowds = bench.size((1_000, 10_000), (60,))
    costs: Costs = {}
    with bench.step("inputs"):
        inputs = _inputs(folder, sizes)
    tables = {}
    with _Memory() as memory:
        for size in sizes:
            with bench.step(f"ingest {size} events"):
                store = Store(spark, str(folder / f"store-{size}"))
                costs["ingest", size, 0] = _seconds(lambda: ingest(store, LOAD.schema, [str(inputs[size])]))  # noqa: B023
            tables[size] = store.events(LOAD.schema.name)
        with bench.step("warming up"):
            few = LOAD.subscriptions(10).filters()
            profile(tables[sizes[0]], LOAD.schema, few)
            evaluate(tables[sizes[0]], LOAD.schema, few, [PLAN], BUDGET)
        for crowd in crowds:
            wanted = LOAD.subscriptions(crowd).filters()
            for size in sizes:
                with bench.step(f"profile, evaluate, plan: {size} events x {crowd} subscriptions"):
                    _jobs(bench, tables[size], size, wanted, costs)
    rows = [[job, size, crowd or "", spent, size / spent] for (job, size, crowd), spent in sorted(costs.items())]
    report.table("jobs", ["job", "events", "subscriptions", "seconds", "events/s"], rows)
    for (job, size, crowd), spent in sorted(costs.items()):
        report.figure(f"{job}_{size}" + (f"_x_{crowd}" if crowd else "") + "_per_s", size / spent, "events/s")
    _growth(bench, report, sizes, crowds, costs)
    largest, many = sizes[-1], crowds[-1]
    wanted = LOAD.subscriptions(many).filters()
    for job, (ours, single) in _against_single(bench, tables[largest], folder / f"store-{largest}", wanted).items():
        report.figure(f"spark_{job}_seconds", ours, "s")
        report.figure(f"single_process_{job}_seconds", single, "s")
        report.goal(f"{job}_speedup_over_single_process", single / ours)
        costs[job, largest, many] = min(ours, costs[job, largest, many])
    naive = _naive(bench, spark, tables[sizes[0]], wanted[: bench.size(1_000, 20)])
    ours = costs["evaluate", largest, many] / (largest * many)
    report.figure("cross_join_ns_per_pair", naive * 1e9, "ns")
    report.figure("evaluate_ns_per_pair", ours * 1e9, "ns")
    report.goal("speedup_over_cross_join", naive / ours)
    for who, megabytes in memory.peaks.items():
        report.figure(f"peak_memory_{who}_mb", megabytes, "MB")


def _jobs(bench: Bench, events: DataFrame, size: int, wanted: list[Filter], costs: Costs) -> None:
    """Everything that is done with a table of events, each job on its own."""
    crowd = len(wanted)
    costs["profile", size, crowd] = _seconds(lambda: profile(events, LOAD.schema, wanted))
    begun = time.perf_counter()
    (result,) = evaluate(events, LOAD.schema, wanted, [PLAN], BUDGET)
    costs["evaluate", size, crowd] = time.perf_counter() - begun
    assert result.events == size
    # Profile, sample, search, and an evaluation of the best plan and of the regular one.
    searching = bench.size(10.0, 0.2)
    costs["plan", size, crowd] = _seconds(
        lambda: plan_for(events, LOAD.schema, wanted, BITS, budget=BUDGET, seconds=searching)
    )


def _growth(bench: Bench, report: Report, sizes: tuple[int, ...], crowds: tuple[int, ...], costs: Costs) -> None:
    """Cost per event at the largest size over that at a tenth of it: at most 1 if growth is at most linear."""
    middle, largest = sizes[-2], sizes[-1]
    kinds = [("ingest", 0), *((job, crowd) for job in ("profile", "evaluate", "plan") for crowd in crowds)]
    each = {
        (job, crowd): (costs[job, largest, crowd] / largest) / (costs[job, middle, crowd] / middle)
        for job, crowd in kinds
    }
    for (job, crowd), factor in each.items():
        report.figure(f"cost_per_event_growth_{job}" + (f"_x_{crowd}" if crowd else ""), factor)
    # A few percent are noise of a shared machine.
    report.goal("cost_per_event_growth", most(each.values()))
    lines = {
        job + (f", {crowd} subscriptions" if crowd else ""): [costs[job, size, crowd] for size in sizes]
        for job, crowd in kinds
    }
    bench.plot_lines("pipeline-growth", list(sizes), lines, xlabel="events", ylabel="seconds", log="xy")


def _inputs(folder: Path, sizes: tuple[int, ...]) -> dict[int, Path]:
    """Folders of Parquet files of at most `FILE` rows; events are made once, then they are the same rows again."""
    most = min(sizes[-1], FILE)
    batch = LOAD.events(most)
    times = (np.arange(most, dtype=np.int64) * 3_600_000_000 * 8) // most
    table = pa.Table.from_batches([arrow_of(batch, times)]).rename_columns(
        [*LOAD.schema.positions, "time", "publisher"]
    )
    # Times of the table are in microseconds, those of ingest in seconds.
    table = table.set_column(table.schema.get_field_index("time"), "time", pa.array(times / 1e6))
    found = {}
    for size in sizes:
        found[size] = folder / f"input-{size}"
        found[size].mkdir()
        first = found[size] / "0.parquet"
        step = most // min(size, most)
        pq.write_table(table.take(np.arange(0, most, step)), first, row_group_size=250_000)
        for number in range(1, size // most):
            os.link(first, found[size] / f"{number}.parquet")
    return found


def _against_single(
    bench: Bench, events: DataFrame, store: Path, wanted: list[Filter]
) -> dict[str, tuple[float, float]]:
    """Seconds of Spark, and of one process that reads the same files, for a profile and for an evaluation.

    In turns, each twice, and the better of two: what else the machine does meanwhile meets both.
    """
    files = sorted(store.glob("events/**/*.parquet"))
    names = list(LOAD.schema.positions)

    def batches() -> Iterator[pa.RecordBatch]:
        for file in files:
            yield from pq.ParquetFile(file).iter_batches(65_536, columns=names)

    def evaluated() -> None:
        covers = Covers.of(PLAN, Interests.of(LOAD.schema, wanted), BUDGET)
        list(local_counts(Counting([PLAN], [covers], list(wanted)), batches()))

    def profiled() -> None:
        profile_batches((batch_of(LOAD.schema, b) for b in batches()), LOAD.schema, wanted)

    with bench.step("warming up a single process"):
        # Compiled before the clock runs, as it is in Spark's processes.
        some, few = LOAD.events(1000), wanted[:10]
        profile_batches([some], LOAD.schema, few)
        covers = Covers.of(PLAN, Interests.of(LOAD.schema, few), BUDGET)
        list(local_counts(Counting([PLAN], [covers], list(few)), [arrow_of(some)]))
    both: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "evaluate": (lambda: evaluate(events, LOAD.schema, wanted, [PLAN], BUDGET), evaluated),
        "profile": (lambda: profile(events, LOAD.schema, wanted), profiled),
    }
    found = {}
    for job, (ours, single) in both.items():
        with bench.step(f"{job} on Spark and in a single process"):
            rounds = [(_seconds(ours), _seconds(single)) for _ in range(bench.size(2, 1))]
        found[job] = min(r[0] for r in rounds), min(r[1] for r in rounds)
    return found


def _naive(bench: Bench, spark: SparkSession, events: DataFrame, wanted: list[Filter]) -> float:
    """Seconds per (event, subscription) of a cross join that counts the same: wanted and delivered."""
    from pyspark.sql import functions as f

    covers = Covers.of(PLAN, Interests.of(LOAD.schema, wanted), BUDGET)
    interests = Interests.of(LOAD.schema, wanted)
    boxes = []
    for number in range(len(covers.owner)):
        owner = int(covers.owner[number])
        record: dict[str, Any] = {"owner": owner, "first": bool(number == 0 or covers.owner[number - 1] != owner)}
        for d in range(DIMENSIONS):
            record[f"lo{d}"], record[f"hi{d}"] = int(interests.lo[owner, d]), int(interests.hi[owner, d])
        for d in range(4):
            record[f"a{d}"], record[f"b{d}"] = int(covers.first[number, d]), int(covers.behind[number, d])
        boxes.append(record)
    small = events.limit(bench.size(20_000, 500)).repartition(2).cache()
    count = small.count()
    assert count == bench.size(20_000, 500)
    right = spark.createDataFrame(pa.Table.from_pylist(boxes))
    shifts = [12 - axis.bits for axis in PLAN.regions[0].axes]
    matches = " and ".join(f"x{d} between lo{d} and hi{d}" for d in range(DIMENSIONS))
    inside = " and ".join(
        f"shiftright(x{d}, {s}) >= a{d} and shiftright(x{d}, {s}) < b{d}" for d, s in enumerate(shifts)
    )
    counts = f.expr(f"count_if(first and {matches})"), f.expr(f"count_if({inside})")
    with bench.step("a naive cross join"):
        # Planned and compiled once before the clock runs.
        small.limit(20).crossJoin(f.broadcast(right)).groupBy("owner").agg(*counts).collect()
        spent = _seconds(lambda: small.crossJoin(f.broadcast(right)).groupBy("owner").agg(*counts).collect())
    small.unpersist()
    return spent / (count * len(wanted))


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


class _Memory:
    """The largest resident sizes in MB, looked at each second: this process, its JVM, all Python processes of Spark."""

    def __init__(self) -> None:
        self.peaks = dict.fromkeys(("driver", "jvm", "workers", "total"), 0.0)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Memory:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(1.0):
            now = dict.fromkeys(self.peaks, 0.0)
            for pid, (name, size) in _family().items():
                now["driver" if pid == os.getpid() else "jvm" if name == "java" else "workers"] += size
                now["total"] += size
            self.peaks = {who: max(peak, now[who]) for who, peak in self.peaks.items()}


def _family() -> dict[int, tuple[str, float]]:
    """Our process and all that come from it: names and resident MB."""
    processes: dict[int, tuple[int, str, float]] = {}
    page = os.sysconf("SC_PAGE_SIZE") / (1 << 20)
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, fields = (folder / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
        except OSError:
            continue
        processes[int(folder.name)] = (int(fields.split()[1]), name, int(fields.split()[21]) * page)
    family = {os.getpid()}
    while more := {pid for pid, (parent, _, _) in processes.items() if parent in family} - family:
        family |= more
    return {pid: processes[pid][1:] for pid in family}
