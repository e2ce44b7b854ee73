"""FIFO order over 8 and 46 brokers: violations and extra delay, against constant latches.

The source's settings in virtual time with the real protocol: every broker takes an exponentially distributed time for
each message in parallel, links take 50 ± 5 ms, two publishers send 1,200 messages/s (to a few that want over 80 % of
them), 48 send 1.5 → 25. The network runs once and every variant sees the same arrivals. P-x-y is the source's rule with
P_t = x and a publication record of y messages, G-x-y ours with its guards, CST-t a constant latch of t ms, found by
bisection, that violates order at most as often with a record as long. Only the length is shortened, so totals are also
given per source length.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from random import Random
from time import perf_counter

import numpy as np

from benchmarks._cost import cpu
from benchmarks.harness import Bench, Report, most, quantiles, share
from sievenet.content import Attribute, Filter, Schema, ValueSet
from sievenet.simulation import Pipe, VirtualClock
from sievenet.transport.bloom import Bits, Tagger
from sievenet.transport.codec import NO_RECORD, Header, Record, record_entry
from sievenet.transport.latch import ConstantLatch, DelayModel, Latch, two_laplace_cdf
from sievenet.transport.simulation import Overlay, low_degree_graph
from sievenet.transport.stream import Limits, SessionCounts, Stream

#: What it should come to.
GOALS = {
    f"{brokers}_brokers_{what}": goal
    for brokers in (8, 46)
    for what, goal in (("avoided", ">= 99.5 %"), ("extra_over_constant", "< 1"), ("fit_error", "<= 0.1"))
}

WIDTH = 128
SCHEMA = Schema("reading", (Attribute("stream", "int", 0, 63), Attribute("level", "int", 0, 999)))
#: Our default (`sievenet.transport.options.Order`).
P_LATE = 0.0005
LIMITS = Limits(held=100_000, missing=100_000, latch=10.0)


@dataclass
class Setting:
    """A network of the source."""

    name: str
    brokers: int
    diameter: int
    clients: int
    #: Seconds of the source's run, and what it reports.
    source_length: float
    source_violations: int


@dataclass
class Trace:
    """What arrived: per (publisher, subscriber), in order of arrival, (arrival, sequence)."""

    departures: dict[int, list[float]]
    bits: dict[int, list[Bits]]
    arrivals: dict[tuple[int, int], list[tuple[float, int]]]
    interests: dict[int, tuple[Bits, ...]]
    hops: dict[tuple[int, int], int]
    published: int
    length: float


def simulate(setting: Setting, length: float, seed: int, bench: Bench) -> Trace:
    """Run the network once, without any ordering."""
    rng = Random(seed)
    clock = VirtualClock()

    def link(_a: int, _b: int) -> Pipe:
        return Pipe(clock, rng, delay=0.05, wander=0.005, bandwidth=10e6, queue_bytes=1_000_000)

    edges = low_degree_graph(setting.brokers, setting.diameter, seed)
    overlay = Overlay(clock, edges, link, processing=0.002, seed=seed)
    tagger = Tagger(SCHEMA, WIDTH)
    trace = Trace({}, {}, defaultdict(list), {}, {}, 0, length)
    receivers: list[tuple[int, int, int, int]] = []
    for client in range(setting.clients):
        # A few want most of what a fast publisher says; the rest a slice of a slow one.
        if client < 6:
            stream, low, high = client % 2, 0, 849
        else:
            stream = 2 + rng.randrange(48)
            width = rng.choice((60, 150, 400, 800))
            low = rng.randrange(1000 - width)
            high = low + width
        wanted = Filter(SCHEMA, {"stream": ValueSet.of(stream), "level": ValueSet.interval(low, high)})
        # The fast streams reach everybody a little: one message in fifty.
        fast = Filter(SCHEMA, {"stream": ValueSet.of(client // 2 % 2), "level": ValueSet.interval(980, 999)})
        trace.interests[client] = (tagger.filter(wanted), tagger.filter(fast))
        receivers.append((stream, low, high, client // 2 % 2))

        def receive(message: tuple[int, int], client: int = client) -> None:
            trace.arrivals[message[0], client].append((clock.now, message[1]))

        overlay.attach(client, client % setting.brokers, receive)

    wanting: dict[tuple[int, int], dict[int, list[int]]] = {}

    def groups(stream: int, level: int) -> dict[int, list[int]]:
        found = wanting.get((stream, level))
        if found is None:
            clients = [
                c for c, (s, low, high, fast) in enumerate(receivers)
                if (s == stream and low <= level <= high) or (fast == stream and level >= 980)
            ]  # fmt: skip
            found = wanting[stream, level] = overlay.group(clients)
        return found

    bits_of: dict[tuple[int, int], Bits] = {}

    def publish(stream: int) -> None:
        level = rng.randrange(1000)
        key = (stream, level)
        if key not in bits_of:
            bits_of[key] = tagger.event(SCHEMA.event(stream=stream, level=level))
        sequence = len(trace.departures[stream])
        trace.departures[stream].append(clock.now)
        trace.bits[stream].append(bits_of[key])
        trace.published += 1
        overlay.send(stream, groups(stream, level), 120, (stream, sequence))
        if stream < 2:
            rate = 1200.0
        else:
            rate = 1.5 + 23.5 * clock.now / length
        if clock.now < length:
            clock.call_later(rng.expovariate(rate), publish, stream)

    for stream in range(50):
        trace.departures[stream], trace.bits[stream] = [], []
        start = {0: 0.3, 1: 0.63}.get(stream, 0.0) * length
        clock.call_at(start + rng.random() * 0.1, publish, stream)
    with bench.step(f"{setting.name}: {length:g} s of traffic"):
        clock.run(length + 10)
    for publisher, client in trace.arrivals:
        trace.hops[publisher, client] = overlay.hops(publisher, client)
    return trace


def violations(trace: Trace) -> int:
    """Messages that came after a later one of their publisher."""
    count = 0
    for arrivals in trace.arrivals.values():
        top = -1
        for _, sequence in arrivals:
            count += sequence < top
            top = max(top, sequence)
    return count


def headers(trace: Trace, record: int) -> dict[int, list[Header]]:
    """What every message carries, with a record of this many entries."""
    found: dict[int, list[Header]] = {}
    for publisher, departures in trace.departures.items():
        entries: list[bytes] = []
        own = []
        before = departures[0] if departures else 0.0
        for sequence, departure in enumerate(departures):
            previous = int((departure - before) * 1e6)
            kept = entries[-record:] if record else []
            data = b"".join(reversed(kept))
            carried = Record(WIDTH // 8, len(kept), data) if record else NO_RECORD
            own.append(Header(publisher, 1, sequence, departure, previous, carried))
            entries.append(record_entry(previous, trace.bits[publisher][sequence], WIDTH // 8))
            before = departure
        found[publisher] = own
    return found


@dataclass
class Outcome:
    """What one variant came to."""

    late: int
    #: Per pair of publisher and subscriber, mean seconds that its messages were held.
    extra: list[float]
    mean: float


def replay(trace: Trace, sent: dict[int, list[Header]], latch: Callable[[], Latch]) -> Outcome:
    """Give every arrival to the real protocol, pair by pair."""
    late, extra, total, messages = 0, [], 0.0, 0
    for (publisher, client), arrivals in trace.arrivals.items():
        counts = SessionCounts()
        session = Stream(publisher, trace.interests[client], latch(), limits=LIMITS, counts=counts)
        own = sent[publisher]
        delivered = 0
        for arrival, sequence in arrivals:
            due = session.timer()
            while due is not None and due <= arrival:
                delivered += len(session.expire(due)[0])
                due = session.timer()
            delivered += len(session.arrive(own[sequence], None, arrival))
        while (due := session.timer()) is not None:
            delivered += len(session.expire(due)[0])
        assert delivered == len(arrivals), (delivered, len(arrivals))
        late += counts.late
        extra.append(counts.held_time / len(arrivals))
        total += counts.held_time
        messages += len(arrivals)
    return Outcome(late, extra, total / max(1, messages))


def constant_of_equal_effect(
    trace: Trace, sent: dict[int, list[Header]], late: int, steps: int
) -> tuple[float, Outcome]:
    """The shortest constant latch (in seconds) that violates order at most as often, with the same records."""
    low, high = 0.0, 0.08
    best = replay(trace, sent, partial(ConstantLatch, high))
    while best.late > late and high < LIMITS.latch:
        low, high = high, 2 * high
        best = replay(trace, sent, partial(ConstantLatch, high))
    for _ in range(steps):
        middle = (low + high) / 2
        outcome = replay(trace, sent, partial(ConstantLatch, middle))
        if outcome.late <= late:
            high, best = middle, outcome
        else:
            low = middle
    return high, best


def fit(trace: Trace) -> list[list[object]]:
    """How well two Laplace variables describe the differences of delay, by hops."""
    by_hops: dict[int, list[float]] = defaultdict(list)
    for (publisher, client), arrivals in trace.arrivals.items():
        if publisher < 2:
            continue  # where most messages are overtaken, the newest is not a random one
        departures = trace.departures[publisher]
        top, departure, arrival = -1, 0.0, 0.0
        for now, sequence in arrivals:
            if top >= 0 and len(by_hops[trace.hops[publisher, client]]) < 40_000:
                by_hops[trace.hops[publisher, client]].append((now - arrival) - (departures[sequence] - departure))
            if sequence > top:
                top, departure, arrival = sequence, departures[sequence], now
    rows: list[list[object]] = []
    for hops, differences in sorted(by_hops.items()):
        if len(differences) < 1000:
            continue
        x = np.sort(np.asarray(differences))
        b = 2 / 3 * float(np.abs(x).mean())
        model = np.array([two_laplace_cdf(float(each), b) for each in x[:: max(1, len(x) // 2000)]])
        empirical = np.arange(len(x))[:: max(1, len(x) // 2000)] / len(x)
        tails = [float((x > b * DelayModel(p, 25)._factor).mean()) for p in (0.05, 0.2)]
        rows.append([hops, len(x), b * 1e3, float(np.abs(model - empirical).max()), *tails])
    return rows


def one_setting(setting: Setting, bench: Bench, report: Report, *, main: bool) -> None:
    length = bench.size(setting.source_length / 20, quick=0.15)
    trace = simulate(setting, length, 7, bench)
    without = violations(trace)
    messages = sum(map(len, trace.arrivals.values()))
    key = setting.name.replace(" ", "_")
    report.figure(f"{key}_deliveries", messages, "messages")
    report.figure(f"{key}_violations_without", without, "violations")
    rows: list[list[object]] = [
        ["none", without, 0.0, 0.0, 0.0, 0.0, ""],
    ]
    curves: dict[str, list[float]] = {}
    outcomes: dict[str, Outcome] = {}
    for record in (0, 5, 25):
        with bench.step(f"{setting.name}: record of {record}"):
            sent = headers(trace, record)
            for p_late in (0.05, 0.2):
                outcomes[f"P-{p_late}-{record}"] = replay(trace, sent, partial(DelayModel, p_late, 25, guarded=False))
            outcomes[f"G-{P_LATE}-{record}"] = replay(trace, sent, partial(DelayModel, P_LATE, 25))
    # A constant latch reads the same records: what it need not wait for, it does not.
    sent = headers(trace, 25)
    equals = {}
    for name in ("P-0.05-25", f"G-{P_LATE}-25"):
        with bench.step(f"{setting.name}: constant latch equal to {name}"):
            seconds, outcome = constant_of_equal_effect(trace, sent, outcomes[name].late, bench.size(6, quick=2))
            equals[name] = f"CST-{seconds * 1e3:.3g}"
            outcomes[equals[name]] = outcome
    for name, outcome in outcomes.items():
        spread = quantiles(outcome.extra, (0.5, 0.9))
        avoided = 1 - share(outcome.late, without)
        curves[name] = [float(each) * 1e3 for each in np.quantile(outcome.extra, np.linspace(0, 1, 21))]
        source = {
            "P-0.05-25": "> 99 %" if main else "99.5 %; p50 ~0, p90 < 190 ms",
            "P-0.05-0": "" if main else "up to 960 ms",
            "P-0.2-25": "91 %" if main else "",
        }.get(name, "")
        rows.append(
            [name, outcome.late, avoided * 100, outcome.mean * 1e3, spread["p50"] * 1e3, spread["p90"] * 1e3, source]
        )
    report.table(
        f"{setting.name}: {messages:,} deliveries; the source saw {setting.source_violations:,} violations in "
        f"{setting.source_length:g} s, here {without * setting.source_length / length:,.0f} per that length",
        ["variant", "violations", "avoided %", "extra ms", "p50 of pairs", "p90 of pairs", "source"],
        rows,
    )
    bench.plot_lines(
        f"fifo-{key}", [5 * i for i in range(21)], curves,
        title=f"Extra delay, {setting.name}", xlabel="percentile of pairs", ylabel="ms",
    )  # fmt: skip
    for label, name in (("source_rule", "P-0.05-25"), ("ours", f"G-{P_LATE}-25")):
        chosen, constant = outcomes[name], outcomes[equals[name]]
        spread = quantiles(chosen.extra, (0.5, 0.9))
        avoided = (1 - share(chosen.late, without)) * 100
        stem = f"{key}_{label}"
        report.figure(f"{stem}_constant_equal_ms", float(equals[name][4:]), "ms")
        report.figure(f"{stem}_extra_ms", chosen.mean * 1e3, "ms")
        report.figure(f"{stem}_extra_constant_ms", constant.mean * 1e3, "ms")
        report.figure(f"{stem}_extra_p50_ms", spread["p50"] * 1e3, "ms")
        report.figure(f"{stem}_extra_p90_ms", spread["p90"] * 1e3, "ms")
        if label == "ours":
            report.goal(f"{key}_avoided", avoided)
            report.goal(f"{key}_extra_over_constant", share(chosen.mean, constant.mean))
        else:
            report.figure(f"{stem}_avoided", avoided, "%")
    fitted = fit(trace)
    report.table(
        f"{setting.name}: two Laplace variables against the differences of delay",
        ["links", "samples", "b ms", "largest error of F", "beyond F⁻¹(0.95)", "beyond F⁻¹(0.8)"],
        fitted,
    )
    report.figure(f"{key}_beyond_model_0.95", most(float(str(row[4])) for row in fitted), "share, wanted 0.05")
    report.goal(f"{key}_fit_error", most(float(str(row[3])) for row in fitted))


def cost(bench: Bench, report: Report) -> None:
    """Processor time per message and memory per publisher, for messages in order and with gaps."""
    count = bench.size(100_000, quick=1_000)
    tagger = Tagger(SCHEMA, WIDTH)
    wanted = tagger.filter(Filter(SCHEMA, {"stream": ValueSet.of(1), "level": ValueSet.interval(0, 99)}))
    mine = tagger.event(SCHEMA.event(stream=1, level=50))
    other = tagger.event(SCHEMA.event(stream=2, level=950))
    rng = Random(1)

    def run(gaps: bool, record: int) -> float:
        carried = Record.of([(10, other)] * record, WIDTH // 8) if record else NO_RECORD
        step = 3 if gaps else 1
        made = [Header(1, 1, i * step, i * 1e-5, 10, carried) for i in range(count)]
        times = [i * 1e-5 + 0.05 + rng.random() * 1e-5 for i in range(count)]

        def go() -> None:
            session = Stream(1, (wanted,), DelayModel(0.05, 25), limits=LIMITS)
            for header, now in zip(made, times, strict=True):
                due = session.timer()
                if due is not None and due <= now:
                    session.expire(now)
                session.arrive(header, None, now)

        return cpu(go, bench.size(3, quick=1)) / count * 1e6

    assert mine & wanted == wanted
    for name, gaps, record in (("in_order", False, 5), ("gaps_known", True, 5), ("gaps_unknown", True, 0)):
        micros = run(gaps, record)
        report.figure(f"cpu_us_per_message_{name}", micros, "µs")
        report.figure(f"core_share_at_100k_{name}", micros / 10 * 100, "%")
    gc.collect()
    tracemalloc.start()
    sessions = bench.size(1000, quick=100)
    before = tracemalloc.get_traced_memory()[0]
    kept = []
    for publisher in range(sessions):
        session = Stream(publisher, (wanted,), DelayModel(0.05, 25))
        for i in range(60):
            session.arrive(Header(publisher, 1, i, i * 0.01, 10_000), None, i * 0.01 + rng.random() * 0.001)
        kept.append(session)
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    report.figure("memory_per_session", used / sessions, "bytes")


def adaptivity(bench: Bench, report: Report) -> None:
    """One pair whose publication rate changes: the latch follows."""
    rng = Random(3)
    session = Stream(1, (0,), DelayModel(0.05, 25), limits=LIMITS)
    queue: list[tuple[float, int, float]] = []
    now, sequence = 0.0, 0
    length = bench.size(60.0, quick=2.0)
    while now < length:
        rate = 20 if now % 20 < 10 else 400
        now += rng.expovariate(rate)
        heappush(queue, (now + 0.1 + sum(rng.expovariate(250) for _ in range(3)), sequence, now))
        sequence += 1
    xs: list[float] = []
    chance: list[float] = []
    previous = 0.0
    while queue:
        arrival, number, departure = heappop(queue)
        apart = max(departure - previous, 0.0)
        previous = departure
        session.arrive(Header(1, 1, number, departure, int(apart * 1e6)), None, arrival)
        if number % 10 == 0:
            xs.append(arrival)
            chance.append(session.model.violation(apart))  # type: ignore[attr-defined]
    slow = [c for x, c in zip(xs, chance, strict=True) if x % 20 < 9]
    fast = [c for x, c in zip(xs, chance, strict=True) if 11 < x % 20 < 19]
    report.figure("violation_probability_slow", float(np.mean(slow)), "")
    report.figure("violation_probability_fast", float(np.mean(fast)) if fast else float("nan"), "")
    bench.plot_lines("fifo-adaptivity", xs, {"P(violation)": chance}, xlabel="s", ylabel="probability")


def run(bench: Bench) -> Report:
    report = Report(GOALS)
    started = perf_counter()
    small = Setting("8 brokers", 8, 3, 400, 300.0, 173_000)
    large = Setting("46 brokers", 46, 15, 460, 240.0, 115_000)
    one_setting(small, bench, report, main=True)
    one_setting(large, bench, report, main=False)
    adaptivity(bench, report)
    cost(bench, report)
    report.note(f"one core, {perf_counter() - started:.0f} s; a twentieth of the source's length at its full rates")
    report.note("extra delay is the time that messages were really held, averaged per pair as in the source")
    return report
