"""Place filters with the help of real client processes (RTO, FF), against inserting them by searching.

The setting is that of the thesis on offloading routing cost: 10,000 range filters of one and two dimensions, Gaussian,
Zipf and uniform, 20 or 10,000 interfaces, batches of 1-50, vectors of 10-500, checks on and off, poset and forest. The
thesis simulated its clients and sent no messages; here they are processes on loopback, and the router's processor time
includes writing, sending, receiving and voting.

A table of full size is filled from known relations, which is not timed; then the same filters are inserted by searching
and by offloading, and taken out again in between, so all variants see the same table. *Searching* is that of Siena and
the thesis, a walk through the poset. The table of a router has an index of bounds as well, which the thesis had not;
what an insert costs with it is a column of its own, and the last part runs whole routers: `sievenet router` with an
index, and with worker processes instead.

Choosing by itself whether to offload is compared with plain inserts in pairs, one right after the other and either one
first in turn: a slow moment of the machine meets both. Of the ratios of pairs the median is shown, and the interval
that it lies in with 99 %. *No worse* means that the interval does not lie above 1; where noise makes it wider than a
tenth it excuses nothing, and the median itself has to do.
"""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness import Bench, Report, quiet_gc
from sievenet.content import Attribute, Filter, Schema, Subscription
from sievenet.content.codec import encode_schema, encode_subscription
from sievenet.content.valueset import NUMBER, ValueSet
from sievenet.routers import protocol as p
from sievenet.routers.messages import category_of
from sievenet.routers.offload.fixed import FixedSet, Placer
from sievenet.routers.offload.messages import Computed
from sievenet.routers.offload.rto import Ask, Offloader, RtoSettings
from sievenet.routers.offload.shell import Joined, Left, Workers
from sievenet.routers.offload.tables import ForestTable, PosetTable
from sievenet.routers.poset import Poset

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


def innermost(numbers: npt.NDArray[np.int64], lo: Floats, hi: Floats) -> npt.NDArray[np.int64]:
    """The intervals that no other one of these is inside of."""
    if not len(numbers):
        return numbers
    order = np.lexsort((hi, -lo))
    least = np.minimum.accumulate(hi[order])
    kept: npt.NDArray[np.int64] = numbers[order[np.append(True, hi[order][1:] < least[:-1])]]
    return kept


@dataclass
class Setting:
    """A filled table, and filters to insert."""

    dimensions: int
    forest: bool
    table: PosetTable | ForestTable
    new: list[Filter]

    @staticmethod
    def fill(
        kind: str, dimensions: int, size: int, sample: int, forest: bool, interfaces: int, index: bool = False
    ) -> Setting:
        ends = draw(kind, size + sample, dimensions, 7)
        filters = filters_of(ends)
        few = interfaces < size
        table: PosetTable | ForestTable
        if forest:
            table = ForestTable(eliminate=few, index=index)
        else:
            table = PosetTable(Poset(index=index), eliminate=few)
        lo, hi = ends[:size, :, 0], ends[:size, :, 1]
        if few:
            for i, each in enumerate(filters[:size]):
                table.insert(each, i % interfaces)
        elif isinstance(table, PosetTable):
            # From the widest to the narrowest: nothing is ever covered by what comes later.
            wide = np.argsort((lo - hi).sum(axis=1), kind="stable")
            lo, hi = lo[wide], hi[wide]
            for i, each in enumerate(wide.tolist()):
                over = np.flatnonzero(((lo[:i] <= lo[i]) & (hi[:i] >= hi[i])).all(axis=1))
                over = innermost(over, lo[over, 0], hi[over, 0]) if dimensions == 1 else over
                preds, _ = table.poset.immediate(set(over.tolist()), set())
                table.poset.link(filters[each], preds, set()).subscribers[each] = None
        else:
            for i, each in enumerate(filters[:size]):
                over = np.flatnonzero(((lo[:i] <= lo[i]) & (hi[:i] >= hi[i])).all(axis=1))
                under = np.flatnonzero(((lo[:i] >= lo[i]) & (hi[:i] <= hi[i])).all(axis=1))
                table.place(each, i, set(over.tolist()), set(under.tolist()), check=False)
        return Setting(dimensions, forest, table, [f for f in filters[size:] if table.number(f) is None])

    def forget_index(self) -> None:
        """From now on, search by walking."""
        structure = self.table.forest if isinstance(self.table, ForestTable) else self.table.poset
        structure._bounds = None

    def remove(self) -> None:
        structure = self.table.forest if isinstance(self.table, ForestTable) else self.table.poset
        for each in self.new:
            structure.unsubscribe(each, "new")

    def searching(self, first: int = 0) -> float:
        """Processor seconds per filter of the plain insert; the first ones are not timed."""
        for each in self.new[:first]:
            self.table.insert(each, "new")
        begin = time.process_time()
        for each in self.new[first:]:
            self.table.insert(each, "new")
        spent = time.process_time() - begin
        self.remove()
        return spent / len(self.new[first:])


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
def worker_processes(count: int, options: list[list[str]] | None = None) -> Iterator[Workers]:
    workers = Workers()
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
    with worker_processes(count) as workers:
        while joined < count:
            joined += len(workers.poll(1.0))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def offloading(setting: Setting, settings: RtoSettings, options: list[list[str]], start: float) -> Measured:
    """Insert the new filters with the help of worker processes, which take so much to start."""
    schema = SCHEMAS[setting.dimensions]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with worker_processes(len(options), options) as workers:
        cpu, encoded = time.process_time, encode_schema(schema)
        offloader = Offloader(setting.table, category_of(schema), settings, cpu=cpu, schema=encoded)
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
    batch, rest, insert = offloader.settings.batch, offloader.rest, offloader.table.insert
    # As the alarm of a router does, when it is due.
    send(offloader, workers, offloader.tick(time.monotonic()))
    for each in filters:
        if rest.on:
            # As a router: nothing stands between a filter and its table.
            insert(each, "new")
            continue
        asks = offloader.submit(each, "new", time.monotonic())
        if asks:
            send(offloader, workers, asks)
        while offloader.waiting >= batch:
            carry(offloader, workers)
    send(offloader, workers, offloader.flush(time.monotonic()))
    while offloader.waiting:
        carry(offloader, workers)


