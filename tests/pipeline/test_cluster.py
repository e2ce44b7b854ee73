"""A real standalone cluster on loopback: a master, two workers, and the package shipped to their executors."""

import json
import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from sievenet import programs
from sievenet.index import Plan
from sievenet.tuning.judge import evaluate
from sievenet.workload import Hotspots, grid

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.unwatched]

#: A quick start is worth more here than speed.
JAVA = "-XX:TieredStopAtLevel=1"

#: Runs in a process of its own: a process has one session.
PROGRAM = """
    import json, os, signal, sys
    import pyarrow as pa
    import pyarrow.parquet as pq
    from sievenet.index import Plan
    from sievenet.pipeline.evaluate import evaluate
    from sievenet.pipeline.scan import files_of
    from sievenet.pipeline.spark import spark_session
    from sievenet.pipeline.tables import arrow_of
    from sievenet.workload import Hotspots, grid

    load = Hotspots(schema=grid(3, hi=255), selectivity=0.3, seed=2)
    batch, subs = load.events(500), load.subscriptions(50).filters()

    def where(batches):
        import sievenet
        for each in batches:
            yield pa.RecordBatch.from_arrays([pa.array([sievenet.__file__])], names=["file"])

    flag = sys.argv[2]

    def deadly(batches):
        # Once: the executor that this Python process belongs to is killed while it has a batch in its hands.
        for each in batches:
            try:
                os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                yield each
            else:
                with open(f"/proc/{os.getppid()}/stat") as stat:
                    executor = int(stat.read().rsplit(")", 1)[1].split()[1])
                os.kill(executor, signal.SIGKILL)

    settings = {
        "spark.executor.memory": "512m",
        "spark.cores.max": "2",
        "spark.executor.cores": "1",
        # Few rows: compiling, in Java and in Python, would take longer than anything else.
        "spark.driver.extraJavaOptions": sys.argv[3],
        "spark.executor.extraJavaOptions": sys.argv[3],
        "spark.executorEnv.NUMBA_DISABLE_JIT": "1",
        "spark.sql.shuffle.partitions": "2",
    }
    with spark_session(sys.argv[1], settings=settings) as spark:
        rows = pa.Table.from_batches([arrow_of(batch)])
        events = spark.createDataFrame(rows).repartition(4).cache()
        # The first time executors read a file themselves, the second time events come from the JVM.
        pq.write_table(rows, "events.parquet")
        file = spark.read.parquet(os.path.abspath("events.parquet"))
        assert files_of(file) is not None
        files = {row["file"] for row in events.mapInArrow(where, "file string").collect()}
        (result,) = evaluate(file, load.schema, subs, [Plan.regular(load.schema, 12)], 4)
        executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
        fatal = events.mapInArrow(deadly, events.schema)
        (again,) = evaluate(fatal, load.schema, subs, [Plan.regular(load.schema, 12)], 4)
        counts = [[r.delivered.tolist(), r.wanted.tolist(), r.events] for r in (result, again)]
        print(json.dumps([sorted(files), counts, executors]))
"""


def spark_class(folder, *arguments):
    """Start a part of Spark; its log goes to a file."""
    import pyspark

    home = Path(pyspark.__path__[0])
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder / "work"),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{JAVA} -XX:+UseSerialGC",
    }
    log = (folder / f"{arguments[0].rsplit('.', 1)[-1]}-{time.monotonic_ns()}.log").open("w")
    words = programs.command(str(home / "bin" / "spark-class"), *arguments)
    return subprocess.Popen(words, env=environment, stdout=log, stderr=subprocess.STDOUT), Path(log.name)


def wait_for(log, pattern, process, seconds=120.0):
    """The first match of a pattern in a log."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := re.search(pattern, log.read_text()):
            return found
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(f"no {pattern} in {log.read_text()[-2000:]}")


@pytest.fixture
def cluster(tmp_path):
    """The URL of a master with two workers of a core each."""
    base = "org.apache.spark.deploy"
    processes = []
    try:
        master, log = spark_class(
            tmp_path, f"{base}.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"
        )
        processes.append(master)
        url = wait_for(log, r"Starting Spark master at (spark://\S+)", master)[1]
        size = ("--cores", "1", "--memory", "600m", "--webui-port", "0")
        workers = [spark_class(tmp_path, f"{base}.worker.Worker", url, *size) for _ in range(2)]
        processes += [worker for worker, _ in workers]
        for worker, log in workers:
            wait_for(log, "Successfully registered with master", worker)
        yield url
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(timeout=30)


def test_the_package_goes_along_and_a_killed_executor_changes_nothing(cluster, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    done = subprocess.run(
        [sys.executable, str(program), cluster, str(tmp_path / "killed"), JAVA],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    files, (before, after), executors = json.loads(done.stdout.splitlines()[-1])
    # Executors import what was shipped, not what happens to be installed.
    assert files
    assert all("sievenet-package" in file for file in files)
    assert executors == 2
    load = Hotspots(schema=grid(3, hi=255), selectivity=0.3, seed=2)
    cost = evaluate(Plan.regular(load.schema, 12), load.events(500), load.subscriptions(50).filters(), 4)
    assert [sum(before[0]), sum(before[1]), before[2]] == [cost.delivered, cost.needed.delivered, 500]
    # One executor died in the middle; its tasks ran again elsewhere, and nothing is missing or counted twice.
    assert (tmp_path / "killed").exists()
    killed = [log for log in tmp_path.glob("Worker*.log") if "KILLED" in log.read_text() or "137" in log.read_text()]
    assert killed
    assert after == before
