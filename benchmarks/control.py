"""Control plane: requests/s, response time, memory and growth with up to 200,000 live subscriptions, journal on."""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np

from benchmarks.harness import Bench, Report, quantiles
from sievenet.content import Filter, Subscription
from sievenet.control.config import ControlConfig
from sievenet.control.journal import Durability, SqliteJournal
from sievenet.control.plane import ControlPlane
from sievenet.dataplane.simulator import Simulator
from sievenet.index import Plan
from sievenet.network import Clos, FlowChange, Topology
from sievenet.workload import Hotspots, Poisson, Uniform, grid

#: Few and coarse dz, as few flow changes per request as 102 hardware switches could take at 5,000 requests/s: they
#: manage about 50 changes/s each, so about one per request.  One bit per attribute.
BITS = 10
BUDGET = 4
#: Requests under way at a time when throughput is measured.
WINDOW = 256
CHUNK = 5_000

#: A client, an id, and what it wants.
Wanted = tuple[str, int, Subscription]


class Switches(Simulator):
    """Embedded switches that count what they are told."""

    changes = 0

    async def apply(self, switch: str, changes: Sequence[FlowChange]) -> None:
        self.changes += len(changes)
        await super().apply(switch, changes)


class Driver:
    """64 clients, one per host; each advertises everything and takes its share of the subscriptions."""

    def __init__(self, plane: ControlPlane, topology: Topology, load: Uniform | Hotspots, seed: int) -> None:
        self.plane = plane
        self.load = load
        self.clients = [f"at-{host}" for host in topology.hosts]
        self.random = np.random.default_rng(seed)
        self.live: list[tuple[str, int]] = []
        self.next = 0

    async def join(self, hosts: tuple[str, ...]) -> None:
        for client, host in zip(self.clients, hosts, strict=True):
            await self.plane.join(client, host)
            await self.plane.advertise(client, 0, Subscription([Filter(self.load.schema, {})]))

    def fresh(self, count: int) -> list[Wanted]:
        """The next subscriptions, each for one of the clients."""
        wanted = self.load.subscriptions(count, start=self.next).filters()
        who = self.random.integers(len(self.clients), size=count)
        found = []
        for c, f in zip(who.tolist(), wanted, strict=True):
            self.next += 1
            found.append((self.clients[c], self.next, Subscription([f])))
        return found

    async def subscribe(self, each: Wanted) -> None:
        await self.plane.subscribe(*each)
        self.live.append(each[:2])

    async def unsubscribe(self) -> None:
        at = int(self.random.integers(len(self.live)))
        self.live[at], self.live[-1] = self.live[-1], self.live[at]
        await self.plane.unsubscribe(*self.live.pop())

    async def flood(self, subscribes: int, unsubscribes: int) -> tuple[float, float]:
        """So many of each in random order, `WINDOW` at a time: wall-clock and processor seconds."""
        wall = cpu = 0.0
        while subscribes or unsubscribes:
            total = subscribes + unsubscribes
            size = min(CHUNK, total)
            news = round(size * subscribes / total)
            subscribes, unsubscribes = subscribes - news, unsubscribes - (size - news)
            kinds = self.random.permutation(np.arange(size) < news).tolist()
            wanted = iter(self.fresh(news))
            orders = iter(kinds)

            async def work(orders: Iterator[bool] = orders, wanted: Iterator[Wanted] = wanted) -> None:
                for new in orders:
                    await (self.subscribe(next(wanted)) if new else self.unsubscribe())

            gc.collect()
            begin, cpu_begin = time.perf_counter(), time.process_time()
            await asyncio.gather(*(work() for _ in range(min(WINDOW, size))))
            wall += time.perf_counter() - begin
            cpu += time.process_time() - cpu_begin
        return wall, cpu

    async def poisson(self, count: int, rate: float) -> list[float]:
        """Response times in milliseconds of requests at random moments, half of them each kind."""
        times = Poisson(rate=rate, seed=7).times(count)
        wanted = iter(self.fresh(count))
        spent: list[float] = []
        tasks: set[asyncio.Task[None]] = set()

        async def one(new: bool, due: float) -> None:
            await (self.subscribe(next(wanted)) if new else self.unsubscribe())
            spent.append(1e3 * (time.perf_counter() - due))

        gc.collect()
        start = time.perf_counter()
        for i, moment in enumerate(times.tolist()):
            wait = start + moment - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            task = asyncio.ensure_future(one(i % 2 == 0, start + moment))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)
        return spent


