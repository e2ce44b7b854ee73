"""The door: accepts connections up to a limit and runs a `Peer` for each."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import Any

from sievenet.access.doorkeeper import Doorkeeper
from sievenet.config import ListenConfig
from sievenet.daemon.peer import Handler, Peer
from sievenet.errors import Rejected, Unavailable
from sievenet.session.framing import frame
from sievenet.session.message import failure

__all__ = ["Server"]

log = logging.getLogger("sievenet.daemon")


class Complaints:
    """What the event loop complains of; of a lack of file descriptors, which it does for every connection, seldom."""

    def __init__(self, pause: float = 10.0) -> None:
        self._pause = pause
        self._next = 0.0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS):
            loop.default_exception_handler(context)
        elif loop.time() >= self._next:
            self._next = loop.time() + self._pause
            log.error("no connection can be accepted: %s (see `ulimit -n`)", error.strerror)


class Server:
    """Listens on the control port."""

    def __init__(self, handler: Handler, config: ListenConfig, keeper: Doorkeeper) -> None:
        self._handler = handler
        self._keeper = keeper
        self._config = config
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._doors: list[asyncio.Server] = []
        self._address: tuple[str, int] = (config.host, config.port)
        #: Connections that were turned away because there were too many.
        self.turned_away = 0

    async def start(self) -> None:
        """Listen; `Unavailable` if the address is in use."""
        loop = asyncio.get_running_loop()
        if loop.get_exception_handler() is None:
            loop.set_exception_handler(Complaints())
        try:
            self._server = await asyncio.start_server(self._accept, self._config.host, self._config.port, backlog=512)
        except OSError as error:
            raise Unavailable(
                f"Cannot listen on {self._config.host}:{self._config.port}: {error.strerror or error}"
            ) from None
        host, port = self._server.sockets[0].getsockname()[:2]
        self._address = (host, port)

    async def add_door(self, sock: socket.socket, host: str | Callable[[str], str | None]) -> None:
        """Accept connections at another socket as well; all come from one host, or their addresses tell from which."""

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            where = host if isinstance(host, str) else host(writer.get_extra_info("peername")[0])
            await self._accept(reader, writer, where)

        self._doors.append(await asyncio.start_server(accept, sock=sock))

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        return self._address[1]

    @property
    def url(self) -> str:
        """Where clients connect."""
        host, port = self._address
        scheme = "sievenet" if self._keeper.tls is None else "sievenets"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    async def _accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str | None = None
    ) -> None:
        if len(self._tasks) >= self._config.max_clients:
            self.turned_away += 1
            limit = Rejected(f"Expected at most {self._config.max_clients} connections, this is one more")
            if self._keeper.tls is None:
                writer.write(frame(failure(0, limit)))
            writer.close()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if self._keeper.tls is not None:
                # Not by the listening socket: the context may be another one for the next connection.
                await writer.start_tls(self._keeper.tls, ssl_handshake_timeout=self._config.hello)
            peer = Peer(reader, writer, self._handler, self._config, self._keeper)
            peer.host = host
            await peer.run()
        except OSError as error:
            log.debug("no TLS: %s", error)
            writer.close()
        except asyncio.CancelledError:
            # The server is closing; asyncio would log a cancelled handler as an error.
            writer.close()
        finally:
            self._tasks.discard(task)

    async def close(self) -> None:
        """Accept nobody more and end every connection."""
        if self._server is None:
            return
        self._server.close()
        for door in self._doors:
            door.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()
