"""A monitor: metrics and health of any process, at an address of its own.

For parts that serve no page: routers, configurators, matchers, caches. Each gives a function that makes its metrics
(`metrics.gauge`, `metrics.counter`, …) and one that says whether it can do its work:

    async with Monitor("127.0.0.1:9400", collect=lambda: [gauge("sievenet_matcher_load", "…", {(): 0.4})]):
        ...

    GET /metrics   for Prometheus; where members are known, to those who show a token of one
    GET /healthz   the process works
    GET /readyz    503 unless it can do its work
"""

from __future__ import annotations

import hmac
import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Self

from aiohttp import web
from prometheus_client.core import Metric

from sievenet.access.doorkeeper import Doorkeeper, check_exposure
from sievenet.access.identity import Credentials, Identity, Role
from sievenet.errors import Rejected
from sievenet.session.lifetime import Starting
from sievenet.web.desk import answer
from sievenet.web.door import Door, address_of
from sievenet.web.metrics import CONTENT_TYPE, exposition

__all__ = ["Monitor"]

_CONNECTIONS: Final = 64

Collect = Callable[[], Iterable[Metric] | Awaitable[Iterable[Metric]]]


class Monitor(Starting):
    """Use as an async context manager."""

    def __init__(
        self,
        listen: str,
        collect: Collect,
        ready: Callable[[], bool] = lambda: True,
        keeper: Doorkeeper | None = None,
        insecure: bool = False,
    ) -> None:
        address = address_of(listen, "--metrics")
        known = keeper is not None and keeper.known
        check_exposure(address[0], known, insecure, "--metrics")
        self._collect, self._ready, self._keeper = collect, ready, keeper if known else None
        self.door = Door(address, lambda: None if keeper is None else keeper.tls, _CONNECTIONS, "--metrics")
        #: The last one who showed a token, so that the audit log has one greeting and not one for each scrape.
        self._last: tuple[str, Identity] | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        return self.door.url

    async def start(self) -> Self:
        """Listen."""
        app = web.Application(middlewares=[self.door.middleware()], client_max_size=1 << 16)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._health)
        app.router.add_get("/readyz", self._readiness)
        await self.door.open(app)
        return self

    async def close(self) -> None:
        """Listen no more."""
        await self.door.close()

    async def _metrics(self, request: web.Request) -> web.Response:
        try:
            self._admit(request)
        except Rejected as error:
            return answer({"error": {"kind": "Rejected", "message": str(error)}}, 401, {"WWW-Authenticate": "Bearer"})
        self.door.know(request)
        found: Any = self._collect()
        if inspect.isawaitable(found):
            found = await found
        return web.Response(body=exposition(found), headers={"Content-Type": CONTENT_TYPE})

    def _admit(self, request: web.Request) -> None:
        """`Rejected` unless a member's token is shown, where members are known."""
        keeper = self._keeper
        if keeper is None:
            return
        token = request.headers.get("Authorization", "").partition(" ")[2].strip()
        if self._last is not None and _same(self._last[0], token) and keeper.stands(self._last[1]):
            return
        shown = Credentials(Role.OBSERVER, None, token, None, request.remote or "", request.secure)
        self._last = token, keeper.admit(shown)

    async def _health(self, request: web.Request) -> web.Response:
        return answer({"healthy": True})

    async def _readiness(self, request: web.Request) -> web.Response:
        ready = self._ready()
        return answer({"ready": ready}, 200 if ready else 503)


def _same(a: str, b: str) -> bool:
    """In time that does not depend on how much of a token is right."""
    return hmac.compare_digest(a.encode("utf-8", "surrogateescape"), b.encode("utf-8", "surrogateescape"))
