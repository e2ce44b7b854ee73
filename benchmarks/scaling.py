"""Many configurators against one controller: throughput, response time, take-over; busy and slow."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from benchmarks._before import off_over_before
from benchmarks._bridges import bridged, why_not
from benchmarks._slow_switches import course
from benchmarks._small_machines import SmallMachines
from benchmarks._takeover import take_over
from benchmarks.control import Driver, Load, Switches, Wanted, network
from benchmarks.harness import Bench, Report, least, middle, most, quantiles
from sievenet.content import encode_subscription
from sievenet.control import warmup
from sievenet.control.config import ControlConfig
from sievenet.control.configurators import messages as m
from sievenet.control.configurators.monitor import Monitor, Move, Work
from sievenet.control.journal import Durability, FileJournal
from sievenet.control.plane import ControlPlane
from sievenet.daemon.collector import collecting_seldom
from sievenet.daemon.configurators import Configurators
from sievenet.network import FlowChange, Topology
from sievenet.session.message import Message
from sievenet.workload import Hotspots, Uniform, grid

#: What it should come to.
GOALS = {
    "throughput_over_one": ">= 1.7",
    "response_saved_slow": ">= 99 %",
    "response_lb_over_sna": "<= 0.5",
    "off_over_before": ">= 0.97",
    "takeover_p99_s": "<= 2",
    "takeover_lost": "<= 0",
    "move_p99_ms": "<= 100",
}

#: Seconds that a slow switch takes to acknowledge: hardware manages 40 to 50 updates a second.
DELAY = 0.02
SLOW_RATE = 2_500.0
#: How much more than one controller sustains is asked of all.
OVERLOAD = 1.3
#: How many times slower than here configurators are where balancing is measured, and how many there are.
SLOWER = 64.0
MACHINES = 4
#: Where moves are timed: seconds from one to the next, and how much is asked of what all sustain.
BETWEEN = 0.05
LOADED = 0.8
#: Requests under way at a time when it is measured what those sustain: with more to do at a time they do more.
WAITING = 8192


class Busy(NamedTuple):
    """How one kind of control plane did with switches that answer at once."""

    per_s: float
    mean_ms: float
    p99_ms: float
    moved: int
    #: Milliseconds from a partition's order to another owner until it was answered, loading included.
    moves: list[float]


class Watch:
    """Listens to what is said, and times the first answer after a `Load` of a partition that had been loaded before."""

    def __init__(self, plane: ControlPlane) -> None:
        self.loaded: dict[int, float] = {}
        self.moves: list[float] = []
        self._say, self._heard = plane.consult, plane.configurators_heard
        plane.consult = self.say
        plane.configurators_heard = self.heard  # type: ignore[method-assign]

    def say(self, name: str, message: Message) -> None:
        """Something is said to a configurator."""
        if isinstance(message, m.Load):
            first = message.partition not in self.loaded
            self.loaded[message.partition] = 0.0 if first else time.perf_counter()
        assert self._say is not None
        self._say(name, message)

    def heard(self, heard: Sequence[tuple[str, Sequence[object]]]) -> None:
        """Configurators say something."""
        for message in (message for _, messages in heard for message in messages):
            if isinstance(message, m.Answer) and self.loaded.get(message.partition):
                self.moves.append(1e3 * (time.perf_counter() - self.loaded[message.partition]))
                self.loaded[message.partition] = 0.0
        self._heard(heard)


class Counters(Switches):
    """Switches that only count changes, so that no flow is ever made of them."""

    async def apply(self, switch: str, changes: Sequence[FlowChange]) -> None:
        self.changes += len(changes)


class Clients(Driver):
    """Clients that say what they want in bytes, as over a connection: encoding is not the controller's work."""

    chunk = 20_000

    def __init__(self, plane: ControlPlane, switches: Switches, load: Load, seed: int) -> None:
        super().__init__(plane, switches, load, seed)
        self._encoded: dict[int, bytes] = {}

    def fresh(self, count: int) -> list[Wanted]:
        """The next subscriptions, encoded."""
        found = super().fresh(count)
        self._encoded = {id: encode_subscription(wanted) for _, id, wanted in found}
        return found

    async def subscribe(self, each: Wanted) -> None:
        """Have one granted."""
        await self.plane.subscribe(*each, self._encoded[each[1]])
        self.live.append(each[:2])


