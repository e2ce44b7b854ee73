"""What a node says of itself with its heartbeat: what happened since the last time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from sievenet.client.latency import Latency
from sievenet.client.observation import Observations
from sievenet.client.receiver import Receiver
from sievenet.client.statistics import NodeStatistics
from sievenet.control import protocol as p

__all__ = ["Reporter"]

log = logging.getLogger("sievenet.client")


class Reporter:
    """Remembers what was said before."""

    def __init__(
        self, receiver: Receiver, statistics: Callable[[], NodeStatistics], told: Callable[[Any], None] = lambda _: None
    ) -> None:
        self._receiver, self._statistics, self._told = receiver, statistics, told
        self._before = p.Report()
        #: The switch of this node's host, while it is down.
        self._cut_off = ""

    def told(self, answer: Any) -> None:
        """What the daemon answers to a heartbeat: among other things whether it wants to know what came where."""
        self._told(answer)
        switch = str(answer.get("cut_off", "")) if isinstance(answer, dict) else ""
        if switch != self._cut_off:
            if switch:
                log.warning("switch %s of this host is down: nothing comes here, or goes from here", switch)
            else:
                log.warning("switch %s of this host is back", self._cut_off)
            self._cut_off = switch
        wanted = isinstance(answer, dict) and answer.get("observe") is True
        if wanted and self._receiver.observations is None:
            self._receiver.observations = Observations()
        elif not wanted:
            self._receiver.observations = None

    def report(self) -> p.Report:
        """The counts since the last report."""
        now = self._statistics()
        p50, p99 = self._receiver.recent.quantiles((0.5, 0.99))
        self._receiver.recent = Latency()
        total = p.Report(
            received=now.received.received - now.received.companions,
            delivered=now.delivered,
            false_positives=now.received.false_positives,
            duplicates=now.received.duplicates,
            dropped=now.dropped,
            published=now.published,
        )
        before, self._before = self._before, total
        seen = self._receiver.observations
        cells, (by_content, directed) = ((), (p.Way(), p.Way())) if seen is None else seen.taken()
        return p.Report(
            received=total.received - before.received,
            delivered=total.delivered - before.delivered,
            false_positives=total.false_positives - before.false_positives,
            duplicates=total.duplicates - before.duplicates,
            dropped=total.dropped - before.dropped,
            published=total.published - before.published,
            latency_p50=p50,
            latency_p99=p99,
            cells=cells,
            by_content=by_content,
            directed=directed,
        )
