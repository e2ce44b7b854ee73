"""Place filters with the help of real client processes (RTO, FF), against inserting them by searching.

The setting is that of the thesis on offloading routing cost: 10,000 range filters of one and two dimensions, Gaussian,
Zipf and uniform, 20 or 10,000 interfaces, batches of 1-50, vectors of 10-500, checks on and off, poset and forest. The
thesis simulated its clients and sent no messages; here they are processes on loopback, and the router's processor time
includes writing, sending, receiving and voting.

A table of full size is filled from known relations, which is not timed; then the same filters are inserted by searching
and by offloading, and taken out again in between, so all variants see the same table.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.harness import Bench, Report
from sievenet.content import Attribute, Filter, Schema
from sievenet.content.valueset import NUMBER, ValueSet
from sievenet.routers.messages import category_of
from sievenet.routers.offload.fixed import FixedSet, Placer
from sievenet.routers.offload.messages import Computed
from sievenet.routers.offload.rto import Offloader, RtoSettings
from sievenet.routers.offload.shell import Joined, Left, Workers
from sievenet.routers.offload.tables import ForestTable, PosetTable

SCHEMAS = {d: Schema(f"range{d}", tuple(Attribute(f"x{i}", "float", lo=0.0, hi=1.0) for i in range(d))) for d in (1, 2)}
CLIENTS = 4
#: In a quick run.
FEW = 2
Floats = npt.NDArray[np.float64]


def draw(kind: str, count: int, dimensions: int, seed: int) -> Floats:
    """Bounds [filter, dimension, 2] in [0, 1]."""
    rng = np.random.default_rng((seed, dimensions))
    shape = (count, dimensions, 2)
    if kind == "uniform":
        ends = rng.random(shape)
    elif kind == "gaussian":
        ends = np.clip(rng.normal(0.5, 0.15, shape), 0.0, 1.0)
    else:
        weights = np.arange(1, 1001) ** -0.9
        ends = (rng.choice(1000, shape, p=weights / weights.sum()) + rng.random(shape)) / 1000
    return np.sort(ends, axis=2)


def filters_of(ends: Floats) -> list[Filter]:
    dimensions = ends.shape[1]
    schema = SCHEMAS[dimensions]
    return [
        Filter(schema, {f"x{i}": ValueSet(((NUMBER, lo, 0), (NUMBER, hi, 1))) for i, (lo, hi) in enumerate(row)})
        for row in ends.tolist()
    ]


@dataclass
class Setting:
    """A filled table, and filters to insert."""

    dimensions: int
    forest: bool
    table: PosetTable | ForestTable
    new: list[Filter]

    @staticmethod
    def fill(kind: str, dimensions: int, size: int, sample: int, forest: bool, interfaces: int) -> Setting:
        ends = draw(kind, size + sample, dimensions, 7)
        filters = filters_of(ends)
        few = interfaces < size
        table: PosetTable | ForestTable = ForestTable(eliminate=few) if forest else PosetTable(eliminate=few)
        if few:
            for i, each in enumerate(filters[:size]):
                table.insert(each, i % interfaces)
        else:
            lo, hi = ends[:, :, 0], ends[:, :, 1]
            for i, each in enumerate(filters[:size]):
                over = np.flatnonzero(((lo[:i] <= lo[i]) & (hi[:i] >= hi[i])).all(axis=1))
                under = np.flatnonzero(((lo[:i] >= lo[i]) & (hi[:i] <= hi[i])).all(axis=1))
                table.place(each, i, set(over.tolist()), set(under.tolist()), check=False)
        return Setting(dimensions, forest, table, [f for f in filters[size:] if table.number(f) is None])

    def remove(self) -> None:
        structure = self.table.forest if isinstance(self.table, ForestTable) else self.table.poset
        for each in self.new:
            structure.unsubscribe(each, "new")

    def searching(self) -> float:
        """Processor seconds per filter of the plain insert."""
        begin = time.process_time()
        for each in self.new:
            self.table.insert(each, "new")
        spent = time.process_time() - begin
        self.remove()
        return spent / len(self.new)


@dataclass
class Measured:
    """Per inserted filter: the router's and the clients' processor seconds, bytes, messages, wall seconds."""

    router: float
    clients: float
    bytes: float
    messages: float
    wall: float
    offloaded: int
    searched: int


@contextmanager
def worker_processes(count: int, schema: Schema, options: list[list[str]] | None = None) -> Iterator[Workers]:
    workers = Workers([schema])
    host, port = workers.address
    command = [sys.executable, "-m", "sievenet.routers.offload.shell", host, str(port)]
    started = [
        subprocess.Popen([*command, f"w{i}", *((options or [])[i] if options else [])], env=dict(os.environ))
        for i in range(count)
    ]
    try:
        yield workers
    finally:
        workers.close()
        for each in started:
            each.wait(timeout=10)


def starting(count: int) -> float:
    """Processor seconds of processes that start and do nothing."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    joined = 0
    with worker_processes(count, SCHEMAS[1]) as workers:
        while joined < count:
            joined += len(workers.poll(1.0))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def offloading(setting: Setting, settings: RtoSettings, options: list[list[str]], start: float) -> Measured:
    """Insert the new filters with the help of worker processes, which take so much to start."""
    schema = SCHEMAS[setting.dimensions]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with worker_processes(len(options), schema, options) as workers:
        offloader = Offloader(setting.table, category_of(schema), settings, cpu=time.process_time)
        joined = 0
        while joined < len(options):
            for name, message in workers.poll(1.0):
                assert isinstance(message, Joined)
                offloader.join(name)
                joined += 1
        # The first batch brings every vector to its clients; that is paid once, not per filter.
        batch = settings.batch
        drive(offloader, workers, setting.new[:batch])
        sent, messages = workers.sent_bytes + workers.received_bytes, workers.sent_messages + workers.received_messages
        counts = offloader.counts.offloaded, offloader.counts.searched
        begin, wall = time.process_time(), time.perf_counter()
        drive(offloader, workers, setting.new[batch:])
        router, wall = time.process_time() - begin, time.perf_counter() - wall
        sent = workers.sent_bytes + workers.received_bytes - sent
        messages = workers.sent_messages + workers.received_messages - messages
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    setting.remove()
    setting.table.watch(None)
    count = len(setting.new) - batch
    clients = max(0.0, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime - start)
    return Measured(
        router / count,
        clients / len(setting.new),
        sent / count,
        messages / count,
        wall / count,
        offloader.counts.offloaded - counts[0],
        offloader.counts.searched - counts[1],
    )


