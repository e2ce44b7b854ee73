"""Compare routing schemes on one overlay: tables, control messages, false positives, processor time.

Sixteen routers in a random graph with cycles, in virtual time; clients subscribe with boxes of two attributes. In the
workload *with locality* the clients of one router want similar things (boxes around a place of the router's own), in
the one *without* interests are spread evenly. Then some of them unsubscribe, and events are published everywhere. Every
scheme delivers exactly the same events; what differs is what that costs.
"""

from __future__ import annotations

import random
import time

import numpy as np

from benchmarks.harness import Bench, Report, most
from sievenet.content import Attribute, EventBatch, Filter, Schema, Subscription, ValueSet
from sievenet.routers.routing import Settings
from sievenet.routers.simulation import Network

#: What it should come to.
GOALS = {
    "different_deliveries": "<= 1",
    "covering_table_local": "<= 0.9",
    "merging_table_local": "<= 1.0",
    "covering_messages_local": "<= 0.8",
    "exact_false_positives": "<= 0",
}

SCHEMA = Schema("plane", (Attribute("x", "int", lo=0, hi=999), Attribute("y", "int", lo=0, hi=999)))
LEASE = 60.0

VARIANTS = {
    "simple": Settings("simple", lease=LEASE),
    "identity": Settings("identity", lease=LEASE),
    "covering": Settings("covering", lease=LEASE),
    "merging": Settings("merging", lease=LEASE),
    "merging, 30 % more": Settings("merging", bound=0.3, lease=LEASE),
    "covering, advertised": Settings("covering", advertisements=True, lease=LEASE),
    "cbcb": Settings("cbcb", lease=LEASE),
    "bdrp": Settings("bdrp", lease=LEASE),
    "edge": Settings("edge", lease=LEASE),
}


def links(routers: int, seed: int) -> list[tuple[str, str]]:
    """A random tree and half as many links more."""
    rng = random.Random(seed)
    found = {(rng.randrange(i), i) for i in range(1, routers)}
    while len(found) < routers - 1 + routers // 2:
        a, b = sorted(rng.sample(range(routers), 2))
        found.add((a, b))
    return [(f"r{a}", f"r{b}") for a, b in sorted(found)]


def wishes(count: int, routers: int, local: bool, seed: int) -> list[tuple[int, Filter]]:
    """A router and a filter each."""
    rng = np.random.default_rng((seed, local))
    places = rng.integers(100, 900, (routers, 2))
    found = []
    for _ in range(count):
        router = int(rng.integers(routers))
        centre = places[router] + rng.normal(0, 40, 2) if local else rng.integers(0, 1000, 2)
        sides = {}
        for name, middle in zip("xy", centre.tolist(), strict=True):
            # Widths on a coarse grid: people ask for round numbers, so filters meet and repeat.
            half = 20 * int(rng.integers(1, 6))
            at = min(max(10 * round(middle / 10), half), 999 - half)
            sides[name] = ValueSet.interval(at - half, at + half - 1)
        found.append((router, Filter(SCHEMA, sides)))
    return found


def measure(settings: Settings, routers: int, subscriptions: int, events: int, local: bool) -> dict[str, float]:
    network = Network(links(routers, 3), settings, seed=3)
    network.run(1.0)
    for i in range(routers):
        network.attach(f"c{i}", f"r{i}")
    # Publishers at a quarter of the routers, each of a part of the space.
    publishers = range(0, routers, 4)
    parts = {p: ValueSet.interval(p * 1000 // routers, min(999, (p + 8) * 1000 // routers - 1)) for p in publishers}
    for p, part in parts.items():
        network.advertise(f"c{p}", 0, Subscription([Filter(SCHEMA, {"x": part})]))
    network.run(1.0)
    before = network.telling, network.entries
    begin = time.process_time()
    placed = wishes(subscriptions, routers, local, 5)
    for number, (router, wanted) in enumerate(placed, 1):
        network.subscribe(f"c{router}", number, Subscription([wanted]))
        network.drain()
    for number, (router, _) in enumerate(placed, 1):
        if number % 5 == 0:
            network.unsubscribe(f"c{router}", number)
            network.drain()
    spent = time.process_time() - begin
    changes = subscriptions + subscriptions // 5
    telling, entries = network.telling - before[0], network.entries - before[1]
    network.run(2.0)
    table = network.totals()["table"]
    rng = np.random.default_rng(9)
    begin = time.process_time()
    for p, part in parts.items():
        lo, hi = part.cuts[0][1], part.cuts[1][1]
        columns = {"x": rng.integers(lo, hi, events), "y": rng.integers(0, 1000, events)}
        network.publish(f"c{p}", EventBatch.of(SCHEMA, columns))
        network.drain()
    forwarding = time.process_time() - begin
    totals = network.totals()
    return {
        "table": table / routers,
        "messages": telling / changes,
        "entries": entries / changes,
        "subscribe": spent / changes,
        "forward": forwarding / (events * len(parts)),
        "hops": totals["forwarded"] / (events * len(parts)),
        "false": 100 * totals["false_positives"] / max(1, totals["forwarded"]),
        "delivered": totals["delivered"],
    }


def run(bench: Bench) -> Report:
    report = Report(GOALS)
    routers, subscriptions = bench.size(16, quick=6), bench.size(800, quick=60)
    events = bench.size(2000, quick=50)
    found: dict[bool, dict[str, dict[str, float]]] = {}
    with bench.step("loading compiled code"):
        measure(VARIANTS["identity"], 4, 8, 10, False)
    for local in (True, False):
        found[local] = {}
        rows: list[list[object]] = []
        for name, settings in VARIANTS.items():
            with bench.step(f"{name}, {'with' if local else 'without'} locality"):
                each = found[local][name] = measure(settings, routers, subscriptions, events, local)
            rows.append(
                [
                    name,
                    each["table"],
                    each["messages"],
                    each["entries"],
                    each["subscribe"] * 1e3,
                    each["hops"],
                    each["false"],
                    each["forward"] * 1e6,
                ]
            )
        report.table(
            f"{'with' if local else 'without'} locality",
            [
                "scheme",
                "entries/router",
                "messages/change",
                "entries/change",
                "ms/change",
                "hops",
                "false %",
                "µs/event",
            ],
            rows,
        )
    near = found[True]
    # With and without locality, all schemes deliver as many: so many different numbers there are.
    deliveries = [len({each["delivered"] for each in per.values()}) for per in found.values()]
    report.figure("subscriptions", subscriptions, "subscriptions")
    report.goal("different_deliveries", most(deliveries))
    report.goal("covering_table_local", near["covering"]["table"] / near["identity"]["table"])
    report.goal("merging_table_local", near["merging"]["table"] / near["covering"]["table"])
    report.goal("covering_messages_local", near["covering"]["messages"] / near["simple"]["messages"])
    report.goal("exact_false_positives", most(near[n]["false"] for n in ("simple", "covering", "merging")))
    report.note("processor time of all routers together; false positives are events sent to a router that needs none")
    report.note("CBCB's table includes what leases have not undone yet after a fifth of the subscriptions is gone")
    return report
