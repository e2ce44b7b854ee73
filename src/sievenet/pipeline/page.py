"""The page about a run: what was read, what is wanted, what was tried, and what the network carries by then."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sievenet.content import Attribute, StringColumn
from sievenet.pipeline import chart
from sievenet.pipeline.report import Report
from sievenet.pipeline.run import Run
from sievenet.pipeline.sketch import carried, sketch
from sievenet.tuning.arrays import bounds, each_filter
from sievenet.tuning.cost import RATES
from sievenet.tuning.splits import edges

__all__ = ["page"]

_BINS: Final = 48
#: Attributes that are drawn, and candidates that are listed.
_ATTRIBUTES: Final = 16
_CANDIDATES: Final = 16


def page(run: Run, plan_file: str) -> Report:
    """The report of a run; ``plan_file`` is where the plan is."""
    now, best = run.planned.present.cost, run.planned.predicted.cost
    each = max(best.events, 1)
    name = run.schema.name
    if run.planned.better:
        saved = 1 - best.transmissions / max(1, now.transmissions)
        title = f"{name}: {best.transmissions / each:.2f} packets per event instead of {now.transmissions / each:.2f}"
        note = f"The chosen plan saves {saved:.0%} of the packets on all links, copies included."
    else:
        title = f"{name}: the present plan is the best that was found"
        note = f"It carries {now.transmissions / each:.2f} packets per event."
    report = Report(title)
    report.figures = _figures(run)
    report.text(note)
    report.tiles(
        {
            "events": f"{best.events:,}",
            "subscriptions": f"{len(run.deployment.wanted):,}",
            "packets per event, before": f"{now.transmissions / each:.2f}",
            "packets per event, chosen": f"{best.transmissions / each:.2f}",
            "packets per event, exact filters": f"{best.needed.transmissions / each:.2f}",
            "unnecessary per host, before → chosen": f"{now.per_host:.0%} → {best.per_host:.0%}",
        }
    )
    if run.deployment.assumed:
        report.text(f"{run.deployment.assumed}.")
    _compared(report, run)
    _network(report, run)
    _read(report, run)
    _attributes(report, run)
    _candidates(report, run)
    _plan(report, run, plan_file)
    _journal(report, run)
    return report


def _figures(run: Run) -> dict[str, Any]:
    links = {
        side: [{"from": a, "to": b, "packets": n} for (a, b), n in sorted(found.links.items())]
        for side, found in (("before", run.before), ("after", run.after))
        if found is not None
    }
    return {
        **run.planned.record(),
        "ingested": run.manifest.events,
        "quarantined": run.manifest.quarantined,
        "reasons": run.manifest.reasons,
        "links": links,
        "assumed": run.deployment.assumed,
        "seconds_of": dict(run.seconds),
        "journal": run.journal.lines,
    }


def _compared(report: Report, run: Run) -> None:
    """Before, after, and what exact filters would need."""
    report.heading("Before and after")
    now, best = run.planned.present.cost, run.planned.predicted.cost
    each = max(best.events, 1)
    names = ["packets on all links", "packets received by hosts", "deliveries to subscriptions"]
    series = {
        "before": [now.transmissions / each, now.received / each, now.delivered / each],
        "chosen": [best.transmissions / each, best.received / each, best.delivered / each],
        "exact filters": [
            best.needed.transmissions / each,
            best.needed.received / each,
            best.needed.delivered / each,
        ],
    }
    report.chart("before-and-after", chart.bars(names, series, "per event"), "Per event, copies included.")
    rows = [
        (label, f"{cost.per_link:.2%}", f"{cost.per_host:.2%}", f"{cost.per_subscription:.2%}")
        for label, cost in (("before", now), ("chosen", best))
    ]
    report.table("Unnecessary, of all", ["", "per link", "per host", "per subscription"], rows)
    rates = [
        np.sort(1 - result.wanted / np.maximum(result.delivered, 1))[::-1]
        for result in (run.planned.present, run.planned.predicted)
    ]
    if len(rates[0]) > 1:
        some = np.unique(np.linspace(0, len(rates[0]) - 1, min(200, len(rates[0]))).astype(int))
        lines = {label: rate[some].tolist() for label, rate in zip(("before", "chosen"), rates, strict=True)}
        drawn = chart.curves((some + 1).tolist(), lines, "subscriptions, worst first", "unnecessary, of what it gets")
        report.chart("subscriptions", drawn)


def _network(report: Report, run: Run) -> None:
    """Packets per link, before and after."""
    if run.before is None or run.after is None:
        return
    report.heading("Where the packets go")
    topology, hosts = run.deployment.topology, dict(run.deployment.hosts)
    # Publishers that are no clients are drawn at the host that they are at.
    first = {topology.attachment(host).switch: host for host in reversed(topology.hosts)}
    sides = {}
    for side, found in (("before", run.before), ("chosen", run.after)):
        where = hosts | {
            a: first[b] for a, b in found.links if a not in hosts and not topology.is_switch(a) and b in first
        }
        sides[side] = carried(found.links, where)
    both = [links.get((k.a, k.b), 0) + links.get((k.b, k.a), 0) for links in sides.values() for k in topology.links]
    most = max(both, default=0) or 1
    for side, links in sides.items():
        caption = f"{side}: {sum(links.values()):,} packets; the thickest link would carry {most:,}"
        report.chart(f"network-{side}", sketch(topology, links, most), caption)
    busiest = sorted(sides["before"].items(), key=lambda item: -item[1])[:12]
    rows = [(f"{a} → {b}", packets, sides["chosen"].get((a, b), 0)) for (a, b), packets in busiest]
    report.table("The busiest links", ["link", "before", "chosen"], rows)


def _read(report: Report, run: Run) -> None:
    manifest = run.manifest
    report.heading("What was read")
    files = f"{manifest.events:,} events from {len(manifest.files)} files" if manifest.files else "nothing new"
    span = f", {manifest.between}" if manifest.between else ""
    report.text(f"{files}{span}; {manifest.quarantined:,} bad rows in quarantine.")
    if manifest.reasons:
        report.table("Bad rows", ["reason", "rows"], list(manifest.reasons.items()))
    if manifest.bad_files:
        report.table("Files set aside", ["file", "reason"], [(b.path, b.reason) for b in manifest.bad_files])
    if len(run.times) and run.times.min() < run.times.max():
        counts, borders = np.histogram(run.times / 1e6, 96)
        hours = (borders[:-1] - borders[0]) / 3600
        drawn = chart.curves(hours.tolist(), {"events": counts.tolist()}, "hours", "in the sample", chart.COLOURS[3:])
        report.chart("times", drawn)


def _attributes(report: Report, run: Run) -> None:
    """Where events are, and how many filters hold each place."""
    report.heading("Events and filters by attribute")
    known = run.planned.profile
    filters = each_filter(run.deployment.wanted.subscriptions)
    lo, hi = bounds(run.schema, filters)
    drawn: dict[str, tuple[str, str]] = {}
    for column, attribute in enumerate(run.schema.attributes[:_ATTRIBUTES]):
        places = _places(run, column)
        if places is None or not len(places):
            continue
        borders = _borders(attribute, places)
        counts = np.histogram(places, borders)[0]
        middle = (borders[:-1] + borders[1:]) / 2
        holding = (lo[:, column, None] <= middle) & (hi[:, column, None] >= middle)
        names = ("events", "filters that hold the value")
        svg = chart.histogram(borders.tolist(), counts.tolist(), holding.sum(axis=0).tolist(), names)
        drawn[f"attribute-{attribute.name}"] = (svg, attribute.name)
    report.charts(drawn)
    ranks = {"EVS": known.evs, "EMCS": known.emcs, "CS": known.cs}
    rows = [(n, *(float(column[i]) for column in ranks.values())) for i, n in enumerate(run.schema.positions)]
    report.table("Selectivity of attributes", ["attribute", *ranks], rows)


def _places(run: Run, column: int) -> Any:
    """The events of the sample on an attribute's line; nothing for free text, which has no order."""
    values = run.sample.columns[column]
    if not isinstance(values, StringColumn):
        return np.asarray(values, np.float64)
    return None if run.schema.attributes[column].values is None else values.codes.astype(np.float64)


