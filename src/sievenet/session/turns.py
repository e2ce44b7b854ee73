"""Turns: messages of all connections are taken in rounds, so that events never wait for all of them.

An event loop runs everything that is ready before it looks at its sockets again. If a hundred connections have
sixteen messages each, an event that comes just then waits for all of them. Here a round is `_ROUND` messages at most,
sixteen of a connection; what came of them is done, and the sockets are looked at before the next round:

    round: a 16, b 16, c 3, d 16 ─▶ requests that they began ─▶ sockets, events ─▶ round: e 16 ⋯

A round is not smaller than that, since requests that come together are cheaper: one write of the journal, one change
of a switch for all. Who is in the next one is decided by `Shares`: by the time that members have used, as it was
measured, not by what they sent, nor by how many connections they have.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable
from typing import Final

from sievenet.session.shares import Shares

__all__ = ["Turns"]

#: Messages of a round.
_ROUND: Final = 64


class Turns:
    """Of all connections of a listener, each of which may have ``most`` messages taken at once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._shares: Shares[asyncio.Future[None]] = Shares()
        #: Messages that are still free in this round.
        self._left = _ROUND
        #: Who had how many in this round, and when it began; None while there is none.
        self._taken: list[tuple[Hashable, int]] = []
        self._begun: float | None = None

    async def begin(self, party: Hashable) -> None:
        """Returns when it is this party's turn; `end` has to follow, without waiting for anything in between."""
        if self._left > 0 and not self._shares:
            self._left -= self._most
            self._open()
            return
        turn = asyncio.get_running_loop().create_future()
        self._shares.wait(party, turn)
        self._open()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.end(party, 0)
            raise

    def end(self, party: Hashable, taken: int) -> None:
        """A turn is over; so many messages were taken."""
        self._left += self._most - taken
        self._taken.append((party, taken))

    def _open(self) -> None:
        if self._begun is None:
            self._begun = time.perf_counter()
            asyncio.get_running_loop().call_soon(self._done)

    def _done(self) -> None:
        """All turns of the round are over; what they began is ready to run."""
        asyncio.get_running_loop().call_soon(self._next)  # behind it

    def _next(self) -> None:
        assert self._begun is not None
        now = time.perf_counter()
        messages = sum(taken for _, taken in self._taken)
        for party, taken in self._taken:
            self._shares.spent(party, (now - self._begun) * taken / messages if messages else 0.0)
        self._taken.clear()
        self._left, self._begun = _ROUND, None
        while self._left > 0 and (found := self._shares.next()) is not None:
            if not found[1].done():
                self._left -= self._most
                found[1].set_result(None)
                self._open()
