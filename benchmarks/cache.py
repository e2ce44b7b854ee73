"""Event caches: losses with and without them, added latency, throughput, memory and disk.

A fabric (the testbed: 10 switches, 8 hosts), a cache, a publisher and subscribers are processes that meet through
sockets. Three workloads run at the same time, each in a category of its own: a greedy source (2,000 events/s), 100
events/s with bursts up to 2,000, and Poisson arrivals with 750 events/s, 100,000 events each. Their subscribers take
1,000 events/s. Beside each is one *without* a cache that takes as much and keeps a tenth of a second's worth.

*Added latency* is that of events that pass a cache which goes on serving, less that of the plain path in the same run.
*Throughput* is one cache's own work from its socket to its socket (`_cache_pump`), one event in each datagram. It is
compared with a process that reads the same datagrams and sends each of them to every subscriber. A cache puts several
events for a subscriber into one packet; the figures `singly` are without that.

*Memory* is what the system says that a process has more of when events wait in it (`_cache_store`), all of them in
memory or nearly all on disk.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import _cache_worker as worker
from benchmarks._cache_pump import Pump, Sockets, packets, resend
from benchmarks.fabric import Worker
from benchmarks.harness import Bench, Report
from sievenet.cache.record import packed
from sievenet.cache.ring import Ring
from sievenet.cache.spill import Spill

WORKLOADS = ("greedy", "bursts", "poisson")
GOALS = {
    **{f"lost_with_cache_{name}": "== 0 events" for name in WORKLOADS},
    "added_ms_at_100": "< 6 ms",
    "added_ms_at_1000": "< 8 ms",
    "rate_used_while_active": ">= 0.95",
    "events_per_s_to_1": "> 180,000 events/s",
    "events_per_s_to_100": "> 164,000 events/s",
    "events_per_s_to_1000": "> 99,000 events/s",
    **{f"over_resending_to_{n}": ">= 0.6" for n in (1, 100, 1000)},
}


class _Worker(Worker):
    module = "benchmarks._cache_worker"


def run(bench: Bench) -> Report:
    report = Report(GOALS)
    with ExitStack() as stack:
        with bench.step("a fabric, a cache, a publisher, two subscribers"):
            fabric = _Worker(stack, "fabric")
            url = fabric.ready()["url"]
            cache, publisher = _Worker(stack, "cache", url), _Worker(stack, "publisher", url)
            protected, plain = (_Worker(stack, "subscriber", url) for _ in range(2))
            for each in (cache, publisher, protected, plain):
                each.ready()
        _losses(bench, report, publisher, protected, plain)
        _latency(bench, report, cache, publisher, protected, plain)
    _throughput(bench, report)
    _storage(bench, report)
    report.note("The three workloads, the fabric and both kinds of subscribers share the machine's cores.")
    return report


def _losses(bench: Bench, report: Report, publisher: Worker, protected: Worker, plain: Worker) -> None:
    count = bench.size(100_000, quick=1_500)
    for name in WORKLOADS:
        # An application can take a little more than the limit that it gives.
        protected.ask("subscribe", name=name, rate=1.2 * worker.LIMIT, limit=worker.LIMIT)
        plain.ask("subscribe", name=name, rate=worker.LIMIT, limit=0)
    with bench.step(f"publishing 3 x {count:,} events"):
        publisher.ask("publish", workloads={name: worker.times(name, count).tolist() for name in WORKLOADS})
    with bench.step("until everybody is back at plain delivery"):
        end = time.monotonic() + max(30.0, count / worker.LIMIT)
        found = protected.ask("look")
        while time.monotonic() < end:
            if all(found[name]["delivered"] >= count and found[name]["state"] == "idle" for name in WORKLOADS):
                break
            time.sleep(0.5)
            found = protected.ask("look")
    without, rows = plain.ask("look"), []
    for name in WORKLOADS:
        one = found[name]
        lost = count - one["different"]
        report.goal(f"lost_with_cache_{name}", lost)
        report.figure(f"lost_without_{name}", (count - without[name]["different"]) / count, "share")
        report.figure(f"twice_{name}", one["delivered"] - one["different"], "events")
        report.figure(f"disorder_{name}", one["disorder"], "events")
        report.figure(f"activations_{name}", one["activations"])
        report.figure(f"back_after_s_{name}", one["back_s"], "s")
        share = f"{(count - without[name]['different']) / count:.2%}"
        rows.append([name, share, lost, one["activations"], one["cached"], one["mean"], one["back_s"]])
    columns = ["workload", "lost without", "lost with", "activations", "cached", "mean latency, s", "back after, s"]
    report.table(f"{count:,} events, limit {worker.LIMIT:,.0f}/s", columns, rows)
    greedy = found["greedy"]
    if greedy["span_s"]:
        report.goal("rate_used_while_active", greedy["delivered"] / greedy["span_s"] / worker.LIMIT)


def _latency(bench: Bench, report: Report, cache: Worker, publisher: Worker, protected: Worker, plain: Worker) -> None:
    protected.ask("subscribe", name="latency", rate=1e6, limit=2_000)
    plain.ask("subscribe", name="latency", rate=1e6, limit=0)
    cache.ask("hold", on=True)
    with bench.step("having the cache take over"):
        publisher.ask("publish", workloads={"latency": [0.0] * 600})
        _until(protected, "latency", 600)
    first = 600
    for rate in (100, 1_000):
        count = bench.size(min(3_000, 10 * rate), quick=100)
        for each in (protected, plain):
            each.ask("reset")
        publisher.ask("publish", workloads={"latency": [i / rate for i in range(count)]}, first=first)
        first += count
        with_cache = _until(protected, "latency", count)
        plainly = plain.ask("look")["latency"]
        if with_cache["state"] == "active" and plainly["p50"] is not None:
            report.goal(f"added_ms_at_{rate}", (with_cache["p50"] - plainly["p50"]) * 1e3)
            report.figure(f"plain_ms_at_{rate}", plainly["p50"] * 1e3, "ms")
    cache.ask("hold", on=False)


def _until(who: Worker, name: str, count: int) -> dict[str, Any]:
    end = time.monotonic() + 20
    found: dict[str, Any] = who.ask("look")[name]
    while found["delivered"] < count and time.monotonic() < end:
        time.sleep(0.1)
        found = who.ask("look")[name]
    return found


def _throughput(bench: Bench, report: Report) -> None:
    rows = []
    for subscribers in (1, 100, 1000):
        # About as many events go out each time.
        count = max(64, bench.size(60_000, quick=4_000) // subscribers)
        best = {"cache": 0.0, "resending": 0.0, "singly": 0.0}
        sockets = Sockets()
        pumps = {"cache": Pump(sockets, subscribers), "singly": Pump(sockets, subscribers, together=False)}
        for turn in bench.track(range(bench.size(7, quick=2)), f"{subscribers} subscribers"):
            data = packets(count, turn * count)
            for name in best:
                sockets.fill(data)
                begin = time.perf_counter()
                sent = pumps[name].run() if name in pumps else resend(sockets, subscribers)
                best[name] = max(best[name], sent / (time.perf_counter() - begin))
        sockets.close()
        report.goal(f"events_per_s_to_{subscribers}", best["cache"])
        report.goal(f"over_resending_to_{subscribers}", best["cache"] / best["resending"])
        report.figure(f"singly_over_resending_to_{subscribers}", best["singly"] / best["resending"])
        rows.append([subscribers, *best.values(), best["cache"] / best["resending"]])
    report.table("events/s sent in all", ["subscribers", *best, "cache/resending"], rows)


def _stored(count: int, memory: int, *folder: str) -> dict[str, int]:
    """What events that wait cost a process that has nothing else to do."""
    order = [sys.executable, "-m", "benchmarks._cache_store", str(count), str(memory), *folder]
    found: dict[str, int] = json.loads(subprocess.run(order, check=True, capture_output=True, text=True).stdout)
    return found


def _storage(bench: Bench, report: Report) -> None:
    count = bench.size(400_000, quick=20_000)
    with tempfile.TemporaryDirectory() as folder:
        kept, spilled = _stored(count, 1 << 33), _stored(count, 1 << 20, folder)
    report.figure("memory_per_queued_event", kept["grown"] / kept["waiting"], "bytes")
    report.figure("memory_per_spilled_event", spilled["grown"] / spilled["waiting"], "bytes")
    report.figure("disk_per_spilled_event", spilled["disk"] / spilled["waiting"], "bytes")
    report.figure("bytes_of_an_event", kept["size"], "bytes")
    records = [packed(1, 1, i, 0, b"x" * 32) for i in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        durable = Ring(seconds=1e9, max_bytes=1 << 24, spill=Spill(Path(folder), 1 << 33), durable=True)
        begin = time.perf_counter()
        for at in range(0, count, 256):
            durable.append(records[at : at + 256], 0.0)
            durable.trim(0.0)
        spent = time.perf_counter() - begin
        report.figure("spill_events_per_s", count / spent, "events/s")
        report.figure("spill_mb_per_s", durable.disk / spent / 1e6, "MB/s")