def drive(offloader: Offloader, workers: Workers, filters: list[Filter]) -> None:
    """Submit filters, and carry questions and answers until all are in the table."""
    batch = offloader.settings.batch
    for each in filters:
        asks = offloader.submit(each, "new", time.monotonic())
        if asks:
            workers.ask(asks)
        while offloader.waiting >= batch:
            carry(offloader, workers)
    workers.ask(offloader.flush(time.monotonic()))
    while offloader.waiting:
        carry(offloader, workers)


def carry(offloader: Offloader, workers: Workers) -> None:
    """Wait for answers until one comes or time is up."""
    now = time.monotonic()
    for name, message in workers.poll(max(0.0, min(1.0, (offloader.due() or now) - now))):
        if isinstance(message, Computed):
            workers.ask(offloader.answered(name, message, time.monotonic()))
        elif isinstance(message, Left):
            workers.ask(offloader.leave(name, time.monotonic()))
    workers.ask(offloader.tick(time.monotonic()))


def layer_share(setting: Setting) -> float:
    """The share of the plain insert that keeping the layers up to date takes."""
    assert isinstance(setting.table, PosetTable)
    poset = setting.table.poset
    spent = 0.0
    settle = poset.settle

    def timed(*args: object, **kwargs: object) -> None:
        nonlocal spent
        begin = time.perf_counter()
        settle(*args, **kwargs)  # type: ignore[arg-type]
        spent += time.perf_counter() - begin

    poset.settle = timed  # type: ignore[method-assign]
    begin = time.perf_counter()
    for each in setting.new:
        setting.table.insert(each, "new")
    total = time.perf_counter() - begin
    poset.settle = settle  # type: ignore[method-assign]
    setting.remove()
    return spent / total


def fixed_set(setting: Setting) -> tuple[float, float]:
    """Covering tests per insert by FF, and by searching, over the same poset."""
    assert isinstance(setting.table, PosetTable)
    poset = setting.table.poset
    fixed = FixedSet(poset, category_of(SCHEMAS[setting.dimensions]), size=512)
    placer = Placer(fixed.assign(), SCHEMAS[setting.dimensions])
    claims = [placer.claim(each) for each in setting.new]
    counted: list[float] = []
    ways: tuple[Callable[[int], None], ...] = (
        lambda i: fixed.subscribe(setting.new[i], "new", claims[i]),
        lambda i: setting.table.insert(setting.new[i], "new"),
    )
    for way in ways:
        before = poset.tests
        for i in range(len(setting.new)):
            way(i)
        counted.append((poset.tests - before) / len(setting.new))
        setting.remove()
    return counted[0], counted[1]


