"""The router process: connections around a `Router`.

One task per connection reads frames and hands them to the core; what the core returns is written at once. Writing never
waits: a connection has a buffer, and

* while a neighbour's buffer is long, clients are not read, so TCP slows publishers down;
* a buffer that is full takes no more events (they are counted as dropped), control messages always pass;
* neighbours are never held back for each other, which on a cycle could stop them all.

Routers dial their neighbours and are dialled by them; if both happen, the connection that the router with the smaller
name opened stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Any, Self

from sievenet.content.codec import decode_schema, decode_subscription, encode_schema
from sievenet.control.framing import Malformed, failure
from sievenet.errors import CodecError, Rejected, SievenetError
from sievenet.routers import protocol as p
from sievenet.routers.alarm import Alarm
from sievenet.routers.core import Router
from sievenet.routers.messages import Carried
from sievenet.routers.offload.jobs import Offloading
from sievenet.routers.offload.messages import Assign, Compute, Computed
from sievenet.routers.outputs import Deliver, Output, Send, Tell, WaveDone
from sievenet.routers.peer import Peer, Pressure
from sievenet.routers.requests import answer, schema_of, shipment_of
from sievenet.routers.routing import Settings
from sievenet.routers.shipment import Shipment
from sievenet.routers.waiting import Waiting

__all__ = ["RouterServer"]

log = logging.getLogger("sievenet.routers")

_CHUNK = 1 << 18


class RouterServer:
    """A router that listens. ``async with RouterServer(...)`` runs it."""

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
    ) -> None:
        self.router = Router(
            name,
            settings,
            time.monotonic(),
            incarnation=int(time.time() * 1000),
            offloading=offloading,
            cpu=time.process_time,
        )
        self._alarm = Alarm(self.router.due, self._ring)
        self._host, self._port = host, port
        self._dial = list(neighbours)
        self._tls, self._dial_tls = tls, dial_tls
        self._peers: set[Peer] = set()
        self._routers: dict[str, Peer] = {}
        self._clients: dict[str, Peer] = {}
        #: Names of neighbours by the address they were dialled at.
        self._names: dict[tuple[str, int], str] = {}
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        #: Requests that wait for a wave, and what to do to begin one.
        self._waiting: Waiting[tuple[Peer, int]] = Waiting(self._begin_wave, self._run_wave, self._settled)
        self._beginning: list[Output] = []
        self._pressure = Pressure(self._routers)
        self._secret = secrets.token_bytes(16)
        self.dropped = 0
        #: Clients in this process: who takes their events, and who is told that wishes may have changed.
        self._ports: dict[str, Callable[[Shipment], None]] = {}
        self._watchers: list[Callable[[], None]] = []

    # -- life -----------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, self._host, self._port, ssl=self._tls)
        self._port = self._server.sockets[0].getsockname()[1]
        self._start(self._beat())
        for address in self._dial:
            self._start(self._keep(address))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        self._alarm.cancel()
        for peer in list(self._peers):
            peer.send(p.frame(p.Goodbye("the router stops")))
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

    def join(self, name: str, deliver: Callable[[Shipment], None], changed: Callable[[], None]) -> None:
        """A client in this process: takes events, and is told when what others want may have changed."""
        self.router.attach(name, echo=False)
        self._ports[name] = deliver
        self._watchers.append(changed)

    def do(self, outputs: Sequence[Output]) -> None:
        """Carry out what a stimulus (of such a client, too) led to."""
        self._do(outputs)

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _ring(self) -> None:
        self._do(self.router.tick(time.monotonic()))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.router.settings.beat / 2)
            self._do(self.router.tick(time.monotonic()))
            self._pressure.ease()

    # -- connections ----------------------------------------------------------------------

    async def _keep(self, address: tuple[str, int]) -> None:
        """Dial a neighbour whenever there is no connection to it."""
        wait = 0.05
        while True:
            known = self._names.get(address)
            if known is None or known not in self._routers:
                try:
                    async with asyncio.timeout(5.0):
                        reader, writer = await asyncio.open_connection(*address, ssl=self._dial_tls)
                except (OSError, TimeoutError) as error:
                    log.debug("%s: no neighbour at %s: %s", self.router.name, address, error)
                else:
                    wait = 0.05
                    peer = self._enter(writer, dialled=True)
                    peer.send(p.frame(p.Hello(p.PROTOCOL, "router", self.router.name)))
                    await self._serve(reader, peer, address)
            await asyncio.sleep(wait)
            wait = min(1.0, 2 * wait)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        with contextlib.suppress(asyncio.CancelledError):
            await self._serve(reader, self._enter(writer, dialled=False), None)

    def _enter(self, writer: asyncio.StreamWriter, dialled: bool) -> Peer:
        raw = writer.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = Peer(writer, dialled)
        self._peers.add(peer)
        return peer

    async def _serve(self, reader: asyncio.StreamReader, peer: Peer, address: tuple[str, int] | None) -> None:
        framer = p.PeerFramer()
        try:
            while data := await reader.read(_CHUNK):
                published: list[p.Publish] = []
                begin = time.process_time() if peer.helps else 0.0
                for message in framer.feed(data):
                    if isinstance(message, Computed) and peer.helps:
                        # What reading took; what it leads to is counted where it is done.
                        self.router.helpers.charge(message.job, time.process_time() - begin)
                    if peer.role == "client" and isinstance(message, p.Publish):
                        published.append(message)
                    elif peer.role:
                        self._publish(peer, published)
                        self._message(peer, message)
                    elif self._greeted(peer, message, address) == "router":
                        framer.widen()
                    begin = time.process_time() if peer.helps else 0.0
                self._publish(peer, published)
                if peer.writer.is_closing():
                    break
                if peer.role == "client" and not self._pressure.calm:
                    await self._pressure.wait()
        except (CodecError, Rejected) as error:
            peer.send(p.frame(failure(0, error)))
        except (OSError, ConnectionError) as error:
            log.debug("%s: connection of %s: %s", self.router.name, peer.name, error)
        finally:
            self._leave(peer)

    def _leave(self, peer: Peer) -> None:
        self._peers.discard(peer)
        peer.writer.close()
        if self._routers.get(peer.name) is peer and peer.role == "router":
            del self._routers[peer.name]
            self._do(self.router.lost(peer.name, time.monotonic()))
        if self._clients.get(peer.name) is peer and peer.role == "client":
            del self._clients[peer.name]
            self._do(self.router.detach(peer.name, time.monotonic()))
        self._pressure.ease()

    def _greeted(self, peer: Peer, message: Any, address: tuple[str, int] | None) -> str:
        """The first message of a connection; the role that it gives the other side."""
        match message:
            case p.Hello(protocol=protocol) | p.Welcome(protocol=protocol) if protocol != p.PROTOCOL:
                raise Rejected(f"Expected version {p.PROTOCOL} of the router protocol, got {protocol}")
            case p.Hello(role="client", name=name):
                name = name or f"client-{secrets.token_hex(4)}"
                self.router.attach(name)
                peer.role, peer.name = "client", name
                unique = f"{self.router.name}/{name}/{secrets.token_hex(8)}".encode()
                peer.publisher = int.from_bytes(blake2b(unique, digest_size=8).digest(), "big") >> 1
                self._clients[name] = peer
                self._write(peer, p.Welcome(p.PROTOCOL, self.router.name, name, peer.publisher))
            case p.Hello(role="router", name=str(name)) if not peer.dialled:
                self._linked(peer, name, preferred=name < self.router.name)
                self._write(peer, p.Welcome(p.PROTOCOL, self.router.name, self.router.name))
                self._do(self.router.connected(name, time.monotonic()))
            case p.Welcome(router=name) if peer.dialled:
                if address is not None:
                    self._names[address] = name
                self._linked(peer, name, preferred=self.router.name < name)
                self._do(self.router.connected(name, time.monotonic()))
            case Malformed(error=error):
                raise CodecError(str(error))
            case p.Goodbye() | p.Failure():
                peer.writer.close()
            case _:
                raise CodecError(expected="Hello", got=type(message).__name__, where="connection")
        return peer.role

    def _linked(self, peer: Peer, name: str, preferred: bool) -> None:
        if name == self.router.name:
            raise Rejected(f"A router named {name} cannot be its own neighbour")
        before = self._routers.get(name)
        if before is not None:
            if not preferred:
                raise Rejected(f"There is a connection between {name} and {self.router.name} already")
            before.role = "replaced"
            before.writer.close()
        peer.role, peer.name = "router", name
        self._routers[name] = peer

    # -- messages -------------------------------------------------------------------------

    def _message(self, peer: Peer, message: Any) -> None:
        if isinstance(message, Malformed):
            self._write(peer, failure(message.request, message.error))
            return
        if peer.role == "router":
            if isinstance(message, p.Goodbye):
                peer.writer.close()
            else:
                self._do(self.router.receive(peer.name, message, time.monotonic()))
                if not isinstance(message, Carried):
                    self.changed()
            return
        if isinstance(message, Computed):
            self._do(self.router.computed(peer.name, message, time.monotonic()))
            return
        try:
            self._request(peer, message)
            self.changed()
        except SievenetError as error:
            self._write(peer, failure(message.request, error))

    def _publish(self, peer: Peer, messages: list[p.Publish]) -> None:
        """Events that came together go on together."""
        shipments: list[Shipment] = []
        for message in messages:
            try:
                shipments.append(shipment_of(self.router, peer.publisher, message))
            except SievenetError as error:
                self._write(peer, failure(message.request, error))
        messages.clear()
        for shipment in Shipment.joined(shipments):
            self._do(self.router.publish(peer.name, shipment, time.monotonic()))

    def _request(self, peer: Peer, message: Any) -> None:
        router, now = self.router, time.monotonic()
        match message:
            case p.Register(request, data):
                schema = decode_schema(data)
                self._write(peer, p.CategoryIs(request, router.register(schema), data))
            case p.LookUp(request, name):
                category, schema = router.catalogue.named(name)
                self._write(peer, p.CategoryIs(request, category, encode_schema(schema)))
            case p.Subscribe(request, number, category, content, claims):
                wanted = decode_subscription(schema_of(router, category), content)
                self._do(router.subscribe(peer.name, number, category, wanted, now, claims))
                self._waiting.add((peer, request))
            case p.Volunteer(request, willing):
                peer.helps = willing
                self._do(router.volunteer(peer.name, willing, now))
                self._write(peer, p.Done(request))
            case p.Advertise(request, number, category, content):
                wanted = decode_subscription(schema_of(router, category), content)
                self._do(router.advertise(peer.name, number, category, wanted, now))
                self._waiting.add((peer, request))
            case p.Unsubscribe(request, number):
                self._do(router.unsubscribe(peer.name, number, now))
                self._write(peer, p.Done(request))
            case p.Unadvertise(request, number):
                self._do(router.unadvertise(peer.name, number, now))
                self._write(peer, p.Done(request))
            case p.Ask(request, about, of):
                extra = {"dropped": self.dropped, "peers": len(self._peers)}
                self._write(peer, p.Done(request, answer(router, about, of, extra)))
            case p.Goodbye():
                peer.writer.close()
            case _:
                raise CodecError(expected="a request of a client", got=type(message).__name__, where="connection")

    # -- settling -------------------------------------------------------------------------

    def _begin_wave(self) -> int:
        number, self._beginning = self.router.settle(time.monotonic())
        return number

    def _run_wave(self) -> None:
        outputs, self._beginning = self._beginning, []
        self._do(outputs)

    def _settled(self, request: tuple[Peer, int]) -> None:
        self._write(request[0], p.Done(request[1]))

    def changed(self) -> None:
        """What somebody wants may have changed: tell the clients in this process."""
        for watcher in self._watchers:
            watcher()

    # -- outputs --------------------------------------------------------------------------

    def _write(self, peer: Peer, message: Any) -> None:
        peer.send(p.frame(message))

    def _do(self, outputs: Sequence[Output]) -> None:
        encoded: dict[int, bytes] = {}
        for output in outputs:
            match output:
                case Deliver(client, shipment) if client in self._ports:
                    self._ports[client](shipment)
                case Deliver(client, shipment):
                    data = encoded.get(id(shipment))
                    if data is None:
                        data = encoded[id(shipment)] = p.frame(shipment.message())
                    peer = self._clients.get(client)
                    if peer is not None and not peer.send(data, droppable=True):
                        peer.dropped += len(shipment)
                        self.dropped += len(shipment)
                case Send(neighbour, message):
                    near = self._routers.get(neighbour)
                    if near is not None:
                        self._to_router(near, message)
                case WaveDone(number):
                    self._waiting.done(number)
                case Tell(client, request):
                    self._tell(client, request)
        self._alarm.set()

    def _tell(self, client: str, request: Compute | Assign) -> None:
        """A question for a client; one that does not read is not asked, and found out by its silence."""
        peer = self._clients.get(client)
        if peer is not None:
            begin = time.process_time()
            peer.send(p.frame(request), droppable=True)
            if isinstance(request, Compute):
                self.router.helpers.charge(request.job, time.process_time() - begin)

    def _to_router(self, peer: Peer, message: Any) -> None:
        carried = isinstance(message, Carried)
        if not peer.send(p.frame(message), droppable=carried) and carried:
            self.dropped += len(message.sequences) // 8
        self._pressure.look(peer)
