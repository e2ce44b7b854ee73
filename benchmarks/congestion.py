"""Congestion control over narrow links: ramps, steps, fairness, sharing with TCP, 760 clients.

The source's settings in virtual time with the real protocol: two brokers with a bottleneck between them (10 ms, a
drop-tail queue of 60 packets), a publication record of 2, messages of some 300 bytes; TCP is a Reno as Linux has it in
the simulator and, where root and tc allow, the kernel's through a tbf-limited veth pair. Without congestion control
messages have the same size. A message refused by the publisher's full queue was never sent, hence is not lost.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from bisect import bisect
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate, chain
from math import nan
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks._cost import cpu, messages, per_message, per_session
from benchmarks._maxmin import Offered, max_min
from benchmarks.harness import Bench, Report, least, most
from sievenet import programs
from sievenet.content import Attribute, Filter, Schema, Subscription, ValueSet
from sievenet.simulation import Pipe, VirtualClock
from sievenet.transport.actions import Deliver
from sievenet.transport.bloom import Bits, Tagger
from sievenet.transport.options import Order, Publishing, RateControl, Recover
from sievenet.transport.receiver import Receiver
from sievenet.transport.sender import Sender
from sievenet.transport.simulation import Overlay, TcpFlow, World, low_degree_graph
from sievenet.transport.simulation.world import OVERHEAD

#: What it should come to.
GOALS = {
    "ramp_fewer_losses": ">= 20",
    "ramp_throughput": ">= 95 %",
    "steps_adapted_in": "< 2 s",
    "steps_utilisation": "> 90 %",
    "fairness_least_index": ">= 0.95",
    "tcp_difference": "<= 5 %",
    "tcp_utilisation": "> 90 %",
    "large_fewer_losses": ">= 20",
    "large_utilisation": "> 90 %",
    "together_fewer_losses": ">= 20",
    "kernel_tcp_difference": "<= 5 %",
}

WIDTH = 128
#: What a subscriber wants is one value; how often it is published is the flow's share.
SCHEMA = Schema("tick", (Attribute("source", "int", 0, 15), Attribute("kind", "int", 0, 255)))
PUBLISHER = 1_000_000
BODY = 150
QUEUE = 60


@dataclass
class Flow:
    """One publisher and its receiver: who wants which share, and what came of it in bins of time."""

    share: float
    rate: Callable[[float], float]
    sent: list[int] = field(default_factory=list)
    received: list[int] = field(default_factory=list)
    refused: int = 0
    matched: int = 0


class Bottleneck:
    """Publishers on broker 0, subscribers on broker 1, a narrow link from the one to the other."""

    def __init__(
        self,
        bandwidth: float,
        flows: list[Flow],
        length: float,
        *,
        control: bool,
        recover: bool = False,
        growth: float = 1.0,
        step: float = 0.5,
        seed: int = 0,
    ) -> None:
        self.clock = clock = VirtualClock()
        rng = Random(5 + 1000 * seed)
        self.step, self.length = step, length
        self.flows = flows
        bins = int(length / step) + 2
        self.kilobits = [0.0] * bins
        self.lost_bins = [0] * bins

        def link(a: int, b: int) -> Pipe:
            narrow = bandwidth if (a, b) == (0, 1) else None
            return Pipe(clock, rng, delay=0.01, bandwidth=narrow, queue_bytes=200_000, queue=QUEUE)

        overlay = Overlay(clock, [(0, 1)], link, processing=0.0002, seed=3 + 1000 * seed)
        self.link = overlay.links[0, 1]
        self.back = overlay.links[1, 0]
        self.world = World(overlay, delivered=self._delivered)
        self.delays: list[float] = []
        tagger = Tagger(SCHEMA, WIDTH)
        self._bits: dict[tuple[int, int], Bits] = {}
        for number, flow in enumerate(flows):
            flow.sent, flow.received = [0] * bins, [0] * bins
            wanted = Filter(
                SCHEMA,
                {"source": ValueSet.of(number), "kind": ValueSet.of(100)},
            )
            options = Publishing(record=2, width=WIDTH, rate_control=control, queue=200)
            self.world.add_sender(PUBLISHER + number, 0, Sender(PUBLISHER + number, options, epoch=1))
            receiver = Receiver(
                number + 1, tagger.subscription(Subscription([wanted])), flow_bits=(tagger.filter(wanted),),
                rate=RateControl(growth=growth) if control else None, recover=Recover() if recover else None,
                width=WIDTH, rng=Random(number + 1000 * seed),
            )  # fmt: skip
            self.world.add_receiver(number + 1, 1, receiver)
            clock.call_at(0.001 * number, self._publish, number, tagger, Random(number + 1000 * seed))
        self._watch_link()

    def _watch_link(self) -> None:
        before_bytes, before_dropped = self.link.bytes, self.link.dropped

        def look() -> None:
            nonlocal before_bytes, before_dropped
            i = min(int(self.clock.now / self.step) - 1, len(self.kilobits) - 1)
            self.kilobits[i] = (self.link.bytes - before_bytes) * 8 / self.step / 1000
            self.lost_bins[i] = self.link.dropped - before_dropped
            before_bytes, before_dropped = self.link.bytes, self.link.dropped
            self.clock.call_later(self.step, look)

        self.clock.call_at(self.step, look)

    def _publish(self, number: int, tagger: Tagger, rng: Random) -> None:
        flow = self.flows[number]
        now = self.clock.now
        rate = flow.rate(now)
        wanted = rng.random() < flow.share
        kind = 100 if wanted else 101 + rng.randrange(100)
        key = (number, kind)
        if key not in self._bits:
            self._bits[key] = tagger.event(SCHEMA.event(source=number, kind=kind))
        ok = self.world.publish(PUBLISHER + number, self._bits[key], bytes(BODY), {1: [number + 1]} if wanted else {})
        if wanted:
            flow.matched += 1
            flow.refused += not ok
            flow.sent[int(now / self.step)] += ok
        if now < self.length:
            self.clock.call_later(rng.expovariate(rate), self._publish, number, tagger, rng)

    def _delivered(self, client: int, _message: Deliver) -> None:
        self.flows[client - 1].received[min(int(self.clock.now / self.step), len(self.kilobits) - 1)] += 1

    def run(self) -> Bottleneck:
        """To the end."""
        self.clock.run(self.length)
        return self

    @property
    def lost(self) -> int:
        """Packets that the link dropped."""
        return self.link.dropped

    def rates(self, number: int) -> list[float]:
        """Messages per second received, by bins."""
        return [n / self.step for n in self.flows[number].received]

    def feedbacks(self) -> int:
        """Feedback messages sent."""
        return self.world.messages["FEEDBACK"]


def ramp(bench: Bench, report: Report) -> None:
    """The source's figure 5.9: 400 → 4,000 messages/s, then bursts, into 500 kb/s."""
    length = bench.size(100.0, quick=1.5)

    def rate(now: float) -> float:
        at = now / length
        if at < 0.4:
            return 400 + 3600 * at / 0.4
        if at < 0.64:
            return 4000.0
        return 2500.0 if (now % 10) < 2 else 600.0

    runs = {}
    for control in (False, True):
        with bench.step(f"load ramp, congestion control {'on' if control else 'off'}"):
            runs[control] = Bottleneck(500e3, [Flow(0.184, rate)], length, control=control).run()
    off, on = runs[False], runs[True]
    got = {control: sum(each.flows[0].received) for control, each in runs.items()}
    report.table(
        "load ramp into 500 kb/s",
        ["", "received", "lost", "refused", "feedback messages"],
        [
            ["off", got[False], off.lost, 0, 0],
            ["on", got[True], on.lost, on.flows[0].refused, on.feedbacks()],
            ["source", "46,000 off, 45,000 on", "20 times fewer", "", ""],
        ],
    )
    report.figure("ramp_lost_without", off.lost, "messages")
    report.figure("ramp_lost_with", on.lost, "messages")
    report.goal("ramp_fewer_losses", off.lost / max(1, on.lost))
    report.goal("ramp_throughput", got[True] / max(1, got[False]) * 100)
    xs = [i * off.step for i in range(len(off.kilobits))]
    bench.plot_lines(
        "congestion-ramp", xs,
        {"off: kb/s": off.kilobits, "on: kb/s": on.kilobits, "on: lost/s": [n / on.step for n in on.lost_bins],
         "off: lost/s": [n / off.step for n in off.lost_bins]},
        xlabel="s",
    )  # fmt: skip


