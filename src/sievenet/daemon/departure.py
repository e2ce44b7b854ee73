"""Departures: a publisher that leaves may go when matchers have passed on what it sent.

Only publishers can send again what a matcher loses (`custody`), so none should be gone while that may be needed. Who
wants to leave, or to publish no more, has sent everything; then the daemon asks each matcher of its categories:

    publisher        daemon                             matcher
      │ Leave ────────▶ │    (nothing waits for it at its switch)
      │                 │ ── Finish(9) ───────────────▶ │  behind all that waits in its queue
      │                 │ ◀───────────────────── Did(9) │  everything before has left it
      │ ◀────── Done ── │

The loss of a matcher that fails meanwhile is mended as ever, with the help of the publisher, which is still there; then
there is one matcher less to ask. All of this is bounded in time: what is not confirmed then is told to the publisher.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol

from sievenet.control import protocol as p
from sievenet.daemon.custody import PATIENCE, Custody
from sievenet.daemon.matchers import Matcher
from sievenet.daemon.orders import Orders
from sievenet.errors import SievenetError, Unavailable

__all__ = ["LONGEST", "Departure"]

#: Seconds that leaving takes at most for the sake of matchers.
LONGEST: Final = 6.0
#: Seconds between looks at what waits at a switch.
_LOOK: Final = 0.02


class _Hybrid(Protocol):
    matchers: dict[str, Matcher]


class Departure:
    """``waiting`` says how many packets wait for a client at its switch; ``flight`` how long a packet is under way."""

    def __init__(
        self, hybrid: _Hybrid, custody: Custody, orders: Orders, waiting: Callable[[str], int], flight: float
    ) -> None:
        self._hybrid, self._custody, self._orders = hybrid, custody, orders
        self._waiting, self._flight = waiting, flight

    async def passed(self, client: str) -> str:
        """Wait until all that a client sent is passed on; if it is not, why."""
        concerned = [number for number in self._custody.of(client) if self._concerned(number)]
        if not concerned:
            return ""
        try:
            async with asyncio.timeout(LONGEST):
                await asyncio.gather(*map(self._passed, concerned))
        except TimeoutError:
            slow = sorted({each.name for number in concerned for each in self._serving(number)})
            return f"{', '.join(slow) or 'a matcher'} did not confirm within {LONGEST:g} s what was published last"
        return ""

    def _serving(self, number: int) -> list[Matcher]:
        return [each for each in self._hybrid.matchers.values() if each.regions(number)]

    def _concerned(self, number: int) -> bool:
        return bool(self._serving(number)) or self._custody.mends(number)

    async def _passed(self, number: int) -> None:
        """Each matcher has said so, or is given up and its loss is mended."""
        await asyncio.sleep(self._flight)
        asked: set[str] = set()
        while True:
            if self._custody.mends(number):
                await self._custody.mended(number)
                await asyncio.sleep(self._flight)  # what was sent again is under way
            rest = [each.name for each in self._serving(number) if each.name not in asked]
            if not rest:
                return
            for name in rest:
                if await self._confirmed(name):
                    asked.add(name)

    async def outlived(self, number: int, name: str, deploy: Callable[[], Awaitable[None]]) -> None:
        """What a matcher still had when its diversions ended is passed on, or sent again when they are gone."""
        if await self._confirmed(name):
            return
        await self._custody.pause(number)
        with suppress(SievenetError):
            await deploy()
        await asyncio.sleep(self._flight)
        await self._custody.again(number)

    async def drained(self, name: str) -> None:
        """Wait until nothing waits for a matcher at its switch; `Unavailable` if it is given up, or for too long."""
        try:
            async with asyncio.timeout(PATIENCE):
                while self._waiting(name):
                    if name not in self._hybrid.matchers:
                        raise Unavailable(f"{name} is given up")
                    await asyncio.sleep(_LOOK)
        except TimeoutError:
            raise Unavailable(f"{name} did not take what waits for it within {PATIENCE:g} s") from None

    async def _confirmed(self, name: str) -> bool:
        try:
            await self.drained(name)
            await self._orders.give(name, lambda n: p.Finish(n, 0, self._flight), PATIENCE)
        except Unavailable:
            await asyncio.sleep(_LOOK)  # it is slow, or is given up in this moment
            return False
        return True
