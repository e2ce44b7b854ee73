"""Requests that take a while, carried out beside each other: bounded in number and in bytes, in order of coming.

A connection is not read any further while too many of its requests wait; heartbeats and what else is *urgent* never
wait behind requests: a request may be waiting for just them.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections import deque
from collections.abc import Awaitable
from typing import Any, Final

import msgspec

from sievenet.access.quota import TooFast
from sievenet.errors import SievenetError
from sievenet.session.connection import Connection
from sievenet.session.listener import C, Service
from sievenet.session.message import Failure, Message, failure

__all__ = ["RequestService"]

log = logging.getLogger("sievenet.session")

#: Requests that wait for their turn; then the connection is not read any further.
_BACKLOG: Final = 4096


class RequestService(Service[C]):
    """A service that answers each request with a message, in its own time.

    Of one connection at most ``at_once`` requests are worked on, and ``held`` bytes of requests wait or are worked on.
    """

    def __init__(self, at_once: int, held: int, urgent: tuple[type[Message], ...] = ()) -> None:
        self._at_once, self._most_held, self._urgent = at_once, held, urgent
        self._desks: dict[Connection, _Desk] = {}

    @abstractmethod
    async def handle(self, connection: C, message: Any) -> Message | None:
        """Carry out a request and answer it, or raise."""

    def urgent(self, message: Any) -> bool:
        """Whether a request may not wait behind others."""
        return isinstance(message, self._urgent)

    def take(self, connection: C, messages: list[tuple[Any, int]]) -> Awaitable[None] | None:
        """Begin with what there is room for; returns when the rest may come."""
        desk = self._desks.get(connection)
        if desk is None:
            desk = self._desks[connection] = _Desk(self, connection, self._at_once, self._most_held)
        wait = 0.0
        #: What was answered to messages of a kind that came too fast: all others of it get the same, at once.
        refusals: dict[type[Any], Failure] = {}
        repeated = 0
        for at, (message, size) in enumerate(messages, 1):
            refusal = refusals.get(type(message))
            if refusal is not None:
                connection.send(msgspec.structs.replace(refusal, request=getattr(message, "request", 0)))
                repeated += 1
                continue
            try:
                self.check(connection, message, size)
            except SievenetError as error:
                refusal = failure(getattr(message, "request", 0), error)
                connection.send(refusal)
                if isinstance(error, TooFast):
                    wait, refusals[type(message)] = error.pause, refusal
                continue
            desk.add(message, size, self.urgent(message))
            if desk.full:
                self.repeated(connection, repeated)
                connection.hasty = bool(wait)
                return self._go_on(connection, desk, messages[at:], wait)
        self.repeated(connection, repeated)
        connection.hasty = bool(wait)
        return asyncio.sleep(wait) if wait else None

    def repeated(self, connection: C, refusals: int) -> None:
        """So many requests more came too fast, and were not looked at."""

    def check(self, connection: C, message: Any, size: int) -> None:
        """Whether a request may be worked on at all; raises at once, before anything is done for it, if not.

        After `TooFast` the connection is not read for a while: refusing must not cost more than the requests would.
        """

    async def _go_on(self, connection: C, desk: _Desk, rest: list[tuple[Any, int]], wait: float) -> None:
        await asyncio.sleep(wait)
        await desk.room()
        held = self.take(connection, rest)
        if held is not None:
            await held

    async def lost(self, connection: C) -> None:
        """What was begun is finished: the client may have lost only its connection, and asks again."""
        desk = self._desks.pop(connection, None)
        if desk is not None:
            await desk.close()


class _Desk:
    """The requests of one connection."""

    def __init__(self, service: RequestService[Any], connection: Connection, at_once: int, held: int) -> None:
        self._service, self._connection = service, connection
        self._at_once, self._most = at_once, held
        self._tasks: set[asyncio.Task[None]] = set()
        self._backlog: deque[tuple[Any, int]] = deque()
        self._held = 0
        self._moved = asyncio.Event()

    @property
    def full(self) -> bool:
        return len(self._backlog) >= _BACKLOG or self._held > self._most

    async def room(self) -> None:
        while self.full:
            self._moved.clear()
            await self._moved.wait()

    def add(self, message: Any, size: int, urgent: bool) -> None:
        self._held += size
        if urgent or len(self._tasks) < self._at_once:
            self._begin(message, size)
        else:
            self._backlog.append((message, size))

    def _begin(self, message: Any, size: int) -> None:
        task = asyncio.create_task(self._work(message))
        self._tasks.add(task)
        task.add_done_callback(lambda task: self._done(task, size))

    def _done(self, task: asyncio.Task[None], size: int) -> None:
        self._tasks.discard(task)
        self._held -= size
        if self._backlog and len(self._tasks) < self._at_once:
            self._begin(*self._backlog.popleft())
        self._moved.set()

    async def _work(self, message: Any) -> None:
        connection, number = self._connection, getattr(message, "request", 0)
        try:
            reply = await self._service.handle(connection, message)
        except SievenetError as error:
            reply = failure(number, error)
        except Exception as error:
            log.exception("request %s of %s failed", type(message).__name__, connection)
            reply = failure(number, error)
        if reply is not None:
            connection.send(reply)

    async def close(self) -> None:
        self._backlog.clear()
        self._moved.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)
