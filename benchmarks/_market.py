"""The stock data of all benchmarks: real daily quotes where there are some, and a word in the report which ones."""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.harness import Bench, Report
from sievenet.workload import Quotes, Ticks, load_quotes

__all__ = ["market"]

_ROOT = Path(__file__).resolve().parents[1]


def market(bench: Bench, report: Report) -> Quotes | Ticks:
    """Daily quotes that SIEVENET_QUOTES names or that lie next to the project; else a made market."""
    named = os.environ.get("SIEVENET_QUOTES")
    around = (path for folder in _ROOT.parents[:2] for path in sorted(folder.glob("*/data/*daily*.csv*")))
    near = [Path(named)] if named else list(around)
    if near and not bench.quick:
        quotes = load_quotes(near[0])
        _say(report, f"stock: {len(quotes):,} daily quotes of {near[0].name}")
        return quotes
    why = "this is a quick run" if bench.quick else "SIEVENET_QUOTES names no file of daily quotes"
    _say(report, f"stock: a made market, for {why}")
    return Ticks(seed=1)


def _say(report: Report, text: str) -> None:
    if text not in report.notes:
        report.note(text)
