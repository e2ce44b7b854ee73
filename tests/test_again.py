"""What failed is run once more, alone: an accident is named and forgiven, a fault is not, nor are many failures."""

import os
import subprocess
import sys

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

[tool.coverage.report]
fail_under = {least}
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run tests with so many accidents and faults; what it ends with, and what `again` makes of it."""
    for name in [name for name in os.environ if name.startswith(("COV", "PYTEST"))]:
        monkeypatch.delenv(name)

    def run(accidents, faults, least=0, processes=0):
        (tmp_path / "test_it.py").write_text(SOURCE.format(accidents=accidents, faults=faults))
        (tmp_path / "pyproject.toml").write_text(SETTINGS.format(least=least))
        (tmp_path / "module.py").write_text("def never():\n    return 1\n")
        first = [sys.executable, "-m", "pytest", "-q", f"-n{processes}", "--cov=module"]
        status = subprocess.run(first, cwd=tmp_path, check=False, capture_output=True).returncode
        return status, again.again(tmp_path, status)

    return run


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


def test_too_few_lines_covered_is_not_forgiven(run):
    assert run(1, 0, least=99) == (1, 1)


def test_what_is_worse_than_failures_is_not_run_again(tmp_path):
    assert again.again(tmp_path, 2) == 2
    assert again.again(tmp_path, again.FAILED) == again.FAILED, "no test had failed: coverage, say"
