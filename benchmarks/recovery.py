"""Recovery over 12 and 46 brokers that lose 1 % and 0.1 % per link: losses left, time, overhead.

The source's settings in virtual time with the real protocol: links of 25-75 ms (± 5 ms, in order) that lose messages,
requests and repairs alike; 6 publishers and 54 subscribers on 12 brokers (diameter 5), 10 and 220 on 46 (diameter 11);
rates that jump between 20 and 500 (250) messages/s; match probabilities up to 0.1, half of the messages with few
receivers; 10 attributes in Bloom filters of 256 bits. "peers" is what the source has (record, requests, repairs from
other subscribers); "log" adds the publisher's bounded log, "digest" its periodic digests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks._cost import messages, per_message, per_session
from benchmarks.harness import Bench, Report, quantiles, share
from sievenet.content import Attribute, Filter, Schema, Subscription, ValueSet
from sievenet.simulation import Pipe, VirtualClock
from sievenet.transport.actions import Deliver, Gap
from sievenet.transport.bloom import Tagger
from sievenet.transport.options import Publishing, Recover
from sievenet.transport.receiver import Receiver
from sievenet.transport.sender import Sender
from sievenet.transport.simulation import Overlay, World, low_degree_graph

#: What it should come to.
GOALS = {
    **{f"{brokers}_brokers_fewer_losses": f"> {source}" for brokers, source in ((12, 2), (46, 3))},
    **{f"{brokers}_brokers_overhead_vs_record_10": "<= 1" for brokers in (12, 46)},
    **{f"{brokers}_brokers_recovered": "== 100 %" for brokers in (12, 46)},
    "46_brokers_rare_fewer_losses": "> 8",
}

WIDTH = 256
SCHEMA = Schema("update", tuple(Attribute(f"a{i}", "int", 0, 1023) for i in range(10)))
PUBLISHER = 1_000_000
#: Seconds before anything is counted: until then subscribers get to know the publishers.
WARM = 1.5


@dataclass
class Setting:
    """A network of the source."""

    name: str
    brokers: int
    diameter: int
    publishers: int
    subscribers: int
    fastest: float


@dataclass
class Outcome:
    """What one run came to."""

    expected: int = 0
    missing: int = 0
    expected_lost_of_five: tuple[int, int] = (0, 0)
    receivers: list[int] = field(default_factory=list)
    recovery: list[float] = field(default_factory=list)
    answers: list[float] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    #: Deliveries that were due, did not come at first, and came in the end.
    recovered: int = 0
    #: What receivers themselves say they noticed, and gave up.
    detected: int = 0
    given_up: int = 0
    messages: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    unduplicated: float = 0.0
    unduplicated_repairs: float = 0.0
    hit_ratio: float = 0.0
    cache: tuple[float, float, float] = (0.0, 0.0, 0.0)
    #: Bytes over all links.
    carried: int = 0

    @property
    def recovered_share(self) -> float:
        """Of the deliveries that were due and did not come at first, how many came in the end."""
        return share(self.recovered, self.recovered + self.missing)


def simulate(
    setting: Setting,
    length: float,
    loss: float,
    record: int,
    *,
    recover: bool,
    log: int = 0,
    digest: float | None = None,
) -> Outcome:
    rng = Random(11)
    clock = VirtualClock()
    noise = Random(5)

    def link(_a: int, _b: int) -> Pipe:
        return Pipe(clock, noise, delay=rng.uniform(0.025, 0.075), wander=0.005, loss=loss)

    overlay = Overlay(clock, low_degree_graph(setting.brokers, setting.diameter, 3), link, processing=0.001, seed=9)
    outcome = Outcome()
    #: (publisher, sequence) → when it was published, and who has not got it yet.
    born: dict[tuple[int, int], float] = {}
    open_: dict[tuple[int, int], set[int]] = {}
    wanted_by: dict[tuple[int, int], int] = {}
    lost_of: Counter[tuple[int, int]] = Counter()
    asked: dict[tuple[int, int], float] = {}
    answered: dict[tuple[int, int], float] = {}
    requests: Counter[tuple[int, int, int]] = Counter()
    repairs: Counter[tuple[int, int]] = Counter()

    def delivered(client: int, message: Deliver) -> None:
        key = (message.publisher, message.sequence)
        if client not in open_.get(key, ()):
            return
        open_[key].discard(client)
        delay = clock.now - born[key]
        if message.recovered:
            outcome.recovery.append(delay)
            outcome.recovered += 1
            lost_of[key] += 1
        else:
            outcome.delays.append(delay)

    def gone(_client: int, _gap: Gap) -> None:
        outcome.given_up += 1

    world = World(overlay, delivered=delivered, gap=gone)
    tagger = Tagger(SCHEMA, WIDTH)
    wants: list[set[int]] = []
    options = Recover(cache_min=5, cache_max=300) if recover else None
    topics = 200
    for client in range(setting.subscribers):
        # Interests are sets of topics, each one message in 200: match probabilities up to 0.1. Half of the topics have
        # few takers, the other half are crowded.
        size = rng.choice((2, 4, 6, 8, 10, 12, 14, 16, 20))
        popular = 0.7 if setting.brokers < 20 else 0.95
        own = {rng.randrange(100) if rng.random() < popular else 100 + rng.randrange(100) for _ in range(size)}
        wants.append(own)
        wish = Subscription([Filter(SCHEMA, {"a0": ValueSet.of(*own)})])
        bits = tagger.subscription(wish)

        def exact(_header: object, body: bytes, own: frozenset[int] = frozenset(own)) -> bytes | None:
            return body if int.from_bytes(body[:2], "big") in own else None

        receiver = Receiver(client + 1, bits, recover=options, width=WIDTH, decode_item=exact, rng=Random(client))
        world.add_receiver(client + 1, client % setting.brokers, receiver, digests=digest is not None)
    matching: dict[int, list[int]] = {}

    def matched(value: int) -> list[int]:
        found = matching.get(value)
        if found is None:
            found = matching[value] = [c + 1 for c, own in enumerate(wants) if value in own]
        return found

    publishing = Publishing(record=record, width=WIDTH, log=log, digest=digest)
    drawn = Random(21)

    def publish(client: int) -> None:
        value = drawn.randrange(topics)
        # The other nine attributes matter to nobody's filter; their tags fill the Bloom filter all the same.
        values = [value, *(drawn.randrange(1024) for _ in range(9))]
        bits = tagger.event(SCHEMA.event_of({f"a{i}": v for i, v in enumerate(values)}))
        clients = matched(value)
        key = (client, world.senders[client].statistics().published)
        born[key] = clock.now
        if clock.now > WARM:
            open_[key] = set(clients)
            wanted_by[key] = len(clients)
            outcome.expected += len(clients)
            outcome.receivers.append(len(clients))
        body = value.to_bytes(2, "big") + bytes(100)
        world.publish(client, bits, body, overlay.group(clients))
        # A spike of two seconds out of every ten.
        fast = (clock.now + 3 * client) % 10 < 2
        rate = setting.fastest / 2 if fast else 20 + 20 * ((client * 7) % 3)
        if clock.now < length:
            clock.call_later(drawn.expovariate(rate), publish, client)

    original = world._send

    def counted(client: int, send: object) -> None:
        data: bytes = send.data  # type: ignore[attr-defined]
        kind = data[0] & 15
        if kind == 3:
            key = (int.from_bytes(data[2:10], "big"), int.from_bytes(data[14:22], "big"))
            asked.setdefault(key, clock.now)
            requests[(*key, data[30])] += 1
        elif kind == 4:
            key = (int.from_bytes(data[20:28], "big"), int.from_bytes(data[32:40], "big"))
            answered.setdefault(key, clock.now)
            repairs[key] += 1
        original(client, send)  # type: ignore[arg-type]

    world._send = counted  # type: ignore[method-assign]
    for i in range(setting.publishers):
        client = PUBLISHER + i
        world.add_sender(client, (5 * i) % setting.brokers, Sender(client, publishing, epoch=1, rng=Random(i)))
        clock.call_at(rng.random() * 0.1, publish, client)
    clock.run(length + 20)
    outcome.missing = sum(map(len, open_.values()))
    many = [key for key, count in wanted_by.items() if count >= 5]
    outcome.expected_lost_of_five = (sum(lost_of[k] for k in many), sum(lost_of[k] + len(open_[k]) for k in many))
    outcome.answers = [answered[k] - t for k, t in asked.items() if k in answered]
    receivers = list(world.receivers.values())
    outcome.detected = sum(r.counts.losses for r in receivers)
    outcome.messages, outcome.bytes = world.messages, world.bytes
    outcome.unduplicated = sum(1 for n in requests.values() if n == 1) / max(1, len(requests))
    outcome.unduplicated_repairs = sum(1 for n in repairs.values() if n == 1) / max(1, len(repairs))
    outcome.hit_ratio = len(answered.keys() & asked.keys()) / max(1, len(asked))
    sizes = [size for r in receivers if r.cache is not None for size in r.cache.sizes()]
    if sizes:
        outcome.cache = (min(sizes), float(np.mean(sizes)), max(sizes))
    outcome.carried = sum(link.bytes for link in overlay.links.values())
    return outcome


def one_setting(setting: Setting, bench: Bench, report: Report) -> None:
    length = bench.size(6.0 if setting.brokers > 20 else 16.0, quick=WARM + 0.2)
    key = setting.name.replace(" ", "_")
    variants: list[tuple[str, float, dict[str, Any]]] = [("none", 0.01, {"record": 0, "recover": False})]
    records: tuple[int, ...] = bench.size((1, 2, 5, 10), (10,))
    variants += [(f"peers, record {k}", 0.01, {"record": k, "recover": True}) for k in records]
    variants += [("record 2, log, digests", 0.01, {"record": 2, "recover": True, "log": 8192, "digest": 0.5})]
    if setting.brokers > 20:
        variants += [
            ("none, 0.1 %", 0.001, {"record": 0, "recover": False}),
            ("peers, record 10, 0.1 %", 0.001, {"record": 10, "recover": True}),
            ("record 2, log, digests, 0.1 %", 0.001, {"record": 2, "recover": True, "log": 8192, "digest": 0.5}),
        ]
    outcomes: dict[str, Outcome] = {}
    for name, loss, options in variants:
        with bench.step(f"{setting.name}: {name}"):
            outcomes[name] = simulate(setting, length, loss, **options)
    rows: list[list[object]] = []
    plain = outcomes["none"]
    for name, outcome in outcomes.items():
        base = outcomes["none, 0.1 %" if name.endswith("0.1 %") else "none"]
        spent = quantiles(outcome.recovery, (0.5, 0.9)) if outcome.recovery else {"p50": 0.0, "p90": 0.0}
        answers = quantiles(outcome.answers, (0.8,))["p80"] if outcome.answers else 0.0
        rows.append(
            [
                name, outcome.missing, base.missing / max(1, outcome.missing), spent["p50"] * 1e3, spent["p90"] * 1e3,
                answers * 1e3, outcome.unduplicated * 100, outcome.unduplicated_repairs * 100,
                outcome.hit_ratio * 100, outcome.cache[1], outcome.cache[2],
                (outcome.carried / base.carried - 1) * 100,
            ]
        )  # fmt: skip
    report.table(
        f"{setting.name}: {plain.expected:,} deliveries due, median {np.median(plain.receivers):g} receivers",
        ["variant", "lost", "fewer ×", "recovery p50 ms", "p90", "answer p80 ms", "single requests %",
         "single repairs %", "hit %", "cache mean", "max", "extra bytes %"],
        rows,
    )  # fmt: skip
    sizes = [int(name.split()[-1]) for name in outcomes if name.startswith("peers") and "%" not in name]
    bench.plot_lines(
        f"recovery-{key}", [0, *sizes],
        {"losses left": [plain.missing, *(outcomes[f"peers, record {k}"].missing for k in sizes)]},
        title=setting.name, xlabel="publication record", ylabel="messages",
    )  # fmt: skip
    peers, ours = outcomes["peers, record 10"], outcomes["record 2, log, digests"]
    curves = {}
    for label, values in (("original", ours.delays), ("recovered", ours.recovery), ("request to repair", ours.answers)):
        if values:
            curves[label] = [float(v) * 1e3 for v in np.quantile(values, np.linspace(0, 1, 21))]
    bench.plot_lines(
        f"recovery-{key}-delay", [5 * i for i in range(21)], curves, xlabel="percentile", ylabel="ms", log="y"
    )
    source = 2 if setting.brokers < 20 else 3
    report.figure(f"{key}_lost_without", plain.missing, "messages")
    report.figure(f"{key}_peers_fewer", plain.missing / max(1, peers.missing), f"×, source {source}")
    report.figure(f"{key}_peers_extra_bytes", (peers.carried / plain.carried - 1) * 100, "%")
    report.figure(f"{key}_extra_bytes", (ours.carried / plain.carried - 1) * 100, "%")
    report.figure(f"{key}_hit_ratio", ours.hit_ratio * 100, "%")
    report.figure(f"{key}_single_requests", ours.unduplicated * 100, f"%, source {90 if source == 2 else 80}")
    report.figure(f"{key}_single_repairs", ours.unduplicated_repairs * 100, f"%, source {80 if source == 2 else 70}")
    report.figure(f"{key}_recovery_p50_ms", float(np.median(ours.recovery)) * 1e3 if ours.recovery else 0.0, "ms")
    shift = (float(np.median(ours.delays)) - float(np.median(plain.delays))) * 1e3
    report.figure(f"{key}_delay_added_ms", shift, "ms, source 25")
    found, lost = peers.expected_lost_of_five
    report.figure(f"{key}_peers_recovered_of_five", found / max(1, lost) * 100, "%, source 75")
    report.goal(f"{key}_fewer_losses", plain.missing / max(1, ours.missing))
    report.goal(f"{key}_overhead_vs_record_10", ours.carried / peers.carried)
    # By what was published and wanted, not by what receivers noticed: a loss that nobody notices is a loss.
    report.goal(f"{key}_recovered", 100 * ours.recovered_share)
    report.figure(f"{key}_unrecovered", ours.missing, "deliveries")
    report.figure(f"{key}_noticed", ours.detected, "losses that receivers noticed, those not counted included")
    report.figure(f"{key}_given_up", ours.given_up, "losses that receivers told of as gaps")
    if setting.brokers > 20:
        rare, fixed = outcomes["none, 0.1 %"], outcomes["record 2, log, digests, 0.1 %"]
        by_peers = outcomes["peers, record 10, 0.1 %"]
        report.figure(f"{key}_rare_peers_fewer", rare.missing / max(1, by_peers.missing), "×, source 8")
        report.goal(f"{key}_rare_fewer_losses", rare.missing / max(1, fixed.missing))


def cost(bench: Bench, report: Report) -> None:
    """Processor time of recovery per message received, with nothing lost and with one in a hundred."""
    count = bench.size(50_000, quick=3_000)
    tagger = Tagger(SCHEMA, WIDTH)
    event = SCHEMA.event_of({f"a{i}": 5 for i in range(10)})
    bits = tagger.event(event)
    wanted = (tagger.filter(Filter(SCHEMA, {"a0": ValueSet.of(5)})),)
    options, repeats = Publishing(record=5, width=WIDTH), bench.size(3, quick=1)
    made = messages(count, bits, options, 100)

    def receiver(recover: Recover | None) -> Callable[[], Receiver]:
        return lambda: Receiver(1, wanted, recover=recover, width=WIDTH)

    base = per_message(receiver(None), made, repeats)
    report.figure("cpu_us_per_message_detection", base, "µs, header and loss detection alone")
    for name, lose in (("no_loss", 0), ("1_percent", 100)):
        micros = per_message(receiver(Recover()), made, repeats, lose)
        report.figure(f"cpu_us_per_message_{name}", micros, "µs, header, detection and recovery")
        report.figure(f"core_share_at_100k_{name}", micros / 10 * 100, "%")
    kept = Recover(cache_min=5, cache_max=5)
    memory = per_session(receiver(kept), bits, options, bench.size(500, quick=50))
    report.figure("memory_per_session", memory, "bytes, five cached messages of 100 bytes and their records included")


def run(bench: Bench) -> Report:
    report = Report(GOALS)
    started = perf_counter()
    one_setting(Setting("12 brokers", 12, 5, bench.size(6, 2), 54, 500.0), bench, report)
    one_setting(Setting("46 brokers", 46, 11, bench.size(10, 1), bench.size(220, 46), 250.0), bench, report)
    cost(bench, report)
    report.note(f"one core, {perf_counter() - started:.0f} s; counted after {WARM:g} s of getting to know each other")
    report.note("extra bytes: over all links, against no record and no recovery; the source's is record 10 with peers")
    return report