def steps(bench: Bench, report: Report) -> None:
    """Figure 5.10: the bottleneck alternates between 1 and 2 Mb/s every 40 s."""
    period = bench.size(12.0, quick=0.6)
    length = 5 * period

    def experiment(control: bool) -> Bottleneck:
        world = Bottleneck(1e6, [Flow(0.5, lambda _now: 2400.0)], length, control=control, step=0.25)
        for i in range(1, 5):
            world.clock.call_at(i * period, setattr, world.link, "bandwidth", 2e6 if i % 2 else 1e6)
        return world.run()

    with bench.step("bandwidth steps"):
        on, off = experiment(True), experiment(False)
    times = []
    for i in range(1, 5):
        capacity = (2e6 if i % 2 else 1e6) / 1000
        first = int(i * period / on.step)
        bins = range(first, first + int(period / on.step) - 1)
        lossless = 0.05 * capacity * 1000 / 8 / 300 * on.step
        # Adapted: from then on a whole second at 85 % of the capacity or more, with under 5 % lost.
        width = max(1, int(1 / on.step))
        adapted = next(
            (
                (b - first) * on.step
                for b in bins
                if np.mean(on.kilobits[b : b + width]) >= 0.85 * capacity
                and np.mean(on.lost_bins[b : b + width]) <= lossless
            ),
            nan,
        )
        times.append(adapted)
    used = [
        float(np.mean(on.kilobits[int((i + 1 / 6) * period / on.step) : int((i + 1) * period / on.step) - 1]))
        / ((2e6 if i % 2 else 1e6) / 1000)
        for i in range(5)
    ]
    report.table(
        "steps between 1 and 2 Mb/s", ["", "adapted in s", "lost", "link used %"],
        [["off", "", off.lost, ""], ["on", ", ".join(f"{t:.2f}" for t in times), on.lost, 100 * float(np.mean(used))],
         ["source", "< 2", "", "> 90"]],
    )  # fmt: skip
    report.figure("steps_lost_without", off.lost, "messages")
    report.figure("steps_lost_with", on.lost, "messages")
    # A step that it never adapted to is not a number, which `max` would pass over.
    report.goal("steps_adapted_in", most(times))
    report.goal("steps_utilisation", 100 * float(np.mean(used)))
    xs = [i * on.step for i in range(len(on.kilobits))]
    bench.plot_lines("congestion-steps", xs, {"on: kb/s": on.kilobits, "off: kb/s": off.kilobits}, xlabel="s")