def run(bench: Bench) -> Report:
    report = Report()
    good: list[list[str]] = [[] for _ in range(bench.size(CLIENTS, quick=FEW))]
    with bench.step("starting processes"):
        start = starting(len(good))
    size, small = bench.size(10_000, quick=250), bench.size(3_000, quick=200)
    sample, long = bench.size(200, quick=30), bench.size(600, quick=40)
    rows: list[list[object]] = []
    gains: list[float] = []
    shares: list[float] = []
    worse: list[float] = []

    def note(label: str, plain: float, found: Measured) -> None:
        gain = plain / found.router
        rows.append(
            [
                label,
                plain * 1e6,
                found.router * 1e6,
                gain,
                found.clients * 1e6,
                found.bytes,
                found.messages,
                found.wall * 1e6,
            ]
        )

    def measure(
        kind: str, dimensions: int, forest: bool, count: int, variants: list[RtoSettings], interfaces: int
    ) -> None:
        name = f"{kind} {dimensions}-d {'forest' if forest else 'poset'} {interfaces} interfaces"
        with bench.step(name):
            setting = Setting.fill(kind, dimensions, count, sample, forest, interfaces)
            if not setting.new:
                return
            plain = setting.searching()
            if not forest and interfaces >= count:
                shares.append(layer_share(setting))
            for each in variants:
                found = offloading(setting, each, good, start)
                label = f"{name}, batch {each.batch}, vectors {each.vector}{', checked' if each.check else ''}"
                note(label, plain, found)
                if dimensions == 2 and not forest and interfaces >= count and each == usual:
                    gains.append(plain / found.router)

    usual = RtoSettings(batch=10, vector=100, copies=3, mode="always", timeout=20.0)

    def variant(**changes: object) -> RtoSettings:
        return RtoSettings(**{"batch": 10, "vector": 100, "copies": 3, "mode": "always", "timeout": 20.0, **changes})  # type: ignore[arg-type]

    batches = [variant(batch=b) for b in (1, 5, 25, 50)] if not bench.quick else []
    vectors = [variant(vector=v) for v in (10, 500)] if not bench.quick else []
    checked = [variant(check=True)] if not bench.quick else []
    measure("uniform", 2, False, size, [usual, *batches, *vectors, *checked], size)
    if not bench.quick:
        measure("gaussian", 2, False, small, [usual], small)
        measure("zipf", 2, False, small, [usual], small)
        measure("uniform", 2, True, size, [usual, *checked], size)
        for kind in ("uniform", "gaussian", "zipf"):
            measure(kind, 2, False, size, [usual], 20)
        measure("uniform", 1, False, small, [usual], small)

    for forest in (False, True) if not bench.quick else (True,):
        with bench.step(f"1-d, choosing the way, {'forest' if forest else 'poset'}"):
            setting = Setting.fill("uniform", 1, small, long, forest, small)
            plain = min(setting.searching() for _ in range(2))
            found = offloading(setting, variant(mode="auto"), good, start)
            worse.append(found.router / plain)
            note(f"uniform 1-d {'forest' if forest else 'poset'}, auto", plain, found)
    with bench.step("fixed filterset"):
        setting = Setting.fill("uniform", 2, small, sample, False, small)
        with_claims, without = fixed_set(setting)
    if not bench.quick:
        with bench.step("clients that lie, are silent or slow"):
            bad = [[], [], [], ["--lying"], ["--silent"], ["--slow", "0.5"]]
            found = offloading(setting, variant(timeout=0.2), bad, start * len(bad) / len(good))
            report.figure("bad_clients_router_us", found.router * 1e6, "µs")
            report.figure("bad_clients_searched", found.searched, "filters")
    columns = ["setting", "search µs", "offload µs", "gain", "clients µs", "bytes", "messages", "wall µs"]
    report.table("per inserted filter", columns, rows)
    report.figure("ff_tests", with_claims, "covering tests")
    report.figure("ff_tests_without", without, "covering tests")
    report.goal("router_work_2d", min(gains), ">= 3")
    report.goal("layer_upkeep", 100 * max(shares), "<= 10 %")
    report.goal("router_work_1d", max(worse), "<= 1.1")
    report.note(f"{CLIENTS} client processes on loopback, three copies of each vector; processor time of the router")
    report.note("wall time is that of one router and all its clients on this machine's cores")
    return report