def send(offloader: Offloader, workers: Workers, asks: list[Ask]) -> None:
    """Send questions; what that takes is a part of what offloading costs, as in a router."""
    for ask in asks:
        begin = time.process_time()
        workers.ask((ask,))
        offloader.charge(ask.request.job, time.process_time() - begin)


def carry(offloader: Offloader, workers: Workers) -> None:
    """Wait for answers until one comes or time is up."""
    now, begin = time.monotonic(), time.process_time()
    for name, message in workers.poll(max(0.0, min(1.0, (offloader.due() or now) - now))):
        if isinstance(message, Computed):
            offloader.charge(message.job, time.process_time() - begin)
            send(offloader, workers, offloader.answered(name, message, time.monotonic()))
        elif isinstance(message, Left):
            send(offloader, workers, offloader.leave(name, time.monotonic()))
        begin = time.process_time()
    send(offloader, workers, offloader.tick(time.monotonic()))


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


@dataclass
class Chosen:
    """Seconds per filter, of plain inserts and with a way chosen by measuring, in pairs; how many were offloaded."""

    plain: list[float]
    auto: list[float]
    offloaded: int

    def ratios(self) -> tuple[float, float, float]:
        """The median of the ratios of pairs, and the ends of the interval that it is in with 99 %."""
        found = sorted(auto / plain for auto, plain in zip(self.auto, self.plain, strict=True))
        # As many lie below the true median as coins show heads.
        count, tail, out = len(found), 0.0, 0
        while (tail := tail + comb(count, out) / 2**count) <= 0.005:
            out += 1
        out = max(0, out - 1)
        return float(np.median(found)), found[out], found[-1 - out]


def choosing(setting: Setting, settings: RtoSettings, clients: int, repeats: int) -> Chosen:
    """Insert plainly, and with a way chosen by measuring, in turns."""
    schema = SCHEMAS[setting.dimensions]
    plain: list[float] = []
    auto: list[float] = []
    with worker_processes(clients) as workers, quiet_gc():
        joined: list[str] = []
        while len(joined) < clients:
            joined += [name for name, message in workers.poll(1.0) if isinstance(message, Joined)]
        offloader = Offloader(
            setting.table, category_of(schema), settings, cpu=time.process_time, schema=encode_schema(schema)
        )
        for name in joined:
            offloader.join(name)
        for turn in range(2 * repeats):
            # Which goes first alternates, so that a slower moment of the machine meets both.
            if turn % 4 in (0, 3):
                plain.append(setting.searching())
            else:
                begin = time.process_time()
                drive(offloader, workers, setting.new)
                auto.append((time.process_time() - begin) / len(setting.new))
                setting.remove()
    setting.table.watch(None)
    return Chosen(plain, auto, offloader.counts.offloaded)


