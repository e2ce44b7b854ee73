"""What every benchmark is written with: `Bench`, `Report`, and the helpers that measure.

May be imported by benchmarks and their tests; imports nothing of `sievenet`, so that it cannot favour anyone.
"""

from benchmarks.harness.bench import Bench
from benchmarks.harness.measure import Ratio, Timing, best_of, least, middle, most, quantiles, quiet_gc, ratio, share
from benchmarks.harness.report import Goal, Report, Table

__all__ = [
    "Bench",
    "Goal",
    "Ratio",
    "Report",
    "Table",
    "Timing",
    "best_of",
    "least",
    "middle",
    "most",
    "quantiles",
    "quiet_gc",
    "ratio",
    "share",
]
