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
not told to stop keeping or to forget, whoever else has no more use for it. A publisher is owed that word until it has
obeyed it: one that is not there until it is back, and one that is slow until it answers a later word. A daemon that
starts does not know which matchers its predecessor diverted to, nor which of them have died since; the flows to them
are gone. So it owes that word to every publisher that it inherits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from sievenet.control import protocol as p
from sievenet.daemon.orders import Absent, Orders, Unable
from sievenet.errors import SievenetError
from sievenet.session.lifetime import Tasks

__all__ = ["PATIENCE", "Custody"]

log = logging.getLogger("sievenet.daemon")

#: Seconds that a client or matcher has to do what it is told.
PATIENCE: Final = 2.0
#: Seconds that publishers have to pause, and to say what comes next.
PAUSE: Final = 0.5
#: Seconds that newcomers wait at most until a failure is mended.
LONGEST: Final = 10.0


class Custody:
    """``publishing`` names the clients that advertise in a category."""

    def __init__(self, orders: Orders, publishing: Callable[[int], list[str]]) -> None:
        self._orders, self._publishing = orders, publishing
        #: By category and publisher: the words that it has answered, and when.
        self._kept: dict[int, dict[str, deque[tuple[int, float]]]] = {}
        #: The same: the last mark that it has told.
        self._marks: dict[int, dict[str, tuple[int, int]]] = {}
        #: Questions for marks that have not begun, and whose turn it is.
        self._rounds: dict[int, asyncio.Task[dict[str, tuple[int, int]]]] = {}
        self._turns: dict[int, asyncio.Lock] = {}
        self._tasks = Tasks()
        #: Failures of each category that are being mended, and what says that they are.
        self._mending: Counter[int] = Counter()
        self._mended: dict[int, asyncio.Event] = {}
        #: Subscriptions that have begun while nothing was mended, and are under way.
        self._under_way: dict[int, set[asyncio.Task[Any]]] = {}
        #: Publishers that have yet to send again, by category; with the word that says so, 0 if they have not heard it.
        self._owed: dict[int, dict[str, int]] = {}

    def inherit(self, numbers: Iterable[int]) -> None:
        """In these categories there are publishers that may have kept something for a daemon that is no more."""
        for number in numbers:
            self._owed[number] = dict.fromkeys(self._publishing(number), 0)

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._kept))

    async def begin(self, number: int, publishers: Iterable[str]) -> None:
        """Returns when these publishers keep what they send; `Unavailable` if one of them does not."""
        self._kept.setdefault(number, {})
        await asyncio.gather(*(self._say(number, each) for each in publishers))

    async def _say(self, number: int, client: str, forget: int = 0, timeout: float = PATIENCE) -> p.Did:
        did = await self._orders.ask(client, lambda n: p.Retain(n, number, forget=forget), timeout)
        owed = self._owed.get(number, {})
        if 0 < owed.get(client, 0) < did.serial:
            del owed[client]  # words are obeyed one after the other
        if number in self._kept:
            self._marks.setdefault(number, {})[client] = did.incarnation, did.number
            words = self._kept[number].setdefault(client, deque())
            words.append((did.serial, asyncio.get_running_loop().time()))
        return did

    async def marks(self, number: int) -> dict[str, tuple[int, int]]:
        """Incarnation and next number of each publisher, not before now; of one that does not answer at once the last.

        While something is mended they may take longer: what is sent again is not for whoever asks.

        One round of questions at a time: whoever asks while one is under way shares the next.
        """
        if number not in self._rounds:
            self._rounds[number] = self._tasks.begin(self._round(number))
        return await asyncio.shield(self._rounds[number])

    async def _round(self, number: int) -> dict[str, tuple[int, int]]:
        async with self._turns.setdefault(number, asyncio.Lock()):
            del self._rounds[number]  # it begins: what is answered now may be too old for the next who asks
            clients = self._publishing(number) if number in self._kept else []
            patience = PATIENCE if self.mends(number) else PAUSE
            asked = (self._say(number, each, timeout=patience) for each in clients)
            await self._all(asked)
            known = self._marks.get(number, {})
            return {each: known[each] for each in clients if each in known}

    async def renew(self, number: int, passed: float) -> None:
        """Matchers have passed on all that was sent until then: tell publishers what they may forget."""
        told, kept = [], self._kept.get(number)
        if kept is None or self.mends(number):
            return  # nobody has to keep anything since a moment ago; or it is not known what a matcher took along
        for client in self._publishing(number):
            words, forget = kept.get(client, deque()), 0
            while words and words[0][1] <= passed and client not in self._owed.get(number, ()):
                forget = words.popleft()[0]
            told.append(self._say(number, client, forget))
        await self._all(told)

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
        self._marks.pop(number, None)
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
        self._marks.pop(number, None)
        self._kept.pop(number, None)
        self._owed.pop(number, None)

    # -- a matcher fails ------------------------------------------------------------------

    @contextmanager
    def mending(self, number: int) -> Iterator[None]:
        """Until this is over nobody stops keeping, and nobody forgets."""
        self._begins(number)
        try:
            yield
        finally:
            self._ends(number)

    def mend(self, number: int, work: asyncio.Task[Any]) -> None:
        """The same until a task is over, from now on."""
        self._begins(number)
        work.add_done_callback(lambda _: self._ends(number))

    def _begins(self, number: int) -> None:
        self._mending[number] += 1
        self._mended.setdefault(number, asyncio.Event())

    def _ends(self, number: int) -> None:
        self._mending[number] -= 1
        if not self._mending[number]:
            self._mended.pop(number).set()

    async def mended(self, number: int, work: asyncio.Task[Any] | None = None) -> bool:
        """Wait until nothing of a category is mended any more, but not for ever; whether there was something.

        From then on nothing is sent again before ``work`` is done, unless it takes long.
        """
        waited = number in self._mended
        try:
            async with asyncio.timeout(LONGEST):
                while number in self._mended:
                    await self._mended[number].wait()
        except TimeoutError:
            log.warning("category %d: what a matcher lost is not made good after %g s", number, LONGEST)
        if work is not None:
            self._under_way.setdefault(number, set()).add(work)
            work.add_done_callback(partial(self._done, number))
        return waited

    def _done(self, number: int, work: asyncio.Task[Any]) -> None:
        under_way = self._under_way[number]
        under_way.discard(work)
        if not under_way:
            del self._under_way[number]  # anybody can ask for any number

    async def pause(self, number: int) -> None:
        """Returns when publishers send nothing; whoever does not answer is not waited for."""
        order = lambda n: p.Retain(n, number, pause=True)  # noqa: E731
        await self._all(self._orders.give(each, order, PAUSE) for each in self._publishing(number))

    async def again(self, number: int) -> None:
        """Have publishers send what they kept, and go on; subscriptions that are under way know their marks first."""
        if first := self._under_way.get(number):
            await asyncio.wait(first, timeout=PAUSE)
        await self._all(self._return(number, each, True) for each in self._publishing(number))

    async def _return(self, number: int, client: str, keep: bool) -> None:
        """Have a publisher send what it kept; it is owed that until it has done it."""
        owed, last = self._owed.setdefault(number, {}), 0

        def order(serial: int) -> p.Retain:
            nonlocal last
            owed[client] = last = serial
            return p.Retain(serial, number, keep=keep, again=True)

        try:
            await self._orders.give(client, order, PATIENCE)
        except Absent:
            owed[client] = 0
            return
        except Unable as failure:
            log.warning("events may be lost: %s", failure)
        except SievenetError:
            return
        if owed.get(client) == last:  # or it has been told once more
            del owed[client]

    @staticmethod
    async def _all(works: Iterable[Coroutine[Any, Any, object]]) -> None:
        """Do all of it; who is not there or does not answer is not the others' business."""
        for failure in await asyncio.gather(*works, return_exceptions=True):
            if isinstance(failure, BaseException) and not isinstance(failure, SievenetError):
                raise failure

    # -- publishers come and go -----------------------------------------------------------

    def lost(self, client: str) -> None:
        """A connection has ended: what was said on it counts no more."""
        for words in self._kept.values():
            words.pop(client, None)
        for owed in self._owed.values():
            if client in owed:
                owed[client] = 0

    async def welcomed(self, client: str) -> None:
        """A client is there (again); the first that it hears is what it has to keep, and to send again."""
        owed = [number for number, clients in self._owed.items() if client in clients]
        kept = [number for number in self if client in self._publishing(number) and number not in owed]
        again = [self._return(number, client, number in self._kept) for number in owed]
        await self._all([*again, *(self._say(number, client) for number in kept)])

    def left(self, client: str) -> None:
        """A client is gone for good."""
        self.lost(client)
        for owed in self._owed.values():
            owed.pop(client, None)
        for marks in self._marks.values():
            marks.pop(client, None)
