"""What is done for each route but the streams: the page, sign-ins, questions, schemas, plans, publishing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from hashlib import blake2b
from importlib import resources
from typing import Any, Final

import msgspec
from aiohttp import web

from sievenet.content import Event, Schema
from sievenet.control import protocol as p
from sievenet.daemon.daemon import Daemon
from sievenet.errors import InvalidInput, SchemaError, SievenetError
from sievenet.index.plan import Plan
from sievenet.session.framing import LARGE
from sievenet.web.desk import Desk, answer, is_stranger, visitor_of
from sievenet.web.door import BROKEN
from sievenet.web.errors import BrokenBody, TooLarge, TooSlow, facts, headers_of, status_of
from sievenet.web.metrics import CONTENT_TYPE
from sievenet.web.publication import CHUNK, events_of, lines_of
from sievenet.web.resident import Resident, Residents
from sievenet.workload.samples import load_plan, plan_names

__all__ = ["Handlers"]

_TYPES: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
#: What says that a body is JSON lines, to be published as they come.
_LINES: Final = ("application/x-ndjson", "application/jsonl", "application/json-lines", "application/x-jsonlines")
_TOKEN: Final = 1024
#: Seconds that the whole body of somebody who is not known may take, and within which more of anybody's has to come.
_STRANGER: Final = 10.0
_MORE: Final = 30.0


class Handlers:
    """A method for each name of the table of routes."""

    def __init__(
        self, daemon: Daemon, desk: Desk, residents: Residents, metrics: Callable[[], Awaitable[bytes]]
    ) -> None:
        self._daemon, self._desk, self._residents = daemon, desk, residents
        self._config = daemon.config.web
        self._metrics = metrics
        self._files = _files()

    # -- the page -------------------------------------------------------------------------

    async def page(self, request: web.Request) -> web.Response:
        """The page."""
        return self._file(request, "index.html")

    async def static(self, request: web.Request) -> web.Response:
        """A file of the page."""
        return self._file(request, request.match_info["name"])

    def _file(self, request: web.Request, name: str) -> web.Response:
        found = self._files.get(name)
        if found is None:
            raise web.HTTPNotFound
        data, tag = found
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers=headers)
        kind = _TYPES.get(name.rpartition(".")[2], "application/octet-stream")
        return web.Response(body=data, content_type=kind, charset="utf-8", headers=headers)

    async def me(self, request: web.Request) -> web.Response:
        """Who somebody is: enough for a page to know what it may offer."""
        sign_in = self._desk.sign_in(request)
        visitor = None
        with contextlib.suppress(SievenetError):  # a stranger, or one whom nobody knows any more
            visitor = self._desk.visitor(request)
        return answer(
            {
                "name": "" if visitor is None else visitor.name,
                "role": None if visitor is None else visitor.identity.role.value,
                "members": self._desk.known,
                "csrf": "" if sign_in is None else sign_in.csrf,
                "plans": plan_names(),
                "every": self._config.every,
            }
        )

    async def sign_in(self, request: web.Request) -> web.Response:
        """Sign in with a token."""
        try:
            token = msgspec.json.decode(await self._body(request, _TOKEN), type=dict[str, str])["token"]
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError):
            expected = '{"token": "NAME.SECRET"}'
            raise InvalidInput(expected=expected, got="`something else`", where="sign-in") from None
        cookie, made = self._desk.begin(request, token.strip())
        visitor = made.visitor
        response = answer({"name": visitor.name, "role": visitor.identity.role.value, "csrf": made.csrf})
        response.set_cookie(
            self._desk.cookie,
            cookie,
            max_age=int(self._config.session),
            path="/",
            httponly=True,
            samesite="Strict",
            secure=request.secure,
        )
        return response

    async def sign_out(self, request: web.Request) -> web.Response:
        """Sign out."""
        self._desk.end(request)
        response = answer({})
        response.del_cookie(self._desk.cookie, path="/")
        return response

    # -- health ---------------------------------------------------------------------------

    async def health(self, request: web.Request) -> web.Response:
        """The process works: it has answered."""
        return answer({"healthy": True})

    async def readiness(self, request: web.Request) -> web.Response:
        """Whether the fabric can do its work."""
        found = self._daemon.control.status()
        down = list(found.switches_down)
        ready = not down and not found.undefined
        # Strangers are told whether, not why.
        more = {} if self._desk.known else {"switches_down": down, "undefined": found.undefined}
        return answer({"ready": ready, **more}, 200 if ready else 503)

    async def metrics(self, request: web.Request) -> web.Response:
        """Counts for Prometheus."""
        self._daemon.lobby.count(visitor_of(request))
        return web.Response(body=await self._metrics(), headers={"Content-Type": CONTENT_TYPE})

    # -- questions ------------------------------------------------------------------------

    async def _ask(self, request: web.Request, about: str, of: str = "") -> web.Response:
        done = await self._daemon.lobby.carry_out(visitor_of(request), p.Ask(0, about, of))
        return answer(done.answer)

    async def status(self, request: web.Request) -> web.Response:
        """What `sievenet status` says."""
        return await self._ask(request, "status")

    async def topology(self, request: web.Request) -> web.Response:
        """What `sievenet topo` says."""
        return await self._ask(request, "topology")

    async def flows(self, request: web.Request) -> web.Response:
        """The table of a switch."""
        return await self._ask(request, "flows", request.match_info["switch"])

    async def explain(self, request: web.Request) -> web.Response:
        """An event's way, who gets it, who not and why."""
        event, origin = request.query.get("event", ""), request.query.get("from", "")
        if not event.strip():
            raise InvalidInput(expected="?event=stock: symbol=IBM, …", got="`none`", where="explain")
        return await self._ask(request, "trace", f"from {origin}: {event}" if origin else event)

    async def client(self, request: web.Request) -> web.Response:
        """What a client advertises and subscribes to."""
        return await self._ask(request, "registrations", request.match_info["name"])

    # -- schemas and plans ----------------------------------------------------------------

    async def schemas(self, request: web.Request) -> web.Response:
        """All schemas, in their latest versions."""
        self._daemon.lobby.count(visitor_of(request))
        latest = {each.name: self._daemon.control.category(each.name) for each in self._daemon.control.categories()}
        return self._counted(request, [each.schema for each in latest.values()])

    async def schema(self, request: web.Request) -> web.Response:
        """One schema."""
        self._daemon.lobby.count(visitor_of(request))
        return self._counted(request, self._daemon.control.category(request.match_info["name"]).schema)

    def _counted(self, request: web.Request, data: Any) -> web.Response:
        response = answer(data)
        self._daemon.lobby.answered(visitor_of(request), response.content_length or 0)
        return response

    async def register(self, request: web.Request) -> web.Response:
        """Make a schema known."""
        body = await self._body(request, self._daemon.config.listen.max_request)
        if len(body) > LARGE:
            self._daemon.lobby.count(visitor_of(request), len(body))
        try:
            schema = await asyncio.to_thread(Schema.from_json, body) if len(body) > LARGE else Schema.from_json(body)
        except SchemaError as error:  # wrong, not missing
            raise InvalidInput(str(error), where="schema") from None
        reply = await self._daemon.lobby.carry_out(visitor_of(request), p.Register(0, schema))
        return answer({"schema": reply.category.schema.name, "number": reply.category.number}, 201)

    async def plan(self, request: web.Request) -> web.Response:
        """The plan of a category."""
        name = request.match_info["category"]
        reply = await self._daemon.lobby.carry_out(visitor_of(request), p.LookUp(0, name))
        return web.Response(body=bytes(reply.category.plan), content_type="application/json")

    async def apply(self, request: web.Request) -> web.Response:
        """Change a category's plan; returns when no trace of the old one is left."""
        name = request.match_info["category"]
        plan = await self._plan(request, name)
        # To its end even if the client goes: half a change is none.
        change = self._daemon.lobby.carry_out(visitor_of(request), p.ApplyPlan(0, name, plan))
        done = await asyncio.shield(asyncio.ensure_future(change))
        return answer(done.answer)

    async def _plan(self, request: web.Request, name: str) -> bytes:
        builtin, regular = request.query.get("builtin"), request.query.get("regular")
        if "suggested" in request.query:
            done = await self._daemon.lobby.carry_out(visitor_of(request), p.Ask(0, "suggestion", name))
            return msgspec.json.encode(done.answer)
        if builtin is not None:
            if builtin not in plan_names():
                raise InvalidInput(
                    expected=f"a built-in plan ({', '.join(plan_names())})", got=builtin, where="builtin"
                )
            return load_plan(builtin).to_json()
        if regular is not None:
            if not regular.isdecimal() or not 1 <= int(regular) <= 112:
                raise InvalidInput(expected="1 to 112 bits", got=regular, where="regular")
            return Plan.regular(self._daemon.control.category(name).schema, int(regular)).to_json()
        return await self._body(request, self._daemon.config.listen.max_request)

    # -- publishing -----------------------------------------------------------------------

    async def publish(self, request: web.Request) -> web.Response:
        """Publish events."""
        resident = self._residents.of(visitor_of(request))
        with resident.held():
            schema = await resident.offer(request.match_info["category"])
            if request.content_type in _LINES:
                return await self._publish_lines(request, resident, schema)
            events = await events_of(schema, await self._body(request, self._config.max_body))
            return answer({"published": await self.send(resident, events)})

    async def _publish_lines(self, request: web.Request, resident: Resident, schema: Schema) -> web.Response:
        published = 0
        try:
            async for events in lines_of(schema, _pieces(request), self._config.max_line):
                published += (some := await self.send(resident, events, whole=False))
                if some < len(events):
                    resident.allowed(events[some : some + 1])
                    raise resident.over(events[some:])
        except SievenetError as error:
            self._desk.refused(request, error)
            response = answer({"published": published, **facts(error)}, status_of(error), headers_of(error))
            response.force_close()  # the rest of the body is not read
            return response
        return answer({"published": published})

    @staticmethod
    async def send(resident: Resident, events: list[Event], *, whole: bool = True) -> int:
        """Publish events of one schema by a person's node; waits while the network takes no more.

        All of them, or else as many, from the first on, as the person's rules and quota allow; how many.
        """
        allowed = resident.allowed(events, whole=whole)
        if events:
            # They may have come for hours: meanwhile rules change, and what is not used is taken back.
            await resident.offer(events[0].schema.name)
        count = resident.room(events[:allowed], whole=whole)
        for start in range(0, count, CHUNK):
            await resident.publish(events[start : min(start + CHUNK, count)])
        return count

    @staticmethod
    async def _body(request: web.Request, most: int) -> bytes:
        """The body; `TooLarge` before more than that is held, `TooSlow` if it does not come."""
        if (request.content_length or 0) > most:
            raise TooLarge(f"Expected at most {most} bytes, got {request.content_length}")
        pieces, size = [], 0
        patience = _STRANGER if is_stranger(request) else None
        try:
            async with asyncio.timeout(patience):
                async for piece in _pieces(request, _MORE):
                    size += len(piece)
                    if size > most:
                        raise TooLarge(f"Expected at most {most} bytes, got more")
                    pieces.append(piece)
        except TimeoutError:
            raise TooSlow(f"Expected the body within {patience} s") from None
        return b"".join(pieces)


async def _pieces(request: web.Request, patience: float | None = None) -> AsyncIterator[bytes]:
    """A body as it comes; `TooSlow` if nothing does for so many seconds, `BrokenBody` if it cannot be read."""
    while True:
        try:
            async with asyncio.timeout(patience):
                piece = await request.content.readany()
        except TimeoutError:
            raise TooSlow(f"Expected more of the body within {patience} s") from None
        except BROKEN:
            encoding = request.headers.get("Content-Encoding") or request.headers.get("Transfer-Encoding") or "none"
            raise BrokenBody(f"Expected a body with the encoding {encoding[:40]}, got something else") from None
        if not piece:
            return
        yield piece


def _files() -> dict[str, tuple[bytes, str]]:
    """The page's files, read once, and a tag of each."""
    found = {}
    for entry in resources.files("sievenet.web").joinpath("page").iterdir():
        if entry.name.rpartition(".")[2] in _TYPES:
            data = entry.read_bytes()
            found[entry.name] = data, f'"{blake2b(data, digest_size=12).hexdigest()}"'
    return found
