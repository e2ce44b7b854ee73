"""The router process: connections around a `Router`.

    dial, accept ─▶ admission (`limits`) ─▶ `handshake` (`registry`, `identity`) ─▶ messages ─▶ `core`, `service`
                                                                                                  │
                             buffers (`peer`) ◀── `dispatch` ◀──── what is to be sent ────────────┘

One task per connection reads frames and hands them to the core; what the core returns is written at once, local
deliveries first. What holds, whatever one connection does:

* an error while it is served ends it alone, and one message that cannot be sent costs itself;
* it says hello within a few seconds, finishes a frame that it began, and says something a few times per lease;
* reading waits for nothing but the links that this very client publishes to, and not for long (`peer`).

Routers dial their neighbours and are dialled by them; `registry` says which connection stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

from sievenet.access.identity import Role, certified_names
from sievenet.errors import CodecError, Rejected, SievenetError, Unavailable
from sievenet.routers import protocol as p
from sievenet.routers.core import Router
from sievenet.routers.dispatch import Dispatch
from sievenet.routers.handshake import Handshake
from sievenet.routers.limits import Admission, Limits, Unfinished
from sievenet.routers.messages import Carried, Missed, Received
from sievenet.routers.offload.jobs import Offloading
from sievenet.routers.offload.messages import Computed
from sievenet.routers.outputs import Output
from sievenet.routers.peer import Peer
from sievenet.routers.registry import Registry
from sievenet.routers.routing import Settings
from sievenet.routers.service import Service
from sievenet.routers.session import Absence, Sessions
from sievenet.routers.shipment import Shipment
from sievenet.session.framing import Framer, Malformed, frame
from sievenet.session.message import failure

__all__ = ["RouterServer"]

log = logging.getLogger("sievenet.routers")

_CHUNK = 1 << 18
_ROLES = {"router": Role.COMPONENT, "client": Role.CLIENT}


class RouterServer:
    """A router that listens. ``async with RouterServer(...)`` runs it.

    With ``tls`` neighbours must have a certificate with their name that the contexts verify (`identity`).
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
    ) -> None:
        self.router = Router(
            name,
            settings,
            time.monotonic(),
            incarnation=int(time.time() * 1000),
            offloading=offloading,
            cpu=time.process_time,
        )
        self.limits = limits or Limits()
        self._host, self._port = host, port
        self._dial = list(neighbours)
        self._tls, self._dial_tls = tls, dial_tls
        self._peers: set[Peer] = set()
        self._registry = Registry(name)
        self._dispatch = Dispatch(self.router, self._registry)
        self._sessions = Sessions(self.limits)
        self._absence = Absence(self.limits, self.router.settings.lease, self._forget)
        own = (self._gone, self._sessions, tls, dial_tls)
        self._handshake = Handshake(self.router, self._registry, self._dispatch, *own)
        self._admission = Admission(self.limits)
        self._unfinished: Unfinished[Peer] = Unfinished(self.limits)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._service = Service(self.router, self.limits, self._do, self._dispatch.write, self._counts)
        self._dispatch.wave_done = self._service.wave_done
        #: Clients in this process that are told when wishes may have changed.
        self._watchers: list[Callable[[], None]] = []

    # -- life -----------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        patience = None if self._tls is None else self.limits.hello
        try:
            self._server = await asyncio.start_server(
                self._accept, self._host, self._port, ssl=self._tls, ssl_handshake_timeout=patience
            )
        except OSError as error:
            raise Unavailable(f"Cannot listen on {self._host}:{self._port}: {error.strerror or error}") from None
        self._port = self._server.sockets[0].getsockname()[1]
        self._start(self._beat())
        for address in self._dial:
            self._start(self._keep(address))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        self._dispatch.alarm.cancel()
        for peer in list(self._peers):
            peer.send(frame(p.Goodbye("the router stops")))
            peer.writer.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return self._host, self._port

    @property
    def url(self) -> str:
        """Where clients connect."""
        scheme = "sievenet+router" if self._tls is None else "sievenet+routers"
        return f"{scheme}://{self._host}:{self._port}"

    @property
    def secure(self) -> bool:
        """Whether it speaks TLS."""
        return self._tls is not None

    @property
    def dropped(self) -> int:
        """Events that were dropped here because a connection was too slow, or lost."""
        return self._dispatch.dropped

    @property
    def missed(self) -> int:
        """Events that neighbours say they dropped on the way here."""
        return self._dispatch.missed

    def join(self, name: str, deliver: Callable[[Shipment], None], changed: Callable[[], None]) -> None:
        """A client in this process: takes events, and is told when what others want may have changed."""
        self.router.attach(name, echo=False)
        self._dispatch.ports[name] = deliver
        self._watchers.append(changed)

    def do(self, outputs: Sequence[Output]) -> None:
        """Carry out what a stimulus (of such a client, too) led to."""
        self._do(outputs)

    def changed(self) -> None:
        """What somebody wants may have changed: tell the clients in this process."""
        for watcher in self._watchers:
            watcher()

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _do(self, outputs: Sequence[Output]) -> set[Peer]:
        return self._dispatch.do(outputs)

    async def _beat(self) -> None:
        pause, last = min(1.0, self.limits.hello / 4, self.router.settings.beat / 2), time.monotonic()
        while True:
            await asyncio.sleep(pause)
            now = time.monotonic()
            slept, last = now - last - pause, now
            if slept > self.router.settings.lease / 4:
                # This process was held up: that time does not count as the silence of others.
                self.router.states.slept(slept, self.router.heard)
                self._absence.slept(slept)
                for peer in self._peers:
                    peer.heard += slept
            try:
                self._look_after(now)
                self._do(self.router.tick(now))
            except Exception:
                self._dispatch.wrong("at its beat")

    def _look_after(self, now: float) -> None:
        """End what is silent or unfinished for too long; say something to clients that heard nothing."""
        for peer in list(self._peers):
            what, wait = ("word", self.router.settings.lease) if peer.role else ("hello", self.limits.hello)
            if peer.heard <= now - wait:
                self._drop(peer, f"Expected a {what} within {wait:g} s")
                continue
            if peer.role == "client" and peer.spoken == peer.written:
                peer.send(frame(p.Alive()))
            peer.tell_missed()
            peer.spoken = peer.written
        for peer in self._unfinished.late(now):
            self._drop(peer, "Expected the rest of a frame in time")
        self._absence.look(now)

    def _drop(self, peer: Peer, reason: str) -> None:
        """End a connection whose other side may not read: what waits for it is lost, and counted."""
        log.warning("%s: connection of %s ended: %s", self.router.name, peer.name or peer.address, reason)
        peer.writer.write(frame(failure(0, Unavailable(reason))))
        stuck, peer.ended = peer.waiting, True
        self._leave(peer)
        if stuck:
            peer.writer.transport.abort()

    # -- connections ----------------------------------------------------------------------

    async def _keep(self, address: tuple[str, int]) -> None:
        """Dial a neighbour whenever there is no connection to it."""
        wait = 0.05
        while True:
            if not self._handshake.linked(address):
                try:
                    async with asyncio.timeout(5.0):
                        reader, writer = await asyncio.open_connection(*address, ssl=self._dial_tls)
                except (ssl.SSLError, UnicodeError) as error:
                    self._handshake.failed(address, str(error))
                except (OSError, TimeoutError) as error:
                    log.debug("%s: no neighbour at %s: %s", self.router.name, address, error)
                else:
                    peer = self._enter(writer, address[0], dialled=True)
                    self._handshake.call(peer, address)
                    await self._serve(reader, peer, address)
                    wait = 0.05 if peer.role else wait
            await asyncio.sleep(wait)
            wait = min(1.0, 2 * wait)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = str((writer.get_extra_info("peername") or ("?",))[0])
        try:
            self._admission.enter(address)
        except Rejected as error:
            writer.write(frame(failure(0, error)))
            writer.close()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await self._serve(reader, self._enter(writer, address, dialled=False), None)
        finally:
            self._admission.leave(address)

    def _enter(self, writer: asyncio.StreamWriter, address: str, dialled: bool) -> Peer:
        raw = writer.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        names = certified_names(writer.get_extra_info("peercert"))
        peer = Peer(writer, dialled, self.limits, address=address, certified=names, heard=time.monotonic())
        self._peers.add(peer)
        return peer

    async def _serve(self, reader: asyncio.StreamReader, peer: Peer, address: tuple[str, int] | None) -> None:
        framer = p.ROUTING.listening()
        try:
            while data := await reader.read(_CHUNK):
                if peer.role:
                    peer.heard = time.monotonic()
                held = self._read(peer, framer, data, address)
                if peer.writer.is_closing():
                    break
                if held:
                    await self._dispatch.pressure.wait(held)
        except (CodecError, Rejected) as error:
            if address is not None:
                self._handshake.failed(address, str(error))
            peer.send(frame(failure(0, error)))
            peer.ended = True
        except OSError as error:
            log.debug("%s: connection of %s: %s", self.router.name, peer.name, error)
        except Exception as error:
            self._dispatch.wrong(f"while serving {peer.name or peer.address}, whose connection ends")
            peer.send(frame(failure(0, error)))
            peer.ended = True
        finally:
            self._leave(peer)

    def _read(self, peer: Peer, framer: Framer, data: bytes, address: tuple[str, int] | None) -> set[Peer]:
        """Take what a connection gave; the links that this client has to wait for."""
        published: list[p.Publish] = []
        whole, held = False, set[Peer]()
        begin = time.process_time() if peer.helps else 0.0
        for message in framer.feed(data):
            whole = True
            if isinstance(message, Computed) and peer.helps:
                # What reading took; what it leads to is counted where it is done.
                self.router.helpers.charge(message.job, time.process_time() - begin)
            if peer.role == "client" and isinstance(message, p.Publish):
                published.append(message)
            elif peer.role:
                held |= self._service.publish(peer, published)
                self._message(peer, message)
            else:
                self._handshake.greeted(peer, message, address)
                framer.limit = p.ROUTING.largest[_ROLES.get(peer.role, Role.CLIENT)]
            if peer.writer.is_closing():
                break
            begin = time.process_time() if peer.helps else 0.0
        held |= self._service.publish(peer, published)
        most = self._unfinished.note(peer, framer.pending, time.monotonic(), whole)
        if most is not None:
            self._drop(most, f"Expected at most {self.limits.unfinished} bytes of unfinished frames in all")
        return held

    def _leave(self, peer: Peer) -> None:
        """A connection is at its end; called again, it does nothing."""
        self._peers.discard(peer)
        self._unfinished.note(peer, 0, 0.0, whole=True)
        self._dispatch.pressure.forget(peer)
        peer.writer.close()
        if not self._registry.holds(peer) or peer.absent:
            return
        if peer.role == "client" and peer.entries and not peer.ended:
            self._do(self.router.volunteer(peer.name, False, time.monotonic()))
            self._absence.enter(peer, time.monotonic())
        else:
            self._forget(peer)

    def _forget(self, peer: Peer) -> None:
        """A client or neighbour is gone for good; a client that is back, or whose name another one has, is not."""
        if self._registry.holds(peer):
            self._registry.leave(peer)
            self._gone(peer)

    def _gone(self, peer: Peer) -> None:
        """A connection no longer has its name: what waits for it is lost."""
        self._dispatch.dropped += peer.unsent() - peer.untold
        self._absence.leave(peer)
        if peer.session is not None:
            self._sessions.end(peer.session)
        gone = self.router.lost if peer.role == "router" else self.router.detach
        self._do(gone(peer.name, time.monotonic()))
        self.changed()

    # -- messages -------------------------------------------------------------------------

    def _message(self, peer: Peer, message: Any) -> None:
        peer.previous = b""
        match message:
            case Malformed():
                self._dispatch.complain(peer, message)
            case p.Goodbye():
                if peer.role == "client":
                    # Whoever leaves misses nothing.
                    peer.settled()
                    peer.ended = True
                peer.writer.close()
            case p.Alive():
                pass
            case Received(number) if peer.session is not None:
                peer.session.confirm(number)
            case p.Failure() if peer.role == "router":
                log.warning("%s: neighbour %s: %s", self.router.name, peer.name, message.message)
            case Missed() if peer.role == "router":
                self._dispatch.pass_on(peer, message)
            case _ if peer.role == "router":
                self._do(self.router.receive(peer.name, message, time.monotonic()))
                if not isinstance(message, Carried):
                    self.changed()
            case Computed():
                self._do(self.router.computed(peer.name, message, time.monotonic()))
            case _:
                try:
                    self._service.request(peer, message)
                    self.changed()
                except SievenetError as error:
                    self._dispatch.write(peer, failure(getattr(message, "request", 0), error))

    def _counts(self) -> dict[str, Any]:
        peers = [*self._registry.routers.values(), *self._registry.clients.values()]
        return {
            "dropped": self.dropped,
            "missed": self.missed,
            "slow": {f"{peer.role} {peer.name}": peer.dropped for peer in peers if peer.dropped},
            "away": self._absence.held(),
            "peers": len(self._peers),
            "turned_away": self._admission.turned_away,
            "errors": self._dispatch.errors,
        }
