"""Routing table offloading (RTO), the router's side: new filters are placed with the help of clients. Pure.

    submit ──▶ batch (by size or time) ──▶ Ask each client: these inputs, your vectors ──▶ answers ──▶ vote ──▶ place
                     │                                                      │ timeout          │ no majority
                     └── does not pay, or no clients: search ◀──────────────┴── compute those vectors here

Each vector goes to ``copies`` clients, always the same ones while they stay, so they hold it already and a request is
little more than the inputs. One batch is under way at a time: what is asked about does not change meanwhile, except
that filters may be removed, which answers survive (numbers are never used twice).

The answers are *all* predecessors and successors, from which the place follows by set arithmetic (`poset.immediate`).
With ``check`` every link to be made is tested; a wrong "covers" would lose events, a missing one only costs space, so
these tests are what correctness needs. A filter that fails is inserted by searching.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Final

import msgspec

from sievenet.content.codec import encode_filter
from sievenet.content.filter import Filter
from sievenet.errors import FilterError
from sievenet.routers.offload.choosing import Chooser, Way
from sievenet.routers.offload.hiding import Disguise
from sievenet.routers.offload.jobs import Ask, Counts, Job, RtoSettings
from sievenet.routers.offload.messages import (
    Compute,
    Computed,
    Relations,
    VectorUpdate,
    decode_answer,
    decode_pairs,
)
from sievenet.routers.offload.tables import Table
from sievenet.routers.offload.vectors import Vectors
from sievenet.routers.offload.voting import Standing, majority
from sievenet.routers.offload.worker import input_pairs, related

__all__ = ["Ask", "Offloader", "RtoSettings"]

#: Of so many filters that are inserted at once, one is timed.
_LOOK: Final = 16


class Offloader:
    """Places filters in a table. ``cpu`` reads the processor time of the router, for choosing the way."""

    def __init__(
        self,
        table: Table,
        category: int,
        settings: RtoSettings | None = None,
        *,
        cpu: Callable[[], float],
    ) -> None:
        self.settings = settings or RtoSettings()
        self._category = 0 if self.settings.secret else category
        self._disguise = Disguise(self.settings.secret) if self.settings.secret else None
        #: Bytes of filters that are on their way into the table.
        self._bytes: dict[Filter, bytes] = {}
        self.table = table
        self.vectors = Vectors(self.settings.vector)
        #: Whether the vectors follow the table: from the first batch that is offloaded on.
        self._watching = False
        self.standing = Standing()
        self.chooser = Chooser()
        self._cpu = cpu
        self._pending: deque[tuple[Filter, Hashable]] = deque()
        self._since = 0.0
        self._job: Job | None = None
        self._numbers = 0
        self._assigned: dict[int, tuple[str, ...]] = {}
        self._load: dict[str, int] = {}
        #: Vector → client → the version it was sent.
        self._sent: dict[int, dict[str, int]] = {}
        self.counts = Counts()

    # -- clients --------------------------------------------------------------------------

    def join(self, client: str) -> None:
        """A client is willing to compute."""
        self.standing.join(client)
        self._load.setdefault(client, 0)

    def leave(self, client: str, now: float) -> list[Ask]:
        """A client is gone; nothing more is waited for from it."""
        self.standing.leave(client)
        self._load.pop(client, None)
        for sent in self._sent.values():
            sent.pop(client, None)
        if self._job is not None and client in self._job.waiting:
            self._job.waiting.discard(client)
            return self._maybe_finish(now)
        return []

    # -- filters --------------------------------------------------------------------------

    def submit(self, wanted: Filter, interface: Hashable, now: float) -> list[Ask]:
        """An interface subscribes with a filter."""
        if self.table.number(wanted) is not None:
            # The same filter is there: no search in any case.
            self.table.insert(wanted, interface)
            return []
        if not self._pending:
            if self._job is None and self.settings.mode == "auto" and self.chooser.needless():
                self._search_at_once(wanted, interface)
                return []
            self._since = now
        self._pending.append((wanted, interface))
        return self._next(now)

    @property
    def waiting(self) -> int:
        """Filters that are not in the table yet."""
        return len(self._pending) + (len(self._job.inputs) if self._job else 0)

    def due(self) -> float | None:
        """When `tick` has something to do."""
        if self._job is not None:
            return self._job.until
        return self._since + self.settings.wait if self._pending else None

    def tick(self, now: float) -> list[Ask]:
        """Time has passed."""
        if self._job is not None and now >= self._job.until:
            return self._finish(now)
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
            inputs = [self._pending.popleft() for _ in range(count)]
            self._since = now
            begin = self._cpu()
            launched = self._launch(inputs, now) if self._way() == "offload" else None
            if launched is not None:
                self._job, asks = launched
                self._job.spent = self._cpu() - begin
                return asks
            for wanted, interface in inputs:
                self._search(wanted, interface)
            self.chooser.cost("plain", self._cpu() - begin, len(inputs))
        return []

    def _way(self) -> Way:
        if self.settings.mode == "never" or not self.standing.trusted():
            return "plain"
        if self.settings.mode == "always":
            return "offload"
        return self.chooser.choose(len(self.table))

    def _search(self, wanted: Filter, interface: Hashable) -> None:
        self.table.insert(wanted, interface)
        self.counts.searched += 1

    def _search_at_once(self, wanted: Filter, interface: Hashable) -> None:
        """No batch, no waiting; now and then a look at what it costs, since the table grows."""
        if self.counts.searched % _LOOK:
            self._search(wanted, interface)
            return
        begin = self._cpu()
        self._search(wanted, interface)
        self.chooser.cost("plain", self._cpu() - begin, 1)

    def _encoded(self, number: int) -> bytes:
        wanted = self.table.filter(number)
        return self._bytes.get(wanted) or self._encode(wanted)

    def _encode(self, wanted: Filter) -> bytes:
        return encode_filter(self._disguise.filter(wanted) if self._disguise is not None else wanted)

    # -- asking ---------------------------------------------------------------------------

    def _launch(self, inputs: list[tuple[Filter, Hashable]], now: float) -> tuple[Job, list[Ask]] | None:
        """Questions about some inputs; ``None`` if there is nothing to ask, or a filter that cannot be hidden."""
        if not self._watching:
            self._watching = True
            self.table.watch(self.vectors.moved)
        if not len(self.vectors):
            return None
        try:
            encoded = [self._encode(wanted) for wanted, _ in inputs]
        except FilterError:
            return None
        # Clients are sent the same filters again when they are in the table.
        self._bytes = {wanted: data for (wanted, _), data in zip(inputs, encoded, strict=True)}
        self._numbers += 1
        updates: dict[str, list[VectorUpdate]] = {}
        asked: dict[int, tuple[str, ...]] = {}
        trusted = set(self.standing.trusted())
        for number, vector in self.vectors.vectors.items():
            clients = asked[number] = self._clients(number, len(vector.members), trusted)
            sent = self._sent.setdefault(number, {})
            for client in clients:
                updates.setdefault(client, []).append(vector.update(sent.get(client, 0), self._encoded))
                sent[client] = vector.version
        self._tidy()
        job = Job(self._numbers, inputs, now + self.settings.timeout, asked, set(updates))
        asks = [
            Ask(client, Compute(self._numbers, self._category, tuple(encoded), tuple(mine)))
            for client, mine in updates.items()
        ]
        return job, asks

    def _clients(self, vector: int, size: int, trusted: set[str]) -> tuple[str, ...]:
        """The clients of a vector: the same as before, unless they are gone or a better number can be had."""
        before = self._assigned.get(vector, ())
        kept = [c for c in before if c in trusted]
        wanted = min(self.settings.copies, len(trusted))
        if len(kept) < wanted:
            others = sorted(trusted.difference(kept), key=lambda c: (self._load.get(c, 0), c))
            for client in others[: wanted - len(kept)]:
                kept.append(client)
                self._load[client] = self._load.get(client, 0) + max(1, size)
        if tuple(kept) != before:
            self._assigned[vector] = tuple(kept)
        return self._assigned[vector]

    def _tidy(self) -> None:
        """Forget vectors that are no more."""
        if len(self._assigned) > 2 * len(self.vectors) + 16:
            for number in [n for n in self._assigned if n not in self.vectors.vectors]:
                for client in self._assigned.pop(number):
                    if client in self._load:
                        self._load[client] = max(0, self._load[client] - self.settings.vector)
                self._sent.pop(number, None)

    # -- answers --------------------------------------------------------------------------

    def charge(self, seconds: float) -> None:
        """Count processor time that the shell spent on the batch under way, for sending and receiving."""
        if self._job is not None:
            self._job.spent += seconds

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
            self._sent.get(number, {}).pop(client, None)
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
        above, below = self._relations(job)
        self._insert(job, above, below)
        self._job = None
        self.chooser.cost("offload", job.spent + self._cpu() - begin, len(job.inputs))
        return self._next(now)

    def _relations(self, job: Job) -> tuple[list[set[int]], list[set[int]]]:
        """All predecessors and successors of each input, by vote or by own work."""
        count = len(job.inputs)
        above: list[set[int]] = [set() for _ in range(count)]
        below: list[set[int]] = [set() for _ in range(count)]
        blamed = set(job.waiting)
        praised: set[str] = set()
        for number, clients in job.asked.items():
            answers = job.answers.get(number, {})
            best = majority(answers, len(clients))
            found = self._decoded(best, count)
            if found is None:
                found = self._own(number, job)
            else:
                praised.update(c for c, each in answers.items() if each == best)
                blamed.update(c for c, each in answers.items() if each != best)
            for i in range(count):
                above[i].update(found.above[i])
                below[i].update(found.below[i])
        for client in blamed:
            self.standing.bad(client)
        for client in praised - blamed:
            self.standing.good(client)
        return above, below

    def _decoded(self, data: bytes | None, count: int) -> Relations | None:
        if data is None:
            return None
        try:
            found = decode_answer(data)
        except msgspec.DecodeError:
            found = None
        if found is None or len(found.above) != count or len(found.below) != count:
            self.counts.malformed += 1
            return None
        return found

    def _own(self, number: int, job: Job) -> Relations:
        """What clients did not answer, computed here."""
        self.counts.local_vectors += 1
        vector = self.vectors.vectors.get(number)
        members = {n: self.table.filter(n) for n in (vector.members if vector is not None else ())}
        return related([wanted for wanted, _ in job.inputs], members)

    def _insert(self, job: Job, above: list[set[int]], below: list[set[int]]) -> None:
        table, check = self.table, self.settings.check
        covering, covered = self._inner(job)
        placed: dict[int, int] = {}
        for i, (wanted, interface) in enumerate(job.inputs):
            if table.number(wanted) is not None:
                table.insert(wanted, interface)
                continue
            over = {n for n in above[i] if n in table}
            under = {n for n in below[i] if n in table}
            over.update(placed[j] for j in covering.get(i, ()) if j in placed and placed[j] in table)
            under.update(placed[j] for j in covered.get(i, ()) if j in placed and placed[j] in table)
            if over.isdisjoint(under) and table.place(wanted, interface, over, under, check):
                self.counts.offloaded += 1
            else:
                self.counts.failed_checks += 1
                self._search(wanted, interface)
            number = table.number(wanted)
            if number is not None:
                placed[i] = number

    def _inner(self, job: Job) -> tuple[dict[int, set[int]], dict[int, set[int]]]:
        """For each input, the other inputs that cover it and those that it covers."""
        best = majority(job.pairs, len(job.pairs))
        pairs: tuple[tuple[int, int], ...] | None = None
        if best is not None:
            try:
                pairs = decode_pairs(best)
            except msgspec.DecodeError:
                self.counts.malformed += 1
        if pairs is None:
            pairs = input_pairs([wanted for wanted, _ in job.inputs])
        covering: dict[int, set[int]] = {}
        covered: dict[int, set[int]] = {}
        for i, j in pairs:
            covering.setdefault(j, set()).add(i)
            covered.setdefault(i, set()).add(j)
        return covering, covered
