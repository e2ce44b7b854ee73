"""Runs all property and simulation tests again and again with fresh seeds: `make soak`, for as long as wanted.

    python -m tests.soak --for 1h --seed 7 -- -k routers

A round is one run of pytest over every test marked `soak` (conftest.py marks those that use hypothesis, `seeds(…)` the
others), with one fresh `SIEVENET_SEED`. The seeds of the rounds come from one master seed, printed first; the same
master seed gives the same rounds. A failure is printed when it happens, with the command that repeats it, and does not
end the soak. The time limit or Ctrl-C does, in the middle of a round: what was run until then counts.

This module is two things. As a program it starts the rounds. As a pytest plugin (`-p tests.soak`) inside a round, it
writes a line of JSON for everything that starts or ends, which the program follows.
"""

import argparse
import contextlib
import json
import os
import random
import re
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).resolve().parent.parent

#: Seconds without any news from a round after which its tests are taken to hang.
PATIENCE = 1200.0
#: Seconds that pytest has to end after it was interrupted.
LEAVE = 30.0
#: The file that the plugin writes to.
NEWS = "SIEVENET_SOAK_NEWS"

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(text: str) -> float:
    """A length of time: `90`, `90s`, `5m`, `1h`, `1h30m`."""
    parts = re.findall(r"([\d.]+)([smhd]?)", text)
    if not parts or "".join(a + b for a, b in parts) != text:
        raise argparse.ArgumentTypeError(f"expected a length of time such as 90s, 5m or 1h30m, got {text!r}")
    return sum(float(number) * _UNITS[unit or "s"] for number, unit in parts)


def say(text: str) -> None:
    """Print at once, for a reader who waits."""
    print(text, flush=True)  # noqa: T201


# -- the plugin ----------------------------------------------------------------------------------


class News:
    """Tells of every test that starts and ends; lives in the process that the workers report to."""

    def __init__(self, file: TextIO) -> None:
        self.file = file

    def tell(self, **news: Any) -> None:
        """Write one line."""
        self.file.write(json.dumps(news) + "\n")
        self.file.flush()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins."""
        self.tell(began=nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A phase of a test is over; it fails if any of them does."""
        if report.failed:
            sections = "\n".join(f"{title}: {text}" for title, text in report.sections if title == "Hypothesis")
            self.tell(failed=report.nodeid, why=f"{report.longreprtext}\n{sections}".strip())
        if report.when == "teardown":
            passing = re.findall(r"(\d+) passing", report.__dict__.get("_hypothesis_stats", ""))
            self.tell(ended=report.nodeid, examples=sum(map(int, passing)) or 1)

    def pytest_collectreport(self, report: Any) -> None:
        """A file cannot be read: none of its tests would run."""
        if report.failed:
            self.tell(failed=report.nodeid, why=str(report.longrepr))


def pytest_configure(config: Any) -> None:
    """Workers of pytest-xdist tell their controller, and it alone writes."""
    path = os.environ.get(NEWS)
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(News(open(path, "a", encoding="utf-8")), "sievenet-soak")  # noqa: SIM115


# -- the program ---------------------------------------------------------------------------------


