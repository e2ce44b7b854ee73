"""Charts as SVG text: bars, lines, histograms.

Made by hand, since the charts are few and simple: nothing to import, some kilobytes each, sharp at any size.  Numbers
are written on the bars and shown when the pointer rests on a shape (``<title>``); colours are few, mean the same in
every chart (`COLOURS`), and are legible on a light and on a dark page.  A chart is a whole SVG document, so it can be a
file of its own or a part of a page.  A network is drawn by `sketch`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

__all__ = ["COLOURS", "bars", "curves", "histogram", "number"]

#: What is before, what comes after, what is needed at least, and two more.
COLOURS: Final = ("#8d99a6", "#2f6fba", "#3f9b63", "#d1812c", "#8a5fb0")
WIDTH: Final = 760
_FONT: Final = "font-family='system-ui, sans-serif' font-size='12'"
_STYLE: Final = (
    "<style>text{fill:#333}.grid{stroke:#d5d9de}@media (prefers-color-scheme:dark){text{fill:#ddd}.grid{stroke:#444}}"
    "</style>"
)


def number(value: float) -> str:
    """A number for people: 1,234, 0.0123, 45.6."""
    if value != value or value in (float("inf"), float("-inf")):
        return "–"
    if float(value).is_integer() or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def document(height: float, parts: Sequence[str], width: float = WIDTH) -> str:
    """Shapes as an SVG document."""
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width:.0f} {height:.0f}' {_FONT} role='img'>"
    return "".join([head, _STYLE, *parts, "</svg>"])


def text(x: float, y: float, content: str, anchor: str = "start", size: int = 12) -> str:
    """A line of text."""
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' font-size='{size}'>{escape(content)}</text>"


def legend(names: Sequence[str], colours: Sequence[str], y: float) -> list[str]:
    """Names beside their colours, in a row."""
    parts, x = [], 10.0
    for name, colour in zip(names, colours, strict=False):
        parts.append(f"<rect x='{x:.0f}' y='{y - 9:.0f}' width='11' height='11' rx='2' fill='{colour}'/>")
        parts.append(text(x + 16, y, name))
        x += 34 + 7.2 * len(name)
    return parts


def bars(
    labels: Sequence[str],
    series: Mapping[str, Sequence[float]],
    unit: str = "",
    colours: Sequence[str] = COLOURS,
    mark: tuple[str, float] | None = None,
) -> str:
    """Horizontal bars, one group per label; ``mark`` is a value to compare with, drawn as a line with its name."""
    names = list(series)
    thick, gap = (18, 10) if len(names) == 1 else (13, 12)
    left = 20 + 7.0 * max((len(label) for label in labels), default=0)
    every = [v for values in series.values() for v in values] + ([mark[1]] if mark else [])
    scale = (WIDTH - left - 90) / (max(every, default=0) or 1)
    top = 26.0 if len(names) > 1 or mark else 6.0
    parts: list[str] = legend(names, colours, 14) if len(names) > 1 else []
    y = top
    for row, label in enumerate(labels):
        parts.append(text(left - 8, y + thick * len(names) / 2 + 4, label, "end"))
        for at, name in enumerate(names):
            value = series[name][row]
            title = f"<title>{escape(f'{label}, {name}: {number(value)} {unit}'.strip())}</title>"
            length = max(1.0, value * scale)
            parts.append(
                f"<rect x='{left:.1f}' y='{y:.1f}' width='{length:.1f}' height='{thick - 2}' rx='2' "
                f"fill='{colours[at % len(colours)]}'>{title}</rect>"
            )
            parts.append(text(left + length + 5, y + thick - 5, number(value), size=11))
            y += thick
        y += gap
    if mark:
        x = left + mark[1] * scale
        ends = f"x1='{x:.1f}' y1='{top - 4}' x2='{x:.1f}' y2='{y:.1f}'"
        parts.append(f"<line {ends} stroke='{COLOURS[2]}' stroke-dasharray='4 3'/>")
        parts.append(text(min(x, WIDTH - 120), top - 10, f"{mark[0]}: {number(mark[1])}", size=11))
    return document(y + 4, parts)


def _ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers from one to another."""
    span = (high - low) or 1.0
    step = 10.0 ** (len(f"{int(span / count)}") - 1) if span >= count else 10.0 ** -len(f"{int(count / span)}")
    while span / step > count:
        step *= 2 if span / step <= 2 * count else 5
    first = int(low / step) * step
    return [round(first + i * step, 12) for i in range(2 * count) if low <= first + i * step <= high]


