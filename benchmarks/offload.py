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

Choosing by itself whether to offload is compared with plain inserts batch by batch: the same ten filters enter the same
table one by one (*plain*), all at once (*together*), and by the way that the router chooses; they are taken out in
between, and the order changes. So what slows the machine for longer than some milliseconds meets all. The ratio is that
of processor seconds summed over all rounds to the better of plain and together, and its interval the one that holds it
with 99 %. *No worse* means that the ratio of the worst table is at most 1.

Goals compare with what a router has without clients: the better of walking and of the index. The thesis compared with
walking alone; that ratio is a figure.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from itertools import count
from typing import Any

from benchmarks._offload_runs import Crew, choosing, crew, fixed_set, layer_share, offloading
from benchmarks._offload_tables import KINDS, SCHEMAS, Setting, draw, filters_of
from benchmarks.harness import Bench, Report, least, most
from sievenet.content import Filter, Schema, Subscription
from sievenet.content.codec import encode_schema, encode_subscription
from sievenet.routers import protocol as p
from sievenet.routers.offload.rto import RtoSettings
from sievenet.session.framing import frame

#: What it should come to.
GOALS = {"router_work_2d": ">= 3", "layer_upkeep": "<= 10 %", "router_work_1d": "<= 1"}

CLIENTS = 4
#: In a quick run.
FEW = 2


