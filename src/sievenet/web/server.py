"""The web server: HTTP in the daemon's own event loop.

    `door` ─▶ `desk` ─▶ `routes` ─▶ `handlers`, `subscription`
    every second ─▶ what nobody uses is taken back, who is no member any more goes

What one connection may use is bounded: headers (by aiohttp), bodies, the time for them and until its first request; so
are connections, streams, filters and windows in all (`config.WebConfig`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Final, Self

import msgspec
from aiohttp import web

from sievenet.access.doorkeeper import check_exposure
from sievenet.config import Config
from sievenet.daemon.daemon import Daemon
from sievenet.session.lifetime import Starting, ended
from sievenet.web import metrics
from sievenet.web.desk import Desk
from sievenet.web.door import Door, address_of
from sievenet.web.handlers import Handlers
from sievenet.web.live import Live
from sievenet.web.resident import Residents
from sievenet.web.routes import ROUTES
from sievenet.web.snapshot import snapshot
from sievenet.web.subscription import Subscriptions

__all__ = ["WebServer"]

log = logging.getLogger("sievenet.web")

_LOOK: Final = 1.0


class WebServer(Starting):
    """Serves a daemon; use as an async context manager inside the daemon's."""

    def __init__(self, daemon: Daemon) -> None:
        config, keeper = daemon.config.web, daemon.keeper
        self._daemon, self._config = daemon, config
        address = self.check(daemon.config)
        most, each = config.max_connections, config.max_connections_each
        self.door = Door(address, lambda: keeper.tls, most, "--web", daemon.server.pace, each)
        self.desk = Desk(daemon.lobby, config.names, config.session, secure=keeper.known)
        self.requests = metrics.Requests()
        self.desk.observe, self.desk.know = self.requests.observe, self.door.know
        self.residents = Residents(lambda: daemon.url, daemon.lobby, config)
        self.live = Live(self._look, config.every)
        self.subscriptions = Subscriptions(daemon.lobby, self.desk, self.residents, self.live, config)
        self._handlers = Handlers(daemon, self.desk, self.residents, self.metrics)
        self._beat: asyncio.Task[None] | None = None
        #: What `metrics` said last, and when it may look again.
        self._metrics, self._look_at = b"", 0.0
        self._looking = asyncio.Lock()

    @staticmethod
    def check(config: Config) -> tuple[str, int]:
        """Where to listen; `InvalidInput` if others could connect there without being known."""
        address = address_of(config.web.listen or "127.0.0.1:0")
        check_exposure(address[0], config.access.folder is not None, config.access.insecure, "web.listen")
        return address

    @property
    def url(self) -> str:
        """Where the page is."""
        return self.door.url

    # -- life -----------------------------------------------------------------------------

    async def start(self) -> Self:
        """Listen."""
        middlewares = [self.door.middleware(), self.desk.middleware()]
        app = web.Application(middlewares=middlewares, client_max_size=self._config.max_body)
        app.on_response_prepare.append(self.desk.head)
        for route in ROUTES:
            handler = getattr(self.subscriptions, route.name, None) or getattr(self._handlers, route.name)
            app.router.add_route(route.method, route.path, handler, name=route.name)
        await self.door.open(app)
        self._beat = asyncio.create_task(self._look_after())
        return self

    async def close(self) -> None:
        """Listen no more."""
        await ended(self._beat)
        self.door.shut()
        await self.live.close()
        await self.residents.close()
        await self.door.close()

    async def _look_after(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_LOOK)
            try:
                self.subscriptions.look()
                await self.residents.tidy(loop.time())
            except Exception:
                log.exception("internal error of the web server (please report)")

    # -- what it shows --------------------------------------------------------------------

    async def _look(self) -> dict[str, Any]:
        answers = self._daemon.answers
        control = msgspec.to_builtins(self._daemon.control.status())
        keys = ("waiting", "answered", "refused", "transitions", "undefined")
        status = {**await answers.status(), **self._components()}
        return snapshot(status, answers.topology(), {key: control[key] for key in keys})

    def _components(self) -> dict[str, Any]:
        """Matchers and caches, where there are any."""
        return {"hybrid": self._daemon.answers.hybrid(), "caches": self._daemon.service.caches.status()}

    async def metrics(self) -> bytes:
        """Everything for Prometheus; however many ask, looking takes a twentieth of the time at most."""
        async with self._looking:
            begin = time.monotonic()
            if begin >= self._look_at:
                self._metrics = await self._exposition()
                self._look_at = time.monotonic() + 19 * (time.monotonic() - begin)
            return self._metrics

    async def _exposition(self) -> bytes:
        answers = self._daemon.answers
        control = msgspec.to_builtins(self._daemon.control.status())
        found = metrics.fabric_metrics(await answers.status(), answers.topology(), control)
        components = self._components()
        for kind, rows in (("matcher", components["hybrid"].get("matchers", ())), ("cache", components["caches"])):
            found += metrics.component_metrics(kind, rows)
        return metrics.exposition([*found, *self._own(), *self.requests.collect()])

    def _own(self) -> list[Any]:
        channels = self.residents.channels
        streams: dict[tuple[str, ...], float] = {
            ("events",): float(self.residents.streams),
            ("page",): float(len(self.live.streams)),
        }
        return [
            metrics.gauge("sievenet_http_connections", "HTTP connections.", {(): self.door.connections}),
            metrics.counter("sievenet_http_turned_away", "Connections over the limit.", {(): self.door.turned_away}),
            metrics.gauge("sievenet_http_streams", "Streams of HTTP clients.", streams, ["kind"]),
            metrics.gauge("sievenet_http_filters", "Different filters of HTTP clients.", {(): len(channels)}),
            metrics.gauge(
                "sievenet_http_window_bytes",
                "Bytes kept for HTTP clients that are slow or come back.",
                {(): sum(channel.window.held for channel in channels)},
            ),
        ]