def fairness(bench: Bench, report: Report) -> None:
    """Figure 5.11: three flows of 400, 150 and 150 messages/s through 2, 1 and 0.5 Mb/s."""
    period = bench.size(40.0, quick=0.6)
    shares = (0.4, 0.15, 0.15)

    def experiment(control: bool, seed: int = 0) -> Bottleneck:
        flows = [Flow(share, lambda _now: 1000.0) for share in shares]
        world = Bottleneck(2e6, flows, 3 * period, control=control, seed=seed)
        world.clock.call_at(period, setattr, world.link, "bandwidth", 1e6)
        world.clock.call_at(2 * period, setattr, world.link, "bandwidth", 0.5e6)
        return world.run()

    def phases(world: Bottleneck) -> list[list[float]]:
        """What each flow gets at each bandwidth, once it has settled."""
        ends = [(int((p + 0.2) * period / world.step), int((p + 1) * period / world.step)) for p in range(3)]
        return [[float(np.mean(world.rates(i)[start:end])) for i in range(3)] for start, end in ends]

    with bench.step("three flows"):
        off = experiment(False)
        runs = [experiment(True, seed) for seed in range(bench.size(6, quick=1))]
    rows: list[list[object]] = []
    found: list[list[float]] = []
    for name, world in (("off", off), *(("on", each) for each in runs)):
        indices = [sum(rates) ** 2 / (3 * sum(r * r for r in rates)) for rates in phases(world)]
        found.append(indices)
        for phase, (rates, jain) in enumerate(zip(phases(world), indices, strict=True)):
            rows.append([name, f"{2 / 2**phase:g} Mb/s", *rates, jain])
    rows.append(["source, on", "1 Mb/s", 140, 150, 150, ""])
    report.table("three flows, messages/s", ["", "link", "flow 1", "flow 2", "flow 3", "Jain's index"], rows)
    without, *own = found
    _, one, half = (float(np.mean(each)) for each in zip(*own, strict=True))
    report.figure("fairness_jain_1_mbps", one, f"mean of {len(own)} runs")
    report.figure("fairness_jain_half_mbps", half, f"mean of {len(own)} runs")
    report.figure("fairness_jain_worst", min(min(each[1:]) for each in own), "of all runs, over 32 s")
    report.figure("fairness_jain_1_mbps_without", without[1], "")
    report.goal("fairness_least_index", least((one, half)))
    on = runs[0]
    xs = [i * on.step for i in range(len(on.kilobits))]
    bench.plot_lines("congestion-fairness", xs, {f"flow {i + 1}": on.rates(i) for i in range(3)}, xlabel="s")


