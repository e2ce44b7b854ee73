"""Rest: whoever had something done that took long waits many times as long for its next.

Work that cannot be done in pieces holds everybody up while it lasts; this bounds the share of the time that one party
has of it, whatever it asks for. Pure: no clock.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

__all__ = ["Rest"]

#: Parties that are remembered.
_MOST: Final = 1024


class Rest:
    """A party rests ``times`` as long as its work took, if that was ``least`` seconds or more.

    >>> rest = Rest(20, least=0.01)
    >>> rest.worked("alice", 0.005, now=1.0), rest.wait("alice", now=1.0)
    (None, 0.0)
    >>> rest.worked("alice", 0.5, now=1.0), rest.wait("alice", now=3.0), rest.wait("bob", now=3.0)
    (None, 8.0, 0.0)
    """

    def __init__(self, times: float, least: float = 0.0) -> None:
        self._times, self._least = times, least
        #: Until when each party rests.
        self._until: dict[Hashable, float] = {}

    def __bool__(self) -> bool:
        return bool(self._until)

    def wait(self, party: Hashable, now: float) -> float:
        """Seconds that a party still has to wait."""
        return max(0.0, self._until.get(party, 0.0) - now)

    def worked(self, party: Hashable, seconds: float, now: float) -> None:
        """Something that a party asked for took so long."""
        if seconds < self._least:
            return
        if len(self._until) >= _MOST:
            self._until = {each: until for each, until in self._until.items() if until > now}
        self._until[party] = max(now, self._until.get(party, 0.0)) + self._times * seconds