@asynccontextmanager
async def fabric(load: Uniform | Hotspots) -> AsyncIterator[tuple[Driver, Switches, SqliteJournal]]:
    """102 switches and 64 hosts, a journal on disk, one controller."""
    topology = Clos.build()
    switches = Switches(topology, scheduler=asyncio.get_running_loop())
    with tempfile.TemporaryDirectory() as folder:
        journal = SqliteJournal(Path(folder) / "journal.sqlite", durability=Durability.POWER)
        config = ControlConfig(bits=BITS, budget=BUDGET, lease=86400.0)
        plane = await ControlPlane.start(switches, journal, config)
        await plane.register_schema(load.schema)
        driver = Driver(plane, topology, load, seed=5)
        await driver.join(topology.hosts)
        yield driver, switches, journal
        await plane.close()


def resident() -> int:
    """Bytes of memory this process holds."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def measure(
    bench: Bench, report: Report, name: str, load: Uniform | Hotspots, first: bool
) -> dict[str, float]:
    """Everything about one workload."""
    full = bench.size(200_000, quick=600)
    few = bench.size(1_000, quick=100)
    mixed = bench.size(10_000, quick=100)
    async with fabric(load) as (driver, switches, journal):
        with bench.step(f"{name}: {few:,} live"):
            await driver.flood(few, 0)
            _, cpu_few = await driver.flood(mixed, mixed)
        before = resident()
        flows = switches.changes
        commits, committed = journal.commits, journal.committed
        with bench.step(f"{name}: growing to {full:,}"):
            grown, grown_cpu = await driver.flood(full - len(driver.live), 0)
        memory = (resident() - before) / (full - few)
        with bench.step(f"{name}: {full:,} live"):
            level, cpu_full = await driver.flood(mixed, mixed)
        with bench.step(f"{name}: Poisson at 2,500/s"):
            spent = await driver.poisson(bench.size(25_000, quick=200), 2_500.0)
        table = max(len(switches.table_now(s)) for s in switches.topology.switches)
        live = len(driver.live)
        with bench.step(f"{name}: back to nothing"):
            shrunk, shrunk_cpu = await driver.flood(0, live)
        grouped = (journal.committed - committed) / max(1, journal.commits - commits)
        flows = switches.changes - flows
    requests = full - few + 2 * mixed + live
    seconds, cpu = grown + level + shrunk, grown_cpu + cpu_full + shrunk_cpu
    every = quantiles(spent, (0.5, 0.99))
    figures = {
        "requests_per_s": requests / seconds,
        "requests_per_cpu_s": requests / cpu,
        "subscribes_per_s": (full - few) / grown,
        "unsubscribes_per_s": live / shrunk,
        "growth": cpu_full / cpu_few,
        "p50_ms": every["p50"],
        "p99_ms": every["p99"],
        "largest_table": float(table),
        "flow_changes_per_request": flows / requests,
        "requests_per_commit": grouped,
    }
    units = {"p50_ms": "ms", "p99_ms": "ms", "largest_table": "flows"}
    if first:  # a second run in the same process reuses what the first gave back
        report.figure("bytes_per_subscription", memory, "B")
    for key, value in figures.items():
        report.figure(f"{name}_{key}", value, units.get(key, "1/s" if key.endswith("_s") else ""))
    return figures


def run(bench: Bench) -> Report:
    report = Report()
    schema = grid(10, hi=1024)
    loads: dict[str, Uniform | Hotspots] = {
        "uniform": Uniform(schema=schema, seed=3),
        "zipf": Hotspots(schema=schema, seed=3),
    }
    with bench.step("compiling kernels"):
        Plan.regular(schema, BITS).cover_dz(Subscription([loads["uniform"].subscriptions(1).filters()[0]]), BUDGET)
    found = {name: asyncio.run(measure(bench, report, name, load, name == "uniform")) for name, load in loads.items()}
    for name, figures in found.items():
        report.goal(f"{name}_throughput", figures["requests_per_s"], ">= 5,000 requests/s")
        report.goal(f"{name}_growth", figures["growth"], "<= 2")
    report.table("all figures", ["figure", *found], [[key, *(f[key] for f in found.values())] for key in found["zipf"]])
    report.note(
        f"102 switches, 64 hosts that all publish everything, 10 attributes in [0, 1024], all of them constrained; "
        f"{BITS} bits, at most {BUDGET} dz per subscription, one partition, one process; SQLite journal with "
        "synchronous=FULL; embedded switches that acknowledge at once; the clients run in the same process."
    )
    report.note("growth: processor time per request (half of each kind) with all live, over that with few live.")
    return report
