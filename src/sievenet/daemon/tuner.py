"""The tuner: a fabric that looks for better index plans by itself, and changes to them under traffic.

    heartbeats ──samples──▶ Samples ─┐
    reports ──measured rate──────────┼─▶ governor: due? ──task──▶ worker process ──outcome──▶ governor: apply?
    registrations, trees ────────────┘                                                          │
                                                                          control.apply_plan ◀──┘

The decisions are `tuning.governor`'s, the search is `tuning.task`'s in a process of low priority; here they are joined
to the fabric. What was done, with rates measured before and after, is kept for `status`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec

from sievenet.config import TuningConfig
from sievenet.control import protocol as p
from sievenet.control.plane import ControlPlane
from sievenet.control.state import Category
from sievenet.daemon.planes import AnyPlane
from sievenet.daemon.reports import Reports
from sievenet.daemon.samples import Samples
from sievenet.errors import InvalidInput, SievenetError, Unavailable
from sievenet.index.plan import Plan
from sievenet.network.files import dump_topology
from sievenet.tuning import worker
from sievenet.tuning.governor import Governor, Rules
from sievenet.tuning.task import Outcome, Task, Tree

__all__ = ["Tuner"]

log = logging.getLogger("sievenet.tuner")

#: Events of one category that a publisher samples per heartbeat.
SAMPLE: Final = 256
#: Subscriptions that a search looks at.
WANTED: Final = 600
#: Seconds over which the rate is measured, and that a new plan gets before it is.
WINDOW: Final = 5.0
#: Changes that are remembered.
_KEPT: Final = 100


class Change(msgspec.Struct):
    """One plan that was found better, and what became of it."""

    #: Seconds since 1970, and since the start.
    time: float
    after_start: float
    category: str
    name: str
    why: str
    #: Predicted on events that the search did not see: transmissions per event, unnecessary packets per host.
    before: float
    after: float
    unnecessary_before: float
    unnecessary_after: float
    #: False positives of what hosts received, as clients reported them; None until it is known.
    measured_before: float | None
    measured_after: float | None = None
    #: applied, suggested, or why not.
    state: str = "suggested"
    #: When the new plan was in use, by the loop's clock.
    applied: float = 0.0


class Tuner:
    """Runs beside a daemon; ``note`` puts a change into the audit log."""

    def __init__(
        self,
        control: ControlPlane,
        plane: AnyPlane,
        reports: Reports,
        config: TuningConfig,
        note: Callable[[str, str], None] = lambda what, outcome: None,
    ) -> None:
        self._control, self._plane, self._reports, self._config = control, plane, reports, config
        self._note = note
        self._loop = asyncio.get_running_loop()
        rules = Rules(
            mode=config.mode or "off",
            margin=config.margin,
            least=config.least,
            watch=config.watch,
            pause=config.pause,
            share=config.share,
        )
        self.governor = Governor(rules, self._loop.time())
        self.samples = Samples()
        self.changes: deque[Change] = deque(maxlen=_KEPT)
        self._suggested: dict[str, bytes] = {}
        #: Time, packets received, false positives and copies among them, of the last seconds.
        self._seen: deque[tuple[float, int, int, int]] = deque()
        self._epochs: dict[int, int] = {}
        self.searches = self.failures = 0
        self._searching = ""
        self._rate: float | None = None

    @property
    def wanted(self) -> int:
        """Events that publishers should sample per heartbeat; 0 if nobody looks at them."""
        return 0 if self.governor.rules.mode == "off" else SAMPLE

    def take(self, client: str, sample: p.Sample) -> None:
        """A publisher's sample; of what it does not advertise, nothing is believed."""
        if self._control.advertises(client, sample.category):
            now = self._loop.time()
            self.samples.add(sample.category, client, sample.seen, sample.count, sample.events, now)

    async def run(self) -> None:
        """Look, search and change until cancelled."""
        while True:
            await asyncio.sleep(self._config.every)
            try:
                await self._look()
            except Exception:
                self.failures += 1
                log.exception("tuning: this look failed, the next goes on")

    async def _look(self) -> None:
        now, measured = self._loop.time(), self._measured()
        self._rate, rate = measured or (None, None)
        for change in self.changes:
            if change.applied and change.measured_after is None and now >= change.applied + WINDOW + 1:
                change.measured_after = self._rate
                log.info("tuning: %s", _told(change))
        for category in self._categories():
            number = category.number
            if self._epochs.setdefault(number, category.epoch) != category.epoch:
                self._epochs[number] = category.epoch
                self.governor.changed(number, now)
            status = self._control.status()
            wanted = status.answered
            events = self.samples.events(number, now, self.governor.since(number))
            if self.governor.due(number, events, rate, wanted, now, status.subscriptions):
                assert rate is not None
                self.governor.began(number, rate, wanted, now)
                await self._tune(category, self._rate)
                return

    def _categories(self) -> list[Category]:
        """Those that are tuned: not the fabric's own, such as twins and the transport's."""
        return [each for each in self._control.categories() if not each.name.startswith("sievenet.")]

    def _measured(self) -> tuple[float, float] | None:
        """The part of what hosts received lately that is false positives, and with copies; None if nothing came."""
        now, totals = self._loop.time(), self._reports.totals()
        self._seen.append((now, totals.received, totals.false_positives, totals.duplicates))
        while len(self._seen) > 2 and self._seen[1][0] <= now - WINDOW:
            self._seen.popleft()
        _, received, false, copies = self._seen[0]
        came = totals.received - received
        if came <= 0:
            return None
        false = totals.false_positives - false
        return false / came, (false + totals.duplicates - copies) / came

    # -- searching ------------------------------------------------------------------------

    async def _tune(self, category: Category, rate: float | None) -> None:
        self._searching, begin = category.label, self._loop.time()
        cost = self._config.seconds
        try:
            task = self._task(category)
            if not task.wanted:
                cost = 0.0
                return
            outcome = await self._searched(task)
            cost = outcome.cost
            await self._judged(category, outcome, rate)
        except SievenetError as error:
            self.failures += 1
            log.warning("tuning: no plan for %s: %s", category.label, error)
        finally:
            self._searching = ""
            self.searches += 1
            self.governor.ended(category.number, cost, self._loop.time())
            log.debug("tuning: searched for %s in %.1f s", category.label, self._loop.time() - begin)

    def _task(self, category: Category) -> Task:
        drawn = self._control.sampled_subscriptions(category.number, WANTED, random.Random(category.epoch))
        trees = self._control.trees(category.number)
        topology = trees[0].topology
        known = set(topology.hosts)
        hosts = {name: at.host for name, at in self._plane.clients().items() if at.host in known}
        drawn = [(client, content) for client, content in drawn if client in hosts]
        return Task(
            category.schema,
            self.samples.pieces(category.number, self.governor.since(category.number)),
            [content for _, content in drawn],
            [client for client, _ in drawn],
            hosts,
            dump_topology(topology),
            [Tree(tree.root, dict(tree.parent)) for tree in trees],
            category.plan.to_json(),
            max(category.plan.bits, self._control.config.bits),
            category.budget,
            self._config.seconds,
            self._config.margin,
        )

    async def _searched(self, task: Task) -> Outcome:
        process = await asyncio.create_subprocess_exec(
            *worker.command(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=worker.environment(),
        )
        try:
            async with asyncio.timeout(self._config.patience):
                out, err = await process.communicate(msgspec.msgpack.encode(task))
        except TimeoutError:
            raise Unavailable(f"The search took longer than {self._config.patience:g} s") from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode != 0:
            last = err.decode(errors="replace").strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
            raise Unavailable(f"The search failed: {last[0]}")
        return msgspec.msgpack.decode(out, type=Outcome)

    async def _judged(self, category: Category, outcome: Outcome, rate: float | None) -> None:
        verdict = self.governor.judged(outcome.before, outcome.after, outcome.rate_before, outcome.rate_after)
        if verdict == "keep":
            return
        now = self._loop.time()
        change = Change(
            time.time(),
            now - self.governor.begin,
            category.label,
            outcome.name,
            outcome.why,
            outcome.before,
            outcome.after,
            outcome.rate_before,
            outcome.rate_after,
            rate,
        )
        self.changes.append(change)
        self._suggested[category.label] = outcome.plan
        if verdict == "apply":
            await self._apply(category, outcome.plan, change)
        log.info("tuning: %s", _told(change))

    async def _apply(self, category: Category, plan: bytes, change: Change) -> None:
        self._note("ApplyPlan", category.label)
        try:
            report = await self._control.apply_plan(category.name, Plan.from_json(plan))
        except SievenetError as error:
            change.state = f"refused: {error}"
            raise
        change.state, change.applied = "applied", self._loop.time()
        self._suggested.pop(category.label, None)
        self._epochs[category.number] = report.epoch
        self.governor.changed(category.number, change.applied)
        self._seen.clear()

    # -- answers --------------------------------------------------------------------------

    def suggestion(self, category: str) -> Any:
        """The plan that was found better for a category and is not in use, as plain data."""
        if category not in self._suggested:
            known = ", ".join(self._suggested) or "none yet"
            raise InvalidInput(expected=f"a category with a suggested plan ({known})", got=category, where="suggestion")
        return msgspec.json.decode(self._suggested[category])

    def status(self) -> dict[str, Any]:
        """What it does and has done, for `sievenet status` and the page."""
        now = self._loop.time()
        mode = self.governor.rules.mode
        return {
            "mode": mode,
            "searching": self._searching,
            "searches": self.searches,
            "failures": self.failures,
            "share": self.governor.share(now),
            "next": self.governor.next(now),
            "samples": {c.label: self.samples.events(c.number, now) for c in self._categories()},
            "suggested": sorted(self._suggested),
            "changes": [
                {name: value for name, value in msgspec.to_builtins(each).items() if name != "applied"}
                for each in list(self.changes)[-10:]
            ],
            "line": self._line(),
        }

    def _line(self) -> str:
        mode = self.governor.rules.mode
        if mode == "off":
            return ""
        if self._searching:
            return f"tuning: searching for a better plan of {self._searching}"
        last = self.changes[-1] if self.changes else None
        if last is not None and last.measured_after is not None and self._rate is not None:
            return f"tuning: {_told(last)}; {self._rate:.1%} now"
        if last is not None:
            return f"tuning: {_told(last)}"
        return "tuning: watching what is published and wanted"


def _told(change: Change) -> str:
    """One change in one line."""
    saved = 1 - change.after / change.before if change.before > 0 else 0.0
    before = "" if change.measured_before is None else f"{change.measured_before:.0%}"
    after = "…" if change.measured_after is None else f"{change.measured_after:.1%}"
    match change.state:
        case "applied":
            rates = f"false positives {before} → {after}, " if before else ""
            return f"{change.category}: {rates}{saved:.0%} fewer packets by a plan found {change.after_start:.0f} s in"
        case "suggested":
            return (
                f"{change.category}: a plan with {saved:.0%} fewer packets: `sievenet plan suggested {change.category}`"
            )
        case state:
            return f"{change.category}: a plan with {saved:.0%} fewer packets was {state}"
