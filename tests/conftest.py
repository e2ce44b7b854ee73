"""Settings that hold for every test: hypothesis profiles, what runs first, and skips that CI does not forgive."""

import asyncio
import collections
import functools
import gc
import importlib.util
import itertools
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from coverage import Coverage
from hypothesis import HealthCheck, is_hypothesis_test, settings

import sievenet
from sievenet import programs
from sievenet.jit.store import places

IN_CI = os.environ.get("CI", "").lower() not in ("", "0", "false")

# Deadlines would make tests fail on a busy machine; derandomising makes CI say the same thing twice.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("dev", max_examples=30, derandomize=False, **_COMMON)
settings.register_profile("ci", max_examples=30, derandomize=True, print_blob=True, **_COMMON)
settings.register_profile("thorough", max_examples=1000, derandomize=False, **_COMMON)
# For tests/soak.py: the seed alone says what is tried, so no example is remembered from another run.
settings.register_profile("soak", max_examples=300, derandomize=False, database=None, print_blob=True, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if IN_CI else "dev"))


#: Coverage more than doubles the time of what it watches, and a test that goes on passes the same lines again. So it
#: watches a test for this many seconds of processor time, all its seeds together, and a property for this many
#: examples. What comes afterwards runs unwatched, and so do the processes that it starts. In the test itself it looks
#: away before that, at the end of the first stretch in which no line was passed that no test before had passed.
WATCHED_SECONDS = 0.4
WATCHED_STRETCH = 0.1
WATCHED_EXAMPLES = 5
_WATCHING = "COVERAGE_PROCESS_CONFIG"  # what coverage has processes find, so that they are watched too
_watched: collections.Counter[str] = collections.Counter()  # seconds, by test


def _seen() -> int:
    """How many lines coverage has seen in this process."""
    coverage: Any = Coverage.current()
    return 0 if coverage is None else sum(map(len, list(coverage._collector.data.values())))


class _Look:
    """Coverage during one test: away as soon as enough was seen, back afterwards."""

    def __init__(self, left: float) -> None:
        self.stopped: list[Coverage] = []
        self.found: str | None = None
        self._left = left
        self._seen = _seen()
        self._over = False  # the signal may come while coverage is stopped already, or back

    def again(self, *_: object) -> None:
        """After each stretch of time: look away if it brought nothing new, and altogether if the time is over."""
        seen, before = _seen(), self._seen
        self._seen = seen
        self._left -= WATCHED_STRETCH
        if self._left < WATCHED_STRETCH / 2:
            self.away()
        elif seen == before and not self._over:
            self._stop()

    def away(self) -> None:
        """Look away, and have processes that are started from now on unwatched."""
        if not self._over:
            self._over = True
            self._stop()
            self.found = os.environ.pop(_WATCHING, self.found)

    def _stop(self) -> None:
        """Stop coverage: this run's, and below it this process's own, which would go on in its place."""
        while (coverage := Coverage.current()) is not None:
            coverage.stop()
            self.stopped.append(coverage)

    def back(self) -> None:
        """As it was."""
        self._over = True
        while self.stopped:
            self.stopped.pop().start()
        if self.found is not None:
            os.environ[_WATCHING] = self.found


