"""Exact matchers inside the network: false positives against latency, and the choice between them.

Three parts. *Simulated*: a network of up to 337 switches and 729 hosts, whose links are counted event by event; SSA and
CSA choose with the counts, within the threshold factor's share of deliveries. *Chosen by reports*: the same choice from
what subscribers report, timed, against registering the same subscriptions. *Testbed*: a fabric of 10 switches with real
sockets, latency with matchers for nothing, for some and for everything, and the events per second of a matcher process
against a process that receives and resends the same datagrams.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import sievenet
from benchmarks import openflow
from benchmarks._hybrid_network import Setting
from benchmarks._market import market
from benchmarks.fabric import Worker
from benchmarks.harness import Bench, Report, least, most, quantiles
from sievenet.config import HybridConfig, load_config
from sievenet.content import Attribute, EventBatch, Filter, Schema, Subscription
from sievenet.control.config import ControlConfig
from sievenet.control.descriptions import CELL_BITS
from sievenet.control.hybrid import Model, csa, ssa
from sievenet.control.hybrid.selection import clusters, numbered, settled
from sievenet.control.journal import MemoryJournal
from sievenet.control.plane import ControlPlane
from sievenet.daemon.collector import collecting_seldom
from sievenet.daemon.daemon import Daemon
from sievenet.dataplane import Simulator
from sievenet.index import Dz, Plan
from sievenet.network import Topology, parse_topology
from sievenet.tuning.splits import split_points
from sievenet.workload import Hotspots, Ticks, Uniform, grid

#: What it should come to.
GOALS = {
    "benefit_falls_between_factors": "<= 0",
    "share_through_matchers_over_factor": "<= 1",
    "csa16_over_ssa": ">= 1",
    "stock_gone_at_0.4": ">= 60 %",
    "left_at_1_over_publishers_links": "<= 1",
    "selection_over_registering": "< 1",
    "selection_over_interval": "<= 1/5",
    "testbed_mean_latency_over_bound": "<= 1",
    "matcher_over_resending_one_event_per_datagram": ">= 0.8",
    "matcher_over_resending_full_datagrams": ">= 0.8",
}
#: A real switch carries each event in a datagram of its own; the embedded plane some 260 in one.
_PASSING = {
    "ovs": "matcher_over_resending_one_event_per_datagram",
    "embedded": "matcher_over_resending_full_datagrams",
}

FACTORS = tuple(round(0.1 * i, 1) for i in range(11))
BITS = 20
#: Of CSA; the last is what daemons use if nothing else is said.
CLUSTERS = (1, 4, 16, HybridConfig().clusters)
#: A category of which everybody wants everything, so that none of it is diverted: it shows what the machine does.
PULSE = Schema("pulse", (Attribute("n", "int", lo=0, hi=9),))
#: Of the events published, what has to pass for a run to count.
_WHOLE = 0.9


def run(bench: Bench) -> Report:
    """All three parts; the daemons of the testbed first, while this process is as small as theirs are."""
    report = Report(GOALS)
    _passing(bench, report)
    asyncio.run(_testbed(bench, report))
    _simulated(bench, report)
    _timed(bench, report)
    report.note(f"{BITS} bits, split where events lie, 8 entries per subscription; one publisher per 1/16 of the hosts")
    report.note("link counts are exact, event by event; a factor f lets the share f of deliveries go through matchers")
    return report


# -- simulated ----------------------------------------------------------------------------------


def _workloads(
    bench: Bench, report: Report, count: int, events: int
) -> dict[str, tuple[Schema, EventBatch, list[Filter]]]:
    stock = market(bench, report)
    six = grid(6, hi=1023)
    uniform = Uniform(schema=six, selectivity=0.3, seed=1)
    zipf = Hotspots(schema=six, selectivity=0.15, seed=1)
    loads: dict[str, Any] = {"stock": stock, "uniform": uniform, "zipf": zipf}
    return {n: (w.schema, w.events(events), w.subscriptions(count).filters()) for n, w in loads.items()}


def _split(schema: Schema, batch: EventBatch) -> Plan:
    """A plan split where a part of the events lie, which tuning would find first."""
    some = batch.take(slice(0, max(1, len(batch) // 5)))
    return Plan.adaptive(schema, split_points(some, np.ones(len(some), np.int64)), BITS)


def _simulated(bench: Bench, report: Report) -> None:
    shape = bench.size("random,switches=337,hosts=729,degree=3", "testbed")
    topology = parse_topology(shape)
    falls, over, better, remaining, rows = [], [], [], [], []
    sizes = bench.size((1_000, 8_000), (100,))
    for count in sizes:
        for name, made in _workloads(bench, report, count, bench.size(10_000, 300)).items():
            if count < sizes[-1] and name != "stock":
                continue
            with bench.step(f"{name}, {count} subscriptions, {len(topology.switches)} switches"):
                setting = Setting(topology, *made, _split(*made[:2]), publishers=bench.size(16, 4))
                models = {each: setting.model(each)[0] for each in CLUSTERS}
            model = models[1]
            before = model.removable + setting.own_links()
            benefits: dict[str, list[float]] = {each: [] for each in ("ssa", *(f"csa{n}" for n in CLUSTERS))}
            with bench.step(f"{name}, {count} subscriptions: SSA and CSA at {len(FACTORS)} factors"):
                for factor in FACTORS:
                    limit = factor * model.deliveries
                    choices = {"ssa": ssa(model, limit)}
                    for each, some in models.items():
                        choices[f"csa{each}"] = csa(some, some.cell, int(some.cell.max(initial=0)) + 1, limit)
                    for method, choice in choices.items():
                        benefits[method].append(choice.benefit)
                        over.append(choice.penalty / limit if limit else float(choice.penalty > 0) * 2)
                    whole = choices["ssa"].benefit
                    better.append(choices["csa16"].benefit / whole if whole else 1.0)
            for method, found in benefits.items():
                falls.append(most(a - b for a, b in pairwise(found)))
                shown = (f"{100 * each / before:.0f}" for each in found)
                rows.append([name, count, method, round(before), *shown])
            left = (before - benefits[f"csa{CLUSTERS[-1]}"][-1]) / max(1, setting.own_links())
            if name == "stock" and count == sizes[-1]:
                report.goal("stock_gone_at_0.4", 100 * benefits[f"csa{CLUSTERS[-1]}"][4] / before)
                report.figure("stock_gone_at_0.4_with_halved_space", _halved(bench, topology, made), "%")
            report.figure(f"{name}_{count}_left_at_1_over_publishers_links", left)
            remaining.append(left)
    report.goal("benefit_falls_between_factors", most(falls))
    report.goal("share_through_matchers_over_factor", most(over))
    report.goal("csa16_over_ssa", least(better))
    report.goal("left_at_1_over_publishers_links", most(remaining))
    report.table(
        "false positives gone on all links, %, by threshold factor",
        ["workload", "subscriptions", "method", "network only", *map(str, FACTORS)],
        rows,
    )


def _halved(bench: Bench, topology: Topology, made: tuple[Schema, EventBatch, list[Filter]]) -> float:
    """What is gone at factor 0.4 if the index halves the space of each attribute, wherever events lie."""
    with bench.step("the same with the regular plan"):
        setting = Setting(topology, *made, Plan.regular(made[0], BITS), publishers=bench.size(16, 4))
        model, regions = setting.model(CLUSTERS[-1])
        found = csa(model, model.cell, len(regions), 0.4 * model.deliveries)
    return 100 * found.benefit / (model.removable + setting.own_links())


# -- chosen by reports --------------------------------------------------------------------------


def _timed(bench: Bench, report: Report) -> None:
    """The choice as a daemon makes it, from reports, against registering the same subscriptions."""
    count = bench.size(8_000, 100)
    topology = parse_topology(bench.size("random,switches=337,hosts=729,degree=3", "testbed"))
    schema, batch, wanted = _workloads(bench, report, count, bench.size(10_000, 300))["stock"]
    with bench.step("what subscribers report"):
        setting = Setting(topology, schema, batch, wanted, _split(schema, batch), publishers=bench.size(16, 4))
        seen = setting.observations()
        some = Model.of(seen, setting.tree.path)
        before = clusters(some.cell, some.link + some.hosts, CELL_BITS, CLUSTERS[-1])  # those of the last time
    with bench.step("choosing"):
        begin = time.perf_counter()
        model = Model.of(seen, setting.tree.path)
        regions = settled(before, model.cell, model.link + model.hosts, CELL_BITS, CLUSTERS[-1])
        small = model.collapsed(numbered(model.cell, CELL_BITS, regions))
        choice = csa(small, small.cell, len(regions), 0.4 * small.deliveries)
        took = time.perf_counter() - begin
    with bench.step(f"registering {count} subscriptions at {len(topology.switches)} switches"):
        registered = asyncio.run(_registered(setting))
    report.goal("selection_over_registering", took / registered)
    report.goal("selection_over_interval", took / 5.0)
    report.figure("selection_seconds", took, "s")
    report.figure("registering_seconds", registered, "s")
    report.figure("reported_cells", len(seen))
    report.figure("pairs_chosen", len(choice.pairs))


async def _registered(setting: Setting) -> float:
    simulator = Simulator.on_loop(setting.topology, seed=1)
    control = await ControlPlane.start(simulator, MemoryJournal(), ControlConfig(bits=BITS))
    await control.register_schema(setting.schema)
    hosts = setting.topology.hosts
    for i, host in enumerate(hosts):
        await control.join(f"c{i}", host)
    for i, host in enumerate(setting.sources):
        await control.join(f"p{i}", host)
        await control.advertise(f"p{i}", 1, Subscription([Filter(setting.schema)]))
    begin = time.perf_counter()
    asked = [control.subscribe(f"c{i % len(hosts)}", i, Subscription([each])) for i, each in enumerate(setting.wanted)]
    await asyncio.gather(*asked)
    took = time.perf_counter() - begin
    await control.close()
    return took


# -- testbed ------------------------------------------------------------------------------------


async def _testbed(bench: Bench, report: Report) -> None:
    """Latency over real sockets, the matcher a process: nothing through it, everything, and every bound in between."""
    async with contextlib.AsyncExitStack() as stack:
        with bench.step("testbed: 10 switches, 200 subscriptions, a matcher"):
            testbed = await Testbed.up(bench, stack)
        found = {}
        for factor in (0.0, 1.0):
            with bench.step(f"testbed, factor {factor:g}"):
                found[factor] = await testbed.measure(float("inf") if factor else 0.0)
        network, exact = (float(np.mean(found[each].seconds)) for each in (0.0, 1.0))
        over, rows = [], []
        for factor in FACTORS:
            bound = network + factor * max(0.0, exact - network)
            if factor not in found:
                with bench.step(f"testbed, factor {factor:g}"):
                    found[factor] = await testbed.measure(bound)
                over.append(float(np.mean(found[factor].seconds)) / bound)
            rows.append(found[factor].row(factor, bound))
        with bench.step("testbed, factor 0 once more"):
            again = await testbed.measure(0.0)
        rows.append(again.row("0 once more", network))
    report.goal("testbed_mean_latency_over_bound", most(over))
    report.figure("testbed_network_drift", float(np.mean(again.seconds)) / network)
    report.table(
        "testbed: latency of deliveries, and false positives at subscribers",
        [
            "factor",
            "bound, ms",
            "mean, ms",
            "p50, ms",
            "p99, ms",
            "through matchers, %",
            "false positives",
            "deliveries",
            "category never diverted, mean ms",
        ],
        rows,
    )


class Found(msgspec.Struct, frozen=True):
    """What one bound came to."""

    seconds: list[float]
    unwanted: int
    directed: int
    #: Of the category that is never diverted.
    pulse: list[float]

    def row(self, factor: object, bound: float) -> list[object]:
        """For the table."""
        p50, p99 = (quantiles(self.seconds)[each] for each in ("p50", "p99"))
        times = (f"{1e3 * each:.2f}" for each in (bound, float(np.mean(self.seconds)), p50, p99))
        share = 100 * self.directed / max(1, len(self.seconds))
        return [
            factor,
            *times,
            f"{share:.0f}",
            self.unwanted,
            len(self.seconds),
            f"{1e3 * float(np.mean(self.pulse)):.2f}",
        ]


class Testbed:
    """A fabric with a source, subscribers and a matcher at the source's switch."""

    def __init__(self, bench: Bench, daemon: Daemon, source: Any, batch: list[Any]) -> None:
        self._bench, self._daemon, self._source, self._batch = bench, daemon, source, batch
        self._subscribers: list[Any] = []
        self._seconds: list[float] | None = None
        self._pulse: list[float] = []

    @classmethod
    async def up(cls, bench: Bench, stack: contextlib.AsyncExitStack) -> Testbed:
        """Everybody is there, and nothing goes through the matcher."""
        stock = Ticks(seed=1)
        interval = bench.size(1.0, 0.3)
        settings: dict[str, Any] = {"listen__heartbeat": 0.2, "control__bits": 12, "hybrid__interval": interval}
        daemon = await stack.enter_async_context(Daemon(load_config(listen__port=0, data__port=0, **settings)))
        hosts = daemon.plane.topology.hosts
        source = await stack.enter_async_context(sievenet.connect(daemon.url, name="source", host=hosts[0]))
        await source.schema(stock.schema)
        await source.advertise(stock.schema)
        testbed = cls(bench, daemon, source, list(stock.events(bench.size(3_000, 60))))
        wanted = stock.subscriptions(bench.size(200, 20)).filters()
        for i, host in enumerate(hosts[1:]):
            each = await stack.enter_async_context(sievenet.connect(daemon.url, name=f"s{i}", host=host))
            await each.schema(stock.schema)
            for one in wanted[i :: len(hosts) - 1]:
                await each.listen(Subscription([one]), testbed._got)
            testbed._subscribers.append(each)
        await source.schema(PULSE)
        await source.advertise(PULSE)
        await testbed._subscribers[-1].schema(PULSE)
        await testbed._subscribers[-1].listen(Subscription([Filter(PULSE)]), testbed._beat)
        matcher = Passing(stack.enter_context(ExitStack()), "matcher", daemon.url, "m", hosts[0])
        await asyncio.to_thread(matcher.ready)
        stack.enter_context(collecting_seldom())  # as `sievenet up` does
        return testbed

    def _got(self, delivery: Any) -> bool:
        if self._seconds is not None:
            self._seconds.append((delivery.received - delivery.sent) / 1e9)
        return True

    def _beat(self, delivery: Any) -> bool:
        self._pulse.append((delivery.received - delivery.sent) / 1e9)
        return True

    def _counts(self) -> Any:
        counts = [each.statistics().received for each in self._subscribers]
        return np.array([(each.false_positives, each.directed) for each in counts]).sum(axis=0)

    async def measure(self, bound: float) -> Found:
        """Deliveries under this bound, once the choice has settled."""
        selector = self._daemon.service.components.selector
        selector.config = msgspec.structs.replace(selector.config, latency_bound=bound)
        rng, settle = random.Random(1), time.perf_counter() + self._bench.size(5.0, 0.5)
        while time.perf_counter() < settle:
            await self._source.publish(self._batch[rng.randrange(len(self._batch))])
            await asyncio.sleep(0.001)
        before, self._seconds, self._pulse = self._counts(), [], []
        for i, event in enumerate(self._batch):
            await self._source.publish(event)
            await asyncio.sleep(0.001)
            if i % 5 == 0:
                await self._source.publish(PULSE.event(n=i // 5 % 10))
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.3)
        (unwanted, directed), seconds = (self._counts() - before).tolist(), self._seconds
        self._seconds = None
        return Found(seconds, unwanted, directed, self._pulse)


def _passing(bench: Bench, report: Report) -> None:
    """Events per second of processor of a matcher process, and of one that resends what it receives."""
    count = bench.size(200_000, 2_000)
    for plane in ("embedded", "ovs"):
        if plane == "ovs" and (reason := openflow.available()) is not None:
            report.note(f"matcher process on Open vSwitch {reason}")
            continue
        rates: dict[str, list[tuple[float, float, float]]] = {"relay": [], "matcher": []}
        for _ in range(bench.size(3, 1)):
            for kind, found in rates.items():
                with bench.step(f"{kind} process, {count} events, {plane}"), openflow.folder() as path:
                    found.append(asyncio.run(_passed(bench, kind, count, _plane(plane, path))))
                report.note(f"{kind}, {plane}: {found[-1][2]:.1%} of the events came to the subscriber")
        best = {kind: max(found) for kind, found in rates.items()}
        if not best["relay"][0]:
            report.note(f"no run of the resending process on {plane} was whole: no ratio")
        report.goal(_PASSING[plane], best["matcher"][0] / best["relay"][0] if best["relay"][0] else 0.0)
        for kind, (rate, together, _) in best.items():
            report.figure(f"{kind}_events_per_cpu_second_{plane}", rate, "events/s")
            report.figure(f"{kind}_events_together_{plane}", together)
    report.note(
        "matcher and resending process have the same events diverted to them, and send the same to the same subscriber"
    )


def _plane(kind: str, path: Path) -> dict[str, Any]:
    if kind == "embedded":
        return {"data__port": 0}
    return {
        "dataplane": "ovs",
        "openflow__name": f"sbh{os.getpid() % 100_000:x}",
        "openflow__run_dir": str(path / "run"),
    }


async def _passed(bench: Bench, kind: str, count: int, plane: dict[str, Any]) -> tuple[float, float, float]:
    """Events per second of processor, how many came together, and the share that came to the subscriber."""
    subscriptions = bench.size(8_000, 100)
    settings = {"topology": "line,switches=3", "control__bits": 8, "hybrid__interval": 3600.0, **plane}
    async with Daemon(load_config(listen__port=0, **settings)) as daemon:
        with ExitStack() as processes:
            processes.enter_context(collecting_seldom())  # as `sievenet up` does

            async def begin(*arguments: str) -> Passing:
                process = Passing(processes, *arguments)
                await asyncio.to_thread(process.ready)
                return process

            async def ask(process: Passing, what: int) -> dict[str, Any]:
                process.say(what)
                return await asyncio.to_thread(process.answer)

            source = await begin("source", daemon.url, "source", "h1")
            sink = await begin("sink", daemon.url, "sink", "h3", str(subscriptions))
            worker = await begin(kind, daemon.url, "worker", "h2")
            number, switch = daemon.control.category("point").number, daemon.plane.topology.attachment("h2").switch
            hybrid = daemon.service.components.hybrid
            await hybrid.divert(number, Dz(0, 0), switch)
            await asyncio.sleep(1.0)  # until a matcher has put them in order
            await ask(source, 100)
            await asyncio.sleep(0.5)  # they come before anything is counted
            before = (await ask(sink, 1))["came"]
            worker.say(count)
            await ask(source, count)
            found = await asyncio.to_thread(worker.answer)
            await hybrid.release(number, Dz(0, 0), switch)
            came, last = (await ask(sink, 1))["came"], -1
            while came > last:
                await asyncio.sleep(1.0)
                came, last = (await ask(sink, 1))["came"], came
            share = (came - before) / count
            for process in (source, sink, worker):
                process.say("")
    rate = found["events"] / max(1e-9, found["cpu"]) if found["came"] >= _WHOLE * count else 0.0
    return rate, found["events"] / max(1, found["calls"]), share


class Passing(Worker):
    """A process that matches, or resends."""

    module = "benchmarks._hybrid_worker"

    def say(self, what: object) -> None:
        """How many events come, or that no more do."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(f"{what}\n")
            self._process.stdin.flush()
