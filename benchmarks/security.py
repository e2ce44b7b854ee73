"""What TLS, logins and seals cost, and what nine clients notice when the tenth attacks.

The same fabric twice, as processes: once for anybody on the machine, once for members (TLS, tokens, rules, sealed
datagrams). Requests and events per second are measured in turn, again and again. Then, for each attack, a publisher and
eight subscribers go on at a steady rate while a tenth member attacks at full speed: nothing may be lost, and the 99th
percentile of latency may be twice what it is while the tenth process computes at full speed but talks to nobody.

Calm and attacked phases take turns. Each attack is measured twice, see `benchmarks._cores`: *apart*, where the attacker
takes no processor time from the daemon or from clients, as if it sat elsewhere (this is what the goals are about), and
*shared*, where all compete for the same processors. What the daemon and the attacker used of a processor is told too.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks._cores import APART, SHARED, place, place_attacker, worked_by
from benchmarks._security_worker import ATTACKS
from benchmarks.fabric import HOSTS, Worker
from benchmarks.harness import Bench, Report, middle, quantiles
from sievenet.access.folder import Folder
from sievenet.access.identity import Role

#: What it should come to.
GOALS = {
    "requests_secured_to_open": ">= 0.85",
    "events_secured_to_open": ">= 0.9",
    **{f"lost_under_{name}": "== 0 events" for name in ATTACKS},
    **{f"p99_growth_under_{name}": "<= 2" for name in ATTACKS},
}

MEMBERS = """
[members.publisher]
role = "client"
rules = ["publish *: any", "subscribe *: any"]
[members.reader]
role = "client"
rules = ["publish *: any", "subscribe *: any"]
[members.mallory]
role = "client"
rules = ["publish *: any", "subscribe *: any"]
quota = { connections = 32, requests = 100, subscriptions = 200, filter_cost = 20000, schemas = 8, events = 1000 }
"""
#: The same rights as `any`, in two halves: each event has to be looked at.
HALVES = (
    tuple(f"{action} *: any" for action in ("publish", "subscribe")),
    tuple(f"{action} point: x {half}" for action in ("publish", "subscribe") for half in ("< 8000", ">= 8000")),
)
RATE = 1_000
#: Calm and attacked phases of each attack.
ROUNDS = {APART: 5, SHARED: 2}


class Attack(Worker):
    """The tenth client."""

    module = "benchmarks._security_worker"

    def rest(self) -> None:
        """Do nothing at all."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


class Fabric:
    """A daemon, a publisher and subscribers, with logins or without."""

    def __init__(self, stack: ExitStack, access: Folder | None, hosts: list[str]) -> None:
        self._access = access
        settings = {"listen__port": 0, "data__port": 0, "topology": "testbed", "control__forwarding_delay": 0.01}
        if access is not None:
            settings["access__folder"] = str(access.path)
        self.daemon = Worker(stack, "daemon", json.dumps(settings))
        self.url = self.daemon.ready()["url"]
        with self.login("reader"):
            self.subscriber = Worker(stack, "subscriber", self.url, json.dumps(hosts))
        with self.login("publisher"):
            self.publisher = Worker(stack, "publisher", self.url)
        self.subscriber.ready()
        self._number = self.publisher.ready()["number"]

    @contextlib.contextmanager
    def login(self, member: str) -> Iterator[None]:
        """Processes that are started meanwhile are this member."""
        if self._access is not None:
            os.environ["SIEVENET_LOGIN"] = str(self._access.login(member))
        try:
            yield
        finally:
            os.environ.pop("SIEVENET_LOGIN", None)

    def place(self, mode: str) -> None:
        """On cores of their own, or anywhere."""
        place(mode, daemon=self.daemon.pid, clients=[self.publisher.pid, self.subscriber.pid])

    def requests(self, number: int) -> float:
        """Subscriptions per second."""
        return number / float(self.subscriber.ask("tile", count=number)["seconds"])

    def events(self, number: int) -> float:
        """Events per second as fast as they go, by those that arrive."""
        self.subscriber.ask("reset")
        begin = self.publisher.ask("flood", count=number)["begin"]
        answer = self.subscriber.ask("wait", count=number)
        return float(answer["seen"] / (answer["last"] - begin))

    def steady(self, number: int) -> tuple[int, list[float]]:
        """Events that were lost of so many at a steady rate, and seconds that others took; without attackers."""
        self.subscriber.ask("reset", only=self._number)
        self.publisher.ask("steady", count=number, rate=RATE)
        answer = self.subscriber.ask("wait", count=number, latencies=True)
        return number - answer["seen"], [value / 1e9 for value in answer["latencies"]]


