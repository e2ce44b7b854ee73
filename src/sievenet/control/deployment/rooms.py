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

from collections.abc import Callable, Hashable, Mapping
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


class _Ledger:
    """A number per switch and holder, summed up per switch."""

    def __init__(self) -> None:
        self._of: dict[str, dict[Hashable, int]] = {}
        self._sum: dict[str, int] = {}

    def get(self, switch: str, who: Hashable) -> int:
        return self._of.get(switch, {}).get(who, 0)

    def set(self, switch: str, who: Hashable, number: int) -> None:
        of = self._of.setdefault(switch, {})
        if of.get(who, 0) == number:
            return
        self._sum[switch] = self._sum.get(switch, 0) + number - of.pop(who, 0)
        if number:
            of[who] = number

    def sum(self, switch: str) -> int:
        return self._sum.get(switch, 0)

    def holders(self, switch: str) -> Mapping[Hashable, int]:
        return self._of.get(switch, {})

    def forget(self, who: Hashable) -> None:
        for switch in self._of:
            self.set(switch, who, 0)


class Rooms:
    """Who has how much of which switch."""

    def __init__(self) -> None:
        #: Entries that a switch holds, of those that have a limit.
        self.capacity: dict[str, int] = {}
        self._holders: dict[Hashable, Holder] = {}
        self._share = _Ledger()
        self._holds = _Ledger()
        self._waiting: list[_Claim] = []

    def resize(self, switch: str, capacity: int | None) -> None:
        """A switch has another capacity, or none."""
        if capacity is None:
            self.capacity.pop(switch, None)
        else:
            self.capacity[switch] = capacity

    def join(self, who: Hashable, holder: Holder) -> None:
        """A holder comes, or another stands for it."""
        self._holders[who] = holder

    def leave(self, who: Hashable) -> None:
        """A holder has nothing any more."""
        self._holders.pop(who, None)
        self._share.forget(who)
        self._holds.forget(who)
        self._waiting = [claim for claim in self._waiting if claim.who != who]
        self.retry()

    # -- numbers -----------------------------------------------------------------------------

    def limit(self, switch: str, who: Hashable) -> int | None:
        """Most entries that a holder's table should have; less than one: a single entry for everything."""
        capacity = self.capacity.get(switch)
        return None if capacity is None else capacity - 1 - self._share.sum(switch) + self._share.get(switch, who)

    def room(self, switch: str, who: Hashable) -> int | None:
        """Most entries that a holder may have at any moment, as things are."""
        capacity = self.capacity.get(switch)
        return None if capacity is None else capacity - self._holds.sum(switch) + self._holds.get(switch, who)

    def busy(self, switch: str, who: Hashable) -> bool:
        """Whether others have more for the moment than they are to have."""
        holds, shares = self._holds.holders(switch), self._share.holders(switch)
        return any(entries > shares.get(each, 0) for each, entries in holds.items() if each != who)

    def free(self, switch: str) -> int:
        """Entries that nobody has, but for the spare one."""
        return self.capacity[switch] - 1 - self._share.sum(switch)

    def share(self, switch: str, who: Hashable, entries: int) -> None:
        """A holder's table is to have so many entries."""
        self._share.set(switch, who, entries)

    def hold(self, switch: str, who: Hashable, entries: int) -> None:
        """A holder may have so many entries while its changes are under way."""
        self._holds.set(switch, who, max(entries, self._holds.get(switch, who)))

    def found(self, switch: str, who: Hashable, entries: int) -> None:
        """A holder has so many entries: somebody looked."""
        self._holds.set(switch, who, entries)

    def settle(self, switch: str, who: Hashable, entries: int) -> None:
        """A holder's table has so many entries, and nothing is under way."""
        self._share.set(switch, who, entries)
        self._holds.set(switch, who, entries)

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
            lacking = [switch for switch, entries in claim.needs.items() if self._lacks(claim.who, switch, entries)]
            if not lacking:
                self._waiting.remove(claim)
                for switch, entries in claim.needs.items():
                    self.hold(switch, claim.who, entries)
                claim.go()
                continue
            for switch in lacking:
                if self._too_small(switch, claim.who):
                    self._waiting.remove(claim)
                    claim.refuse(
                        Rejected(
                            f"Switch {switch} is full: {self.capacity[switch]} entries fit, and each of "
                            f"{len(self._share.holders(switch))} categories, partitions and changes of plans needs one "
                            "(with cells one for each port)"
                        )
                    )
                    break
                self.balance(switch)

    def _too_small(self, switch: str, who: Hashable) -> bool:
        """Whether a holder's share never fits, with as few entries as can be for each of the others."""
        others = {each: share for each, share in self._share.holders(switch).items() if each != who}
        known = self._holders
        least = sum(max(1, known[each].least(switch)) if each in known else share for each, share in others.items())
        return self.capacity[switch] < self._share.get(switch, who) + least

    def _lacks(self, who: Hashable, switch: str, entries: int) -> bool:
        capacity, held = self.capacity.get(switch), self._holds.sum(switch)
        if capacity is None or held > capacity:
            return False  # a limit that is new: the sooner less is there, the better
        room = capacity - held + self._holds.get(switch, who)
        if entries > room:
            return True
        # What stays must leave the spare entry to whoever needs one.
        if self._share.get(switch, who) < room:
            return False
        return not all(map(self._steady(switch), self._others(switch, who)))

    def _others(self, switch: str, who: Hashable) -> list[Hashable]:
        return [each for each in self._share.holders(switch) if each != who]

    def _steady(self, switch: str) -> Callable[[Hashable], bool]:
        return lambda who: who not in self._holders or self._holders[who].steady(switch)

    def balance(self, switch: str) -> None:
        """Ask whoever has most to give back, if shares are too large."""
        shares = self._share.holders(switch)
        if self.free(switch) < 0:
            able = [who for who in shares if who in self._holders and not self._steady(switch)(who)]
            if able:
                most = max(able, key=lambda who: (shares[who], repr(who)))
                if any(claim.who == most for claim in self._waiting):
                    self._holders[most].put_back()
                self._holders[most].refit(switch)
