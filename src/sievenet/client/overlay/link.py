"""A node's lasting connection to its router: connect, ask, read, and connect again after a loss."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any, Final

import msgspec

from sievenet.client.overlay.address import parse_router_url
from sievenet.client.reconnect import Reconnect
from sievenet.content.batch import EventBatch
from sievenet.content.batch_codec import encode_batch
from sievenet.content.codec import encode_record
from sievenet.content.event import Record
from sievenet.errors import SievenetError, Unavailable
from sievenet.routers import protocol as p
from sievenet.routers.messages import Carried, Missed, Received
from sievenet.routers.offload.messages import Assign, Compute
from sievenet.session.framing import Malformed, frame
from sievenet.session.message import raised

__all__ = ["Making", "OverlayLink"]

log = logging.getLogger("sievenet.client")

#: Seconds that closing waits at most for the router to take what was sent.
_FLUSH: Final = 5.0
#: Messages with events after which the router is told that they came.
_CONFIRM: Final = 32

#: Makes the message once its number is known.
Making = Callable[[int], msgspec.Struct]


class OverlayLink:
    """Keeps one connection; ``restore`` registers everything anew, ``arrived`` takes events.

    ``asked`` takes what a router asks of those who compute for it.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str | None,
        timeout: float,
        reconnect: bool,
        tls: ssl.SSLContext | None,
        restore: Callable[[], Awaitable[None]],
        arrived: Callable[[Carried], Awaitable[None]],
        asked: Callable[[Compute | Assign], None],
    ) -> None:
        self._host, self._port, secure = parse_router_url(url)
        self._tls = tls or (ssl.create_default_context() if secure else None)
        self.name = name
        #: The router's name.
        self.router = ""
        #: The number under which events of this connection travel.
        self.publisher = 0
        #: Number of the next event; each connection counts from 0.
        self.sequence = 0
        #: Proves to the router that the name is still ours, after a loss that it has not noticed.
        self._ticket = b""
        #: Seconds of silence after which router and client give each other up; 0 before it is known.
        self._lease = 0.0
        #: Events that the router says may be missing, and seconds without a connection, in which others are.
        self.missed = 0
        self.away = 0.0
        self._lost: float | None = None
        #: Events taken since we were new to the router, and messages with events since it was told so.
        self._taken = self._unconfirmed = 0
        #: Whether the router kept everything since the connection before.
        self._resumed = False
        self.timeout = timeout
        self._again = reconnect
        self._restore, self._arrived, self._asked = restore, arrived, asked
        self._machine = Reconnect()
        self._requests = count(1)
        self._open: dict[int, asyncio.Future[Any]] = {}
        self._reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._error: SievenetError = Unavailable("not connected")

    @property
    def connected(self) -> bool:
        """Whether the connection stands and everything is registered."""
        return self._ready.is_set()

    @property
    def losses(self) -> int:
        """Times that the connection was lost."""
        return self._machine.losses

    # -- life -----------------------------------------------------------------------------

    async def start(self) -> None:
        """The first connection; raises if there is none."""
        now = asyncio.get_running_loop().time
        self._machine.handle("begin", now())
        await self._connect()
        self._machine.handle("connected", now())
        self._task = asyncio.create_task(self._supervise(), name=f"overlay link {self.name}")
        await self.ready()

    async def close(self) -> None:
        """Say goodbye and disconnect; `Unavailable` in the end if the router did not take what was published."""
        self._machine.handle("closed", 0.0)
        self._ready.clear()
        self._error = Unavailable("The node is closed")
        unsent = 0
        if self.writer is not None and not self.writer.is_closing():
            goodbye = frame(p.Goodbye("done"))
            self.writer.write(goodbye)
            unsent = await self._emptied(self.writer) - len(goodbye)
            self.writer.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._fail_open()
        if unsent > 0:
            raise Unavailable(f"{unsent} bytes of events were published but not sent: the router took no more of them")

    @staticmethod
    async def _emptied(writer: asyncio.StreamWriter) -> int:
        """Wait until the connection has taken everything; the bytes that it has not."""
        now = asyncio.get_running_loop().time
        end = now() + _FLUSH
        while (left := writer.transport.get_write_buffer_size()) and now() < end and not writer.is_closing():
            await asyncio.sleep(0.005)
        return left

    async def _supervise(self) -> None:
        now = asyncio.get_running_loop().time
        while True:
            await self._hold()
            wait = self._machine.handle("lost", now())
            while self._again:
                await asyncio.sleep(wait)
                self._machine.handle("due", now())
                try:
                    await self._connect()
                except SievenetError as error:
                    self._error = error
                    wait = self._machine.handle("failed", now())
                else:
                    self._machine.handle("connected", now())
                    break
            else:
                return

    async def _hold(self) -> None:
        """Register everything, then read until the connection ends."""
        reading = asyncio.create_task(self._read())
        alive = asyncio.create_task(self._stay_alive())
        try:
            try:
                await self._restore()
                self._back()
                self._ready.set()
            except SievenetError:
                assert self.writer is not None
                self.writer.close()
            self._error = await reading
        finally:
            reading.cancel()
            alive.cancel()
            if self._ready.is_set():
                self._lost = asyncio.get_running_loop().time()
            self._ready.clear()
            self._fail_open()
            if self.writer is not None:
                self.writer.close()

    async def _connect(self) -> None:
        where = f"{self._host}:{self._port}"
        try:
            async with asyncio.timeout(min(5.0, self.timeout)):
                reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls)
                raw = writer.get_extra_info("socket")
                if raw is not None:
                    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                writer.write(frame(p.Hello(p.PROTOCOL, name=self.name, ticket=self._ticket, taken=self._taken)))
                size = int.from_bytes(await reader.readexactly(4), "big")
                if not 0 < size <= p.MAX_FRAME:
                    raise Unavailable(f"No router at {where}: it speaks something else")
                answer = msgspec.msgpack.decode(await reader.readexactly(size), type=p.Welcome | p.Failure | p.Goodbye)
        except TimeoutError:
            raise Unavailable(f"No router answers at {where}") from None
        except (OSError, EOFError, msgspec.DecodeError) as error:
            raise Unavailable(f"No router at {where}: {error}") from None
        if not isinstance(answer, p.Welcome):
            writer.close()
            raise raised(answer) if isinstance(answer, p.Failure) else Unavailable(answer.reason)
        self.name, self.router, self.publisher = answer.name, answer.router, answer.publisher
        self.sequence = 0
        self._ticket, self._lease = answer.ticket, answer.lease
        self._reader, self.writer = reader, writer
        self._resumed, self._unconfirmed = answer.resumed, 0
        if not answer.resumed:
            self._taken = 0
        self._miss(answer.missed)

    async def _stay_alive(self) -> None:
        """Say something a few times per lease, whatever the application does."""
        while self._lease:
            await asyncio.sleep(self._lease / 4)
            if self._unconfirmed:
                self._confirm()
            else:
                self.send(p.Alive())

    def _confirm(self) -> None:
        self._unconfirmed = 0
        self.send(Received(self._taken))

    def _back(self) -> None:
        """Everything is registered again; unless the router kept it, what was published meanwhile is not coming."""
        if self._lost is not None:
            away, self._lost = asyncio.get_running_loop().time() - self._lost, None
            if self._resumed:
                log.info("%s: back after %.1f s, with what was published meanwhile", self.name, away)
                return
            self.away += away
            log.warning("%s: no router for %.1f s: what was published meanwhile did not arrive here", self.name, away)

    def _miss(self, events: int) -> None:
        if events:
            self.missed += events
            log.warning("%s: up to %d events may be missing: a connection was slow, or lost", self.name, events)

    # -- requests -------------------------------------------------------------------------

    def send(self, message: msgspec.Struct) -> None:
        """Send what is not answered, if there is a connection now."""
        if self.writer is not None and not self.writer.is_closing():
            self.writer.write(frame(message))

    async def request(self, make: Making) -> Any:
        """Ask on the connection of now."""
        number = next(self._requests) % (1 << 32)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._open[number] = future
        try:
            if self.writer is None or self.writer.is_closing():
                raise Unavailable(f"No connection to the router: {self._error}")
            self.writer.write(frame(make(number)))
            async with asyncio.timeout(self.timeout):
                return await future
        except TimeoutError:
            raise Unavailable(f"No answer from the router within {self.timeout:g} s") from None
        finally:
            del self._open[number]

    async def call(self, make: Making) -> Any:
        """Ask, now or as soon as the router is there again."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.timeout
        while True:
            await self.ready(end - loop.time())
            try:
                return await self.request(make)
            except Unavailable:
                if not self._again or loop.time() >= end or self._ready.is_set():
                    raise

    async def ready(self, timeout: float | None = None) -> None:
        """Wait until connected; `Unavailable`, with the last reason, if that takes too long."""
        if self._ready.is_set():
            return
        try:
            if self._task is None or self._task.done():
                raise TimeoutError
            async with asyncio.timeout(self.timeout if timeout is None else max(0.0, timeout)):
                await self._ready.wait()
        except TimeoutError:
            raise Unavailable(f"No connection to {self._host}:{self._port}: {self._error}") from None

    def _fail_open(self) -> None:
        for future in self._open.values():
            if not future.done():
                future.set_exception(Unavailable(str(self._error)))
                future.exception()

    # -- publishing -----------------------------------------------------------------------

    def publish(self, category: int, rows: EventBatch | Sequence[Record]) -> None:
        """Send events of one kind; `Unavailable` without a connection."""
        if self.writer is None or self.writer.is_closing():
            raise Unavailable(f"No connection to the router: {self._error}")
        first, self.sequence = self.sequence, self.sequence + len(rows)
        batch = encode_batch(rows) if isinstance(rows, EventBatch) else b""
        records = () if isinstance(rows, EventBatch) else tuple(map(encode_record, rows))
        self.writer.write(frame(p.Publish(category, first, time.time_ns(), batch, records)))

    async def drained(self) -> None:
        """Wait until the router has taken most of what was sent."""
        assert self.writer is not None
        try:
            await self.writer.drain()
        except OSError as error:
            raise Unavailable(f"Connection lost: {error}") from None

    # -- reading --------------------------------------------------------------------------

    async def _read(self) -> SievenetError:
        """Take messages until the connection ends; why it did."""
        assert self._reader is not None
        framer = p.ROUTING.dialling()
        try:
            while data := await self._bytes():
                for message in framer.feed(data):
                    ended = await self._take(message)
                    if ended is not None:
                        return ended
        except TimeoutError:
            return Unavailable(f"Nothing came from the router for {self._lease:g} s")
        except OSError as error:
            return Unavailable(f"Connection lost: {error}")
        except SievenetError as error:
            return error
        return Unavailable("The router closed the connection")

    async def _bytes(self) -> bytes:
        """What came next; `TimeoutError` if nothing came for a lease, unless it was this process that slept."""
        assert self._reader is not None
        now = asyncio.get_running_loop().time
        while True:
            begin = now()
            try:
                async with asyncio.timeout(self._lease or None):
                    return await self._reader.read(1 << 18)
            except TimeoutError:
                if now() - begin < 1.25 * self._lease:
                    raise

    async def _take(self, message: Any) -> SievenetError | None:
        match message:
            case Carried():
                await self._arrived(message)
                self._taken += len(message.sequences) // 8
                self._unconfirmed += 1
                if self._unconfirmed >= _CONFIRM:
                    self._confirm()
            case Compute() | Assign():
                self._asked(message)
            case p.Done(request, answer):
                self._answered(request, answer)
            case p.CategoryIs(request):
                self._answered(request, message)
            case p.Failure(request):
                if request == 0:
                    return raised(message)
                self._answered(request, raised(message))
            case p.Goodbye(reason):
                return Unavailable(f"The router closed the connection: {reason}")
            case Missed(events):
                self._miss(events)
            case Malformed(error=error):
                return error
        return None

    def _answered(self, request: int, answer: Any) -> None:
        future = self._open.get(request)
        if future is not None and not future.done():
            if isinstance(answer, SievenetError):
                future.set_exception(answer)
            else:
                future.set_result(answer)
