"""Diversions: flows that hand a subspace to a matcher, above the flows that forward it.

    510   category 7, dz 0110…      → 9         the matcher's port, priority 500 + length of the dz
      6   category 7, dz 011010     → 2, 3      as ever: what is here while nothing is diverted

A diversion is one flow at one switch.  It takes precedence over every flow that follows from registrations, whatever
those become meanwhile, and over none that holds while a plan changes.  To divert is to add a flow and to go back is to
delete it: either is one acknowledged step at one switch, and every packet goes one way or the other.  That the matcher
delivers to whomever the flows below would have, is the business of whoever diverts (`daemon.hybrid`).

Which diversions there are is not written down.  A start finds their flows, knows nobody who answers for them, and
removes them.  What would make a diversion wrong ends it at once: another plan, other trees, a switch that comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from sievenet.control.deployment.passage import peak
from sievenet.control.deployment.rooms import Rooms
from sievenet.control.rollout import Rollout
from sievenet.control.switchboard import Switchboard
from sievenet.errors import SievenetError
from sievenet.index import Dz
from sievenet.network import TOP_PRIORITY, Add, Delete, Flow, FlowChange, Match

__all__ = ["DIVERSION", "Diversions", "is_diversion"]

#: Above the priority of any dz; the length of the dz is added.
DIVERSION: Final = 500

Done = Callable[[SievenetError | None], None]


def is_diversion(flow: Flow) -> bool:
    """Whether a flow hands packets to a matcher."""
    return DIVERSION <= flow.priority < TOP_PRIORITY


class Diversions:
    """The current diversions, as switches were told."""

    def __init__(self, board: Switchboard, rooms: Rooms) -> None:
        self._board = board
        #: Switches with few entries need room for them.
        self._rooms = rooms
        #: By category and switch: the port of the matcher for each dz.
        self._wanted: dict[tuple[int, str], dict[Dz, int]] = {}
        #: Told of categories and switches where everything ended without being asked for.
        self.on_end: Callable[[int, str], None] = lambda number, switch: None

    def of(self, number: int) -> dict[str, dict[Dz, int]]:
        """What is diverted of a category, by switch."""
        return {switch: dict(wanted) for (each, switch), wanted in self._wanted.items() if each == number and wanted}

    def flows(self, switch: str, number: int | None = None) -> list[Flow]:
        """The flows of a switch, of all categories or of one."""
        found = [(each, w) for (each, s), w in self._wanted.items() if s == switch and number in (None, each)]
        return [_flow(each, dz, port) for each, wanted in found for dz, port in wanted.items()]

    def set(self, number: int, switch: str, wanted: Mapping[Dz, int], done: Done) -> None:
        """Divert just these subspaces of a category at a switch; ``done`` when the switch has acknowledged."""
        old = self._wanted.get((number, switch), {})
        new = dict(wanted)
        changes: list[FlowChange] = [Add(_flow(number, dz, port)) for dz, port in new.items() if old.get(dz) != port]
        changes += [Delete(_flow(number, dz, port)) for dz, port in old.items() if dz not in new]
        self._wanted[number, switch] = new
        if not new:
            del self._wanted[number, switch]
        rollout = Rollout(
            self._board,
            [{switch: changes}] if changes else [{}],
            expected=lambda name, _: self.flows(name, number),
            scope=lambda flow: flow.match.category == number and is_diversion(flow),
            done=lambda error: self._ended(number, switch, old, error, done),
        )
        if switch not in self._rooms.capacity:
            self._board.watch(rollout)
            return
        who = ("diversions", number)
        self._rooms.share(switch, who, len(new))
        most = peak(len(old), changes)
        begin = partial(self._board.watch, rollout)
        self._rooms.begin(who, {switch: most}, begin, lambda error: self._ended(number, switch, old, error, done))

    def _ended(self, number: int, switch: str, old: dict[Dz, int], error: SievenetError | None, done: Done) -> None:
        if error is not None:  # refused: nothing was carried out
            self._wanted[number, switch] = old
            if not old:
                del self._wanted[number, switch]
        if switch in self._rooms.capacity:
            self._rooms.settle(switch, ("diversions", number), len(self._wanted.get((number, switch), ())))
            self._rooms.retry()
        done(error)

    def end(self, categories: Iterable[int] | None = None, switches: Iterable[str] | None = None) -> None:
        """End diversions: all, or those of some categories or switches."""
        for number, switch in list(self._wanted):
            if (categories is None or number in categories) and (switches is None or switch in switches):
                self.set(number, switch, {}, lambda _: None)
                self.on_end(number, switch)


def _flow(number: int, dz: Dz, port: int) -> Flow:
    return Flow(Match(number, dz), frozenset({port}), DIVERSION + dz.length)
