"""The router process: connections around a `Router`.

    dial, accept (`session.listener`) ─▶ `handshake` (`registry`) ─▶ messages, in turn (`work`) ─▶ `core`, `service`
                                                                                                        │
                                               buffers (`peer`) ◀── `dispatch` ◀── what is to be sent ──┘

What the core returns for a message is written at once, local deliveries first; one message that cannot be sent costs
itself. Reading a connection waits for its turn, and for the links that this very client publishes to, not for long
(`peer`).

Routers dial their neighbours and are dialled by them; `registry` says which connection stays.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Self

from sievenet.access.doorkeeper import Doorkeeper
from sievenet.access.identity import Identity
from sievenet.access.quota import TooFast
from sievenet.errors import SievenetError
from sievenet.routers import protocol as p
from sievenet.routers.clearance import Clearance
from sievenet.routers.core import Router
from sievenet.routers.dispatch import Dispatch
from sievenet.routers.handshake import Handshake
from sievenet.routers.intake import Intake
from sievenet.routers.limits import Limits
from sievenet.routers.messages import Carried, Missed, Received
from sievenet.routers.offload.helpers import Helpers
from sievenet.routers.offload.jobs import Offloading
from sievenet.routers.offload.messages import Computed
from sievenet.routers.outputs import Output
from sievenet.routers.peer import Peer
from sievenet.routers.registry import Registry
from sievenet.routers.routing import Context, Settings
from sievenet.routers.service import Service
from sievenet.routers.session import Absence, Sessions
from sievenet.routers.shipment import Shipment
from sievenet.routers.work import Work
from sievenet.session import listener
from sievenet.session.complaints import Seldom
from sievenet.session.lifetime import Starting
from sievenet.session.listener import Listener
from sievenet.session.message import check_name, failure
from sievenet.session.rest import Rest

__all__ = ["RouterServer"]

log = logging.getLogger("sievenet.routers")

#: A client whose request took so many seconds or more waits so many times as long for its next.
_LONG: Final = 0.02
_TIMES: Final = 20.0


def _intake(offloading: Offloading | None) -> Callable[[Context], Intake]:
    return Intake if offloading is None else partial(Helpers, settings=offloading, cpu=time.process_time)


class RouterServer(listener.Service[Peer], Starting):
    """A router that listens. ``async with RouterServer(...)`` runs it.

    With ``tls`` neighbours must have a certificate with their name that the contexts verify. With a ``keeper`` of an
    access folder everybody has to be a member, and TLS is the keeper's.
    """

    def __init__(
        self,
        name: str,
        settings: Settings | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        neighbours: Iterable[tuple[str, int]] = (),
        tls: ssl.SSLContext | None = None,
        dial_tls: ssl.SSLContext | None = None,
        offloading: Offloading | None = None,
        limits: Limits | None = None,
        keeper: Doorkeeper | None = None,
    ) -> None:
        check_name(name)
        self._keeper = keeper or Doorkeeper()
        if self._keeper.known:
            tls, dial_tls = self._keeper.tls, self._keeper.dial_tls
        self.router = Router(
            name,
            settings,
            time.monotonic(),
            incarnation=int(time.time() * 1000),
            intake=_intake(offloading),
        )
        self.limits = limits or Limits()
        self._dial = list(neighbours)
        self._dial_tls = dial_tls
        pause = min(1.0, self.router.settings.beat / 2)
        where: dict[str, Any] = {"host": host, "port": port, "gate": self._keeper, "tls": tls, "pause": pause}
        self.listener: Listener[Peer] = Listener(p.ROUTING, self, self.limits, Peer, **where)
        self._registry = Registry(name)
        self._dispatch = Dispatch(self.router, self._registry)
        self._sessions = Sessions(self.limits)
        self._absence = Absence(self.limits, self.router.settings.lease, self._forget)
        own = (self._gone, self._sessions, tls, dial_tls, self._keeper)
        self._handshake = Handshake(self.router, self._registry, self._dispatch, *own)
        self._clearance = Clearance(self._keeper)
        self._complain = Seldom(log)
        #: A router works requests out at once, while nobody else is heard.
        self._rest = Rest(_TIMES, _LONG)
        self._service = Service(self.router, self.limits, self.do, self._counts, self._clearance)
        self._work = Work(self._service, self._message, self._dispatch.pressure, self._rest)
        self._dispatch.wave_done = self._service.wave_done
        #: Clients in this process that are told when wishes may have changed.
        self._watchers: list[Callable[[], None]] = []

    # -- life -----------------------------------------------------------------------------

    async def start(self) -> Self:
        """Listen, and connect to neighbours."""
        await self.listener.start()
        for address in self._dial:
            self.listener.begin(self._keep(address))
        return self

    async def close(self) -> None:
        """Say goodbye and stop."""
        self._dispatch.alarm.cancel()
        for peer in list(self.listener.connections):
            peer.goodbye("the router stops")
        await self.listener.close()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return self.listener.address

    @property
    def url(self) -> str:
        """Where clients connect."""
        return self.listener.url

    @property
    def dropped(self) -> int:
        """Events that were dropped here because a connection was too slow, or lost."""
        return self._dispatch.dropped

    @property
    def errors(self) -> int:
        """Errors that should not be."""
        return self._dispatch.errors + self.listener.errors

    @property
    def missed(self) -> int:
        """Events that neighbours say they dropped on the way here."""
        return self._dispatch.missed

    def status(self) -> dict[str, Any]:
        """What the router does, as `sievenet router --status` says it."""
        return {**self.router.statistics(), **self._counts()}

    def join(self, name: str, deliver: Callable[[Shipment], None], changed: Callable[[], None]) -> None:
        """A client in this process: takes events, and is told when what others want may have changed."""
        self.router.attach(name, echo=False)
        self._dispatch.ports[name] = deliver
        self._watchers.append(changed)

    def do(self, outputs: Sequence[Output]) -> set[Peer]:
        """Carry out what a stimulus led to; the links whose buffers are long."""
        return self._dispatch.do(outputs)

    def changed(self) -> None:
        """What somebody wants may have changed: tell the clients in this process."""
        for watcher in self._watchers:
            watcher()

    def beat(self, now: float, slept: float) -> None:
        """Let time pass for the router, for those who are away, and for events that were dropped and not told."""
        if slept > self.router.settings.lease / 4:
            # This process was held up: that time does not count as the silence of others.
            self.router.states.slept(slept, self.router.heard)
            self._absence.slept(slept)
        for peer in self.listener.connections:
            peer.tell_missed()
        self._absence.look(now)
        self.do(self.router.tick(now))
        if self._keeper.known:
            self._keep_out()

    def _keep_out(self) -> None:
        """End what members and keys of now would not let in, and hold what stays to the rules of now."""
        if self._keeper.look():
            self.listener.tls, self._dial_tls = self._keeper.tls, self._keeper.dial_tls
        absent = [peer for peer in self._registry.clients.values() if peer.absent]
        for peer in [*self.listener.connections, *absent]:
            identity = peer.entered or peer.answers
            if identity is None:
                continue
            stands = self._keeper.stands(identity)
            # Another login of the same member goes on with what this one is owed: its rules count meanwhile.
            peer.rotated = not stands and self._keeper.returns(identity)
            if stands or (peer.rotated and peer.absent):
                if peer.entered is not None:
                    self._service.review(peer, identity)
                continue
            peer.ended = True
            peer.goodbye("the login no longer counts, or has another role now")
            if peer.absent:
                self._forget(peer)

    # -- connections ----------------------------------------------------------------------

    async def _keep(self, address: tuple[str, int]) -> None:
        """Dial a neighbour whenever there is no connection to it."""
        wait = 0.05
        while True:
            if not self._handshake.linked(address):
                try:
                    async with asyncio.timeout(5.0):
                        stream = await asyncio.open_connection(*address, ssl=self._dial_tls)
                except (ssl.SSLError, UnicodeError) as error:
                    self._handshake.failed(address, str(error))
                except (OSError, TimeoutError) as error:
                    log.debug("%s: no neighbour at %s: %s", self.router.name, address, error)
                else:
                    peer = self.listener.enter(*stream, dialled=True)
                    self._handshake.call(peer, address)
                    reason = await self.listener.serve(peer)
                    if reason is not None:
                        self._handshake.failed(address, str(reason))
                    wait = 0.05 if peer.role else wait
            await asyncio.sleep(wait)
            wait = min(1.0, 2 * wait)

    async def hello(self, peer: Peer, hello: Any, identity: Identity) -> p.Welcome | None:
        """Somebody says who it is."""
        if not peer.dialled:
            self._clearance.enter(identity)
            peer.entered = identity
            if identity.quota.queue:
                peer.limits = replace(peer.limits, buffer=identity.quota.queue)
        return self._handshake.greeted(peer, hello, identity.name)

    def welcomed(self, peer: Peer) -> None:
        """It knows that it is welcome."""
        self._handshake.welcomed(peer)

    def refused(self, peer: Peer, answer: Any) -> None:
        """Something was refused for its sender's role."""
        if peer.identity is not None:
            self._clearance.refused(peer.identity, peer.name, peer.address, answer.message)

    def take(self, peer: Peer, messages: list[tuple[Any, int]]) -> Awaitable[None] | None:
        """Carry out what came together; what its sender has to wait for."""
        return self._work.take(peer, [message for message, _ in messages])

    async def lost(self, peer: Peer) -> None:
        """A connection is at its end."""
        if peer.entered is not None:
            self._clearance.leave(peer.entered)
        if peer.left and peer.role == "client":
            # A client that said goodbye is owed nothing.
            peer.settled()
        self._dispatch.pressure.forget(peer)
        if not self._registry.holds(peer) or peer.absent:
            return
        if peer.role == "client" and peer.entries and (peer.rotated or not peer.ended):
            self.do(self.router.hear(peer.name, p.Volunteer(0, willing=False), time.monotonic()))
            self._absence.enter(peer, time.monotonic())
        else:
            self._forget(peer)

    def _forget(self, peer: Peer) -> None:
        """Forgets a client or neighbour for good, unless it is back or another connection has its name."""
        if self._registry.holds(peer):
            self._registry.leave(peer)
            self._gone(peer)

    def _gone(self, peer: Peer) -> None:
        """A connection lost its name: what waits for it is counted as dropped."""
        self._dispatch.dropped += peer.unsent() - peer.untold
        self._absence.leave(peer)
        if peer.session is not None:
            self._sessions.end(peer.session)
        gone = self.router.lost if peer.role == "router" else self.router.detach
        self.do(gone(peer.name, time.monotonic()))
        self.changed()

    # -- messages -------------------------------------------------------------------------

    def _message(self, peer: Peer, message: Any) -> float:
        """Seconds for which its sender is not read."""
        match message:
            case Received(number) if peer.session is not None:
                peer.session.confirm(number)
            case p.Failure():
                self._complain(f"{self.router.name}: neighbour {peer.name}: {message.message}")
            case Missed():
                self._dispatch.pass_on(peer, message)
            case _ if peer.role == "router":
                self.do(self.router.receive(peer.name, message, time.monotonic()))
                if not isinstance(message, Carried):
                    self.changed()
            case Computed():
                # What reading took; what it leads to is counted where it is done.
                self.router.intake.charge(message, peer.spent)
                peer.spent = 0.0
                self.do(self.router.hear(peer.name, message, time.monotonic()))
            case _:
                begin = time.thread_time()
                try:
                    self._service.request(peer, message)
                    self.changed()
                except SievenetError as error:
                    peer.send(failure(getattr(message, "request", 0), error))
                    return error.pause if isinstance(error, TooFast) else 0.0
                finally:
                    self._rest.worked(peer.party, time.thread_time() - begin, time.monotonic())
        return 0.0

    def _counts(self) -> dict[str, Any]:
        peers = [*self._registry.routers.values(), *self._registry.clients.values()]
        return {
            "dropped": self.dropped,
            "missed": self.missed,
            "slow": {f"{peer.role} {peer.name}": peer.dropped for peer in peers if peer.dropped},
            "away": self._absence.held(),
            "peers": len(self.listener.connections),
            "turned_away": self.listener.turned_away,
            "errors": self.errors,
        }
