"""The connections of a router: one and its buffer, and what long buffers mean for publishers.

Writing never waits. A connection has a buffer of bounded bytes, and

* events that do not fit are dropped, counted, and told to the other side as `Missed` once there is room again;
* control messages pass beyond the bound, up to twice as much; then the connection is closed, for nobody reads it;
* a publisher whose events go to a link with a long buffer is not read for a moment (`Pressure`), so TCP slows it down.
  Only while that link moves: one that hangs holds nobody, and in no case does a publisher wait longer than `HOLD`.
  Others, and requests, do not wait for links at all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from sievenet.routers.limits import Limits
from sievenet.routers.messages import Missed
from sievenet.routers.session import Session
from sievenet.session.framing import frame

__all__ = ["HOLD", "Peer", "Pressure"]

#: Part of a neighbour's buffer that may be used before publishers to it are held.
_HIGH: Final = 1 / 16
#: Seconds after which long buffers are looked at again.
_AGAIN: Final = 0.002
#: Seconds in which a link has to take `_LEAST` bytes, or it hangs.
_STALL: Final = 0.25
_LEAST: Final = 1 << 14
#: Seconds that a publisher waits at most after each read.
HOLD: Final = 1.0


@dataclass(slots=True, eq=False)
class Peer:
    """One connection."""

    writer: asyncio.StreamWriter
    dialled: bool
    limits: Limits = field(default_factory=Limits)
    #: "client" or "router" once it is welcome, "replaced" when a newer one has its name.
    role: str = ""
    name: str = ""
    address: str = ""
    #: Names that a verified certificate gives the other side.
    certified: frozenset[str] = frozenset()
    #: What a newer connection shows to replace this one.
    ticket: bytes = b""
    #: The ticket that this one was made with: it counts until the other side says something, and so has the new one.
    previous: bytes = b""
    publisher: int = 0
    #: When something came last; before it is welcome, when it began.
    heard: float = 0.0
    #: Bytes that had been written when the last beat looked.
    spoken: int = 0
    malformed: int = 0
    #: How many schemas this client made known, and what it registered: kind and number.
    schemas: int = 0
    entries: set[tuple[str, int]] = field(default_factory=set)
    #: Events that were dropped, and those of them that the other side has not been told of.
    dropped: int = 0
    untold: int = 0
    #: Whether this client computes for the router.
    helps: bool = False
    #: A client's events that it has not confirmed.
    session: Session | None = None
    #: The other side said goodbye, or was turned out: nothing is kept for it.
    ended: bool = False
    #: The connection of this client is lost; what it registered stays for a lease.
    absent: bool = False
    #: Bytes given to the connection so far.
    written: int = 0
    #: Events in the buffer: where in the stream each frame ends, and how many it has.
    _under_way: deque[tuple[int, int]] = field(default_factory=deque)
    #: Bytes known to have left the buffer; a transport that is closed has forgotten.
    _left: int = 0

    def send(self, data: bytes) -> bool:
        """Write what has to arrive; who reads nothing is disconnected."""
        transport = self.writer.transport
        if transport.is_closing():
            return False
        if transport.get_write_buffer_size() > 2 * self.limits.buffer:
            transport.abort()
            return False
        self.written += len(data)
        self.writer.write(data)
        self._left = self.taken
        return True

    def offer(self, data: bytes, events: int = 0) -> bool:
        """Write events, or anything that can be done without; False if the buffer is full."""
        waiting, closing = self.waiting, self.writer.transport.is_closing()
        kept = self.session is not None and events > 0
        if (closing and not kept) or (not closing and waiting and waiting + len(data) > self.limits.buffer):
            self.dropped += events
            self.untold += events
            return False
        self.tell_missed()
        if self.session is not None and events:
            self.session.keep(data, events)
        if not self.send(data):
            return kept
        if events and not kept:
            self._under_way.append((self.written, events))
            while self._under_way and self._under_way[0][0] <= self._left:
                self._under_way.popleft()
        return True

    def tell_missed(self) -> None:
        """Say how many events were dropped, if some were and there is room to say it."""
        closing = self.writer.transport.is_closing()
        if self.untold and not closing and self.waiting <= self.limits.buffer // 2:
            untold, self.untold = self.untold, 0
            self.send(frame(Missed(untold)))

    def unsent(self) -> int:
        """Events that the other side may not have: on their way, or dropped and not told."""
        if self.session is not None:
            return self.untold + self.session.unconfirmed
        left = self._left if self.writer.transport.is_closing() else self.taken
        return self.untold + sum(events for end, events in self._under_way if end > left)

    def settled(self) -> None:
        """The other side wants nothing more."""
        self.untold = 0
        self._under_way.clear()
        if self.session is not None:
            self.session.confirm(self.session.given)

    def resume(self, before: Peer, taken: int, ticket: bytes) -> tuple[list[bytes], int]:
        """Go on where an earlier connection of this client ended: frames to send again, and events that are missing."""
        self.previous = ticket
        self.session, before.session = before.session, None
        self.schemas, self.entries, self.dropped = before.schemas, before.entries, before.dropped
        frames, missing = ([], 0) if self.session is None else self.session.resume(taken)
        return frames, missing + before.untold

    @property
    def waiting(self) -> int:
        """Bytes in the buffer."""
        return self.writer.transport.get_write_buffer_size()

    @property
    def taken(self) -> int:
        """Bytes that left the buffer."""
        return self.written - self.waiting


class Pressure:
    """Which links are long, and publishers that wait for them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        #: Links that hold publishers: when they moved last, and how much they had taken then.
        self._long: dict[Peer, tuple[float, int]] = {}
        #: Links that hang, and what they had taken when that was noticed.
        self._stuck: dict[Peer, int] = {}
        self._changed = asyncio.Event()

    def holds(self, link: Peer) -> bool:
        """Whether publishers to a link, which was just sent something, have to wait."""
        if link in self._long:
            return True
        if link.waiting <= _HIGH * link.limits.buffer:
            return False
        if link in self._stuck:
            if link.taken < self._stuck[link] + _LEAST:
                return False
            del self._stuck[link]
        if not self._long:
            asyncio.get_running_loop().call_later(_AGAIN, self._look)
        self._long[link] = (self._clock(), link.taken)
        return True

    async def wait(self, links: Collection[Peer]) -> None:
        """Until none of these links holds publishers, `HOLD` seconds at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(HOLD):
                while any(link in self._long for link in links):
                    await self._changed.wait()

    def _look(self) -> None:
        now = self._clock()
        for link, (moved, taken) in list(self._long.items()):
            if link.writer.transport.is_closing() or link.waiting <= _HIGH / 2 * link.limits.buffer:
                self._release(link)
            elif link.taken >= taken + _LEAST:
                self._long[link] = (now, link.taken)
            elif now - moved > _STALL:
                self._stuck[link] = link.taken
                self._release(link)
        if self._long:
            asyncio.get_running_loop().call_later(_AGAIN, self._look)

    def _release(self, link: Peer) -> None:
        del self._long[link]
        self._changed.set()
        self._changed = asyncio.Event()

    def forget(self, link: Peer) -> None:
        """A link is gone."""
        self._stuck.pop(link, None)
        if link in self._long:
            self._release(link)
