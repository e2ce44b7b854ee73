"""What clients report with their heartbeats, added up: the only place where false positives and latency are known."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from sievenet.control.protocol import Report

__all__ = ["Reports", "Totals"]

#: Where counting ends: whatever clients say, an answer must be encodable.
_HIGHEST = (1 << 63) - 1
#: Seconds of latency that can be meant.
_LATEST = 1e9
_COUNTS = ("received", "delivered", "false_positives", "duplicates", "dropped", "published")


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all clients, those that are gone included."""

    received: int = 0
    delivered: int = 0
    false_positives: int = 0
    duplicates: int = 0
    dropped: int = 0
    published: int = 0
    #: Of the clients' latest reports: the median of medians and the worst 99th percentile, in seconds.
    latency_p50: float | None = None
    latency_p99: float | None = None

    @property
    def per_host(self) -> float:
        """Packets that no subscription of the host wanted, and second copies, over all that it received."""
        return (self.false_positives + self.duplicates) / max(1, self.received)


class Reports:
    """Reports by client."""

    def __init__(self) -> None:
        self._sums: dict[str, Report] = {}
        self._gone = Report()

    def add(self, client: str, report: Report) -> None:
        """Add what a client saw since its last report."""
        if not all(value is None or 0 <= value < _LATEST for value in (report.latency_p50, report.latency_p99)):
            report = msgspec.structs.replace(report, latency_p50=None, latency_p99=None)  # no number to count with
        self._sums[client] = _plus(self._sums.get(client, Report()), report)

    def forget(self, client: str) -> None:
        """The client is gone; its counts stay in the totals."""
        report = self._sums.pop(client, None)
        if report is not None:
            self._gone = _plus(self._gone, report)

    def of(self, client: str) -> Report:
        """All that a client has reported, with the latency of its last report."""
        return self._sums.get(client, Report())

    def totals(self) -> Totals:
        """Everything together."""
        every = [self._gone, *self._sums.values()]
        medians = sorted(r.latency_p50 for r in self._sums.values() if r.latency_p50 is not None)
        worst = [r.latency_p99 for r in self._sums.values() if r.latency_p99 is not None]
        counts = {name: min(_HIGHEST, sum(getattr(r, name) for r in every)) for name in _COUNTS}
        return Totals(
            received=counts["received"],
            delivered=counts["delivered"],
            false_positives=counts["false_positives"],
            duplicates=counts["duplicates"],
            dropped=counts["dropped"],
            published=counts["published"],
            latency_p50=medians[len(medians) // 2] if medians else None,
            latency_p99=max(worst, default=None),
        )


def _plus(total: Report, report: Report) -> Report:
    """Counts add up; latency is the newer one if there is any."""
    counts = {name: min(_HIGHEST, getattr(total, name) + getattr(report, name)) for name in _COUNTS}
    newer = report if report.latency_p50 is not None else total
    return msgspec.structs.replace(newer, **counts)
