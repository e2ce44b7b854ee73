"""A thousand subscribers by server-sent events on one daemon, and what fifty open pages cost.

A daemon (testbed topology) with its web server, a publisher with the client library, and a process that reads all
streams, on loopback. *One filter*: all streams have the same filter, so each event is written a thousand times.
*A filter each*: every event goes to one of a thousand streams. *Plain* is the server that one would write instead:
aiohttp with a queue for each client, which is given finished texts, filters nothing and remembers nothing. Latency is
from before `publish` to when the reading process has the bytes. Memory is what the daemon's process grows by, for each
stream.

*Pages*: events per second from publisher to subscriber by the client library, without and with fifty streams of the
page's live view, in turn.
"""

from __future__ import annotations

import json
import time
from contextlib import ExitStack

from benchmarks import fabric
from benchmarks.harness import Bench, Report, middle, quantiles

GOALS = {
    "page_cost": "<= 0.05",
    "events_missed": "<= 0",
    "deliveries_over_plain": ">= 1",
}
PAGES = 50


class Worker(fabric.Worker):
    """A process of this benchmark."""

    module = "benchmarks._web_worker"


def run(bench: Bench) -> Report:
    report = Report(GOALS)
    with ExitStack() as stack:
        daemon = Worker(stack, "daemon")
        found = daemon.ready()
        readers, publisher, plain = (
            Worker(stack, "readers"),
            Worker(stack, "publisher", found["url"]),
            Worker(stack, "plain"),
        )
        readers.ready(), publisher.ready()
        measure_streams(bench, report, daemon, readers, publisher, found["port"], plain, plain.ready()["port"])
        measure_pages(bench, report, stack, daemon, readers, found)
    report.note("all processes share the cores of one machine: the one that reads takes about as much as the daemon")
    return report


def measure_streams(
    bench: Bench,
    report: Report,
    daemon: Worker,
    readers: Worker,
    publisher: Worker,
    port: int,
    plain: Worker,
    plain_port: int,
) -> None:
    count = bench.size(1000, quick=20)
    missed = 0
    rows, rates = [], {}
    shapes = (
        ("one filter", "tick", bench.size(300, quick=20), count),
        ("a filter each", "tick: x = N", bench.size(30_000, quick=500), 1),
    )
    for name, wanted, events, each in shapes:
        key = name.replace(" ", "_")
        before = daemon.ask("status")["memory"]
        with bench.step(f"{count:,} streams, {name}"):
            begin = time.perf_counter()
            readers.ask("open", count=count, port=port, path="/subscribe?filter=FILTER", filter=wanted)
            opened = count / (time.perf_counter() - begin)
        grown = (daemon.ask("status")["memory"] - before) / count
        expected = events * each
        found = []
        for _ in bench.track(range(bench.size(5, quick=1)), f"as fast as it goes, {name}"):
            readers.tell("wait", count=expected, patience=3.0)
            begin = publisher.ask("flood", count=events, spread=count)["begin"]
            answer = readers.answer()
            missed += answer["missed"] + max(0, expected - answer["events"] - answer["missed"])
            found.append(answer["events"] / max(1e-3, answer["last"] - begin))
        rates[name] = middle(found)
        latencies = []
        steady, pace = (bench.size(250, quick=20), 25) if each > 1 else (bench.size(2000, quick=50), 500)
        for _ in bench.track(range(bench.size(3, quick=1)), f"{pace} events/s, {name}"):
            readers.tell("wait", count=steady * each, latencies=True, patience=3.0)
            publisher.ask("steady", count=steady, rate=pace, spread=count)
            latencies.append(quantiles(readers.answer()["latencies"] or [0.0], (0.5, 0.99)))
        p50, p99 = (middle(each[mark] for each in latencies) for mark in ("p50", "p99"))
        readers.ask("close")
        rows.append(
            [
                name,
                f"{rates[name] / each:,.0f}",
                f"{rates[name]:,.0f}",
                pace,
                f"{p50 * 1e3:.1f}",
                f"{p99 * 1e3:.1f}",
                f"{grown / 1024:.0f}",
                f"{opened:,.0f}",
            ]
        )
        report.figure(f"events_per_s_{key}", rates[name] / each, "events/s")
        report.figure(f"deliveries_per_s_{key}", rates[name], "deliveries/s")
        report.figure(f"p50_ms_{key}", p50 * 1e3, "ms")
        report.figure(f"p99_ms_{key}", p99 * 1e3, "ms")
        report.figure(f"kib_per_stream_{key}", grown / 1024, "KiB")
    with bench.step("a plain server"):
        readers.ask("open", count=count, port=plain_port, path="/subscribe", filter="")
        events, found = shapes[0][2], []
        for _ in range(bench.size(5, quick=1)):
            readers.tell("wait", count=events * count)
            begin = plain.ask("flood", count=events)["begin"]
            answer = readers.answer()
            found.append(answer["events"] / max(1e-3, answer["last"] - begin))
        readers.ask("close")
    rows.append(["plain aiohttp", f"{middle(found) / count:,.0f}", f"{middle(found):,.0f}", "", "", "", "", ""])
    report.figure("deliveries_per_s_plain", middle(found), "deliveries/s")
    report.table(
        f"{count:,} streams",
        ["", "events/s", "deliveries/s", "at events/s", "p50 ms", "p99 ms", "KiB per stream", "opened/s"],
        rows,
    )
    report.goal("events_missed", missed)
    report.goal("deliveries_over_plain", rates["one filter"] / middle(found))


def measure_pages(
    bench: Bench, report: Report, stack: ExitStack, daemon: Worker, readers: Worker, where: dict[str, object]
) -> None:
    subscriber = fabric.Worker(stack, "subscriber", str(where["url"]), json.dumps(fabric.HOSTS))
    publisher = fabric.Worker(stack, "publisher", str(where["url"]))
    subscriber.ready(), publisher.ready()
    subscriber.ask("tile", count=bench.size(1000, quick=20))
    count = bench.size(200_000, quick=1_000)

    def flood() -> float:
        subscriber.ask("reset")
        begin = publisher.ask("flood", count=count)["begin"]
        answer = subscriber.ask("wait", count=count)
        return float(answer["seen"] / (answer["last"] - begin))

    flood()
    without, costs = [], []
    looks = 0
    for _ in bench.track(range(bench.size(6, quick=1)), f"events without and with {PAGES} pages"):
        first = flood()
        readers.ask("open", count=PAGES, port=where["port"], path="/live", filter="")
        before = daemon.ask("status")["looks"]
        readers.tell("idle", seconds=bench.size(4.0, quick=1.5))
        second = flood()
        readers.answer()
        looks += daemon.ask("status")["looks"] - before
        readers.ask("close")
        third = flood()
        without.append((first + third) / 2)
        # Before and after, so that what the machine does meanwhile befalls both.
        costs.append(1 - second / ((first + third) / 2))
    report.figure("events_per_s_without_pages", middle(without), "events/s")
    report.figure("looks_with_pages", looks, "")
    report.goal("page_cost", max(0.0, middle(costs)))