@asynccontextmanager
async def fabric(
    topology: Topology, load: Load, config: ControlConfig, slower: float = 1.0, kind: type[Switches] = Counters
) -> AsyncIterator[tuple[Driver, Watch]]:
    """A journal on disk, and the configurators that the settings say, perhaps slower."""
    switches = kind(topology, scheduler=asyncio.get_running_loop())
    with tempfile.TemporaryDirectory() as folder:
        journal = FileJournal(Path(folder) / "journal.sqlite", durability=Durability.POWER)
        plane = await ControlPlane.start(switches, journal, msgspec.structs.replace(config, lease=86400.0))
        staff = None
        if config.mode.startswith("sna"):
            count = config.staff
            staff = Configurators(plane, count) if slower == 1 else SmallMachines(plane, count, slower)
        if staff is not None:
            await staff.start()
            while len(shown(plane)["configurators"]) < config.staff:
                await asyncio.sleep(0.05)
        watch = Watch(plane)
        await plane.register_schema(load.schema)
        driver = Clients(plane, switches, load, seed=5)
        await driver.join()
        try:
            yield driver, watch
        finally:
            if staff is not None:
                await staff.close()
            await plane.close()


def shown(plane: ControlPlane) -> dict[str, Any]:
    """What `status` shows of configurators."""
    return {"configurators": [], "moved": 0, **(plane.configurators() or {})}


