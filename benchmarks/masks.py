"""Entries with masks against prefixes: added traffic at equal entries, events/s, control requests/s.

Plans of kind dz have one table of prefixes per switch, plans of kind cells a table per out port with any masks. Both
are applied by the control plane to the same simulated network with the same subscriptions, and carry the same events;
what is counted are packets per link, by the switches. *Added* is what nobody behind the link needed.

Both kinds of plans have a grain (`index.cover.grain`), by which large filters get more entries than small ones, and all
so many on average.  The control plane gives one to every plan of cells that is applied; dz are given one here, with
which they are better too.

A table per port has more entries than a united one for the same number per subscription. So dz are measured twice: with
as many per subscription, and with as many as it takes for their tables to be at least as large (*equal entries*). Goals
are judged by the latter, which is the best a user of dz could do with the same switches.

Events per second and latency are those of a daemon, a publisher and a subscriber on loopback; a fabric of each kind is
measured in turn. *Switching alone* leaves out sockets and clients. Every round has events of its own, so that no switch
has met them before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Literal

import sievenet
from benchmarks.harness import Bench, Report, best_of, middle, most, quantiles
from sievenet.config import load_config
from sievenet.content import EventBatch, Filter, Subscription
from sievenet.control.config import ControlConfig
from sievenet.control.journal import MemoryJournal
from sievenet.control.plane import ControlPlane
from sievenet.daemon.daemon import Daemon
from sievenet.dataplane import Simulator
from sievenet.dataplane.packet import Packet
from sievenet.index import Plan
from sievenet.index.cover.grain import grained
from sievenet.network import Random, Topology, parse_topology
from sievenet.tuning.clusters import local_clustering
from sievenet.tuning.covers import Interests
from sievenet.tuning.judge import LocalJudge
from sievenet.tuning.profile import profile_batches
from sievenet.tuning.search import search
from sievenet.tuning.sites import Sites
from sievenet.workload import Uniform, grid

#: What it should come to.
GOALS = {"added_cells_over_dz_regular_5d": "<= 1/5", "embedded_events_cells_over_dz": ">= 0.8"}

Kind = Literal["dz", "cells"]
KINDS: tuple[Kind, ...] = ("dz", "cells")
#: Dimensions, bits of the plan, part of each attribute that a subscription wants.
SPACES = {5: (50, 0.3), 8: (64, 0.4)}
#: Most entries per subscription that are tried to make dz's tables as large.
MOST = 1024


@dataclass
class Case:
    """One network, its subscriptions and events."""

    topology: Topology
    load: Uniform
    filters: Sequence[Filter]
    batch: EventBatch
    sample: EventBatch
    bits: int

    def __post_init__(self) -> None:
        hosts = self.topology.hosts
        self.hosts = {f"c-{host}": host for host in hosts}
        self.names = list(self.hosts)
        self.owners = [self.names[i % len(hosts)] for i in range(len(self.filters))]
        self.interests = Interests.of(self.load.schema, self.filters)

    def senders(self, count: int) -> list[str]:
        """The publisher of each event: some hosts in turn."""
        some = self.names[:: max(1, len(self.names) // 8)]
        return [some[i % len(some)] for i in range(count)]

    def searched(self, kind: Kind, budget: int, seconds: float) -> Plan:
        """The best plan of a kind that a search finds by other events."""
        judge = LocalJudge(self.sample, self.interests, budget)
        known = profile_batches([self.sample], self.load.schema, self.interests.wanted)
        clusters = local_clustering(self.load.schema, self.interests.wanted, sample=self.sample)
        return search(judge, known, clusters, self.bits, kind=kind, seconds=seconds, version=2).best.plan


@dataclass
class Measured:
    """What one plan comes to."""

    budget: int
    entries: float
    largest: int
    transmissions: int
    needed: int
    requests: float

    @property
    def added(self) -> int:
        """Packets over links that nobody needed."""
        return self.transmissions - self.needed

    @property
    def rate(self) -> float:
        """Of all."""
        return self.added / max(1, self.transmissions)


def run(bench: Bench) -> Report:
    """All of it."""
    report = Report(GOALS)
    ratios, rows = [], []
    for dimensions, (bits, selectivity) in SPACES.items():
        case = _case(bench, dimensions, bits, selectivity)
        for name in ("regular", "searched"):
            for budget in (8, 32):
                with bench.step(f"{dimensions} dimensions, {budget} entries per subscription, {name} plans"):
                    seconds = bench.size(20.0, quick=0.05) if name == "searched" else 0.0
                    found = list(_compared(case, budget, seconds))
                over = found[-1].added / found[1].added if found[1].added else float("nan")
                if (dimensions, name) == (5, "regular"):
                    ratios.append(over)
                for label, each in zip(("dz", "dz, equal entries", "cells"), found, strict=True):
                    sizes = [each.budget, f"{each.entries:,.0f}", f"{each.largest:,}"]
                    traffic = [f"{each.rate:.1%}", f"{each.added:,}", f"{each.requests:,.0f}"]
                    rows.append([dimensions, name, label, *sizes, *traffic])
                report.figure(f"added_cells_over_dz_{dimensions}d_{budget}_{name}", over)
    columns = [
        "dimensions",
        "plan",
        "kind",
        "per subscription",
        "entries",
        "most",
        "FPR per link",
        "added",
        "requests/s",
    ]
    report.table("traffic at equal entries", columns, rows)
    report.goal("added_cells_over_dz_regular_5d", most(ratios))
    with bench.step("switching alone"):
        _switching(report, _case(bench, 5, *SPACES[5]), bench.size(20_000, quick=300))
    with bench.step("a daemon of each kind, in turn"):
        asyncio.run(_fabrics(report, bench))
    report.note(
        "entries: mean per switch, and of the largest; requests/s: subscribe, all asked for at once, no clients"
    )
    report.note("added: packets over links that nobody behind them needed, counted by the switches of a simulator")
    return report


def _case(bench: Bench, dimensions: int, bits: int, selectivity: float) -> Case:
    load = Uniform(schema=grid(dimensions, hi=1023), selectivity=selectivity, seed=dimensions)
    count, events = bench.size(300, quick=12), bench.size(4_000, quick=60)
    switches, hosts = bench.size((16, 48), quick=(3, 4))
    topology = Random.build(switches=switches, hosts=hosts, degree=3.0, seed=1)
    whole = load.events(2 * events)
    halves = whole.take(slice(0, events)), whole.take(slice(events, None))
    return Case(topology, load, load.subscriptions(count).filters(), *halves, bits)


def _compared(case: Case, budget: int, seconds: float) -> Iterator[Measured]:
    """Dz with so many entries per subscription, dz with tables as large as those of cells, cells."""
    plans = {
        kind: case.searched(kind, budget, seconds) if seconds else Plan.regular(case.load.schema, case.bits, kind=kind)
        for kind in KINDS
    }
    cells, plain = (_measured(case, plans[kind], budget) for kind in ("cells", "dz"))
    equal, low, high = plain, budget, budget
    while equal.entries < cells.entries and high < MOST:
        low, high = high, 2 * high
        equal = _measured(case, plans["dz"], high)
    while high - low > max(1, low // 16):  # as few as do
        middle = (low + high) // 2
        fewer = _measured(case, plans["dz"], middle)
        if fewer.entries < cells.entries:
            low = middle
        else:
            high, equal = middle, fewer
    yield from (plain, equal, cells)


def _measured(case: Case, plan: Plan, budget: int) -> Measured:
    """A plan with the grain at which subscriptions have so many entries on average."""
    return asyncio.run(_network(case, grained(plan, case.filters, budget), budget)[0])  # type: ignore[no-any-return]


def _network(case: Case, plan: Plan, budget: int) -> tuple[Any, list[Simulator]]:
    """A network with a plan, measured; and its switches, once that has been awaited."""
    kept: list[Simulator] = []

    async def measure() -> Measured:
        sim = Simulator.on_loop(case.topology, seed=1)
        kept.append(sim)
        config = ControlConfig(bits=case.bits, budget=budget, kind=plan.kind, trees=1, forwarding_delay=0.001)
        control = await ControlPlane.start(sim, MemoryJournal(), config)
        category = await control.register_schema(case.load.schema)
        if category.plan != plan:
            await control.apply_plan(category.name, plan)
        for name, host in case.hosts.items():
            await control.join(name, host)
        senders = case.senders(len(case.batch))
        for i, name in enumerate(dict.fromkeys(senders)):
            await control.advertise(name, i, Subscription([Filter(case.load.schema, {})]))
        begin = time.perf_counter()
        pairs = enumerate(zip(case.owners, case.filters, strict=True))
        await asyncio.gather(*(control.subscribe(who, i, Subscription([f])) for i, (who, f) in pairs))
        took = time.perf_counter() - begin
        codes = control.category(category.name).plan.encode_batch(case.batch)
        sim.send_batch([senders[row] for row in codes.row.tolist()], category.number, codes.hi, codes.lo)
        sites = Sites.of(case.topology, control.trees(category.number), case.hosts, case.owners)
        judge = LocalJudge(case.batch, case.interests, budget, sites, sites.located(senders))
        expected = judge.costs([control.category(category.name).plan])[0]
        await control.close()
        seen = _transmissions(sim)
        if seen < expected.transmissions:
            raise RuntimeError(f"{seen} packets over links, where {expected.transmissions} are due")
        sizes = [len(sim.table_now(switch)) for switch in case.topology.switches]
        mean = sum(sizes) / len(sizes)
        return Measured(budget, mean, max(sizes), seen, expected.needed.transmissions, len(case.filters) / took)

    return measure(), kept


def _transmissions(sim: Simulator) -> int:
    topology = sim.topology
    links = {s: [p for p, peer in topology.ports(s).items() if topology.is_switch(peer)] for s in topology.switches}
    return sum(sim.counters_now(switch).transmissions(ports) for switch, ports in links.items())


def _switching(report: Report, case: Case, count: int) -> None:
    """Packets one by one through the switches of the embedded data plane, without sockets."""
    timings = {}
    for kind in KINDS:
        plan = Plan.regular(case.load.schema, case.bits, kind=kind)
        measure, kept = _network(case, plan, 8)
        asyncio.run(measure)
        sim = kept[0]
        port, inject = sim.port_of(case.senders(1)[0]), sim.forwarding.inject
        lists = []
        for seed in range(4):
            codes = plan.encode_batch(replace(case.load, seed=100 + seed).events(count))
            lists.append([Packet(1, codes[i], 1, i, 0) for i in range(len(codes))])

        fresh = iter(lists)

        def carry(fresh: Any = fresh, port: Any = port, inject: Any = inject) -> None:
            for packet in next(fresh):
                inject(port, 1, packet.code, packet, packet.size)

        timings[kind] = best_of(carry, repeats=3, warmup=1)
        report.figure(f"switching_events_per_s_{kind}", timings[kind].per_second(count), "events/s")
    report.figure("switching_cells_over_dz", timings["dz"].best / timings["cells"].best)


@dataclass
class Fabric:
    """A daemon with a plan of one kind, a publisher, and subscribers."""

    source: Any
    feeds: list[Any]
    seen: list[int]

    async def flood(self, batch: EventBatch, due: int) -> float:
        """Events per second, until the last is delivered."""
        self.seen[0] = 0
        begin = time.perf_counter()
        await self.source.publish_many(batch)
        while self.seen[0] < due:
            if time.perf_counter() - begin > 120:
                raise RuntimeError(f"{self.seen[0]} of {due} deliveries after two minutes")
            await asyncio.sleep(0.001)
        return len(batch) / (time.perf_counter() - begin)


async def _fabrics(report: Report, bench: Bench) -> None:
    count, rounds, subs = bench.size(20_000, quick=200), bench.size(7, quick=1), bench.size(400, quick=8)
    load = Uniform(schema=grid(5, hi=1023), selectivity=0.3, seed=5)
    wanted = load.subscriptions(subs)
    filters = wanted.filters()
    batches = [replace(load, seed=100 + i).events(count) for i in range(rounds + 1)]
    due = [int(wanted.matches_per_event(batch).sum()) for batch in batches]
    async with AsyncExitStack() as stack:
        fabrics = {kind: await _fabric(stack, load, filters, kind) for kind in KINDS}
        rates: dict[Kind, list[float]] = {kind: [] for kind in KINDS}
        for fabric in fabrics.values():
            await fabric.flood(batches[0], due[0])  # as in a fabric that has run for a while
        for i in range(1, rounds + 1):
            for kind, fabric in fabrics.items():
                rates[kind].append(await fabric.flood(batches[i], due[i]))
        some = replace(load, seed=99).events(bench.size(1_000, quick=40))
        delays = {kind: await _delays(fabric, some) for kind, fabric in fabrics.items()}
    for kind in KINDS:
        report.figure(f"embedded_events_per_s_{kind}", median(rates[kind]), "events/s")
        for point, value in delays[kind].items():
            report.figure(f"embedded_latency_{point}_{kind}", 1e6 * value, "us")
    pairs = [cells / dz for cells, dz in zip(rates["cells"], rates["dz"], strict=True)]
    report.goal("embedded_events_cells_over_dz", middle(pairs))


async def _fabric(stack: AsyncExitStack, load: Uniform, filters: Sequence[Filter], kind: Kind) -> Fabric:
    topology = parse_topology("testbed")
    settings: dict[str, Any] = {"listen__port": 0, "data__port": 0, "control__bits": 50, "control__kind": kind}
    daemon = await stack.enter_async_context(Daemon(load_config(**settings), topology=topology))
    source = await stack.enter_async_context(sievenet.connect(daemon.url, host="h1"))
    await source.advertise(load.schema)
    seen, feeds = [0], []
    nodes = [
        await stack.enter_async_context(sievenet.connect(daemon.url, host=host)) for host in ("h5", "h6", "h7", "h8")
    ]

    def note(event: Any) -> None:
        seen[0] += 1

    for node in nodes:
        await node.schema(load.schema)
    for i, each in enumerate(filters):
        feeds.append(await nodes[i % len(nodes)].subscribe(Subscription([each]), note))
    return Fabric(source, feeds, seen)


async def _delays(fabric: Fabric, batch: EventBatch) -> dict[str, float]:
    """From publish to callback, of events one by one."""
    found, loop = [], asyncio.get_running_loop()
    for event in batch:
        before, begin = fabric.seen[0], loop.time()
        await fabric.source.publish(event)
        while fabric.seen[0] == before and loop.time() - begin < 0.02:
            await asyncio.sleep(0)
        if fabric.seen[0] > before:  # else nobody wants it
            found.append(loop.time() - begin)
    return quantiles(found) if found else {}
