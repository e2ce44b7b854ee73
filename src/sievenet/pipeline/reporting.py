"""Reports: a folder with `report.md`, plots as PNG files and `figures.json`, at the end of every job."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["Report"]


class Report:
    """Collects text, tables and plots of one job; `write` puts them into a folder."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.figures: dict[str, Any] = {}
        self._parts: list[str] = []
        self._plots: list[tuple[str, str, str, str, Sequence[Any], Mapping[str, Sequence[float]], str]] = []

    def text(self, text: str) -> None:
        """A paragraph."""
        self._parts.append(text)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """A table; numbers are shortened."""
        lines = [f"## {title}", "", f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
        lines += [f"| {' | '.join(_shown(cell) for cell in row)} |" for row in rows]
        self._parts.append("\n".join(lines))

    def bars(self, name: str, labels: Sequence[str], values: Mapping[str, Sequence[float]], ylabel: str = "") -> None:
        """A bar chart, drawn when the report is written."""
        self._plot("bars", name, "", ylabel, labels, values)

    def lines(
        self, name: str, x: Sequence[float], lines: Mapping[str, Sequence[float]], xlabel: str = "", ylabel: str = ""
    ) -> None:
        """A line chart, drawn when the report is written."""
        self._plot("lines", name, xlabel, ylabel, x, lines)

    def _plot(
        self, kind: str, name: str, xlabel: str, ylabel: str, x: Sequence[Any], y: Mapping[str, Sequence[float]]
    ) -> None:
        self._plots.append((kind, name, xlabel, ylabel, x, y, f"{name}.png"))
        self._parts.append(f"![{name}]({name}.png)")

    def write(self, folder: str | Path) -> Path:
        """Write everything; returns the path of the report."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        for plot in self._plots:
            _draw(target, *plot)
        made = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        text = "\n\n".join([f"# {self.title}", f"Made {made}.", *self._parts])
        (target / "figures.json").write_bytes(msgspec.json.format(msgspec.json.encode(self.figures), indent=2))
        (target / "report.md").write_text(text + "\n", encoding="utf-8")
        return target / "report.md"


def _shown(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:.4g}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell).replace("|", "\\|")


def _draw(
    folder: Path,
    kind: str,
    name: str,
    xlabel: str,
    ylabel: str,
    x: Sequence[Any],
    y: Mapping[str, Sequence[float]],
    file: str,
) -> None:
    # Slow to import: only when something is drawn.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for number, (label, values) in enumerate(y.items()):
        if kind == "lines":
            axes.plot(list(x), list(values), marker="o", markersize=3, label=label)
        else:
            width = 0.8 / len(y)
            places = [i + number * width for i in range(len(x))]
            axes.bar(places, list(values), width=width, label=label)
    if kind == "bars":
        axes.set_xticks([i + 0.4 - 0.4 / len(y) for i in range(len(x))], list(x), rotation=45, ha="right")
    axes.set_title(name)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    figure.savefig(folder / file, dpi=110)
