"""A lasting relation to a listening process: one `Link` after the other.

    dial ─▶ Hello/Welcome ─▶ `_enter`: say again what the other side may not know ─▶ ready ─▶ `_beat`, `_told`, `call`
      ▲                                                                                              │
      └──────────────────────── wait a little (`backoff`) ◀── connection lost, refused ◀─────────────┘

A request that was open when the connection broke is asked again on the next one, as requests may be repeated. What
cannot be repeated says so (`again=False`) and ends with `LinkLost`.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import Any, Final

from sievenet.access.login import Login
from sievenet.errors import Rejected, SievenetError, Unavailable
from sievenet.session.backoff import Backoff
from sievenet.session.caller import Request
from sievenet.session.framing import frame
from sievenet.session.lifetime import ended
from sievenet.session.link import Link, LinkLost
from sievenet.session.message import Goodbye, Hello
from sievenet.session.protocol import Protocol

__all__ = ["Dialler"]

log = logging.getLogger("sievenet.session")

#: Requests under way at once: fewer than a listener lets wait.
_TURNS: Final = 1024
#: Seconds without a connection after which somebody who waits is told.
_AWAY: Final = 3.0
#: Seconds that dialling and the welcome may take.
_PATIENCE: Final = 5.0


class Dialler(ABC):
    """Keeps a connection. Parts derive from it what they say and hear.

    It speaks TLS if it is ``secure``, with the contexts of a ``login`` or with ``tls``, if there is one.
    """

    def __init__(
        self,
        protocol: Protocol,
        address: tuple[str, int],
        *,
        timeout: float,
        reconnect: bool,
        secure: bool = False,
        login: Login | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._protocol, self.address = protocol, address
        self._secure, self._login, self._tls = secure or login is not None or tls is not None, login, tls
        #: The longest that a request takes, in seconds, a reconnect included.
        self.timeout = timeout
        self._reconnect = reconnect
        #: Shown at the next hello, it proves that the name is still ours.
        self._ticket = b""
        #: Seconds between beats.
        self._pause = 10.0
        self._backoff = Backoff()
        self._link: Link | None = None
        self._ready = asyncio.Event()
        self._error: SievenetError = Unavailable("not connected")
        self._task: asyncio.Task[None] | None = None
        self._turns = asyncio.Semaphore(_TURNS)

    # -- what a part adds -----------------------------------------------------------------

    @abstractmethod
    def _hello(self) -> Hello:
        """Say who this is."""

    @abstractmethod
    async def _enter(self, link: Link, welcome: Any) -> None:
        """The connection is new: say what the other side may not know. What is raised ends it."""

    @abstractmethod
    def _told(self, link: Link, message: Any) -> Awaitable[None] | None:
        """The other side says something unasked; nothing more is read until the result is done."""

    @abstractmethod
    async def _beat(self, link: Link) -> None:
        """Say something, every pause. What is raised ends the connection."""

    def _entered(self) -> None:  # noqa: B027
        """The connection stands, and the other side knows everything."""

    def _lost(self, reason: SievenetError) -> None:  # noqa: B027
        """The connection that stood is lost."""

    def _failed(self, error: SievenetError) -> None:  # noqa: B027
        """There is no connection yet again."""

    async def _leave(self, link: Link) -> None:  # noqa: B027
        """Take one's leave on a connection that stands."""

    # -- life -----------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        """Whether the connection stands and the other side knows everything."""
        return self._ready.is_set()

    @property
    def losses(self) -> int:
        """Times that the connection was lost."""
        return self._backoff.losses

    async def start(self) -> None:
        """The first connection; raises if there is none."""
        now = asyncio.get_running_loop().time
        self._backoff.handle("begin", now())
        link = await self._connect()
        self._backoff.handle("connected", now())
        self._task = asyncio.create_task(self._supervise(link), name=f"connection to {self._protocol.listener}")

    @property
    def _token(self) -> str:
        """Proves who this is, where no certificate does."""
        return "" if self._login is None else self._login.token

    def _context(self) -> ssl.SSLContext | None:
        """The TLS of the next connection: files may have changed since the last one."""
        if self._tls is not None or not self._secure:
            return self._tls
        return ssl.create_default_context() if self._login is None else self._login.dialling()

    async def _connect(self) -> Link:
        if self._login is not None:
            self._login = self._login.renewed()
        told, patience = self._told, min(_PATIENCE, self.timeout)
        link, welcome = await Link.open(
            self._protocol, self.address, self._hello(), told, tls=self._context(), timeout=patience
        )
        try:
            self._ticket = welcome.ticket
            await self._enter(link, welcome)
        except BaseException:
            await link.close()
            raise
        if link.ended.done():
            raise LinkLost(str(link.ended.result()))
        self._link = link
        self._ready.set()
        self._entered()
        return link

    async def _supervise(self, link: Link) -> None:
        now = asyncio.get_running_loop().time
        while True:
            self._error = await self._hold(link)
            self._ready.clear()
            self._lost(self._error)
            await link.close()
            if not self._reconnect:
                return
            lost, warned = now(), False
            wait = self._backoff.handle("lost", lost)
            log.info("connection to %s lost (%s), again in %.2f s", self.url, self._error, wait)
            while True:
                await asyncio.sleep(wait)
                self._backoff.handle("due", now())
                try:
                    link = await self._connect()
                except SievenetError as error:
                    self._error = error
                    self._failed(error)
                    wait = self._backoff.handle("failed", now())
                    log.debug("no connection to %s (%s), again in %.2f s", self.url, error, wait)
                    if not warned and (isinstance(error, Rejected) or now() - lost > _AWAY):
                        warned = True
                        log.warning("no connection to %s, trying again: %s", self.url, error)
                else:
                    self._backoff.handle("connected", now())
                    told = log.warning if warned else log.info
                    told("connected to %s again after %.1f s", self.url, now() - lost)
                    break

    async def _hold(self, link: Link) -> SievenetError:
        """Beat until the connection ends, and say why it did."""
        while True:
            await asyncio.wait((link.ended,), timeout=self._pause)
            if link.ended.done():
                return link.ended.result()
            try:
                await self._beat(link)
            except SievenetError as error:
                return error

    async def close(self) -> int:
        """Take one's leave and go; the bytes that the other side did not take."""
        self._backoff.handle("closed", 0.0)
        self._ready.clear()
        await ended(self._task)
        self._error = Unavailable("The node is closed")
        link, self._link = self._link, None
        if link is None:
            return 0
        unsent = 0
        if not link.ended.done():
            await self._leave(link)
            goodbye = Goodbye("done")
            link.send(goodbye)
            unsent = max(0, await link.flushed() - len(frame(goodbye)))
        await link.close()
        return unsent

    # -- requests -------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Where it dials."""
        return self._protocol.url(self.address, secure=self._secure)

    async def call(self, request: Request, *, again: bool = True) -> Any:
        """Ask, now or as soon as the other side is there; `Unavailable` if that takes too long."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.timeout
        while True:
            await self.ready(deadline - loop.time())
            link = self._link
            if link is None:
                raise Unavailable("The node is closed")
            try:
                async with self._turns:
                    return await link.call(request, max(0.001, deadline - loop.time()))
            except LinkLost:
                if not again or not self._reconnect:
                    raise

    async def ready(self, timeout: float | None = None) -> None:
        """Wait until connected; `Unavailable`, with the last reason, if that takes too long."""
        while not self._ready.is_set() or (self._link is not None and self._link.ended.done()):
            if self._ready.is_set():  # the supervisor clears it in its own time; do not spin meanwhile
                await asyncio.sleep(0.001)
            else:
                await self._until(self._ready, timeout)

    async def _until(self, event: asyncio.Event, timeout: float | None = None) -> None:
        try:
            async with asyncio.timeout(self.timeout if timeout is None else max(0.0, timeout)):
                if not self._reconnect or self._task is None or self._task.done():
                    raise TimeoutError
                await event.wait()
        except TimeoutError:
            if isinstance(self._error, Rejected):
                raise self._error from None
            raise Unavailable(f"No connection to {self.url}: {self._error}") from None
