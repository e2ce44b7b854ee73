"""Orders: what the daemon asks of clients and components, each with a number, until they say that it is done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

from sievenet.errors import Unavailable
from sievenet.session.message import Message

__all__ = ["Orders", "Unable"]


class Unable(Unavailable):
    """A client says that it cannot do what it was told."""


class Orders:
    """``say`` tells a client something, and whether it is there."""

    def __init__(self, say: Callable[[str, Message], bool]) -> None:
        self._say = say
        self._serial = count(1)
        self._open: dict[tuple[str, int], asyncio.Future[None]] = {}

    async def give(self, client: str, order: Callable[[int], Message], timeout: float) -> int:
        """Returns, with the order's number, when the client says that it is done; `Unavailable` if it does not.

        Whoever says that it cannot (`Unable`) is not waited for.
        """
        serial = next(self._serial)
        future = self._open[client, serial] = asyncio.get_running_loop().create_future()
        message = order(serial)
        try:
            if not self._say(client, message):
                raise Unavailable(f"{client} is not there")
            async with asyncio.timeout(timeout):
                await future
        except TimeoutError:
            raise Unavailable(f"{client} did not do {type(message).__name__} within {timeout:g} s") from None
        finally:
            self._open.pop((client, serial), None)
        return serial

    def done(self, client: str, serial: int, trouble: str = "") -> None:
        """A client says that an order is carried out, or why it cannot be."""
        future = self._open.get((client, serial))
        if future is None or future.done():
            return
        if trouble:
            future.set_exception(Unable(f"{client}: {trouble}"))
        else:
            future.set_result(None)

    def gone(self, client: str, reason: str = "it is gone") -> None:
        """Nobody waits for a client any more."""
        for (name, _), future in list(self._open.items()):
            if name == client and not future.done():
                future.set_exception(Unavailable(f"{client}: {reason}"))
