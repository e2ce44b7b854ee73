"""The entrance: TLS handshakes of HTTP connections, at the pace of all handshakes of a daemon.

    accepted ─▶ waits its turn (`session.pace`), unread ─▶ handshake ─▶ HTTP
                   └ too many from its address, or in all: closed

A handshake takes a millisecond or two of the event loop. If they began as they came, a flood of them at the web port
would hold up events and requests, however well the control port is guarded.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from typing import Final

from aiohttp.web_protocol import RequestHandler

from sievenet.session.pace import Pace
from sievenet.session.tls import forgotten, read_by_records

__all__ = ["Entrance"]

log = logging.getLogger("sievenet.web")

#: Seconds after which a connection has lasted, and does not count any more.
_LASTING: Final = 5.0


class Entrance(asyncio.Protocol):
    """One connection on its way in; ``patience`` is the time for all of it, in seconds, ``room`` whether it may."""

    def __init__(
        self,
        inside: RequestHandler,
        tls: ssl.SSLContext,
        pace: Pace,
        patience: float,
        room: Callable[[RequestHandler, Callable[[], None]], bool],
    ) -> None:
        self._inside, self._tls, self._pace, self._patience, self._room = inside, tls, pace, patience, room
        self._transport: asyncio.Transport | None = None
        self._work: asyncio.Task[None] | None = None
        self._address = ""
        #: What came before the handler took over.
        self._early: list[bytes] = []
        self._gone = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accepted, nothing is read yet."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._address = str((transport.get_extra_info("peername") or ("?",))[0])
        loop = asyncio.get_running_loop()
        wait = self._pace.wait(self._address, time.monotonic())
        if wait is None or wait >= self._patience or not self._room(self._inside, self.abort):
            transport.abort()
            return
        # Not at once: in Python 3.11.2 a transport begins to read after this method, paused or not, and what it
        # read of the handshake would be lost to TLS.
        loop.call_soon(transport.pause_reading)
        self._work = loop.create_task(self._enter(wait))

    async def _enter(self, wait: float) -> None:
        loop, transport = asyncio.get_running_loop(), self._transport
        assert transport is not None
        inside: asyncio.Transport | None = None
        try:
            if wait:
                await asyncio.sleep(wait)
            if self._gone:
                return
            patience = self._patience - wait
            inside = await loop.start_tls(transport, self, self._tls, server_side=True, ssl_handshake_timeout=patience)
        except OSError as error:
            log.debug("connection of %s: no TLS: %s", self._address, error)
            forgotten(error)
        if inside is None or self._gone:
            self._pace.failed(self._address, time.monotonic())
            transport.abort()
            return
        read_by_records(inside)
        self._inside.connection_made(inside)
        inside.set_protocol(self._inside)
        for data in self._early:
            self._inside.data_received(data)
        loop.call_later(_LASTING, self._lasted, inside)

    def abort(self) -> None:
        """Somebody else gets its place."""
        self._gone = True
        if self._transport is not None:
            self._transport.abort()

    def _lasted(self, inside: asyncio.Transport) -> None:
        if not inside.is_closing():
            self._pace.stayed(self._address)

    def data_received(self, data: bytes) -> None:
        """The first words may come with the end of the handshake."""
        self._early.append(data)

    def connection_lost(self, error: Exception | None) -> None:
        """It went before it was in."""
        self._gone = True
