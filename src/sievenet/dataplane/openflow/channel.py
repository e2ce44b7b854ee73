"""The shell around a `Connection`: one switch, its socket, and the futures of its requests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from sievenet.dataplane.openflow import messages as m
from sievenet.dataplane.openflow.connection import (
    Answered,
    Closed,
    Connection,
    Effect,
    Encode,
    Failed,
    PacketCame,
    PortChanged,
    Ready,
    Send,
)
from sievenet.dataplane.openflow.numbers import Multipart
from sievenet.errors import Rejected, Unavailable
from sievenet.session.lifetime import Tasks
from sievenet.session.limits import Admission, Limits

__all__ = ["Channel", "Listener", "Refused", "doors", "listening"]

log = logging.getLogger("sievenet.openflow")

_CHUNK: Final = 1 << 18
#: Bytes that may wait for a switch to read them when it is given another packet.
_WAITING: Final = 1 << 20
#: Bytes of answers to a switch that may wait for it to read them: only one that reads nothing has so many.
_UNREAD: Final = 1 << 20
#: Connections at the same time.
_MOST: Final = 4096
#: Changes that a switch is given per second of patience, on top of the timeout.
_PER_SECOND: Final = 5_000


async def listening(
    accept: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    host: str,
    port: int,
    sock: socket.socket | None,
    tls: ssl.SSLContext | None,
) -> asyncio.Server:
    """Listen for switches, at an address or at a socket; `Unavailable` if that is not possible."""
    try:
        if sock is not None:
            return await asyncio.start_server(accept, sock=sock, ssl=tls)
        return await asyncio.start_server(accept, host, port, ssl=tls)
    except OSError as error:
        raise Unavailable(f"Cannot listen for switches on {host}:{port}: {error.strerror or error}") from None


def doors() -> Admission[Channel]:
    """Counts the connections of a controller: those of switches that have not introduced themselves make room."""
    return Admission(Limits(connections=_MOST, per_address=_MOST))


class Refused(Rejected):
    """A switch has refused changes; says which, why, and whether others of them were carried out."""

    def __init__(self, switch: str, failed: Failed) -> None:
        which = "" if failed.change is None else f" change {failed.change + 1}"
        super().__init__(f"Switch {switch} refuses{which}: {failed.error}")
        self.change = failed.change
        self.error = failed.error
        self.partly = failed.partly


class Listener(Protocol):
    """Who wants to know what switches say of themselves."""

    async def introduced(self, channel: Channel, features: m.Features) -> None:
        """A switch has introduced itself."""

    def port_changed(self, channel: Channel, status: m.PortStatus) -> None:
        """A port came, went or changed."""

    def packet_came(self, channel: Channel, packet: m.PacketIn) -> None:
        """A switch gives us a packet."""

    def closed(self, channel: Channel, reason: str) -> None:
        """The conversation is over."""


class Channel:
    """A switch that talks to us.  `run` it as a task."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, listener: Listener, timeout: float
    ) -> None:
        self._reader, self._writer = reader, writer
        self._listener = listener
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self.connection = Connection(self._loop.time())
        #: Named by the listener, once it knows who this is.
        self.name = "?"
        self._open: dict[int, asyncio.Future[bytes]] = {}
        self._chores: set[asyncio.Task[None]] = set()
        self.alive = True
        #: Bytes of answers since it had read everything.
        self._answered = 0
        self._known: Callable[[], None] = lambda: None
        #: Packets that were not sent since the switch does not read.
        self.unsent = 0

    @property
    def version(self) -> int:
        """The version that was agreed on."""
        return self.connection.version

    async def run(self, runs: Tasks, doors: Admission[Channel]) -> None:
        """Listen until it is over; this task is among the runs meanwhile."""
        task = asyncio.current_task()
        assert task is not None
        runs.hold(task)
        raw = self._writer.get_extra_info("socket")
        address = "?"
        if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            address = str((self._writer.get_extra_info("peername") or ("?",))[0])
        try:
            stranger = doors.enter(self, address)
        except Rejected as error:
            self._end(str(error))
            return
        if stranger is not None:
            stranger._writer.transport.abort()
        self._known = lambda: doors.welcome(self)
        try:
            await self._listen()
        finally:
            doors.leave(self)

    async def _listen(self) -> None:
        reason = "the switch closed the connection"
        ticker = asyncio.create_task(self._tick())
        try:
            self._writer.write(self.connection.begin())
            while data := await self._reader.read(_CHUNK):
                found = self._carry_out(self.connection.receive(data, self._loop.time()))
                if found is not None:
                    reason = found
                    break
        except OSError as error:
            reason = f"connection lost: {error.strerror or error}"
        except asyncio.CancelledError:
            reason = "the controller is closing"
        finally:
            ticker.cancel()
            for chore in self._chores:
                chore.cancel()
            self._end(reason)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            if self._carry_out(self.connection.tick(self._loop.time())) is not None:
                self._writer.close()
                return

    def _carry_out(self, effects: Sequence[Effect]) -> str | None:
        for effect in effects:
            match effect:
                case Send(data):
                    self._answered = self._answered + len(data) if self._writer.transport.get_write_buffer_size() else 0
                    if self._answered > _UNREAD:
                        log.warning("switch %s does not read what it is sent: disconnected", self.name)
                        self._writer.transport.abort()
                        return "it does not read what it is sent"
                    self._writer.write(data)
                case Answered(ticket, body):
                    self._resolve(ticket, body, None)
                case Failed(ticket):
                    self._resolve(ticket, b"", Refused(self.name, effect))
                case Ready(features):
                    self._known()
                    chore = asyncio.create_task(self._listener.introduced(self, features))
                    self._chores.add(chore)
                    chore.add_done_callback(self._chore_done)
                case PortChanged(status):
                    self._listener.port_changed(self, status)
                case PacketCame(packet):
                    self._listener.packet_came(self, packet)
                case Closed(reason):
                    log.warning("switch %s: %s", self.name, reason)
                    return reason
        return None

    def _chore_done(self, chore: asyncio.Task[None]) -> None:
        self._chores.discard(chore)
        if not chore.cancelled() and chore.exception() is not None:
            log.warning("switch %s: %s", self.name, chore.exception())
            self._writer.close()

    def _resolve(self, ticket: int, body: bytes, error: Exception | None) -> None:
        future = self._open.pop(ticket, None)
        if future is None or future.done():
            return
        if error is None:
            future.set_result(body)
        else:
            future.set_exception(error)

    def _end(self, reason: str) -> None:
        if not self.alive:
            return
        self.alive = False
        for future in self._open.values():
            if not future.done():
                future.set_exception(Unavailable(f"Switch {self.name}: {reason}"))
        self._open.clear()
        self._writer.close()
        self._listener.closed(self, reason)

    async def _wait(self, ticket: int, data: bytes, what: str, patience: float) -> bytes:
        future: asyncio.Future[bytes] = self._loop.create_future()
        self._open[ticket] = future
        self._writer.write(data)
        try:
            async with asyncio.timeout(patience):
                return await future
        except TimeoutError:
            raise Unavailable(f"Switch {self.name} did not {what} within {patience:g} s") from None
        finally:
            self._open.pop(ticket, None)
            self.connection.forget(ticket)

    def _check(self) -> None:
        if not self.alive:
            raise Unavailable(f"Switch {self.name} is not connected")

    async def ask(self, kind: Multipart, body: bytes = b"") -> bytes:
        """Ask a question and wait for the whole answer."""
        self._check()
        ticket, data = self.connection.ask(kind, body)
        return await self._wait(ticket, data, f"answer about its {kind.name.lower()}", self._timeout * 5)

    async def change(self, encoders: Sequence[Encode], *, atomic: bool = True) -> None:
        """Carry out changes; returns when the switch has acknowledged all.  `Refused`, or `Unavailable`."""
        self._check()
        had_bundles = self.connection.bundles
        ticket, data = self.connection.change(encoders, atomic=atomic)
        patience = self._timeout + len(encoders) / _PER_SECOND
        try:
            await self._wait(ticket, data, f"acknowledge {len(encoders)} changes", patience)
        except Refused:
            if not atomic or not had_bundles or self.connection.bundles:
                raise
            log.info("switch %s has no bundles: changes are not atomic there", self.name)
            await self.change(encoders, atomic=False)

    def send_packet(self, in_port: int, actions: bytes, data: bytes) -> None:
        """Let the switch send a packet."""
        if not self.alive:
            return
        if self._writer.transport.get_write_buffer_size() > _WAITING:
            self.unsent += 1  # it does not read: a packet may be lost, its connection must not eat up memory
            return
        self._writer.write(self.connection.packet(in_port, actions, data))

    async def close(self) -> None:
        """Hang up."""
        self._end("the controller hung up")
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