def with_tcp(bench: Bench, report: Report) -> None:
    """Figure 5.12: one flow and a TCP through 1 Mb/s; the TCP starts later."""
    length = bench.size(120.0, quick=2.0)
    begin = length / 4

    def experiment(control: bool, share: float = 0.5, seed: int = 0) -> tuple[Bottleneck, TcpFlow, list[float]]:
        world = Bottleneck(1e6, [Flow(share, lambda _now: 600.0 / share)], length, control=control, seed=seed)
        tcp = TcpFlow(world.clock, world.link, world.back)
        world.clock.call_at(begin + 0.137 * seed, tcp.start)
        seen: list[float] = []
        before = 0

        def look() -> None:
            nonlocal before
            seen.append((tcp.received - before) * 8 / world.step / 1000)
            before = tcp.received
            world.clock.call_later(world.step, look)

        world.clock.call_at(world.step, look)
        return world.run(), tcp, seen

    #: On the wire: body, header with a record of 2 and control, IP, UDP and the overlay's own header.
    size = float(BODY + 105 + OVERHEAD)

    def shares(run: tuple[Bottleneck, TcpFlow, list[float]]) -> tuple[float, float]:
        world, _, tcp_rate = run
        first, last = int((begin + length / 8) / world.step), int(length / world.step) - 1
        ours = np.mean(world.rates(0)[first:last]) * size * 8 / 1000
        return float(ours), float(np.mean(tcp_rate[first:last])) * 1500 / 1460

    with bench.step("sharing with TCP"):
        runs = [experiment(True, seed=i) for i in range(bench.size(12, quick=1))]
        whole = [experiment(True, share=1.0, seed=i) for i in range(bench.size(4, quick=1))]
        greedy, starved = shares(experiment(False))

    def difference(pairs: list[tuple[float, float]]) -> list[float]:
        return [100 * (ours - theirs) / (ours + theirs) for ours, theirs in pairs]

    found, found_whole = [shares(run) for run in runs], [shares(run) for run in whole]
    ours, theirs = (float(np.mean(each)) for each in zip(*found, strict=True))
    rows: list[list[object]] = [["off", greedy, starved, 100 * (greedy - starved) / (greedy + starved)]]
    rows += [["on, half of what is published", *pair, gap] for pair, gap in zip(found, difference(found), strict=True)]
    rows += [["on, all of it", *pair, gap] for pair, gap in zip(found_whole, difference(found_whole), strict=True)]
    rows.append(["source, on", "", "slightly more", -5])
    report.table("sharing 1 Mb/s with a TCP, kb/s", ["", "publish/subscribe", "TCP", "difference % of both"], rows)
    report.figure("tcp_ours_kbps", ours, "kb/s")
    report.figure("tcp_theirs_kbps", theirs, "kb/s")
    report.figure("tcp_retransmitted", runs[0][1].retransmitted, "segments")
    report.figure("tcp_mean_difference", *_mean_of(difference(found)))
    report.figure("tcp_worst_difference", max(map(abs, difference(found))), "%, of all runs")
    report.figure(
        "tcp_whole_difference", max(map(abs, difference(found_whole))), "%, worst, a subscriber of everything"
    )
    report.goal("tcp_difference", abs(ours - theirs) / (ours + theirs) * 100)
    report.goal("tcp_utilisation", (ours + theirs) / 1000 * 100)
    on, _, tcp_rate = runs[0]
    xs = [i * on.step for i in range(len(tcp_rate))]
    bench.plot_lines(
        "congestion-tcp", xs,
        {"publish/subscribe": [r * size * 8 / 1000 for r in on.rates(0)][: len(xs)], "TCP": tcp_rate},
        xlabel="s", ylabel="kb/s",
    )  # fmt: skip