def _borders(attribute: Attribute, places: Any) -> Any:
    """Bins over the part of the domain where events are."""
    if attribute.type != "float":
        found = edges(attribute, int(places.min()), int(places.max()), _BINS)
        return found if len(found) > 1 else np.array([places.min(), places.min() + 1.0])
    low, high = float(places.min()), float(places.max())
    return np.linspace(low, high if high > low else low + 1.0, _BINS + 1)


def _candidates(report: Report, run: Run) -> None:
    """The best of each kind, and the best so far over the time of the search."""
    tried = run.planned.found.tried
    report.heading("What was tried")
    report.text(run.planned.found.why)
    best: dict[str, Any] = {}
    for each in sorted(tried, key=lambda t: t.score):
        best.setdefault(each.name, each)
    listed = list(best.values())[:_CANDIDATES]
    if all(t.name != "RI" for t in listed):
        listed.append(best["RI"])
    events = max(tried[0].cost.events, 1)
    values = [t.cost.transmissions / events for t in listed]
    mark = ("exact filters", tried[0].cost.needed.transmissions / events)
    drawn = chart.bars([t.name for t in listed], {"packets": values}, "packets per event", chart.COLOURS[1:], mark)
    report.chart("candidates", drawn, "Packets per event on the sample, the best of each kind.")
    over = sorted(tried, key=lambda t: t.at)
    so_far = np.minimum.accumulate([t.cost.transmissions / events for t in over])
    if len(over) > 1 and over[-1].at > over[0].at:
        times = [t.at for t in over]
        lines = {"best so far": so_far.tolist()}
        report.chart(
            "search", chart.curves(times, lines, "seconds", "packets per event", chart.COLOURS[1:], steps=True)
        )
    rows = [
        (
            t.name,
            t.cost.transmissions,
            t.cost.received,
            *(f"{t.cost.summary()[name]:.2%}" for name in RATES),
            t.rectangles,
            ", ".join(t.dimensions),
        )
        for t in listed
    ]
    rates = [name.replace("_", " ") for name in RATES]
    report.table("Candidates", ["", "transmissions", "received", *rates, "regions", "attributes"], rows)


def _plan(report: Report, run: Run, plan_file: str) -> None:
    plan = run.planned.predicted.plan
    report.heading("The plan")
    report.text(
        f"{plan.bits} bits over {', '.join(plan.dimensions)}, {len(plan.regions)} regions, version {plan.version}. "
        "To put it to use under traffic:"
    )
    report.code(f"sievenet plan apply {plan_file}")


def _journal(report: Report, run: Run) -> None:
    report.heading("What happened when")
    lines = [f"{at:8.2f} s  {text}" for at, text in run.journal.lines]
    if run.journal.left_out:
        lines.insert(len(lines) // 2, f"           … {run.journal.left_out} lines left out …")
    report.code("\n".join(lines))
