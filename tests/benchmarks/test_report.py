import io
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from benchmarks.harness import Report
from benchmarks.harness.report import format_cell, parse_goal


@pytest.mark.parametrize(
    ("text", "value", "met"),
    [
        (">= 5", 5, True),
        (">= 5", 4.999, False),
        ("≥ 5", 5, True),
        ("<= 1/15", 0.0666, True),
        ("≤ 1/15", 0.0667, False),
        ("< 30 %", 29.9, True),
        ("< 30%", 30, False),
        ("> 1e3", 1001, True),
        (">= 50,000 subscriptions/s", 49_999, False),
        (">= 50_000", 50_000, True),
        ("== 0", 0, True),
        ("= 0 losses", 1, False),
        ("!= 0", 1, True),
        ("<= -.5", -0.5, True),
        (">= 0", math.nan, False),
        ("!= 0", math.nan, False),
        (">= 5", math.inf, False),
        ("<= 5", -math.inf, False),
    ],
)
def test_goal_is_judged(text, value, met):
    report = Report({"g": text})
    assert report.goal("g", value) is met
    assert report.goals[0].met is met


@pytest.mark.parametrize("text", ["", "5", ">=", ">= five", "about 5", ">= 5 6", ">= 5x", "=> 5", ">= 1/0", ">= 1.2.3"])
def test_goal_that_states_no_comparison_is_an_error(text):
    with pytest.raises(ValueError, match="expected a goal"):
        parse_goal(text)


@given(bound=st.floats(-1e6, 1e6), value=st.floats(-1e6, 1e6))
def test_goal_agrees_with_python(bound, value):
    for sign, expected in {">=": value >= bound, "<": value < bound, "==": value == bound}.items():
        compare, parsed = parse_goal(f"{sign} {bound!r}")
        assert parsed == bound
        assert compare(value, parsed) is expected


def test_json_is_one_line_of_plain_values():
    report = Report({"speedup": ">= 5"})
    report.figure("rate", np.float64(2.5), "events/s")
    report.figure("count", np.int64(3))
    report.figure("ok", np.bool_(True))
    report.figure("none", None)
    report.figure("endless", math.inf)
    report.goal("speedup", np.float32(8))
    report.table("t", ["a"], [[1]])
    line = report.to_json("demo", quick=True)
    assert "\n" not in line
    assert json.loads(line) == {
        "benchmark": "demo",
        "quick": True,
        "figures": {"rate": 2.5, "count": 3, "ok": True, "none": None, "endless": None},
        "goals": {"speedup": {"value": 8.0, "goal": ">= 5", "met": True}},
    }


@given(st.dictionaries(st.text(min_size=1), st.none() | st.floats(), max_size=6), st.integers(0, 6))
def test_every_goal_that_was_declared_is_reported(values, undone):
    """Measured or not; and only finite numbers meet a goal."""
    report = Report(dict.fromkeys(values, ">= 0"))
    measured = dict(list(values.items())[undone:])
    for name, value in measured.items():
        if value is not None:
            report.goal(name, value)
    goals = json.loads(report.to_json("demo"))["goals"]
    assert list(goals) == list(values)
    for name, goal in goals.items():
        value = measured.get(name)
        known = value is not None and math.isfinite(value)
        assert goal == {"value": value if known else None, "goal": ">= 0", "met": known and value >= 0}


def test_goals_are_declared():
    with pytest.raises(ValueError, match=r"expected a goal that was declared \(a, b\), got 'c'"):
        Report({"a": "> 0", "b": "> 0"}).goal("c", 1)


def test_show_prints_everything():
    report = Report({"fast": ">= 5", "small": "<= 5", "absent": "> 0"})
    report.table("sizes [k]", ["name", "value"], [["a[0]", 1234567], ["b", 0.000123456]])
    report.figure("rate", 1234.56, "events/s")
    report.goal("fast", 1)
    report.goal("small", 1)
    report.note("one core")
    console = Console(width=120, file=io.StringIO())
    report.show(console)
    text = console.file.getvalue()
    for part in (
        "sizes [k]",
        "a[0]",
        "1,234,567",
        "0.0001235",
        "1,235",
        "events/s",
        "MISSED",
        "NOT MEASURED",
        "note: one core",
    ):
        assert part in text


def test_names_are_given_once():
    report = Report({"a": "> 0"})
    report.figure("a", 1)
    report.goal("a", 1)
    with pytest.raises(ValueError, match="'a' twice"):
        report.figure("a", 2)
    with pytest.raises(ValueError, match="'a' twice"):
        report.goal("a", 2)


def test_wrong_shapes_are_errors():
    report = Report()
    with pytest.raises(TypeError, match="got list"):
        report.figure("a", [1])
    with pytest.raises(ValueError, match="expected 2 cells, got 1 - in row 1 of table 't'"):
        report.table("t", ["a", "b"], [[1, 2], [3]])
    with pytest.raises(ValueError, match="expected a goal"):
        Report({"a": "quick"})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (True, "True"),
        ("x", "x"),
        (12345, "12,345"),
        (12345.6, "12,346"),
        (1.23456, "1.235"),
        (math.nan, "nan"),
    ],
)
def test_cells_are_readable(value, text):
    assert format_cell(value) == text
