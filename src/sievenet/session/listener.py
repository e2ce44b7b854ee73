"""The shell of the listening side: accepts connections within limits, lets them in by the gate, reads, and looks after.

    accept ─▶ `Admission` ─▶ hello ─▶ `Gate` ─▶ `Service.hello` ─▶ messages ─▶ `Service.take`
                                                     every beat ─▶ `Callee.tick`: too late, too silent, unread, alive

What holds, whatever one connection does: an error while it is served ends it alone; it says hello within a few
seconds, or sooner if others want its place; it finishes a frame that it began, and says something within each lease.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Generic, TypeVar

from sievenet.access.identity import Gate, Identity, OpenGate, Role
from sievenet.access.quota import TooFast
from sievenet.errors import Rejected, SievenetError, Unavailable
from sievenet.session.apart import Apart
from sievenet.session.callee import Callee, Step
from sievenet.session.complaints import Complaints, Seldom, told
from sievenet.session.connection import Connection
from sievenet.session.framing import frame
from sievenet.session.lifetime import Tasks
from sievenet.session.limits import Admission, Limits, Unfinished, Unread
from sievenet.session.message import Welcome, failure
from sievenet.session.pace import Pace
from sievenet.session.protocol import Protocol
from sievenet.session.tls import forgotten, secured, small_buffers
from sievenet.session.turns import Turns

__all__ = ["Listener", "Service"]

log = logging.getLogger("sievenet.session")

_CHUNK: Final = 1 << 18
#: Seconds that the last words to a connection may take.
_LINGER: Final = 1.0
#: Seconds after which a connection has lasted.
_LASTING: Final = 5.0
#: Seconds that a connection is not read for each message that was none, or that it may not send.
_PENALTY: Final = 0.005
#: Messages that are taken at once of a connection whose last ones came too fast.
_HASTY: Final = 4

C = TypeVar("C", bound=Connection)


class Service(ABC, Generic[C]):
    """The part behind the connections."""

    @abstractmethod
    async def hello(self, connection: C, hello: Any, identity: Identity) -> Welcome | None:
        """Accept whom the gate has let in, or raise; None if this side dialled, and ``hello`` is the welcome."""

    def welcomed(self, connection: C) -> None:
        """The welcome is sent; what else there is to say may follow."""

    @abstractmethod
    def take(self, connection: C, messages: list[tuple[Any, int]]) -> Awaitable[None] | None:
        """Carry out messages (with their sizes) that came together; nothing more is read until the result is done."""

    async def lost(self, connection: C) -> None:
        """The connection is gone."""

    def weigh(self, connection: C, size: int) -> None:
        """A large message of so many bytes waits to be decoded; raises if its sender may not have that done now."""

    def refused(self, connection: C, answer: Any) -> None:
        """A message was refused before this part saw it: it was none, or its sender may not send it."""

    def beat(self, now: float, slept: float) -> None:
        """A beat; this process was held up for so long since the last one."""


class Listener(Generic[C]):
    """Listens for one protocol; ``make`` is the class of its connections, ``pause`` the time between beats."""

    def __init__(
        self,
        protocol: Protocol,
        service: Service[C],
        limits: Limits,
        make: Callable[..., C],
        *,
        host: str,
        port: int,
        gate: Gate | None = None,
        tls: ssl.SSLContext | None = None,
        pause: float = 1.0,
    ) -> None:
        self.protocol, self._service, self.limits, self._make = protocol, service, limits, make
        self.gate: Gate = gate or OpenGate()
        #: The TLS of connections from now on; None for plain TCP.
        self.tls = tls
        self._pause = min(pause, limits.hello / 4)
        #: Where it listens.
        self.address = (host, port)
        self._admission: Admission[asyncio.Task[Any]] = Admission(limits)
        #: Of handshakes; other listeners of the process may share it.
        self.pace = Pace(limits.arrivals, limits.hello)
        self._turns = Turns(limits.turn or 1)
        self._apart = Apart()
        self._unfinished: Unfinished[C] = Unfinished(limits)
        self._unread: Unread[C] = Unread(limits, lambda each: each.party, lambda each: each.waiting)
        self._servers: list[asyncio.Server] = []
        self._tasks = Tasks()
        self.connections: set[C] = set()
        #: Errors that should not be: each is in the log.
        self.errors = 0
        #: Of strangers: there may be many.
        self._complain = Seldom(log)

    @property
    def turned_away(self) -> int:
        """Connections that were turned away because there were too many."""
        return self._admission.turned_away

    @property
    def secure(self) -> bool:
        """Whether it speaks TLS."""
        return self.tls is not None

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        return self.address[1]

    @property
    def url(self) -> str:
        """Where clients connect."""
        return self.protocol.url(self.address, secure=self.secure)

    # -- life -----------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen; `Unavailable` if the address is in use."""
        loop = asyncio.get_running_loop()
        if loop.get_exception_handler() is None:
            loop.set_exception_handler(Complaints())
        small_buffers()
        host, port = self.address
        try:
            server = await asyncio.start_server(self._accept, host, port, backlog=512)
        except OSError as error:
            raise Unavailable(f"Cannot listen on {host}:{port}: {told(error)}") from None
        self._servers.append(server)
        self.address = server.sockets[0].getsockname()[:2]
        self.begin(self._beat())

    async def add_door(self, sock: socket.socket, host: str | Callable[[str], str | None]) -> None:
        """Accept connections at another socket as well; all come from one host, or their addresses tell from which."""

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            where = host if isinstance(host, str) else host(writer.get_extra_info("peername")[0])
            await self._accept(reader, writer, where)

        self._servers.append(await asyncio.start_server(accept, sock=sock))

    def begin(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do something until the listener closes."""
        self._tasks.begin(work)

    async def close(self) -> None:
        """Accept nobody more and end every connection."""
        for server in self._servers:
            server.close()
        await self._tasks.close()
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()

    async def _beat(self) -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(self._pause)
            now = time.monotonic()
            slept, last = max(0.0, now - last - self._pause), now
            try:
                for connection in list(self.connections):
                    self._look_after(connection, now, slept)
                for connection in [each for each in self._unfinished.late(now) if not each.closing]:
                    self._end(connection, Unavailable("Expected the rest of a frame in time"))
                self._service.beat(now, slept)
            except Exception:
                self.wrong("at a beat")

    def _look_after(self, connection: C, now: float, slept: float) -> None:
        if connection.ended:
            connection.abort()  # asyncio would wait for ever for a peer that vanished while it was not read
            return
        connection.callee.slept(slept)
        found = connection.callee.tick(now, connection.written, connection.waiting)
        if isinstance(found, SievenetError):
            self._end(connection, found)
        elif found is not None:
            connection.send(found)

    def _end(self, connection: C, error: SievenetError) -> None:
        if not connection.ended:
            if connection.identity is None:
                self._complain(f"connection of {connection} ended: {error}")
            else:
                log.warning("connection of %s ended: %s", connection, error)
        connection.end(error)

    def wrong(self, where: str) -> None:
        """Count the error that is being handled, and log it."""
        self.errors += 1
        log.exception("internal error %s (please report)", where)

    # -- connections ----------------------------------------------------------------------

    async def _accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, door: str | None = None
    ) -> None:
        address = str((writer.get_extra_info("peername") or ("?",))[0])
        task = asyncio.current_task()
        assert task is not None
        try:
            stranger = self._admission.enter(task, address)
        except Rejected as error:
            if self.tls is None:
                writer.write(frame(failure(0, error)))
            writer.close()
            return
        if stranger is not None:
            stranger.cancel()
        self._tasks.hold(task)
        try:
            if self.tls is not None:
                # Not by the listening socket: the context may be another one for the next connection. Nothing was read
                # yet, since this is the first step of a task that begins before its connection is read.
                wait = self.pace.wait(address, time.monotonic())
                if wait is None:
                    self._admission.turned_away += 1
                    writer.close()
                    return
                if wait:
                    writer.transport.pause_reading()  # type: ignore[attr-defined]
                    await asyncio.sleep(wait)
                await writer.start_tls(self.tls, ssl_handshake_timeout=self.limits.hello)
                secured(reader, writer)
            begin = time.monotonic()
            connection = self.enter(reader, writer, door=door)
            reason = await self.serve(connection)
            if time.monotonic() - begin > _LASTING:
                self.pace.stayed(address)
            elif reason is not None or connection.identity is None or connection.callee.malformed:
                self.pace.failed(address, time.monotonic())
        except OSError as error:
            log.debug("connection of %s: no TLS: %s", address, error)
            self.pace.failed(address, time.monotonic())
            writer.close()
            forgotten(error)
        except asyncio.CancelledError:
            # The listener is closing, or others want its place; asyncio would log a cancelled handler as an error.
            writer.close()
        finally:
            self._admission.leave(task)

    def enter(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        dialled: bool = False,
        door: str | None = None,
    ) -> C:
        """A connection that was accepted or dialled."""
        callee = Callee(self.protocol, self.limits, time.monotonic(), dialled=dialled)
        connection = self._make(reader, writer, callee, self.limits, dialled=dialled, door=door)
        connection.hoards = lambda: self._hoards(connection)
        self.connections.add(connection)
        return connection

    def _hoards(self, connection: C) -> None:
        """Much waits for a connection: whoever reads too little goes, and what waited for it."""
        hoarder = self._unread.note(connection, connection.waiting)
        if hoarder is not None:
            log.warning("%s does not read, and too much waits for it: disconnected", hoarder)
            self._unread.note(hoarder, 0)
            hoarder.abort()

    async def serve(self, connection: C) -> SievenetError | None:
        """Serve a connection until it ends; why, if something was wrong."""
        try:
            while not connection.over and (data := await connection.reader.read(_CHUNK)):
                await self._read(connection, data)
        except SievenetError as error:
            connection.end(error)
            return error
        except OSError as error:
            log.debug("connection of %s: %s", connection, error)
        except Exception as error:
            self.wrong(f"while serving {connection}, whose connection ends")
            connection.end(error)
        finally:
            self.connections.discard(connection)
            self._unfinished.note(connection, 0, 0.0, whole=True)
            self._unread.note(connection, 0)
            connection.hoards = None
            connection.close()
            await self._service.lost(connection)
            await self._closed(connection)
        return None

    @staticmethod
    async def _closed(connection: C) -> None:
        """Until what was said last is sent; who does not read it soon does not get it."""
        try:
            async with asyncio.timeout(_LINGER):
                await connection.writer.wait_closed()
        except TimeoutError:
            connection.abort()
        except OSError as error:
            log.debug("connection of %s: %s", connection, error)

    async def _read(self, connection: C, data: bytes) -> None:
        callee, whole = connection.callee, False
        large = callee.add(data)
        while True:
            if self.limits.turn is None:
                step, held = self._taken(connection, self._decode(connection, 0))
            else:
                step, held = await self._turn(connection, large)
            whole |= step.whole
            if held is not None:
                await connection.unread(held)
            if step.left:
                connection.left = connection.ended = True
                connection.close()
            if step.end is not None:
                raise step.end
            if step.answers and self.limits.turn is not None:
                await connection.unread(asyncio.sleep(_PENALTY * len(step.answers)))
            if step.greeting is not None and not connection.over:
                await self._greet(connection, step.greeting)
            elif connection.over or self.limits.turn is None or not callee.more:
                break
            large = callee.add(b"")
        hoarder = self._unfinished.note(connection, callee.pending, time.monotonic(), whole)
        if hoarder is not None:
            limit = self.limits.unfinished
            self._end(hoarder, Unavailable(f"Expected at most {limit} bytes of unfinished frames in all"))

    async def _turn(self, connection: C, large: bool) -> tuple[Step, Awaitable[None] | None]:
        """Take some messages of a connection when it is its turn; a large one is decoded before, in a thread."""
        callee, party = connection.callee, connection.party
        step: Step | None = None
        if large:
            try:
                self._service.weigh(connection, callee.front)
            except SievenetError as error:
                connection.send(failure(callee.skip(), error))
                return Step(whole=True), asyncio.sleep(error.pause if isinstance(error, TooFast) else _PENALTY)
            member = None if party is connection else party
            step = await self._apart.run(member, lambda: self._decode(connection, 1))
        await self._turns.begin(party)
        try:
            if step is None:
                most = self.limits.turn or 1
                step = self._decode(connection, min(most, _HASTY) if connection.hasty else most)
            return self._taken(connection, step)
        finally:
            self._turns.end(party, 0 if step is None else len(step.messages))

    @staticmethod
    def _decode(connection: C, most: int) -> Step:
        begin = time.process_time() if connection.timed else 0.0
        step = connection.callee.receive(b"", time.monotonic(), most)
        if connection.timed:
            connection.spent = time.process_time() - begin
        return step

    def _taken(self, connection: C, step: Step) -> tuple[Step, Awaitable[None] | None]:
        for answer in step.answers:
            connection.send(answer)
            self._service.refused(connection, answer)
        return step, self._service.take(connection, step.messages) if step.messages else None

    async def _greet(self, connection: C, hello: Any) -> None:
        if connection.dialled:
            identity = Identity(Role.COMPONENT)
        else:
            identity = self.gate.admit(connection.credentials(hello))
            if identity.role not in self.protocol.largest:
                raise Rejected(f"The {self.protocol.listener} takes nothing from a {identity.role.value}")
        welcome = await self._service.hello(connection, hello, identity)
        connection.callee.welcomed(identity, hello.lease if welcome is None else welcome.lease)
        if (task := asyncio.current_task()) is not None:
            self._admission.welcome(task)
        if welcome is not None:
            connection.send(welcome)
        self._service.welcomed(connection)
