"""Custody: what publishers keep while events go through matchers, and when they may forget it.

A matcher that dies has taken events along, and for how long that goes unnoticed nobody can promise: a machine may be
slow. So nothing is forgotten by the clock (`client.retention`). Publishers are told again and again, and what was sent
before one of these words is forgotten when every matcher has passed on what it could have got by then:

    daemon                                publisher
      │ ── Retain(5) ─────────────────────▶ │
      │ ◀───────────────────────── Did(5) ─ │      at t: all that was sent before word 5 has left it
      │   every matcher has passed on all that reached it until t and a little (`Matcher.passed`)
      │ ── Retain(9, forget=5) ───────────▶ │

When a matcher dies publishers *pause*, and send what they kept *again* when the network has changed. Meanwhile they are
not told to stop keeping, whoever else has no more use for it. A publisher that is not there just then is owed that word
until it is back. A daemon that starts does not know which matchers its predecessor diverted to, nor which of them have
died since; the flows to them are gone. So it owes that word to every publisher that it inherits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from sievenet.control import protocol as p
from sievenet.daemon.orders import Orders, Unable
from sievenet.errors import SievenetError
from sievenet.session.lifetime import Tasks

__all__ = ["PATIENCE", "Custody"]

log = logging.getLogger("sievenet.daemon")

#: Seconds that a client or matcher has to do what it is told.
PATIENCE: Final = 2.0
#: Seconds that publishers have to pause.
PAUSE: Final = 0.5


class Custody:
    """``publishing`` names the clients that advertise in a category."""

    def __init__(self, orders: Orders, publishing: Callable[[int], list[str]]) -> None:
        self._orders, self._publishing = orders, publishing
        #: By category and publisher: the words that it has answered, and when.
        self._kept: dict[int, dict[str, deque[tuple[int, float]]]] = {}
        #: Questions for marks that have not begun, and whose turn it is.
        self._rounds: dict[int, asyncio.Task[dict[str, tuple[int, int]]]] = {}
        self._turns: dict[int, asyncio.Lock] = {}
        self._tasks = Tasks()
        #: Failures of each category that are being mended.
        self._mending: Counter[int] = Counter()
        #: Publishers that have yet to hear that they are to send again, by category.
        self._owed: dict[int, set[str]] = {}

    def inherit(self, numbers: Iterable[int]) -> None:
        """In these categories there are publishers that may have kept something for a daemon that is no more."""
        for number in numbers:
            self._owed[number] = set(self._publishing(number))

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._kept))

    async def begin(self, number: int, publishers: Iterable[str]) -> None:
        """Returns when these publishers keep what they send; `Unavailable` if one of them does not."""
        self._kept.setdefault(number, {})
        await asyncio.gather(*(self._say(number, each) for each in publishers))

    async def _say(self, number: int, client: str, forget: int = 0, timeout: float = PATIENCE) -> p.Did:
        did = await self._orders.ask(client, lambda n: p.Retain(n, number, forget=forget), timeout)
        if number in self._kept:
            words = self._kept[number].setdefault(client, deque())
            words.append((did.serial, asyncio.get_running_loop().time()))
        return did

    async def marks(self, number: int) -> dict[str, tuple[int, int]]:
        """Incarnation and next number of each publisher, not before now; without those that do not answer at once.

        One round of questions at a time: whoever asks while one is under way shares the next.
        """
        if number not in self._rounds:
            self._rounds[number] = self._tasks.begin(self._round(number))
        return await asyncio.shield(self._rounds[number])

    async def _round(self, number: int) -> dict[str, tuple[int, int]]:
        async with self._turns.setdefault(number, asyncio.Lock()):
            del self._rounds[number]  # it begins: what is answered now may be too old for the next who asks
            clients = self._publishing(number) if number in self._kept else []
            asked = (self._say(number, each, timeout=PAUSE) for each in clients)
            answers = zip(clients, await asyncio.gather(*asked, return_exceptions=True), strict=True)
            return {name: (did.incarnation, did.number) for name, did in answers if isinstance(did, p.Did)}

    async def renew(self, number: int, passed: float) -> None:
        """Matchers have passed on all that was sent until then: tell publishers what they may forget."""
        told, kept = [], self._kept.get(number)
        if kept is None:
            return  # nobody has to keep anything since a moment ago
        for client in self._publishing(number):
            words, forget = kept.get(client, deque()), 0
            while words and words[0][1] <= passed:
                forget = words.popleft()[0]
            told.append(self._say(number, client, forget))
        for failure in await asyncio.gather(*told, return_exceptions=True):
            if isinstance(failure, BaseException) and not isinstance(failure, SievenetError):
                raise failure

    def of(self, client: str) -> list[int]:
        """The categories in which a client keeps what it sends."""
        return [number for number in self if client in self._publishing(number)]

    def mends(self, number: int) -> bool:
        """Whether what a matcher lost is being sent again."""
        return self._mending[number] > 0

    def end(self, number: int) -> list[str]:
        """Publishers need not keep anything of a category, unless something is being mended; who is to be told."""
        if self._mending[number] or self._kept.pop(number, None) is None:
            return []
        return self._publishing(number)

    async def tell(self, number: int, client: str) -> None:
        """Tell a publisher that it need not keep anything; unless that has changed."""
        if number not in self._kept:
            await self._orders.give(client, lambda n: p.Retain(n, number, keep=False), PATIENCE)

    async def close(self) -> None:
        """Ask nobody any more."""
        await self._tasks.close()

    def drop(self, number: int) -> None:
        """A category is no more."""
        self._kept.pop(number, None)
        self._owed.pop(number, None)

    # -- a matcher fails ------------------------------------------------------------------

    @contextmanager
    def mending(self, number: int) -> Iterator[None]:
        """Until this is over nobody stops keeping."""
        self._mending[number] += 1
        try:
            yield
        finally:
            self._mending[number] -= 1

    async def pause(self, number: int) -> None:
        """Returns when publishers send nothing; whoever does not answer is not waited for."""
        await self._all(number, lambda n: p.Retain(n, number, pause=True), PAUSE)

    async def again(self, number: int) -> None:
        """Have publishers send what they kept, and go on."""
        failures = await self._all(number, lambda n: p.Retain(n, number, again=True), PATIENCE)
        for client, failure in failures:
            if isinstance(failure, Unable):
                log.warning("events may be lost: %s", failure)
            else:
                self._owed.setdefault(number, set()).add(client)

    async def _all(
        self, number: int, order: Callable[[int], p.Retain], timeout: float
    ) -> list[tuple[str, SievenetError]]:
        clients, failed = self._publishing(number), []
        given = (self._orders.give(each, order, timeout) for each in clients)
        for client, failure in zip(clients, await asyncio.gather(*given, return_exceptions=True), strict=True):
            if isinstance(failure, SievenetError):
                failed.append((client, failure))
            elif isinstance(failure, BaseException):
                raise failure
        return failed

    # -- publishers come and go -----------------------------------------------------------

    def lost(self, client: str) -> None:
        """A connection has ended: what was said on it counts no more."""
        for words in self._kept.values():
            words.pop(client, None)

    async def welcomed(self, client: str) -> None:
        """A client is there (again); the first that it hears is what it has to keep, and to send again."""
        owed = [number for number, clients in self._owed.items() if client in clients]
        kept = [number for number in self if client in self._publishing(number) and number not in owed]
        for number in owed:
            self._owed[number].discard(client)
        again = [self._orders.give(client, self._return(n, n in self._kept), PATIENCE) for n in owed]
        words = [self._say(number, client) for number in kept]
        answers = await asyncio.gather(*again, *words, return_exceptions=True)
        for number, failure in zip([*owed, *kept], answers, strict=True):
            if isinstance(failure, Unable):
                log.warning("events may be lost: %s", failure)
            elif isinstance(failure, SievenetError) and number in owed:
                self._owed[number].add(client)

    @staticmethod
    def _return(number: int, keep: bool) -> Callable[[int], p.Retain]:
        return lambda n: p.Retain(n, number, keep=keep, again=True)

    def left(self, client: str) -> None:
        """A client is gone for good."""
        self.lost(client)
        for clients in self._owed.values():
            clients.discard(client)
