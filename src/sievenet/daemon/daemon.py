"""The daemon: a whole fabric in one process.

    ┌──────────── daemon ────────────┐
    │  server ── service ── control  │  TCP: who wants and offers what
    │                         │      │
    │                     data plane │  UDP: events
    └────────────────────────────────┘

It starts from the bottom (switches, then the control plane that reads and repairs them from its journal, then the door
for clients) and stops from the top. When `start` returns, everything that was ever accepted is in the switches again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from sievenet.access.audit import AuditLog
from sievenet.access.doorkeeper import Doorkeeper, check_exposure
from sievenet.access.folder import Folder
from sievenet.config import Config
from sievenet.control import warmup
from sievenet.control.journal import FileJournal, Journal, MemoryJournal
from sievenet.control.plane import ControlPlane
from sievenet.control.protocol import CONTROL
from sievenet.daemon.answers import Answers
from sievenet.daemon.clearance import Clearance
from sievenet.daemon.configurators import Configurators
from sievenet.daemon.lobby import Lobby
from sievenet.daemon.planes import AnyPlane, Planes
from sievenet.daemon.portwatch import PortWatch
from sievenet.daemon.rates import Rates
from sievenet.daemon.reign import Reign
from sievenet.daemon.reports import Reports
from sievenet.daemon.service import Peer, Service
from sievenet.daemon.ticket import Tickets
from sievenet.daemon.tuner import Tuner
from sievenet.errors import SievenetError
from sievenet.network import parse_topology
from sievenet.network.topology import Topology
from sievenet.session.lifetime import Starting, Tasks, ended
from sievenet.session.limits import Limits
from sievenet.session.listener import Listener
from sievenet.workload.samples import load_schema

__all__ = ["Daemon"]

#: Messages of one client after which others, and events, have their turn.
_TURN: Final = 16
#: Seconds between looks at the access folder.
_LOOK: Final = 1.0

#: Seconds after which one that leads, but could not start, tries again.
_AGAIN: Final = 1.0

log = logging.getLogger("sievenet.daemon")

#: Bytes of replies that may wait for one client; at twice as many, for all of its member, it is disconnected.
_BUFFER: Final = 1 << 25
#: Bytes of replies that may wait for all.
_WAITING: Final = 1 << 28


class Daemon(Starting):
    """Use as an async context manager, or `start` and `close`."""

    def __init__(
        self, config: Config | None = None, topology: Topology | None = None, journal: Journal | None = None
    ) -> None:
        self.config = config or Config()
        self._topology = topology
        self._journal = journal
        self._stack = contextlib.AsyncExitStack()
        self._tasks = Tasks()
        self.plane: AnyPlane
        self.control: ControlPlane
        self.service: Service
        self.server: Listener[Peer]
        self.answers: Answers
        self.keeper: Doorkeeper
        self.lobby: Lobby
        self.tuner: Tuner
        #: With other daemons, of which one leads.
        self._reign: Reign | None = None
        #: Why this one leads no more; whoever runs it is told, and should close it.
        self.deposed: SievenetError | None = None
        self.on_deposed: Callable[[], object] | None = None

    async def start(self) -> Self:
        """Bring the fabric up; raises, with everything closed again, if something is in the way.

        One that waited until it leads tries again: who led before may hold a port for a while yet, if it was paused.
        """
        follows = False
        while True:
            try:
                await self._start()
            except BaseException as error:
                await self._stack.aclose()
                follows |= self._reign is not None and self._reign.follows
                if not follows or not isinstance(error, SievenetError):
                    raise
                log.warning("leads, but cannot start: %s; gives the lead up, and tries again", error)
                self._reign, self._stack = None, contextlib.AsyncExitStack()
                await asyncio.sleep(_AGAIN)
            else:
                return self

    async def _start(self) -> None:
        config, stack = self.config, self._stack
        keeper = self._keeper()
        topology = self._topology or parse_topology(config.topology)
        if not config.links.perfect:
            topology = topology.with_links(config.links)
        state = None if config.state is None else Path(config.state)
        journal = self._journal
        if config.nats.url is not None:
            self._reign = await Reign.begin(config.nats, self._lost)
            stack.push_async_callback(self._reign.close)
            if state is not None:
                await self._reign.take_in(state / "journal.db")
            tickets, journal = Tickets(self._reign.key), self._reign.journal
        else:
            tickets = Tickets() if state is None else Tickets.load(state)
        if config.dataplane != "openflow":  # where switches are found, one may come later
            config.control.check_names(topology.switches)
        planes = Planes(config, topology, stack, keeper)
        if self._reign is not None:
            planes.generation, planes.names, planes.on_names = self._reign.term, self._reign.names, self._reign.named
        self.plane = await planes.open(tickets.derived(b"tokens"))
        if absent := sorted(config.control.capacities.keys() - set(self.plane.topology.switches)):
            log.warning("control.capacities speaks of switches that are not there: %s", ", ".join(absent))
        await asyncio.to_thread(warmup.load)  # in the middle of things it would keep everybody waiting
        if config.control.kind == "cells":
            await warmup.MASKS.ready()
        if any(config.control.limit(s, self.plane.capacity(s)) is not None for s in self.plane.topology.switches):
            await warmup.LIMITS.ready()
        if journal is None:
            journal = MemoryJournal() if state is None else FileJournal(state / "journal.db")
            if isinstance(journal, FileJournal) and journal.dropped:
                log.warning("dropped %d bytes of an unfinished write of the journal", journal.dropped)
        self.control = await ControlPlane.start(self.plane, journal, config.control)
        stack.push_async_callback(self.control.close)
        if self._reign is not None and config.control.mode in ("sna", "sna-lb"):
            await self._reign.distribute(self.control, config.control.configurators)
        elif config.control.mode in ("sna", "sna-lb"):
            configurators = Configurators(self.control, config.control.staff)
            stack.push_async_callback(configurators.close)
            await configurators.start()
        for path in config.schemas:
            await self.control.register_schema(load_schema(path))
        reports = Reports()
        self.tuner = Tuner(self.control, self.plane, reports, config.tuning, self._noted)
        rates = Rates(self.control, self.tuner.samples, None if config.tap is None else Path(config.tap))
        stack.push_async_callback(rates.close)
        self.answers = Answers(
            self.control, self.plane, reports, rates, self.shape, lambda: self.service.connected, self.tuner
        )
        clearance = Clearance(keeper, self.control, self.plane)
        given = (self.answers, reports, config.listen, clearance, self.tuner, config.hybrid)
        self.service = Service(self.control, self.plane, tickets, *given)
        fitting = self._tasks.begin(self.answers.fitter.run(config.control.fit))
        stack.callback(fitting.cancel)
        self.lobby = Lobby(self.service, clearance)
        keeper.look()  # the files were read when this process began, which may have waited for days until it led
        planes.renew(keeper)
        await self.service.access_changed()
        self.server = self._listener()
        stack.push_async_callback(self.server.close)
        await self.server.start()
        await planes.open_doors(self.server, self.plane)
        if self._reign is not None:
            await self._reign.announce(self.server.url)
            self.answers.sharing = self._reign.shown
        if keeper.known:
            watch = self._tasks.begin(self._watch(keeper, planes))
            stack.callback(watch.cancel)
        if self.tuner.wanted:
            tuning = self._tasks.begin(self.tuner.run())
            stack.push_async_callback(ended, tuning)
        self._filter_exactly()
        ports = self._tasks.begin(PortWatch(self.plane, self.control, self.service.caches).run())
        stack.callback(ports.cancel)
        events = f"port {self.plane.endpoint[1]}/udp" if self.plane.endpoint else "the switches' ports"
        log.info("listening on %s, events on %s", self.server.url, events)

    def _lost(self, reason: SievenetError) -> None:
        """Another daemon leads: decide nothing any more, and have this one closed."""
        if self.deposed is None:
            self.deposed = reason
            if hasattr(self, "control"):
                self._ending = asyncio.ensure_future(self.control.close())
            if self.on_deposed is not None:
                self.on_deposed()

    def _filter_exactly(self) -> None:
        """Look after matchers, and choose what goes through them."""
        hybrid, selector = self.service.components.hybrid, self.service.components.selector
        self.answers.hybrid, self.answers.matchers = selector.answer, lambda: hybrid.matchers
        self.answers.caches = self.service.caches.status
        self._stack.push_async_callback(hybrid.close)
        for work in (hybrid.watch(), selector.run()):
            self._stack.callback(self._tasks.begin(work).cancel)

    def _listener(self) -> Listener[Peer]:
        listen = self.config.listen
        limits = Limits(
            hello=listen.hello,
            unread=listen.unread,
            connections=listen.max_clients,
            per_address=listen.max_clients,
            largest=listen.max_request,
            turn=_TURN,
            buffer=_BUFFER,
            waiting=_WAITING,
        )
        return Listener(
            CONTROL,
            self.service,
            limits,
            Peer,
            host=listen.host,
            port=listen.port,
            gate=self.keeper,
            tls=self.keeper.tls,
        )

    def _keeper(self) -> Doorkeeper:
        """Who may come in; refuses to listen where others could connect without being known."""
        config, access = self.config, self.config.access
        known = access.folder is not None
        check_exposure(config.listen.host, known, access.insecure)
        if config.dataplane == "embedded":
            check_exposure(config.data.host, known, access.insecure, "data.host")
        if config.dataplane == "openflow":
            switches = config.openflow.listen.rpartition(":")[0]
            check_exposure(switches, config.openflow.authority is not None, access.insecure, "openflow.listen")
        if config.dataplane == "kernel" and config.kernel.listen is not None:
            check_exposure(config.kernel.listen.rpartition(":")[0], known, access.insecure, "kernel.listen")
        if config.state is not None:
            with contextlib.suppress(OSError):  # who needs it says what is wrong with it
                Path(config.state).mkdir(parents=True, exist_ok=True)
        audit = None
        if access.audit:
            audit = AuditLog.at(access.audit)
        elif config.state is not None:
            audit = AuditLog(Path(config.state) / "audit.jsonl")
        folder = None if access.folder is None else Folder(access.folder)
        self.keeper = Doorkeeper(folder, access.login, audit)
        return self.keeper

    async def _watch(self, keeper: Doorkeeper, planes: Planes) -> None:
        """Read the access folder again when it changes, and ask now and then whether logins still count."""
        while True:
            await asyncio.sleep(_LOOK)
            try:
                keeper.look()
                self.server.tls = keeper.tls
                planes.renew(keeper)
                await self.service.access_changed()
            except Exception:
                log.exception("the access folder could not be looked at")

    def _noted(self, what: str, about: str) -> None:
        self.keeper.note("", "tuner", "", what, about)

    @property
    def shape(self) -> str:
        """What the network is called: its topology's name, unless it was found rather than made."""
        return "of existing switches" if self.config.dataplane == "openflow" else self.config.topology

    @property
    def url(self) -> str:
        """Where clients connect."""
        return self.server.url

    async def close(self) -> None:
        """Say goodbye and stop."""
        if hasattr(self, "service"):
            self.service.goodbye("the daemon is shutting down")
        await self._stack.aclose()
