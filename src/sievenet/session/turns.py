"""Turns: messages of all connections are taken one turn at a time, so that events never wait long.

An event loop runs everything that is ready before it looks at its sockets again. If twenty connections have sixteen
messages each, an event that comes just then waits for all of them. Here one connection has its turn, and what came of
it is done, and the sockets are looked at before the next one has its own:

    turn of a: its messages ─▶ requests that they began ─▶ sockets, events ─▶ turn of b ⋯

How long that takes is measured to the end, with the requests that began. A connection whose turns take longer than
`_LONG` gets fewer messages in its next ones, down to one. Who is next is decided by `Shares`: by the time that
members have used, not by what they sent, nor by how many connections they have.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable
from typing import Final

from sievenet.session.shares import Shares

__all__ = ["Turn", "Turns"]

#: Seconds that a turn should not exceed: an event that comes meanwhile waits for it.
_LONG: Final = 0.0003
#: Messages that are taken at once of a connection that is over its quota: refusing is little work, and costs less
#: together. Of the others its quota lets few pass.
_REFUSED: Final = 64


class Turn:
    """What is kept of a connection: how many messages it is given at once."""

    __slots__ = ("allowed", "most", "refused")

    def __init__(self, most: int) -> None:
        self.most = most
        self.allowed = min(4, most)
        #: Whether the last ones came faster than a quota allows.
        self.refused = False

    @property
    def size(self) -> int:
        """Messages to take now."""
        return max(_REFUSED, self.most) if self.refused else self.allowed

    def took(self, seconds: float) -> None:
        """A turn took so long.

        >>> turn = Turn(16)
        >>> turn.took(0.01); turn.took(0.01); turn.took(0.01); turn.allowed
        1
        >>> for _ in range(9): turn.took(0.0001)
        >>> turn.allowed
        16
        """
        if seconds > _LONG:
            self.allowed = max(1, self.allowed // 2)
        elif 2 * seconds < _LONG:
            self.allowed = min(self.most, 2 * self.allowed)


class Turns:
    """Of all connections of a listener."""

    def __init__(self) -> None:
        self._shares: Shares[asyncio.Future[None]] = Shares()
        #: Somebody has its turn, or what it began is being done.
        self._taken = False
        self._begun = 0.0

    async def begin(self, party: Hashable) -> None:
        """Returns when it is this party's turn; `end` has to follow, without waiting for anything in between."""
        if self._taken:
            turn = asyncio.get_running_loop().create_future()
            self._shares.wait(party, turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._next()
                raise
        self._taken = True
        self._begun = time.perf_counter()

    def end(self, party: Hashable, turn: Turn) -> None:
        """Everything that was to be begun in this turn is."""
        asyncio.get_running_loop().call_soon(self._over, party, turn)  # behind what it began

    def _over(self, party: Hashable, turn: Turn) -> None:
        seconds = time.perf_counter() - self._begun
        turn.took(seconds)
        self._shares.spent(party, seconds)
        self._next()

    def _next(self) -> None:
        while (found := self._shares.next()) is not None:
            if not found[1].done():
                found[1].set_result(None)
                return
        self._taken = False
