"""What a client is owed beyond one connection: its events, until it says that it has them.

A connection that breaks takes with it what was in the buffers of both sides, and a client needs a moment to come back.
So the events for a client are numbered, and the router keeps their frames until the client confirms them. A client
that comes back shows its ticket and says how many events it has taken:

    given      1 ─────────────────────────────────────── end
    forgotten  1 ── first │ kept: frames, oldest first ── end
    client     1 ───────── taken │ these are sent again ─ end

What the client has taken is never sent twice, and what is after ``taken`` is sent again. If ``taken`` is before
``first``, exactly ``first - taken`` events are missing: that is told. The same rule holds for what was on its way when
the connection broke and for what came while there was none.

Frames are bounded in bytes, for one client and for all; the oldest are forgotten first. When all together are too many,
the one that holds most gives up half, so a client that does not confirm cannot take the room of the others.

While its connection is lost a client is *absent*: its name and registrations stay for a lease. Only its ticket brings
them back. Somebody else who uses the name meanwhile gets the name alone, as after a goodbye.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from sievenet.routers.limits import Limits

if TYPE_CHECKING:
    from sievenet.routers.peer import Peer

__all__ = ["Absence", "Session", "Sessions"]


class Session:
    """The events of one client that it has not confirmed; made by `Sessions.begin`."""

    def __init__(self, sessions: Sessions, bound: int) -> None:
        self._sessions, self._bound = sessions, bound
        #: Frames, and the number of the last event in each.
        self._frames: deque[tuple[int, bytes]] = deque()
        #: Bytes in the frames.
        self.size = 0
        #: The last event that is not kept any more, confirmed by the client, and given to it.
        self._first = self._confirmed = self._end = 0

    @property
    def given(self) -> int:
        """Events so far."""
        return self._end

    @property
    def unconfirmed(self) -> int:
        """Events that the client may not have."""
        return self._end - self._confirmed

    def keep(self, data: bytes, events: int) -> None:
        """A frame with events for the client."""
        self._end += events
        self._frames.append((self._end, data))
        self._grow(len(data))
        while self.size > self._bound:
            self._forget()
        self._sessions.check()

    def confirm(self, number: int) -> None:
        """The client has taken so many events; who says more than there were has all of them."""
        self._confirmed = max(self._confirmed, min(number, self._end))
        while self._frames and self._frames[0][0] <= self._confirmed:
            self._forget()

    def resume(self, taken: int) -> tuple[list[bytes], int]:
        """The client is back and has taken so many events: frames to send again, and how many events are missing."""
        taken = min(taken, self._end)
        missing = max(0, self._first - taken)
        self.confirm(taken + missing)
        return [data for _, data in self._frames], missing

    def drop(self) -> None:
        """Forget all frames: the client may not have some of them any more, and is told how many it missed."""
        while self._frames:
            self._forget()

    def halve(self) -> None:
        """Forget the older half."""
        target = self.size // 2
        while self.size > target:
            self._forget()

    def _forget(self) -> None:
        self._first, data = self._frames.popleft()
        self._grow(-len(data))

    def _grow(self, size: int) -> None:
        self.size += size
        self._sessions.size += size


class Sessions:
    """The sessions of all clients, bounded together."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._all: set[Session] = set()
        #: Bytes kept for all of them.
        self.size = 0

    def begin(self) -> Session:
        """For a client that is new."""
        session = Session(self, min(self._limits.kept, self._limits.buffer))
        self._all.add(session)
        return session

    def end(self, session: Session) -> None:
        """Its client is gone for good."""
        if session in self._all:
            self._all.discard(session)
            self.size -= session.size

    def check(self) -> None:
        """Make room if all together hold too much."""
        while self.size > self._limits.kept_in_all:
            max(self._all, key=lambda each: each.size).halve()


class Absence:
    """Clients whose connection is lost, until a lease is over; ``forget`` is told then."""

    def __init__(self, limits: Limits, lease: float, forget: Callable[[Peer], None]) -> None:
        self._limits, self._lease, self._forget = limits, lease, forget
        self._until: OrderedDict[Peer, float] = OrderedDict()

    def enter(self, peer: Peer, now: float) -> None:
        """The connection of a client is lost. There are no more of them than connections; the first lost go first."""
        peer.absent = True
        self._until[peer] = now + self._lease
        if len(self._until) > self._limits.connections:
            self._forget(self._until.popitem(last=False)[0])

    def leave(self, peer: Peer) -> None:
        """It is back, or somebody else has its name."""
        self._until.pop(peer, None)

    def look(self, now: float) -> None:
        """Forget those who were away for a lease."""
        while self._until and next(iter(self._until.values())) <= now:
            self._forget(self._until.popitem(last=False)[0])

    def slept(self, seconds: float) -> None:
        """The router was held up: nobody could come back meanwhile."""
        for peer in self._until:
            self._until[peer] += seconds

    def held(self) -> dict[str, int]:
        """Names, and how many events wait for each or are not confirmed."""
        return {peer.name: peer.unsent() for peer in self._until}
