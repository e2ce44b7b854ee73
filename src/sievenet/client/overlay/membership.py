"""A node's membership at a router: what it says when the router does not know it (any more), and its events."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import Any, Final

from sievenet.access.identity import Role
from sievenet.access.login import Login
from sievenet.client.allowance import Allowance
from sievenet.client.url import parse_router_url
from sievenet.content.batch import EventBatch
from sievenet.content.batch_codec import encode_batch
from sievenet.content.codec import encode_record
from sievenet.content.event import Record
from sievenet.errors import Dropped, SievenetError, Unavailable
from sievenet.routers import protocol as p
from sievenet.routers.messages import Carried, Missed, Received
from sievenet.routers.offload.messages import Assign, Compute
from sievenet.session.dialler import Dialler
from sievenet.session.link import Link, LinkLost
from sievenet.session.message import Alive, Message

__all__ = ["RouterMembership"]

log = logging.getLogger("sievenet.client")

#: Messages with events after which the router is told that they came.
_CONFIRM: Final = 32


class RouterMembership(Dialler):
    """Keeps one node connected to its router; ``restore`` registers everything anew, ``arrived`` takes events.

    ``asked`` takes what a router asks of those who compute for it, ``revised`` what becomes of registrations when rules
    change.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str | None,
        timeout: float,
        reconnect: bool,
        tls: ssl.SSLContext | None,
        login: Login | None = None,
        role: Role = Role.CLIENT,
        restore: Callable[[Link], Awaitable[None]],
        arrived: Callable[[Carried], Awaitable[None]],
        asked: Callable[[Compute | Assign], None],
        revised: Callable[[p.Revised], None],
    ) -> None:
        host, port, secure = parse_router_url(url)
        security: dict[str, Any] = {"secure": secure, "login": login, "tls": tls}
        super().__init__(p.ROUTING, (host, port), timeout=timeout, reconnect=reconnect, **security)
        self.name, self._role = name, role
        #: What the router lets this node do.
        self.allowance = Allowance()
        #: The router's name.
        self.router = ""
        #: The number under which events of this connection travel.
        self.publisher = 0
        #: Number of the next event; each connection counts from 0.
        self.sequence = 0
        #: Events that the router says may be missing, and seconds without a connection, in which others are.
        self.missed = 0
        self.away = 0.0
        self._lost_at: float | None = None
        #: When the last beat was, and from when to when this process stood still.
        self._beaten, self._still = inf, (-inf, -inf)
        #: Events taken since we were new to the router, and messages with events since it was told so.
        self._taken = self._unconfirmed = 0
        #: Whether the router kept everything since the connection before.
        self._resumed = False
        self._restore, self._arrived, self._asked, self._revised = restore, arrived, asked, revised

    # -- life -----------------------------------------------------------------------------

    def _hello(self) -> p.Hello:
        return p.Hello(p.PROTOCOL, self._role, self.name, self._ticket, self._token, taken=self._taken)

    async def _enter(self, link: Link, welcome: p.Welcome) -> None:
        self.name, self.router, self.publisher = welcome.name, welcome.router, welcome.publisher
        self.sequence = 0
        self._resumed, self._unconfirmed = welcome.resumed, 0
        if not welcome.resumed:
            self._taken = 0
        if welcome.lease:
            self._pause = welcome.lease / 4
        self._miss(welcome.missed)
        self._beaten = asyncio.get_running_loop().time()
        await self._restore(link)

    def _entered(self) -> None:
        """Everything is registered again; unless the router kept it, what was published meanwhile is not coming."""
        if self._lost_at is None:
            return
        away, self._lost_at = asyncio.get_running_loop().time() - self._lost_at, None
        if self._resumed:
            log.info("%s: back after %.1f s, with what was published meanwhile", self.name, away)
            return
        self.away += away
        log.warning("%s: no router for %.1f s: what was published meanwhile did not arrive here", self.name, away)

    def _lost(self, reason: SievenetError) -> None:
        self._watch()
        now = asyncio.get_running_loop().time()
        begin, end = self._still
        self._lost_at = begin if now <= end + self._pause else now

    def _watch(self) -> None:
        """Whether this process stood still since the last beat: then the router took it for dead meanwhile."""
        now = asyncio.get_running_loop().time()
        if now > self._beaten + 2 * self._pause:
            self._still = (self._beaten, now)
        self._beaten = now

    async def _beat(self, link: Link) -> None:
        """Say something a few times per lease, whatever the application does."""
        self._watch()
        if self._unconfirmed:
            self._confirm(link)
        else:
            link.send(Alive())

    async def close(self) -> int:
        """Leave; `Unavailable` in the end if the router did not take what was published."""
        unsent = await super().close()
        if unsent:
            raise Unavailable(f"{unsent} bytes of events were published but not sent: the router took no more of them")
        return 0

    # -- hearing --------------------------------------------------------------------------

    def _told(self, link: Link, message: Any) -> Awaitable[None] | None:
        match message:
            case Carried():
                return self._take(link, message)
            case Compute() | Assign():
                self._asked(message)
            case Missed(events):
                self._miss(events)
            case p.Revised():
                self._revised(message)
            case p.Refused(reason):
                self.allowance.refused(Dropped(reason, quota="quota" in reason))
        return None

    async def _take(self, link: Link, message: Carried) -> None:
        await self._arrived(message)
        self._taken += len(message.sequences) // 8
        self._unconfirmed += 1
        if self._unconfirmed >= _CONFIRM:
            self._confirm(link)

    def _confirm(self, link: Link) -> None:
        self._unconfirmed = 0
        link.send(Received(self._taken))

    def _miss(self, events: int) -> None:
        if events:
            self.missed += events
            log.warning("%s: up to %d events may be missing: a connection was slow, or lost", self.name, events)

    # -- saying ---------------------------------------------------------------------------

    def _connection(self) -> Link:
        if self._link is None or self._link.ended.done():
            raise Unavailable(f"No connection to the router: {self._error}")
        return self._link

    def send(self, message: Message) -> None:
        """Send what is not answered, if there is a connection now."""
        if self._link is not None:
            self._link.send(message)

    def publish(self, category: int, rows: EventBatch | Sequence[Record]) -> None:
        """Send events of one kind; `Unavailable` without a connection."""
        link = self._connection()
        first, self.sequence = self.sequence, self.sequence + len(rows)
        batch = encode_batch(rows) if isinstance(rows, EventBatch) else b""
        records = () if isinstance(rows, EventBatch) else tuple(map(encode_record, rows))
        link.send(p.Publish(category, first, time.time_ns(), batch, records))

    @property
    def waiting(self) -> int:
        """Bytes that wait to be sent."""
        return 0 if self._link is None else self._link.waiting

    async def drained(self) -> None:
        """Wait until the router has taken most of what was sent, or the connection is lost and taken up again."""
        link = self._link
        try:
            if link is not None:
                await link.drained()
        except LinkLost:
            if not self._reconnect:
                raise
            log.warning("%s: the connection was lost: the last published events may not have arrived", self.name)
