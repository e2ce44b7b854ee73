"""The shell of the dialling side: one connection, its reader, and the futures of its requests."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final

from sievenet.access.login import told as told_of
from sievenet.errors import SievenetError, Unavailable
from sievenet.session.buffer import WriteBuffer
from sievenet.session.caller import Answered, Caller, Ended, Request, Told, Welcomed
from sievenet.session.framing import frame
from sievenet.session.lifetime import ended
from sievenet.session.message import Hello, Message
from sievenet.session.protocol import Protocol

__all__ = ["Link", "LinkLost", "NobodyListens"]

_CHUNK: Final = 1 << 18
#: Seconds that closing waits at most for what was sent to be taken.
_FLUSH: Final = 5.0


class LinkLost(Unavailable):
    """The connection was lost while a request was open: it may or may not have been carried out."""


class NobodyListens(Unavailable):
    """Nobody listens at the address: the process does not run."""


class Link:
    """One connection. Open with `Link.open`; ``told`` takes what is said unasked, and may make reading wait."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        protocol: Protocol,
        told: Callable[[Link, Any], Awaitable[None] | None],
    ) -> None:
        self._reader, self.writer = reader, writer
        self._outgoing = WriteBuffer(writer)
        self._protocol, self._told = protocol, told
        self._caller = Caller(protocol)
        loop = asyncio.get_running_loop()
        self._welcome: asyncio.Future[Any] = loop.create_future()
        self._open: dict[int, asyncio.Future[Any]] = {}
        #: Done, with the reason, once the connection is of no more use.
        self.ended: asyncio.Future[SievenetError] = loop.create_future()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        protocol: Protocol,
        address: tuple[str, int],
        hello: Hello,
        told: Callable[[Link, Any], Awaitable[None] | None],
        *,
        tls: ssl.SSLContext | None = None,
        timeout: float,
    ) -> tuple[Link, Any]:
        """Dial and say hello; with the welcome. Raises what the other side says against it, or `Unavailable`."""
        who, where = protocol.listener, protocol.url(address, secure=tls is not None)
        try:
            async with asyncio.timeout(timeout):
                reader, writer = await asyncio.open_connection(*address, ssl=tls)
        except TimeoutError:
            raise Unavailable(f"No {who} answers at {where} within {timeout:g} s") from None
        except ConnectionRefusedError:
            raise NobodyListens(f"No {who} at {where}: nobody listens there. Does it run, at this port?") from None
        except ssl.SSLError as error:
            raise Unavailable(f"The {who} at {where} cannot be trusted: {told_of(error)}") from None
        except socket.gaierror as error:
            raise Unavailable(
                f"No {who} at {where}: nobody knows a machine called {address[0]} ({error.strerror}). "
                "Is the name spelt right? An address such as 127.0.0.1 works without a name server"
            ) from None
        except (OSError, UnicodeError) as error:
            raise Unavailable(f"No {who} at {where}: {getattr(error, 'strerror', None) or error}") from None
        raw = writer.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = cls(reader, writer, protocol, told)
        writer.write(link._caller.hello(hello))
        link._task = asyncio.create_task(link._read(), name=f"link to {where}")
        try:
            async with asyncio.timeout(timeout):
                return link, await asyncio.shield(link._welcome)
        except BaseException as error:
            await link.close()
            if isinstance(error, TimeoutError):
                raise Unavailable(f"No {who} answers at {where} within {timeout:g} s") from None
            raise

    # -- saying ---------------------------------------------------------------------------

    async def call(self, request: Request, timeout: float) -> Any:
        """Send a request and wait for its answer: its value, or its error raised; `LinkLost` if it never came."""
        if self.ended.done():
            raise LinkLost(str(self.ended.result()))
        number, data = self._caller.request(request)
        future = self._open[number] = asyncio.get_running_loop().create_future()
        self._outgoing.write(data)
        try:
            async with asyncio.timeout(timeout):
                await self.drained()
                return await future
        except TimeoutError:
            raise Unavailable(f"No answer from the {self._protocol.listener} within {timeout:g} s") from None
        finally:
            self._open.pop(number, None)

    def send(self, *messages: Message) -> None:
        """Send what is not answered, if the connection stands."""
        if not self.ended.done():
            for message in messages:
                self._outgoing.write(frame(message))
            self._outgoing.flush()

    async def drained(self) -> None:
        """Wait until the other side has taken most of what was sent; `LinkLost`, with the link ended, if it cannot."""
        try:
            await self.writer.drain()
        except OSError as error:
            # The reader still has its last turn. Whoever asks again at once would otherwise never let it have that.
            await asyncio.wait((self.ended,))
            raise LinkLost(_lost(error)) from None

    @property
    def waiting(self) -> int:
        """Bytes that wait to be sent."""
        return self._outgoing.waiting

    async def flushed(self) -> int:
        """Wait until the other side has taken everything, for a while; the bytes that it has not."""
        now = asyncio.get_running_loop().time
        end = now() + _FLUSH
        while (left := self.waiting) and now() < end and not self.writer.is_closing():
            await asyncio.sleep(0.005)
        return left

    # -- hearing --------------------------------------------------------------------------

    async def _read(self) -> None:
        reason: SievenetError = Unavailable(f"The {self._protocol.listener} closed the connection")
        told = False
        try:
            while data := await self._bytes():
                for effect in self._caller.receive(data):
                    match effect:
                        case Told(message):
                            held = self._told(self, message)
                            if held is not None:
                                await held
                        case Answered():
                            self._answer(effect)
                        case Welcomed(welcome):
                            self._welcome.set_result(welcome)
                        case Ended(error):
                            reason, told = error, effect.told
                            return
        except SievenetError as error:
            reason = error
        except OSError as error:
            reason = Unavailable(_lost(error))
        finally:
            self.end(reason, told)

    async def _bytes(self) -> bytes:
        """What came next; raises if nothing came for a lease."""
        now = asyncio.get_running_loop().time
        while True:
            begin = now()
            try:
                async with asyncio.timeout(self._caller.lease or None):
                    return await self._reader.read(_CHUNK)
            except TimeoutError:
                error = self._caller.silence(now() - begin)
                if error is not None:
                    raise error from None

    def _answer(self, answer: Answered) -> None:
        future = self._open.get(answer.number)
        if future is None or future.done():
            return
        if answer.error is not None:
            future.set_exception(answer.error)
        else:
            future.set_result(answer.value)

    def end(self, reason: SievenetError, told: bool = True) -> None:
        """The connection is of no more use, as the other side told or not; open requests end with `LinkLost`."""
        if self.ended.done():
            return
        self.ended.set_result(reason)
        if not self._welcome.done():
            if not told and type(reason) is Unavailable and self.writer.get_extra_info("ssl_object") is None:
                reason = Unavailable(f"{reason}; if it knows its members it speaks TLS: connect with a login (--login)")
            self._welcome.set_exception(reason)
            self._welcome.exception()
        for future in self._open.values():
            if not future.done():
                future.set_exception(LinkLost(str(reason)))
                future.exception()
        self._outgoing.flush()
        self.writer.close()

    async def close(self) -> None:
        """Close the connection."""
        await ended(self._task)
        self.end(Unavailable("The connection was closed"))
        await asyncio.gather(self.writer.wait_closed(), return_exceptions=True)


def _lost(error: OSError) -> str:
    """As the system says it; asyncio has words of its own for the same."""
    return "Connection lost" if error.errno is None else f"Connection lost: {error.strerror}"
