"""Streams that clients ask for: events as server-sent events or over a WebSocket, and the page's live view.

    GET /subscribe?filter=stock: price > 420
    Last-Event-ID: 5f3a9c01-1042            goes on behind this event; what is gone from the window is told

The first message, `open`, says where the stream begins, so that a client that loses its connection before the first
event loses nothing either. Over a WebSocket clients publish as well, and wait for each answer if they want to.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
from aiohttp import WSMsgType, hdrs, web
from aiohttp.http import HttpVersion11

from sievenet.config import WebConfig
from sievenet.daemon.lobby import Lobby, Visitor
from sievenet.errors import EventError, InvalidInput, Rejected, SievenetError
from sievenet.web.channel import Channel
from sievenet.web.desk import Desk, visitor_of
from sievenet.web.errors import facts
from sievenet.web.frame import Kind, chunk, identifier, message
from sievenet.web.handlers import Handlers
from sievenet.web.live import Live
from sievenet.web.publication import decoded, event_of
from sievenet.web.resident import Resident, Residents
from sievenet.web.stream import Stream

__all__ = ["Subscriptions"]

#: Seconds after which a silent stream says that it is alive.
_ALIVE: Final = 15.0
#: Events in one message of a WebSocket.
_AT_ONCE: Final = 1000


class _Said(msgspec.Struct, forbid_unknown_fields=True):
    """What a client says over a WebSocket."""

    publish: str
    event: dict[str, Any] | None = None
    events: list[dict[str, Any]] = []
    #: Comes back in the answer.
    ref: Any = None


_SAID: Final = msgspec.json.Decoder(_Said)


class Subscriptions:
    """The handlers of the routes that stream."""

    def __init__(self, lobby: Lobby, desk: Desk, residents: Residents, live: Live, config: WebConfig) -> None:
        self._lobby, self._desk, self._residents, self._live, self._config = lobby, desk, residents, live, config
        #: Every stream that is open, and whose it is.
        self.open: dict[Stream, Visitor] = {}

    def look(self) -> None:
        """End the streams of people who would not be admitted any more."""
        for stream, visitor in list(self.open.items()):
            if not self._lobby.stands(visitor):
                stream.end("the login no longer counts, or has another role now")

    # -- events ---------------------------------------------------------------------------

    async def subscribe(self, request: web.Request) -> web.StreamResponse:
        """Events as they come."""
        socket = request.headers.get(hdrs.UPGRADE, "").lower() == "websocket"
        wanted = request.query.get("filter", "")
        if (several := len(request.query.getall("filter", ()))) > 1:
            raise InvalidInput(expected="one filter (`or` joins several)", got=several, where="subscribe")
        visitor = visitor_of(request)
        resident = self._residents.of(visitor)
        channel = None
        if wanted.strip():
            self._room(visitor)
            channel = await resident.channel(wanted, self._residents.room)
        elif not socket:
            raise InvalidInput(expected="?filter=stock: price > 420", got="`none`", where="subscribe")
        last = request.headers.get("Last-Event-ID") or request.query.get("last_event_id", "")
        if socket:
            with resident.held():
                return await self._socket(request, visitor, resident, channel, last)
        assert channel is not None
        response = await _begun(request)
        stream = self._stream(request, channel, "sse" if response.chunked else "plain", last)
        await self._follow(response, stream, visitor)
        return response

    def _room(self, visitor: Visitor) -> None:
        most, each = self._config.max_streams, self._config.max_streams_each
        if self._residents.streams >= most:
            raise Rejected(f"Expected at most {most} streams (quota), this is one more")
        if visitor.name and self._residents.streams_of(visitor) >= each:
            raise Rejected(f"Expected at most {each} streams of {visitor.name} (quota), this is one more")

    def _stream(self, request: web.Request, channel: Channel, kind: Kind, last: str) -> Stream:
        transport = request.transport
        if transport is None:
            raise ConnectionResetError
        cursor, lost = channel.cursor(last)
        stream = Stream(channel, transport, kind, cursor, self._config.unread)
        opened = {"filter": str(channel.allowed)}
        data = message(kind, "open", msgspec.json.encode(opened), identifier(channel.life, cursor - 1))
        if lost:
            reason = {"missed": None, "reason": f"the window of {last[:64]} is gone: what came since is not known"}
            data += message(kind, "missed", msgspec.json.encode(reason))
        transport.write(chunk(kind, data))
        channel.enter(stream)
        return stream

    async def live(self, request: web.Request) -> web.StreamResponse:
        """The page's stream."""
        response = await _begun(request)
        transport = request.transport
        if transport is None:
            raise ConnectionResetError
        kind: Kind = "sse" if response.chunked else "plain"
        stream = await self._live.begin(lambda cursor: Stream(self._live, transport, kind, cursor, self._config.unread))
        await self._follow(response, stream, visitor_of(request))
        return response

    async def _follow(self, response: web.StreamResponse, stream: Stream, visitor: Visitor) -> None:
        """Until the client goes, or the server ends the stream and says why."""
        self.open[stream] = visitor
        try:
            while not stream.ended.is_set():
                try:
                    async with asyncio.timeout(_ALIVE):
                        await stream.ended.wait()
                except TimeoutError:
                    await response.write(b": alive\n\n")
            if stream.reason:
                text = msgspec.json.encode({"reason": stream.reason})
                await response.write(message(stream.kind, "end", text))
        except ConnectionError:
            pass
        finally:
            self.open.pop(stream, None)
            stream.end()

    # -- WebSocket ------------------------------------------------------------------------

    async def _socket(
        self, request: web.Request, visitor: Visitor, resident: Resident, channel: Channel | None, last: str
    ) -> web.StreamResponse:
        socket = web.WebSocketResponse(heartbeat=30.0, max_msg_size=self._config.max_line * 16, compress=False)
        await socket.prepare(request)
        stream, closing = None, None
        if channel is not None:
            stream = self._stream(request, channel, "ws", last)
            self.open[stream] = visitor
            closing = asyncio.create_task(_closed(stream, socket))
        try:
            async for said in socket:
                if said.type is not WSMsgType.TEXT:
                    break
                name, found = await self._said(request, resident, said.data)
                await _send(socket, name, found)
        except ConnectionError:
            pass  # whoever asked has gone before the answer
        finally:
            if stream is not None and closing is not None:
                self.open.pop(stream, None)
                stream.end()
                closing.cancel()
                await asyncio.gather(closing, return_exceptions=True)
        return socket

    async def _said(self, request: web.Request, resident: Resident, text: str) -> tuple[str, dict[str, Any]]:
        ref, category = None, ""
        try:
            try:
                said = decoded(text, _SAID)
            except EventError as error:
                raise InvalidInput(f'Expected {{"publish": CATEGORY, "event": {{…}}}}: {error}') from None
            ref, category = said.ref, said.publish
            schema = await resident.offer(said.publish)
            rows = said.events if said.event is None else [said.event, *said.events]
            if len(rows) > _AT_ONCE:
                raise InvalidInput(expected=f"at most {_AT_ONCE} events in a message", got=len(rows))
            events = [event_of(schema, each, f"event {number}") for number, each in enumerate(rows, 1)]
            return "published", {"published": await Handlers.send(resident, events), "ref": ref}
        except SievenetError as error:
            self._desk.refused(request, error, "WebSocket publish", category)
            return "error", {**facts(error), "ref": ref}


async def _begun(request: web.Request) -> web.StreamResponse:
    """An answer that goes on."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
    if request.version >= HttpVersion11:
        response.enable_chunked_encoding()
    await response.prepare(request)
    # Headers go with the first bytes.
    await response.write(b": welcome\n\n")
    return response


async def _send(socket: web.WebSocketResponse, name: str, data: dict[str, Any]) -> None:
    await socket.send_str(msgspec.json.encode({"type": name, "data": data}).decode())


async def _closed(stream: Stream, socket: web.WebSocketResponse) -> None:
    """The server ends a stream: say why, and close."""
    await stream.ended.wait()
    if stream.reason:
        await _send(socket, "end", {"reason": stream.reason})
        await socket.close(message=stream.reason.encode()[:120])