def _mean_of(differences: list[float]) -> tuple[float, str]:
    """The mean of independent runs, and how well it is known (Student's t, 95 %)."""
    count = len(differences)
    if count < 2:
        return differences[0], "% of both, ours more if positive, one run"
    #: Quantiles of 0.975 for 1, 2, … degrees of freedom.
    t = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20)[min(count - 2, 10)]
    within = t * float(np.std(differences, ddof=1)) / count**0.5
    return float(np.mean(differences)), f"% of both, ours more if positive; ±{within:.1f} at 95 %, {count} runs"


def large(bench: Bench, report: Report) -> None:
    """Figures 5.13-5.15: 8 brokers, 758 subscribers, two publishers of 2,000 messages/s behind a link of 1 Mb/s."""
    length = bench.size(8.0, quick=0.5)
    clients = bench.size(758, quick=40)
    schema = Schema("item", tuple(Attribute(name, "int", 0, 999) for name in ("a", "b", "c", "d", "e")))
    # Zipf: most values are rare, and a few subscribers want what is said often.
    weights = list(accumulate(1 / (rank + 1) for rank in range(1000)))

    def drawn(rng: Random) -> int:
        return bisect(weights, rng.random() * weights[-1])

    tagger = Tagger(schema, WIDTH)

    def experiment(control: bool) -> dict[str, Any]:
        clock, rng = VirtualClock(), Random(8)
        edges = low_degree_graph(8, 6, 2)

        def link(a: int, b: int) -> Pipe:
            narrow = 1e6 if a == 0 else 10e6
            return Pipe(clock, rng, delay=0.005, bandwidth=narrow, queue_bytes=200_000, queue=QUEUE if a == 0 else 1000)

        overlay = Overlay(clock, edges, link, processing=0.0005, seed=4)
        delays: list[float] = []
        born: dict[tuple[int, int], float] = {}
        bins = int(length) + 2
        received, lost = [0] * bins, [0.0] * bins
        expected: dict[tuple[int, int], int] = {}

        def delivered(_client: int, message: Deliver) -> None:
            when = born[message.publisher, message.sequence]
            delays.append(clock.now - when)
            received[min(int(when), bins - 1)] += 1
            expected[message.publisher, message.sequence] -= 1

        world = World(overlay, delivered=delivered)
        #: (attribute, value) → (subscriber, what else it wants): each is found by the first thing it wants.
        wants: dict[tuple[str, int], list[tuple[int, dict[str, int]]]] = {}
        for client in range(clients):
            names = rng.sample("abcde", rng.choice((1, 1, 1, 2, 2, 3, 4, 5)))
            own = {name: drawn(rng) for name in names}
            wants.setdefault(next(iter(own.items())), []).append((client + 1, own))
            wanted = Filter(schema, {name: ValueSet.of(value) for name, value in own.items()})
            receiver = Receiver(
                client + 1, (tagger.filter(wanted),), rate=RateControl() if control else None, width=WIDTH,
                rng=Random(client),
            )  # fmt: skip
            world.add_receiver(client + 1, 1 + client % 7, receiver)
        matching: dict[tuple[int, ...], tuple[dict[int, list[int]], Bits, int, list[tuple[object, int]]]] = {}
        offered: list[Offered] = []

        def publish(client: int, draw: Random) -> None:
            values = tuple(drawn(draw) for _ in range(5))
            found = matching.get(values)
            if found is None:
                named = dict(zip("abcde", values, strict=True))
                some = chain.from_iterable(wants.get(each, ()) for each in named.items())
                who = sorted((c, tuple(sorted(own.items()))) for c, own in some if own.items() <= named.items())
                flows: list[tuple[object, int]] = list(Counter(own for _, own in who).items())
                bits = tagger.event(schema.event_of(named))
                found = matching[values] = (overlay.group([c for c, _ in who]), bits, len(who), flows)
            groups, bits, count, flows = found
            offered.append((clock.now, client, flows))
            sender = world.senders[client]
            before = sender.statistics().published
            if world.publish(client, bits, bytes(BODY), groups) and sender.statistics().published > before:
                born[client, before] = clock.now
                expected[client, before] = count
            if clock.now < length:
                clock.call_later(draw.expovariate(2000.0), publish, client, draw)

        stamped = world._do

        def released(client: int, actions: Any) -> None:
            # Messages that waited in the sender's queue leave later: note when.
            acts = list(actions)
            for action in acts:
                if type(action).__name__ == "Publish":
                    born[client, action.sequence] = clock.now
                    expected[client, action.sequence] = sum(map(len, action.context.values()))
            stamped(client, acts)

        world._do = released  # type: ignore[method-assign]
        for i in range(2):
            options = Publishing(record=2, width=WIDTH, rate_control=control, queue=200)
            world.add_sender(PUBLISHER + i, 0, Sender(PUBLISHER + i, options, epoch=1))
            clock.call_at(0.01 * i, publish, PUBLISHER + i, Random(i))
        clock.run(length + 2)
        for key, count in expected.items():
            lost[min(int(born[key]), bins - 1)] += max(0, count)
        flows = [len(sender.table.flows) for sender in world.senders.values()]
        narrow = sum(each.bytes for (a, _), each in overlay.links.items() if a == 0)
        outgoing = sum(1 for a, _ in overlay.links if a == 0)
        return {
            "received": received, "lost": lost, "delays": delays, "flows": max(flows),
            "feedbacks": world.messages["FEEDBACK"], "used": narrow * 8 / (length * 1e6 * outgoing),
            "offered": offered,
        }  # fmt: skip

    with bench.step(f"{clients} subscribers"):
        on, off = experiment(True), experiment(False)
    seconds = max(1, int(length))
    late = slice(min(3, seconds - 1), seconds)

    def mean(run: dict[str, Any], name: str) -> float:
        return float(np.mean(run[name][late]))

    rows = []
    for name, run in (("off", off), ("on", on)):
        rows.append(
            [name, mean(run, "received"), mean(run, "lost"), float(np.mean(run["delays"])) * 1e3,
             float(str(run["used"])) * 100, run["feedbacks"], run["flows"]]
        )  # fmt: skip
    size = BODY + 105 + OVERHEAD
    fair, rate = max_min(off["offered"], length * 1e6 / 8 / size)
    rows.append(["max-min", fair / length, 0, "", 100, "", ""])
    rows.append(["source", "12 % fewer with", "~0 after 3 s", "102 off, 54 on", "> 90", "", ""])
    report.figure("large_max_min_deliveries", fair / length, "deliveries/s if all flows had the same rate")
    report.figure("large_max_min_rate", rate, "messages/s of every flow then")
    report.figure("large_share_of_max_min", 100 * mean(on, "received") / max(1e-9, fair / length), "%")
    report.table(
        f"{clients} subscribers, after 3 s, per second",
        ["", "deliveries", "lost", "mean delay ms", "link used %", "feedback", "flows"],
        rows,
    )
    report.figure("large_delay_without_ms", float(np.mean(off["delays"])) * 1e3, "ms, source 102")
    report.figure("large_delay_with_ms", float(np.mean(on["delays"])) * 1e3, "ms, source 54")
    report.figure("large_throughput", 100 * mean(on, "received") / max(1e-9, mean(off, "received")), "%, source 88")
    report.figure("large_feedback_per_s", float(str(on["feedbacks"])) / length, "messages/s")
    report.figure("large_flows", int(str(on["flows"])), "flows of the busiest publisher")
    report.goal("large_fewer_losses", mean(off, "lost") / max(0.1, mean(on, "lost")))
    report.goal("large_utilisation", float(str(on["used"])) * 100)
    bench.plot_lines(
        "congestion-large", list(range(seconds)),
        {f"{name}: {what}/s": list(run[what])[:seconds]
         for name, run in (("off", off), ("on", on)) for what in ("received", "lost")},
        xlabel="s",
    )  # fmt: skip


