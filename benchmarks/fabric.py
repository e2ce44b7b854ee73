"""Events over UDP through the testbed, latency against subscriptions, and 300 switches simulated.

A daemon (testbed topology: 10 switches, 8 hosts), a publisher and a subscriber process with nodes on four hosts at the
far end meet only through sockets on loopback. Subscriptions tile the event space, so that every event is delivered to
exactly one of them however many there are; what grows from 1 to 16,000 is the flow tables and the exact filter at the
edge, and latency should not notice. The three sizes have a fabric each and are measured in turn, again and again, so
that whatever else the machine does befalls all of them alike.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from contextlib import ExitStack
from statistics import median
from typing import Any

import numpy as np

from benchmarks._fabric_worker import DOMAIN, SCHEMA
from benchmarks.harness import Bench, Report, middle, quantiles
from sievenet.content import EventBatch, Filter, Subscription, ValueSet
from sievenet.control.config import ControlConfig
from sievenet.control.journal import MemoryJournal
from sievenet.control.plane import ControlPlane
from sievenet.dataplane import Simulator
from sievenet.index import Plan
from sievenet.network import parse_topology

#: What it should come to.
GOALS = {"p50_growth_1_to_16000": "<= 1.3", "p99_growth_1_to_16000": "<= 1.3"}

#: The publisher is at h1; these four hosts are equally far from it, five switches.
HOSTS = ["h5", "h6", "h7", "h8"]


class Worker:
    """A process of the benchmark."""

    module = "benchmarks._fabric_worker"

    def __init__(self, stack: ExitStack, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", self.module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.callback(self._end)

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def ready(self) -> dict[str, Any]:
        """Wait until it is; what it says of itself."""
        return self.answer()

    def tell(self, do: str, **order: Any) -> None:
        self.write({"do": do, **order})

    def write(self, order: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def ask(self, do: str, **order: Any) -> dict[str, Any]:
        self.tell(do, **order)
        return self.answer()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker of the benchmark ended with {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def _end(self) -> None:
        self._process.kill()
        self._process.communicate()


class Fabric:
    """A daemon, a subscriber and a publisher."""

    def __init__(self, stack: ExitStack) -> None:
        settings = {"listen__port": 0, "data__port": 0, "topology": "testbed", "control__forwarding_delay": 0.01}
        self.daemon = Worker(stack, "daemon", json.dumps(settings))
        url = self.daemon.ready()["url"]
        self.subscriber = Worker(stack, "subscriber", url, json.dumps(HOSTS))
        self.publisher = Worker(stack, "publisher", url)
        self.subscriber.ready()
        self.publisher.ready()

    def latencies(self, count: int, rate: float) -> list[float]:
        """Seconds from publish to queue of so many events at a steady rate."""
        self.subscriber.ask("reset")
        self.publisher.ask("steady", count=count, rate=rate)
        answer = self.subscriber.ask("wait", count=count, latencies=True)
        if answer["seen"] != count or answer["duplicates"]:
            raise RuntimeError(f"{answer['seen']} of {count} events arrived, {answer['duplicates']} duplicates")
        return [value / 1e9 for value in answer["latencies"]]


def run(bench: Bench) -> Report:
    report = Report(GOALS)
    with ExitStack() as stack:
        fabric = measure_latency(bench, report, stack)
        measure_throughput(bench, report, fabric)
    measure_simulation(bench, report)
    report.note("all processes share the cores of one machine; latency is from publish() to the subscriber's queue")
    return report


def measure_latency(bench: Bench, report: Report, stack: ExitStack) -> Fabric:
    sizes = bench.size([1, 1_000, 16_000], quick=[1, 50])
    count, rounds = bench.size(500, quick=40), bench.size(15, quick=1)
    fabrics: dict[int, Fabric] = {}
    found: dict[int, list[dict[str, float]]] = {size: [] for size in sizes}
    rows = []
    for size in sizes:
        with bench.step(f"a fabric with {size:,} subscriptions"):
            # A quick run proves nothing and may use one fabric for all: processes take long to start.
            fabrics[size] = fabrics[sizes[0]] if bench.quick and fabrics else Fabric(stack)
            tiled = fabrics[size].subscriber.ask("tile", count=size)
            flows = fabrics[size].daemon.ask("status")["flows"]
            rows.append([f"{size:,}", f"{flows:,}", f"{size / tiled['seconds']:,.0f}"])
            fabrics[size].latencies(bench.size(200, quick=20), 500)
    for _ in bench.track(range(rounds), "latency of all in turn"):
        for size, fabric in fabrics.items():
            found[size].append(quantiles(fabric.latencies(count, 500), (0.5, 0.99)))
    figures = {}
    for size, row in zip(sizes, rows, strict=True):
        # The median round: neither the luckiest nor one in which something else had the machine.
        p50, p99 = (median(each[name] for each in found[size]) for name in ("p50", "p99"))
        figures[size] = (p50, p99)
        row[2:2] = [f"{p50 * 1e6:.0f}", f"{p99 * 1e6:.0f}"]
        report.figure(f"p50_us_at_{size}", p50 * 1e6, "µs")
        report.figure(f"p99_us_at_{size}", p99 * 1e6, "µs")
    report.table("latency", ["subscriptions", "flows", "p50 µs", "p99 µs", "subscribed/s"], rows)
    # Round by round, so that a slow moment of the machine is in both sides of a ratio.
    for name in ("p50", "p99"):
        growth = middle(b[name] / a[name] for a, b in zip(found[sizes[0]], found[sizes[-1]], strict=True))
        report.goal(f"{name}_growth_1_to_16000", growth)
    bench.plot_lines(
        "fabric-latency",
        [float(s) for s in sizes],
        {"p50": [figures[s][0] * 1e6 for s in sizes], "p99": [figures[s][1] * 1e6 for s in sizes]},
        xlabel="subscriptions",
        ylabel="µs",
        log="x",
    )
    return fabrics[sizes[0]]


def measure_throughput(bench: Bench, report: Report, fabric: Fabric) -> None:
    daemon, publisher, subscriber = fabric.daemon, fabric.publisher, fabric.subscriber
    count = bench.size(100_000, quick=2_000)
    rows = []
    for size in bench.size([1, 1_000], quick=[1]):
        with bench.step(f"{count:,} events as fast as they go, {size:,} subscriptions"):
            subscriber.ask("tile", count=size)
            subscriber.ask("reset")
            publisher.ask("flood", count=bench.size(25_000, quick=500))  # warms the batch encoder up
            subscriber.ask("wait", count=bench.size(25_000, quick=500))
            subscriber.ask("reset")
            before = daemon.ask("status")
            begin = publisher.ask("flood", count=count)["begin"]
            answer = subscriber.ask("wait", count=count)
            after = daemon.ask("status")
            hops, dropped = after["hops"] - before["hops"], after["dropped"] - before["dropped"]
        seconds = answer["last"] - begin
        rate = answer["seen"] / seconds
        share = answer["seen"] / count
        rows.append([f"{size:,}", f"{rate:,.0f}", f"{hops / seconds:,.0f}", f"{share:.4f}", f"{dropped:,}"])
        report.figure(f"events_per_s_at_{size}", rate, "events/s")
        report.figure(f"delivered_share_at_{size}", share, "")
    report.table(
        "throughput", ["subscriptions", "events/s", "switch hops/s", "delivered", "dropped by full queues"], rows
    )


def measure_simulation(bench: Bench, report: Report) -> None:
    """A fat network of 300 switches and 4,400 hosts, tables by the control plane, events in batches."""
    shape = bench.size(
        "clos,core=4,pods=37,aggregation=4,edge=4,hosts=30", quick="clos,core=2,pods=4,aggregation=2,edge=2"
    )
    subscriptions, events = bench.size(4_400, quick=60), bench.size(1_000_000, quick=5_000)
    with bench.step(f"simulating {shape}"):
        switches, hosts, deliveries, seconds = asyncio.run(simulate(shape, subscriptions, events))
    report.figure("simulated_switches", switches, "")
    report.figure("simulated_hosts", hosts, "")
    report.figure("simulated_events_per_s", events / seconds, "events/s")
    report.figure("simulated_deliveries_per_s", deliveries / seconds, "deliveries/s")


async def simulate(shape: str, subscriptions: int, events: int) -> tuple[int, int, int, float]:
    topology = parse_topology(shape)
    simulator = Simulator(topology, seed=1)
    control = await ControlPlane.start(simulator, MemoryJournal(), ControlConfig(budget=8, lease=86400.0))
    await control.register_schema(SCHEMA)
    rng = np.random.default_rng(2)
    sources = [f"source-{i}" for i in range(16)]
    for i, name in enumerate(sources):
        await control.join(name, topology.hosts[i * len(topology.hosts) // len(sources)])
        await control.advertise(name, 1, Subscription([Filter(SCHEMA)]))
    starts = rng.integers(DOMAIN - 40, size=(subscriptions, 2)).tolist()
    for i, (x, y) in enumerate(starts):
        await control.join(f"node-{i}", topology.hosts[i % len(topology.hosts)])
        box = {"x": ValueSet.interval(x, x + 39), "y": ValueSet.interval(max(0, y - 4000), y)}
        await control.subscribe(f"node-{i}", 1, Subscription([Filter(SCHEMA, box)]))
    plan: Plan = control.category("point").plan
    batch = EventBatch.of(SCHEMA, {name: rng.integers(DOMAIN, size=events) for name in ("x", "y")})
    codes = plan.encode_batch(batch)
    per = -(-len(codes) // len(sources))
    simulator.send_batch(sources[0], 1, codes.hi[:100], codes.lo[:100])
    begin = time.perf_counter()
    delivered = 0
    for i, name in enumerate(sources):
        part = slice(i * per, (i + 1) * per)
        delivered += len(simulator.send_batch(name, 1, codes.hi[part], codes.lo[part]))
    seconds = time.perf_counter() - begin
    await control.close()
    return len(topology.switches), len(topology.hosts), delivered, seconds
