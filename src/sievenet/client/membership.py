"""A node's membership in a fabric: what it says when the daemon does not know it (any more), and its data port.

    connected (`session.dialler`) ─▶ greet the data plane ─▶ compare ledgers, say what is missing ─▶ ready

Events need the data plane and not the daemon, if that is somebody else's: real switches go on forwarding when the
daemon is killed. As long as it is certain that no daemon runs (nobody listens at its address), nobody changes paths or
plans either, and publishing goes on. A daemon that cannot be reached, but may well live, is waited for: it may give
this node up and take its paths away.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from typing import Any, Final

from sievenet.access.identity import Role
from sievenet.access.login import Login
from sievenet.client.catalog import Catalog
from sievenet.client.hooks import Hooks
from sievenet.client.ports import open_port
from sievenet.client.ports.port import DataPort
from sievenet.client.registrations import Registration, Registrations
from sievenet.client.url import Address
from sievenet.content.schema import Schema
from sievenet.control import protocol as p
from sievenet.errors import Rejected, SchemaError, SievenetError, Unavailable
from sievenet.session.caller import Dismissed, Request
from sievenet.session.dialler import Dialler
from sievenet.session.lifetime import Tasks
from sievenet.session.link import Link, LinkLost, NobodyListens
from sievenet.session.message import Message

__all__ = ["Membership"]

log = logging.getLogger("sievenet.client")

#: Seconds that closing waits at most for packets to leave.
_FLUSH: Final = 5.0


class Membership(Dialler):
    """Keeps one node connected to its daemon."""

    def __init__(
        self,
        address: Address,
        catalog: Catalog,
        ledger: Registrations,
        hooks: Hooks,
        *,
        name: str | None,
        host: str | None,
        timeout: float,
        reconnect: bool,
        role: Role = Role.CLIENT,
        login: Login | None = None,
    ) -> None:
        where = (address.host, address.port)
        super().__init__(p.CONTROL, where, timeout=timeout, reconnect=reconnect, secure=address.tls, login=login)
        self.name = name
        self.host = host
        self._catalog = catalog
        self._ledger = ledger
        self._hooks = hooks
        self._role = role
        #: Whether it has a place in the network.
        self._joins = role in (Role.CLIENT, Role.COMPONENT)
        self._lease = 30.0
        #: Seconds that leaving may take if the daemon has to ask others, and what they did not confirm in the end.
        self.patience = 0.0
        self._unconfirmed = ""
        #: When the daemon last answered, by the loop's clock.
        self._heard = 0.0
        #: Subscriptions that a daemon has granted, by id, and seconds in which it may not have had them all.
        self._granted: set[int] = set()
        self.away = 0.0
        #: Whether the connection that is being made met a daemon that had lost some of them.
        self._forgotten = False
        self.port: DataPort | None = None
        self._endpoint: p.DataEndpoint | None = None
        #: Set while events may be sent: connected, or alone with a plane that forwards without a daemon.
        self._sendable = asyncio.Event()
        #: The same, for those who do not wait.
        self.may_send = False
        #: Whether the daemon took its leave, perhaps with its network.
        self._dismissed = False
        #: What the daemon tells before this node knows which categories there are, to be heard after that.
        self._early: list[Callable[[], None]] | None = None
        self._acks = Tasks()
        #: Schemas that this node works with, to be registered again at a daemon that does not know them.
        self.schemas: set[Schema] = set()
        #: Twins that this node has to do with, and the categories whose twins it needs: those are the daemon's to make.
        self.twins: dict[str, str] = {}
        #: Registrations that could not be said again yet; tried again with every heartbeat.
        self._unsettled: set[Registration] = set()

    @property
    def alone(self) -> bool:
        """Whether no daemon runs, and events go on by the paths that exist."""
        return self.may_send and not self._ready.is_set()

    async def sendable(self) -> None:
        """Wait until events may be sent; `Unavailable`, with the last reason, if that takes too long."""
        if not self.may_send:
            await self._until(self._sendable)

    # -- life -----------------------------------------------------------------------------

    def _hello(self) -> p.Hello:
        self._early = []
        return p.Hello(p.PROTOCOL, self._role, self.name, self._ticket, self._token, host=self.host)

    def _told(self, link: Link, message: Any) -> None:
        match message:
            case p.PlanChanged(category):
                news = partial(self._begin_adopting, link, category)
            case p.CategoryRemoved(number):
                news = partial(self._hooks.removed, number)
            case p.Directed():
                news = partial(self._hooks.directed, message)
            case p.Revised():
                news = partial(self._hooks.revised, message)
            case p.Retain():
                news = partial(self._hooks.retain, message)
            case _:
                news = partial(self._hooks.instructed, message)
        if self._early is None:
            news()
        else:
            self._early.append(news)

    async def _beat(self, link: Link) -> None:
        """Renew the lease."""
        if not self._joins:
            return
        report = self._hooks.report()
        self._hooks.told(await link.call(lambda number: p.Renew(number, report), timeout=self._lease / 3))
        self._heard = asyncio.get_running_loop().time()
        for schema, seen, count, events in self._hooks.samples():
            if (category := self._catalog.of(schema)) is not None:
                link.send(p.Sample(category.number, seen, count, events))
        await self._settle(link, sorted(self._unsettled, key=lambda e: (e.kind, e.id)))

    def _let_events_go(self, whether: bool) -> None:
        self.may_send = whether
        (self._sendable.set if whether else self._sendable.clear)()

    def _entered(self) -> None:
        self._let_events_go(True)
        heard, self._heard = self._heard, asyncio.get_running_loop().time()
        if self._forgotten:
            away, self._forgotten = self._heard - heard, False
            self.away += away
            log.warning(
                "%s: the daemon had given this node up, or lost its registrations; they stand again. "
                "Events of the last %.1f s may be missing here",
                self.name,
                away,
            )

    def _lost(self, reason: SievenetError) -> None:
        self._let_events_go(False)
        self._dismissed = isinstance(reason, Dismissed | Rejected)

    def _failed(self, error: SievenetError) -> None:
        """Let events go, or not, without a connection."""
        self._dismissed |= isinstance(error, Rejected)
        gone = isinstance(error, NobodyListens)
        if not gone or self._dismissed or self.port is None or not self.port.independent:
            self._let_events_go(False)
        elif not self.may_send and asyncio.get_running_loop().time() < self._heard + self._lease:
            # It has died before it could give this node up.
            self._let_events_go(True)
            log.warning("%s: no daemon at %s; events go on by the paths that exist", self.name, self.url)

    async def confirm(self) -> None:
        """Wait until the network has what was sent so far, and hear what it dropped of that."""
        if self.port is not None:
            async with self._timely():
                await self.port.arrived()
        self._hooks.told(await self.call(p.Renew))

    @contextlib.asynccontextmanager
    async def _timely(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self.timeout):
                yield
        except TimeoutError:
            raise Unavailable(f"The data plane took nothing for {self.timeout:g} s") from None

    async def _leave(self, link: Link) -> None:
        """Take everything back; a daemon that does not answer is left to its lease."""
        if not self._joins:
            return
        try:
            if self.port is not None:
                # What was published still needs the paths that leaving takes away, and what is dropped of it is told.
                async with asyncio.timeout(_FLUSH):
                    await self.port.arrived()
        except (TimeoutError, SievenetError) as error:
            log.debug("%s: flush: %s", self.name, error)
        report, patience = self._hooks.report(), min(2.0, self.timeout)
        try:
            self._hooks.told(await link.call(lambda number: p.Renew(number, report), patience))
            left = await link.call(p.Leave, max(patience, self.patience))
            self._unconfirmed = str((left or {}).get("unconfirmed", ""))
        except SievenetError as error:
            log.debug("%s: leave: %s", self.name, error)

    async def close(self) -> int:
        """Leave; raises `Unavailable` in the end if packets that were published could not be sent."""
        await super().close()
        self._let_events_go(False)
        unsent = 0
        if self.port is not None:
            unsent = self.port.waiting
            self.port.close()
            self.port = None
        if unsent:
            raise Unavailable(f"{unsent} packets were published but not sent: the data plane took no more of them")
        if self._unconfirmed:
            raise Unavailable(f"Events that were published last may not have reached everybody: {self._unconfirmed}")
        return 0

    # -- connecting -----------------------------------------------------------------------

    async def _enter(self, link: Link, welcome: p.Welcome) -> None:
        self.name, self.host = welcome.name, welcome.host
        self._lease = max(0.05, welcome.lease)
        self._pause = max(0.01, min(welcome.heartbeat, self._lease / 3))
        self._catalog.replace(await self._look_up(link, {schema.name for schema in self.schemas} | self.twins.keys()))
        while self._early:
            self._early.pop(0)()
        self._early = None
        for schema in sorted(self.schemas, key=lambda schema: (schema.name, schema.version)):
            if self._catalog.of(schema) is None and self._role is not Role.COMPONENT:
                reply = await link.call(lambda number: p.Register(number, schema), self.timeout)  # noqa: B023
                self._catalog.update(reply.category)
        for name in [each for twin, each in self.twins.items() if each and self._catalog.get(twin) is None]:
            reply = await link.call(lambda number: p.Twin(number, name), self.timeout)  # noqa: B023
            self._catalog.update(reply.category)
        self._hooks.renewed(welcome)
        await self._attach(welcome)
        difference = self._ledger.difference(welcome.advertisements, welcome.subscriptions)
        self._forgotten |= any(each.kind == "subscription" and each.id in self._granted for each in difference.missing)
        for entry in self._ledger:
            if entry not in difference.missing:
                self._hooks.settled(entry)
        await self._withdraw(link, difference.surplus)
        await self._settle(link, difference.missing)
        for category in self._catalog:
            link.send(p.PlanAdopted(category.number, category.epoch))

    async def _look_up(self, link: Link, names: Iterable[str]) -> list[p.CategoryInfo]:
        """The categories of these names, all versions, as the daemon has them now."""

        async def ask(name: str) -> tuple[p.CategoryInfo, ...]:
            try:
                reply = await link.call(lambda number: p.LookUp(number, name), self.timeout)
            except SchemaError:
                return ()
            return (*reply.category.siblings, reply.category)

        return [info for found in await asyncio.gather(*map(ask, sorted(names))) for info in found]

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
        whole = self._role is Role.COMPONENT
        hooks = self._hooks
        self.port = await open_port(welcome.data, hooks.deliver, self.timeout, whole=whole, alone=hooks.alone)
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
                self._grant(entry)
                self._hooks.answered(entry, answer)
                self._hooks.settled(entry)

    def _grant(self, entry: Registration) -> None:
        if entry.kind == "subscription" and entry in self._ledger:
            self._granted.add(entry.id)

    async def register(self, entry: Registration) -> Any:
        """Say a registration; the daemon's answer."""
        answer = await self.call(self.request(entry))
        self._grant(entry)
        return answer

    def request(self, entry: Registration) -> Request:
        """The request that makes a registration."""
        message = p.Subscribe if entry.kind == "subscription" else p.Advertise
        schema = entry.wanted.schema
        assert schema is not None
        # The category's number is looked up when the message is made: the next daemon may count otherwise.
        return lambda number: message(number, entry.id, self._catalog.known(schema).number, entry.content)

    def _begin_adopting(self, link: Link, info: p.CategoryInfo) -> None:
        self._acks.begin(self._adopt(link, info))

    async def _adopt(self, link: Link, info: p.CategoryInfo) -> None:
        await self._hooks.adopt(info)
        link.send(p.PlanAdopted(info.number, info.epoch))

    def tell(self, message: Message) -> None:
        """Say something that is not answered; nothing happens without a connection."""
        if self._link is not None and not self._link.ended.done():
            self._link.send(message)

    async def withdraw(self, entry: Registration) -> None:
        """Take a registration back."""
        message = p.Unsubscribe if entry.kind == "subscription" else p.Unadvertise
        if entry.kind == "subscription":
            self._granted.discard(entry.id)
        await self.call(lambda number: message(number, entry.id))
