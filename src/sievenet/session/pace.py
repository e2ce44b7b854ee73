"""The pace of new connections: handshakes cost much more than anything else that a stranger can ask for.

A handshake takes a millisecond or two of the event loop, and nobody is known before it. So they begin one after the
other, a little apart, and those of one address at a bounded rate: whoever comes more often waits, and those who are
connected notice nothing. For a second after one that led to nothing, such as a guess at a token, those of its address
count more than once. A connection that lasts gives its place back, so that many who stay can come from one address. One
that would wait too long is turned away and takes no place, and what counts is what comes, not what came: nobody is kept
out for longer than a flood lasts, but for those who wait already.

Pure: the time is an argument.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Pace"]

#: Seconds between two handshakes: an event that comes meanwhile waits for one of them at most.
_APART: Final = 0.002
#: Addresses that are remembered.
_MOST: Final = 4096


#: Connections that one counts for, so many seconds after one led to nothing: a wrong token, no TLS.
_FAILED: Final = 10
_GRUDGE: Final = 1.0


class Pace:
    """``rate`` connections per second from one address, and as many at once; none waits longer than ``patience``."""

    def __init__(self, rate: float, patience: float = 5.0) -> None:
        self._rate, self._patience = rate, patience
        #: When the next connection of an address is due, if all come evenly: the farther ahead of now, the more came.
        self._due: dict[str, float] = {}
        self._next = 0.0
        #: Until when connections of an address count more than once.
        self._grudges: dict[str, float] = {}

    def wait(self, address: str, now: float) -> float | None:
        """Seconds until a connection that has just come may begin; None if that is too long.

        >>> pace = Pace(10)
        >>> [round(pace.wait("a", 0.0), 3) for _ in range(3)]
        [0.0, 0.002, 0.004]
        >>> [round(pace.wait("a", 1.0), 3) for _ in range(12)][-1]
        0.1
        """
        if len(self._due) >= _MOST:
            self._due = {each: due for each, due in self._due.items() if due > now}
        step = (_FAILED if now < self._grudges.get(address, 0.0) else 1) / self._rate
        begin = max(now, self._due.get(address, 0.0)) - 1.0
        due = begin + 1.0 + step
        prompt = begin <= now
        if prompt:
            begin = max(now, self._next)
        if begin - now > self._patience:
            return None
        self._due[address] = due
        if prompt:
            self._next = begin + _APART
        return begin - now

    def failed(self, address: str, now: float) -> None:
        """A connection led to nothing: the next ones count more than once.

        >>> pace = Pace(10)
        >>> pace.failed("a", 0.0)
        >>> [round(pace.wait("a", 0.0), 1) for _ in range(4)]
        [0.0, 0.0, 1.0, 2.0]
        """
        if len(self._grudges) >= _MOST:
            self._grudges = {each: until for each, until in self._grudges.items() if until > now}
        self._grudges[address] = now + _GRUDGE

    def stayed(self, address: str) -> None:
        """A connection has lasted: it does not count any more."""
        if address in self._due:
            self._due[address] -= 1 / self._rate
