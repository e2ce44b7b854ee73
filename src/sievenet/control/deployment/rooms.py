"""Rooms: how many entries of each limited switch whose tables may take.

Several parties share a switch's table: the lanes of all categories, and the catch-all flows of a change of plan.  Each
is a *holder*.  Two numbers per holder and switch keep them apart:

- its **share**: what its table is to have.  A holder may have as many entries as the others leave, and one in any case.
  All shares together are to stay below the capacity by one: the spare entry that every change needs (`passage`).
- what it **may hold** while its changes are under way: the most entries at any step.  Changes begin only when this
  fits beside what all others may hold just now; else they wait for one of those to end.

So a switch never gets more than it holds, however many parties change their tables at once.  Where shares are too
large, because somebody came anew, the largest holder is asked to merge (`Holder.refit`).  If that one waits itself, for
room at another switch, its changes are put back (`Holder.put_back`), so that nobody waits for ever.

Where there are as many holders as entries, there is no spare one.  Each table is then a single entry that matches
everything and is only modified (`Holder.steady`).  Where even that is not enough, changes are refused.

A request concerns some dozens of switches.  So the numbers are in columns, and compiled code reads and writes them for
all of them at once (`tree.shares`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sievenet.control.deployment.deployment import kernels
from sievenet.control.deployment.tree.layout import CAPACITY, HELD, HOLDS, NO_LIMIT, SHARE, SHARES
from sievenet.errors import Rejected, SievenetError

__all__ = ["Holder", "Rooms"]

Numbers = npt.NDArray[np.int64]


class Holder(Protocol):
    """Who has entries in tables."""

    def refit(self, switch: str) -> None:
        """The room at a switch is another."""

    def steady(self, switch: str) -> bool:
        """Whether its table there is as small as can be, of entries for everything, and never needs the spare one."""

    def least(self, switch: str) -> int:
        """The fewest entries that its table there may have."""

    def put_back(self) -> None:
        """Do not begin what waits for room, but later."""


class _Claim:
    __slots__ = ("go", "needs", "refuse", "who")

    def __init__(
        self, who: Hashable, needs: Mapping[str, int], go: Callable[[], None], refuse: Callable[[SievenetError], None]
    ) -> None:
        self.who = who
        self.needs = needs
        self.go = go
        self.refuse = refuse


class Rooms:
    """Who has how much of which switch."""

    def __init__(self) -> None:
        #: Entries that a switch holds, of those that have a limit.
        self.capacity: dict[str, int] = {}
        self._holders: dict[Hashable, Holder] = {}
        #: The row of each switch in these and in those of `part`.
        self._rows: dict[str, int] = {}
        #: Per switch: its capacity, or less than none if there is no limit, and the sums over its parts.
        self.tables: Numbers = np.empty((0, 3), np.int64)
        #: Per holder, and then per switch: its share, and what it may hold just now.
        self._parts: dict[Hashable, Numbers] = {}
        self._waiting: list[_Claim] = []

    def resize(self, switch: str, capacity: int | None) -> None:
        """A switch has another capacity, or none."""
        if capacity is None:
            self.capacity.pop(switch, None)
        else:
            self.capacity[switch] = capacity
        at = self.row(switch)
        self.tables[at, CAPACITY] = NO_LIMIT if capacity is None else capacity

    def join(self, who: Hashable, holder: Holder) -> None:
        """A holder comes, or another stands for it."""
        self._holders[who] = holder

    def leave(self, who: Hashable) -> None:
        """A holder has nothing any more."""
        self._holders.pop(who, None)
        part = self._parts.pop(who, None)
        if part is not None:
            self.tables[:, SHARES:] -= part
        self._waiting = [claim for claim in self._waiting if claim.who != who]
        self.retry()

    # -- numbers -----------------------------------------------------------------------------

    def row(self, switch: str) -> int:
        """The row of a switch; there are rows enough from now on."""
        found = self._rows.get(switch)
        if found is None:
            found = self._rows[switch] = len(self._rows)
            more = found + 1 - len(self.tables)
            if more > 0:
                more = max(more, len(self.tables))  # twice as many
                self.tables = np.pad(self.tables, ((0, more), (0, 0)))
                self._parts = {who: np.pad(part, ((0, more), (0, 0))) for who, part in self._parts.items()}
            self.tables[found] = NO_LIMIT, 0, 0
        return found

    def part(self, who: Hashable) -> Numbers:
        """What a holder has of each switch."""
        found = self._parts.get(who)
        if found is None:
            found = self._parts[who] = np.zeros((len(self.tables), 2), np.int64)
        return found

    def _set(self, switch: str, who: Hashable, column: int, entries: int) -> None:
        at = self.row(switch)
        part = self.part(who)
        self.tables[at, SHARES + column] += entries - part[at, column]
        part[at, column] = entries

    def limit(self, switch: str, who: Hashable) -> int | None:
        """Most entries that a holder's table should have; less than one: a single entry for everything."""
        capacity = self.capacity.get(switch)
        if capacity is None:
            return None
        at = self._rows[switch]
        return capacity - 1 - self.tables.item(at, SHARES) + self.part(who).item(at, SHARE)

    def room(self, switch: str, who: Hashable) -> int | None:
        """Most entries that a holder may have at any moment, as things are."""
        capacity = self.capacity.get(switch)
        if capacity is None:
            return None
        at = self._rows[switch]
        return capacity - self.tables.item(at, HELD) + self.part(who).item(at, HOLDS)

    def busy(self, switch: str, who: Hashable) -> bool:
        """Whether others have more for the moment than they are to have."""
        at = self.row(switch)
        return any(part[at, HOLDS] > part[at, SHARE] for each, part in self._parts.items() if each != who)

    def free(self, switch: str) -> int:
        """Entries that nobody has, but for the spare one."""
        return self.capacity[switch] - 1 - self.tables.item(self._rows[switch], SHARES)

    def share(self, switch: str, who: Hashable, entries: int) -> None:
        """A holder's table is to have so many entries."""
        self._set(switch, who, SHARE, entries)

    def hold(self, switch: str, who: Hashable, entries: int) -> None:
        """A holder may have so many entries while its changes are under way."""
        at = self.row(switch)
        if entries > self.part(who)[at, HOLDS]:
            self._set(switch, who, HOLDS, entries)

    def found(self, switch: str, who: Hashable, entries: int) -> None:
        """A holder has so many entries: somebody looked."""
        self._set(switch, who, HOLDS, entries)

    def settle(self, switch: str, who: Hashable, entries: int) -> None:
        """A holder's table has so many entries, and nothing is under way."""
        self._set(switch, who, SHARE, entries)
        self._set(switch, who, HOLDS, entries)

    # -- changes -----------------------------------------------------------------------------

    def begin(
        self, who: Hashable, needs: Mapping[str, int], go: Callable[[], None], refuse: Callable[[SievenetError], None]
    ) -> None:
        """Begin changes that need so many entries of a holder at most, as soon as there is room for all of them."""
        self._waiting.append(_Claim(who, needs, go, refuse))
        self.retry()

    def cancel(self, who: Hashable) -> bool:
        """Do not begin a holder's changes; whether they were waiting."""
        waiting = len(self._waiting)
        self._waiting = [claim for claim in self._waiting if claim.who != who]
        return len(self._waiting) < waiting

    def retry(self) -> None:
        """Begin what has room now; ask others to make room for the rest."""
        for claim in list(self._waiting):
            if claim not in self._waiting:
                continue
            lacking = self._taken(claim.who, claim.needs)
            if not lacking:
                self._waiting.remove(claim)
                claim.go()
                continue
            for switch in lacking:
                if self._too_small(switch, claim.who):
                    self._waiting.remove(claim)
                    claim.refuse(
                        Rejected(
                            f"Switch {switch} is full: {self.capacity[switch]} entries fit, and each of "
                            f"{len(self._shares(switch))} categories, partitions and changes of plans needs one "
                            "(with cells one for each port)"
                        )
                    )
                    break
                self.balance(switch)

    def _too_small(self, switch: str, who: Hashable) -> bool:
        """Whether a holder's share never fits, with as few entries as can be for each of the others."""
        known, shares = self._holders, self._shares(switch)
        least = shares.pop(who, 0)
        for each, share in shares.items():
            least += max(1, known[each].least(switch)) if each in known else share
        return self.capacity[switch] < least

    def _taken(self, who: Hashable, needs: Mapping[str, int]) -> list[str]:
        """Hold what is needed if there is room for all of it now; else the switches at which there is too little."""
        try:
            at = np.array([self._rows[switch] for switch in needs], np.int64)
        except KeyError:  # one that never had a limit
            at = np.array([self.row(switch) for switch in needs], np.int64)
        most = np.array([*needs.values()], np.int64)
        if self.capacity and kernels().claimed(self.tables, self.part(who), at, most):
            return []
        found = self._lacking(who, needs)
        if not found:
            for switch, entries in needs.items():
                self.hold(switch, who, entries)
        return found

    def _lacking(self, who: Hashable, needs: Mapping[str, int]) -> list[str]:
        """The switches at which there is too little room now."""
        found = []
        for switch, entries in needs.items():
            room = self.room(switch, who)
            if room is None or self.tables[self._rows[switch], HELD] > self.capacity[switch]:
                continue  # a limit that is new: the sooner less is there, the better
            # What stays must leave the spare entry to whoever needs one.
            share = self.part(who)[self._rows[switch], SHARE]
            if entries > room or (share >= room and not self._spare(switch, who)):
                found.append(switch)
        return found

    def _spare(self, switch: str, who: Hashable) -> bool:
        """Whether none of the others needs the spare entry."""
        return all(map(self._steady(switch), (each for each in self._shares(switch) if each != who)))

    def _shares(self, switch: str) -> dict[Hashable, int]:
        """Who is to have how much of a switch."""
        at = self.row(switch)
        return {who: share for who, part in self._parts.items() if (share := part.item(at, SHARE))}

    def _steady(self, switch: str) -> Callable[[Hashable], bool]:
        return lambda who: who not in self._holders or self._holders[who].steady(switch)

    def balance(self, switch: str) -> None:
        """Ask whoever has most to give back, if shares are too large."""
        if self.free(switch) < 0:
            shares = self._shares(switch)
            able = [who for who in shares if who in self._holders and not self._steady(switch)(who)]
            if able:
                most = max(able, key=lambda who: (shares[who], repr(who)))
                if any(claim.who == most for claim in self._waiting):
                    self._holders[most].put_back()
                self._holders[most].refit(switch)
