"""Packets that a port was given, and who waits until most of them have left.

Packets are counted from the first on, and whoever waits waits for a count, so that packets given later prolong nobody's
wait:

    given   0 ─────────────── left ── until ───────── given
                                      wakes the waiter once sent ≥ submitted − allowed backlog
"""

from __future__ import annotations

import asyncio

from sievenet.errors import Unavailable

__all__ = ["Departures"]


class Departures:
    """Counts and waiters of one port."""

    def __init__(self) -> None:
        #: Packets ever given.
        self.given = 0
        self._left = 0
        self._waiting: dict[asyncio.Future[None], int] = {}

    @property
    def here(self) -> int:
        """Packets that have not left."""
        return self.given - self._left

    async def wait(self, ahead: int) -> None:
        """Until no more than ``ahead`` of the packets given so far are here; `Unavailable` if the port closes."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[done] = self.given - ahead
        try:
            await done
        finally:
            del self._waiting[done]

    def passed(self) -> None:
        """One more was given and has left, and nothing waited in front of it."""
        self.given += 1
        self._left += 1

    def queued(self, count: int) -> None:
        """So many of them have not left."""
        self._left = left = self.given - count
        for waiter, until in self._waiting.items():
            if left >= until and not waiter.done():
                waiter.set_result(None)

    def close(self) -> None:
        """No more will leave: whoever waits is told."""
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(Unavailable("The data port was closed"))
