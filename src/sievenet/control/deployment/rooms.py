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
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Protocol

from sievenet.errors import Rejected, SievenetError

__all__ = ["Holder", "Rooms"]


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


class _Table:
    """The table of a switch, and who has how much of it."""

    __slots__ = ("capacity", "holds", "parts", "shares")

    def __init__(self) -> None:
        #: Entries that it holds, if there is a limit.
        self.capacity: int | None = None
        self.parts: dict[Hashable, _Part] = {}
        #: Sums over its parts.
        self.shares = self.holds = 0


class _Part:
    """What a holder has of a table: its share, and what it may hold just now."""

    __slots__ = ("holds", "share", "table")

    def __init__(self, table: _Table) -> None:
        self.table = table
        self.share = self.holds = 0

    def set_share(self, entries: int) -> None:
        self.table.shares += entries - self.share
        self.share = entries

    def set_holds(self, entries: int) -> None:
        self.table.holds += entries - self.holds
        self.holds = entries


class Rooms:
    """Who has how much of which switch."""

    def __init__(self) -> None:
        #: Entries that a switch holds, of those that have a limit.
        self.capacity: dict[str, int] = {}
        self._holders: dict[Hashable, Holder] = {}
        self._tables: dict[str, _Table] = {}
        #: By holder and switch.
        self._parts: dict[Hashable, dict[str, _Part]] = {}
        self._waiting: list[_Claim] = []

    def resize(self, switch: str, capacity: int | None) -> None:
        """A switch has another capacity, or none."""
        if capacity is None:
            self.capacity.pop(switch, None)
        else:
            self.capacity[switch] = capacity
        self._table(switch).capacity = capacity

    def join(self, who: Hashable, holder: Holder) -> None:
        """A holder comes, or another stands for it."""
        self._holders[who] = holder

    def leave(self, who: Hashable) -> None:
        """A holder has nothing any more."""
        self._holders.pop(who, None)
        for part in self._parts.pop(who, {}).values():
            part.set_share(0)
            part.set_holds(0)
            del part.table.parts[who]
        self._waiting = [claim for claim in self._waiting if claim.who != who]
        self.retry()

    # -- numbers -----------------------------------------------------------------------------

    def _table(self, switch: str) -> _Table:
        found = self._tables.get(switch)
        if found is None:
            found = self._tables[switch] = _Table()
        return found

    def _part(self, switch: str, who: Hashable) -> _Part:
        mine = self._parts.get(who)
        if mine is None:
            mine = self._parts[who] = {}
        found = mine.get(switch)
        if found is None:
            table = self._table(switch)
            found = mine[switch] = table.parts[who] = _Part(table)
        return found

    def _parts_at(self, switches: Collection[str], who: Hashable) -> list[_Part]:
        mine = self._parts.setdefault(who, {})
        return [mine.get(switch) or self._part(switch, who) for switch in switches]

    def limit(self, switch: str, who: Hashable) -> int | None:
        """Most entries that a holder's table should have; less than one: a single entry for everything."""
        return self.limits((switch,), who)[0] if switch in self.capacity else None

    def limits(self, switches: Collection[str], who: Hashable) -> list[int]:
        """The same for several switches that have a capacity."""
        parts = zip(switches, self._parts_at(switches, who), strict=True)
        return [self.capacity[switch] - 1 - part.table.shares + part.share for switch, part in parts]

    def room(self, switch: str, who: Hashable) -> int | None:
        """Most entries that a holder may have at any moment, as things are."""
        part = self._part(switch, who)
        capacity = part.table.capacity
        return None if capacity is None else capacity - part.table.holds + part.holds

    def busy(self, switch: str, who: Hashable) -> bool:
        """Whether others have more for the moment than they are to have."""
        parts = self._table(switch).parts
        return any(part.holds > part.share for each, part in parts.items() if each != who)

    def free(self, switch: str) -> int:
        """Entries that nobody has, but for the spare one."""
        return self.capacity[switch] - 1 - self._table(switch).shares

    def share(self, switch: str, who: Hashable, entries: int) -> None:
        """A holder's table is to have so many entries."""
        self.shares((switch,), who, (entries,))

    def shares(self, switches: Collection[str], who: Hashable, entries: Iterable[int]) -> None:
        """The same for several switches."""
        for part, number in zip(self._parts_at(switches, who), entries, strict=True):
            if part.share != number:
                part.set_share(number)

    def hold(self, switch: str, who: Hashable, entries: int) -> None:
        """A holder may have so many entries while its changes are under way."""
        part = self._part(switch, who)
        if entries > part.holds:
            part.set_holds(entries)

    def found(self, switch: str, who: Hashable, entries: int) -> None:
        """A holder has so many entries: somebody looked."""
        self._part(switch, who).set_holds(entries)

    def settle(self, switch: str, who: Hashable, entries: int) -> None:
        """A holder's table has so many entries, and nothing is under way."""
        self.settle_all((switch,), who, (entries,))

    def settle_all(self, switches: Collection[str], who: Hashable, entries: Iterable[int]) -> None:
        """The same for several switches."""
        for part, number in zip(self._parts_at(switches, who), entries, strict=True):
            if part.share != number:
                part.set_share(number)
            if part.holds != number:
                part.set_holds(number)

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
            lacking = self._lacking(claim.who, claim.needs)
            if not lacking:
                self._waiting.remove(claim)
                for part, entries in zip(self._parts_at(claim.needs, claim.who), claim.needs.values(), strict=True):
                    if entries > part.holds:
                        part.set_holds(entries)
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
        known, least = self._holders, self._part(switch, who).share
        for each, share in self._shares(switch).items():
            if each != who:
                least += max(1, known[each].least(switch)) if each in known else share
        return self.capacity[switch] < least

    def _lacking(self, who: Hashable, needs: Mapping[str, int]) -> list[str]:
        """The switches at which there is too little room now."""
        found = []
        for (switch, entries), part in zip(needs.items(), self._parts_at(needs, who), strict=True):
            capacity, held = part.table.capacity, part.table.holds
            if capacity is None or held > capacity:
                continue  # a limit that is new: the sooner less is there, the better
            room = capacity - held + part.holds
            # What stays must leave the spare entry to whoever needs one.
            if entries > room or (part.share >= room and not self._spare(switch, who)):
                found.append(switch)
        return found

    def _spare(self, switch: str, who: Hashable) -> bool:
        """Whether none of the others needs the spare entry."""
        return all(map(self._steady(switch), (each for each in self._shares(switch) if each != who)))

    def _shares(self, switch: str) -> dict[Hashable, int]:
        """Who is to have how much of a switch."""
        return {who: part.share for who, part in self._table(switch).parts.items() if part.share}

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
