"""The switchboard: which rollout waits for which switch, and timers.

Rollouts (`rollout`) hand it changes and questions; it numbers them, turns them into instructions,
and finds the rollout again when the answer comes.  Questions to one switch that come up in
the same moment are asked once.  It keeps the alarm clock too.

Changes for one switch that come up in the same moment, as those of several partitions do, go in one bundle: a switch
needs about as long for a large one as for a small one.  If it refuses a bundle, each part of it is tried alone, so that
only whoever asked for too much is refused.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from sievenet.control.rollout import Rollout
from sievenet.control.signals import Apply, Instruction, Read, Soon
from sievenet.errors import SievenetError
from sievenet.network import FlowChange, FlowTable

__all__ = ["Switchboard"]

Callback = Callable[[], None]
_Parcel = tuple[Rollout, Sequence[FlowChange]]


_NOTHING: Final[tuple[str, list[_Parcel]]] = "", []


class Switchboard:
    """Numbers requests to switches and routes the answers to their rollouts."""

    def __init__(self, up: Callable[[str], bool], retry: float, saw: Callable[[str, FlowTable], None]) -> None:
        self.now = 0.0
        #: Instructions that the shell has not seen yet.
        self.out: list[Instruction] = []
        #: Whether a switch is in use, or being made ready for it.
        self.up = up
        #: Who hears first what a switch holds.
        self.saw = saw
        self._retry = retry
        self._serial = 0
        #: Changes that are not sent yet, by switch, and those that were sent together.
        self._parcels: dict[str, list[_Parcel]] = {}
        self._flights: dict[int, tuple[str, list[_Parcel]]] = {}
        self._reads: dict[int, tuple[list[Rollout], str]] = {}
        self._asked: dict[str, list[Rollout]] = {}
        self._timers: list[tuple[float, int, Callback]] = []
        self._soon: list[Callback] = []
        #: Rollouts that belong to no lane.
        self.watched: list[Rollout] = []

    def serial(self) -> int:
        """A fresh number."""
        self._serial += 1
        return self._serial

    # -- for rollouts ----------------------------------------------------------------------

    def apply(self, rollout: Rollout, switch: str, changes: Sequence[FlowChange]) -> None:
        """Send changes to a switch."""
        parcels = self._parcels.get(switch)
        if parcels is None:
            self._parcels[switch] = [(rollout, changes)]
        else:
            parcels.append((rollout, changes))

    def _send(self, switch: str, parcels: list[_Parcel]) -> None:
        serial = self.serial()
        self._flights[serial] = switch, parcels
        self.out.append(Apply(serial, switch, [changes for _, changes in parcels]))

    def read(self, rollout: Rollout, switch: str) -> None:
        """Ask a switch for its table."""
        self._asked.setdefault(switch, []).append(rollout)

    def read_later(self, rollout: Rollout, switch: str) -> None:
        """Ask a switch for its table after a delay."""
        self.after(self._retry, lambda: self.read(rollout, switch) if switch in rollout.waiting else None)

    def watch(self, rollout: Rollout) -> None:
        """Begin a rollout that belongs to no lane."""
        self.watched = [r for r in self.watched if r.waiting]
        self.watched.append(rollout)
        rollout.start()

    # -- answers ---------------------------------------------------------------------------

    def acknowledged(self, serials: Iterable[int]) -> None:
        """Switches have applied changes."""
        done: defaultdict[Rollout, list[str]] = defaultdict(list)
        for serial in serials:
            switch, parcels = self._flights.pop(serial, _NOTHING)
            for rollout, _ in parcels:
                done[rollout].append(switch)
        for rollout, switches in done.items():
            rollout.acknowledged(switches)

    def undefined(self, serial: int) -> None:
        """A switch did not acknowledge in time."""
        switch, parcels = self._flights.pop(serial, _NOTHING)
        for rollout, _ in parcels:
            rollout.suspect(switch)

    def refused(self, serial: int, error: SievenetError) -> None:
        """A switch has refused changes."""
        switch, parcels = self._flights.pop(serial, _NOTHING)
        if len(parcels) == 1:
            parcels[0][0].refused(switch, error)
            return
        for parcel in parcels:
            self._send(switch, [parcel])

    def told(self, serial: int, table: FlowTable | None) -> None:
        """A switch has answered with its table, or has not answered."""
        rollouts, switch = self._reads.pop(serial, ((), ""))
        if table is not None and switch:
            self.saw(switch, table)
        for rollout in rollouts:
            rollout.told(switch, table)

    # -- time ------------------------------------------------------------------------------

    def at(self, time: float, callback: Callback) -> None:
        """Call back at a time."""
        heapq.heappush(self._timers, (time, self.serial(), callback))

    def after(self, seconds: float, callback: Callback) -> None:
        """Call back after some seconds."""
        self.at(self.now + seconds, callback)

    def later(self, callback: Callback) -> None:
        """Call back when something that failed may be tried again."""
        self.after(self._retry, callback)

    def soon(self, callback: Callback) -> None:
        """Call back after other work has had its turn."""
        self._soon.append(callback)

    def next_deadline(self) -> float | None:
        """When the next callback is due."""
        return self._timers[0][0] if self._timers else None

    def ring(self) -> None:
        """Run the callbacks that are due."""
        while self._timers and self._timers[0][0] <= self.now:
            heapq.heappop(self._timers)[2]()

    def turn(self) -> None:
        """Run what was deferred."""
        soon, self._soon = self._soon, []
        for callback in soon:
            callback()

    def flush(self) -> None:
        """Send the changes and reads that are due."""
        if self._parcels:
            parcels, self._parcels = self._parcels, {}
            for switch, some in parcels.items():
                self._send(switch, some)
        if self._asked:
            asked, self._asked = self._asked, {}
            for switch, rollouts in asked.items():
                serial = self.serial()
                self._reads[serial] = rollouts, switch
                self.out.append(Read(serial, switch))
        if self._soon:
            self.out.append(Soon())