async def flooded(topology: Topology, load: Load, config: ControlConfig, count: int) -> float:
    """Requests per second, as fast as they go."""
    async with fabric(topology, load, config) as (driver, _):
        await driver.flood(count // 4, 0)  # everything is loaded and warm
        spent = await driver.flood(count, 0)
        return spent.requests / spent.wall


def paired(bench: Bench, report: Report, topology: Topology, load: Load, count: int) -> None:
    """Throughput of configurators as processes over one controller, in turn, again and again."""
    rounds = bench.size(5, quick=1)
    staff = bench.size((1, 2), quick=(1,))
    settings = {"one": ControlConfig()} | {f"sna {n}": ControlConfig(mode="sna", configurators=n) for n in staff}
    found: dict[str, list[float]] = {name: [] for name in settings}
    for turn in range(rounds):
        for name, config in settings.items():
            with bench.step(f"uniform, in turn: {name}, round {turn + 1} of {rounds}"):
                found[name].append(asyncio.run(flooded(topology, load, config, count)))
    ratios = {name: [a / b for a, b in zip(each, found["one"], strict=True)] for name, each in found.items()}
    report.table(
        f"uniform, in turn, {rounds} rounds of {count:,} requests; over one controller of the same round",
        ["control", "requests/s", "over one", "least", "most"],
        [[name, middle(found[name]), middle(each), least(each), most(each)] for name, each in ratios.items()],
    )
    for name, each in ratios.items():
        if name != "one":
            report.figure(f"throughput_over_one_{name.replace(' ', '_')}", middle(each), "")
    report.goal("throughput_over_one", most(middle(each) for name, each in ratios.items() if name != "one"))


async def busy(
    topology: Topology,
    load: Load,
    config: ControlConfig,
    count: int,
    rate: float | None,
    kind: type[Switches] = Counters,
) -> Busy:
    """So many subscriptions as fast as they go, then as many at random moments; half of those are taken back."""
    async with fabric(topology, load, config, kind=kind) as (driver, watch):
        await driver.flood(count // 4, 0)  # everything is loaded and warm
        spent = await driver.flood(count, 0)
        per_s = spent.requests / spent.wall
        times = await driver.poisson(count, rate or OVERLOAD * per_s)
        moved = shown(driver.plane)["moved"]
        return Busy(per_s, sum(times) / len(times), quantiles(times, (0.99,))["p99"], moved, watch.moves)


class Restless(Monitor):
    """Moves some partition to somebody else at every look, for no reason."""

    def __init__(self) -> None:
        self._random = random.Random(3)

    def look(self, work: Mapping[str, Mapping[int, Work]]) -> list[Move]:
        """Somebody's partition should be another's."""
        if len(work) < 2:
            return []
        giver, to = self._random.sample(sorted(work), 2)
        return [Move(self._random.choice(sorted(work[giver])), to)] if work[giver] else []


async def stalls(topology: Topology, load: Load, staff: int, count: int) -> list[float]:
    """How long partitions do not answer that are moved while requests come, in milliseconds."""
    config = ControlConfig(mode="sna", configurators=staff, look=BETWEEN)
    async with fabric(topology, load, config) as (driver, watch):
        await driver.flood(count // 4, 0)
        spent = await driver.flood(count, 0)
        desk = driver.plane._controller.fleet.desk
        assert desk is not None
        desk.monitor = Restless()
        await driver.poisson(count, LOADED * spent.requests / spent.wall)
        return watch.moves


async def small(
    topology: Topology, load: Load, mode: str, slower: float, count: int, rate: float | None
) -> tuple[Busy, float]:
    """Configurators on slow machines of their own; at `rate`, or at `OVERLOAD` times what they sustain, and that."""
    # What takes a second on a quick machine takes longer there, and is no sign of death.
    patience = slower * ControlConfig().patience
    config = ControlConfig(mode=mode, configurators=MACHINES, patience=patience)  # type: ignore[arg-type]
    async with fabric(topology, load, config, slower) as (driver, watch):
        await driver.flood(count // 16, 0)
        driver.window = WAITING
        spent = await driver.flood(max(count // 5, 32), 0)
        per_s = spent.requests / spent.wall
        rate = rate or OVERLOAD * per_s
        times = await driver.poisson(count, rate)
        p99, moved = quantiles(times, (0.99,))["p99"], shown(driver.plane)["moved"]
        return Busy(per_s, sum(times) / len(times), p99, moved, watch.moves), rate


def balanced(bench: Bench, report: Report, topology: Topology, load: Load) -> None:
    """Moving partitions against not moving any, where the configurator of the hottest ones is the bottleneck."""
    found: dict[str, Busy] = {}
    rate, count, slower = None, bench.size(100_000, quick=32), bench.size(SLOWER, quick=2.0)
    for mode in ("sna", "sna-lb"):
        with bench.step(f"zipf, slow machines: {mode} {MACHINES}"):
            found[mode], rate = asyncio.run(small(topology, load, mode, slower, count, rate))
        report.figure(f"small_{mode}_mean_ms", found[mode].mean_ms, "ms")
    report.table(
        f"zipf, {MACHINES} machines {slower:g} times slower than this one: {count:,} requests at {rate:,.0f}/s",
        ["control", "sustains, 1/s", "mean, ms", "p99, ms", "moved"],
        [[mode, each.per_s, each.mean_ms, each.p99_ms, each.moved] for mode, each in found.items()],
    )
    report.goal("response_lb_over_sna", found["sna-lb"].mean_ms / found["sna"].mean_ms)
    report.note(
        f"Slow machines: a configurator rests {slower - 1:g} times as long as it worked, so that it and not the "
        f"dispatcher is the bottleneck, and shares its processor with nobody. The rate is {OVERLOAD} times what `sna` "
        "sustains there. At full speed the dispatcher limits both modes, see the table of the busy processor."
    )


def run(bench: Bench) -> Report:
    report = Report(GOALS)
    topology, schema = network(bench), grid(10, hi=1024)
    loads: dict[str, Load] = {"uniform": Uniform(schema=schema, seed=3), "zipf": Hotspots(schema=schema, seed=3)}
    # The busy table has the seeds' 200,000 requests for each setting; what is repeated takes a fifth of them.
    many, count = bench.size((100_000, 20_000), quick=(12, 12))
    kinds = [("one", 1), ("sea", 8), *(("sna", n) for n in bench.size((1, 2, 4, 8), quick=(2,)))]
    kinds += [("sna-lb", n) for n in bench.size((2, 4), quick=())]
    with bench.step("compiling kernels"):
        warmup.load()
    found: dict[tuple[str, str, int], Busy] = {}
    with collecting_seldom():
        for name, load in list(loads.items())[: bench.size(2, quick=1)]:
            rate = None
            for mode, staff in kinds:
                config = ControlConfig(mode=mode, configurators=staff)  # type: ignore[arg-type]
                with bench.step(f"{name}: {mode} {staff}"):
                    one = found[name, mode, staff] = asyncio.run(busy(topology, load, config, many, rate))
                rate = rate or OVERLOAD * one.per_s
                for figure, unit in (("per_s", "1/s"), ("mean_ms", "ms"), ("p99_ms", "ms")):
                    report.figure(f"{name}_{mode}_{staff}_{figure}", getattr(one, figure), unit)
        paired(bench, report, topology, loads["uniform"], count)
        for mode, staff in bench.size((("one", 1), ("sna", 1), ("sna", 2)), quick=(("one", 1), ("sna", 1))):
            config = ControlConfig(mode=mode, configurators=staff)  # type: ignore[arg-type]
            with bench.step(f"uniform, switches that read: {mode} {staff}"):
                one = asyncio.run(busy(topology, loads["uniform"], config, count, None, Switches))
            found["uniform, read", mode, staff] = one
        with bench.step("configurators on NATS are killed"):
            config = ControlConfig(mode="sna", configurators=2)
            live, kills = bench.size(20_000, quick=12), bench.size(50, quick=1)
            ends, lost = asyncio.run(take_over(topology, loads["uniform"], config, live, kills))
        moves = [each for one in found.values() for each in one.moves]
        for (name, load), staff in product(
            list(loads.items())[: bench.size(2, quick=1)], bench.size((2, 4), quick=(2,))
        ):
            with bench.step(f"partitions of {staff} configurators are moved: {name}"):
                moves += asyncio.run(stalls(topology, load, staff, count))
        bridges(bench, report, loads["uniform"])
        balanced(bench, report, topology, loads["zipf"])
    with bench.step("one controller, now and before there were configurators"):
        before = off_over_before(*bench.size((3, 6_000), quick=(0, 0)))
    report.table(
        f"busy processor: {2 * many:,} requests ({2 * count:,}: read); response at {OVERLOAD} times what one sustains",
        ["load", "control", "configurators", "requests/s", "mean, ms", "p99, ms", "moved"],
        [[*key, each.per_s, each.mean_ms, each.p99_ms, each.moved] for key, each in found.items()],
    )
    read = [each.per_s for (name, mode, _), each in found.items() if (name, mode) == ("uniform, read", "sna")]
    report.figure("throughput_over_one_read", most(read) / found["uniform, read", "one", 1].per_s, "")
    for n in bench.size((2, 4), quick=()):
        ratio = found["zipf", "sna-lb", n].mean_ms / found["zipf", "sna", n].mean_ms
        report.figure(f"response_lb_over_sna_at_full_speed_{n}", ratio, "")
    if before is not None:
        report.goal("off_over_before", before)
    report.goal("takeover_p99_s", quantiles(ends, (0.99,))["p99"])
    report.goal("takeover_lost", lost)
    report.figure("moves", len(moves))
    if moves:
        report.goal("move_p99_ms", quantiles(moves, (0.99,))["p99"])
    report.goal("response_saved_slow", 100 * slow(bench, report, topology, loads["uniform"]))
    report.note(
        "102 switches, 64 hosts that all publish everything; 64 partitions unless the control is one, which has 1."
    )
    report.note(
        "Busy: clients and dispatcher share a process; switches count and acknowledge at once; journal on disk."
    )
    report.note(
        "Read: switches that look at every change, as those do that encode it for a wire. Changes stay packed until a "
        "switch looks; whoever has worked them out, it is the daemon that makes flows of them then."
    )
    report.note(
        f"Moves: those of `sna-lb` in the table, and some partition every {1e3 * BETWEEN:g} ms at {LOADED:.0%} of what "
        "the configurators sustain; from its copy's being sent to the new owner until that has answered."
    )
    report.note(
        "Take-over: journal and partitions in NATS; from kill -9 of a configurator until a request that concerns all "
        "partitions is answered. A configurator is given up after a second without a sign of life."
    )
    return report


def bridges(bench: Bench, report: Report, load: Load) -> None:
    """One controller and three configurators on ten bridges of Open vSwitch."""
    reason = bench.size(why_not(), quick="a quick run")
    if reason:
        report.note(f"Ten bridges of Open vSwitch: not measured, {reason}.")
        return
    found = {}
    count, rate = 2_000, 400.0
    for mode, staff in (("one", 1), ("sna", 3)):
        config = ControlConfig(mode=mode, configurators=staff, bits=20, budget=4)  # type: ignore[arg-type]
        with bench.step(f"Open vSwitch: {mode} {staff}"):
            found[mode, staff] = each = asyncio.run(bridged(load, config, count, rate))
        report.figure(f"bridges_{mode}_{staff}_per_s", each.per_s, "1/s")
    report.table(
        f"ten bridges of Open vSwitch: {count:,} subscriptions, then as many requests at {rate:g}/s",
        ["control", "configurators", "requests/s", "mean, ms", "p99, ms", "flows"],
        [[*key, *each] for key, each in found.items()],
    )


def slow(bench: Bench, report: Report, topology: Topology, load: Load) -> float:
    """Switches that take a while, in virtual time: the share of the response time that shared everything saves."""
    filters = load.subscriptions(bench.size(2_000, quick=10)).filters()
    coarse = ControlConfig(bits=10, budget=4, lease=86400.0)
    kinds: dict[str, dict[str, Any]] = {
        "one, a request at a time": {"batch": 1},
        "one": {},
        **{
            f"sea, {n}": {"mode": "sea", "configurators": n, "partitions": 64}
            for n in bench.size((2, 8, 64), quick=(64,))
        },
    }
    found = {}
    for name, settings in kinds.items():
        with bench.step(f"slow switches: {name}"):
            config = msgspec.structs.replace(coarse, **settings)
            each = course(topology, load.schema, filters, SLOW_RATE, DELAY, config)
        found[name] = each
        report.figure(f"slow_{name.replace(', ', '_').replace(' ', '_')}_mean_ms", each.mean_ms, "ms")
    report.table(
        f"slow switches: {len(filters):,} subscriptions at {SLOW_RATE:,.0f}/s, acknowledged after {1e3 * DELAY:g} ms",
        ["control", "mean, ms", "p99, ms", "operations"],
        [[name, each.mean_ms, each.p99_ms, each.operations] for name, each in found.items()],
    )
    report.note(
        "Slow: in virtual time, without the processor. What is saved is against a controller that takes a request at a "
        "time, as in the literature; our one controller takes all that wait, and leaves sea little to save."
    )
    return 1 - found["sea, 64"].mean_ms / found["one, a request at a time"].mean_ms
