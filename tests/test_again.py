"""What failed is run once more, alone: an accident is named and forgiven, a fault is not, nor are many failures."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import again

#: `accident` fails in the first run only, `fault` always.
SOURCE = """
import module, pathlib, pytest

def test_passes(): pass

@pytest.mark.xdist_group("accidents")
@pytest.mark.parametrize("number", range({accidents}))
def test_accident(number):
    seen = pathlib.Path(f"seen-{{number}}")
    if not seen.exists():
        seen.touch()
        raise AssertionError("this once")

@pytest.mark.parametrize("number", range({faults}))
def test_fault(number):
    raise AssertionError("always")
"""
SETTINGS = """
[tool.pytest.ini_options]
pythonpath = ["."]
addopts = "--strict-markers"
filterwarnings = [
    "error::pytest.PytestUnraisableExceptionWarning",
    "error::pytest.PytestUnhandledThreadExceptionWarning",
]

[tool.coverage.report]
fail_under = {least}
"""


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Run tests; what that ends with, and what `again` makes of it."""
    for name in [name for name in os.environ if name.startswith(("COV", "PYTEST"))]:
        monkeypatch.delenv(name)

    def start(source, least=0, processes=0):
        (tmp_path / "test_it.py").write_text(source)
        (tmp_path / "pyproject.toml").write_text(SETTINGS.format(least=least))
        (tmp_path / "module.py").write_text("def never():\n    return 1\n")
        first = [sys.executable, "-m", "pytest", "-q", f"-n{processes}", "--cov=module"]
        status = subprocess.run(first, cwd=tmp_path, check=False, capture_output=True).returncode
        return status, again.again(tmp_path, status)

    return start


@pytest.fixture
def run(start):
    """Run tests with so many accidents and faults."""
    return lambda accidents, faults, **how: start(SOURCE.format(accidents=accidents, faults=faults), **how)


@pytest.mark.parametrize(
    ("accidents", "faults", "ends"),
    [(0, 0, (0, 0)), (2, 0, (1, 0)), (1, 1, (1, 1)), (again.FEW + 1, 0, (1, 1))],
)
def test_only_what_passes_alone_is_forgiven(run, accidents, faults, ends):
    assert run(accidents, faults) == ends


def test_what_passes_alone_is_named(run, capfd):
    assert run(1, 0, processes=2) == (1, 0)
    named = "UNSTEADY, failed beside other tests and passed alone: test_it.py::test_accident[0]"
    assert named in capfd.readouterr().out


#: What goes wrong in a first run only, and no second run may excuse; and in how many processes.
WORSE = {
    "a crash": (
        2,
        """
def test_it():
    if once(): os.kill(os.getpid(), signal.SIGSEGV)
def test_other(): pass
""",
    ),
    "an error behind a test": (
        0,
        """
@pytest.fixture(scope="module")
def shared():
    yield
    assert not once()
def test_it(shared): pass
def test_other(): pass
""",
    ),
    "what another test left": (
        0,
        """
class Left:
    def __del__(self):
        if once(): raise ValueError("left behind")
class Ring: pass
def test_it():
    ring = Ring()
    ring.ring, ring.left = ring, Left()
def test_other():
    gc.collect()
""",
    ),
    "an error in a thread of another test": (
        0,
        """
go = threading.Event()
def wrong():
    go.wait(60)
    if once(): raise ValueError("left behind")
thread = threading.Thread(target=wrong)
def test_it():
    thread.start()
def test_other():
    go.set()
    if thread.ident: thread.join()
""",
    ),
}
BEGIN = """
import gc, module, os, pathlib, pytest, signal, threading

def once():
    seen = pathlib.Path("seen")
    if seen.exists(): return False
    seen.touch()
    return True
"""


@pytest.mark.parametrize("what", list(WORSE))
def test_what_passing_alone_does_not_excuse_is_not_forgiven(start, tmp_path, what):
    processes, source = WORSE[what]
    shutil.copy(Path(__file__).parent / "conftest.py", tmp_path)
    status, ends = start(BEGIN + source, processes=processes)
    assert again.failed(tmp_path), "something failed"
    assert status == ends != 0


def test_too_few_lines_covered_is_not_forgiven(run):
    assert run(1, 0, least=99) == (1, 1)


def test_what_is_worse_than_failures_is_not_run_again(tmp_path):
    assert again.again(tmp_path, 2) == 2
    assert again.again(tmp_path, again.FAILED) == again.FAILED, "no test had failed: coverage, say"