def together(bench: Bench, report: Report) -> None:
    """Figure 5.17: recovery and congestion control at once, five flows into 1.5 Mb/s."""
    length = bench.size(20.0, quick=1.5)

    def experiment(control: bool, growth: float = 1.0) -> Bottleneck:
        flows = [Flow(1.0, lambda _now: 300.0) for _ in range(5)]
        return Bottleneck(1.5e6, flows, length, control=control, recover=control, growth=growth).run()

    with bench.step("recovery and congestion control together"):
        on, off, slow = experiment(True), experiment(False), experiment(True, 0.1)

    def row(name: str, run: Bottleneck) -> list[object]:
        recovered = sum(receiver.recovered for receiver in run.world.receivers.values())
        return [name, sum(sum(f.received) for f in run.flows), run.lost, recovered, run.world.messages["REPAIR"]]

    report.table(
        "recovery and congestion control together",
        ["", "received", "dropped by the link", "recovered", "repairs"],
        [row("off", off), row("on", on), row("on, growth of 0.1", slow), ["source", "", "110 times fewer", "40 %", ""]],
    )
    received = [sum(flow.received) for flow in slow.flows]
    report.figure("together_slow_growth_fewer_losses", off.lost / max(1, slow.lost), "times, for links without TCP")
    report.figure(
        "together_slow_growth_jain",
        sum(received) ** 2 / (len(received) * sum(n * n for n in received)),
        "of five flows",
    )
    report.goal("together_fewer_losses", off.lost / max(1, on.lost))


