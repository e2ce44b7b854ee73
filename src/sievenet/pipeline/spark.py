"""The one place where Spark is started: quiet, quick, local unless told otherwise, one session per process.

    with spark_session() as spark:                         # local[*]
        …
    with spark_session("spark://master:7077") as spark:    # the same jobs on a cluster
        …

Settings come from three places, later ones win: ours below, what `settings` says, and what the machine says
(``spark-defaults.conf`` of a cluster is read by Spark itself for everything we leave alone).

A second session starts in half of the time, by Java's archive of classes (see `archive`).  Who has little to read says
so (`small`): then Java compiles quickly instead of well, which saves more time than it costs.

What Java prints goes to a file, not to the user: errors reach us as exceptions, and if Java does not start, the end of
that file is the message.

On a cluster the package goes along: it is packed into an archive that every executor unpacks and puts on its path,
so executors need Python, NumPy, Numba and PyArrow (or a packed environment that has them), but no Sievenet.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from sievenet.errors import Unavailable
from sievenet.pipeline.archive import Archive, archive_for, java_binary

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

__all__ = ["LOCAL", "packed_package", "spark_session", "stop"]

LOCAL: Final = "local[*]"

_HERE: Final = Path(__file__).parent
#: Where executors find the package: the folder their archive is unpacked into.
_UNPACKED: Final = "sievenet-package"

_SETTINGS: Final[dict[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Attribute names differ in case.
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    # Few, since what is shuffled are sums; adaptive execution splits those that turn out large.
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # No limit: with one, Spark adds up a batch's bytes after every row, which takes a quarter of the transfer.  Strings
    # are short (see `content`), so the rows of a batch are limit enough.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    # A row is judged by all of its columns, whichever are asked for.
    "spark.sql.csv.parser.columnPruning.enabled": "false",
    "spark.sql.parquet.compression.codec": "snappy",
    # So many slots of time are written side by side; with more, rows are sorted by slot first.
    "spark.sql.maxConcurrentOutputFileWriters": "24",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.python.worker.reuse": "true",
    # With short tracebacks tables would have Python processes of their own, apart from those of other jobs.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
}

_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
#: Generated code of wide tables exceeds the size up to which Java compiles a method, unless told otherwise.
_JAVA: Final = "-XX:+UseParallelGC -XX:-DontCompileHugeMethods"
_QUICK: Final = "-XX:TieredStopAtLevel=1"

_current: SparkSession | None = None
_master: str = ""
_archive: Archive | None = None


def spark_session(
    master: str | None = None,
    *,
    name: str = "sievenet",
    settings: Mapping[str, str] | None = None,
    small: bool = False,
) -> contextlib.AbstractContextManager[SparkSession]:
    """The process's session, started if there is none; stopped at the end of the block that started it.

    ``small`` says that there are some megabytes to read, not gigabytes.
    """
    return _session(master or LOCAL, name, settings or {}, small)


@contextlib.contextmanager
def _session(master: str, name: str, settings: Mapping[str, str], small: bool) -> Iterator[SparkSession]:
    if _current is not None:
        if master not in (LOCAL, _master):
            raise Unavailable(f"Spark runs on {_master} in this process already; {master} needs a process of its own")
        yield _current
        return
    spark = _start(master, name, settings, small)
    try:
        yield spark
    finally:
        stop()


def _start(master: str, name: str, settings: Mapping[str, str], small: bool) -> SparkSession:
    global _current, _master, _archive
    local = master.startswith("local")
    if local or "127.0.0.1" in master:
        # A machine whose name does not resolve would stop Spark before it starts.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # The program that puts Spark's command line together lives for half a second.
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    try:
        from pyspark import SparkConf
        from pyspark.errors import PySparkException, PySparkRuntimeError
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise Unavailable(f"The pipeline needs its extra: pip install 'sievenet[pipeline]' ({error})") from error
    java = java_binary()
    if java is None:
        raise Unavailable("The pipeline needs Java 17 or newer, and there is no `java` on the path nor a JAVA_HOME")
    chosen = {**_SETTINGS, **(_local_settings() if local else _shipped()), **settings}
    _archive = _archive_of(java) if local else None
    quick = _QUICK if small and local else ""
    options = [_JAVA, quick, _archive.options if _archive else "", settings.get(_JAVA_OPTIONS, "")]
    chosen[_JAVA_OPTIONS] = " ".join([f"-Dlog4j2.configurationFile={(_HERE / 'log4j2.properties').as_uri()}", *options])
    # Executors of a cluster are their own processes.
    chosen["spark.executor.extraJavaOptions"] = f"{_JAVA} {settings.get('spark.executor.extraJavaOptions', '')}"
    conf = SparkConf().setMaster(master).setAppName(name).setAll(list(chosen.items()))
    # Java has the file open for as long as it runs; ours ends here.
    with tempfile.TemporaryFile() as said:
        try:
            _launch(conf, said)
            builder: Any = SparkSession.builder
            spark: SparkSession = builder.config(conf=conf).getOrCreate()
        except (PySparkException, PySparkRuntimeError, OSError) as error:
            raise Unavailable(f"Spark on {master} did not start: {str(error)[:500]}{_end_of(said)}") from error
    spark.sparkContext.setLogLevel("FATAL")
    _current, _master = spark, master
    atexit.register(stop)
    return spark


def _launch(conf: SparkConf, output: IO[bytes]) -> None:
    """Start Java; what it prints goes to a file."""
    from pyspark import SparkContext, java_gateway

    context: Any = SparkContext
    launch: Any = java_gateway.launch_gateway
    if context._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        context._gateway = launch(conf, {"stdout": output, "stderr": output})
        context._jvm = context._gateway.jvm


def _end_of(output: IO[bytes]) -> str:
    """The last lines that Java printed."""
    output.seek(0)
    lines = output.read().decode(errors="replace").strip().splitlines()
    return "\n".join(["", *lines[-8:]])[:2000] if lines else ""


def _archive_of(java: Path) -> Archive | None:
    import pyspark

    return archive_for(java, Path(pyspark.__path__[0]), pyspark.__version__)


def stop() -> None:
    """Stop the process's session, if there is one, and its JVM."""
    global _current, _archive
    spark, _current = _current, None
    archive, _archive = _archive, None
    if spark is None:
        return
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    spark.stop()
    if gateway is not None:
        # The JVM would linger until this process ends; whoever stops a session means it.
        gateway.shutdown()
        if gateway.proc is not None and gateway.proc.stdin is not None:
            gateway.proc.stdin.close()
            with contextlib.suppress(Exception):
                # Writing an archive takes a while, once.
                ended = gateway.proc.wait(timeout=90 if archive and archive.part else 20)
                if archive is not None:
                    archive.finish() if ended == 0 else archive.discard()
        SparkContext._gateway = None
        SparkContext._jvm = None


def _local_settings() -> dict[str, str]:
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "sievenet-warehouse"),
    }


# -- shipping the package ---------------------------------------------------------------------


def packed_package(folder: Path) -> Path:
    """The package as an archive in a folder: what executors of a cluster get."""
    source = _HERE.parent
    staged = folder / "staged"
    shutil.copytree(source, staged / "sievenet", ignore=shutil.ignore_patterns("__pycache__"))
    made = shutil.make_archive(str(folder / "sievenet"), "zip", staged)
    shutil.rmtree(staged)
    return Path(made)


def _shipped() -> dict[str, str]:
    folder = Path(tempfile.mkdtemp(prefix="sievenet-ship-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = packed_package(folder)
    # Unpacked, not on the path as a zip: compiled kernels are cached next to their sources.
    return {"spark.archives": f"{archive}#{_UNPACKED}", "spark.executorEnv.PYTHONPATH": _UNPACKED}
