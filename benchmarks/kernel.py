"""The kernel's switches beside Open vSwitch: latency, loss-free rate, table changes.

Five switches in a line, hosts in network namespaces at both ends, everything on one machine. *Plain sockets*: a program
in C that sends datagrams to random content addresses, and one that receives them, the same for all planes and, as the
least that there can be, for two hosts without a switch between them; tables tile the whole space, so that every packet
is decided by one of all entries, and no address comes twice. *Our clients*: daemon, publisher and subscribers of the
benchmark `openflow`, five switches apart. Both planes are up at the same time and measured in turn. Open vSwitch is
joined by virtual links, as by cables; with its own patches it is measured too, which is the best that a user on one
machine could have instead. Needs root and Open vSwitch, and a compiler for the plain sockets.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks import openflow
from benchmarks._plain import COMPILERS, Ends, Plain, Straight, built, named
from benchmarks.harness import Bench, Report, quantiles
from benchmarks.openflow import available, folder
from sievenet.dataplane.kernel import bpf
from sievenet.dataplane.kernel.network import KernelNetwork
from sievenet.index import Dz
from sievenet.network import Add, Delete, Flow, FlowChange, parse_topology

#: Packets per second of the two paces.
PACES = (200, 2_000)

GOALS = {
    **{f"plain_p50_over_ovs_at_{pace}_per_s": "<= 1/10" for pace in PACES},
    **{f"clients_p50_over_ovs_at_{pace}_per_s": "<= 1/3" for pace in PACES},
    "loss_free_rate_over_ovs": ">= 3",
    "plain_p50_growth_1_to_16000": "<= 1.3",
    "rate_16000_over_1": ">= 0.7",
    "changes_per_s": ">= 100,000",
}


def run(bench: Bench) -> Report:
    report = Report(GOALS)
    reason = available() or bpf.supported()
    found: dict[str, float] = {}
    if reason is not None:
        report.note(reason)
    else:
        with folder() as path, ExitStack() as stack:
            found |= measure_changes(bench, report, path)
            found |= measure_plain(bench, report, stack, path)
        found |= measure_clients(bench, report)
    for goal, value in found.items():
        report.goal(goal, value)
    report.note("all switches, hosts and clients share the cores of one machine")
    return report


# -- changes -----------------------------------------------------------------------------------------


def measure_changes(bench: Bench, report: Report, path: Path) -> dict[str, float]:
    count = bench.size(50_000, quick=1_000)
    network = KernelNetwork(parse_topology("line,switches=1,hosts=1"), named("c"), run_dir=path / "changes")
    with bench.step(f"{count:,} table changes"):
        try:
            network.up()
            rates = {batch: changes(network, count, batch, bench.size(3, quick=1)) for batch in (count, 512, 1)}
        finally:
            network.down()
    rows = [[f"{batch:,}", f"{rate:,.0f}"] for batch, rate in rates.items()]
    report.table("table changes of one switch, in effect when the call returns", ["at once", "changes/s"], rows)
    report.figure("changes_per_s_singly", rates[1], "changes/s")
    return {"changes_per_s": max(rates.values())}


def changes(network: KernelNetwork, count: int, batch: int, repeats: int) -> float:
    """Add flows and delete them again; changes per second."""
    flows = [Flow.of(1, Dz(i, 20), 1) for i in range(count)]
    found = []
    for _ in range(repeats):
        begin = time.perf_counter()
        for kind in (Add, Delete):
            for start in range(0, count, batch):
                some: list[FlowChange] = [kind(flow) for flow in flows[start : start + batch]]
                network.switches["s1"].apply(some)
        found.append(2 * count / (time.perf_counter() - begin))
    return median(found)


# -- plain sockets -------------------------------------------------------------------------------------


def measure_plain(bench: Bench, report: Report, stack: ExitStack, path: Path) -> dict[str, float]:
    library = built(path)
    if library is None:
        report.note(f"plain sockets: absent (neither {' nor '.join(COMPILERS)} is installed)")
        return {}
    sizes = bench.size([1, 1_000, 16_000, 200_000], quick=[1, 16])
    count, rounds = bench.size(1_000, quick=20), bench.size(3, quick=1)
    kinds = ("kernel", "ovs veth", "ovs patch")
    with bench.step("three networks of five switches, and one without"):
        planes = {kind: Plain(kind, stack, path, library) for kind in kinds}
        none = Straight(stack, library)
    waits: dict[tuple[str, int, int], list[float]] = {}
    rates: dict[tuple[str, int], list[float]] = {}
    for size in sizes:
        # Filling so many entries takes Open vSwitch long, and would show no more.
        here: dict[str, Ends] = {kind: planes[kind] for kind in kinds if size <= 16_000 or kind == "kernel"}
        with bench.step(f"{size:,} entries"):
            for kind in here:
                planes[kind].fill(size)
        if size == sizes[1]:
            here["no switch"] = none
        for _ in bench.track(range(rounds), f"{size:,} entries, in turn"):
            for kind, ends in here.items():
                for pace in PACES:
                    some = ends.latencies(min(count, pace * 2), pace)
                    waits.setdefault((kind, size, pace), []).append(quantiles(some)["p50"])
                rates.setdefault((kind, size), []).append(ends.rate(bench.size(0.3, quick=0.02)))
    rows = []
    for kind, size in rates:
        at = [median(waits[kind, size, pace]) * 1e6 for pace in PACES]
        rows.append([kind, f"{size:,}", *(f"{each:.0f}" for each in at), f"{median(rates[kind, size]):,.0f}"])
        for pace, each in zip(PACES, at, strict=True):
            report.figure(f"plain_{kind.replace(' ', '_')}_p50_us_at_{size}_{pace}_per_s", each, "µs")
        report.figure(f"plain_{kind.replace(' ', '_')}_loss_free_per_s_at_{size}", median(rates[kind, size]), "/s")
    columns = ["plane", "entries", *(f"p50 µs at {pace:,}/s" for pace in PACES), "loss-free packets/s"]
    report.table("plain sockets, programs in C, five switches", columns, rows)
    measure_bound(bench, report, planes["kernel"], sizes[1])
    size, large = sizes[1], sizes[-2] if len(sizes) > 2 else sizes[-1]
    pace = PACES[1]

    def ratio(one: str, other: str, pace: int) -> float:
        return median(k / o for k, o in zip(waits[one, size, pace], waits[other, size, pace], strict=True))

    for each in PACES:
        report.figure(f"plain_p50_over_ovs_patch_at_{each}_per_s", ratio("kernel", "ovs patch", each), "")
        # No switch can be quicker than none.
        floor = ratio("no switch", "ovs veth", each)
        report.figure(f"no_switch_p50_over_ovs_at_{each}_per_s", floor, "")
        report.note(f"plain sockets at {each:,}/s: two hosts without any switch take {floor:.3f} of Open vSwitch's p50")
    most = median(n / max(o, 1.0) for n, o in zip(rates["no switch", size], rates["ovs veth", size], strict=True))
    report.figure("no_switch_loss_free_rate_over_ovs", most, "")
    report.note(f"two hosts without any switch have {most:.1f} times Open vSwitch's loss-free rate")
    return {
        **{f"plain_p50_over_ovs_at_{each}_per_s": ratio("kernel", "ovs veth", each) for each in PACES},
        "loss_free_rate_over_ovs": median(
            k / max(o, 1.0) for k, o in zip(rates["kernel", size], rates["ovs veth", size], strict=True)
        ),
        "plain_p50_growth_1_to_16000": median(waits["kernel", large, pace]) / median(waits["kernel", sizes[0], pace]),
        "rate_16000_over_1": median(rates["kernel", large]) / max(median(rates["kernel", sizes[0]]), 1.0),
    }


#: How a program in C sends: datagrams per call, datagrams of one address in one piece.
_FLOODS = {
    "a call for each": (1, 1),
    "64 per call": (64, 1),
    "64 per call, whole frames by a packet socket": (64, 0),
    "64 per call, 16 of one address each": (64, 16),
}


def measure_bound(bench: Bench, report: Report, plain: Plain, size: int) -> None:
    """A flood by a program in C that does nothing else: what the system itself takes per packet, and so the bound."""
    count, rows = bench.size(400_000, quick=2_000), []
    with bench.step("what bounds a flood"):
        plain.fill(size)
        for way, (batch, segments) in _FLOODS.items():
            rounds = [plain.flood(count, batch, segments) for _ in range(bench.size(5, quick=1))]
            rate, sender, receiver = (median(each[i] for each in rounds) for i in range(3))
            rows.append([way, f"{rate:,.0f}", f"{sender:.1f}", f"{receiver:.1f}"])
            report.figure(f"bound_packets_per_s_{batch}_{segments}", rate, "/s")
            report.figure(f"bound_sender_us_{batch}_{segments}", sender, "µs")
    columns = ["a program in C", "packets/s received", "sender µs of processor", "receiver µs of processor"]
    report.table(f"what bounds a flood: five switches, {size:,} entries, no code of ours", columns, rows)


# -- our clients ---------------------------------------------------------------------------------------


def measure_clients(bench: Bench, report: Report) -> dict[str, float]:
    size, count = bench.size(1_000, quick=20), bench.size(1_000, quick=40)
    kinds = ("kernel", "ovs veth")
    waits: dict[tuple[str, int], list[float]] = {}
    floods: dict[str, list[float]] = {}
    with ExitStack() as stack:
        ends = {}
        for number, kind in enumerate(kinds):
            with bench.step(f"{kind}: {size:,} subscriptions"):
                path = stack.enter_context(folder())
                settings = {"dataplane": "kernel"} if kind == "kernel" else {"openflow__links": "veth"}
                ends[kind] = openflow.start(stack, path, number, **settings)
                ends[kind][1].ask("tile", count=size)
                openflow.latency(*ends[kind], count)
        for _ in bench.track(range(bench.size(7, quick=1)), "our clients, in turn"):
            for kind, (publisher, subscriber) in ends.items():
                for pace in PACES:
                    some = openflow.latency(publisher, subscriber, min(count, pace * 2), pace)
                    waits.setdefault((kind, pace), []).append(some["p50"])
                speed, _ = openflow.throughput(publisher, subscriber, bench.size(50_000, quick=500))
                floods.setdefault(kind, []).append(speed)
    rows = [
        [kind, *(f"{median(waits[kind, pace]) * 1e6:.0f}" for pace in PACES), f"{median(floods[kind]):,.0f}"]
        for kind in kinds
    ]
    report.table("our clients, five switches", ["plane", *(f"p50 µs at {p:,}/s" for p in PACES), "events/s"], rows)
    for kind in kinds:
        for pace in PACES:
            report.figure(f"clients_{kind.replace(' ', '_')}_p50_us_at_{pace}", median(waits[kind, pace]) * 1e6, "µs")
        report.figure(f"clients_{kind.replace(' ', '_')}_events_per_s", median(floods[kind]), "events/s")
    return {
        f"clients_p50_over_ovs_at_{pace}_per_s": median(
            k / o for k, o in zip(waits["kernel", pace], waits["ovs veth", pace], strict=True)
        )
        for pace in PACES
    }
