"""Events through chains of router processes, against NATS, mosquitto and ActiveMQ with selectors.

Routers, publisher and subscriber are processes on loopback. The subscriber holds 1,000-100,000 range filters that want
about half of all events; every router on the way matches exactly. NATS and mosquitto forward as many messages by topic
and look at no content: the ratio is the price of content. ActiveMQ has a selector for each filter, over STOMP and
without persistence, and delivers an event once for each that it matches. Brokers are started if they are installed
(Debian's packages nats-server, mosquitto and activemq), else said to be absent.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks._brokers import CLIENTS, SCHEMA, RouterClient, events, matches_of, starts_of, wanted_by
from benchmarks.harness import Bench, Report, quantiles
from sievenet import programs
from sievenet.content import Filter, ValueSet
from sievenet.content.valueset import NUMBER

#: What it should come to.
GOALS = {"one_router_1000": ">= 50,000 events/s"}

_ACTIVEMQ = Path("/usr/share/activemq/bin/activemq.jar")


@contextmanager
def process(command: list[str], **options: object) -> Iterator[subprocess.Popen[str]]:
    words = programs.command(*command)
    started = subprocess.Popen(words, text=True, env=dict(os.environ), **options)  # type: ignore[call-overload]
    try:
        yield started
    finally:
        started.terminate()
        started.wait(timeout=20)


@contextmanager
def routers(count: int, scheme: str) -> Iterator[tuple[tuple[str, int], tuple[str, int]]]:
    """A chain; the addresses of its first and its last router."""
    if not count:
        raise ValueError("expected at least one router")
    addresses: list[tuple[str, int]] = []
    running = []
    try:
        for i in range(count):
            command = [sys.executable, "-m", "sievenet", "router", "--name", f"r{i}", "--listen", "127.0.0.1:0"]
            command += ["--scheme", scheme, "--lease", "30s"]
            if addresses:
                command += ["--neighbours", f"{addresses[-1][0]}:{addresses[-1][1]}"]
            each = subprocess.Popen(command, text=True, stdout=subprocess.PIPE)
            running.append(each)
            assert each.stdout is not None
            host, port = each.stdout.readline().rsplit("//", 1)[1].split(":")
            addresses.append((host, int(port)))
        yield addresses[0], addresses[-1]
    finally:
        # A router takes the subscriptions of its clients back before it ends, which nobody waits for here.
        for each in running:
            each.kill()
        for each in running:
            each.wait()


def known(address: tuple[str, int], count: int) -> None:
    """Wait until a router knows all others."""
    import asyncio

    import sievenet

    async def wait() -> None:
        async with sievenet.connect(f"sievenet+router://{address[0]}:{address[1]}") as node:
            while len((await node.ask("status"))["routers"]) < count:
                await asyncio.sleep(0.05)

    asyncio.run(wait())


def traffic(
    kind: str, enter: tuple[str, int], leave: tuple[str, int], subscriptions: int, count: int, paced: int
) -> tuple[float, float, dict[str, float], float]:
    """Events per second in batches and one by one, latency quantiles at a small rate, seconds to subscribe."""
    starts, width = starts_of(subscriptions)
    subscriber = CLIENTS[kind](*leave)
    begin = time.perf_counter()
    filters: list[Filter] = []
    if kind in ("router", "activemq"):
        filters = [Filter(SCHEMA, {"x": ValueSet(((NUMBER, s), (NUMBER, s + width)))}) for s in starts.tolist()]
    # Equal filters are one subscription of a router; selectors are counted one by one.
    subscriber.subscribe(dict.fromkeys(filters) if isinstance(subscriber, RouterClient) else filters)
    subscribing = time.perf_counter() - begin

    def publish(number: int, batch: int, rate: float) -> tuple[float, list[float]]:
        every = events(number, 1)
        # ActiveMQ delivers an event for each selector.
        many = kind == "activemq"
        expected = matches_of(starts, width, every) if many else int(wanted_by(starts, width, every).sum())
        command = [sys.executable, "-m", "benchmarks._brokers", kind, enter[0], str(enter[1]), str(number), str(batch)]
        with process([*command, str(rate), str(subscriptions)], stdin=subprocess.PIPE):
            got, first, latencies = 0, 0.0, []
            while got < expected:
                some, sent = subscriber.receive()
                now = time.time_ns()
                first = first or min(sent, default=0) / 1e9
                latencies += [(now - each) / 1e9 for each in sent]
                got += some
            return time.time() - first, latencies

    # The first events make routers load compiled code and file their filters: not what is measured.
    if count > 4_000:
        publish(2000, 100, 0)
    best = min(publish(count, 500, 0)[0] for _ in range(2 if count > 4_000 else 1))
    single = publish(count // 10, 1, 0)[0]
    _, latencies = publish(paced, 1, 200.0)
    return count / best, count // 10 / single, quantiles(latencies, (0.5, 0.99)), subscribing


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def broker(kind: str) -> Iterator[tuple[str, int] | None]:
    """A broker if it is installed."""
    name = {"nats": "nats-server", "mqtt": "mosquitto", "activemq": "java"}[kind]
    path = programs.find(name)
    if path is None or (kind == "activemq" and not _ACTIVEMQ.exists()):
        yield None
        return
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        if kind == "nats":
            command = [path, "-a", "127.0.0.1", "-p", str(port)]
        elif kind == "activemq":
            where = [f"-Dactivemq.{each}={folder}" for each in ("base", "conf", "data")]
            uri = f"broker:(stomp+nio://127.0.0.1:{port})?persistent=false&useJmx=false&brokerName=bench"
            home = f"-Dactivemq.home={_ACTIVEMQ.parent.parent}"
            command = [path, "-Xmx1g", home, *where, "-jar", str(_ACTIVEMQ), "start", uri]
        else:
            settings = os.path.join(folder, "mosquitto.conf")
            with open(settings, "w", encoding="utf-8") as file:
                file.write(
                    f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\nset_tcp_nodelay true\n"
                )
            command = [path, "-c", settings]
        with process(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
            for _ in range(1200):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            yield "127.0.0.1", port


def run(bench: Bench) -> Report:
    report = Report(GOALS)
    count, paced = bench.size(200_000, quick=2_000), bench.size(400, quick=20)
    rows: list[list[object]] = []
    plan = [(hops, subscriptions) for subscriptions in (1_000, 10_000) for hops in (1, 2, 3, 4, 5)]
    plan += [(hops, 100_000) for hops in (1, 3, 5)]
    quickest: dict[str, float] = {}
    for hops, subscriptions in plan if not bench.quick else [(1, 100)]:
        with bench.step(f"{hops} routers, {subscriptions} subscriptions"), routers(hops, "covering") as (enter, leave):
            known(leave, hops)
            rate, single, latency, subscribing = traffic("router", enter, leave, subscriptions, count, paced)
        rows.append(
            [f"{hops} routers", subscriptions, rate, single, latency["p50"] * 1e3, latency["p99"] * 1e3, subscribing]
        )
        quickest.setdefault("router", rate)
        quickest.setdefault("router_single", single)
    compared = [("nats", "NATS", 0), ("mqtt", "mosquitto", 0), *(("activemq", "ActiveMQ", n) for n in (1, 100, 1_000))]
    for kind, name, selectors in compared if not bench.quick else []:
        with bench.step(f"{name} {selectors or ''}"), broker(kind) as address:
            if address is None:
                report.note(f"{name} is not installed: not compared")
                continue
            # Selectors are tried one after the other: fewer events are enough to wait for.
            number = count // (40 if selectors > 100 else 10) if selectors else count
            rate, single, latency, took = traffic(kind, address, address, selectors or 1_000, number, paced)
            rows.append([name, selectors, rate, single, latency["p50"] * 1e3, latency["p99"] * 1e3, took])
            label = f"activemq_{selectors}" if selectors else kind
            report.figure(f"price_of_content_{label}", rate / quickest["router"], "x")
            report.figure(f"price_of_content_{label}_single", single / quickest["router_single"], "x")
    columns = ["broker", "subscriptions", "events/s", "one by one/s", "p50 ms", "p99 ms", "subscribe s"]
    report.table("through the broker", columns, rows)
    report.figure("events_per_s", quickest["router"], "events/s")
    report.figure("events_per_s_one_by_one", quickest["router_single"], "events/s")
    report.goal("one_router_1000", quickest["router"])
    report.note("events/s: routers take 500 events in a message, the others as many messages in one write")
    report.note("about half of all events are wanted; hardly a filter covers another, so every router holds nearly all")
    report.note("price: the broker's events/s over those of one router with 1,000 subscriptions")
    return report