def cpu_of(pid: int) -> float:
    """Processor seconds of a process so far."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def in_a_router(dimensions: int, size: int, offload: str | None, clients: int) -> tuple[float, float]:
    """Router's processor seconds and wall seconds per filter that a client subscribes with.

    Router, worker and client are processes; a client waits for the answer to every tenth.
    """
    command = [sys.executable, "-m", "sievenet", "router", "--listen", "127.0.0.1:0"]
    router = subprocess.Popen(
        [*command, *(["--offload", offload] if offload else [])], stdout=subprocess.PIPE, text=True
    )
    assert router.stdout is not None
    host, port = router.stdout.readline().rsplit("//", 1)[1].split(":")
    shell = [sys.executable, "-m", "sievenet.routers.offload.shell", host, port.strip()]
    helping: list[subprocess.Popen[Any]] = [router]
    helping += [subprocess.Popen([*shell, f"w{i}"]) for i in range(clients if offload else 0)]
    try:
        client = Subscriber(host, int(port), SCHEMAS[dimensions])
        while offload and client.status()["offloading"]["clients"] < clients:
            time.sleep(0.05)
        filters = filters_of(draw("uniform", size, dimensions, 11))
        half = size // 2
        client.subscribe(filters[:half])
        begin, wall = cpu_of(router.pid), time.perf_counter()
        client.subscribe(filters[half:])
        count = size - half
        return (cpu_of(router.pid) - begin) / count, (time.perf_counter() - wall) / count
    finally:
        for each in helping:
            each.terminate()
        for each in helping:
            each.wait(timeout=20)


class Subscriber:
    """A blocking client of a router that only subscribes."""

    def __init__(self, host: str, port: int, schema: Schema) -> None:
        self._socket = socket.create_connection((host, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._framer = p.client_framer()
        self._numbers = count(1)
        self._socket.sendall(p.frame(p.Hello(p.PROTOCOL, "client")))
        self._category = self._ask(p.Register(next(self._numbers), encode_schema(schema))).category

    def _ask(self, message: Any) -> Any:
        self._socket.sendall(p.frame(message))
        return self._answer(message.request)

    def _answer(self, request: int) -> Any:
        while True:
            for message in self._framer.feed(self._socket.recv(1 << 16)):
                if getattr(message, "request", None) == request:
                    return message

    def status(self) -> Any:
        return self._ask(p.Ask(next(self._numbers), "status")).answer

    def subscribe(self, filters: list[Filter]) -> None:
        last = 0
        for i, each in enumerate(filters):
            last = next(self._numbers)
            content = encode_subscription(Subscription([each]))
            self._socket.sendall(p.frame(p.Subscribe(last, last, self._category, content)))
            if i % 10 == 9:
                self._answer(last)
        if len(filters) % 10:
            self._answer(last)


def run(bench: Bench) -> Report:
    report = Report()
    good: list[list[str]] = [[] for _ in range(bench.size(CLIENTS, quick=FEW))]
    with bench.step("starting processes"):
        start = starting(len(good))
    size, sample = bench.size(10_000, quick=250), bench.size(120, quick=30)
    rows: list[list[object]] = []
    gains: list[float] = []
    shares: list[float] = []

    def note(label: str, plain: float, indexed: float, found: Measured) -> None:
        costs = [plain * 1e6, indexed * 1e6, found.router * 1e6]
        others = [found.clients * 1e6, found.bytes, found.messages, found.wall * 1e6]
        rows.append([label, *costs, plain / found.router, *others])
        bench.say(f"  {costs[0]:.0f} µs by searching, {costs[1]:.0f} with an index, {costs[2]:.0f} by offloading")

    def measure(
        kind: str, dimensions: int, forest: bool, count: int, variants: list[RtoSettings], interfaces: int
    ) -> None:
        name = f"{kind} {dimensions}-d {'forest' if forest else 'poset'} {interfaces} interfaces"
        with bench.step(name):
            setting = Setting.fill(kind, dimensions, count, sample, forest, interfaces, index=True)
            if not setting.new:
                return
            indexed = setting.searching()
            setting.forget_index()
            plain = setting.searching()
            if not forest and interfaces >= count:
                shares.append(layer_share(setting))
            for each in variants:
                found = offloading(setting, each, good, start)
                label = f"{name}, batch {each.batch}, vectors {each.vector}{', checked' if each.check else ''}"
                note(label, plain, indexed, found)
                if dimensions == 2 and not forest and interfaces >= count and each in (usual, variant(check=True)):
                    gains.append(plain / found.router)

    def variant(**changes: object) -> RtoSettings:
        fixed = {"batch": 10, "vector": 100, "copies": 3, "mode": "always", "timeout": 20.0, "check": False}
        return RtoSettings(**{**fixed, **changes})  # type: ignore[arg-type]

    usual = variant()
    batches = [variant(batch=b) for b in (1, 5, 25, 50)] if not bench.quick else []
    vectors = [variant(vector=v) for v in (10, 500)] if not bench.quick else []
    checked = [variant(check=True)] if not bench.quick else []
    measure("uniform", 2, False, size, [usual, *batches, *vectors, *checked], size)
    chosen: list[list[object]] = []
    ratios: list[tuple[float, float, float]] = []
    # A walk through a poset takes so long that a few pairs tell; a forest is quick, and shows what choosing costs.
    tables = [(True, True, 400, 31), (True, False, 400, 31), (False, True, 80, 15), (False, False, 40, 9)]
    for drawn in ("uniform", "gaussian", "zipf") if not bench.quick else ("uniform",):
        for forest, index, new, pairs in tables if not bench.quick else [(True, True, 20, 3), (False, True, 20, 3)]:
            name = f"{drawn} 1-d {'forest' if forest else 'poset'}{', index' if index else ''}"
            with bench.step(f"{name}, choosing the way"):
                if forest or index:
                    setting = Setting.fill(drawn, 1, size, new, forest, size, index)
                else:
                    setting.forget_index()
                    del setting.new[new:]
                found = choosing(setting, variant(mode="auto"), len(good), pairs)
            ratios.append(found.ratios())
            costs = np.median(found.plain) * 1e6, np.median(found.auto) * 1e6, sum(found.auto) / sum(found.plain)
            chosen.append([name, *costs, *ratios[-1], found.offloaded])
            bench.say(f"  {costs[0]:.1f} µs plainly, {costs[1]:.1f} by choosing; of pairs {ratios[-1][0]:.3f}")
    if not bench.quick:
        measure("gaussian", 2, False, size, [usual], size)
        measure("zipf", 2, False, size, [usual], size)
        measure("uniform", 2, True, size, [usual, *checked], size)
        for kind in ("uniform", "gaussian", "zipf"):
            measure(kind, 2, False, size, [usual], 20)
        measure("uniform", 2, True, size, [usual], 20)
        for kind in ("uniform", "gaussian", "zipf"):
            measure(kind, 1, False, size, [usual], size)
        measure("uniform", 1, True, size, [usual], size)
        for forest in (False, True):
            measure("uniform", 1, forest, size, [usual], 20)

    with bench.step("fixed filterset"):
        part = bench.size(3_000, quick=200)
        setting = Setting.fill("uniform", 2, part, sample, False, part)
        with_claims, without = fixed_set(setting)
    routers: list[list[object]] = []
    subscribed = bench.size(1_000, quick=60)
    # Never: what the one poset costs that such a router has, instead of a forest in front of it.
    never, always, auto = (f"rto,mode={mode},batch=10,wait=0.005" for mode in ("never", "always", "auto"))
    for dimensions in (2, 1) if not bench.quick else (2,):
        for offload in (None, never, always, auto, "ff") if not bench.quick else (always,):
            with bench.step(f"a router, {dimensions}-d, {offload or 'by itself'}"):
                cpu, wall = in_a_router(dimensions, subscribed, offload, len(good))
                routers.append([f"{dimensions}-d, {offload or 'by itself'}", cpu * 1e6, wall * 1e6])
    if not bench.quick:
        with bench.step("clients that lie, are silent or slow"):
            bad = [[], [], [], ["--lying"], ["--silent"], ["--slow", "0.5"]]
            despite = offloading(setting, variant(timeout=0.2, check=True), bad, start * len(bad) / len(good))
            report.figure("bad_clients_router_us", despite.router * 1e6, "µs")
            report.figure("bad_clients_searched", despite.searched, "filters")
    columns = ["setting", "search µs", "index µs", "offload µs", "gain", "clients µs", "bytes", "messages", "wall µs"]
    report.table("per inserted filter", columns, rows)
    columns = ["table", "plain µs", "chosen µs", "of sums", "median of pairs", "from", "to", "offloaded"]
    report.table("1-d, the way chosen by itself", columns, chosen)
    report.table("per filter that a client subscribes with", ["router", "router µs", "wall µs"], routers)
    report.figure("ff_tests", with_claims, "covering tests")
    report.figure("ff_tests_without", without, "covering tests")
    report.figure("gain_over_index", min(float(str(row[2])) / float(str(row[3])) for row in rows), "x")
    report.goal("router_work_2d", min(gains), ">= 3")
    report.goal("layer_upkeep", 100 * max(shares), "<= 10 %")
    report.figure("router_work_1d_median", max(median for median, _, _ in ratios), "of plain, at most")
    worst = max(least if most - least <= 0.1 else median for median, least, most in ratios)
    report.goal("router_work_1d", worst, "<= 1")
    report.note(f"{CLIENTS} client processes on loopback, three copies of each vector; processor time of the router")
    report.note(
        "search: a walk through the poset, as in the thesis; index: with bounds, as routers insert by themselves"
    )
    report.note(
        "1-d: with choosing over without, in interleaved pairs of processor time; the goal's value is the lower end of "
        "the 99 % interval of the median of pairs, of the worst table, or the median if that interval is wider than 0.1"
    )
    report.note("wall time is that of one router and all its clients on this machine's cores")
    return report
