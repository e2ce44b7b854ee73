"""Parse, normalise and cover filters: typical ones, large unions and sets of thousands of values."""

from __future__ import annotations

import random

from benchmarks.harness import Bench, Report, best_of, ratio
from sievenet.content import Attribute, Filter, Schema, Subscription, ValueSet, parse_filter
from sievenet.index import Plan

GOALS = {"filters_per_s": ">= 20,000 filters/s", "union_speedup": ">= 15", "cover_growth": "<= 6"}

STOCK = Schema(
    "stock",
    (
        Attribute("symbol", "str", values=tuple(f"S{i:03}" for i in range(500))),
        Attribute("price", "float", lo=0, hi=1000),
        Attribute("volume", "int", lo=0, hi=100_000),
        Attribute("halted", "bool"),
    ),
)


def texts(count: int) -> list[str]:
    """Filters as people write them: one to three conditions."""
    draw = random.Random(1)
    found = []
    for i in range(count):
        price, volume = round(draw.uniform(0, 900), 2), draw.randrange(90_000)
        parts = [
            f"price > {price}",
            f"volume in [{volume}, {volume + 5000})",
            f'symbol in {{"S{i % 500:03}", "S{i * 7 % 500:03}"}}',
        ]
        found.append("stock: " + " and ".join(draw.sample(parts, i % 3 + 1)))
    return found


def alike(filters: int, attributes: int) -> list[Filter]:
    """Filters that agree in all attributes but the last two, and do not cover each other: pairs are hard."""
    schema = Schema("wide", tuple(Attribute(f"a{i}", "int", lo=0, hi=10_000) for i in range(attributes)))
    rows = ([5000] * (attributes - 2) + [5000 - i, 5000 + i] for i in range(filters))
    return [Filter(schema, {f"a{j}": ValueSet.interval(0, end) for j, end in enumerate(row)}) for row in rows]


def pairs(filters: list[Filter]) -> list[Filter]:
    """The plain way to normalise: every filter against every one that is kept."""
    kept: list[Filter] = []
    for each in filters:
        if not any(other.covers(each) for other in kept):
            kept = [other for other in kept if not each.covers(other)]
            kept.append(each)
    return kept


def run(bench: Bench) -> Report:
    """Rates, and how times grow."""
    report = Report(GOALS)
    repeats = bench.size(5, quick=2)
    listed = texts(bench.size(10_000, quick=500))
    with bench.step("parsing"):
        parsing = best_of(lambda: [parse_filter(text, STOCK) for text in listed], repeats)
    report.goal("filters_per_s", parsing.per_second(len(listed)))

    size, attributes = bench.size(1024, quick=128), 64
    hard, fewer = alike(size, attributes), alike(size // 8, attributes)
    with bench.step("normalising a union"):
        union = ratio(
            lambda: pairs(fewer),
            lambda: Subscription(hard),
            bench.size(3, quick=1),
            baseline_units=len(fewer) ** 2,
            candidate_units=len(hard) ** 2,
        )
    report.figure("union_s", union.candidate.best, "s")
    report.goal("union_speedup", union.speedup)

    plan = Plan.regular(STOCK, 60)
    counts = [1000, 4000, 16_000]
    times = []
    for count in counts:
        wanted = Filter(STOCK, {"price": ValueSet.of(*(i * 1000 / count for i in range(count)))})
        with bench.step(f"covering {count} values"):
            times.append(best_of(lambda wanted=wanted: plan.cover(wanted, 32), repeats).best)  # type: ignore[misc]
    report.figure("cover_4000_values_s", times[1], "s")
    report.goal("cover_growth", times[2] / times[1])
    report.table(
        "covering", ["values", "s", "µs per value"], [[c, t, t / c * 1e6] for c, t in zip(counts, times, strict=True)]
    )
    report.note("growth: four times the values; one core")
    return report
