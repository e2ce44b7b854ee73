"""What clients themselves take of an event's way: µs per `publish` and from socket to callback.

A publisher and a subscriber process on the kernel's switches (without root: the embedded plane), 1,000 subscriptions
that tile the event space. *Publish* is the time of `await node.publish(event)`, which includes the system call that
sends the packet through all switches; *bare* is that call alone, with everything else of a packet made before.
*Delivered* is the time from when the subscriber begins to read its socket until
its callback is called. Single events come at two paces, between which processors forget what they knew, and one after
the other; batches are `publish_many`, in processor time for each event.
"""

from __future__ import annotations

from contextlib import ExitStack
from statistics import median

from benchmarks import openflow
from benchmarks.fabric import Fabric, Worker
from benchmarks.harness import Bench, Report
from sievenet.dataplane.kernel import bpf

#: Events per second; 0 is one after the other.
PACES = (200, 2_000, 0)
GOALS = {"publish_over_bare_at_2000": "<= 2"}


def run(bench: Bench) -> Report:
    report = Report(GOALS)
    with ExitStack() as stack:
        with bench.step("a fabric and 1,000 subscriptions"):
            publisher, subscriber = _started(stack)
            subscriber.ask("tile", count=bench.size(1_000, quick=20))
            subscriber.ask("watch")
            _flood(bench, publisher, subscriber)
        found: dict[str, list[float]] = {}
        for _ in bench.track(range(bench.size(5, quick=1)), "in turn"):
            for pace in PACES:
                for name, each in _single(bench, publisher, subscriber, pace).items():
                    found.setdefault(name, []).append(each)
            for name, each in _flood(bench, publisher, subscriber).items():
                found.setdefault(name, []).append(each)
    values = {name: median(some) for name, some in found.items()}
    rows = []
    for pace in PACES:
        names = [f"{what}_p50_us_at_{pace}" for what in ("bare", "publish", "delivered")]
        rows.append([f"{pace:,}/s" if pace else "one after the other", *(f"{values[name]:.1f}" for name in names)])
    rows.append(["batches", "", *(f"{values[f'{what}_us_batched']:.1f}" for what in ("publish", "delivered"))])
    report.table("µs per event", ["pace", "bare", "publish", "delivered"], rows)
    for name, value in values.items():
        report.figure(name, value, "µs")
    if "bare_p50_us_at_2000" in values:
        report.goal("publish_over_bare_at_2000", values["publish_p50_us_at_2000"] / values["bare_p50_us_at_2000"])
    return report


def _started(stack: ExitStack) -> tuple[Worker, Worker]:
    if bpf.supported() is None:
        path = stack.enter_context(openflow.folder())
        return openflow.start(stack, path, 7, dataplane="kernel")
    fabric = Fabric(stack)
    return fabric.publisher, fabric.subscriber


def _single(bench: Bench, publisher: Worker, subscriber: Worker, pace: int) -> dict[str, float]:
    count = bench.size(min(2_000, 2 * pace or 2_000), quick=20)
    subscriber.ask("reset")
    sent = publisher.ask("timed", count=count, rate=pace)["spent"]
    came = subscriber.ask("wait", count=count)["spent"]
    bare = publisher.ask("bare", count=count, rate=pace)["spent"]
    return {
        f"bare_p50_us_at_{pace}": median(bare) / 1e3,
        f"publish_p50_us_at_{pace}": median(sent) / 1e3,
        f"delivered_p50_us_at_{pace}": median(came) / 1e3 if came else float("inf"),
    }


def _flood(bench: Bench, publisher: Worker, subscriber: Worker) -> dict[str, float]:
    """Processor time for each event of a batch."""
    count = bench.size(50_000, quick=500)
    before = subscriber.ask("reset")["cpu"]
    spent = publisher.ask("flood", count=count)["cpu"]
    answer = subscriber.ask("wait", count=count)
    return {
        "publish_us_batched": spent / count * 1e6,
        "delivered_us_batched": (answer["cpu"] - before) / max(1, answer["seen"]) * 1e6,
    }