# A shell that starts tests in the background (`make test &`) has them ignore Ctrl-C, and so would all that they start.
for _number in (signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_close = asyncio.SelectorEventLoop.close


def _close_unheard(loop: Any) -> None:
    """Close an event loop: it closes what signals are written to before it stops asking for them, and ours may come."""
    if getattr(loop, "_signal_handlers", None) and threading.current_thread() is threading.main_thread():
        signal.set_wakeup_fd(-1)
    _close(loop)


asyncio.SelectorEventLoop.close = _close_unheard  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Coverage looks away from what goes on for long, unless it is `watched`, and from `unwatched` tests."""
    if Coverage.current() is None or item.get_closest_marker("watched") is not None:
        return (yield)
    seeded = "seed" in getattr(getattr(item, "callspec", None), "params", {})
    name = item.nodeid.partition("[")[0] if seeded else item.nodeid
    handle = getattr(getattr(item, "obj", None), "hypothesis", None)
    inner, begun, before = getattr(handle, "inner_test", None), 0, time.process_time()

    @functools.wraps(inner or pytest_runtest_call)
    def counted(*arguments: Any, **names: Any) -> Any:
        nonlocal begun
        begun += 1
        if begun == WATCHED_EXAMPLES + 1:
            look.away()
        return inner(*arguments, **names)

    if handle is not None:
        handle.inner_test = counted
    left = WATCHED_SECONDS - _watched[name]
    look = _Look(left)
    if left <= 0 or item.get_closest_marker("unwatched") is not None:
        look.away()
    else:
        # A signal, in this thread, after so much time of this process, and again; none if the test is shorter.
        signal.signal(signal.SIGPROF, look.again)
        signal.setitimer(signal.ITIMER_PROF, min(left, WATCHED_STRETCH), WATCHED_STRETCH)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        _watched[name] += time.process_time() - before
        if handle is not None:
            handle.inner_test = inner
        look.back()


def _first() -> bool:
    """Whether this process is the first of several that run tests, or the only one."""
    return os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0"


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Coverage looks away from the process that hands out tests to others; these begin to watch by themselves."""
    if session.config.getoption("numprocesses", None) and not hasattr(session.config, "workerinput"):
        _Look(0.0).away()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """All processes import the same modules, which coverage makes take three times as long: it watches the first."""
    look = _Look(0.0)
    if not _first():
        look.away()
    try:
        return (yield)
    finally:
        look.back()


def _watch_programs(event: str, details: tuple[Any, ...]) -> None:
    """Every start of a process, whoever starts it, is of a program that the table has (see sievenet.programs)."""
    if event == "os.system":
        raise AssertionError("expected a program of programs.txt, got a line for the shell (os.system)")
    if event in _STARTS:
        words = details[_STARTS[event]]
        words = [words] if isinstance(words, str | bytes | os.PathLike) else words
        for name in programs.unlisted([os.fsdecode(word) for word in words]):
            if name not in _DISPENSABLE:
                raise AssertionError(f"expected a program of programs.txt, got {name}: add a row for it")


#: matplotlib asks this one for fonts, once per machine, and does without it.
_DISPENSABLE = {"fc-list"}
#: Events of the interpreter, and where each has the words of the command.
_STARTS = {"subprocess.Popen": 1, "os.exec": 1, "os.posix_spawn": 1, "os.spawn": 2}
sys.addaudithook(_watch_programs)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--screenshots docs/images` makes the documents' pictures of the page anew (tests/web/test_page.py)."""
    parser.addoption("--screenshots", metavar="FOLDER", default=None, help="write pictures of the web page there")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """`SIEVENET_SEED` is for hypothesis too, unless it is told otherwise."""
    if os.environ.get("SIEVENET_SEED") and config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = os.environ["SIEVENET_SEED"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Properties and state machines belong to a soak, as tests that use `seeds(…)` do; and long tests come first."""
    for item in items:
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.soak)
    items[:] = _in_shares(items, getattr(config, "workerinput", {}).get("workercount", 1))


def _in_shares(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """An order in which long tests come first and wait beside others that compute.

    Workers get equal shares of neighbours, and take from each other's ends when they have done theirs. So all workers
    but one begin with long tests, which mostly wait; the first with Spark's, which share a session.
    """
    marked: dict[str | None, list[pytest.Item]] = {"spark": [], "slow": [], None: []}
    for item in items:
        marked[next((mark for mark in ("spark", "slow") if item.get_closest_marker(mark)), None)].append(item)
    shares: list[list[pytest.Item]] = [[] for _ in range(workers)]
    shares[0] += marked["spark"]
    for item in marked["slow"]:
        min(shares[: max(1, workers - 1)], key=len).append(item)
    rest, left = iter(marked[None]), len(items)
    for i, share in enumerate(shares):
        size = left // (workers - i)
        left -= size
        share += itertools.islice(rest, max(0, size - len(share)))
    return [*itertools.chain(*shares), *rest]


def _keep_what_is_there() -> None:
    """What is there now stays until the end: no garbage collection looks at it again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Half a gigabyte of modules and tests need no looking at."""
    _keep_what_is_there()


_unfreeze = gc.unfreeze
_thawed = False


def _unfreeze_noted() -> None:
    """Let garbage collection look at everything again. Asking whether it does would count a million objects."""
    global _thawed
    _thawed = True
    _unfreeze()


gc.unfreeze = _unfreeze_noted


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """A test that ran as a daemon does (see sievenet.daemon.collector) has let go of it."""
    global _thawed
    if _thawed:
        _thawed = False
        _keep_what_is_there()


#: What a run ends with in which something failed that passing alone would not excuse (see tests/again.py).
GRAVE = 70
#: How pytest tells of what some test before left behind: it fails whichever test runs when that is found.
_LEFT_BEHIND = ("PytestUnraisableExceptionWarning", "PytestUnhandledThreadExceptionWarning")
_grave: list[str] = []


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """A crash: compiled code is given bare addresses, so whatever ran when it showed says nothing by passing alone."""
    if error:
        _grave.append(f"{node.gateway.id} crashed")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """What ends behind a test may be a fixture of others too; and what another left is not this test's."""
    if report.failed and (report.when == "teardown" or any(each in report.longreprtext for each in _LEFT_BEHIND)):
        _grave.append(f"{report.nodeid} ({report.when})")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell crashes and the like from tests that failed."""
    if _grave and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        session.exitstatus = GRAVE


_BEGUN = time.time()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What no later run alone excuses; and what tests compiled, which takes longer there than in tests/kernels.py."""
    if _grave:
        terminalreporter.section("not to be forgiven", "=")
        terminalreporter.write_line(", ".join(_grave))
    folder = places(os.environ.get("NUMBA_CACHE_DIR", ""), Path(sievenet.__file__).resolve().parent)[0]
    found = [path for path in folder.glob("*.nbc") if path.stat().st_mtime > _BEGUN]
    if found:
        names = sorted({path.name.rpartition("-")[0] for path in found})
        terminalreporter.section("compiled by tests", "=")
        terminalreporter.write_line(f"not by `make kernels` before, for these arguments at least: {', '.join(names)}")


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """Commands that a test runs in this process may configure the log: the next test has it as it was."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)
    for handler in [each for each in root.handlers if each.get_name() == "sievenet"]:
        root.removeHandler(handler)
        handler.close()


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark session for all tests that a process runs: small, quick to start, stopped at the end."""
    from sievenet.pipeline.spark import spark_session

    # One session does not pay for an archive.
    os.environ.setdefault("SIEVENET_SPARK_ARCHIVE", "off")
    # Compiling less pays for tests; figures are not taken here.
    quick = {
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "300",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }
    with spark_session("local[2]", settings=quick) as session:
        yield session


def _lacking(mark: str) -> str | None:
    """What this machine lacks for tests of a mark, or None."""
    if mark == "root" and os.geteuid() != 0:
        return "needs root"
    part = {"ovs": "openvswitch", "spark": "java"}.get(mark, "")
    for program in programs.missing(part):
        return f"needs {program.name} (scripts/system-packages {part})"
    if mark == "spark" and importlib.util.find_spec("pyspark") is None:
        return "needs the pipeline extra (pip install -e .[pipeline])"
    return None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what this machine cannot run, saying what it lacks."""
    for mark in ("root", "ovs", "spark"):
        if item.get_closest_marker(mark) is not None and (reason := _lacking(mark)) is not None:
            pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """In CI a skipped test fails with its reason: what is not run is not shown. `may_skip(reason)` is the exception."""
    report = yield
    if IN_CI and report.skipped and not hasattr(report, "wasxfail") and item.get_closest_marker("may_skip") is None:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} may not be skipped in CI: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """The same for a module that skips as a whole, as `pytest.importorskip` at its top does."""
    report = yield
    if IN_CI and report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} may not be skipped in CI: {reason}"
    return report
