"""A node that computes for its router: answers what it is asked, beside its own work.

Answering takes a while, so it is done in a thread, one request after the other; reading goes on meanwhile. What comes
too quickly is left out, and counted: a router does not wait for long, and asks others too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from sievenet.content.filter import Filter
from sievenet.errors import SievenetError
from sievenet.routers.offload.messages import Assign, Claim, Compute, Computed
from sievenet.routers.offload.volunteer import Volunteer
from sievenet.session.lifetime import ended

__all__ = ["Helping"]

log = logging.getLogger("sievenet.client")

#: Requests that may wait.
_QUEUE = 16


class Helping:
    """``send`` takes answers; ``limit`` is how many filters are kept for the router."""

    def __init__(self, send: Callable[[Computed], None], limit: int) -> None:
        self._send = send
        self._limit = limit
        self._volunteer = Volunteer(limit)
        self._queue: asyncio.Queue[Compute | Assign] = asyncio.Queue(_QUEUE)
        self._task = asyncio.create_task(self._work(), name="compute for the router")
        #: Requests answered, left out, and not understood.
        self.answered = self.left_out = self.malformed = 0

    def renew(self) -> None:
        """The connection is another one: whatever was held was for the old one."""
        while not self._queue.empty():
            self._queue.get_nowait()
        self._volunteer = Volunteer(self._limit)

    def take(self, message: Compute | Assign) -> None:
        """The router asks."""
        try:
            self._queue.put_nowait(message)
        except asyncio.QueueFull:
            self.left_out += 1

    def claims(self, category: int, filters: Iterable[Filter]) -> tuple[Claim, ...]:
        """What to say along with a subscription."""
        return self._volunteer.claims(category, filters)

    def statistics(self) -> dict[str, int]:
        """Counts since the node volunteered."""
        return {"answered": self.answered, "left_out": self.left_out, "malformed": self.malformed}

    async def _work(self) -> None:
        while True:
            message, volunteer = await self._queue.get(), self._volunteer
            try:
                if isinstance(message, Assign):
                    await asyncio.to_thread(volunteer.assign, message)
                    continue
                answer = await asyncio.to_thread(volunteer.compute, message)
            except SievenetError as error:
                self.malformed += 1
                log.debug("not computed: %s", error)
                continue
            if volunteer is self._volunteer:
                self._send(answer)
                self.answered += 1

    async def close(self) -> None:
        """Compute no more."""
        await ended(self._task)