def cost(bench: Bench, report: Report) -> None:
    """Processor time of each part per message, at both ends, and memory per publisher."""
    count = bench.size(50_000, quick=3_000)
    tagger = Tagger(SCHEMA, WIDTH)
    bits = tagger.event(SCHEMA.event(source=1, kind=100))
    wanted = (tagger.filter(Filter(SCHEMA, {"source": ValueSet.of(1), "kind": ValueSet.of(100)})),)
    options, repeats = Publishing(record=2, width=WIDTH, rate_control=True), bench.size(3, quick=1)
    made = messages(count, bits, options, BODY)

    def publish() -> None:
        own = Sender(PUBLISHER, options, epoch=1)
        for i in range(count):
            own.publish(bits, b"", i * 1e-5)

    parts: dict[str, dict[str, Any]] = {
        "detection": {},
        "order": {"order": Order()},
        "recovery": {"recover": Recover()},
        "rate_control": {"rate": RateControl()},
        "all": {"order": Order(), "recover": Recover(), "rate": RateControl()},
    }
    rows: list[list[object]] = []
    for name, chosen in parts.items():
        micros = per_message(lambda chosen=chosen: Receiver(1, wanted, width=WIDTH, **chosen), made, repeats)  # type: ignore[misc]
        rows.append([name, micros, micros / 10 * 100])
        report.figure(f"cpu_us_per_message_{name}", micros, "µs, header and loss detection included")
        report.figure(f"core_share_at_100k_{name}", micros / 10 * 100, "%")
    report.table("one receiver, 100,000 messages/s", ["", "µs per message", "% of a core"], rows)
    report.figure("cpu_us_per_message_sending", cpu(publish, repeats) / count * 1e6, "µs, record of 2 and rate control")
    kept = {**parts["all"], "recover": Recover(cache_min=5, cache_max=5)}
    publishers = bench.size(500, quick=50)
    memory = per_session(lambda: Receiver(1, wanted, width=WIDTH, **kept), bits, options, publishers)
    report.figure("memory_per_session", memory, "bytes, all three parts and five cached messages of 100 bytes")


