"""Control plane: requests/s, response time, memory, growth to 200,000 live subscriptions; journal on."""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from benchmarks.harness import Bench, Report, quantiles
from sievenet.content import Filter, Subscription, encode_subscription
from sievenet.control.config import ControlConfig
from sievenet.control.covering import Coverer
from sievenet.control.journal import Durability, FileJournal
from sievenet.control.plane import ControlPlane
from sievenet.daemon.collector import collecting_seldom
from sievenet.dataplane.simulator import Simulator
from sievenet.index import Plan
from sievenet.network import Clos, FlowChange, Testbed, Topology
from sievenet.workload import Hotspots, Poisson, Uniform, grid

#: What it should come to.
GOALS = {
    f"{load}_{what}": goal
    for load in ("uniform", "zipf")
    for what, goal in (("throughput", ">= 5,000 requests/s"), ("growth", "<= 2"))
}

#: Settings by name: bits of the plan, most dz per subscription.  Fine is what a category gets unless told otherwise.
#: Coarse is about what hardware switches could follow, which manage some 50 changes/s each.
FINE = ControlConfig().bits, ControlConfig().budget
SETTINGS = {"fine": FINE, "coarse": (10, 4)}
#: Requests under way at a time when throughput is measured.
WINDOW = 1024
CHUNK = 5_000

Load: TypeAlias = Uniform | Hotspots
#: A client, an id, and what it wants.
Wanted = tuple[str, int, Subscription]


class Switches(Simulator):
    """Switches that look at what they are told and acknowledge at once: what the control plane costs is measured."""

    changes = 0

    async def apply(self, switch: str, changes: Sequence[FlowChange]) -> None:
        self.changes += len(list(changes))


class Spent(NamedTuple):
    """What some requests cost."""

    requests: int
    wall: float
    cpu: float
    changes: int

    def plus(self, other: Spent) -> Spent:
        """Both together."""
        return Spent(
            self.requests + other.requests, self.wall + other.wall, self.cpu + other.cpu, self.changes + other.changes
        )


class Driver:
    """A client per host; each advertises everything and takes its share of the subscriptions."""

    #: Requests that are made ready before any of them is sent; none is under way when the next are.
    chunk = CHUNK
    #: Requests under way at a time.
    window = WINDOW

    def __init__(self, plane: ControlPlane, switches: Switches, load: Load, seed: int) -> None:
        self.plane = plane
        self.switches = switches
        self.load = load
        self.clients = [f"at-{host}" for host in switches.topology.hosts]
        self.random = np.random.default_rng(seed)
        self.live: list[tuple[str, int]] = []
        self.next = 0

    async def join(self) -> None:
        for client, host in zip(self.clients, self.switches.topology.hosts, strict=True):
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

    async def flood(self, subscribes: int, unsubscribes: int) -> Spent:
        """So many of each in random order, `window` at a time."""
        wall = cpu = 0.0
        requests, changes = subscribes + unsubscribes, self.switches.changes
        while subscribes or unsubscribes:
            total = subscribes + unsubscribes
            size = min(self.chunk, total)
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
            await asyncio.gather(*(work() for _ in range(min(self.window, size))))
            wall += time.perf_counter() - begin
            cpu += time.process_time() - cpu_begin
        return Spent(requests, wall, cpu, self.switches.changes - changes)

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


def network(bench: Bench) -> Topology:
    """102 switches and 64 hosts, as in PLEROMA's measurements; a tenth of that in a quick run."""
    return bench.size(Clos.build, quick=Testbed.build)()


@asynccontextmanager
async def fabric(
    load: Load, setting: str, topology: Topology | None = None
) -> AsyncIterator[tuple[Driver, FileJournal]]:
    """A journal on disk, one controller; 102 switches if nothing else is said."""
    switches = Switches(topology or Clos.build(), scheduler=asyncio.get_running_loop())
    bits, budget = SETTINGS[setting]
    with tempfile.TemporaryDirectory() as folder:
        journal = FileJournal(Path(folder) / "journal.sqlite", durability=Durability.POWER)
        config = ControlConfig(bits=bits, budget=budget, lease=86400.0)
        plane = await ControlPlane.start(switches, journal, config)
        await plane.register_schema(load.schema)
        driver = Driver(plane, switches, load, seed=5)
        await driver.join()
        yield driver, journal
        await plane.close()


