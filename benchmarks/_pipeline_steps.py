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
from sievenet.pipeline.archive import VARIABLE

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
#: What is no step.
BARE = ("ours",)


def steps(bench: Bench, report: Report, folder: Path) -> None:
    """Wall-clock seconds of every step over those of the empty jobs right before and after it; medians of some rounds.

    Empty jobs and steps alternate, so that both meet the same caches and the same load of the machine.
    """
    made = trips(bench.size(10_000, 300), bench.size(500, 20), seed=4)
    _written(made, folder)
    rounds = bench.size(5, 1)
    # Seconds of each search, which are taken off.
    search = bench.size(2.0, 0.3)
    seconds: dict[str, list[float]] = {}
    ratios: dict[str, list[float]] = {}
    printed: list[str] = []
    # The first round compiles kernels and makes Java's archive of classes, once per machine: it does not count.
    for number in range(0 if not bench.quick else 1, rounds + 1):
        with bench.step(f"steps on {len(made.batch)} rows, round {number} of {rounds}"):
            before = _timed(bench, ["-c", EMPTY], folder)[0]
            for name, arguments in _commands(bench, number, search).items():
                spent, said = _timed(bench, arguments, folder)
                spent -= search if name in ("plan", "run") else 0.0
                # One empty job is enough where nothing is claimed.
                after = before if bench.quick else _timed(bench, ["-c", EMPTY], folder)[0]
                if number:
                    seconds.setdefault(name, []).append(spent)
                    seconds.setdefault("empty", []).append((before + after) / 2)
                    ratios.setdefault(name, []).append(spent / ((before + after) / 2))
                elif name == "ingest":
                    report.figure("first_ingest_on_a_new_machine_seconds", spent, "s")
                before = after
                if name not in BARE:
                    printed += [line for line in said if not line.startswith("…")]
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    over = {name: statistics.median(values) for name, values in ratios.items()}
    report.figure("empty_spark_job_seconds", middle["empty"], "s")
    for name, value in over.items():
        report.figure(f"{name}_over_empty_job", value)
    report.table(
        f"steps on {len(made.batch)} rows and {len(made.wanted)} subscriptions",
        ["step", "seconds", "× empty job", "worst"],
        [[name, middle[name], over[name], max(ratios[name])] for name in over],
    )
    report.note(f"plan and run search for {search:g} s, which are taken off; empty jobs run between all steps")
    report.note("ours: the empty job in a session as the steps have it")
    single = [value for name, value in over.items() if name not in ("run", *BARE)]
    if single:
        report.goal("slowest_step_over_empty_job", most(single))
    report.goal("run_over_empty_job", over["run"])
    report.goal("lines_printed_by_java", len(printed))
    for line in printed[:3]:
        report.note(f"printed: {line[:100]}")


def _commands(bench: Bench, number: int, seconds: float) -> dict[str, list[str]]:
    program = ["-m", "sievenet", "pipeline"]
    store, wanted = f"store-{number}", ["--subscriptions", "wanted.txt"]
    search = ["--seconds", str(seconds)]
    every = {
        "ours": ["-c", OURS],
        "ingest": [*program, "ingest", store, "trip.csv"],
        "profile": [*program, "profile", store, "trip", *wanted],
        "plan": [*program, "plan", store, "trip", *wanted, *search, "-o", f"plan-{number}.json"],
        "evaluate": [*program, "evaluate", store, "trip", *wanted, "--plan", f"plan-{number}.json"],
        "run": [*program, "run", "trip.csv", *wanted, *search, "--topology", "testbed", "--report", f"run-{number}"],
    }
    return {name: every[name] for name in bench.size(tuple(every), ("run",))}


def _timed(bench: Bench, arguments: Sequence[str], folder: Path) -> tuple[float, list[str]]:
    """Seconds of Python with arguments, and what it printed to standard error."""
    begun = time.perf_counter()
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": os.pathsep.join(sys.path)}
    # What is timed is not traced, even where tests are.
    environment.pop("COVERAGE_PROCESS_CONFIG", None)
    if bench.quick:
        # Java compiles as little as it can, and no archive of classes is written.
        environment |= {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1", VARIABLE: "off"}
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
