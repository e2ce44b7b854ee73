"""The runner itself, on benchmarks made for the purpose in a folder of their own."""

import importlib
import io
import json
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from benchmarks import __main__ as runner
from benchmarks import harness
from benchmarks.harness import Bench, registry

DEMO = '''"""Demonstrate the runner.

More about it.
"""
from benchmarks.harness import Bench, Report

GOALS = {"enough": ">= 100", "absent": "<= 1"}


def run(bench: Bench) -> Report:
    report = Report(GOALS)
    size = bench.size(100, quick=10)
    with bench.step("counting"):
        total = sum(bench.track(range(size), "adding"))
    report.figure("total", total)
    report.goal("enough", total)
    report.table("by size", ["size", "total"], [[size, total]])
    bench.plot_lines("demo", [1, 10], {"total": [1, total]}, log="xy")
    return report
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A package of benchmarks called `demos`, in place of the real folder."""
    demos = tmp_path / "demos"
    demos.mkdir()
    (demos / "__init__.py").write_text("")
    (demos / "_helper.py").write_text('"""Not a benchmark."""')
    (demos / "demo.py").write_text(DEMO)
    (demos / "two_words.py").write_text(DEMO.replace("Demonstrate the runner.", "Something else."))
    (demos / "empty.py").write_text("")
    (demos / "needy.py").write_text('"""Needs what is not there."""\nimport no_such_module_at_all')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "FOLDER", demos)
    monkeypatch.setattr(runner, "discover", lambda: registry.discover(demos))
    monkeypatch.setattr(runner, "find", lambda name: registry.find(name, demos))
    yield demos
    for name in [name for name in sys.modules if name == "demos" or name.startswith("demos.")]:
        del sys.modules[name]


def invoke(*args):
    return CliRunner().invoke(runner.main, list(args))


def test_list_shows_one_line_each(folder):
    result = invoke()
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "demo       Demonstrate the runner.",
        "empty      (no docstring)",
        "needy      Needs what is not there.",
        "two_words  Something else.",
    ]


def test_empty_list_says_so(monkeypatch):
    monkeypatch.setattr(runner, "discover", list)
    assert invoke().stdout == "no benchmarks yet\n"


def test_run_ends_in_one_json_line(folder):
    result = invoke("demo")
    assert result.exit_code == 0
    *shown, last = result.stdout.splitlines()
    assert json.loads(last) == {
        "benchmark": "demo",
        "quick": False,
        "figures": {"total": 4950},
        "goals": {
            "enough": {"value": 4950.0, "goal": ">= 100", "met": True},
            "absent": {"value": None, "goal": "<= 1", "met": False},
        },
    }
    assert "Demonstrate the runner." in shown[0]
    assert "by size" in "\n".join(shown)
    assert "counting" in result.stderr
    assert "counting" not in result.stdout


def test_missed_goal_is_reported_not_failed(folder):
    result = invoke("demo", "--quick")
    assert result.exit_code == 0
    assert "MISSED" in result.stdout
    assert "a quick run" in result.stdout
    record = json.loads(result.stdout.splitlines()[-1])
    assert record["quick"] is True
    assert record["goals"]["enough"] == {"value": 45.0, "goal": ">= 100", "met": False}


def test_json_alone(folder):
    (line,) = invoke("demo", "--json").stdout.splitlines()
    assert json.loads(line)["benchmark"] == "demo"


def test_dashes_are_underscores(folder):
    assert json.loads(invoke("two-words", "--json").stdout)["benchmark"] == "two_words"


def test_plots_are_drawn_when_asked_for(folder, tmp_path):
    assert invoke("demo", "--quick", "--plots", str(tmp_path / "plots")).exit_code == 0
    assert (tmp_path / "plots" / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_unknown_name_is_told_the_nearest(folder):
    result = invoke("dem")
    assert result.exit_code == 1
    assert "no benchmark is called 'dem'; did you mean demo or empty?" in result.stderr
    assert result.stdout == ""
    assert "known: demo, empty, needy, two_words" in invoke("zzzzzz").stderr


def test_missing_module_is_named(folder):
    result = invoke("needy")
    assert result.exit_code == 1
    assert "benchmark 'needy' needs the module 'no_such_module_at_all', which is not installed" in result.stderr


def test_benchmark_without_run_is_an_error(folder):
    importlib.invalidate_caches()
    result = invoke("empty")
    assert isinstance(result.exception, TypeError)
    assert "expected benchmarks/empty.py to define run(bench) -> Report" in str(result.exception)


@pytest.mark.parametrize(
    ("old", "new", "error", "match"),
    [
        ("GOALS = {", "NONE = {", TypeError, "odd.py to declare GOALS"),
        ("Report(GOALS)", 'Report({"enough": "> 1"})', ValueError, "odd.py .*, got other goals"),
    ],
)
def test_benchmark_that_hides_a_goal_is_an_error(folder, old, new, error, match):
    (folder / "odd.py").write_text(DEMO.replace(old, new))
    importlib.invalidate_caches()
    with pytest.raises(error, match=match):
        registry.find("odd", folder).load()(Bench(quick=True))


def test_on_a_terminal_there_is_a_bar():
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    bench = Bench(console=console)
    with bench.step("thinking"):
        assert list(bench.track([1, 2, 3], "counting")) == [1, 2, 3]
    assert "counting" in console.file.getvalue()


def test_harness_imports_nothing_of_sievenet():
    for path in Path(harness.__file__).parent.glob("*.py"):
        assert not re.search(r"^\s*(import|from) sievenet", path.read_text(encoding="utf-8"), re.MULTILINE), path.name
