"""Orders: what the daemon asks of clients and components, each with a number, until they say that it is done."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

from sievenet.control.protocol import Did
from sievenet.errors import SievenetError, Unavailable
from sievenet.session.message import Message

__all__ = ["Absent", "Orders", "Unable", "quietly"]

log = logging.getLogger("sievenet.daemon")


class Unable(Unavailable):
    """A client says that it cannot do what it was told."""


class Absent(Unavailable):
    """A client is not there: it has not been told."""


class Orders:
    """``say`` tells a client something, and whether it is there."""

    def __init__(self, say: Callable[[str, Message], bool]) -> None:
        self._say = say
        self._serial = count(1)
        self._open: dict[tuple[str, int], asyncio.Future[Did]] = {}

    async def give(self, client: str, order: Callable[[int], Message], timeout: float) -> int:
        """Returns, with the order's number, when the client says that it is done; `Unavailable` if it does not.

        Whoever says that it cannot (`Unable`) is not waited for.
        """
        return (await self.ask(client, order, timeout)).serial

    async def ask(self, client: str, order: Callable[[int], Message], timeout: float) -> Did:
        """The same, with all that the client says."""
        serial = next(self._serial)
        future: asyncio.Future[Did] = asyncio.get_running_loop().create_future()
        self._open[client, serial] = future
        message = order(serial)
        try:
            if not self._say(client, message):
                raise Absent(f"{client} is not there")
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            raise Unavailable(f"{client} did not do {type(message).__name__} within {timeout:g} s") from None
        finally:
            self._open.pop((client, serial), None)

    def done(self, client: str, did: Did) -> None:
        """A client says that an order is carried out, or why it cannot be."""
        future = self._open.get((client, did.serial))
        if future is None or future.done():
            return
        if did.trouble:
            future.set_exception(Unable(f"{client}: {did.trouble}"))
        else:
            future.set_result(did)

    def gone(self, client: str, reason: str = "it is gone") -> None:
        """Nobody waits for a client any more."""
        for (name, _), future in list(self._open.items()):
            if name == client and not future.done():
                future.set_exception(Unavailable(f"{client}: {reason}"))


async def quietly(work: Coroutine[Any, Any, object]) -> None:
    """Nobody waits for this: what cannot be done is said in the log."""
    try:
        await work
    except SievenetError as error:
        log.debug("%s", error)
