"""Each step of the pipeline as a person types it, on a small trace, beside an empty Spark job."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks._plan_workloads import Made, trips
from benchmarks.harness import Bench, Report, most

__all__ = ["steps"]

#: What anybody would write: start Spark, give one Python process something to do, stop.
EMPTY = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
assert spark.sparkContext.parallelize([1], 1).map(lambda x: x + 1).collect() == [2]
spark.stop()
"""
#: The same in a session of ours.
OURS = """
from sievenet.pipeline.spark import spark_session
with spark_session(small=True) as spark:
    assert spark.sparkContext.parallelize([1], 1).map(lambda x: x + 1).collect() == [2]
"""
#: Seconds of each search, which are taken off.
SEARCH = 2.0
#: What is no step of ours: Spark itself prints there.
BARE = ("empty", "ours")


def steps(bench: Bench, report: Report, folder: Path) -> None:
    """Wall-clock seconds of every step over those of an empty job, in turns; the median of some rounds."""
    made = trips(bench.size(10_000, 300), bench.size(500, 20), seed=4)
    _written(made, folder)
    rounds = bench.size(3, 1)
    seconds: dict[str, list[float]] = {}
    printed: list[str] = []
    # The first round compiles kernels and makes Java's archive of classes, once per machine: it does not count.
    for number in range(1 if bench.quick else 0, rounds + 1):
        with bench.step(f"steps on {len(made.batch)} rows, round {number} of {rounds}"):
            for name, arguments in _commands(bench, number).items():
                spent, said = _timed(arguments, folder)
                if number:
                    seconds.setdefault(name, []).append(spent - (SEARCH if name in ("plan", "run") else 0.0))
                if name not in BARE:
                    printed += [line for line in said if not line.startswith("…")]
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    empty = middle.pop("empty")
    report.figure("empty_spark_job_seconds", empty, "s")
    ours = middle.pop("ours", empty)
    report.figure("empty_spark_job_in_our_session_seconds", ours, "s")
    report.table(
        f"steps on {len(made.batch)} rows and {len(made.wanted)} subscriptions",
        ["step", "seconds", "× empty job", "× empty job in our session"],
        [[name, spent, spent / empty, spent / ours] for name, spent in middle.items()],
    )
    report.note(f"plan and run search for {SEARCH:g} s, which are taken off")
    report.goal("slowest_step_over_empty_job", most(spent / empty for name, spent in middle.items() if name != "run"))
    report.goal("run_over_empty_job", middle["run"] / empty)
    report.goal("lines_printed_by_java", len(printed))
    for line in printed[:3]:
        report.note(f"printed: {line[:100]}")


def _commands(bench: Bench, number: int) -> dict[str, list[str]]:
    program = ["-m", "sievenet", "pipeline"]
    store, wanted = f"store-{number}", ["--subscriptions", "wanted.txt"]
    search = ["--seconds", str(SEARCH)]
    every = {
        "empty": ["-c", EMPTY],
        "ours": ["-c", OURS],
        "ingest": [*program, "ingest", store, "trip.csv"],
        "profile": [*program, "profile", store, "trip", *wanted],
        "plan": [*program, "plan", store, "trip", *wanted, *search, "-o", f"plan-{number}.json"],
        "evaluate": [*program, "evaluate", store, "trip", *wanted, "--plan", f"plan-{number}.json"],
        "run": [*program, "run", "trip.csv", *wanted, *search, "--topology", "testbed", "--report", f"run-{number}"],
    }
    return {name: every[name] for name in bench.size(tuple(every), ("empty", "ingest", "run"))}


def _timed(arguments: Sequence[str], folder: Path) -> tuple[float, list[str]]:
    """Seconds of Python with arguments, and what it printed to standard error."""
    begun = time.perf_counter()
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    spent = time.perf_counter() - begun
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:7])} ended with {done.returncode}: {done.stderr[-500:]}")
    return spent, done.stderr.splitlines()


def _written(made: Made, folder: Path) -> None:
    """The workload as a CSV file with times, and a filter per line."""
    names = list(made.schema.positions)
    columns = [np.asarray(c) for c in made.batch.columns]
    lines = [",".join(["time", *names])]
    for row, values in enumerate(zip(*columns, strict=True)):
        lines.append(",".join([str(1_700_000_000 + row), *(f"{v:.4f}" for v in values)]))
    (folder / "trip.csv").write_text("\n".join(lines) + "\n")
    (folder / "wanted.txt").write_text("\n".join(str(each) for each in made.wanted) + "\n")
