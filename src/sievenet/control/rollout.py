"""Rollout: changes carried to switches step by step, each acknowledged before the next.

A step is done when every switch concerned has acknowledged it.  One that does not answer in
time is *undefined*: nobody knows which of the changes it carried out.  The rollout
stalls, reads the switch, and sends the difference to what the switch should hold at
this step, until one is acknowledged:

                  ┌────────────── acknowledged ──────────────┐
                  │                                          ▼
    changes ──▶ sent ──── undefined ──▶ reading ──▶ same? ── yes ──▶ done
                  ▲                       ▲ │         │
                  │                       └─┘ no answer: again after a while
                  └──────── difference ───────────────┘ no

A switch that goes down is done: whatever it held is cleaned up before it is used again.  A
switch that refuses (a full table) is done too, but the rollout as a whole then reports the
refusal instead of success, without starting another step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from sievenet.errors import SievenetError
from sievenet.network import Flow, FlowChange, FlowTable, difference

__all__ = ["Outlet", "Rollout", "Step"]

#: What to tell which switch.
Step = Mapping[str, Sequence[FlowChange]]


class Outlet(Protocol):
    """What a rollout needs of the controller."""

    def apply(self, rollout: Rollout, switch: str, changes: Sequence[FlowChange]) -> None:
        """Send changes to a switch."""

    def read(self, rollout: Rollout, switch: str) -> None:
        """Ask a switch for its table."""

    def read_later(self, rollout: Rollout, switch: str) -> None:
        """Ask a switch for its table after a delay."""

    def up(self, switch: str) -> bool:
        """Whether a switch is in use."""


class Rollout:
    """A rollout under way."""

    def __init__(
        self,
        outlet: Outlet,
        steps: Sequence[Step],
        *,
        expected: Callable[[str, int], Iterable[Flow]],
        scope: Callable[[Flow], bool],
        done: Callable[[SievenetError | None], None],
        unknown: Iterable[str] = (),
        difference: Callable[[str, FlowTable, FlowTable], list[FlowChange] | None] | None = None,
    ) -> None:
        self._outlet = outlet
        self._steps = steps
        #: The flows, of those in scope, that a switch should hold after a step.
        self._expected = expected
        #: The flows that are this rollout's business.
        self._scope = scope
        self._done = done
        self._unknown = tuple(unknown)
        #: How a switch is put right, None if not now; without, additions come first, however full it is.
        self._difference = difference
        self._at = 0
        self._refusal: SievenetError | None = None
        #: Switches that have not finished the current step.
        self.waiting: set[str] = set()
        #: Those of them whose state nobody knows.
        self.undefined: set[str] = set()

    @property
    def stalled(self) -> bool:
        """Whether some switch did not acknowledge."""
        return bool(self.undefined)

    def start(self) -> None:
        """Begin; ends at once if there is nothing to do."""
        up = self._outlet.up
        first = self._steps[0] if self._steps else {}
        unknown = [s for s in self._unknown if up(s)]
        known = [s for s in first if s not in unknown and up(s)]
        self.waiting = {*unknown, *known}
        self.undefined = set(unknown)
        for switch in unknown:
            self._outlet.read(self, switch)
        for switch in known:
            self._outlet.apply(self, switch, first[switch])
        self._proceed()

    def _proceed(self) -> None:
        while not self.waiting:
            self._at += 1
            if self._at >= len(self._steps) or self._refusal is not None:
                self._done(self._refusal)
                return
            step = self._steps[self._at]
            self.waiting = {s for s in step if self._outlet.up(s)}
            for switch in sorted(self.waiting):
                self._outlet.apply(self, switch, step[switch])

    def acknowledged(self, switches: Iterable[str]) -> None:
        """The switches have applied the changes."""
        before = len(self.waiting)
        self.waiting.difference_update(switches)
        self.undefined.difference_update(switches)
        if len(self.waiting) < before:
            self._proceed()

    def gone(self, switch: str) -> None:
        """The switch went down."""
        self.acknowledged((switch,))

    def refused(self, switch: str, error: SievenetError) -> None:
        """The switch has applied none of the changes."""
        if switch in self.waiting:
            self._refusal = error
        self.acknowledged((switch,))

    def suspect(self, switch: str) -> None:
        """The state of the switch is undefined."""
        if switch in self.waiting:
            self.undefined.add(switch)
            self._outlet.read(self, switch)

    def told(self, switch: str, table: FlowTable | None) -> None:
        """The switch has answered with its table, or has not answered."""
        if switch not in self.waiting:
            return
        if table is None:
            self._outlet.read_later(self, switch)
            return
        holds = FlowTable(flow for flow in table if self._scope(flow))
        wanted = FlowTable(self._expected(switch, self._at))
        changes = difference(holds, wanted) if self._difference is None else self._difference(switch, holds, wanted)
        if changes is None:
            self._outlet.read_later(self, switch)
        elif changes:
            self._outlet.apply(self, switch, changes)
        else:
            self.acknowledged((switch,))
