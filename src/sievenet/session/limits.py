"""What one connection, and all together, may use of a listening process.

A connection that says nothing costs a file descriptor, and one that sends a part of a frame costs memory. Both are
bounded in all; connections are bounded per address too, so that one machine cannot keep all others out. While there is
no room, strangers make it: of those that are not welcome yet, the one that came first, of the address with most of
them, is closed for whoever comes next. So nobody is kept out by connections that say nothing. If unfinished frames take
more than they may, the connection that holds most of them is closed: that is never one that sends small frames while
another hoards. The same holds for what others do not read: of one member, and in all.

Pure: the shell says what came and went, and closes what it is told to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, fields
from typing import Generic, TypeVar

from sievenet.errors import InvalidInput, Rejected

__all__ = ["Admission", "Limits", "Unfinished", "Unread"]

C = TypeVar("C", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one listening process; a part may add its own."""

    #: Seconds that a new connection has until it is welcome.
    hello: float = 5.0
    #: Seconds that a frame may take to arrive, besides one for every 64 KiB of it.
    frame: float = 30.0
    #: Seconds in which the other side must read what waits for it, besides one for every 64 KiB of it, and something of
    #: it in any case; None leaves that to its lease.
    unread: float | None = None
    #: Connections in all, and from one address.
    connections: int = 4096
    per_address: int = 1024
    #: Bytes of the largest message; None: what the protocol says.
    largest: int | None = None
    #: Bytes of unfinished frames in all.
    unfinished: int = 1 << 28
    #: Bytes that wait to be written to one connection; then events for it are dropped. At twice as many it is closed.
    buffer: int = 1 << 26
    #: Bytes that wait to be written to all connections. All of one member may hold what one of them may.
    waiting: int = 1 << 30
    #: Malformed messages of one connection before it is closed.
    malformed: int = 100
    #: Messages of one connection that are taken at once, before others have their turn; None: all that came together.
    turn: int | None = None
    #: New encrypted connections per second from one address; more wait.
    arrivals: float = 100.0

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None and not value > 0:
                raise InvalidInput(expected="more than 0", got=value, where=f"limits.{each.name}")


class Admission(Generic[C]):
    """Counts connections, and knows which of them are welcome.

    >>> doors = Admission(Limits(connections=2))
    >>> doors.enter("first", "10.0.0.7"), doors.enter("second", "10.0.0.7"), doors.enter("third", "10.0.0.8")
    (None, None, 'first')
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        #: Where each connection comes from.
        self._inside: dict[C, str] = {}
        #: Connections from each address, and those of them that are not welcome yet, in the order of coming.
        self._addresses: Counter[str] = Counter()
        self._strangers: dict[str, dict[C, None]] = {}
        #: Connections that were turned away.
        self.turned_away = 0

    def enter(self, connection: C, address: str) -> C | None:
        """A connection from an address, and who has to go for it, if anybody; `Rejected` if there is no room."""
        goes: C | None = None
        for number, limit, where in (
            (self._addresses[address], self._limits.per_address, f" from {address}"),
            (len(self._inside), self._limits.connections, ""),
        ):
            if number < limit or goes is not None:
                continue
            crowd = self._strangers.get(address, {}) if where else max(self._strangers.values(), key=len, default={})
            goes = next(iter(crowd), None)
            self.turned_away += 1
            if goes is None:
                raise Rejected(f"Expected at most {limit} connections{where}, this is one more")
        if goes is not None:
            self.leave(goes)
        self._inside[connection] = address
        self._addresses[address] += 1
        self._strangers.setdefault(address, {})[connection] = None
        return goes

    def welcome(self, connection: C) -> None:
        """One that entered is known now, and makes room for nobody."""
        address = self._inside.get(connection)
        strangers = self._strangers.get(address or "", {})
        strangers.pop(connection, None)
        if address is not None and not strangers:
            self._strangers.pop(address, None)

    def leave(self, connection: C) -> None:
        """One that entered is gone, or has to go."""
        self.welcome(connection)
        address = self._inside.pop(connection, None)
        if address is None:
            return
        self._addresses[address] -= 1
        if not self._addresses[address]:
            del self._addresses[address]


class Unfinished(Generic[C]):
    """Who holds how many bytes of a frame that is not whole, and since when."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held: dict[C, tuple[int, float]] = {}
        self.total = 0

    def note(self, connection: C, size: int, now: float, whole: bool) -> C | None:
        """A connection holds so many bytes now; ``whole`` if a frame was finished since. Who has to go, if anybody."""
        before, since = self._held.pop(connection, (0, now))
        self.total += size - before
        if size:
            self._held[connection] = (size, now if whole or not before else since)
        if self.total <= self._limits.unfinished:
            return None
        return max(self._held, key=lambda each: self._held[each][0])

    def late(self, now: float) -> list[C]:
        """Those whose frame takes too long."""
        return [
            each for each, (size, since) in self._held.items() if now - since > self._limits.frame + size / (1 << 16)
        ]


class Unread(Generic[C]):
    """Who has not read how many bytes yet; ``party`` says to whom a connection belongs, ``waiting`` how much it is now.

    Bytes leave without a word, so what is noted here is as much as it was. Only when that is too much, it is looked at
    again: the work is small as long as nobody holds much.
    """

    def __init__(self, limits: Limits, party: Callable[[C], Hashable], waiting: Callable[[C], int]) -> None:
        self._limits, self._party, self._waiting = limits, party, waiting
        self._held: dict[C, int] = {}
        self._total = 0

    def note(self, connection: C, size: int) -> C | None:
        """So many bytes wait for a connection; who has to go, if anybody: whoever holds most, of a member or of all."""
        self._total += size - self._held.pop(connection, 0)
        if size:
            self._held[connection] = size
        most = 2 * self._limits.buffer
        if self._total <= min(most, self._limits.waiting):
            return None
        self._held = {each: now for each in self._held if (now := self._waiting(each))}
        self._total = sum(self._held.values())
        if self._total > self._limits.waiting:
            return max(self._held, key=self._held.__getitem__)
        party = self._party(connection)
        mine = [each for each in self._held if self._party(each) == party]
        if sum(map(self._held.__getitem__, mine)) > most:
            return max(mine, key=self._held.__getitem__)
        return None