def cpu_of(pid: int) -> float:
    """Processor seconds of a process so far, of all its threads."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
            total += int(file.read().split()[0])
    return total / 1e9


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
        self._framer = p.ROUTING.dialling()
        self._numbers = count(1)
        self._socket.sendall(frame(p.Hello(p.PROTOCOL)))
        self._category = self._ask(p.Register(next(self._numbers), encode_schema(schema))).category

    def _ask(self, message: Any) -> Any:
        self._socket.sendall(frame(message))
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
            self._socket.sendall(frame(p.Subscribe(last, last, self._category, content)))
            if i % 10 == 9:
                self._answer(last)
        if len(filters) % 10:
            self._answer(last)


def variant(**changes: object) -> RtoSettings:
    """The usual settings, but for some."""
    fixed = {"batch": 10, "vector": 100, "copies": 3, "mode": "always", "timeout": 20.0, "check": False}
    return RtoSettings(**{**fixed, **changes})  # type: ignore[arg-type]


USUAL, CHECKED = variant(), variant(check=True)
VARIANTS = [*(variant(batch=b) for b in (1, 5, 25, 50)), variant(vector=10), variant(vector=500), CHECKED]


class Tables:
    """Inserts into tables of all sorts, and what each takes."""

    def __init__(self, bench: Bench, helping: Crew) -> None:
        self._bench = bench
        self._helping = helping
        self.rows: list[list[object]] = []
        self.chosen: list[list[object]] = []
        #: Of two dimensions, how much less work there is than with the best table, and than by walking; the share of
        #: layers; the work by choosing.
        self.gains: list[float] = []
        self.over_walk: list[float] = []
        self.shares: list[float] = []
        self.ratios: list[tuple[float, float, float]] = []
        #: The same, over inserts of ten together.
        self.shared: list[float] = []

    def measure(self, kind: str, dimensions: int, forest: bool, size: int, interfaces: int) -> None:
        """Everything about one table."""
        bench = self._bench
        sample, less = bench.size(100, quick=20), bench.size(30, quick=10)
        name = f"{kind} {dimensions}-d {'forest' if forest else 'poset'}"
        with bench.step(f"{name}, {interfaces} interfaces"):
            # Enough for the largest batch and its sample; more where an insert is quick.
            setting = Setting.fill(kind, dimensions, size, 400 if forest else 150, forest, interfaces, index=True)
            if len(setting.new) < 2 * sample:
                sample = less = len(setting.new) // 2
            every = interfaces >= size
            indexed = setting.searching(sample)
            if dimensions == 1 and every:
                self._choose(setting, f"{name}, index", bench.size(600 if forest else 120, quick=3))
            setting.forget_index()
            plain = setting.searching(sample)
            if not forest and every:
                self.shares.append(layer_share(setting, sample))
            if dimensions == 1 and every:
                self._choose(setting, name, bench.size(600 if forest else 40, quick=3))
            for each in [USUAL, *VARIANTS] if not bench.quick else [USUAL]:
                count = sample if each is USUAL else less
                found = offloading(setting, each, self._helping, count)
                label = f"{name} of {len(setting.table):,}, {interfaces:,} interfaces; batch {each.batch}, vectors "
                label += f"{each.vector}{', checked' if each.check else ''}; {count} filters"
                # What a router has without clients is the better of the two: its table has an index.
                gain = min(plain, indexed) / found.router
                costs = [plain * 1e6, indexed * 1e6, found.router * 1e6, gain]
                self.rows.append([label, *costs, found.clients * 1e6, found.bytes, found.messages, found.wall * 1e6])
                if dimensions == 2 and not forest and every and each in (USUAL, CHECKED):
                    self.gains.append(gain)
                    self.over_walk.append(plain / found.router)
        bench.say(f"  {plain * 1e6:.0f} µs by searching, {indexed * 1e6:.0f} with an index")

    def _choose(self, setting: Setting, name: str, rounds: int) -> None:
        found = choosing(setting, variant(mode="auto"), self._helping, rounds)
        ratio, least, most = found.ratio()
        self.ratios.append((ratio, least, most))
        costs = [1e6 * sum(each) / rounds / USUAL.batch for each in (found.plain, found.together, found.auto)]
        self.shared.append(sum(found.auto) / sum(found.together))
        self.chosen.append([name, *costs, ratio, least, most, self.shared[-1], found.offloaded / rounds / USUAL.batch])
        self._bench.say(
            f"  {name}: plain {costs[0]:.1f} µs, chosen {costs[2]:.1f}, {ratio:.3f} [{least:.3f} {most:.3f}]"
        )


def run(bench: Bench) -> Report:
    report = Report(GOALS)
    size = bench.size(10_000, quick=250)
    good: list[list[str]] = [[] for _ in range(bench.size(CLIENTS, quick=FEW))]
    with crew(good) as helping:
        tables = Tables(bench, helping)
        for interfaces in bench.size((size, 20), quick=(size,)):
            for dimensions in (1, 2):
                for kind in bench.size(KINDS, quick=KINDS[:1]):
                    for forest in (False, True):
                        tables.measure(kind, dimensions, forest, size, interfaces)
    with bench.step("fixed filterset"):
        part, sample = bench.size(3_000, quick=200), bench.size(120, quick=30)
        setting = Setting.fill("uniform", 2, part, sample, False, part)
        with_claims, without = fixed_set(setting)
    if not bench.quick:
        with bench.step("clients that lie, are silent or slow"):
            with crew([[], [], [], ["--lying"], ["--silent"], ["--slow", "0.5"]]) as bad:
                despite = offloading(setting, variant(timeout=0.2, check=True), bad, sample - 10)
            report.figure("bad_clients_router_us", despite.router * 1e6, "µs")
            report.figure("bad_clients_searched", despite.searched, "filters")
    routers: list[list[object]] = []
    subscribed = bench.size(3_000, quick=60)
    always, auto = (f"rto,mode={mode},batch=10,wait=0.005" for mode in ("always", "auto"))
    for dimensions in (2, 1) if not bench.quick else (2,):
        # Twice where the difference is small: in turn, and the mean.
        for offload in (None, auto, auto, None, always, "ff") if not bench.quick else (always,):
            with bench.step(f"a router, {dimensions}-d, {offload or 'by itself'}"):
                found = in_a_router(dimensions, subscribed, offload, len(good))
                routers.append([f"{dimensions}-d, {offload or 'by itself'}", *(1e6 * each for each in found)])
    columns = ["setting", "search µs", "index µs", "offload µs", "gain", "clients µs", "bytes", "messages", "wall µs"]
    report.table("per inserted filter", columns, tables.rows)
    columns = ["1-d, table of 10,000", "plain µs", "together µs", "chosen µs", "chosen/better", "from", "to"]
    columns += ["chosen/together", "offloaded"]
    report.table("the way chosen by itself, filters that come in tens", columns, tables.chosen)
    report.table("per filter that a client subscribes with", ["router", "router µs", "wall µs"], routers)
    report.figure("ff_tests", with_claims, "covering tests")
    report.figure("ff_tests_without", without, "covering tests")
    report.figure("gain_over_index", least(float(str(row[2])) / float(str(row[3])) for row in tables.rows), "x")
    report.figure("gain_over_walk_2d", least(tables.over_walk), "x, the thesis' comparison: a table without index")
    report.goal("router_work_2d", least(tables.gains))
    report.goal("layer_upkeep", 100 * most(tables.shares))
    worst, low, high = max(tables.ratios)
    report.figure("router_work_1d_from", low, "of plain or together, 99 %")
    report.figure("router_work_1d_to", high, "of plain or together, 99 %")
    report.goal("router_work_1d", worst)
    report.figure("router_work_1d_together", most(tables.shared), "of ten together")
    report.note(f"{CLIENTS} client processes on loopback, three copies of each vector; processor time of the router")
    report.note(
        "search: a walk through the poset, as in the thesis; index: with bounds, as routers insert by themselves"
    )
    report.note(
        "1-d: the goal's value is the ratio of the worst table. Plain means each filter by itself; the router that "
        "chooses gets ten at once, as offloading does, and where it does not ask clients they enter the table "
        "together; the goal compares with the better of the two"
    )
    report.note("wall time is that of one router and all its clients on this machine's cores")
    return report
