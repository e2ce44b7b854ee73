"""Sievenet on kernel switches, Open vSwitch and embedded, against ActiveMQ and RabbitMQ.

One workload for all: points with x and y, subscriptions that tile x, so that every event goes to exactly one of them,
and a publisher and a subscriber process, which is called with each event. ActiveMQ filters with JMS selectors on one
topic, over STOMP, without persistence: with the same ranges of x (`activemq`), and with the simplest selectors there
are, where the publisher says in which piece of the tiling x lies (`activemq_equal`). RabbitMQ's headers exchange
compares for equality alone, so that its publisher says the piece too, which is less than Sievenet does. The best of
them counts. Everybody is given events for about two seconds, as many as that is, after floods to warm up. All systems
are up at the same time and are measured in turn, again and again: a goal is the median of what the rounds say. Brokers
run in a namespace of their own and end with it; those that are not installed are reported as absent.

Latency is from handing an event to the client to the callback, after these floods, at the same paces for all: few
events, between which processors sleep and forget; many; and about half of what the best broker takes with 1,000
filters. Whoever does not keep up with a pace has no latency there. With most filters, everything is measured once more
with busy clients, which look for events instead of sleeping (`sievenet.client.busy_loop`, the brokers' clients too).
`bare` is a process that sends on what it gets, over UDP, with the same event loops around it: what three processes take
at the least.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Protocol

from benchmarks._fabric_worker import DOMAIN
from benchmarks.fabric import HOSTS, Worker
from benchmarks.harness import Bench, Report, least, middle, most, share
from benchmarks.openflow import available, folder, latencies_of
from benchmarks.openflow import start as start_ovs
from sievenet import programs
from sievenet.dataplane import namespaces
from sievenet.dataplane.kernel import bpf
from sievenet.errors import Unavailable

_ACTIVEMQ = Path("/usr/share/activemq/bin/activemq.jar")
_RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_PORT = 5699
#: Events per second: that of the goal first.
_PACES = (200, 2_000, 5_000)
#: Seconds for which busy clients look: longer than the longest pause between events.
_BUSY = 0.02
#: Whoever delivers fewer times as many events as a pace does not keep up with it.
_HEADROOM = 1.25

#: Quantiles of latency, in seconds, by pace and whether clients are busy.
Latencies = dict[tuple[int, bool], dict[str, float]]


class Measured(NamedTuple):
    """What one round says of a system: subscriptions, events/s, the share that arrived, latencies."""

    size: int
    speed: float
    delivered: float
    latencies: Latencies


class Asked(Protocol):
    """A process that takes commands."""

    def ask(self, do: str, **order: Any) -> dict[str, Any]: ...


class BrokerWorker(Worker):
    """A client process next to its broker, in the broker's namespace."""

    def __init__(self, stack: ExitStack, namespace: str, *arguments: str) -> None:
        inner = [sys.executable, "-m", "benchmarks._broker_worker", *arguments]
        words = programs.command("ip", "netns", "exec", namespace, *inner)
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        stack.callback(self._end)


def activemq(path: Path) -> list[str] | None:
    """How to start ActiveMQ, or None."""
    if programs.find("java") is None or not _ACTIVEMQ.exists():
        return None
    where = [f"-Dactivemq.{name}={path}" for name in ("base", "conf", "data")]
    uri = f"broker:(stomp+nio://127.0.0.1:{_PORT})?persistent=false&useJmx=false&brokerName=bench"
    return ["java", "-Xmx1g", "-Dactivemq.home=/usr/share/activemq", *where, "-jar", str(_ACTIVEMQ), "start", uri]


