"""The door: where HTTP connections come in, within limits, with the TLS of now (`entrance`).

A connection has some seconds for its first request. There are at most so many connections: for one more, the one goes
that has stood longest without a login (`crowd`); if there is none, the new one is turned away. Certificates change
while it stands open: what is accepted from then on meets the new ones.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from sievenet.errors import InvalidInput, Unavailable
from sievenet.session.pace import Pace
from sievenet.web.crowd import Crowd
from sievenet.web.entrance import Entrance
from sievenet.web.throttle import Throttle

__all__ = ["BROKEN", "Door", "address_of"]

#: What reading a request raises that is no HTTP, or whose body is not what its head says.
BROKEN: Final = (HttpProcessingError, web.RequestPayloadError)

#: Where aiohttp tells of errors; `_Ours` leaves out those that are none of ours.
_log: Final = logging.getLogger("sievenet.web.http")
#: Seconds that a new connection has for its first request, and that an idle one is kept.
_FIRST: Final = 10.0
_IDLE: Final = 75.0
#: Seconds within which a plain connection stands once it is accepted.
_SOON: Final = 0.5
#: Handshakes per second from one address, unless somebody else counts them.
_ARRIVALS: Final = 100.0

_BODY: Final = b'{"error":{"kind":"Unavailable","message":"too many connections"}}\n'
#: What is said to a connection that is one too many.
_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)


def address_of(text: str, where: str = "web.listen") -> tuple[str, int]:
    """Host and port of ADDRESS:PORT.

    >>> address_of("127.0.0.1:7480"), address_of("[::1]:0")
    (('127.0.0.1', 7480), ('::1', 0))
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 0xFFFF:
        raise InvalidInput(expected="an address such as 127.0.0.1:7480", got=text, where=where)
    return host.strip("[]") or "127.0.0.1", int(port)


class Door:
    """Opens at an address; ``tls`` gives the context of now, None for plain HTTP; ``option`` is what errors name.

    Handshakes begin at a ``pace``, shared with other listeners of the process. There are at most ``most`` connections,
    and ``each`` of one member.
    """

    def __init__(
        self,
        address: tuple[str, int],
        tls: Callable[[], ssl.SSLContext | None],
        most: int,
        option: str,
        pace: Pace | None = None,
        each: int | None = None,
    ) -> None:
        self.address = address
        self._current, self._most, self._option = tls, most, option
        self._pace = pace or Pace(_ARRIVALS, _FIRST)
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        #: Connections that have not asked for anything yet, and when they came.
        self._new: dict[RequestHandler, float] = {}
        #: How those are ended that are on their way in.
        self._entering: dict[RequestHandler, Callable[[], None]] = {}
        self._crowd: Crowd[RequestHandler] = Crowd(each or most, self._gone)
        #: Connections that were turned away because there were too many.
        self.turned_away = 0

    @property
    def url(self) -> str:
        """Where it is."""
        host, port = self.address
        secure = self._current() is not None
        return f"http{'s' if secure else ''}://{f'[{host}]' if ':' in host else host}:{port}/"

    @property
    def connections(self) -> int:
        """Connections that stand."""
        server = None if self._runner is None else self._runner.server
        return 0 if server is None else len(server.connections)

    def middleware(self) -> Any:
        """Notes that a connection has asked for something; belongs first."""

        @web.middleware
        async def seen(request: web.Request, handler: Any) -> Any:
            self._new.pop(request.protocol, None)
            return await handler(request)

        return seen

    def know(self, request: web.Request, name: str = "") -> bool:
        """Whoever has sent this request may: its connection makes room for nobody. False if a member has too many."""
        return self._crowd.know(request.protocol, name)

    async def open(self, app: web.Application) -> None:
        """Listen; `Unavailable` if the address is in use."""
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=_log,
            handler_cancellation=True,
            keepalive_timeout=_IDLE,
            shutdown_timeout=1.0,
        )
        await self._runner.setup()
        host, port = self.address
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            sock = socket.create_server((host, port), family=family, backlog=512)
        except OSError as error:
            await self._runner.cleanup()
            reason = str(error) if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
            raise Unavailable(
                f"Cannot listen on {host}:{port}: {reason}; say another one: {self._option} ADDRESS:PORT"
            ) from None
        sock.setblocking(False)
        self.address = sock.getsockname()[:2]
        self._server = await asyncio.get_running_loop().create_server(self._connection, sock=sock)

    def _connection(self) -> asyncio.Protocol:
        assert self._runner is not None
        server = self._runner.server
        assert server is not None
        tls, made = self._current(), server()
        if tls is None:
            return made if self._room(made) else _TurnedAway()
        # With TLS the pace goes first: whoever comes faster than that makes nobody go.
        return Entrance(made, tls, self._pace, _FIRST, self._room)

    def _room(self, made: RequestHandler, abort: Callable[[], None] | None = None) -> bool:
        """Whether a connection may come in; another one may have to go for it. ``abort`` ends it before it is in."""
        loop = asyncio.get_running_loop()
        # Those on their way: accepted, or in the middle of a handshake.
        since = loop.time() - (_SOON if abort is None else _FIRST)
        coming = sum(each.transport is None and at > since for each, at in self._new.items())
        if self.connections + coming >= self._most:
            self.turned_away += 1
            oldest = self._crowd.oldest()
            if oldest is None:
                return False
            self._turn_away(oldest)
        self._new[made] = loop.time()
        if abort is not None:
            self._entering[made] = abort
        self._crowd.come(made)
        loop.call_later(_FIRST, self._late, made)
        return True

    def _turn_away(self, made: RequestHandler) -> None:
        self._new.pop(made, None)
        abort = self._entering.pop(made, None)
        if made.transport is None:
            if abort is not None:
                abort()
        elif made.transport.get_write_buffer_size():
            made.transport.abort()  # it does not read either
        else:
            made.transport.write(_FULL)
            made.transport.close()
            asyncio.get_running_loop().call_later(_SOON, made.transport.abort)

    def _late(self, made: RequestHandler) -> None:
        """A connection that has not asked for anything in time goes."""
        self._entering.pop(made, None)
        if self._new.pop(made, None) is not None and made.transport is not None:
            made.transport.abort()

    def _gone(self, made: RequestHandler) -> bool:
        return made.transport is None and made not in self._new

    def shut(self) -> None:
        """Accept nobody more."""
        if self._server is not None:
            self._server.close()

    async def close(self) -> None:
        """End every connection."""
        self.shut()
        if self._runner is not None:
            await self._runner.cleanup()


class _Ours(logging.Filter):
    """Leaves out what is no HTTP, or no body as its head says: whoever sends that must not fill the log by it."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is to be logged."""
        return record.exc_info is None or not isinstance(record.exc_info[1], BROKEN)


_log.addFilter(_Ours())
_log.addFilter(Throttle())


class _TurnedAway(asyncio.Protocol):
    """There are too many connections."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say so, and close it."""
        assert isinstance(transport, asyncio.Transport)
        transport.write(_FULL)
        transport.close()
