"""The shell around a `Conversation`: one TCP connection, its reader task, and the futures of its requests."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterable
from typing import Any

from sievenet.access.identity import Role
from sievenet.access.login import Login, told
from sievenet.client.conversation import Answered, Conversation, Ended, PlanNews, Removal, Request, Welcomed
from sievenet.client.url import Address
from sievenet.control.protocol import CategoryInfo, LookUp, Welcome
from sievenet.errors import SchemaError, SievenetError, Unavailable

__all__ = ["Link", "LinkLost", "NoDaemon"]

_CHUNK = 1 << 16


class LinkLost(Unavailable):
    """The connection to the daemon was lost while a request was open: it may or may not have been carried out."""


class NoDaemon(Unavailable):
    """Nobody listens where the daemon was: it does not run, and so changes nothing."""


class Link:
    """An established control connection. Open with `Link.open`."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_plan: Callable[[CategoryInfo], None],
        on_removal: Callable[[int], None],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._on_plan = on_plan
        self._on_removal = on_removal
        self._conversation = Conversation()
        loop = asyncio.get_running_loop()
        self._welcome: asyncio.Future[Welcome] = loop.create_future()
        self._open: dict[int, asyncio.Future[Any]] = {}
        #: Done, with the reason, once the connection is of no more use.
        self.ended: asyncio.Future[SievenetError] = loop.create_future()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        address: Address,
        on_plan: Callable[[CategoryInfo], None],
        on_removal: Callable[[int], None],
        *,
        name: str | None = None,
        host: str | None = None,
        ticket: bytes = b"",
        role: Role = Role.CLIENT,
        login: Login | None = None,
        timeout: float = 5.0,
    ) -> tuple[Link, Welcome]:
        """Connect and say hello. Raises what the daemon says against it, or `Unavailable`."""
        tls = login.dialling() if login is not None else ssl.create_default_context() if address.tls else None
        try:
            async with asyncio.timeout(timeout):
                reader, writer = await asyncio.open_connection(address.host, address.port, ssl=tls)
        except TimeoutError:
            raise Unavailable(f"No connection to {address} within {timeout:g} s") from None
        except ConnectionRefusedError:
            raise NoDaemon(f"No daemon at {address}: nobody listens there") from None
        except ssl.SSLError as error:
            raise Unavailable(f"No daemon to trust at {address}: {told(error)}") from None
        except OSError as error:
            raise Unavailable(f"No daemon at {address}: {error.strerror or error}") from None
        raw = writer.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = cls(reader, writer, on_plan, on_removal)
        writer.write(link._conversation.hello(name, host, ticket, role, "" if login is None else login.token))
        link._task = asyncio.create_task(link._read(), name=f"link {address}")
        try:
            async with asyncio.timeout(timeout):
                return link, await asyncio.shield(link._welcome)
        except BaseException as error:
            await link.close()
            if isinstance(error, TimeoutError):
                raise Unavailable(f"No welcome from {address} within {timeout:g} s") from None
            raise

    async def call(self, request: Request, timeout: float) -> Any:
        """Send a request and wait for its answer: its value, or its error raised; `LinkLost` if it never came."""
        if self.ended.done():
            raise LinkLost(str(self.ended.result()))
        number, data = self._conversation.request(request)
        future = self._open[number] = asyncio.get_running_loop().create_future()
        self._writer.write(data)
        try:
            async with asyncio.timeout(timeout):
                await self._drain()
                return await future
        except TimeoutError:
            raise Unavailable(f"No answer from the daemon within {timeout:g} s") from None
        finally:
            self._open.pop(number, None)

    async def look_up(self, names: Iterable[str], timeout: float) -> list[CategoryInfo]:
        """The categories of these names, all versions, as the daemon has them now."""

        async def ask(name: str) -> tuple[CategoryInfo, ...]:
            try:
                info: CategoryInfo = await self.call(lambda number: LookUp(number, name), timeout)
            except SchemaError:
                return ()
            return (*info.siblings, info)

        return [info for found in await asyncio.gather(*map(ask, sorted(names))) for info in found]

    async def _drain(self) -> None:
        try:
            await self._writer.drain()
        except OSError as error:
            raise LinkLost(f"Connection lost: {error}") from None

    def adopted(self, category: int, epoch: int) -> None:
        """Acknowledge a plan."""
        if not self.ended.done():
            self._writer.write(self._conversation.adopted(category, epoch))

    async def _read(self) -> None:
        reason: SievenetError = Unavailable("The daemon closed the connection")
        try:
            while data := await self._reader.read(_CHUNK):
                for effect in self._conversation.receive(data):
                    match effect:
                        case Welcomed(welcome):
                            self._welcome.set_result(welcome)
                        case Answered(number, value, error):
                            self._answer(number, value, error)
                        case PlanNews(category):
                            self._on_plan(category)
                        case Removal(number):
                            self._on_removal(number)
                        case Ended(error):
                            reason = error
                            return
        except OSError as error:
            reason = Unavailable(f"Connection lost: {error}")
        finally:
            self._end(reason)

    def _answer(self, number: int, value: Any, error: SievenetError | None) -> None:
        future = self._open.get(number)
        if future is None or future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)

    def _end(self, reason: SievenetError) -> None:
        if self.ended.done():
            return
        self.ended.set_result(reason)
        if not self._welcome.done():
            self._welcome.set_exception(reason)
            self._welcome.exception()
        for future in self._open.values():
            if not future.done():
                future.set_exception(LinkLost(str(reason)))
                future.exception()
        self._writer.close()

    async def close(self) -> None:
        """Close the connection; open requests end with `LinkLost`."""
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._end(Unavailable("The connection was closed"))
        await asyncio.gather(self._writer.wait_closed(), return_exceptions=True)