def rabbitmq(path: Path) -> list[str] | None:
    """How to start RabbitMQ, or None."""
    if not _RABBITMQ.exists():
        return None
    (path / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{_PORT}\n")
    settings = {
        "HOME": path,
        "RABBITMQ_NODENAME": "bench@localhost",
        "RABBITMQ_CONFIG_FILE": path / "rabbitmq.conf",
        "RABBITMQ_MNESIA_BASE": path / "mnesia",
        "RABBITMQ_LOG_BASE": path / "log",
        "RABBITMQ_ENABLED_PLUGINS_FILE": path / "plugins",
        "RABBITMQ_PID_FILE": path / "pid",
    }
    return ["env", *(f"{name}={value}" for name, value in settings.items()), str(_RABBITMQ)]


def bare(path: Path) -> list[str] | None:
    """How to start what sends on what it gets."""
    worker = [sys.executable, "-m", "benchmarks._broker_worker", "relay", "bare", str(_PORT)]
    return ["env", f"--chdir={Path.cwd()}", *worker]


BROKERS: dict[str, Callable[[Path], list[str] | None]] = {
    "activemq": activemq,
    "activemq_equal": activemq,
    "rabbitmq": rabbitmq,
}


@contextmanager
def broker(kind: str, path: Path) -> Iterator[str | None]:
    """A broker in a namespace of its own, whose name is given; None if it is not installed."""
    command = (bare if kind == "bare" else BROKERS[kind])(path)
    if command is None:
        yield None
        return
    namespace = f"svq{os.getpid() % 1_000_000:x}-{kind}"
    namespaces.add([namespace])
    # With a process namespace of its own too, so that nothing that it starts outlives it.
    outer = ["ip", "netns", "exec", namespace, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    with (path / "output").open("w") as output:
        words = programs.command(*outer, *command)
        process = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, cwd=path)
    try:
        wait_for(namespace, process)
        yield namespace
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        namespaces.delete([namespace])


def wait_for(namespace: str, process: subprocess.Popen[bytes]) -> None:
    def connect() -> bool:
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", _PORT)) == 0

    deadline = time.monotonic() + 120
    while not namespaces.inside(namespace, connect):
        if process.poll() is not None or time.monotonic() > deadline:
            raise Unavailable("Expected a broker that listens, got none")
        time.sleep(0.1)


def named(pace: int, busy: bool) -> str:
    return ("" if pace == _PACES[0] else f"_and_{pace}_per_s") + ("_busy" if busy else "")


#: Our planes.
_OWN = ("kernel", "ovs", "embedded")


def _wanted(system: str, pace: int, busy: bool) -> str:
    """At few events per second waking up two processes is most of what anybody takes."""
    return "<= 1/2" if system == "kernel" and pace == _PACES[0] and not busy else "<= 1/3"


#: What it should come to.
GOALS = {
    **{f"{system}_throughput_over_best_broker": ">= 10" if system == "kernel" else ">= 5" for system in _OWN},
    **{
        f"{system}_latency_over_best_broker{named(pace, busy)}": _wanted(system, pace, busy)
        for system in _OWN
        for busy in (False, True)
        for pace in _PACES
    },
}


def run(bench: Bench) -> Report:
    report = Report(GOALS)
    reason = available() or bpf.supported()
    if reason is not None:
        report.note(reason)
        report.figure("measured", 0, "")
        return report
    report.figure("measured", 1, "")
    sizes = bench.size([1, 100, 1_000], quick=[1, 10])
    # Quick runs leave out the brokers: they alone take longer to start than a quick run may.
    systems = bench.size([*_OWN, *BROKERS], quick=["kernel"])
    rows: list[list[Any]] = []
    found: dict[str, list[Measured]] = {}
    with ExitStack() as stack:
        pairs: dict[str, tuple[Asked, Asked]] = {}
        for system in (*systems, "bare"):
            with bench.step(f"starting {system}"):
                pair = started(system, stack)
            if pair is None:
                report.note(f"{system}: absent (not installed)")
            else:
                pairs[system] = pair
        bare = pairs.pop("bare")
        bare[1].ask("tile", count=1)
        for size in sizes:
            whole = size == sizes[-1]
            counts = {}
            for system, pair in pairs.items():
                with bench.step(f"{system}: {size:,} filters"):
                    counts[system] = prepare(bench, *pair, size)
            for _ in bench.track(range(bench.size(5, quick=1) if whole else 1), f"{size:,} filters, in turn"):
                for system, pair in pairs.items():
                    some = measure(bench, *pair, size, counts[system], whole=whole)
                    found.setdefault(system, []).append(some)
                if whole:
                    at = all_latencies(bench, *bare, 1, _PACES)
                    found.setdefault("bare", []).append(Measured(0, 0.0, 1.0, at))
    for system in (*pairs, "bare"):
        for size in sizes if system != "bare" else [0]:
            rounds = [each for each in found[system] if each.size == size]
            speed, delivered = median(r.speed for r in rounds), min(r.delivered for r in rounds)
            latencies = _middle([r.latencies for r in rounds])
            if system == "bare":
                rows += shown("bare", "", "", "", latencies)
            else:
                rows += shown(system, f"{size:,}", f"{speed:,.0f}", f"{delivered:.3f}", latencies)
                report.figure(f"{system}_events_per_s_at_{size}", speed, "events/s")
                report.figure(f"{system}_delivered_share_at_{size}", delivered, "")
            suffix = f"_at_{size}" if size else ""
            for (pace, busy), each in latencies.items():
                report.figure(f"{system}_p50_ms{suffix}{named(pace, busy)}", each["p50"] * 1e3, "ms")
    columns = [f"{name} ms at {pace:,}/s" for pace in _PACES for name in ("p50", "p99")]
    report.table("systems", ["system", "filters", "events/s", "delivered", *columns], rows)
    goals(report, {system: [r for r in rounds if r.size == sizes[-1]] for system, rounds in found.items()})
    report.note("one publisher and one subscriber process, on the cores that the system under test runs on too")
    report.note("bare: a process in between that only sends on, with the same event loops around it")
    report.note("busy: clients look for events instead of sleeping")
    return report


def _middle(rounds: list[Latencies]) -> Latencies:
    """The medians of quantiles, at the paces that were kept up with in every round."""
    kept = [where for where in rounds[0] if all(where in each for each in rounds)]
    return {where: {q: median(each[where][q] for each in rounds) for q in rounds[0][where]} for where in kept}


def shown(system: str, size: str, speed: str, share: str, latencies: Latencies) -> list[list[str]]:
    """A row, and one for busy clients."""
    rows = []
    for busy in sorted({busy for _, busy in latencies}):
        cells: list[str] = []
        for pace in _PACES:
            each = latencies.get((pace, busy))
            cells += ["", ""] if each is None else [f"{each[name] * 1e3:.2f}" for name in ("p50", "p99")]
        rows.append([f"{system}, busy", size, "", "", *cells] if busy else [system, size, speed, share, *cells])
    return rows


def goals(report: Report, found: dict[str, list[Measured]]) -> None:
    """Against the best broker at each pace. Where no broker keeps up, or none is installed, nothing was measured."""
    brokers = [found[kind] for kind in BROKERS if kind in found]
    if len(brokers) < len(BROKERS):
        report.note("not all brokers are installed: the best of those that are may not be the best there is")
    if not brokers:
        return
    for system in _OWN:
        rounds = found.get(system, [])
        if not rounds:
            continue
        speeds = [each.speed / most(b[i].speed for b in brokers) for i, each in enumerate(rounds)]
        report.goal(f"{system}_throughput_over_best_broker", middle(speeds))
        for where in rounds[0].latencies:
            ratios = []
            for i, each in enumerate(rounds):
                others = [b[i].latencies[where]["p50"] for b in brokers if where in b[i].latencies]
                if others and where in each.latencies:
                    ratios.append(share(each.latencies[where]["p50"], least(others)))
            if ratios:
                report.goal(f"{system}_latency_over_best_broker{named(*where)}", middle(ratios))


def started(system: str, stack: ExitStack) -> tuple[Asked, Asked] | None:
    """Publisher and subscriber of a system, ready; None if it is absent."""
    path = stack.enter_context(folder())
    if system == "ovs":
        return start_ovs(stack, path, 9)
    if system == "kernel":
        return start_ovs(stack, path, 8, dataplane="kernel")
    if system == "embedded":
        settings = {"listen__port": 0, "data__port": 0, "topology": "testbed", "control__forwarding_delay": 0.01}
        daemon = Worker(stack, "daemon", json.dumps(settings))
        url = daemon.ready()["url"]
        workers = Worker(stack, "publisher", url), Worker(stack, "subscriber", url, json.dumps(HOSTS))
    else:
        namespace = stack.enter_context(broker(system, path))
        if namespace is None:
            return None
        workers = (
            BrokerWorker(stack, namespace, "publisher", system, str(_PORT)),
            BrokerWorker(stack, namespace, "subscriber", system, str(_PORT)),
        )
    for worker in workers:
        worker.ready()
    return workers


def prepare(bench: Bench, publisher: Asked, subscriber: Asked, size: int) -> int:
    """Subscribe and warm up; how many events are two seconds' worth."""
    width = DOMAIN // size
    warm, largest = bench.size((2_000, 100_000), quick=(200, 200))
    subscriber.ask("tile", count=size)
    publisher.ask("steady", count=50, rate=200, width=width)
    subscriber.ask("wait", count=50)
    # Twice: what is compiled or cached on the way is, and then says how much is two seconds' worth.
    for _ in range(2):
        answer, begin = flood(publisher, subscriber, warm, width)
    count = int(min(largest, max(warm, 2 * warm / max(answer["last"] - begin, 1e-3))))
    flood(publisher, subscriber, count, width)
    return count


def measure(bench: Bench, publisher: Asked, subscriber: Asked, size: int, count: int, *, whole: bool) -> Measured:
    """Events/s, the share that was delivered, and latencies: at the first pace, or the whole of them."""
    width = DOMAIN // size
    answer, begin = flood(publisher, subscriber, count, width)
    speed = answer["seen"] / max(answer["last"] - begin, 1e-9)
    paces = tuple(pace for pace in _PACES if _HEADROOM * pace <= speed) if whole else _PACES[:1]
    latencies = all_latencies(bench, publisher, subscriber, width, paces, whole=whole)
    return Measured(size, speed, answer["seen"] / count, latencies)


def all_latencies(
    bench: Bench, publisher: Asked, subscriber: Asked, width: int, paces: tuple[int, ...], *, whole: bool = True
) -> Latencies:
    """Latency at these paces, with busy clients too if it is to be whole."""
    found: Latencies = {}
    for busy in (False, True) if whole else (False,):
        for worker in (publisher, subscriber):
            worker.ask("busy", seconds=_BUSY if busy else 0)
        for pace in paces:
            found[pace, busy] = latency(bench, publisher, subscriber, width, pace)
    for worker in (publisher, subscriber):
        worker.ask("busy", seconds=0)
    return found


def latency(bench: Bench, publisher: Asked, subscriber: Asked, width: int, pace: int) -> dict[str, float]:
    """Quantiles of latency, in seconds, at so many events per second."""
    count = bench.size(max(400, pace), quick=20)
    subscriber.ask("reset")
    publisher.ask("steady", count=count, rate=pace, width=width)
    return latencies_of(subscriber.ask("wait", count=count, latencies=True), count)


def flood(publisher: Asked, subscriber: Asked, count: int, width: int) -> tuple[dict[str, Any], float]:
    """Events as fast as they go: what the subscriber says, and when it began."""
    subscriber.ask("reset")
    begin = publisher.ask("flood", count=count, width=width)["begin"]
    return subscriber.ask("wait", count=count), begin
