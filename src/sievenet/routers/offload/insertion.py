"""Applies voted placements of a batch after verifying them: checks of links, audits of whole answers."""

from __future__ import annotations

from collections.abc import Callable

from sievenet.content.filter import Filter
from sievenet.routers.batches import Items
from sievenet.routers.offload.jobs import Counts, Job, RtoSettings
from sievenet.routers.offload.reputation import Standing
from sievenet.routers.offload.tables import Table
from sievenet.routers.offload.verdict import Verdict, differences

__all__ = ["Entering"]


class Entering:
    """``search`` inserts what votes cannot place; ``members`` tells whom a vector had while clients were asked."""

    def __init__(
        self,
        table: Table,
        settings: RtoSettings,
        standing: Standing,
        counts: Counts,
        search: Callable[[Items], None],
        members: Callable[[int], set[int]],
    ) -> None:
        self._table, self._settings = table, settings
        self._standing, self._counts = standing, counts
        self._search, self._members = search, members
        #: Grows by the share that is audited; at 1 one is.
        self._audit = 0.0

    def insert(self, job: Job, verdict: Verdict) -> bool:
        """Insert a batch; False if an audit found a majority that was wrong."""
        table, check = self._table, self._settings.check
        placed: dict[int, int] = {}
        honest = True
        for i, (wanted, interface) in enumerate(job.inputs):
            if (wanted, interface) in job.withdrawn:
                continue
            if table.number(wanted) is not None:
                table.insert(wanted, interface)
                continue
            if not honest:
                self._search([(wanted, interface)])
                continue
            over = {n for n in verdict.above[i] if n in table}
            under = {n for n in verdict.below[i] if n in table}
            over.update(placed[j] for j in verdict.covering.get(i, ()) if j in placed and placed[j] in table)
            under.update(placed[j] for j in verdict.covered.get(i, ()) if j in placed and placed[j] in table)
            honest = self._audited(i, wanted, over, under, verdict, set(placed.values()))
            if honest and over.isdisjoint(under) and table.place(wanted, interface, over, under, check):
                self._counts.offloaded += 1
            else:
                self._counts.failed_checks += honest
                self._search([(wanted, interface)])
            number = table.number(wanted)
            if number is not None:
                placed[i] = number
        return honest

    def _audited(
        self, i: int, wanted: Filter, over: set[int], under: set[int], verdict: Verdict, placed: set[int]
    ) -> bool:
        """Compare one filter in so many with the router's own work: False if a majority was wrong, and is expelled."""
        self._audit += self._settings.audit
        if self._audit < 1.0:
            return True
        self._audit -= 1.0
        self._counts.audited += 1
        claimed, missed = differences(self._table, wanted, over, under)
        if not claimed and not missed:
            return True
        self._counts.failed_audits += 1
        for client in verdict.liars(i, claimed, missed, placed, self._members):
            self._standing.expel(client)
        return False
