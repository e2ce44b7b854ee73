"""Latency over real sockets, the matcher a process: nothing through it, everything, and every bound in between.

A bound lies between two means, with nothing and with everything in matchers, and both change with the machine within
seconds, by more than the smallest factors allow. So nothing is measured before and after each factor, and everything
for every few, all of it in several rounds:

    everything, nothing, 0.1, nothing, 0.2, nothing, 0.3, nothing;  everything, nothing, 0.4, …;  everything, …;  again

A factor is given the bound that the phases before it say, since later ones are not known yet. What counts is its mean
over the bound that the phases on both sides say: what the network takes by itself just before and just after. Of the
rounds' ratios the middle one counts; the mean over the bound that was given is told beside it. Of one category
everybody wants everything, so that none of it is diverted: it shows what the machine does by itself. The fabric has a
processor of its own and the matcher another, both at real-time priority, so that nothing else is in the measurement.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from contextlib import ExitStack
from typing import Any, Final

import msgspec
import numpy as np

import sievenet
from benchmarks._cores import APART, SHARED, place
from benchmarks._hybrid_passing import Passing
from benchmarks.harness import Bench, Report, middle, most, quantiles
from sievenet.config import load_config
from sievenet.content import Attribute, Filter, Schema, Subscription
from sievenet.daemon.collector import collecting_seldom
from sievenet.daemon.daemon import Daemon
from sievenet.workload import Ticks

__all__ = ["FACTORS", "testbed"]

FACTORS: Final = tuple(round(0.1 * i, 1) for i in range(11))
#: A category of which everybody wants everything.
PULSE: Final = Schema("pulse", (Attribute("n", "int", lo=0, hi=9),))


async def testbed(bench: Bench, report: Report) -> None:
    """Every factor in several rounds, each between ends of its own."""
    found: dict[float, list[Found]] = {factor: [] for factor in FACTORS}
    async with contextlib.AsyncExitStack() as stack:
        with bench.step("testbed: 10 switches, 200 subscriptions, a matcher"):
            bed = await Testbed.up(bench, stack)
        between = FACTORS[1:-1]
        near = bench.size(3, len(between))  # factors that are measured before the ends are measured again
        for turn in range(bench.size(3, 1)):
            for start in range(0, len(between), near):
                with bench.step(f"testbed, round {turn + 1}: everything and nothing through matchers"):
                    found[1.0].append(await bed.measure(float("inf")))
                    found[0.0].append(await bed.measure(0.0))
                exact = found[1.0][-1].mean
                for factor in between[start : start + near]:
                    with bench.step(f"testbed, round {turn + 1}, factor {factor:g}, and nothing"):
                        given = bound(factor, found[0.0][-1].mean, exact)
                        one = await bed.measure(given)
                        found[0.0].append(await bed.measure(0.0))
                        network = (found[0.0][-2].mean + found[0.0][-1].mean) / 2
                        found[factor].append(msgspec.structs.replace(one, around=bound(factor, network, exact)))
    ratios = {factor: [each.ratio for each in found[factor]] for factor in between}
    report.goal("testbed_mean_latency_over_bound", most(map(middle, ratios.values())))
    report.figure("testbed_mean_latency_over_bound_worst_single", most(map(most, ratios.values())))
    given_ratios = (middle(each.mean / each.bound for each in found[factor]) for factor in between)
    report.figure("testbed_mean_latency_over_bound_given", most(given_ratios))
    ends = [each.mean for each in found[0.0]]
    report.figure("testbed_network_slowest_over_fastest", max(ends) / min(ends))
    report.table(
        f"testbed: deliveries, the middle of {len(found[0.1])} rounds (of the ends, of all)",
        [
            "factor",
            "bound given, ms",
            "mean, ms",
            "p50, ms",
            "p99, ms",
            "mean over bound",
            "worst round",
            "through matchers, %",
            "false positives per 1,000 deliveries",
            "category never diverted, mean ms",
        ],
        [_row(factor, several) for factor, several in found.items()],
    )


def bound(factor: float, network: float, exact: float) -> float:
    """The mean latency that a factor allows between the two ends."""
    return network + factor * max(0.0, exact - network)


class Found(msgspec.Struct, frozen=True):
    """What one bound came to."""

    #: The bound that was given.
    bound: float
    seconds: list[float]
    unwanted: int
    directed: int
    #: Of the category that is never diverted.
    pulse: list[float]
    #: The bound by what the network took just before and just after.
    around: float = 0.0

    @property
    def mean(self) -> float:
        """Of the latency, in seconds."""
        return float(np.mean(self.seconds))

    @property
    def ratio(self) -> float:
        """How much that is of the bound by what the network took around it."""
        return self.mean / self.around


def _row(factor: float, several: list[Found]) -> list[object]:
    def of(what: Any) -> float:
        return middle(float(what(each)) for each in several)

    ends = factor in (FACTORS[0], FACTORS[-1])
    p50, p99 = (of(lambda each, p=p: quantiles(each.seconds)[p]) for p in ("p50", "p99"))
    times = (f"{1e3 * each:.2f}" for each in (of(lambda each: each.mean), p50, p99))
    return [
        factor,
        "-" if ends else f"{1e3 * of(lambda each: each.bound):.2f}",
        *times,
        "-" if ends else f"{of(lambda each: each.ratio):.2f}",
        "-" if ends else f"{max(each.ratio for each in several):.2f}",
        f"{100 * of(lambda each: each.directed / max(1, len(each.seconds))):.0f}",
        f"{1e3 * of(lambda each: each.unwanted / max(1, len(each.seconds))):.0f}",
        f"{1e3 * of(lambda each: np.mean(each.pulse)):.2f}",
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
        bed = cls(bench, daemon, source, list(stock.events(bench.size(1_500, 60))))
        wanted = stock.subscriptions(bench.size(200, 20)).filters()
        for i, host in enumerate(hosts[1:]):
            each = await stack.enter_async_context(sievenet.connect(daemon.url, name=f"s{i}", host=host))
            await each.schema(stock.schema)
            for one in wanted[i :: len(hosts) - 1]:
                await each.listen(Subscription([one]), bed._got)
            bed._subscribers.append(each)
        await source.schema(PULSE)
        await source.advertise(PULSE)
        await bed._subscribers[-1].schema(PULSE)
        await bed._subscribers[-1].listen(Subscription([Filter(PULSE)]), bed._beat)
        matcher = Passing(stack.enter_context(ExitStack()), "matcher", daemon.url, "m", hosts[0])
        await asyncio.to_thread(matcher.ready)
        stack.enter_context(collecting_seldom())  # as `sievenet up` does
        # What else runs on the machine shall not be in latencies that differ by some hundredths of a millisecond.
        place(APART, daemon=matcher.pid, clients=[os.getpid()])
        stack.callback(place, SHARED, daemon=matcher.pid, clients=[os.getpid()])
        return bed

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
        # Taking everything back is done at the next choice; other bounds need some choices until little changes.
        rng, settle = random.Random(1), time.perf_counter() + self._bench.size(4.0 if bound else 2.0, 0.5)
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
        return Found(bound, seconds, unwanted, directed, self._pulse)
