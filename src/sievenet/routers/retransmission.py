"""Events sent to a neighbour, kept until it has them: when its link breaks, they go another way.

    sent ──▶ kept ──▶ Received(number) + a moment ──▶ forgotten
               └────── the link breaks ──▶ flooded to the other neighbours, and to this one when it is back

A neighbour confirms every few messages, and with each greeting. What it confirmed is kept a moment longer, since a
process that dies may not have passed on yet what it had received. Routers recognise what they have seen, so what is
sent once too often costs a message, and no client sees it.

Kept are `LIMIT` bytes for each neighbour; older events are let go (they were sent, after all). If the link breaks
before those are confirmed, they may be lost: `doubtful` counts them.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from sievenet.routers.messages import Carried

__all__ = ["EVERY", "LIMIT", "Unconfirmed"]

#: Bytes of events kept for one neighbour.
LIMIT: Final = 1 << 24
#: Messages after which a neighbour confirms.
EVERY: Final = 32


class Unconfirmed:
    """What one neighbour was sent; ``moment`` is how long confirmed events are kept, in seconds."""

    def __init__(self, moment: float, limit: int = LIMIT) -> None:
        self._moment, self._limit = moment, limit
        self._number = 0
        #: Number, size and message.
        self._kept: deque[tuple[int, int, Carried]] = deque()
        self._bytes = 0
        #: Numbers up to which was confirmed, and when.
        self._confirmed: deque[tuple[float, int]] = deque()
        self._last = 0
        #: Messages let go before they were confirmed: their numbers, and how many events.
        self._let_go: deque[tuple[int, int]] = deque()

    def sent(self, message: Carried) -> None:
        """Events were sent."""
        self._number += 1
        size = len(message.batch) + sum(map(len, message.records)) + 2 * len(message.sequences) + 64
        self._kept.append((self._number, size, message))
        self._bytes += size
        while self._bytes > self._limit:
            number, size, old = self._kept.popleft()
            self._bytes -= size
            if number > self._last:
                self._let_go.append((number, len(old.sequences) // 8))

    def confirmed(self, number: int, now: float) -> None:
        """The neighbour has received that many messages."""
        # More than were sent were never received: of an earlier connection, or a lie.
        if self._last < number <= self._number:
            self._last = number
            self._confirmed.append((now, number))
        while self._let_go and self._let_go[0][0] <= self._last:
            self._let_go.popleft()

    def tidy(self, now: float) -> None:
        """Forget what was confirmed a moment ago."""
        while self._confirmed and self._confirmed[0][0] + self._moment <= now:
            _, number = self._confirmed.popleft()
            while self._kept and self._kept[0][0] <= number:
                self._bytes -= self._kept.popleft()[1]

    def kept(self) -> list[Carried]:
        """What may not have gone further."""
        return [message for _, _, message in self._kept]

    @property
    def doubtful(self) -> int:
        """Events that are neither confirmed nor kept."""
        return sum(events for _, events in self._let_go)
