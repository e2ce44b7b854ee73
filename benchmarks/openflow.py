"""Real switches (Open vSwitch): changes per second, subscribe times, events through the testbed.

Everything is real: ovs-vswitchd with a bridge for each of the testbed's ten switches, hosts in network namespaces,
clients that send IPv6 packets from them. Switches are joined by patches of Open vSwitch. Needs root and Open vSwitch;
without them it says so and measures nothing.

Two figures about changes: *acknowledged* is what the switch has committed; *in effect* also waits until its cache of
forwarding decisions follows, which is what `subscribe` waits for. Subscriptions tile the event space as in the
benchmark `fabric`, so that every event goes to exactly one subscription however many there are.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.fabric import HOSTS, Worker
from benchmarks.harness import Bench, Report, quantiles
from sievenet.dataplane.openflow.ovs import OvsNetwork
from sievenet.dataplane.openflow.plane import OpenFlowDataPlane
from sievenet.index import Dz
from sievenet.network import Add, Delete, Flow, FlowChange, parse_topology


def available() -> str | None:
    """Why this cannot run here, or None."""
    if os.geteuid() != 0:
        return "not measured: needs root"
    if shutil.which("ovs-vswitchd") is None or shutil.which("ip") is None:
        return "not measured: needs Open vSwitch and iproute2"
    return None


@contextmanager
def folder() -> Iterator[Path]:
    """A short path: those of Unix sockets are short."""
    path = Path(tempfile.mkdtemp(prefix="sv"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def run(bench: Bench) -> Report:
    report = Report()
    reason = available()
    if reason is not None:
        report.note(reason)
        report.figure("measured", 0, "")
        report.goal("flow_changes_per_s", float("nan"), ">= 30,000")
        return report
    report.figure("measured", 1, "")
    with folder() as path:
        measure_changes(bench, report, path)
    measure_fabric(bench, report)
    report.note("all switches, hosts and clients share the cores of one machine")
    return report


# -- changes -----------------------------------------------------------------------------------------


def measure_changes(bench: Bench, report: Report, path: Path) -> None:
    count = bench.size(40_000, quick=1_000)
    network = OvsNetwork(parse_topology("line,switches=3"), f"svb{os.getpid() % 1_000_000:x}", run_dir=path)
    with bench.step(f"{count:,} flow changes"):
        try:
            network.prepare()
            rows = asyncio.run(changes(network, count, bench.size(3, quick=1)))
        finally:
            network.down()
    best = max(rate for _, _, rate in rows["acknowledged"])
    report.goal("flow_changes_per_s", best, ">= 30,000")
    for kind, found in rows.items():
        report.table(
            f"changes {kind}",
            ["switches", "changes at once", "changes/s"],
            [[switches, f"{batch:,}", f"{rate:,.0f}"] for switches, batch, rate in found],
        )
        for switches, batch, rate in found:
            report.figure(f"{kind.replace(' ', '_')}_{switches}x{batch}", rate, "changes/s")


async def changes(network: OvsNetwork, count: int, repeats: int) -> dict[str, list[tuple[int, int, float]]]:
    plane = network.plane()
    await plane.start(sock=network.controller_socket())
    await asyncio.to_thread(network.connect)
    await plane.connected()
    rows: dict[str, list[tuple[int, int, float]]] = {"acknowledged": [], "in effect": []}
    try:
        for kind, found in rows.items():
            plane.confirm = kind == "in effect"
            # What waits for the cache takes its time, whatever the number of changes.
            total = count // 4 if plane.confirm else count
            for switches, batch in ((1, total), (3, total // 8), (3, 512)):
                rates = [await rate(plane, switches, total // switches, batch) for _ in range(repeats)]
                found.append((switches, batch, median(rates)))
    finally:
        await plane.close()
    return rows


async def rate(plane: OpenFlowDataPlane, switches: int, count: int, batch: int) -> float:
    """Add flows and delete them again; changes per second."""
    flows = [Flow.of(1, Dz(i, 20), 1, 2) for i in range(count)]

    async def one(switch: str) -> None:
        for kind in (Add, Delete):
            for start in range(0, count, batch):
                some: list[FlowChange] = [kind(flow) for flow in flows[start : start + batch]]
                await plane.apply(switch, some)

    begin = time.perf_counter()
    await asyncio.gather(*(one(f"s{i + 1}") for i in range(switches)))
    return 2 * count * switches / (time.perf_counter() - begin)


# -- events ------------------------------------------------------------------------------------------


def measure_fabric(bench: Bench, report: Report) -> None:
    sizes = bench.size([1, 1_000, 16_000], quick=[20])
    count, flood = bench.size(2_000, quick=40), bench.size(50_000, quick=500)
    rounds = bench.size(3, quick=1)
    rows, times, figures = [], [], {}
    for number, size in enumerate(sizes):
        with ExitStack() as stack, bench.step(f"{size:,} subscriptions"):
            path = stack.enter_context(folder())
            publisher, subscriber = start(stack, path, number)
            switches = int((path / "run" / "ovs-vswitchd.pid").read_text())
            tiled = subscriber.ask("tile", count=size)
            if number == 0:
                seconds = subscriber.ask("respond", count=bench.size(200, quick=5))["seconds"]
                response = quantiles(seconds, (0.5, 0.99))
            publisher.ask("steady", count=100, rate=500)
            subscriber.ask("wait", count=100)
            found = [latency(publisher, subscriber, count) for _ in range(rounds)]
            # Once to warm up: what is compiled or cached on the way is.
            throughput(publisher, subscriber, flood)
            before = [cpu_seconds(pid) for pid in (publisher.pid, subscriber.pid, switches)]
            rates = [throughput(publisher, subscriber, flood) for _ in range(rounds)]
            after = [cpu_seconds(pid) for pid in (publisher.pid, subscriber.pid, switches)]
        spent = [(b - a) / (rounds * flood) * 1e6 for a, b in zip(before, after, strict=True)]
        p50, p99 = median(f["p50"] for f in found), median(f["p99"] for f in found)
        speed, share = median(r[0] for r in rates), median(r[1] for r in rates)
        figures[size] = (p50, p99, speed, sum(spent))
        times.append([f"{size:,}", *(f"{each:.1f}" for each in (*spent, sum(spent)))])
        report.figure(f"cpu_us_per_event_at_{size}", sum(spent), "µs")
        rows.append(
            [
                *(f"{size:,}", f"{p50 * 1e6:.0f}", f"{p99 * 1e6:.0f}", f"{speed:,.0f}", f"{share:.4f}"),
                f"{size / tiled['seconds']:,.0f}",
            ]
        )
        report.figure(f"p50_us_at_{size}", p50 * 1e6, "µs")
        report.figure(f"p99_us_at_{size}", p99 * 1e6, "µs")
        report.figure(f"events_per_s_at_{size}", speed, "events/s")
        report.figure(f"delivered_share_at_{size}", share, "")
    report.table("events", ["subscriptions", "p50 µs", "p99 µs", "events/s", "delivered", "subscribed/s"], rows)
    report.table("processor time, µs per event", ["subscriptions", "publisher", "subscriber", "switches", "all"], times)
    report.figure("subscribe_p50_ms", response["p50"] * 1e3, "ms")
    report.figure("subscribe_p99_ms", response["p99"] * 1e3, "ms")
    first, last = figures[sizes[0]], figures[sizes[-1]]
    report.goal("p50_growth_1_to_16000", last[0] / first[0], "<= 1.2")
    report.goal("events_per_s_16000_over_1", last[2] / first[2], ">= 0.8")
    # Unlike rates, this hardly depends on what else the machine does.
    report.goal("cpu_per_event_16000_over_1", last[3] / max(first[3], 1e-9), "<= 1.2")


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start(stack: ExitStack, path: Path, number: int) -> tuple[Worker, Worker]:
    settings: dict[str, Any] = {
        "listen__port": 0,
        "topology": "testbed",
        "dataplane": "ovs",
        "openflow__name": f"svb{os.getpid() % 100_000:x}{number}",
        "openflow__run_dir": str(path / "run"),
        "openflow__links": "patch",
        "control__forwarding_delay": 0.05,
    }
    network = OvsNetwork(parse_topology("testbed"), settings["openflow__name"], run_dir=path / "run", links="patch")
    stack.callback(network.down)
    daemon = Worker(stack, "daemon", json.dumps(settings))
    url = daemon.ready()["url"]
    subscriber = Worker(stack, "subscriber", url, json.dumps(HOSTS))
    publisher = Worker(stack, "publisher", url)
    subscriber.ready()
    publisher.ready()
    return publisher, subscriber


def latency(publisher: Worker, subscriber: Worker, count: int) -> dict[str, float]:
    subscriber.ask("reset")
    publisher.ask("steady", count=count, rate=500)
    answer = subscriber.ask("wait", count=count, latencies=True)
    return quantiles([value / 1e9 for value in answer["latencies"]], (0.5, 0.99))


def throughput(publisher: Worker, subscriber: Worker, count: int) -> tuple[float, float]:
    subscriber.ask("reset")
    begin = publisher.ask("flood", count=count)["begin"]
    answer = subscriber.ask("wait", count=count)
    return answer["seen"] / (answer["last"] - begin), answer["seen"] / count
