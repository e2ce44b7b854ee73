"""Routing table offloading (RTO), the router's side: new filters are placed with the help of clients. Pure.

    submit ──▶ batch (by size or time) ──▶ Ask each client: these inputs, your vectors ──▶ answers ──▶ vote ──▶ place
                     │                                                      │ timeout          │ no majority
                     └── does not pay, or no clients: search ◀──────────────┴── compute those vectors here

One batch is under way at a time: what is asked about does not change meanwhile, except that filters may be removed,
which answers survive (numbers are never used twice). Filters enter in the order of `submit`, so `mark` and `reached`
tell when all that was submitted so far is in the table.

The answers are *all* predecessors and successors, from which the place follows by set arithmetic (`poset.immediate`).
**What a lie can do.** A minority of liars, and whoever is silent, slow or gone, changes nothing: the vote or the
router's own work decides. A majority that lies together could misplace a filter. With ``check`` every link to be made
is tested: a wrong "covers" would lose events, a missing one only costs space, so these tests are what delivery needs. A
filter that fails is inserted by searching. With ``audit`` a share of the filters is also placed by the router itself; a
difference expels everybody who voted for it, and the table is built anew, without help.

**Resting.** While nobody is there to ask, or a search takes less than messages would, there is nothing to decide. While
`rest.on` whoever owns the table may insert directly, exactly as without offloading; nothing is counted or timed here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import asdict
from itertools import count
from typing import Any, Final

from sievenet.content.filter import Filter
from sievenet.errors import FilterError
from sievenet.routers.batches import Items
from sievenet.routers.offload.assignment import Assignment
from sievenet.routers.offload.choice import Chooser, Rest, Way
from sievenet.routers.offload.insertion import Entering
from sievenet.routers.offload.jobs import Ask, Counts, Job, Pending, RtoSettings
from sievenet.routers.offload.messages import Compute, Computed, Relations
from sievenet.routers.offload.notation import Writing
from sievenet.routers.offload.reputation import Standing
from sievenet.routers.offload.tables import Table
from sievenet.routers.offload.vectors import Vectors
from sievenet.routers.offload.verdict import Verdict
from sievenet.routers.offload.worker import related

__all__ = ["Ask", "Offloader", "RtoSettings"]

#: Of so many filters that are inserted at once, those that came first are timed.
_LOOK: Final = 16
#: Seconds that writing and sending one filter of the table is expected to take, until it was done once.
_BRING: Final = 2e-5


class Offloader:
    """Places filters in a table. ``cpu`` reads the processor time of the router, for choosing the way.

    ``schema`` (in the codec's bytes) is sent to clients once; ``numbers`` names jobs and vectors, and is to be shared
    by all offloaders that share clients.
    """

    def __init__(
        self,
        table: Table,
        category: int,
        settings: RtoSettings | None = None,
        *,
        cpu: Callable[[], float],
        schema: bytes = b"",
        numbers: Iterator[int] | None = None,
    ) -> None:
        self.settings = settings or RtoSettings()
        self._writing = Writing(category, schema, self.settings.secret)
        #: Bytes of filters that are on their way into the table.
        self._bytes: dict[Filter, bytes] = {}
        self.table = table
        self._numbers = numbers or count(1)
        self.vectors = Vectors(self.settings.vector, self._numbers)
        self._assignment = Assignment(self.settings.copies, self.settings.vector)
        #: Whether the vectors follow the table: while filters are offloaded.
        self._watching = False
        self._bring = _BRING
        self.standing = Standing()
        self.chooser = Chooser()
        self._cpu = cpu
        self._pending: deque[Pending] = deque()
        self._since = 0.0
        self._job: Job | None = None
        #: The way of the next batch, if that was asked already.
        self._chosen: Way | None = None
        #: Filters that had to wait, and those of them that wait no more.
        self._submitted = self._done = 0
        #: Filters to come that are searched for without asking whether it pays; nothing waits meanwhile.
        self._plainly = 0
        self.rest = Rest()
        self.counts = Counts()
        self._entering = Entering(table, self.settings, self.standing, self.counts, self._search, self._members)

    # -- clients --------------------------------------------------------------------------

    def join(self, client: str) -> None:
        """A client is willing to compute."""
        self.standing.join(client)
        self._plainly, self.rest.on = 0, False

    def leave(self, client: str, now: float) -> list[Ask]:
        """A client is gone; nothing more is waited for from it."""
        self.standing.leave(client)
        self._assignment.leave(client)
        self._writing.leave(client)
        if self._job is not None and client in self._job.waiting:
            self._job.waiting.discard(client)
            return self._maybe_finish(now)
        return []

    # -- filters --------------------------------------------------------------------------

    def submit(self, items: Items, now: float) -> list[Ask]:
        """Interfaces subscribe with filters, which came together."""
        if self._plainly > 0 or self.rest.on:
            self._plainly -= 0 if self.rest.on else len(items)
            self._search(items)
            return []
        # Where the same filter is there: no search in any case.
        fresh = [item for item in items if self.table.number(item[0]) is None]
        if len(fresh) < len(items):
            self.table.insert_many([item for item in items if self.table.number(item[0]) is not None])
        if not fresh:
            return []
        if not self._pending:
            if self._job is None and self._at_once():
                self._chosen = None
                self._search_at_once(fresh, now)
                return []
            self._since = now
        self._pending.extend(Pending(wanted, interface) for wanted, interface in fresh)
        self._submitted += len(fresh)
        return self._next(now)

    def withdraw(self, wanted: Filter, interface: Hashable) -> bool:
        """An interface takes a filter back that is not in the table yet; False if it does not wait."""
        key = (wanted, interface)
        found = False
        if self._job is not None and key in self._job.inputs:
            self._job.withdrawn.add(key)
            found = True
        for each in self._pending:
            if (each.wanted, each.interface) == key and not each.withdrawn:
                each.withdrawn = found = True
        return found

    @property
    def waiting(self) -> int:
        """Filters that are not in the table yet."""
        return len(self._pending) + (len(self._job.inputs) if self._job else 0)

    def mark(self) -> int:
        """Names what was submitted so far, for `reached`."""
        return self._submitted

    def reached(self, mark: int) -> bool:
        """Whether all that was submitted before a mark is in the table."""
        return self._done >= mark

    def due(self) -> float | None:
        """When `tick` has something to do."""
        if self._job is not None:
            return self._job.until
        if self.rest.on:
            return self.rest.until
        return self._since + self.settings.wait if self._pending else None

    def tick(self, now: float) -> list[Ask]:
        """Time has passed."""
        if self._job is not None and now >= self._job.until:
            return self._finish(now)
        self.rest.tick(now)
        return self._next(now)

    def flush(self, now: float) -> list[Ask]:
        """Do not wait for a full batch."""
        return self._next(now, partly=True)

    def _next(self, now: float, partly: bool = False) -> list[Ask]:
        while self._job is None and self._pending:
            late = now >= self._since + self.settings.wait
            if len(self._pending) < self.settings.batch and not late and not partly:
                break
            count = min(self.settings.batch, len(self._pending))
            popped = [self._pending.popleft() for _ in range(count)]
            inputs = [(each.wanted, each.interface) for each in popped if not each.withdrawn]
            self._done += len(popped) - len(inputs)
            self._since = now
            if not inputs:
                continue
            begin = self._cpu()
            way, self._chosen = self._chosen or self._way(), None
            launched = self._launch(inputs, now) if way == "offload" else None
            if launched is not None:
                self._job, asks = launched
                self._job.spent = self._cpu() - begin
                return asks
            self._search(inputs)
            self._done += len(inputs)
            self.chooser.cost("plain", self._cpu() - begin, len(inputs))
        return []

    # -- searching ------------------------------------------------------------------------

    def _at_once(self) -> bool:
        """Whether a filter need not wait for a batch, since it will be searched for in any case."""
        if self.settings.mode == "auto" and self.chooser.needless():
            return True
        self._chosen = self._way()
        return self._chosen == "plain" and not self.chooser.trying

    def _way(self) -> Way:
        if self.settings.mode == "never" or not self.standing.trusted():
            return "plain"
        if self.settings.mode == "always":
            return "offload"
        setup = 0.0 if self._watching else self._bring * len(self.table)
        return self.chooser.choose(len(self.table), self.settings.batch, setup)

    def _search(self, items: Items) -> None:
        self.table.insert_many(items)
        self.counts.searched += len(items)

    def _search_at_once(self, items: Items, now: float) -> None:
        """No batch, no waiting, no question for the next ones; but a look at what it costs, since the table grows."""
        begin, few = self._cpu(), len(items)
        self._search(items)
        self._plainly = max(0, _LOOK - few)
        self.chooser.cost("plain", self._cpu() - begin, few, of=max(1.0, _LOOK / few))
        auto, nobody = self.settings.mode == "auto", self.settings.mode == "never" or not self.standing.trusted()
        if self.rest.consider(now, nobody, auto and self.chooser.needless()):
            self._plainly = 0
        if self._watching and (self.rest.on or (auto and self.chooser.best == "plain")):
            # Keeping vectors up to date is work too, and nobody asks for them now.
            self._unwatch()

    def _moved(self, number: int, was: int | None, level: int | None) -> None:
        self.vectors.moved(number, was, level)
        if self._job is not None and was is not None and level is not None:
            self._job.moved.add(number)

    def _unwatch(self) -> None:
        self._watching = False
        self.table.watch(None)
        self.vectors = Vectors(self.settings.vector, self._numbers)
        self._assignment = Assignment(self.settings.copies, self.settings.vector)

    # -- asking ---------------------------------------------------------------------------

    def _encoded(self, number: int) -> bytes:
        wanted = self.table.filter(number)
        return self._bytes.get(wanted) or self._writing.filter(wanted)

    def _launch(self, inputs: list[tuple[Filter, Hashable]], now: float) -> tuple[Job, list[Ask]] | None:
        """Questions about some inputs; ``None`` if there is nothing to ask, or a filter that cannot be hidden."""
        fresh, begin = not self._watching, self._cpu()
        try:
            encoded = tuple(self._writing.filter(wanted) for wanted, _ in inputs)
            if fresh:
                self._watching = True
                self.table.watch(self._moved)
            if not len(self.vectors):
                return None
            # Clients are sent the same filters again when they are in the table.
            self._bytes = {wanted: data for (wanted, _), data in zip(inputs, encoded, strict=True)}
            asked, updates = self._assignment.updates(self.vectors, set(self.standing.trusted()), self._encoded)
        except FilterError:
            return None
        job = Job(next(self._numbers), inputs, now + self.settings.timeout, asked, set(updates))
        category, schema = self._writing.category, self._writing.schema
        asks = [
            Ask(client, Compute(job.number, category, encoded, tuple(mine), schema(client)))
            for client, mine in updates.items()
        ]
        if fresh:
            self._bring = (self._cpu() - begin) / max(1, len(self.table))
        return job, asks

    # -- answers --------------------------------------------------------------------------

    def charge(self, job: int, seconds: float) -> None:
        """Count processor time that the shell spent on the batch under way, for sending and receiving."""
        if self.asks(job):
            assert self._job is not None
            self._job.spent += seconds

    def asks(self, job: int) -> bool:
        """Whether this is the batch under way."""
        return self._job is not None and self._job.number == job

    def answered(self, client: str, message: Computed, now: float) -> list[Ask]:
        """A client's answer; late ones are of no use."""
        job = self._job
        if job is None or message.job != job.number or client not in job.waiting:
            self.counts.late += 1
            return []
        begin = self._cpu()
        job.waiting.discard(client)
        job.pairs[client] = message.inputs
        for number in message.missing:
            self._assignment.lacks(number, client)
        for answer in message.answers:
            if client in job.asked.get(answer.vector, ()):
                job.answers.setdefault(answer.vector, {})[client] = answer.relations
        job.spent += self._cpu() - begin
        return self._maybe_finish(now)

    def _maybe_finish(self, now: float) -> list[Ask]:
        assert self._job is not None
        return [] if self._job.waiting else self._finish(now)

    def _finish(self, now: float) -> list[Ask]:
        job = self._job
        assert job is not None
        begin = self._cpu()
        verdict = Verdict(job, lambda number: self._own(number, job), self.counts)
        for client in verdict.blamed:
            self.standing.bad(client)
        for client in verdict.praised:
            self.standing.good(client)
        verdict.add(
            related([w for w, _ in job.inputs], {n: self.table.filter(n) for n in job.moved if n in self.table})
        )
        if not self._entering.insert(job, verdict):
            # Nothing that was placed by votes is to be trusted.
            self._unwatch()
            self.table.rebuild()
        self._job = None
        self._done += len(job.inputs)
        self.chooser.cost("offload", job.spent + self._cpu() - begin, len(job.inputs))
        return self._next(now)

    def _own(self, number: int, job: Job) -> Relations:
        """What clients did not answer, computed here."""
        vector = self.vectors.vectors.get(number)
        members = {n: self.table.filter(n) for n in (vector.members if vector is not None else ())}
        return related([wanted for wanted, _ in job.inputs], members)

    def _members(self, number: int) -> set[int]:
        assert self._job is not None
        vector = self.vectors.vectors.get(number)
        return set(vector.members) - self._job.moved if vector is not None else set()

    def statistics(self) -> dict[str, Any]:
        """Counts and costs, as plain data."""
        return {
            **asdict(self.counts),
            "waiting": self.waiting,
            "resting": self.rest.on,
            "vectors": len(self.vectors),
            "trusted": len(self.standing.trusted()),
            "excluded": sorted(self.standing.excluded()),
            "microseconds": {way: round(1e6 * each, 1) for way, each in self.chooser.costs().items()},
        }