def members(path: Path, *, halves: bool = False) -> Folder:
    """An access folder for the benchmark's processes; with rules that are filters, if asked for."""
    now = datetime.datetime.now(datetime.UTC)
    folder = Folder(path)
    folder.make(2, now)
    folder.certificate("daemon", Role.COMPONENT, 2, now)
    file = path / "members.toml"
    usual, filters = (json.dumps(list(each)) for each in HALVES)
    file.write_text(file.read_text() + (MEMBERS.replace(usual, filters) if halves else MEMBERS))
    for name in ("publisher", "reader", "mallory"):
        folder.token(name, None)
    return folder


def run(bench: Bench) -> Report:
    report = Report(GOALS)
    with ExitStack() as stack:
        access = members(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "access")
        with bench.step("a fabric for members"):
            known = Fabric(stack, access, HOSTS * 2)
        measure_attacks(bench, report, known, stack)
        with bench.step("a fabric for anybody on the machine"):
            anybody = Fabric(stack, None, HOSTS * 2)
        measure_cost(bench, report, anybody, known)
        access = members(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "access", halves=True)
        with bench.step("a fabric for members with rules that are filters"):
            ruled = Fabric(stack, access, HOSTS * 2)
        measure_checks(bench, report, known, ruled)
    report.note("p99 under an attack is compared with p99 beside a process that computes and talks to nobody; in turns")
    report.note(
        "apart: the daemon has a core, clients have one, and the attacker what they leave; shared: no such order"
    )
    report.note("daemon, attacker: processor time over the time of the measurement; of the daemon calm and attacked")
    return report


def measure_cost(bench: Bench, report: Report, anybody: Fabric, known: Fabric) -> None:
    requests, events = bench.size(2_000, quick=40), bench.size(50_000, quick=1_000)
    for fabric in (anybody, known):
        fabric.place(APART)
        fabric.requests(8)
        fabric.events(events)
    found: dict[str, list[tuple[float, float]]] = {"requests": [], "events": []}
    for _ in bench.track(range(bench.size(15, quick=1)), "requests and events, both in turn"):
        found["requests"].append((anybody.requests(requests), known.requests(requests)))
        for fabric in (anybody, known):
            fabric.requests(8)
        found["events"].append((anybody.events(events), known.events(events)))
    rows = []
    for name, pairs in found.items():
        plain, secured = (median(pair[i] for pair in pairs) for i in (0, 1))
        report.figure(f"{name}_per_s_open", plain, f"{name}/s")
        report.figure(f"{name}_per_s_secured", secured, f"{name}/s")
        growth = middle(secured / plain for plain, secured in pairs)
        report.goal(f"{name}_secured_to_open", growth)
        rows.append([name, f"{plain:,.0f}", f"{secured:,.0f}", f"{float(growth):.2f}"])
    report.table("cost", ["", "per s, open", "per s, secured", "ratio"], rows)


def measure_checks(bench: Bench, report: Report, known: Fabric, ruled: Fabric) -> None:
    """What it costs to hold each event to rules, at its publisher and at its receiver."""
    number, pairs = bench.size(50_000, quick=1_000), []
    for fabric in (known, ruled):
        fabric.place(APART)
        fabric.requests(8)
    for _ in bench.track(range(bench.size(5, quick=1)), "events of members with rules that are filters, or not"):
        spent = []
        for fabric in (known, ruled):
            worked = worked_by(fabric.daemon.pid)
            fabric.events(number)
            spent.append((worked_by(fabric.daemon.pid) - worked) / number)
        pairs.append((spent[0], spent[1]))
    without, checked = (median(pair[i] for pair in pairs) * 1e6 for i in (0, 1))
    report.figure("daemon_us_per_event_secured", without, "us")
    report.figure("daemon_us_per_event_checked", checked, "us")
    report.table("checks", ["rules", "daemon us per event"], [["any", f"{without:.1f}"], ["filters", f"{checked:.1f}"]])


