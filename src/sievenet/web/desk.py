"""The desk: finds out who is behind a request, and holds each request to its route's role.

One middleware for everything: headers that keep browsers safe, the checks of `origin`, who it is (`signin`), the role
of the route, and errors as JSON. A handler then finds its visitor with `visitor_of`.

Where members are known, what costs a stranger nothing is answered at a bounded rate: requests that need no sign-in, and
refusals. Beyond it answers wait, and with them the connection; no quota counts those.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from aiohttp import web

from sievenet.daemon.lobby import Lobby, Visitor
from sievenet.errors import Rejected, SievenetError
from sievenet.session.pace import Pace
from sievenet.web.errors import BrokenBody, TooLarge, TooSlow, Unknown, facts, headers_of, status_of
from sievenet.web.origin import check_host, check_origin
from sievenet.web.routes import ROUTES, Route
from sievenet.web.signin import SignIn, SignIns, Visits
from sievenet.web.throttle import Throttle

__all__ = ["Desk", "answer", "is_stranger", "visitor_of"]

log = logging.getLogger("sievenet.web")
log.addFilter(Throttle())

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

VISITOR: Final = web.RequestKey("visitor", Visitor)
_SAFE: Final = ("GET", "HEAD")
#: What proxies say of those behind them.
_PROXIED: Final = ("Forwarded", "X-Forwarded-For", "X-Real-IP")
#: Answers per second to one address, or member, that no quota counts; seconds that one waits at most.
_FREE: Final = 100.0
_PATIENCE: Final = 5.0
_REFUSALS: Final = (401, 403, 429)
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


def answer(data: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Plain data as JSON."""
    body = msgspec.json.encode(data) + b"\n"
    return web.Response(body=body, status=status, content_type="application/json", headers=headers)


def visitor_of(request: web.Request) -> Visitor:
    """Who is behind a request whose route has a role."""
    return request[VISITOR]


def is_stranger(request: web.Request) -> bool:
    """Whether nobody is known to be behind a request."""
    return VISITOR not in request


