"""Real switches (Open vSwitch): changes per second, subscribe times, events through the testbed.

Everything is real: ovs-vswitchd with a bridge for each of the testbed's ten switches, hosts in network namespaces,
clients that send IPv6 packets from them. Switches are joined by patches of Open vSwitch. Needs root and Open vSwitch;
without them it says so and measures nothing.

Two figures about changes: *acknowledged* is what the switch has committed; *in effect* also waits until its cache of
forwarding decisions follows, which is what `subscribe` waits for. Subscriptions tile the event space as in the
benchmark `fabric`, so that every event goes to exactly one subscription however many there are. The three sizes have a
network each and are measured in turn, again and again, so that whatever else the machine does befalls all of them
alike. Once before that, latency is measured while switches have not seen most addresses yet (`new`): these cost them a
look into their tables.
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
from benchmarks.harness import Bench, Report, middle, quantiles
from sievenet import programs
from sievenet.dataplane.kernel.network import KernelNetwork
from sievenet.dataplane.openflow.ovs import OvsNetwork
from sievenet.dataplane.openflow.plane import OpenFlowDataPlane
from sievenet.index import Dz
from sievenet.network import Add, Delete, Flow, FlowChange, parse_topology

#: What it should come to.
GOALS = {
    "flow_changes_per_s": ">= 30,000",
    **{f"{name}_growth_1_to_{size}": "<= 1.2" for size in (1_000, 16_000) for name in ("p50", "p99")},
    **{f"events_per_s_{size}_over_1": ">= 0.8" for size in (1_000, 16_000)},
    **{f"cpu_per_event_{size}_over_1": "<= 1.2" for size in (1_000, 16_000)},
}


def available() -> str | None:
    """Why this cannot run here, or None."""
    if os.geteuid() != 0:
        return "not measured: needs root"
    if programs.missing("openvswitch"):
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
    report = Report(GOALS)
    reason = available()
    if reason is not None:
        report.note(reason)
        report.figure("measured", 0, "")
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
    report.goal("flow_changes_per_s", best)
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


class Network:
    """Switches, a daemon, a publisher and subscribers, and what was measured of them, round by round."""

    def __init__(self, stack: ExitStack, number: int) -> None:
        path = stack.enter_context(folder())
        self.publisher, self.subscriber = start(stack, path, number)
        switches = int((path / "run" / "ovs-vswitchd.pid").read_text())
        #: Publisher, subscribers, switches.
        self._processes = [self.publisher.pid, self.subscriber.pid, switches]
        self.latencies: list[dict[str, float]] = []
        #: Events per second, and the share that was delivered.
        self.rates: list[tuple[float, float]] = []
        #: Processor time of each process, in seconds per event.
        self.spent: list[list[float]] = []

    def latency(self, count: int) -> dict[str, float]:
        return latency(self.publisher, self.subscriber, count)

    def throughput(self, count: int) -> tuple[float, float]:
        return throughput(self.publisher, self.subscriber, count)

    def round(self, count: int, flood: int) -> None:
        """One round of everything."""
        self.latencies.append(self.latency(count))
        before = [cpu_seconds(pid) for pid in self._processes]
        self.rates.append(self.throughput(flood))
        self.spent.append([(cpu_seconds(pid) - a) / flood for pid, a in zip(self._processes, before, strict=True)])


def measure_fabric(bench: Bench, report: Report) -> None:
    sizes = bench.size([1, 1_000, 16_000], quick=[20])
    count, flood = bench.size(2_000, quick=40), bench.size(50_000, quick=500)
    networks: dict[int, Network] = {}
    tiled: dict[int, float] = {}
    new: dict[int, float] = {}
    with ExitStack() as stack:
        for number, size in enumerate(sizes):
            with bench.step(f"{size:,} subscriptions"):
                network = networks[size] = Network(stack, number)
                tiled[size] = network.subscriber.ask("tile", count=size)["seconds"]
                if number == 0:
                    seconds = network.subscriber.ask("respond", count=bench.size(200, quick=5))["seconds"]
                    response = quantiles(seconds, (0.5, 0.99))
                network.latency(100)
                new[size] = network.latency(count)["p50"]
                # To warm up: what is compiled or cached on the way is.
                for _ in range(bench.size(3, quick=1)):
                    network.throughput(flood)
        for _ in bench.track(range(bench.size(9, quick=1)), "all in turn"):
            for network in networks.values():
                network.round(count, flood)
    rows, times = [], []
    for size, network in networks.items():
        p50, p99 = (median(each[name] for each in network.latencies) for name in ("p50", "p99"))
        speed, share = (median(column) for column in zip(*network.rates, strict=True))
        spent = [median(column) * 1e6 for column in zip(*network.spent, strict=True)]
        shown = [f"{value * 1e6:.0f}" for value in (p50, p99, new[size])]
        rows.append([f"{size:,}", *shown, f"{speed:,.0f}", f"{share:.4f}", f"{size / tiled[size]:,.0f}"])
        times.append([f"{size:,}", *(f"{each:.1f}" for each in (*spent, sum(spent)))])
        report.figure(f"p50_us_at_{size}", p50 * 1e6, "µs")
        report.figure(f"p99_us_at_{size}", p99 * 1e6, "µs")
        report.figure(f"p50_us_at_{size}_new", new[size] * 1e6, "µs")
        report.figure(f"events_per_s_at_{size}", speed, "events/s")
        report.figure(f"delivered_share_at_{size}", share, "")
        report.figure(f"cpu_us_per_event_at_{size}", sum(spent), "µs")
    columns = ["subscriptions", "p50 µs", "p99 µs", "p50 µs, new", "events/s", "delivered", "subscribed/s"]
    report.table("events", columns, rows)
    report.table("processor time, µs per event", ["subscriptions", "publisher", "subscriber", "switches", "all"], times)
    report.figure("subscribe_p50_ms", response["p50"] * 1e3, "ms")
    report.figure("subscribe_p99_ms", response["p99"] * 1e3, "ms")
    few = networks[sizes[0]]
    # Round by round, so that a slow moment of the machine is in both sides of a ratio.
    # A quick run has one small network, which stands for none of the goals.
    for size in sizes[1:]:
        many = networks[size]
        for name in ("p50", "p99"):
            growth = middle(b[name] / a[name] for a, b in zip(few.latencies, many.latencies, strict=True))
            report.goal(f"{name}_growth_1_to_{size}", growth)
        speed = middle(b[0] / a[0] for a, b in zip(few.rates, many.rates, strict=True))
        report.goal(f"events_per_s_{size}_over_1", speed)
        # Unlike rates, this hardly depends on what else the machine does.
        more = middle(sum(b) / max(sum(a), 1e-9) for a, b in zip(few.spent, many.spent, strict=True))
        report.goal(f"cpu_per_event_{size}_over_1", more)
    report.note("new: before the switches have seen most addresses, each of which they decide about once a minute")
    report.note("three networks at once, measured in turn; those that rest take a few per cent of a core")


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start(stack: ExitStack, path: Path, number: int, **changes: Any) -> tuple[Worker, Worker]:
    settings: dict[str, Any] = {
        "listen__port": 0,
        "topology": "testbed",
        "dataplane": "ovs",
        "openflow__name": f"svb{os.getpid() % 100_000:x}{number}",
        "openflow__run_dir": str(path / "run"),
        "openflow__links": "patch",
        "control__forwarding_delay": 0.05,
        **changes,
    }
    kind = KernelNetwork if settings["dataplane"] == "kernel" else OvsNetwork
    network = kind(parse_topology("testbed"), settings["openflow__name"], run_dir=path / "run")
    stack.callback(network.down)
    daemon = Worker(stack, "daemon", json.dumps(settings))
    url = daemon.ready()["url"]
    subscriber = Worker(stack, "subscriber", url, json.dumps(HOSTS))
    publisher = Worker(stack, "publisher", url)
    subscriber.ready()
    publisher.ready()
    return publisher, subscriber


def latency(publisher: Worker, subscriber: Worker, count: int, rate: float = 500) -> dict[str, float]:
    subscriber.ask("reset")
    publisher.ask("steady", count=count, rate=rate)
    return latencies_of(subscriber.ask("wait", count=count, latencies=True), count)


def latencies_of(answer: dict[str, Any], count: int) -> dict[str, float]:
    """Quantiles in seconds; an event that never came took for ever."""
    came = [value / 1e9 for value in answer["latencies"]]
    return quantiles([*came, *[float("inf")] * (count - len(came))], (0.5, 0.99))


def throughput(publisher: Worker, subscriber: Worker, count: int) -> tuple[float, float]:
    subscriber.ask("reset")
    begin = publisher.ask("flood", count=count)["begin"]
    answer = subscriber.ask("wait", count=count)
    return answer["seen"] / (answer["last"] - begin), answer["seen"] / count
