"""One client's connection, as the server sees it: read frames, work on requests, write replies.

What one client does must not harm another, so everything here is bounded: the time until hello, the size of a frame,
the requests worked on at once and those that wait for their turn (further bytes wait in the client's own socket), the
replies that wait to be read, and the number of malformed messages that are answered before the connection is given up.
Heartbeats and acknowledgements of plans never wait behind requests: a request may be waiting for just them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import deque
from typing import Final, Protocol

from sievenet.access.identity import Credentials, Gate, Identity
from sievenet.config import ListenConfig
from sievenet.control import protocol as p
from sievenet.errors import CodecError, Rejected, SievenetError, Unavailable
from sievenet.session.framing import Malformed, frame
from sievenet.session.message import Message, failure

__all__ = ["Handler", "Peer"]

log = logging.getLogger("sievenet.daemon")

_CHUNK: Final = 1 << 16
#: Bytes of replies that may wait for a client that does not read; then it is disconnected.
_UNREAD: Final = 1 << 26
#: Requests that wait for their turn; then the connection is not read any further.
_BACKLOG: Final = 4096
#: Malformed messages answered before the connection is given up.
_PATIENCE: Final = 100


class Handler(Protocol):
    """What a peer asks of the daemon."""

    async def hello(self, peer: Peer, message: p.Hello, identity: Identity) -> p.Welcome:
        """Accept a client, or raise."""

    def welcomed(self, peer: Peer) -> None:
        """The welcome is sent; what else there is to tell may follow."""

    async def handle(self, peer: Peer, message: Message) -> Message | None:
        """Carry out a request and answer it, or raise."""

    def lost(self, peer: Peer) -> None:
        """The connection is gone."""


class Peer:
    """A connection from its first byte to its last."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        handler: Handler,
        config: ListenConfig,
        gate: Gate,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._handler = handler
        self._config = config
        self._gate = gate
        self._framer = p.CONTROL.listening()
        self._working = 0
        self._backlog: deque[tuple[Message, int]] = deque()
        self._room = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._malformed = 0
        self._closing = False
        #: The client's name once it is welcome; observers keep none.
        self.client: str | None = None
        #: Who it is, once it is welcome.
        self.identity: Identity | None = None
        #: When it said something last.
        self.heard = 0.0
        #: Bytes of requests that are being worked on or wait.
        self._held = 0
        self._watching: asyncio.TimerHandle | None = None
        #: Bytes of replies that may wait for it; then it is disconnected.
        self.most_unread = _UNREAD
        #: The host that this connection comes from, if its door tells.
        self.host: str | None = None

    async def run(self) -> None:
        """Serve until the connection ends."""
        raw = self._writer.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            async with asyncio.timeout(self._config.hello) as until_hello:
                while data := await self._reader.read(_CHUNK):
                    self.heard = asyncio.get_running_loop().time()
                    for message in self._framer.feed(data):
                        await self._take(message, self._framer.size)
                        if self._closing:
                            return
                    if self.identity is not None and until_hello.when() is not None:
                        until_hello.reschedule(None)
        except TimeoutError:
            self.send(failure(0, Unavailable(f"Expected a hello within {self._config.hello:g} s")))
        except CodecError as error:
            # The stream has lost its footing: say so and close.
            self.send(failure(0, error))
        except OSError as error:
            log.debug("connection of %s: %s", self.client, error)
        finally:
            await self._end()

    async def _take(self, message: Message | Malformed, size: int) -> None:
        if isinstance(message, Malformed):
            self._malformed += 1
            self.send(failure(message.request, message.error))
            if self._malformed > _PATIENCE or self.identity is None:
                self.goodbye("too many malformed messages" if self.identity is not None else "expected a hello")
            return
        if self.identity is None:
            await self._hello(message)
            return
        if isinstance(message, p.Renew | p.PlanAdopted) or self._working < self._config.max_open:
            self._begin(message, size)
        else:
            self._backlog.append((message, size))
        self._held += size
        while len(self._backlog) >= _BACKLOG or self._held > self._config.max_held:
            self._room.clear()
            await self._room.wait()

    def _begin(self, message: Message, size: int) -> None:
        self._working += 1
        task = asyncio.create_task(self._work(message, size))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _hello(self, message: Message) -> None:
        try:
            if not isinstance(message, p.Hello):
                raise CodecError(expected="a hello", got=f"`{type(message).__name__}`", where="connection")
            if message.protocol != p.PROTOCOL:
                raise Rejected(f"Expected protocol version {p.PROTOCOL}, got {message.protocol}")
            identity = self._gate.admit(self._credentials(message))
            welcome = await self._handler.hello(self, message, identity)
        except SievenetError as error:
            self.send(failure(0, error))
            self._closing = True
            return
        self.identity = identity
        self._framer.limit = self._config.max_request
        self.send(welcome)
        self._handler.welcomed(self)

    def _credentials(self, hello: p.Hello) -> Credentials:
        tell = self._writer.get_extra_info
        secret = tell("ssl_object") is not None
        return Credentials(hello.role, hello.name, hello.token, tell("peercert"), self.origin, secret)

    @property
    def origin(self) -> str:
        """The address that it comes from."""
        address = self._writer.get_extra_info("peername")
        return str(address[0]) if isinstance(address, tuple) else ""

    async def _work(self, message: Message, size: int) -> None:
        number = getattr(message, "request", 0)
        assert self.identity is not None
        try:
            p.CONTROL.check(self.identity.role, message)
            reply = await self._handler.handle(self, message)
            if reply is not None:
                self.send(reply)
        except SievenetError as error:
            self.send(failure(number, error))
        except Exception as error:
            log.exception("request %s of %s failed", type(message).__name__, self.client)
            self.send(failure(number, error))
        finally:
            self._working -= 1
            self._held -= size
            if self._backlog and self._working < self._config.max_open:
                self._begin(*self._backlog.popleft())
            self._room.set()

    def send(self, message: Message) -> None:
        """Send a message, unless the client has stopped reading."""
        if self._writer.is_closing():
            return
        self._writer.write(frame(message))
        transport = self._writer.transport
        if transport.get_write_buffer_size() > self.most_unread:
            log.warning("%s does not read its replies: disconnected", self.client)
            transport.abort()
        elif transport.get_write_buffer_size() and self._watching is None:
            self._watch(transport.get_write_buffer_size() + 1)

    def _watch(self, before: int) -> None:
        """Look again and again, as long as something waits to be read, whether some of it was."""
        transport = self._writer.transport
        waiting = transport.get_write_buffer_size()
        self._watching = None
        if waiting >= before:
            log.warning("%s read nothing for %g s: disconnected", self.client, self._config.unread)
            transport.abort()
        elif waiting:
            loop = asyncio.get_running_loop()
            self._watching = loop.call_later(self._config.unread, self._watch, waiting)

    def goodbye(self, reason: str) -> None:
        """Say why, and close once it is said."""
        if not self._closing:
            self.send(p.Goodbye(reason))
            self._closing = True
            self._writer.close()

    async def _end(self) -> None:
        self._closing = True
        if self._watching is not None:
            self._watching.cancel()
        self._handler.lost(self)
        self._writer.close()
        self._backlog.clear()
        # What was begun is finished: the client may have lost only its connection, and asks again.
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                await self._writer.wait_closed()
