"""Spark jobs: ingest, profile, evaluate and plan at 0.1 to 10 M events, against naive and single-process runs."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import Bench, Report
from sievenet.content import Filter
from sievenet.index import Plan
from sievenet.pipeline.clusters import spark_clustering
from sievenet.pipeline.covers import Covers, Interests
from sievenet.pipeline.evaluate import Counting, evaluate, local_counts
from sievenet.pipeline.ingest import ingest
from sievenet.pipeline.judging import SparkJudge
from sievenet.pipeline.planning import sample_of
from sievenet.pipeline.profile import Profile, profile
from sievenet.pipeline.search import search
from sievenet.pipeline.session import spark_session
from sievenet.pipeline.store import Store
from sievenet.pipeline.tables import arrow_of
from sievenet.workload import Hotspots, grid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BITS: Final = 23
DIMENSIONS: Final = 8
LOAD: Final = Hotspots(schema=grid(DIMENSIONS, hi=4095), spread=0.05, selectivity=0.1, seed=1)
#: Rows per file of input.
FILE: Final = 1_000_000


def run(bench: Bench) -> Report:
    """All sizes."""
    report = Report()
    folder = Path(tempfile.mkdtemp(prefix="sievenet-bench-"))
    try:
        with bench.step("starting Spark"):
            begun = time.perf_counter()
            context = spark_session("local[2]", name="benchmark", settings={"spark.driver.memory": "2g"})
            spark = context.__enter__()
            report.figure("start_seconds", time.perf_counter() - begun, "s")
        try:
            _measure(bench, report, spark, folder)
        finally:
            context.__exit__(None, None, None)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report.note("two cores, local[2]; Python processes of Spark are reused, so kernels are compiled or loaded once")
    report.note(f"{DIMENSIONS} attributes in [0, 4095], 8 hotspots, {BITS} bits, 8 entries per subscription")
    return report


def _measure(bench: Bench, report: Report, spark: SparkSession, folder: Path) -> None:
    sizes = bench.size((100_000, 1_000_000, 10_000_000), (2_000, 4_000, 8_000))
    crowds = bench.size((1_000, 10_000), (50, 100))
    rows: list[list[object]] = []
    tables = {}
    for size in sizes:
        with bench.step(f"ingest {size} events"):
            inputs = _inputs(folder / str(size), size)
            store = Store(spark, str(folder / f"store-{size}"))
            spent = _seconds(lambda: ingest(store, LOAD.schema, [str(inputs)]))  # noqa: B023
        tables[size] = store.events(LOAD.schema.name)
        rows.append(["ingest", size, "", spent, size / spent])
        report.figure(f"ingest_{size}_per_s", size / spent, "events/s")
    warm = tables[sizes[0]]
    profile(warm, LOAD.schema, LOAD.subscriptions(10).filters())
    evaluate(warm, LOAD.schema, LOAD.subscriptions(10).filters(), [Plan.regular(LOAD.schema, BITS)])
    costs: dict[tuple[str, int, int], float] = {}
    for crowd in crowds:
        wanted = LOAD.subscriptions(crowd).filters()
        plan = Plan.regular(LOAD.schema, BITS, ["x0", "x1", "x2", "x3"])
        known: Profile | None = None
        for size in sizes:
            with bench.step(f"profile and evaluate {size} events x {crowd} subscriptions"):
                begun = time.perf_counter()
                known = profile(tables[size], LOAD.schema, wanted)
                costs["profile", size, crowd] = time.perf_counter() - begun
                begun = time.perf_counter()
                (result,) = evaluate(tables[size], LOAD.schema, wanted, [plan], 8)
                costs["evaluate", size, crowd] = time.perf_counter() - begun
                assert result.events == size
        assert known is not None
        with bench.step(f"search for {crowd} subscriptions"):
            searching = _seconds(lambda: _search(bench, spark, tables[sizes[-1]], sizes[-1], wanted, known))  # noqa: B023
        for size in sizes:
            costs["plan", size, crowd] = searching + costs["profile", size, crowd] + costs["evaluate", size, crowd]
    for (job, size, crowd), spent in sorted(costs.items()):
        rows.append([job, size, crowd, spent, size / spent])
        report.figure(f"{job}_{size}_x_{crowd}_per_s", size / spent, "events/s")
    report.table("jobs", ["job", "events", "subscriptions", "seconds", "events/s"], rows)
    _growth(bench, report, sizes, crowds, costs)
    largest, many = sizes[-1], crowds[-1]
    single = _single(bench, folder / f"store-{largest}", largest, LOAD.subscriptions(many).filters())
    ours = costs["evaluate", largest, many]
    report.goal("speedup_over_single_process", single / ours, ">= 1")
    naive = _naive(bench, spark, tables[sizes[0]], LOAD.subscriptions(bench.size(200, 20)).filters())
    report.goal("speedup_over_cross_join", naive * largest * many / ours, ">= 50")
    report.figure("single_process_seconds", single, "s")
    for who, megabytes in _peak_memory().items():
        report.figure(f"peak_memory_{who}_mb", megabytes, "MB")


def _growth(
    bench: Bench,
    report: Report,
    sizes: tuple[int, ...],
    crowds: tuple[int, ...],
    costs: dict[tuple[str, int, int], float],
) -> None:
    """Cost per event at the largest size over that at a tenth of it: at most 1 if growth is at most linear."""
    middle, largest = sizes[-2], sizes[-1]
    worst = max(
        (costs[job, largest, crowd] / largest) / (costs[job, middle, crowd] / middle)
        for job in ("profile", "evaluate", "plan")
        for crowd in crowds
    )
    # A few percent are noise of a shared machine.
    report.goal("cost_per_event_growth", worst, "<= 1.1")
    lines = {
        f"{job}, {crowd} subscriptions": [costs[job, size, crowd] for size in sizes]
        for job in ("profile", "evaluate", "plan")
        for crowd in crowds
    }
    bench.plot_lines("pipeline-growth", list(sizes), lines, xlabel="events", ylabel="seconds", log="xy")


def _inputs(folder: Path, size: int) -> Path:
    """Parquet files of about `FILE` rows; after the first million the same rows again."""
    folder.mkdir()
    part = min(size, FILE)
    batch = LOAD.events(part)
    times = (np.arange(part, dtype=np.int64) * 3_600_000_000 * 8) // part
    table = pa.Table.from_batches([arrow_of(batch, times)]).rename_columns(
        [*LOAD.schema.positions, "time", "publisher"]
    )
    # Times of the table are in microseconds, those of ingest in seconds.
    seconds = pa.array(times / 1e6)
    table = table.set_column(table.schema.get_field_index("time"), "time", seconds)
    for number in range(max(1, size // FILE)):
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=250_000)
    return folder


def _search(
    bench: Bench, spark: SparkSession, events: DataFrame, total: int, wanted: list[Filter], known: Profile
) -> None:
    """The search itself, as `plan_for` does it between profile and evaluation."""
    interests = Interests.of(LOAD.schema, wanted)
    part = interests.take(range(min(len(wanted), bench.size(1_000, 30))))
    judge = SparkJudge(spark, sample_of(events, LOAD.schema, bench.size(20_000, 500), total), part, 8)
    methods = bench.size(("RI", "EVS", "EMCS", "CS", "GS", "SI", "ASI", "GB"), ("RI", "CS"))
    search(judge, known, spark_clustering(spark, LOAD.schema, wanted), BITS, methods=methods, seconds=30.0)


def _single(bench: Bench, store: Path, size: int, wanted: list[Filter]) -> float:
    """Seconds that one process needs for the same evaluation, from a part of the files."""
    files = sorted(store.glob("events/**/*.parquet"))
    plan = Plan.regular(LOAD.schema, BITS, ["x0", "x1", "x2", "x3"])
    with bench.step("the same kernels in a single process"):
        begun = time.perf_counter()
        covers = Covers.of(plan, Interests.of(LOAD.schema, wanted), 8)
        counting = Counting([plan], [covers], list(wanted))
        building = time.perf_counter() - begun
        list(local_counts(counting, [arrow_of(LOAD.events(100))]))
        seen = 0

        def batches() -> Iterator[pa.RecordBatch]:
            nonlocal seen
            for file in files:
                for batch in pq.ParquetFile(file).iter_batches(65_536, columns=list(LOAD.schema.positions)):
                    if seen >= size // 8:
                        return
                    seen += batch.num_rows
                    yield batch

        begun = time.perf_counter()
        list(local_counts(counting, batches()))
        spent = time.perf_counter() - begun
    return building + spent * size / max(seen, 1)


def _naive(bench: Bench, spark: SparkSession, events: DataFrame, wanted: list[Filter]) -> float:
    """Seconds per (event, subscription) of a cross join that counts the same: wanted and delivered."""
    from pyspark.sql import functions as f

    plan = Plan.regular(LOAD.schema, BITS, ["x0", "x1", "x2", "x3"])
    covers = Covers.of(plan, Interests.of(LOAD.schema, wanted), 8)
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
    right = spark.createDataFrame(pa.Table.from_pylist(boxes))
    shifts = [12 - axis.bits for axis in plan.regions[0].axes]
    matches = " and ".join(f"x{d} between lo{d} and hi{d}" for d in range(DIMENSIONS))
    inside = " and ".join(
        f"shiftright(x{d}, {s}) >= a{d} and shiftright(x{d}, {s}) < b{d}" for d, s in enumerate(shifts)
    )
    with bench.step("a naive cross join"):
        begun = time.perf_counter()
        joined = small.crossJoin(f.broadcast(right)).groupBy("owner")
        joined.agg(f.expr(f"count_if(first and {matches})"), f.expr(f"count_if({inside})")).collect()
        spent = time.perf_counter() - begun
    small.unpersist()
    return spent / (count * len(wanted))


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _peak_memory() -> dict[str, float]:
    """The largest resident sizes so far, in MB: this process, its JVM, and the largest Python process of Spark."""
    found = {"driver": 0.0, "jvm": 0.0, "worker": 0.0}
    family = {os.getpid()}
    processes: dict[int, tuple[int, str, float]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line)
            size = float(fields.get("VmHWM", "0 kB").split()[0]) / 1024
            processes[int(folder.name)] = (int(fields["PPid"]), fields["Name"].strip(), size)
        except (OSError, KeyError, ValueError):
            continue
    for _ in range(8):
        family |= {pid for pid, (parent, _, _) in processes.items() if parent in family}
    for pid in family & processes.keys():
        _, name, size = processes[pid]
        kind = "driver" if pid == os.getpid() else "jvm" if name == "java" else "worker"
        found[kind] = max(found[kind], size)
    return found
