"""`Report`: what a benchmark found: figures, goals met or missed, tables, caveats; for people and as one JSON line.

A goal is a comparison in text, `>= 5`, `<= 1/15`, `< 30 %`, `>= 50,000 requests/s`: what stands after the number is a
unit for the reader. A benchmark declares all its goals before it measures anything (`GOALS` in its module), and every
one of them is in the report: a goal that nothing was measured for has no value and is not met. A value that is not a
finite number meets no goal.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import SupportsFloat

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

Scalar = bool | int | float | str | None

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
}
_SPELLINGS = {"≥": ">=", "≤": "<=", "=": "==", "≠": "!="}
_NUMBER = r"[+-]?(?:\d[\d,_]*(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?"
_GOAL = re.compile(rf"\s*(>=|<=|==|!=|[<>=≥≤≠])\s*({_NUMBER})(?:\s*/\s*({_NUMBER}))?(?![\w.])\s*([^\d\s].*)?$")


@dataclass(frozen=True, slots=True)
class Goal:
    """A value and the comparison it should meet; without a value if it was not measured."""

    name: str
    value: float | None
    goal: str

    @property
    def met(self) -> bool:
        """Whether the value meets the comparison."""
        compare, bound = parse_goal(self.goal)
        return self.value is not None and math.isfinite(self.value) and compare(self.value, bound)


@dataclass(frozen=True, slots=True)
class Figure:
    """One number that a benchmark found."""

    name: str
    value: Scalar
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows for people to read; what a machine should read is a figure."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Scalar, ...], ...]


@dataclass(slots=True)
class Report:
    """Collects what a benchmark found; each name is given once, and goals are declared beforehand."""

    #: Name of every goal → its comparison in text.
    declared: Mapping[str, str] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _measured: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for goal in self.declared.values():
            parse_goal(goal)

    @property
    def goals(self) -> list[Goal]:
        """All that were declared, in that order, measured or not."""
        return [Goal(name, self._measured.get(name), goal) for name, goal in self.declared.items()]

    def figure(self, name: str, value: object, unit: str = "") -> None:
        """Add a figure; NumPy scalars become plain ones."""
        _require_new(name, (f.name for f in self.figures), "figure")
        self.figures.append(Figure(name, _scalar(value), unit))

    def goal(self, name: str, value: SupportsFloat) -> bool:
        """Give the value that was measured for a goal; returns whether it is met."""
        if name not in self.declared:
            raise ValueError(f"expected a goal that was declared ({', '.join(self.declared) or 'none'}), got {name!r}")
        _require_new(name, self._measured, "goal")
        self._measured[name] = float(value)
        return Goal(name, self._measured[name], self.declared[name]).met

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Add a table; every row has one cell per column."""
        plain = tuple(tuple(_scalar(cell) for cell in row) for row in rows)
        for number, row in enumerate(plain):
            if len(row) != len(columns):
                raise ValueError(f"expected {len(columns)} cells, got {len(row)} - in row {number} of table {title!r}")
        self.tables.append(Table(title, tuple(columns), plain))

    def note(self, text: str) -> None:
        """Add a caveat that a reader of the figures should know."""
        self.notes.append(text)

    def to_json(self, benchmark: str, *, quick: bool = False) -> str:
        """The whole report, tables aside, as one line of JSON; a number that is not finite becomes null."""
        record = {
            "benchmark": benchmark,
            "quick": quick,
            "figures": {f.name: _finite(f.value) for f in self.figures},
            "goals": {g.name: {"value": _finite(g.value), "goal": g.goal, "met": g.met} for g in self.goals},
        }
        return json.dumps(record, ensure_ascii=False, allow_nan=False)

    def show(self, console: Console) -> None:
        """Print tables, figures, goals and notes for people."""
        for table in self.tables:
            _print_table(console, table)
        if self.figures:
            rows = tuple((f.name, f.value, f.unit) for f in self.figures)
            _print_table(console, Table("figures", ("figure", "value", "unit"), rows))
        if self.goals:
            judged = tuple((g.name, g.value, g.goal, _judged(g)) for g in self.goals)
            _print_table(console, Table("goals", ("goal", "value", "wanted", ""), judged))
        for note in self.notes:
            console.print(f"note: {note}", markup=False, highlight=False)


def _judged(goal: Goal) -> str:
    return "met" if goal.met else "NOT MEASURED" if goal.value is None else "MISSED"


def parse_goal(text: str) -> tuple[Callable[[float, float], bool], float]:
    """The comparison and the bound that a goal's text states."""
    found = _GOAL.match(text)
    if found is None:
        raise ValueError(f'expected a goal such as ">= 5", "<= 1/15" or "< 30 %", got {text!r}')
    sign, number, divisor, _unit = found.groups()
    bound = _number(number)
    if divisor is not None:
        if _number(divisor) == 0.0:
            raise ValueError(f"expected a goal that divides by something, got {text!r}")
        bound /= _number(divisor)
    return _COMPARISONS[_SPELLINGS.get(sign, sign)], bound


def format_cell(value: Scalar) -> str:
    """A cell as people read it: thousands apart, four significant digits, no false precision."""
    if value is None:
        return "-"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _print_table(console: Console, table: Table) -> None:
    shown = RichTable(title=escape(table.title), title_justify="left", title_style="bold")
    for index, column in enumerate(table.columns):
        numeric = any(isinstance(row[index], int | float) for row in table.rows)
        shown.add_column(escape(column), justify="right" if numeric else "left")
    for row in table.rows:
        shown.add_row(*(escape(format_cell(cell)) for cell in row))
    console.print(shown)


def _number(text: str) -> float:
    return float(text.replace(",", "").replace("_", ""))


def _scalar(value: object) -> Scalar:
    if value is None or isinstance(value, bool | int | float | str):
        # A NumPy float64 is a float too; strip it, so that repr and JSON are plain.
        return float(value) if isinstance(value, float) else value
    item = getattr(value, "item", None)
    plain = item() if callable(item) else value
    if isinstance(plain, bool | int | float | str):
        return plain
    raise TypeError(f"expected a number, text, truth value or None, got {type(value).__name__}")


def _finite(value: Scalar) -> Scalar:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _require_new(name: str, known: Iterable[str], kind: str) -> None:
    if name in known:
        raise ValueError(f"expected every {kind} to be reported once, got {name!r} twice")
