"""Merges: what is told of tables that were made to fit: how much they stand for, and what that costs."""

from __future__ import annotations

import time
from typing import Any

from sievenet.control.plane import ControlPlane
from sievenet.dataplane.plane import SwitchCounters
from sievenet.index import Cell, Dz

__all__ = ["Merges"]


class Merges:
    """Looks at merged flows and what they carry."""

    def __init__(self, control: ControlPlane) -> None:
        self._control = control
        #: By switch: packets sent too far as of the last look, when that was, and the rate then.
        self._seen: dict[str, tuple[float, float, float]] = {}

    def at(self, switch: str, counters: SwitchCounters) -> dict[str, Any]:
        """What merging does to a switch; nothing if its table has no limit.

        `unwanted` is an estimate, as if what merged flows carry were spread evenly over them: packets sent too far, per
        second since the last look.
        """
        capacity, ideal, found = self._control.merging(switch)
        if capacity is None:
            return {}
        merges = {(each.category, dz): (count, share) for each in found for dz, count, share in each.merges}
        sent = 0.0
        for key, count in counters.flows.items():
            merge = merges.get((key.match.category, key.match.cell))
            if merge is not None:
                sent += count.packets * merge[1]
        now = time.monotonic()
        was, since, rate = self._seen.get(switch, (sent, now, 0.0))
        if now - since >= 0.1 or switch not in self._seen:
            rate = max(0.0, sent - was) / (now - since) if now > since else 0.0
            self._seen[switch] = (sent, now, rate)
        return {
            "capacity": capacity,
            "ideal": ideal,
            "merged": len(merges),
            "stand_for": sum(count for count, _ in merges.values()),
            "unwanted": rate,
        }

    def counts(self, switch: str) -> dict[tuple[int, Dz | Cell], int]:
        """How many entries of the ideal table each merge stands for, by category and dz."""
        return {(each.category, dz): n for each in self._control.merging(switch)[2] for dz, n, _ in each.merges}
