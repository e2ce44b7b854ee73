"""Every benchmark runs to its end at its quick size and reports as the contract says."""

import importlib
import json

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import main
from benchmarks.harness.registry import discover

NEEDS_SPARK = {"pipeline", "placement"}


def marked(entry):
    return pytest.param(entry, marks=[pytest.mark.spark] if entry.name in NEEDS_SPARK else [], id=entry.name)


@pytest.mark.slow
@pytest.mark.watched
@pytest.mark.parametrize("entry", [marked(each) for each in discover()])
def test_quick_run(entry, request, monkeypatch):
    # What is timed is not traced: processes of benchmarks are killed in the end, and coverage would learn nothing.
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
    if entry.name in NEEDS_SPARK:
        # Another session would take longer to start than all that is measured.
        request.getfixturevalue("spark")
    result = CliRunner().invoke(main, [entry.name, "--quick"], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    record = json.loads(result.stdout.splitlines()[-1])
    assert record["benchmark"] == entry.name
    assert record["quick"] is True
    assert record["figures"]
    declared = importlib.import_module(f"benchmarks.{entry.name}").GOALS
    assert {name: goal["goal"] for name, goal in record["goals"].items()} == declared
    for goal in record["goals"].values():
        assert set(goal) == {"value", "goal", "met"}
        assert goal["value"] is not None or not goal["met"]


def test_every_benchmark_says_what_it_shows():
    for entry in discover():
        assert entry.summary.endswith("."), f"{entry.path.name}: the docstring's first line should be one sentence"
        assert len(entry.summary) <= 100, f"{entry.path.name}: the docstring's first line should fit the list"
