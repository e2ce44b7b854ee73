"""One connection of the listening side: a stream with a bounded buffer around a `Callee`. Writing never waits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final

from sievenet.access.identity import Credentials, Identity
from sievenet.session.buffer import WriteBuffer
from sievenet.session.callee import Callee
from sievenet.session.framing import frame
from sievenet.session.limits import Limits
from sievenet.session.message import Goodbye, Hello, Message, failure
from sievenet.session.tls import closing, unread

__all__ = ["Connection"]

log = logging.getLogger("sievenet.session")

#: Bytes that may wait without being counted.
_MUCH: Final = 1 << 17


class Connection:
    """Parts derive from it what they keep of each connection."""

    #: Whether what is written waits for the end of the turn, to leave with what else is.
    patient = False

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        callee: Callee,
        limits: Limits,
        *,
        dialled: bool = False,
        door: str | None = None,
    ) -> None:
        self.reader, self.writer = reader, writer
        self._outgoing = WriteBuffer(writer)
        self.callee, self.limits = callee, limits
        #: Whether this side dialled.
        self.dialled = dialled
        #: What the door that it came by says of where it comes from.
        self.door = door
        #: Bytes given to the connection so far.
        self.written = 0
        #: Told when much waits to be read by the other side.
        self.hoards: Callable[[], None] | None = None
        #: Whether decoding is timed, and the processor seconds that it took last.
        self.timed, self.spent = False, 0.0
        #: Whether what came last came too fast: then few messages are taken at a time.
        self.hasty = False
        #: The other side said goodbye; or it did not, and was turned out.
        self.left = self.ended = False
        #: This side has ended it: what else came counts no more. Who leaves is heard to the end, though nothing can be
        #: written to it any more.
        self.over = False
        self.address = str((writer.get_extra_info("peername") or ("",))[0])
        #: The other side's verified certificate.
        self.certificate: dict[str, Any] | None = writer.get_extra_info("peercert")
        raw = writer.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def identity(self) -> Identity | None:
        """Who is at the other end, once it is welcome."""
        return self.callee.identity

    @property
    def party(self) -> Hashable:
        """Who shares time with others: a member with all its connections, or this one if nobody is known."""
        identity = self.identity
        return self if identity is None or identity.proof is None else identity.name

    @property
    def heard(self) -> float:
        """When something came last."""
        return self.callee.heard

    @property
    def closing(self) -> bool:
        """Whether nothing can be written any more."""
        return closing(self.writer.transport)

    @property
    def waiting(self) -> int:
        """Bytes in the buffer."""
        return self._outgoing.waiting

    @property
    def taken(self) -> int:
        """Bytes that left the buffer."""
        return self.written - self.waiting

    def credentials(self, hello: Hello) -> Credentials:
        """What the other side shows."""
        encrypted = self.writer.get_extra_info("ssl_object") is not None
        return Credentials(hello.role, hello.name, hello.token, self.certificate, self.address, encrypted)

    def send(self, message: Message) -> bool:
        """Write what has to arrive; who reads nothing is disconnected."""
        return self.write(frame(message))

    def write(self, data: bytes) -> bool:
        """Write a frame that has to arrive; False if it cannot."""
        if self.closing:
            return False
        if self.waiting > 2 * self.limits.buffer:
            log.warning("%s does not read: disconnected", self)
            self.abort()
            return False
        self.written += len(data)
        self._outgoing.write(data)
        if not self.patient:
            self._outgoing.flush()
        if self.hoards is not None and self.waiting > _MUCH:
            self.hoards()
        return True

    async def unread(self, until: Awaitable[None]) -> None:
        """Read nothing until something is done: what comes meanwhile waits outside, and is read together then."""
        transport = self.writer.transport
        assert isinstance(transport, asyncio.ReadTransport)
        if transport.is_closing():  # nothing comes any more, and some transports cannot pause then
            await until
            return
        try:
            with unread(transport):
                await until
        finally:
            # The reader has paused by itself if it is full, and goes on by itself.
            if not transport.is_closing() and not self.reader._paused:  # type: ignore[attr-defined]
                transport.resume_reading()

    def goodbye(self, reason: str) -> None:
        """Say why, and close once it is said."""
        if not self.closing:
            self.send(Goodbye(reason))
        self.close()

    def end(self, error: BaseException) -> None:
        """Tell why, if the other side reads, and close."""
        self.ended = True
        self.send(failure(0, error))
        self._outgoing.flush()
        if self.waiting:
            self.abort()
        self.close()

    def close(self) -> None:
        """Close once everything is written."""
        self.over = True
        self._outgoing.flush()
        self.writer.close()

    def abort(self) -> None:
        """Close now."""
        self.over = True
        with contextlib.suppress(AttributeError):  # Python 3.11.2: its encryption is gone already
            self.writer.transport.abort()

    def __str__(self) -> str:
        name = None if self.identity is None else self.identity.name
        return name or self.address
