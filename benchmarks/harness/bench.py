"""`Bench`: one run of a benchmark as its module sees it: how large, who watches, where plots go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import track

T = TypeVar("T")


class Bench:
    """Size, progress and plots of one run. Progress goes to standard error, the report alone to standard output."""

    def __init__(self, *, quick: bool = False, plots: Path | None = None, console: Console | None = None) -> None:
        #: A small size that ends in seconds: shows that the benchmark works, proves no claim.
        self.quick = quick
        #: Folder for plots, or None when nobody asked for any.
        self.plots = plots
        self._console = console if console is not None else Console(stderr=True)

    def size(self, full: T, quick: T) -> T:
        """`quick` in a quick run, `full` otherwise: every size of a benchmark is chosen here."""
        return quick if self.quick else full

    def say(self, text: str) -> None:
        """One line of progress."""
        self._console.print(text, style="dim", markup=False, highlight=False)

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Show that `text` is under way for as long as the block takes."""
        self.say(f"… {text}")
        # Off a terminal a spinner would be noise in a log: the line above is all.
        if self._console.is_terminal:
            with self._console.status(text):
                yield
        else:
            yield

    def track(self, items: Sequence[T] | Iterable[T], text: str, total: int | None = None) -> Iterator[T]:
        """Iterate over `items` behind a progress bar."""
        if not self._console.is_terminal:
            self.say(f"… {text}")
            yield from items
            return
        yield from track(items, description=text, total=total, console=self._console, transient=True)

    def plot_lines(
        self,
        name: str,
        x: Sequence[float],
        lines: Mapping[str, Sequence[float]],
        *,
        title: str = "",
        xlabel: str = "",
        ylabel: str = "",
        log: str = "",
    ) -> Path | None:
        """Draw `lines` over `x` into `NAME.png` of the plot folder (`log`: "", "x", "y", "xy"); None without one."""
        if self.plots is None:
            return None
        # Drawing is a development extra and slow to import: only for those who ask.
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7, 4.5), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        for label, y in lines.items():
            axes.plot(list(x), list(y), marker="o", markersize=3, label=label)
        if "x" in log:
            axes.set_xscale("log")
        if "y" in log:
            axes.set_yscale("log")
        axes.set_title(title)
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)
        axes.grid(visible=True, alpha=0.3)
        axes.legend()
        self.plots.mkdir(parents=True, exist_ok=True)
        path = self.plots / f"{name}.png"
        figure.savefig(path, dpi=120)
        return path
