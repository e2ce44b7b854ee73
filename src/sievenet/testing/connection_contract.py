"""What every protocol that speaks through `sievenet.session` may rely on over real connections.

A `Listener` and a `Dialler` of the protocol meet on loopback; both are the real ones, and the parts behind them note
what comes. See `session_contract` for `Talk` and for the sides alone.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from sievenet.access.identity import Credentials, Identity
from sievenet.errors import Rejected, SievenetError
from sievenet.session.connection import Connection
from sievenet.session.dialler import Dialler
from sievenet.session.framing import frame
from sievenet.session.limits import Limits
from sievenet.session.link import Link
from sievenet.session.listener import Listener, Service
from sievenet.session.message import Alive, Done, Hello, Welcome
from sievenet.testing.session_contract import Talk

__all__ = ["CONNECTED"]


class _Everybody:
    """A gate that lets in whom it is told to."""

    def __init__(self) -> None:
        self.shut = False

    def admit(self, credentials: Credentials) -> Identity:
        if self.shut:
            raise Rejected("The gate is shut")
        return Identity(credentials.role, credentials.name)


class _Server(Service[Connection]):
    """Notes what comes, and answers requests."""

    def __init__(self, talk: Talk, lease: float) -> None:
        self._talk, self._lease = talk, lease
        self.gate = _Everybody()
        limits = Limits(hello=1.0, connections=2, buffer=1 << 16)
        where: dict[str, Any] = {"host": "127.0.0.1", "port": 0, "gate": self.gate, "pause": 0.02}
        self.listener: Listener[Connection] = Listener(talk.protocol, self, limits, Connection, **where)
        self.tickets: list[bytes] = []
        self.heard: list[Any] = []
        self.lives = 0

    async def hello(self, connection: Connection, hello: Any, identity: Identity) -> Welcome:
        self.tickets.append(hello.ticket)
        self.lives += 1
        return self._talk.welcome(self._lease, b"%d" % self.lives)

    def welcomed(self, connection: Connection) -> None:
        connection.send(self._talk.told)

    def take(self, connection: Connection, messages: list[tuple[Any, int]]) -> None:
        for message, _ in messages:
            self.heard.append(message)
            if getattr(message, "request", 0):
                connection.send(Done(message.request, "done"))


class _Node(Dialler):
    """Says what it is told to."""

    def __init__(self, talk: Talk, address: tuple[str, int]) -> None:
        super().__init__(talk.protocol, address, timeout=10.0, reconnect=True)
        self._talk = talk
        self._pause = 0.2
        self._backoff._first = self._backoff._most = 0.01
        self.told: list[Any] = []

    def _hello(self) -> Hello:
        return msgspec.structs.replace(self._talk.hello, ticket=self._ticket)

    async def _enter(self, link: Link, welcome: Any) -> None:
        link.send(self._talk.said)

    def _told(self, link: Link, message: Any) -> None:
        self.told.append(message)

    async def _beat(self, link: Link) -> None:
        link.send(Alive())


async def _until(found: Callable[[], object]) -> None:
    async with asyncio.timeout(20.0):
        while not found():
            await asyncio.sleep(0.01)


async def _refusal(node: _Node) -> str:
    try:
        await node.start()
    except SievenetError as error:
        return str(error)
    return ""


async def both_sides_meet_again_after_a_loss(talk: Talk) -> None:
    """A connection lives on without a word of the parts; when it breaks, the next one shows the ticket of the last."""
    server = _Server(talk, lease=1.0)
    await server.listener.start()
    node = _Node(talk, server.listener.address)
    try:
        await node.start()
        await asyncio.sleep(2.0)
        assert (node.losses, server.lives) == (0, 1)
        await _until(lambda: server.heard == [talk.said] and node.told == [talk.told])
        for life in (2, 3):
            for connection in list(server.listener.connections):
                connection.abort()
            await _until(lambda: server.lives == life and node.connected)  # noqa: B023
        assert server.tickets == [b"", b"1", b"2"]
        assert node.losses == 2
        if talk.request is not None:
            assert await node.call(talk.request) == "done"
        await node.close()
        await _until(lambda: not server.listener.connections)
        assert server.listener.errors == 0
    finally:
        await server.listener.close()


async def who_is_not_let_in_is_told_why(talk: Talk) -> None:
    """By the gate, and by the limits of the process; whoever is in stays."""
    server = _Server(talk, lease=0.0)
    await server.listener.start()
    try:
        server.gate.shut = True
        assert "gate is shut" in await _refusal(_Node(talk, server.listener.address))
        assert "nobody listens" in await _refusal(_Node(talk, ("127.0.0.1", 1)))
        server.gate.shut = False
        await _until(lambda: not server.listener.connections)
        first, second, third = (_Node(talk, server.listener.address) for _ in range(3))
        await first.start()
        await second.start()
        assert "at most 2 connections" in await _refusal(third)
        assert server.listener.turned_away == 1
        assert first.connected
        assert second.connected
        await first.close()
        await second.close()
    finally:
        await server.listener.close()


async def who_reads_nothing_and_who_says_nothing_are_disconnected(talk: Talk) -> None:
    """What waits for one connection is bounded in bytes; a connection without a hello ends."""
    server = _Server(talk, lease=0.0)
    await server.listener.start()
    try:
        _, silent = await asyncio.open_connection(*server.listener.address)
        reader, deaf = await asyncio.open_connection(*server.listener.address, limit=1)
        deaf.write(frame(talk.hello))
        await _until(lambda: server.lives == 1)
        [connection] = [each for each in server.listener.connections if each.identity is not None]
        # The system's buffers hold megabytes otherwise, which takes a busy machine long to fill with small messages.
        deaf.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        connection.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)
        sent = 0
        async with asyncio.timeout(60.0):
            while connection.send(talk.told):
                assert connection.waiting <= (1 << 17) + len(frame(talk.told))
                sent += 1
                if not sent % 100:
                    await asyncio.sleep(0)
        assert sent > 100
        await _until(lambda: not server.listener.connections)
        for writer in (silent, deaf):
            writer.transport.abort()
        del reader
    finally:
        await server.listener.close()


CONNECTED: Final[tuple[Callable[[Talk], Awaitable[None]], ...]] = (
    both_sides_meet_again_after_a_loss,
    who_is_not_let_in_is_told_why,
    who_reads_nothing_and_who_says_nothing_are_disconnected,
)