class Soak:
    """Counts what the rounds tell, and prints what fails."""

    def __init__(self, arguments: list[str], jobs: str) -> None:
        self.arguments, self.jobs = arguments, jobs
        self.rounds = self.tests = self.examples = 0
        self.failures: Counter[str] = Counter()
        #: The first command that repeats each failure.
        self.repeats: dict[str, str] = {}
        self.running: set[str] = set()

    def round(self, seed: int, until: float) -> bool:
        """One run of all tests; False if it was cut short by the clock."""
        self.rounds += 1
        self.running.clear()
        with tempfile.TemporaryDirectory() as folder:
            news, log = Path(folder, "news"), Path(folder, "log")
            news.touch()
            environment = os.environ | {
                "SIEVENET_SEED": str(seed),
                "HYPOTHESIS_PROFILE": "soak",
                NEWS: str(news),
            }
            start = [sys.executable, "-m", "pytest", "-p", "tests.soak", "-p", "no:cacheprovider", "-q", "-m", "soak"]
            # Its own session, for Ctrl-C at the terminal is for us alone; we tell it to end.
            with log.open("w") as output, news.open() as lines:
                process = subprocess.Popen(
                    [*start, "-n", self.jobs, *self.arguments], cwd=ROOT, env=environment, stdout=output,
                    stderr=subprocess.STDOUT, start_new_session=True,
                )  # fmt: skip
                try:
                    whole = self._follow(process, lines, seed, until)
                finally:
                    _end(process)
                    self._read(lines, seed)
            # 5: no test was chosen. Others than 0, 1 (failures) and 2 (interrupted) are pytest's own trouble.
            if whole and (process.returncode not in (0, 1) or not self.tests):
                self._failed("pytest", log.read_text(), seed, "")
        return whole

    def _follow(self, process: subprocess.Popen[bytes], lines: TextIO, seed: int, until: float) -> bool:
        """Wait for the end of a round, or of the time."""
        heard = time.monotonic()
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.3)
                return True
            now = time.monotonic()
            if self._read(lines, seed):
                heard = now
            if now >= until:
                return False
            if now - heard > PATIENCE:
                for nodeid in sorted(self.running):
                    self._failed(nodeid, f"no end after {PATIENCE:.0f} s without any news", seed, nodeid)
                return True

    def _read(self, lines: TextIO, seed: int) -> int:
        """Take in what a round has told since."""
        count = 0
        for line in _whole(lines):
            count += 1
            news = json.loads(line)
            if "began" in news:
                self.running.add(news["began"])
            elif "failed" in news:
                self._failed(news["failed"], news["why"], seed, news["failed"])
            else:
                self.running.discard(news["ended"])
                self.tests += 1
                self.examples += news["examples"]
        return count

    def _failed(self, name: str, why: str, seed: int, nodeid: str) -> None:
        command = f"SIEVENET_SEED={seed} HYPOTHESIS_PROFILE=soak {_python()} -m pytest -n0"
        command += f" {shlex.quote(nodeid)}" if nodeid else f" -m soak {shlex.join(self.arguments)}"
        self.failures[name] += 1
        self.repeats.setdefault(name, command)
        say(f"\n{why}\nFAILED {name} (round {self.rounds}, seed {seed})\n  repeat: {command}")

    def summary(self, took: float) -> str:
        """What was run and what fell out."""
        said = (
            f"soak: {self.rounds} rounds, {self.tests} tests, {self.examples} examples, "
            f"{sum(self.failures.values())} failures in {took:.0f} s"
        )
        lines = [f"  {times} x {name}\n      repeat: {self.repeats[name]}" for name, times in self.failures.items()]
        return "\n".join([said, *lines])


def _whole(lines: TextIO) -> Iterator[str]:
    """The lines that are complete; the beginning of another waits for its end."""
    while True:
        place = lines.tell()
        line = lines.readline()
        if not line.endswith("\n"):
            lines.seek(place)
            return
        yield line


def _end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt pytest, which then stops its workers; after a while, kill all of them."""
    for number, wait in ((signal.SIGINT, LEAVE), (signal.SIGKILL, None)):
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(wait)


def _python() -> str:
    """This Python, as one would type it at the top of the tree."""
    path = Path(sys.executable)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def main(arguments: list[str] | None = None) -> int:
    """Soak until the time is over or somebody interrupts; 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--for", dest="length", type=seconds, metavar="TIME", help="5m, 1h30m; default: until Ctrl-C")
    parser.add_argument("--seed", type=int, help="the master seed; a fresh one by default")
    parser.add_argument("--rounds", type=int, help="end after so many rounds")
    parser.add_argument("--jobs", default="auto", help="test processes")
    parser.add_argument("pytest", nargs="*", metavar="-- PYTEST ARGUMENTS")
    chosen = parser.parse_args(arguments)
    master = secrets.randbelow(1 << 31) if chosen.seed is None else chosen.seed
    fresh = random.Random(master)
    begun = time.monotonic()
    until = begun + (float("inf") if chosen.length is None else chosen.length)
    soak = Soak(chosen.pytest, chosen.jobs)
    say(f"soak: master seed {master}; Ctrl-C ends it with a summary")
    try:
        while time.monotonic() < until and (chosen.rounds is None or soak.rounds < chosen.rounds):
            seed = fresh.randrange(1 << 31)
            say(f"soak: round {soak.rounds + 1}, SIEVENET_SEED={seed}")
            soak.round(seed, until)
    except KeyboardInterrupt:
        say("\nsoak: interrupted")
    say(soak.summary(time.monotonic() - begun))
    return 1 if soak.failures else 0


if __name__ == "__main__":
    sys.exit(main())
