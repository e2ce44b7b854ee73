"""A node's lasting relation to its daemon: connect, keep the lease, notice a loss, connect again, register again.

    connect ─▶ Hello/Welcome ─▶ greet the data plane ─▶ compare ledgers, say what is missing ─▶ ready
       ▲                                                                                          │
       └───────────────── wait a little (`reconnect`) ◀── connection lost, lease refused ◀────────┘

Events need the data plane and not the daemon, if that is somebody else's: real switches go on forwarding when the
daemon is killed. As long as it is certain that no daemon runs (nobody listens at its address), nobody changes paths or
plans either, and publishing goes on. A daemon that cannot be reached, but may well live, is waited for: it may give
this node up and take its paths away.

A request that was open when the connection broke is asked again on the next one: every request of this protocol may be
repeated (registrations carry their id). What cannot be repeated says so (`again=False`) and ends with `LinkLost`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from sievenet.access.identity import Role
from sievenet.access.login import Login
from sievenet.client.catalog import Catalog
from sievenet.client.conversation import Dismissed, Request
from sievenet.client.hooks import Hooks
from sievenet.client.ledger import Ledger, Registration
from sievenet.client.link import Link, LinkLost, NoDaemon
from sievenet.client.ports.opening import open_port
from sievenet.client.ports.port import DataPort
from sievenet.client.reconnect import Reconnect
from sievenet.client.url import Address
from sievenet.content.schema import Schema
from sievenet.control import protocol as p
from sievenet.errors import Rejected, SievenetError, Unavailable

__all__ = ["Session"]

log = logging.getLogger("sievenet.client")

#: Seconds that closing waits at most for packets to leave.
_FLUSH: Final = 5.0

_TURNS: Final = 1024


class Session:
    """Keeps one node connected."""

    def __init__(
        self,
        address: Address,
        catalog: Catalog,
        ledger: Ledger,
        hooks: Hooks,
        *,
        name: str | None,
        host: str | None,
        timeout: float,
        reconnect: bool,
        role: Role = Role.CLIENT,
        login: Login | None = None,
    ) -> None:
        self.address = address
        self.name = name
        self.host = host
        self.timeout = timeout
        self._catalog = catalog
        self._ledger = ledger
        self._hooks = hooks
        self._role = role
        self._login = login
        self._reconnect = reconnect
        self._machine = Reconnect()
        self._ticket = b""
        self._lease = 30.0
        self._beat = 10.0
        #: When the daemon last answered, by the loop's clock.
        self._heard = 0.0
        self._link: Link | None = None
        self.port: DataPort | None = None
        self._endpoint: p.DataEndpoint | None = None
        self._ready = asyncio.Event()
        #: Set while events may be sent: connected, or alone with a plane that forwards without a daemon.
        self._sendable = asyncio.Event()
        #: Whether the daemon took its leave, perhaps with its network.
        self._dismissed = False
        self._error: SievenetError | None = None
        self._task: asyncio.Task[None] | None = None
        self._acks: set[asyncio.Task[None]] = set()
        #: Schemas that this node works with, to be registered again at a daemon that does not know them.
        self.schemas: set[Schema] = set()
        #: Registrations that could not be said again yet; tried again with every heartbeat.
        self._unsettled: set[Registration] = set()
        #: Requests under way at once: fewer than a daemon lets wait.
        self._turns = asyncio.Semaphore(_TURNS)

    @property
    def losses(self) -> int:
        """Times that the connection was lost."""
        return self._machine.losses

    @property
    def connected(self) -> bool:
        """Whether everything is registered and events flow."""
        return self._ready.is_set()

    @property
    def alone(self) -> bool:
        """Whether no daemon runs, and events go on by the paths that exist."""
        return self._sendable.is_set() and not self._ready.is_set()

    # -- life -----------------------------------------------------------------------------

    async def start(self) -> None:
        """The first connection; raises if there is none."""
        loop = asyncio.get_running_loop()
        self._machine.handle("begin", loop.time())
        link = await self._connect()
        self._machine.handle("connected", loop.time())
        self._task = asyncio.create_task(self._supervise(link), name=f"session {self.name}")

    async def _supervise(self, link: Link) -> None:
        loop = asyncio.get_running_loop()
        while True:
            reason = await self._hold(link)
            self._ready.clear()
            self._sendable.clear()
            self._dismissed = isinstance(reason, Dismissed | Rejected)
            self._error = reason
            await link.close()
            if not self._reconnect:
                return
            wait = self._machine.handle("lost", loop.time())
            log.info("%s: connection lost (%s), again in %.2f s", self.name, reason, wait)
            while True:
                await asyncio.sleep(wait)
                self._machine.handle("due", loop.time())
                try:
                    link = await self._connect()
                except SievenetError as error:
                    self._error = error
                    self._dismissed |= isinstance(error, Rejected)
                    self._go_on(isinstance(error, NoDaemon), loop.time())
                    wait = self._machine.handle("failed", loop.time())
                    log.debug("%s: no connection (%s), again in %.2f s", self.name, error, wait)
                else:
                    self._machine.handle("connected", loop.time())
                    log.info("%s: connected again", self.name)
                    break

    def _go_on(self, gone: bool, now: float) -> None:
        """Let events go, or not, without a connection."""
        if not gone or self._dismissed or self.port is None or not self.port.independent:
            self._sendable.clear()
        elif not self._sendable.is_set() and now < self._heard + self._lease:
            # It has died before it could give this node up.
            self._sendable.set()
            log.warning("%s: no daemon at %s; events go on by the paths that exist", self.name, self.address)

    async def _hold(self, link: Link) -> SievenetError:
        """Renew the lease until the connection ends, and say why it did."""
        while True:
            await asyncio.wait((link.ended,), timeout=self._beat)
            if link.ended.done():
                return link.ended.result()
            if self._role is not Role.CLIENT:
                continue
            report = self._hooks.report()
            try:
                told = await link.call(lambda number: p.Renew(number, report), timeout=self._lease / 3)  # noqa: B023
                self._hooks.told(told)
                self._heard = asyncio.get_running_loop().time()
                await self._settle(link, sorted(self._unsettled, key=lambda e: (e.kind, e.id)))
            except SievenetError as error:
                return error

    async def close(self) -> None:
        """Take everything back and go; a daemon that does not answer is left to its lease.

        Raises `Unavailable` in the end if packets that were published could not be sent.
        """
        self._machine.handle("closed", 0.0)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        link, self._link = self._link, None
        if link is not None:
            if self._role is Role.CLIENT and not link.ended.done():
                try:
                    if self.port is not None:
                        # What was published still needs the paths that leaving takes away.
                        async with asyncio.timeout(_FLUSH):
                            await self.port.flushed(0)
                except (TimeoutError, SievenetError) as error:
                    log.debug("%s: flush: %s", self.name, error)
                try:
                    await link.call(p.Leave, timeout=min(2.0, self.timeout))
                except SievenetError as error:
                    log.debug("%s: leave: %s", self.name, error)
            await link.close()
        self._ready.clear()
        self._sendable.clear()
        self._error = Unavailable("The node is closed")
        unsent = 0
        if self.port is not None:
            unsent = self.port.waiting
            self.port.close()
            self.port = None
        if unsent:
            raise Unavailable(f"{unsent} packets were published but not sent: the data plane took no more of them")

    # -- connecting -----------------------------------------------------------------------

    async def _connect(self) -> Link:
        link: Link | None = None
        #: What the daemon tells before this node knows which categories there are, to be heard after that.
        early: list[Callable[[], None]] | None = []

        def hear(news: Callable[[], None]) -> None:
            if early is None:
                news()
            else:
                early.append(news)

        def adopt(info: p.CategoryInfo) -> None:
            assert link is not None
            task = asyncio.create_task(self._adopt(link, info))
            self._acks.add(task)
            task.add_done_callback(self._acks.discard)

        link, welcome = await Link.open(
            self.address,
            lambda info: hear(partial(adopt, info)),
            lambda number: hear(partial(self._hooks.removed, number)),
            name=self.name,
            host=self.host,
            ticket=self._ticket,
            role=self._role,
            login=self._login,
            timeout=min(5.0, self.timeout),
        )
        try:
            self.name, self.host, self._ticket = welcome.name, welcome.host, welcome.ticket
            self._lease = max(0.05, welcome.lease)
            self._beat = max(0.01, min(welcome.heartbeat, self._lease / 3))
            self._catalog.replace(await link.look_up({schema.name for schema in self.schemas}, self.timeout))
            while early:
                early.pop(0)()
            early = None
            for schema in sorted(self.schemas, key=lambda schema: (schema.name, schema.version)):
                if self._catalog.of(schema) is None:
                    info = await link.call(lambda number: p.Register(number, schema), self.timeout)  # noqa: B023
                    self._catalog.update(info)
            self._hooks.renewed(welcome)
            await self._attach(welcome)
            difference = self._ledger.difference(welcome.advertisements, welcome.subscriptions)
            for entry in self._ledger:
                if entry not in difference.missing:
                    self._hooks.settled(entry)
            await self._withdraw(link, difference.surplus)
            await self._settle(link, difference.missing)
            for category in self._catalog:
                link.adopted(category.number, category.epoch)
        except BaseException:
            await link.close()
            raise
        if link.ended.done():
            raise LinkLost(str(link.ended.result()))
        self._link = link
        self._ready.set()
        self._sendable.set()
        self._heard = asyncio.get_running_loop().time()
        return link

    async def _attach(self, welcome: p.Welcome) -> None:
        if welcome.data is None:
            return
        if self.port is not None and self._endpoint is not None and welcome.data.same_place(self._endpoint):
            self.port.rekey(welcome.data.key)
            await self.port.greet(self.timeout)
            return
        if self.port is not None:
            self.port.close()
            self.port = None
        self.port = await open_port(welcome.data, self._hooks.deliver, self.timeout)
        self._endpoint = welcome.data

    async def _withdraw(self, link: Link, surplus: tuple[tuple[str, int], ...]) -> None:
        def undo(kind: str, id: int) -> Request:
            if kind == "subscription":
                return lambda number: p.Unsubscribe(number, id)
            return lambda number: p.Unadvertise(number, id)

        await asyncio.gather(*(link.call(undo(kind, id), self.timeout) for kind, id in surplus))

    async def _settle(self, link: Link, entries: list[Registration] | tuple[Registration, ...]) -> None:
        """Say registrations again. What is refused for good ends; what is unavailable is tried again later."""

        async def say(entry: Registration) -> Any:
            async with self._turns:
                return await link.call(self.request(entry), self.timeout)

        answers = await asyncio.gather(*(say(entry) for entry in entries), return_exceptions=True)
        for entry, answer in zip(entries, answers, strict=True):
            self._unsettled.discard(entry)
            if isinstance(answer, LinkLost):
                raise answer
            if isinstance(answer, Unavailable):
                self._unsettled.add(entry)
            elif isinstance(answer, SievenetError):
                self._hooks.refused(entry, answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                self._hooks.answered(entry, answer)
                self._hooks.settled(entry)

    def request(self, entry: Registration) -> Request:
        """The request that makes a registration."""
        message = p.Subscribe if entry.kind == "subscription" else p.Advertise
        schema = entry.wanted.schema
        assert schema is not None
        # The category's number is looked up when the message is made: the next daemon may count otherwise.
        return lambda number: message(number, entry.id, self._catalog.known(schema).number, entry.content)

    async def _adopt(self, link: Link, info: p.CategoryInfo) -> None:
        await self._hooks.adopt(info)
        link.adopted(info.number, info.epoch)

    # -- requests -------------------------------------------------------------------------

    async def withdraw(self, entry: Registration) -> None:
        """Take a registration back."""
        message = p.Unsubscribe if entry.kind == "subscription" else p.Unadvertise
        await self.call(lambda number: message(number, entry.id))

    async def call(self, request: Request, *, again: bool = True) -> Any:
        """Ask the daemon, now or as soon as it is there; `Unavailable` if that takes too long."""
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
                # The supervisor clears `ready` in its own time; do not spin meanwhile.
                await asyncio.sleep(0.001)

    @property
    def may_send(self) -> bool:
        """Whether events may be sent at once."""
        return self._sendable.is_set()

    async def sendable(self) -> None:
        """Wait until events may be sent; `Unavailable`, with the last reason, if that takes too long."""
        if not self._sendable.is_set():
            await self._until(self._sendable, None)

    async def ready(self, timeout: float | None = None) -> None:
        """Wait until connected; `Unavailable`, with the last reason, if that takes too long."""
        if not self._ready.is_set():
            await self._until(self._ready, timeout)

    async def _until(self, event: asyncio.Event, timeout: float | None) -> None:
        try:
            async with asyncio.timeout(self.timeout if timeout is None else max(0.0, timeout)):
                if not self._reconnect or self._task is None or self._task.done():
                    raise TimeoutError
                await event.wait()
        except TimeoutError:
            reason = self._error or Unavailable("not connected")
            if isinstance(reason, Rejected):
                raise reason from None
            raise Unavailable(f"No connection to {self.address}: {reason}") from None
