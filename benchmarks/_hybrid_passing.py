"""Events per second of a matcher process, against one that resends what it receives: both in one stream, taking turns.

    source ── pieces: lower, upper, lower, … ──▶ switch ── lower half ──▶ one of the two ──▶ sink
                                                    └───── upper half ──▶ the other ───────▶

What a process takes for an event depends on how many it reads together, and that on what all the others do just then:
two runs, one after the other, differ by more than what is looked for. So both are there at the same time, at the same
switch, and get equal pieces of the same stream in turn. Which half is whose changes from round to round. Each event
concerns one of 8,000 subscriptions, all of which lie in both halves.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks import openflow
from benchmarks.fabric import Worker
from benchmarks.harness import Bench, Report, least, middle, most
from sievenet.config import load_config
from sievenet.daemon.collector import collecting_seldom
from sievenet.daemon.daemon import Daemon
from sievenet.index import Dz

__all__ = ["GOALS", "Passing", "passing"]

#: A real switch carries each event in a datagram of its own; the embedded plane some 260 in one.
GOALS: Final = {
    "ovs": "matcher_over_resending_one_event_per_datagram",
    "embedded": "matcher_over_resending_full_datagrams",
}
KINDS: Final = ("relay", "matcher")
#: Of the events published, what has to pass for a run to count.
_WHOLE: Final = 0.9


class Passing(Worker):
    """A process that matches, or resends, or publishes, or subscribes."""

    module = "benchmarks._hybrid_worker"

    def say(self, what: object) -> None:
        """How many events come, or that no more do."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(f"{what}\n")
            self._process.stdin.flush()


class Rate(msgspec.Struct, frozen=True):
    """What one process did in a run."""

    #: Events per second of processor, and how many came together.
    events: float
    together: float
    #: Of those that were for it, the share that came.
    share: float


def passing(bench: Bench, report: Report) -> None:
    """Matcher and resending process on each plane: the middle of several rounds, some in each of two fabrics."""
    count, rounds = bench.size(400_000, 4_000), bench.size(3, 1)
    for plane, goal in GOALS.items():
        if plane == "ovs" and (reason := openflow.available()) is not None:
            report.note(f"matcher process on Open vSwitch {reason}")
            continue
        found: list[dict[str, Rate]] = []
        for _ in range(bench.size(2, 1)):
            with bench.step(f"matcher and resending process, {count} events, {plane}"), openflow.folder() as path:
                found += asyncio.run(_passed(bench, rounds, count, _settings(plane, path)))
        whole = [each for each in found if all(rate.share >= _WHOLE for rate in each.values())]
        if len(whole) < len(found):
            report.note(f"{plane}: in {len(found) - len(whole)} of {len(found)} rounds events were lost on the way")
        ratios = [each["matcher"].events / each["relay"].events for each in whole]
        # What was not measured in most rounds is not measured.
        report.goal(goal, middle(ratios) if 2 * len(whole) > len(found) else math.nan)
        report.figure(f"{goal}_least", least(ratios))
        report.figure(f"{goal}_most", most(ratios))
        for kind in KINDS:
            report.figure(f"{kind}_events_per_cpu_second_{plane}", middle(r[kind].events for r in whole), "events/s")
            report.figure(f"{kind}_events_together_{plane}", middle(r[kind].together for r in whole))


def _settings(plane: str, path: Path) -> dict[str, Any]:
    if plane == "embedded":
        return {"data__port": 0}
    return {
        "dataplane": "ovs",
        "openflow__name": f"sbh{os.getpid() % 100_000:x}",
        "openflow__run_dir": str(path / "run"),
    }


async def _passed(bench: Bench, rounds: int, count: int, plane: dict[str, Any]) -> list[dict[str, Rate]]:
    """What each process did, round by round."""
    settings = {"topology": "line,switches=3", "control__bits": 8, "hybrid__interval": 3600.0, **plane}
    found = []
    async with Daemon(load_config(listen__port=0, **settings)) as daemon:
        with ExitStack() as processes:
            processes.enter_context(collecting_seldom())  # as `sievenet up` does

            async def begin(*arguments: str) -> Passing:
                process = Passing(processes, *arguments)
                await asyncio.to_thread(process.ready)
                return process

            async def ask(process: Passing, what: int) -> dict[str, Any]:
                process.say(what)
                return await asyncio.to_thread(process.answer)

            source = await begin("source", daemon.url, "source", "h1")
            sink = await begin("sink", daemon.url, "sink", "h3", str(bench.size(8_000, 100)))
            workers = {kind: await begin(kind, daemon.url, kind, "h2") for kind in KINDS}
            number, switch = daemon.control.category("point").number, daemon.plane.topology.attachment("h2").switch
            hybrid, halves = daemon.service.components.hybrid, Dz(0, 0).children
            for turn in range(rounds):
                for half in halves if turn % 2 else halves[::-1]:
                    await hybrid.divert(number, half, switch)  # to whom has nothing yet, by name
                await asyncio.sleep(1.0)  # until a matcher has put them in order
                await ask(source, 200)
                await asyncio.sleep(0.5)  # they come before anything is counted
                for worker in workers.values():
                    worker.say(count // 2)
                await ask(source, count)
                answers = {kind: await asyncio.to_thread(each.answer) for kind, each in workers.items()}
                found.append({kind: _rate(each, count // 2) for kind, each in answers.items()})
                for half in halves:
                    await hybrid.release(number, half, switch)
                came, last = (await ask(sink, 1))["came"], -1
                while came > last:  # the subscriber is done with this before the next round
                    await asyncio.sleep(0.5)
                    came, last = (await ask(sink, 1))["came"], came
            for process in (source, sink, *workers.values()):
                process.say("")
    return found


def _rate(found: dict[str, Any], expected: int) -> Rate:
    events = found["events"]
    return Rate(events / max(1e-9, found["cpu"]), events / max(1, found["calls"]), found["came"] / expected)
