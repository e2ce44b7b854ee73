"""What conftest.py promises, on a test file of its own: in CI, a skip is a failure with its reason; slow tests run
first; coverage looks away where it was told to."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SKIPPING = """
import pytest

@pytest.mark.skip(reason="no moon")
def test_marked(): pass

def test_called(): pytest.skip("no sun")

@pytest.mark.may_skip("only where there are stars")
def test_allowed(): pytest.skip("no stars")

@pytest.mark.xfail(reason="known")
def test_known(): assert False

def test_good():
    from hypothesis import settings
    default = settings.default
    assert default.deadline is None
    print("profile:", default.max_examples, "derandomized" if default.derandomize else "random")
"""


@pytest.fixture
def run(tmp_path):
    """Run pytest on `source` beside a copy of conftest.py; returns its output."""
    here = Path(__file__).parent
    shutil.copy(here / "conftest.py", tmp_path)
    shutil.copy(here.parent / "pyproject.toml", tmp_path)

    def run(source, ci, *arguments):
        (tmp_path / "test_it.py").write_text(source)
        # Neither this run's workers nor its coverage are the inner run's business.
        dropped = ("PYTEST", "COV", "HYPOTHESIS")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        start = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_it.py", *arguments]
        done = subprocess.run(
            start, cwd=tmp_path, env={**environment, "CI": ci}, capture_output=True, text=True, check=False
        )
        return done.stdout

    return run


INTERRUPTED = """
import signal, subprocess, sys

def test_a_process_ends_when_it_is_told_to():
    start = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(60)"]
    with subprocess.Popen(start, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == -signal.SIGINT
"""


def test_processes_hear_ctrl_c_in_the_background_of_a_script_too(run):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert "1 passed" in run(INTERRUPTED, "true")
    finally:
        signal.signal(signal.SIGINT, before)


def test_skips_are_forgiven_on_a_desk(run):
    output = run(SKIPPING, "false", "-s")
    assert "1 passed, 3 skipped, 1 xfailed" in output
    assert "profile: 30 random" in output


def test_skips_fail_in_ci_with_their_reason(run):
    output = run(SKIPPING, "true", "-s")
    # A mark is judged before the test starts and so counts as an error; the call counts as a failure.
    assert "1 failed, 1 passed, 1 skipped, 1 xfailed, 1 error" in output
    assert "test_marked may not be skipped in CI: Skipped: no moon" in output
    assert "test_called may not be skipped in CI: Skipped: no sun" in output
    assert "profile: 30 derandomized" in output


def test_module_that_skips_fails_in_ci(run):
    source = "import pytest\npytest.importorskip('no_such_module_at_all')\ndef test_it(): pass\n"
    assert "1 skipped" in run(source, "")
    output = run(source, "true")
    assert "may not be skipped in CI" in output
    assert "no_such_module_at_all" in output
    assert "1 error" in output


PART = """
def unwatched():
    return 2
def late():
    return 3
def after():
    return 4
def long():
    return 5
def watched():
    return 6
def same():
    return 7
def new(number):
    match number:
        case 0: return 8
        case 1: return 9
        case 2: return 10
"""

COVERED = """
import os, part, pytest, time
from hypothesis import given, strategies as st

calls = []

@pytest.mark.unwatched
def test_unwatched():
    assert part.unwatched() == 2
    assert "COVERAGE_PROCESS_CONFIG" not in os.environ

@given(st.integers())
def test_property(number):
    calls.append(number)
    assert len(calls) <= 8 or part.late() == 3

def test_after():
    assert len(calls) > 8 and part.after() == 4
    assert os.environ["COVERAGE_PROCESS_CONFIG"]

@pytest.mark.parametrize("seed", range(2))
def test_long(seed):
    begin = time.process_time()
    while seed == 0 and time.process_time() < begin + 0.5: pass
    assert part.long() == 5
    assert "COVERAGE_PROCESS_CONFIG" not in os.environ

@pytest.mark.watched
def test_watched():
    begin = time.process_time()
    while time.process_time() < begin + 0.5: pass
    assert part.watched() == 6

def compute(seconds):
    begin = time.process_time()
    while time.process_time() < begin + seconds: pass

def test_same():
    compute(0.25)
    assert part.same() == 7
    assert os.environ["COVERAGE_PROCESS_CONFIG"]

def test_new():
    for number in range(3):
        assert part.new(number) == 8 + number
        compute(0.08)

@pytest.mark.slow
def test_slow(): pass
"""


def test_slow_tests_run_first_and_coverage_looks_away(run, tmp_path):
    (tmp_path / "part.py").write_text(PART)
    (tmp_path / "all.ini").write_text("[run]\npatch = subprocess\n")
    output = run(COVERED, "true", "-v", "--cov=part", "--cov-config=all.ini", "--cov-report=term-missing")
    assert "9 passed" in output
    assert output.index("::test_slow PASSED") < output.index("::test_unwatched PASSED")
    # Lines 3, 5, 9 and 13 were passed too, unseen; what comes afterwards is seen again.
    assert re.search(r"^part\.py .* 3, 5, 9, 13$", output, re.MULTILINE), output


IMPORTED = """
import gc, part, pytest

@pytest.mark.parametrize("number", range(6))
def test_lets_loose(number):
    assert gc.get_freeze_count() > part.used()
    gc.unfreeze()
    assert gc.get_freeze_count() == 0
"""


def test_what_all_workers_import_is_watched_once_and_is_no_garbage(run, tmp_path):
    (tmp_path / "part.py").write_text("LINE = 0\ndef used():\n    return LINE\n")
    (tmp_path / "all.ini").write_text("[run]\npatch = subprocess\n")
    output = run(IMPORTED, "true", "-n2", "--cov=part", "--cov-config=all.ini", "--cov-report=term-missing")
    assert "6 passed" in output
    assert re.search(r"^part\.py +3 +0 +100%", output, re.MULTILINE), output


SHARED = """
import pytest

@pytest.mark.parametrize("number", range(8))
def test_quick(number): pass

@pytest.mark.slow
@pytest.mark.parametrize("number", range(2))
def test_slow(number): pass
"""


def test_all_workers_but_one_begin_with_long_tests(run):
    output = run(SHARED, "true", "-v", "-n2", "--dist=worksteal")
    assert "10 passed" in output
    by_worker = {each: re.findall(rf"\[{each}\].* PASSED \S+::test_(\w+)", output) for each in ("gw0", "gw1")}
    # Shares are dealt out in the order in which the workers were ready.
    waits, computes = sorted(by_worker.values(), key=lambda ran: ran[0], reverse=True)
    assert waits[:2] == ["slow", "slow"]
    assert computes[0] == "quick"


def test_a_signal_may_come_while_an_event_loop_closes(monkeypatch):
    """Python writes signals to the loop that asked for them, and says so if it is closed."""
    heard, complaints = [], []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    pipe = asyncio.selector_events.BaseSelectorEventLoop._close_self_pipe

    def closed(loop):
        pipe(loop)
        signal.raise_signal(signal.SIGUSR2)

    monkeypatch.setattr(asyncio.selector_events.BaseSelectorEventLoop, "_close_self_pipe", closed)
    before = signal.signal(signal.SIGUSR2, lambda *_: heard.append(True))
    try:
        loop = asyncio.new_event_loop()
        loop.add_signal_handler(signal.SIGUSR1, heard.clear)
        loop.close()
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert heard == [True]
    assert not complaints
