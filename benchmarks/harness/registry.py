"""Which benchmarks there are: found by looking at the folder, described without importing them."""

from __future__ import annotations

import ast
import difflib
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from benchmarks.harness.bench import Bench
from benchmarks.harness.report import Report

FOLDER = Path(__file__).resolve().parent.parent


class UnknownBenchmark(LookupError):
    """No benchmark has the name asked for."""

    def __init__(self, name: str, known: list[str]) -> None:
        self.name = name
        self.nearest = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(self.nearest)}?" if self.nearest else f"known: {', '.join(known) or 'none'}"
        super().__init__(f"no benchmark is called {name!r}; {hint}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One benchmark: its name, its one line, its file."""

    name: str
    summary: str
    path: Path

    def load(self) -> Callable[[Bench], Report]:
        """Import the module and return its `run`, whose reports have every goal that the module declares."""
        module = importlib.import_module(f"{FOLDER.name}.{self.name}")
        run = getattr(module, "run", None)
        if not callable(run):
            raise TypeError(
                f"expected benchmarks/{self.path.name} to define run(bench) -> Report, got no such function"
            )
        goals = getattr(module, "GOALS", None)
        if not isinstance(goals, dict):
            raise TypeError(
                f"expected benchmarks/{self.path.name} to declare GOALS, a dict of names and comparisons, got {goals!r}"
            )

        def checked(bench: Bench) -> Report:
            report = cast(Callable[[Bench], Report], run)(bench)
            if report.declared != goals:
                raise ValueError(
                    f"expected run of benchmarks/{self.path.name} to return Report(GOALS), got other goals"
                )
            return report

        return checked


def discover(folder: Path = FOLDER) -> list[Entry]:
    """Every benchmark in `folder`, by name."""
    paths = sorted(path for path in folder.glob("*.py") if not path.name.startswith("_"))
    return [Entry(path.stem, _summary(path), path) for path in paths]


def find(name: str, folder: Path = FOLDER) -> Entry:
    """The benchmark called `name` (dashes and underscores are alike), or `UnknownBenchmark` naming the nearest."""
    entries = {entry.name: entry for entry in discover(folder)}
    entry = entries.get(name.replace("-", "_"))
    if entry is None:
        raise UnknownBenchmark(name, list(entries))
    return entry


def _summary(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"), str(path)))
    return docstring.splitlines()[0] if docstring else "(no docstring)"