def curves(
    x: Sequence[float],
    series: Mapping[str, Sequence[float]],
    across: str = "",
    up: str = "",
    colours: Sequence[str] = COLOURS,
    steps: bool = False,
) -> str:
    """Lines over a common axis; with ``steps`` each value holds until the next."""
    left, right, top, bottom, height = 64.0, WIDTH - 16.0, 30.0, 200.0, 236.0
    low, high = min(x, default=0.0), max(x, default=1.0)
    most = max((v for values in series.values() for v in values), default=1.0) or 1.0
    width = (high - low) or 1.0

    def place(at: float, value: float) -> tuple[float, float]:
        return left + (at - low) / width * (right - left), bottom - value / most * (bottom - top)

    parts = legend(list(series), colours, 14)
    for tick in _ticks(0.0, most, 4):
        y = place(low, tick)[1]
        parts.append(f"<line class='grid' x1='{left}' y1='{y:.1f}' x2='{right}' y2='{y:.1f}'/>")
        parts.append(text(left - 6, y + 4, number(tick), "end", 11))
    for tick in _ticks(low, high, 6):
        parts.append(text(place(tick, 0)[0], bottom + 16, number(tick), "middle", 11))
    for values, colour in zip(series.values(), colours, strict=False):
        points = [place(at, value) for at, value in zip(x, values, strict=True)]
        if steps:
            points = [p for a, b in itertools.pairwise(points) for p in (a, (b[0], a[1]))] + points[-1:]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        parts.append(f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2'/>")
    parts.append(text((left + right) / 2, height - 4, across, "middle"))
    parts.append(text(right, 14, up, "end"))
    return document(height, parts)


def histogram(
    edges: Sequence[float], counts: Sequence[float], line: Sequence[float] | None = None, names: Sequence[str] = ()
) -> str:
    """Bars over a stretch of numbers; ``line`` is drawn above them on a scale of its own (0 to its largest)."""
    left, right, top, bottom = 12.0, WIDTH / 2 - 12.0, 26.0, 116.0
    low, width = edges[0], (edges[-1] - edges[0]) or 1.0
    most, upper = max(counts, default=0) or 1, max(line or (), default=0) or 1
    parts = legend(names, (COLOURS[3], COLOURS[1]), 14)
    for first, last, count in zip(edges, edges[1:], counts, strict=False):
        a, b = (left + (e - low) / width * (right - left) for e in (first, last))
        tall = count / most * (bottom - top)
        title = f"<title>{first:.6g} to {last:.6g}: {number(count)}</title>"
        parts.append(
            f"<rect x='{a:.1f}' y='{bottom - tall:.1f}' width='{max(b - a - 0.6, 0.6):.1f}' height='{tall:.1f}' "
            f"fill='{COLOURS[3]}' fill-opacity='0.75'>{title}</rect>"
        )
    if line is not None:
        points = [
            (left + ((first + last) / 2 - low) / width * (right - left), bottom - value / upper * (bottom - top))
            for first, last, value in zip(edges, edges[1:], line, strict=False)
        ]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        parts.append(f"<polyline points='{path}' fill='none' stroke='{COLOURS[1]}' stroke-width='1.6'/>")
    parts += [
        text(left, bottom + 15, f"{edges[0]:.6g}", size=11),
        text(right, bottom + 15, f"{edges[-1]:.6g}", "end", 11),
    ]
    return document(bottom + 20, parts, WIDTH / 2)
