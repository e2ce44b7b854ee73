"""How many advertisements and subscriptions there are, by category and by client.

Counting means going through all of them, which takes a moment when there are a hundred thousand; so it is done only if
requests were answered since the last time, and events get their turn in between.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from sievenet.control.plane import ControlPlane

__all__ = ["Census"]

#: Registrations counted before others get their turn.
_TURN: Final = 200
#: A census is taken again at most after this many times as long as it took.
_REST: Final = 20.0


class Census:
    """The counts of the last time, or of now if that is cheap or something has changed."""

    def __init__(self, control: ControlPlane) -> None:
        self._control = control
        self._answered = -1
        self._next = 0.0
        self.by_category: Counter[tuple[str, str]] = Counter()
        self.by_client: Counter[tuple[str, str]] = Counter()

    async def take(self) -> None:
        """Count again, if there is a reason to."""
        loop = asyncio.get_running_loop()
        answered = self._control.status().answered
        begin = loop.time()
        if answered == self._answered or begin < self._next:
            return
        by_category: Counter[tuple[str, str]] = Counter()
        by_client: Counter[tuple[str, str]] = Counter()
        for i, (client, kind, _, category, _) in enumerate(self._control.registrations(), 1):
            by_category[category, kind] += 1
            by_client[client, kind] += 1
            if i % _TURN == 0:
                await asyncio.sleep(0)
        self.by_category, self.by_client, self._answered = by_category, by_client, answered
        took = loop.time() - begin
        # A few hundred registrations are counted every time; many only now and then.
        self._next = begin + (took * _REST if took > 0.02 else 0.0)