def kernel_tcp(bench: Bench, report: Report) -> None:
    """One flow and the kernel's TCP through a veth pair limited by tbf, in namespaces of their own."""
    if bench.quick or os.geteuid() != 0 or not programs.find("ip") or not programs.find("tc"):
        report.note("kernel TCP through tbf: not run (a quick run, or no root, ip or tc)")
        return
    script = Path(__file__).with_name("_tbf.py")
    # All at a time, each in namespaces of its own: at 1 Mb/s they hardly need a processor.
    with bench.step("sharing with the kernel's TCP"):
        running = [
            subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(6)
        ]
        done = [each.communicate(timeout=240) for each in running]
    if any(each.returncode for each in running):
        report.note(f"kernel TCP through tbf: not available here ({done[0][1].strip().splitlines()[-1:]})")
        return
    found = [json.loads(out.splitlines()[-1]) for out, _ in done]
    pairs = [(each["ours"] / 1000, each["tcp"] / 1000) for each in found]
    ours, theirs = (float(np.mean(each)) for each in zip(*pairs, strict=True))
    gaps = [100 * (a - b) / max(1e-9, a + b) for a, b in pairs]
    report.table(
        "sharing 1 Mb/s with the kernel's TCP, kb/s", ["publish/subscribe", "TCP", "difference % of both"],
        [[*pair, gap] for pair, gap in zip(pairs, gaps, strict=True)],
    )  # fmt: skip
    report.figure("kernel_tcp_mean_difference", *_mean_of(gaps))
    report.figure("kernel_tcp_worst_difference", max(map(abs, gaps)), "%, of all runs")
    report.figure("kernel_tcp_ours_kbps", ours, "kb/s")
    report.figure("kernel_tcp_theirs_kbps", theirs, "kb/s")
    report.goal("kernel_tcp_difference", abs(ours - theirs) / max(1e-9, ours + theirs) * 100)


def run(bench: Bench) -> Report:
    report = Report(GOALS)
    started = perf_counter()
    for experiment in (ramp, steps, fairness, with_tcp, large, together, cost, kernel_tcp):
        experiment(bench, report)
    report.note(f"one core, {perf_counter() - started:.0f} s; shorter than the source's runs, at its rates")
    report.note("760 clients: max-min favours flows that few want, so the same full link makes fewer deliveries")
    report.note(
        "the simulated TCP is like a kernel's (whole segments, bytes counted, delayed acknowledgements, RACK, PRR); "
        "windows follow its response to random losses; they leave half a segment unused (a whole one was tried, beside "
        "the simulated TCP on other seeds than these, and beside the kernel's: 10 and 7 % less than TCP)"
    )
    report.note("fairness: the mean index of several runs; that of one phase of one run varies from 0.93 to 1.00")
    report.note(
        "together: five flows of some 2.6 segments each; so small a window costs a TCP as many losses. Growing by less "
        "below 6 segments where delay shows a full queue was tried: 31 times fewer losses than without control, but "
        "beside three TCPs three of our flows had 93 kb/s each, a TCP 240; hence a setting, for links without TCP"
    )
    report.note("queues count packets; where a queue counts bytes, small messages crowd a TCP's segments out")
    return report