def resident() -> int:
    """Bytes of memory this process holds."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def measure(bench: Bench, load: Load, name: str, setting: str, levels: Sequence[int]) -> dict[str, float]:
    """Everything about one workload in one setting: up through the levels and back to nothing."""
    figures: dict[str, float] = {}
    mixed = bench.size(4_000, quick=8) // 2
    async with fabric(load, setting, network(bench)) as (driver, journal):
        before = resident()
        total = Spent(0, 0.0, 0.0, 0)
        commits, committed = journal.commits, journal.committed
        for level in levels:
            with bench.step(f"{name}, {setting}: up to {level:,} live"):
                total = total.plus(await driver.flood(level - len(driver.live), 0))
            if level == levels[-1]:
                figures["bytes_per_subscription"] = (resident() - before) / level
            with bench.step(f"{name}, {setting}: {level:,} live"):
                spent = await driver.flood(mixed, mixed)
            figures[f"cpu_us_at_{level}"] = 1e6 * spent.cpu / spent.requests
            figures[f"wall_us_at_{level}"] = 1e6 * spent.wall / spent.requests
            figures[f"changes_at_{level}"] = spent.changes / spent.requests
            total = total.plus(spent)
        with bench.step(f"{name}, {setting}: Poisson at 2,500/s"):
            every = quantiles(await driver.poisson(bench.size(10_000, quick=20), 2_500.0), (0.5, 0.99))
        table = max(len(driver.plane.table(s)) for s in driver.switches.topology.switches[::8])
        with bench.step(f"{name}, {setting}: back to nothing"):
            total = total.plus(await driver.flood(0, len(driver.live)))
        grouped = (journal.committed - committed) / max(1, journal.commits - commits)
    return figures | {
        "requests_per_s": total.requests / total.wall,
        "requests_per_cpu_s": total.requests / total.cpu,
        "changes_per_request": total.changes / total.requests,
        "growth": figures[f"cpu_us_at_{levels[-1]}"] / figures[f"cpu_us_at_{levels[0]}"],
        "p50_ms": every["p50"],
        "p99_ms": every["p99"],
        "largest_table": float(table),
        "requests_per_commit": grouped,
    }


def unit_of(figure: str) -> str:
    """The unit of a figure by its name."""
    for part, unit in (("_ms", "ms"), ("_us", "us"), ("bytes", "B"), ("per_s", "1/s"), ("per_cpu_s", "1/s")):
        if part in figure:
            return unit
    return "flows" if figure == "largest_table" else ""


def run(bench: Bench) -> Report:
    report = Report(GOALS)
    schema = grid(10, hi=1024)
    loads: dict[str, Load] = {"uniform": Uniform(schema=schema, seed=3), "zipf": Hotspots(schema=schema, seed=3)}
    levels = {
        "fine": [bench.size(1_000, quick=12), bench.size(20_000, quick=20), bench.size(200_000, quick=28)],
        "coarse": [bench.size(1_000, quick=12), bench.size(20_000, quick=20)],
    }
    with bench.step("compiling kernels"):
        for bits, budget in SETTINGS.values():
            coverer = Coverer(Plan.regular(schema, bits), budget)
            some = [Subscription([f]) for f in loads["uniform"].subscriptions(2).filters()]
            coverer.many((encode_subscription(each), each) for each in some)
            coverer.keys(Subscription(some[0].filters), wants=True)
    found: dict[tuple[str, str], dict[str, float]] = {}
    for setting in SETTINGS:
        for name, load in loads.items():
            with collecting_seldom():  # as every daemon does
                figures = asyncio.run(measure(bench, load, name, setting, levels[setting]))
            if found:
                del figures["bytes_per_subscription"]  # later runs in the process use again what earlier ones gave back
            found[setting, name] = figures
            for key, value in figures.items():
                report.figure(f"{setting}_{name}_{key}", value, unit_of(key))
    for name in loads:
        figures = found["fine", name]
        report.goal(f"{name}_throughput", figures["requests_per_s"])
        report.goal(f"{name}_growth", figures["growth"])
    report.table(
        "all figures",
        ["figure", *(f"{name}, {setting}" for setting, name in found)],
        [[key, *(figures.get(key, "") for figures in found.values())] for key in found["fine", "uniform"]],
    )
    report.note(
        "102 switches, 64 hosts that all publish everything, 10 attributes in [0, 1024], all of them constrained; "
        + "; ".join(f"{name}: {bits} bits, at most {budget} dz" for name, (bits, budget) in SETTINGS.items())
        + "; one partition, one process; SQLite journal with synchronous=FULL; the clients run in the same process, "
        "switches only count and acknowledge."
    )
    report.note("at N: half subscribing, half unsubscribing in random order while N are live.")
    report.note("largest table: of every eighth switch.")
    report.note("growth: processor time per such request at the last level, over that at the first.")
    report.note("Goals are those of the fine setting, the default of a new category; throughput is by the clock.")
    return report
