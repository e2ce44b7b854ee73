"""Response time and flow operations against the number of partitions, with slow switches.

A partition takes requests round by round; each round is acknowledged by the switches before the next. Partitions do not
wait for each other. Two kinds of switches: *far* ones acknowledge every bundle of changes after a while, however many
are on their way; *busy* ones take one bundle after the other, as hardware does.
"""

from __future__ import annotations

from benchmarks._slow_switches import course
from benchmarks.control import network
from benchmarks.harness import Bench, Report, most
from sievenet.control.config import ControlConfig
from sievenet.workload import Hotspots, Uniform, grid

#: What it should come to, with 64 partitions and far switches, against one controller that takes one request at a time.
GOALS = {"response_over_one_controller": "<= 1/100"}

BITS, BUDGET = 10, 4
#: Seconds that a switch takes for a bundle: hardware manages 40 to 50 a second.
DELAY = 0.02
RATE = 2_500.0


def config(partitions: int, batch: int) -> ControlConfig:
    """The control plane with so many partitions."""
    return ControlConfig(bits=BITS, budget=BUDGET, partitions=partitions, batch=batch, lease=86400.0)


def run(bench: Bench) -> Report:
    report = Report(GOALS)
    topology, schema = network(bench), grid(10, hi=1024)
    count = bench.size(2_000, quick=10)
    counts = bench.size((1, 16, 64, 256, 1_024), quick=(64,))
    loads: dict[str, Uniform | Hotspots] = {"zipf": Hotspots(schema=schema, seed=3)}
    if not bench.quick:
        loads["uniform"] = Uniform(schema=schema, seed=3)
    response = []
    for kind, busy in (("far", False), ("busy", True))[: bench.size(2, quick=1)]:
        for name, load in loads.items():
            filters = load.subscriptions(count).filters()
            with bench.step(f"{kind} switches, {name}: one controller, one request at a time"):
                plain = course(topology, schema, filters, RATE, DELAY, config(1, 1), busy=busy)
            rows: list[list[object]] = [["1, one by one", plain.operations, plain.mean_ms, plain.p99_ms]]
            for partitions in bench.track(counts, f"{kind} switches, {name}: up to {counts[-1]:,} partitions"):
                for batch in (1, ControlConfig().batch)[partitions == 1 :]:
                    found = course(topology, schema, filters, RATE, DELAY, config(partitions, batch), busy=busy)
                    alone = ", one by one" if batch == 1 else ""
                    rows.append([f"{partitions:,}{alone}", found.operations, found.mean_ms, found.p99_ms])
                    key = f"{kind}_{name}_{partitions}" + alone.replace(", ", "_").replace(" ", "_")
                    report.figure(f"{key}_mean_ms", found.mean_ms, "ms")
                    report.figure(f"{key}_operations", found.operations)
                    if partitions == 64 and batch > 1 and not busy:
                        response.append(found.mean_ms / plain.mean_ms)
            columns = ["partitions", "operations", "mean, ms", "p99, ms"]
            report.table(f"{kind} switches: {count:,} subscriptions at {RATE:,.0f}/s, {name}", columns, rows)
    report.goal("response_over_one_controller", most(response))
    report.note(
        f"102 switches, 64 hosts that all publish everything, 10 attributes in [0, 1024]; {BITS} bits, at most "
        f"{BUDGET} dz; a switch takes {1e3 * DELAY:g} ms for a bundle; virtual time, the processor takes none."
    )
    report.note("One by one: a round takes a single request; else all that wait, up to 512, as one difference.")
    return report