def measure_attacks(bench: Bench, report: Report, fabric: Fabric, stack: ExitStack) -> None:
    fabric.requests(8)
    fabric.steady(bench.size(2_000, quick=30))
    rounds = {mode: bench.size(repeats, quick=1) for mode, repeats in ROUNDS.items()}
    rows = []
    harmless = Attack(stack, fabric.url, "nothing")
    harmless.ready()
    harmless.rest()
    for name in bench.track(bench.size(list(ATTACKS), quick=["filters", "flood"]), "attacks in turn"):
        lost, row = 0, [name]
        for mode, repeats in rounds.items():
            fabric.place(mode)
            number = bench.size(2_000, quick=30)
            found = [measure_pair(fabric, harmless, name, mode, number, i) for i in range(repeats)]
            calm, attacked = ([pair[i] for pair in found] for i in (0, 1))
            lost += sum(each.lost for pair in found for each in pair)
            pairs = [after.p99 / before.p99 for before, after in found]
            growth = middle(each.p99 for each in attacked) / middle(each.p99 for each in calm)
            note = "" if mode == APART else "_shared"
            report.figure(f"p99_ms_calm{note}_before_{name}", middle(each.p99 for each in calm) * 1e3, "ms")
            report.figure(f"p99_ms_under_{name}{note}", middle(each.p99 for each in attacked) * 1e3, "ms")
            report.figure(f"daemon_busy_under_{name}{note}", middle(each.daemon for each in attacked), "of a processor")
            report.figure(
                f"attacker_busy_in_{name}{note}", middle(each.attacker for each in attacked), "of a processor"
            )
            if mode == APART:
                report.goal(f"p99_growth_under_{name}", growth)
            else:
                report.figure(f"p99_growth_shared_under_{name}", growth, "times")
            row += [
                f"{middle(each.p99 for each in calm) * 1e3:.2f} {middle(each.p99 for each in attacked) * 1e3:.2f}",
                f"{growth:.2f} ({min(pairs):.1f}-{max(pairs):.1f})",
                f"{middle(each.daemon for each in calm):.2f} {middle(each.daemon for each in attacked):.2f}",
                f"{middle(each.attacker for each in attacked):.2f}",
            ]
        report.goal(f"lost_under_{name}", lost)
        rows.append([*row, f"{lost}"])
    fabric.place(SHARED)
    heads = ["p99 ms", "growth", "daemon", "attacker"]
    report.table("attacks", ["attack", *heads, *(f"{head}, shared" for head in heads), "lost"], rows)


class Phase(NamedTuple):
    """What was seen while a tenth process attacked, or only computed."""

    lost: int
    p99: float
    #: Shares of a processor.
    daemon: float
    attacker: float


def measure_pair(fabric: Fabric, harmless: Attack, name: str, mode: str, number: int, turn: int) -> tuple[Phase, Phase]:
    """A calm phase and an attacked one, in turns which of them is first."""

    def calm() -> Phase:
        place_attacker(mode, harmless.pid)
        harmless.go_on()
        try:
            return measure_phase(fabric, harmless, number)
        finally:
            harmless.rest()

    def attacked() -> Phase:
        with ExitStack() as stack, fabric.login("mallory"):
            attacker = Attack(stack, fabric.url, name)
            attacker.ready()
            place_attacker(mode, attacker.pid)
            return measure_phase(fabric, attacker, number)

    if turn % 2:
        return calm(), attacked()
    after = attacked()
    return calm(), after


def measure_phase(fabric: Fabric, attacker: Attack, number: int) -> Phase:
    time.sleep(0.2)
    begin, workers = time.monotonic(), (fabric.daemon.pid, attacker.pid)
    before = [worked_by(each) for each in workers]
    missing, latencies = fabric.steady(number)
    took = time.monotonic() - begin
    daemon, tenth = ((worked_by(each) - was) / took for each, was in zip(workers, before, strict=True))
    return Phase(missing, quantiles(latencies, (0.99,))["p99"], daemon, tenth)
