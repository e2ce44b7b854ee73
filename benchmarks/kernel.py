"""The kernel's switches beside Open vSwitch: latency, loss-free rate, table changes.

Five switches in a line, hosts in network namespaces at both ends, everything on one machine. *Plain sockets*: a process
that sends datagrams to random content addresses, and one that receives them; tables tile the whole space, so that
every packet is decided by one of all entries, and no address comes twice. *Our clients*: daemon, publisher and
subscribers of the benchmark `openflow`, five switches apart. Both planes are up at the same time and measured in turn.
Open vSwitch is joined by virtual links, as by cables; with its own patches it is measured too, which is the best that a
user on one machine could have instead. Needs root and Open vSwitch.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import openflow
from benchmarks.fabric import Worker
from benchmarks.harness import Bench, Report, quantiles
from benchmarks.openflow import available, folder
from sievenet import programs
from sievenet.dataplane.kernel import bpf
from sievenet.dataplane.kernel.network import KernelNetwork
from sievenet.dataplane.kernel.plane import KernelDataPlane
from sievenet.dataplane.openflow.ovs import OvsNetwork
from sievenet.index import Dz
from sievenet.network import Add, Delete, Flow, FlowChange, parse_topology

LINE = parse_topology("line,switches=5,hosts=1")
#: Packets per second of the two paces.
PACES = (200, 2_000)

GOALS = {
    **{f"plain_p50_over_ovs_at_{pace}_per_s": "<= 1/10" for pace in PACES},
    **{f"clients_p50_over_ovs_at_{pace}_per_s": "<= 1/3" for pace in PACES},
    "loss_free_rate_over_ovs": ">= 3",
    "plain_p50_growth_1_to_16000": "<= 1.3",
    "rate_16000_over_1": ">= 0.7",
    "changes_per_s": ">= 100,000",
}


def run(bench: Bench) -> Report:
    report = Report(GOALS)
    reason = available() or bpf.supported()
    found: dict[str, float] = {}
    if reason is not None:
        report.note(reason)
    else:
        with folder() as path, ExitStack() as stack:
            found |= measure_changes(bench, report, path)
            found |= measure_plain(bench, report, stack, path)
            measure_bound(bench, report, stack, path)
        found |= measure_clients(bench, report)
    for goal, value in found.items():
        report.goal(goal, value)
    report.note("all switches, hosts and clients share the cores of one machine")
    return report


# -- changes -----------------------------------------------------------------------------------------


def measure_changes(bench: Bench, report: Report, path: Path) -> dict[str, float]:
    count = bench.size(50_000, quick=1_000)
    network = KernelNetwork(parse_topology("line,switches=1,hosts=1"), name("c"), run_dir=path / "changes")
    with bench.step(f"{count:,} table changes"):
        try:
            network.up()
            rates = {batch: changes(network, count, batch, bench.size(3, quick=1)) for batch in (count, 512, 1)}
        finally:
            network.down()
    rows = [[f"{batch:,}", f"{rate:,.0f}"] for batch, rate in rates.items()]
    report.table("table changes of one switch, in effect when the call returns", ["at once", "changes/s"], rows)
    report.figure("changes_per_s_singly", rates[1], "changes/s")
    return {"changes_per_s": max(rates.values())}


def changes(network: KernelNetwork, count: int, batch: int, repeats: int) -> float:
    """Add flows and delete them again; changes per second."""
    flows = [Flow.of(1, Dz(i, 20), 1) for i in range(count)]
    found = []
    for _ in range(repeats):
        begin = time.perf_counter()
        for kind in (Add, Delete):
            for start in range(0, count, batch):
                some: list[FlowChange] = [kind(flow) for flow in flows[start : start + batch]]
                network.switches["s1"].apply(some)
        found.append(2 * count / (time.perf_counter() - begin))
    return median(found)


# -- plain sockets -------------------------------------------------------------------------------------


class Plain:
    """A plane with a plain sender at one end of the line and a plain receiver at the other."""

    def __init__(self, kind: str, stack: ExitStack, path: Path, *, sockets: bool = True) -> None:
        self.kind = kind
        self._runner = stack.enter_context(asyncio.Runner())
        self._network: KernelNetwork | OvsNetwork
        if kind == "kernel":
            self._network = KernelNetwork(LINE, name("k" if sockets else "b"), run_dir=path / kind)
        else:
            self._network = OvsNetwork(LINE, name(kind[-1]), run_dir=path / kind[-5:], links=_links(kind))
        stack.callback(self._network.down)
        self._plane, sender, receiver = self._runner.run(self._open())
        stack.callback(lambda: self._runner.run(self._plane.close()))
        self._from, self._to = sender, receiver
        self._held: list[Flow] = []
        self._seed = 0
        if not sockets:
            return
        self.sender = PlainWorker(stack, "sender", self._network.host_namespace("h1"), str(sender))
        self.receiver = PlainWorker(stack, "receiver", self._network.host_namespace("h5"), str(receiver))
        self.sender.ready()
        self.receiver.ready()

    async def _open(self) -> tuple[Any, int, int]:
        plane: Any
        if isinstance(self._network, KernelNetwork):
            self._network.up()
            plane = KernelDataPlane(self._network)
            plane.start()
        else:
            self._network.prepare()
            plane = self._network.plane()
            await plane.start(sock=self._network.controller_socket())
            await asyncio.to_thread(self._network.connect)
            await plane.connected()
        return plane, (await plane.attach("h1", "sender")).port, (await plane.attach("h5", "receiver")).port

    def fill(self, entries: int) -> None:
        """Tables of so many entries that tile the space, in every switch."""
        self._runner.run(self._fill(entries))

    async def _fill(self, entries: int) -> None:
        if not isinstance(self._network, KernelNetwork):
            # Nobody answered Open vSwitch while packets were measured: it may have hung up, and calls again.
            await asyncio.sleep(0.5)
            await self._plane.connected()
        length = (entries - 1).bit_length()
        dzs = [Dz(i, length) for i in range(1 << length)]
        for number in range(1, 6):
            switch = f"s{number}"
            port = self._to if number == 5 else LINE.port(switch, f"s{number + 1}")
            await self._plane.apply(switch, [Delete(flow) for flow in await self._plane.table(switch)])
            await self._plane.apply(switch, [Add(Flow.of(1, dz, port)) for dz in dzs])

    def latencies(self, count: int, pace: float) -> list[float]:
        """Seconds on the way of so many packets."""
        answer = self._send(count, pace, 1)
        # A packet that never came took for ever.
        return [*(value / 1e9 for value in answer["latencies"]), *[float("inf")] * (count - answer["seen"])]

    def rate(self, seconds: float) -> float:
        """The highest rate at which not one packet was lost, and which arrived as fast, trying ever higher ones.

        Until the last packet has arrived: queues on the way may hold whatever is sent within so short a time.
        """
        best, pace = 0.0, 8_000.0
        while True:
            count = int(pace * seconds)
            answer = self._send(count, pace, 16)
            if answer["seen"] < count:
                return best
            reached: float = count / (answer["last"] - answer["begin"])
            if reached < pace / 1.3:
                # More does not get through: with kernel switches the sender itself pays for the whole way.
                return max(best, reached)
            best, pace = max(best, reached), pace * 1.2

    def bound(self, program: str, count: int, batch: int, segments: int) -> tuple[float, float, float]:
        """A flood from one program to another: packets/s that arrive, and µs of processor per packet at either end."""
        worker = [sys.executable, "-m", "benchmarks._flood_worker", program]
        receive = ["receive", str(self._to), str(count), str(batch), str(int(segments > 1))]
        send = ["send", str(self._from), str(count), str(batch), str(segments)]
        ends = self._network.host_namespace("h1"), self._network.host_namespace("h5")
        with subprocess.Popen([*worker, ends[1], *receive], stdout=subprocess.PIPE, text=True) as taker:
            assert taker.stdout is not None
            taker.stdout.readline()
            said = subprocess.run([*worker, ends[0], *send], capture_output=True, check=True, text=True).stdout
            got = taker.stdout.read()
        (sent, _, own), (seen, seconds, taken) = map(float, said.split()), map(float, got.split())
        return seen / seconds, own / sent * 1e6, taken / max(seen, 1) * 1e6

    def _send(self, count: int, pace: float, batch: int) -> dict[str, Any]:
        self._seed += 1
        self.receiver.order(count=count, wait=1.0, many=batch > 1)
        sent = self.sender.ask(count=count, rate=pace, batch=batch, seed=self._seed)
        return {**self.receiver.answer(), **sent}


class PlainWorker(Worker):
    """A process with a plain socket."""

    module = "benchmarks._plain_worker"

    def order(self, **order: Any) -> None:
        self.write(order)

    def ask(self, do: str = "", **order: Any) -> dict[str, Any]:
        self.write(order)
        return self.answer()


def measure_plain(bench: Bench, report: Report, stack: ExitStack, path: Path) -> dict[str, float]:
    sizes = bench.size([1, 1_000, 16_000, 200_000], quick=[1, 16])
    count, rounds = bench.size(1_000, quick=20), bench.size(5, quick=1)
    kinds = ("kernel", "ovs veth", "ovs patch")
    with bench.step("three networks of five switches"):
        planes = {kind: Plain(kind, stack, path) for kind in kinds}
    waits: dict[tuple[str, int, int], list[float]] = {}
    rates: dict[tuple[str, int], list[float]] = {}
    for size in sizes:
        # Filling so many entries takes Open vSwitch long, and would show no more.
        here = [kind for kind in kinds if size <= 16_000 or kind == "kernel"]
        with bench.step(f"{size:,} entries"):
            for kind in here:
                planes[kind].fill(size)
        for _ in bench.track(range(rounds), f"{size:,} entries, in turn"):
            for kind in here:
                for pace in PACES:
                    some = planes[kind].latencies(min(count, pace * 2), pace)
                    waits.setdefault((kind, size, pace), []).append(quantiles(some)["p50"])
                rates.setdefault((kind, size), []).append(planes[kind].rate(bench.size(0.3, quick=0.02)))
    rows = []
    for kind, size in rates:
        at = [median(waits[kind, size, pace]) * 1e6 for pace in PACES]
        rows.append([kind, f"{size:,}", *(f"{each:.0f}" for each in at), f"{median(rates[kind, size]):,.0f}"])
        for pace, each in zip(PACES, at, strict=True):
            report.figure(f"plain_{kind.replace(' ', '_')}_p50_us_at_{size}_{pace}_per_s", each, "µs")
        report.figure(f"plain_{kind.replace(' ', '_')}_loss_free_per_s_at_{size}", median(rates[kind, size]), "/s")
    columns = ["plane", "entries", *(f"p50 µs at {pace:,}/s" for pace in PACES), "loss-free packets/s"]
    report.table("plain sockets, five switches", columns, rows)
    size, large = sizes[1], sizes[-2] if len(sizes) > 2 else sizes[-1]
    pace = PACES[1]

    def ratio(other: str, pace: int) -> float:
        return median(k / o for k, o in zip(waits["kernel", size, pace], waits[other, size, pace], strict=True))

    for each in PACES:
        report.figure(f"plain_p50_over_ovs_patch_at_{each}_per_s", ratio("ovs patch", each), "")
    return {
        **{f"plain_p50_over_ovs_at_{each}_per_s": ratio("ovs veth", each) for each in PACES},
        "loss_free_rate_over_ovs": median(
            k / o for k, o in zip(rates["kernel", size], rates["ovs veth", size], strict=True)
        ),
        "plain_p50_growth_1_to_16000": median(waits["kernel", large, pace]) / median(waits["kernel", sizes[0], pace]),
        "rate_16000_over_1": median(rates["kernel", large]) / median(rates["kernel", sizes[0]]),
    }


# -- what bounds a flood -------------------------------------------------------------------------------

#: How a program in C sends and receives: datagrams per call, datagrams of one address in one piece.
_FLOODS = {
    "a call for each": (1, 1),
    "64 per call": (64, 1),
    "64 per call, whole frames by a packet socket": (64, 0),
    "64 per call, 16 of one address each": (64, 16),
}


def measure_bound(bench: Bench, report: Report, stack: ExitStack, path: Path) -> None:
    """A flood by a program in C that does nothing else: what the system itself takes per packet, and so the bound."""
    if programs.find("clang") is None:
        report.note("what bounds a flood: absent (clang is not installed)")
        return
    flood = path / "flood.so"
    source = Path(__file__).with_name("_flood.c")
    subprocess.run(programs.command("clang", "-O2", "-shared", "-fPIC", "-o", str(flood), str(source)), check=True)
    count, rows = bench.size(400_000, quick=2_000), []
    with bench.step("what bounds a flood"):
        plain = Plain("kernel", stack, path / "bound", sockets=False)
        plain.fill(1_000)
        for way, (batch, segments) in _FLOODS.items():
            rounds = [plain.bound(str(flood), count, batch, segments) for _ in range(bench.size(5, quick=1))]
            rate, sender, receiver = (median(each[i] for each in rounds) for i in range(3))
            rows.append([way, f"{rate:,.0f}", f"{sender:.1f}", f"{receiver:.1f}"])
            report.figure(f"bound_packets_per_s_{batch}_{segments}", rate, "/s")
            report.figure(f"bound_sender_us_{batch}_{segments}", sender, "µs")
    columns = ["a program in C", "packets/s received", "sender µs of processor", "receiver µs of processor"]
    report.table("what bounds a flood: five switches, 1,000 entries, no code of ours", columns, rows)


# -- our clients ---------------------------------------------------------------------------------------


def measure_clients(bench: Bench, report: Report) -> dict[str, float]:
    size, count = bench.size(1_000, quick=20), bench.size(1_000, quick=40)
    kinds = ("kernel", "ovs veth")
    waits: dict[tuple[str, int], list[float]] = {}
    floods: dict[str, list[float]] = {}
    with ExitStack() as stack:
        ends = {}
        for number, kind in enumerate(kinds):
            with bench.step(f"{kind}: {size:,} subscriptions"):
                path = stack.enter_context(folder())
                settings = {"dataplane": "kernel"} if kind == "kernel" else {"openflow__links": _links(kind)}
                ends[kind] = openflow.start(stack, path, number, **settings)
                ends[kind][1].ask("tile", count=size)
                openflow.latency(*ends[kind], count)
        for _ in bench.track(range(bench.size(9, quick=1)), "our clients, in turn"):
            for kind, (publisher, subscriber) in ends.items():
                for pace in PACES:
                    some = openflow.latency(publisher, subscriber, min(count, pace * 2), pace)
                    waits.setdefault((kind, pace), []).append(some["p50"])
                speed, _ = openflow.throughput(publisher, subscriber, bench.size(50_000, quick=500))
                floods.setdefault(kind, []).append(speed)
    rows = [
        [kind, *(f"{median(waits[kind, pace]) * 1e6:.0f}" for pace in PACES), f"{median(floods[kind]):,.0f}"]
        for kind in kinds
    ]
    report.table("our clients, five switches", ["plane", *(f"p50 µs at {p:,}/s" for p in PACES), "events/s"], rows)
    for kind in kinds:
        for pace in PACES:
            report.figure(f"clients_{kind.replace(' ', '_')}_p50_us_at_{pace}", median(waits[kind, pace]) * 1e6, "µs")
        report.figure(f"clients_{kind.replace(' ', '_')}_events_per_s", median(floods[kind]), "events/s")
    return {
        f"clients_p50_over_ovs_at_{pace}_per_s": median(
            k / o for k, o in zip(waits["kernel", pace], waits["ovs veth", pace], strict=True)
        )
        for pace in PACES
    }


def name(kind: str) -> str:
    return f"sb{kind}{os.getpid() % 100_000:x}"


def _links(kind: str) -> Any:
    return kind.removeprefix("ovs ")
