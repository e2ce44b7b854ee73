"""The web server: HTTP in the daemon's own event loop.

    accept, within limits ─▶ TLS, where members are known ─▶ `desk` ─▶ `routes` ─▶ `handlers`, `subscription`
    every second ─▶ what nobody uses is taken back, who is no member any more goes, new certificates are met

What one connection may use is bounded: headers (by aiohttp), bodies, time until its first request; so are connections,
streams, filters and windows in all (`config.WebConfig`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from types import TracebackType
from typing import Any, Final, Self

import msgspec
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from sievenet.access.doorkeeper import check_exposure
from sievenet.daemon.daemon import Daemon
from sievenet.errors import InvalidInput, Unavailable
from sievenet.web import metrics
from sievenet.web.desk import Desk
from sievenet.web.handlers import Handlers
from sievenet.web.live import Live
from sievenet.web.resident import Residents
from sievenet.web.routes import ROUTES
from sievenet.web.snapshot import snapshot
from sievenet.web.subscription import Subscriptions

__all__ = ["WebServer", "address_of"]

log = logging.getLogger("sievenet.web")

#: Seconds that a new connection has for its first request, and that an idle one is kept.
_FIRST: Final = 10.0
_IDLE: Final = 75.0
_LOOK: Final = 1.0


def address_of(text: str, where: str = "web.listen") -> tuple[str, int]:
    """Host and port of ADDRESS:PORT.

    >>> address_of("127.0.0.1:7480"), address_of("[::1]:0")
    (('127.0.0.1', 7480), ('::1', 0))
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 0xFFFF:
        raise InvalidInput(expected="an address such as 127.0.0.1:7480", got=text, where=where)
    return host.strip("[]") or "127.0.0.1", int(port)


