"""Shares: who is next, if everybody is to have as much time as everybody else.

Messages differ: a question may take a hundred times as long as a heartbeat. So what is shared out is time as it was
measured, not messages. Each party has an account of the seconds that were spent on it; of those that wait, the one
with the least on its account is next (start-time fair queuing, Goyal et al. 1996, with times measured afterwards
instead of lengths known before):

    account of a  ███████                 a waits      b waits, and is next
    account of b  ████                    c does not wait: who comes back after a while begins where the last one began,
    account of c  ██        │             so nobody saves up time for a burst
                            └ begin

While only one party waits it has all the time there is. Whatever others do, a party that has something to say waits
at most for one turn of each other party.

Pure: no clock. Cost: one pass over the parties that wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["Shares"]

W = TypeVar("W")


class Shares(Generic[W]):
    """Parties with something that waits, each in order of coming.

    >>> shares = Shares()
    >>> for party, what in (("loud", 1), ("loud", 2), ("loud", 3), ("quiet", 4)):
    ...     shares.wait(party, what)
    >>> order = []
    >>> while (found := shares.next()) is not None:
    ...     order.append(found[1])
    ...     shares.spent(found[0], 0.5)
    >>> order
    [1, 4, 2, 3]
    """

    def __init__(self) -> None:
        self._waiting: dict[Hashable, deque[W]] = {}
        #: Seconds spent on each party that waits, or that waited since somebody else had its turn.
        self._accounts: dict[Hashable, float] = {}
        #: What the last one that had its turn had on its account: where newcomers begin.
        self._begin = 0.0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def wait(self, party: Hashable, what: W) -> None:
        """A party has something more that waits."""
        mine = self._waiting.get(party)
        if mine is None:
            mine = self._waiting[party] = deque()
            self._accounts[party] = max(self._accounts.get(party, 0.0), self._begin)
        mine.append(what)

    def next(self) -> tuple[Hashable, W] | None:
        """Whose turn it is, and with what; None if nobody waits."""
        if not self._waiting:
            return None
        party = min(self._waiting, key=self._accounts.__getitem__)
        self._begin = self._accounts[party]
        mine = self._waiting[party]
        what = mine.popleft()
        if not mine:
            del self._waiting[party]
            # Whoever is behind `begin` and does not wait begins anew when it does.
            if len(self._accounts) > 2 * len(self._waiting) + 16:
                self._accounts = {each: at for each, at in self._accounts.items() if at >= self._begin}
        return party, what

    def spent(self, party: Hashable, seconds: float) -> None:
        """A turn took so long."""
        self._accounts[party] = max(self._accounts.get(party, 0.0), self._begin) + max(seconds, 0.0)
