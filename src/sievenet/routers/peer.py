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
import hmac
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Final

from sievenet.access.identity import Identity, certified_names
from sievenet.content.filter import Subscription
from sievenet.content.schema import Schema
from sievenet.routers.limits import Limits
from sievenet.routers.messages import Missed
from sievenet.routers.session import Session
from sievenet.session.connection import Connection

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


class Peer(Connection):
    """One connection: of a client, or of a neighbour."""

    limits: Limits

    def __init__(self, *stream: Any, **options: Any) -> None:
        super().__init__(*stream, **options)
        #: "client" or "router" once it is welcome, "replaced" when a newer one has its name.
        self.role = ""
        self.name = ""
        #: Where this side dialled.
        self.at: tuple[str, int] | None = None
        #: Names that a verified certificate gives the other side.
        self.certified = certified_names(self.certificate)
        #: What a newer connection shows to replace this one.
        self.ticket = b""
        #: The ticket that this one was made with; it counts until the other side has said something.
        self.previous = b""
        self.publisher = 0
        #: Seconds that an event of this client takes, as it was measured.
        self.cost = 0.0
        #: How many schemas this client made known, and what it registered: kind and number.
        self.schemas = 0
        self.entries: set[tuple[str, int]] = set()
        #: What its member may publish, by schema; None stands for everything.
        self.within: dict[Schema, Subscription | None] = {}
        #: Who it is, from when it counts as a connection of a member.
        self.entered: Identity | None = None
        #: Its login no longer counts, but another one of its member does.
        self.rotated = False
        #: Who it is, if this side dialled, and everybody has to be known.
        self.answers: Identity | None = None
        #: Events that were dropped, and those of them that the other side has not been told of.
        self.dropped = self.untold = 0
        #: A client's events that it has not confirmed, and frames that it is to be sent again.
        self.session: Session | None = None
        self.again: list[bytes] = []
        #: The connection of this client is lost; what it registered stays for a lease.
        self.absent = False
        #: Events in the buffer: where in the stream each frame ends, and how many it has.
        self._under_way: deque[tuple[int, int]] = deque()
        #: Bytes known to have left the buffer; a transport that is closed has forgotten.
        self._left = 0

    def __str__(self) -> str:
        return self.name or self.address

    def shows(self, ticket: bytes) -> bool:
        """Whether this is the ticket of this connection."""
        good = (self.ticket, b"" if self.callee.said else self.previous)
        return any(each and hmac.compare_digest(ticket, each) for each in good)

    def follows(self, before: Peer, ticket: bytes) -> bool:
        """Whether this is the same client as an earlier connection: it has its ticket, and is the same member."""
        return before.shows(ticket) and self._member == before._member

    @property
    def _member(self) -> str | None:
        proof = None if self.entered is None else self.entered.proof
        return None if proof is None else proof.name

    def write(self, data: bytes) -> bool:
        """Write what has to arrive."""
        written = super().write(data)
        if written:
            self._left = self.taken
        return written

    def offer(self, data: bytes, events: int = 0) -> bool:
        """Write events, or anything that can be done without; False if the buffer is full."""
        waiting, closing = self.waiting, self.closing
        kept = self.session is not None and events > 0
        if (closing and not kept) or (not closing and waiting and waiting + len(data) > self.limits.buffer):
            self.dropped += events
            self.untold += events
            return False
        self.tell_missed()
        if self.session is not None and events:
            self.session.keep(data, events)
        if not self.write(data):
            return kept
        if events and not kept:
            self._under_way.append((self.written, events))
            while self._under_way and self._under_way[0][0] <= self._left:
                self._under_way.popleft()
        return True

    def tell_missed(self) -> None:
        """Say how many events were dropped, if some were and there is room to say it."""
        if self.untold and not self.closing and self.waiting <= self.limits.buffer // 2:
            untold, self.untold = self.untold, 0
            self.send(Missed(untold))

    def unsent(self) -> int:
        """Events that the other side may not have: on their way, or dropped and not told."""
        if self.session is not None:
            return self.untold + self.session.unconfirmed
        left = self._left if self.closing else self.taken
        return self.untold + sum(events for end, events in self._under_way if end > left)

    def settled(self) -> None:
        """The other side wants nothing more."""
        self.untold = 0
        self._under_way.clear()
        if self.session is not None:
            self.session.confirm(self.session.given)

    def resume(self, before: Peer, taken: int, ticket: bytes) -> int:
        """Go on where an earlier connection of this client ended; how many events are missing."""
        self.previous = ticket
        self.session, before.session = before.session, None
        self.schemas, self.entries, self.dropped = before.schemas, before.entries, before.dropped
        self.again, missing = ([], 0) if self.session is None else self.session.resume(taken)
        return missing + before.untold


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
            if link.closing or link.waiting <= _HIGH / 2 * link.limits.buffer:
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
