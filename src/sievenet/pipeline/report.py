"""Reports: a folder with a page, the same as Markdown, charts as SVG files and the figures, at the end of every job.

index.html      to read: text, tables, charts; one file that needs nothing else
report.md       the same as Markdown, with charts beside it
NAME.svg        the charts
figures.json    every figure, for programs
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from sievenet.pipeline import chart

__all__ = ["Report"]

_STYLE: Final = """
:root{color-scheme:light dark;--line:#d5d9de;--soft:#f5f7f9;--ink:#222}
@media (prefers-color-scheme:dark){:root{--line:#444;--soft:#23272c;--ink:#ddd}}
body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color:var(--ink)}
h1{font-size:1.7rem;line-height:1.25}h2{margin-top:2.2rem;font-size:1.25rem}small,.when,figcaption{color:#777}
table{border-collapse:collapse;font-size:.86rem;display:block;overflow-x:auto}
td,th{padding:.2rem .7rem;border-bottom:1px solid var(--line);text-align:right}
td:first-child,th:first-child{text-align:left}
.tiles{display:flex;flex-wrap:wrap;gap:.8rem}
.tile{background:var(--soft);border-radius:.6rem;padding:.7rem 1rem;flex:1 1 9rem}
.tile b{display:block;font-size:1.5rem;line-height:1.2}
figure{margin:1rem 0}figure svg{width:100%;height:auto}
.row{display:grid;grid-template-columns:repeat(auto-fill,minmax(18rem,1fr));gap:.5rem 1.2rem}.row figure{margin:.3rem 0}
pre{background:var(--soft);padding:.7rem 1rem;border-radius:.6rem;overflow-x:auto;font-size:.86rem}
"""


class _Part(NamedTuple):
    """A part of a report, in both languages."""

    markdown: str
    html: str


class Report:
    """Collects text, tables and charts of one job; `write` puts them into a folder."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.figures: dict[str, Any] = {}
        self._parts: list[_Part] = []
        self._charts: dict[str, str] = {}

    def heading(self, text: str) -> None:
        """The title of what follows."""
        self._parts.append(_Part(f"## {text}", f"<h2>{escape(text)}</h2>"))

    def text(self, text: str) -> None:
        """A paragraph."""
        self._parts.append(_Part(text, f"<p>{escape(text)}</p>"))

    def code(self, text: str) -> None:
        """Lines as they are."""
        self._parts.append(_Part(f"```text\n{text}\n```", f"<pre>{escape(text)}</pre>"))

    def tiles(self, tiles: Mapping[str, str]) -> None:
        """A few figures that matter most."""
        lines = "\n".join(f"- {name}: {value}" for name, value in tiles.items())
        shown = "".join(f"<div class='tile'><b>{escape(v)}</b>{escape(k)}</div>" for k, v in tiles.items())
        self._parts.append(_Part(lines, f"<div class='tiles'>{shown}</div>"))

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """A table; numbers are shortened."""
        self.heading(title)
        lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
        lines += [f"| {' | '.join(_shown(cell).replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
        head = "".join(f"<th>{escape(c)}</th>" for c in columns)
        body = "".join(f"<tr>{''.join(f'<td>{escape(_shown(c))}</td>' for c in row)}</tr>" for row in rows)
        self._parts.append(_Part("\n".join(lines), f"<table><tr>{head}</tr>{body}</table>"))

    def chart(self, name: str, svg: str, caption: str = "") -> None:
        """A chart, which is a file of its own too."""
        self.charts({name: (svg, caption)}, side_by_side=False)

    def charts(self, charts: Mapping[str, tuple[str, str]], *, side_by_side: bool = True) -> None:
        """Several charts with their captions."""
        self._charts |= {name: svg for name, (svg, _) in charts.items()}
        lines = "\n\n".join(f"![{caption or name}]({name}.svg)" for name, (_, caption) in charts.items())
        shown = "".join(
            f"<figure>{svg}{f'<figcaption>{escape(caption)}</figcaption>' if caption else ''}</figure>"
            for svg, caption in charts.values()
        )
        self._parts.append(_Part(lines, f"<div class='row'>{shown}</div>" if side_by_side else shown))

    def bars(self, name: str, labels: Sequence[str], values: Mapping[str, Sequence[float]], unit: str = "") -> None:
        """A bar chart."""
        self.chart(name, chart.bars(labels, values, unit), unit)

    def lines(
        self, name: str, x: Sequence[float], lines: Mapping[str, Sequence[float]], across: str = "", up: str = ""
    ) -> None:
        """A line chart."""
        self.chart(name, chart.curves(x, lines, across, up))

    def write(self, folder: str | Path) -> Path:
        """Write everything; returns the path of the page."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        for name, svg in self._charts.items():
            (target / f"{name}.svg").write_text(svg, encoding="utf-8")
        made = f"Made {time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime())}."
        text = "\n\n".join([f"# {self.title}", made, *(part.markdown for part in self._parts)])
        (target / "figures.json").write_bytes(msgspec.json.format(msgspec.json.encode(self.figures), indent=2))
        (target / "report.md").write_text(text + "\n", encoding="utf-8")
        title = escape(self.title)
        page = [
            "<!doctype html><html lang='en'><meta charset='utf-8'>",
            "<meta name='viewport' content='width=device-width'>",
            f"<title>{title}</title><style>{_STYLE}</style><h1>{title}</h1><p class='when'>{made}</p>",
            *(part.html for part in self._parts),
            "</html>",
        ]
        (target / "index.html").write_text("\n".join(page) + "\n", encoding="utf-8")
        return target / "index.html"


def _shown(cell: object) -> str:
    return chart.number(cell) if isinstance(cell, int | float) and not isinstance(cell, bool) else str(cell)