class WebServer:
    """Serves a daemon; use as an async context manager inside the daemon's."""

    def __init__(self, daemon: Daemon) -> None:
        config = daemon.config.web
        self._daemon, self._config = daemon, config
        host, port = address_of(config.listen or "127.0.0.1:0")
        keeper = daemon.keeper
        check_exposure(host, keeper.known, daemon.config.access.insecure, "web.listen")
        self.address = (host, port)
        self.desk = Desk(daemon.lobby, config.names, config.session, secure=keeper.known)
        self.requests = metrics.Requests()
        self.desk.observe = self.requests.observe
        self.residents = Residents(lambda: daemon.url, daemon.lobby, config)
        self.live = Live(self._look, config.every)
        self.subscriptions = Subscriptions(daemon.lobby, self.residents, self.live, config)
        self._handlers = Handlers(daemon, self.desk, self.residents, self.metrics)
        self._runner: web.AppRunner | None = None
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._tls: ssl.SSLContext | None = None
        self._beat: asyncio.Task[None] | None = None
        #: Connections that have not asked for anything yet.
        self._new: set[RequestHandler] = set()
        self.turned_away = 0

    @property
    def url(self) -> str:
        """Where the page is."""
        host, port = self.address
        return f"http{'s' if self._daemon.keeper.known else ''}://{f'[{host}]' if ':' in host else host}:{port}/"

    # -- life -----------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        app = web.Application(middlewares=[self._seen(), self.desk.middleware()], client_max_size=self._config.max_body)
        app.on_response_prepare.append(self.desk.head)
        for route in ROUTES:
            handler = getattr(self.subscriptions, route.name, None) or getattr(self._handlers, route.name)
            app.router.add_route(route.method, route.path, handler, name=route.name)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, keepalive_timeout=_IDLE, shutdown_timeout=1.0
        )
        await self._runner.setup()
        host, port = self.address
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family, backlog=512)
        except OSError as error:
            await self._runner.cleanup()
            raise Unavailable(
                f"Cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}; say another one: --web ADDRESS:PORT"
            ) from None
        self._socket.setblocking(False)
        self.address = self._socket.getsockname()[:2]
        await self._listen(self._daemon.keeper.tls)
        self._beat = asyncio.create_task(self._look_after())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._beat is not None:
            self._beat.cancel()
            await asyncio.gather(self._beat, return_exceptions=True)
        if self._server is not None:
            self._server.close()
        await self.live.close()
        await self.residents.close()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._socket is not None:
            self._socket.close()

    async def _listen(self, tls: ssl.SSLContext | None) -> None:
        """Accept with this TLS from now on; connections that stand stay, and none is refused meanwhile."""
        assert self._socket is not None
        loop, older = asyncio.get_running_loop(), self._server
        patience = None if tls is None else _FIRST
        self._server = await loop.create_server(
            self._connection, sock=self._socket.dup(), ssl=tls, ssl_handshake_timeout=patience
        )
        self._tls = tls
        if older is not None:
            older.close()

    def _connection(self) -> asyncio.Protocol:
        assert self._runner is not None
        server = self._runner.server
        assert server is not None
        if len(server.connections) + len(self._new) >= self._config.max_connections:
            self.turned_away += 1
            return _TurnedAway()
        made = server()
        self._new.add(made)
        asyncio.get_running_loop().call_later(_FIRST, self._late, made)
        return made

    def _late(self, made: RequestHandler) -> None:
        """A connection that has not asked for anything in time goes."""
        if made in self._new:
            self._new.discard(made)
            if made.transport is not None:
                made.transport.abort()

    def _seen(self) -> Any:
        @web.middleware
        async def seen(request: web.Request, handler: Any) -> Any:
            self._new.discard(request.protocol)
            return await handler(request)

        return seen

    async def _look_after(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_LOOK)
            try:
                if self._daemon.keeper.tls is not self._tls:
                    await self._listen(self._daemon.keeper.tls)
                self.subscriptions.look()
                await self.residents.tidy(loop.time())
            except Exception:
                log.exception("internal error of the web server (please report)")

    # -- what it shows --------------------------------------------------------------------

    async def _look(self) -> dict[str, Any]:
        answers = self._daemon.answers
        control = msgspec.to_builtins(self._daemon.control.status())
        keys = ("waiting", "answered", "refused", "transitions", "undefined")
        return snapshot(await answers.status(), answers.topology(), {key: control[key] for key in keys})

    async def metrics(self) -> bytes:
        """Everything for Prometheus."""
        answers = self._daemon.answers
        control = msgspec.to_builtins(self._daemon.control.status())
        found = metrics.fabric_metrics(await answers.status(), answers.topology(), control)
        return metrics.exposition([*found, *self._own(), *self.requests.collect()])

    def _own(self) -> list[Any]:
        channels = self.residents.channels
        streams: dict[tuple[str, ...], float] = {
            ("events",): float(self.residents.streams),
            ("page",): float(len(self.live.streams)),
        }
        server = None if self._runner is None else self._runner.server
        connections = 0 if server is None else len(server.connections)
        return [
            metrics.gauge("sievenet_http_connections", "HTTP connections.", {(): connections}),
            metrics.counter("sievenet_http_turned_away", "Connections over the limit.", {(): self.turned_away}),
            metrics.gauge("sievenet_http_streams", "Streams of HTTP clients.", streams, ["kind"]),
            metrics.gauge("sievenet_http_filters", "Different filters of HTTP clients.", {(): len(channels)}),
            metrics.gauge(
                "sievenet_http_window_bytes",
                "Bytes kept for HTTP clients that are slow or come back.",
                {(): sum(channel.window.held for channel in channels)},
            ),
        ]


class _TurnedAway(asyncio.Protocol):
    """There are too many connections."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close it at once."""
        assert isinstance(transport, asyncio.Transport)
        body = b'{"error":{"kind":"Unavailable","message":"too many connections"}}\n'
        head = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: application/json\r\n"
        transport.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        transport.close()