class Desk:
    """Made for one server."""

    def __init__(self, lobby: Lobby, names: tuple[str, ...], life: float, secure: bool) -> None:
        self._lobby = lobby
        self._names = frozenset(name.lower() for name in names)
        self._sign_ins = SignIns(life)
        self._visits = Visits()
        self._pace = Pace(_FREE, _PATIENCE)
        self._secure = secure
        #: The cookie's name; browsers take one that begins so only from an encrypted page, for this very name.
        self.cookie = "__Host-sievenet" if secure else "sievenet"
        self._routes: dict[str, Route] = {each.name: each for each in ROUTES}
        #: Told of each answer: the route, its status and the seconds that it took.
        self.observe: Callable[[str, int, float], None] = lambda route, status, seconds: None
        #: Told who is behind a request; False if its connection is one too many.
        self.know: Callable[[web.Request, str], bool] = lambda request, name: True

    @property
    def known(self) -> bool:
        """Whether everybody has to be known here."""
        return self._lobby.keeper.known

    # -- the middleware -------------------------------------------------------------------

    def middleware(self) -> Any:
        """What every request passes."""

        @web.middleware
        async def serve(request: web.Request, handler: Handler) -> web.StreamResponse:
            name, begin = request.match_info.route.name or "", time.perf_counter()
            try:
                response = await self._serve(request, handler, name)
            except SievenetError as error:
                self.refused(request, error)
                response = self._refusal(error)
            except web.HTTPException as error:
                response = answer({"error": {"kind": "HTTP", "message": error.reason}}, error.status)
                if "Allow" in error.headers:
                    response.headers["Allow"] = error.headers["Allow"]
            except asyncio.CancelledError:
                raise
            except ConnectionError:
                raise
            except Exception as error:
                log.exception("internal error at %s (please report)", request.path)
                message = f"internal error (please report): {type(error).__name__}"
                response = answer({"error": {"kind": "SievenetError", "message": message}}, 500)
            self.observe(name or "none", response.status, time.perf_counter() - begin)
            if self.known and not response.prepared:
                await self._wait(request, response)
            return response

        return serve

    async def _serve(self, request: web.Request, handler: Handler, name: str) -> web.StreamResponse:
        if not self.known:
            check_host(request.host, self._names)
            if any(name in request.headers for name in _PROXIED):
                # Everybody behind it would be an operator, whoever they are.
                raise Rejected("Expected no proxy in front of a server without members: give --access FOLDER")
        route = self._routes.get(name)
        origin, site = request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site")
        navigation = name == "page" and request.method in _SAFE
        check_origin(request.scheme, request.host, origin, site, navigation=navigation)
        if route is not None and route.role is not None:
            visitor = request[VISITOR] = self.visitor(request)
            if not self.know(request, visitor.name):
                raise Rejected(f"Expected fewer connections of {visitor.name} (quota), this is one more")
            self._lobby.check(visitor, route.role)
        return await handler(request)

    def refused(self, request: web.Request, error: SievenetError, what: str = "", about: str = "") -> None:
        """Put a refusal in the audit log: what was asked for, by whom, from where. Failed logins are there already."""
        if not isinstance(error, Unknown):
            resource = request.match_info.route.resource
            path = "" if resource is None else f" {resource.canonical}"
            what, about = what or f"{request.method}{path}", about or request.path_qs
            self._lobby.refused(request.get(VISITOR), request.remote or "", what, about, error)

    async def _wait(self, request: web.Request, response: web.StreamResponse) -> None:
        """An answer that costs whoever asked nothing comes when it is its turn."""
        visitor = request.get(VISITOR)
        if visitor is not None and response.status not in _REFUSALS:
            return
        whose = f"member {visitor.name}" if visitor is not None else request.remote or ""
        wait = self._pace.wait(whose, time.monotonic())
        if wait is None:
            response.force_close()
            wait = _PATIENCE
        if wait:
            await asyncio.sleep(wait)

    @staticmethod
    async def head(request: web.Request, response: web.StreamResponse) -> None:
        """Headers of every answer, streams too."""
        response.headers["Server"] = "sievenet"
        for key, value in _HEADERS.items():
            response.headers.setdefault(key, value)

    def _refusal(self, error: SievenetError) -> web.Response:
        status = status_of(error)
        response = answer(facts(error), status, headers_of(error))
        if isinstance(error, TooLarge | TooSlow | BrokenBody):
            response.force_close()  # the rest of the body is not read
        return response

    # -- who it is ------------------------------------------------------------------------

    def visitor(self, request: web.Request) -> Visitor:
        """Who this is; `Unknown` if it has to be known and is not."""
        sign_in = self.sign_in(request)
        if sign_in is not None:
            if request.method not in _SAFE:
                sign_in.check(request.headers.get("X-CSRF-Token", ""))
            return sign_in.visitor
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme and scheme.lower() != "bearer":
            raise Unknown("Expected `Authorization: Bearer NAME.SECRET`, got another scheme")
        return self.admitted(request, token.strip())

    def sign_in(self, request: web.Request) -> SignIn | None:
        """The sign-in whose cookie a request has, if it still counts; an Authorization header goes before it."""
        cookie = request.cookies.get(self.cookie)
        if not cookie or "Authorization" in request.headers:
            return None
        found = self._sign_ins.get(cookie, time.monotonic())
        if found is None or self._lobby.stands(found.visitor):
            return found
        self._sign_ins.end(cookie)
        return None

    def admitted(self, request: web.Request, token: str) -> Visitor:
        """Whoever shows a token, a certificate or, where nobody has to be known, nothing."""
        transport, address = request.transport, request.remote or ""
        certificate = None if transport is None else transport.get_extra_info("peercert")
        shown = token, str((certificate or {}).get("serialNumber", "")), address
        visitor = self._visits.get(*shown)
        if visitor is not None and self._lobby.stands(visitor):
            return visitor
        self._visits.forget(*shown)
        if self.known and not token and not certificate:
            raise Unknown("Expected a sign-in, or `Authorization: Bearer NAME.SECRET` (`sievenet keys token`)")
        try:
            visitor = self._lobby.admit(token, certificate or None, address, request.secure)
        except Rejected as error:
            raise Unknown(str(error)) from None
        self._visits.put(visitor, *shown)
        return visitor

    # -- signing in -----------------------------------------------------------------------

    def begin(self, request: web.Request, token: str) -> tuple[str, SignIn]:
        """Sign in with a token; the cookie, and the sign-in."""
        return self._sign_ins.begin(self.admitted(request, token), time.monotonic())

    def end(self, request: web.Request) -> None:
        """Sign out; the token of the page has to be shown for that too."""
        sign_in = self.sign_in(request)
        if sign_in is not None:
            sign_in.check(request.headers.get("X-CSRF-Token", ""))
            self._sign_ins.end(request.cookies[self.cookie])
