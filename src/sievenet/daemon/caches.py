"""Caches at the daemon: who serves, for which subscriptions, and the words between the two (`control.caching`).

    Cache(client, id) ─▶ choice of a cache ─▶ Assign ─▶ Assumed ─▶ answered
    cache gone        ─▶ CacheLost to its subscribers; the standby takes over, or the same again with another cache

Where there are several caches, each subscription has a *standby* besides: it keeps the same events in its ring, and is
asked when the first one is gone.

Nothing of this is kept on disk: after a restart caches say `ServeCache` again, and clients ask again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from sievenet.access.quota import Bucket
from sievenet.cache.responsibility import Load, choice, move
from sievenet.content.filter import Subscription
from sievenet.control import caching as c
from sievenet.errors import Rejected, SievenetError, Unavailable
from sievenet.session.lifetime import Tasks
from sievenet.session.message import Done, Message

__all__ = ["Caches"]

log = logging.getLogger("sievenet.daemon")

#: Seconds that a cache has to become responsible, and that the old one goes on when a responsibility moves: the ring
#: of the new one has to reach back as far as a subscriber looks.
_PATIENCE: Final = 10.0
_OVERLAP: Final = 5.0
#: Seconds that subscribers wait for a durable cache that is gone and may be started again.
_BACK: Final = 10.0
#: Subscriptions of one client that a cache is responsible for, unless its quota says less.
_MOST: Final = 4096
#: Bytes of all of them; bytes per second that a client may say to caches; and what a word counts besides.
_MOST_BYTES: Final = 1 << 26
_WORDS: Final = 1 << 23
_WORD: Final = 256
#: Seconds without a word after which a subscriber does not report; before a look in which something may have been
#: dropped; and for which a cache keeps what a silent subscriber will ask for.
_SILENT: Final = 1.0
#: Seconds without a word after which a subscriber's responsibility may move.
_QUIET: Final = 3.0
_LOOKED: Final = 3.0
_HELD: Final = 120.0
#: What a row of `status` has from the cache's own words.
_SAID: Final = ("received", "sent", "dropped", "waiting", "memory", "disk", "unwritten", "trouble")


@dataclass
class _Assignment:
    number: int
    client: str
    id: int
    #: What of the subscription is allowed, and the same in bytes.
    held: Subscription
    content: bytes
    past: bool
    #: Events per second; 0 if that is not known.
    limit: float = 0.0
    #: Seconds of the past that are wanted, and of which each cache has all.
    back: float = 0.0
    whole: dict[str, float] = field(default_factory=dict)
    #: When the subscriber last said something to its cache.
    heard: float = float("-inf")
    cache: str | None = None
    #: Keeps the same events, to take over.
    standby: str | None = None
    #: One search for a cache at a time.
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def category(self) -> str:
        """The name of its schema."""
        return "" if self.held.schema is None else self.held.schema.name


class Caches:
    """All caches of one daemon; ``tell`` says something to a client or component and whether it is there."""

    def __init__(self, tell: Callable[[str, Message], bool]) -> None:
        self._tell = tell
        self._loads: dict[str, Load] = {}
        #: What each cache last said of itself.
        self._said: dict[str, c.CacheLoad] = {}
        self._numbers = count(1)
        self._assignments: dict[int, _Assignment] = {}
        self._of: dict[tuple[str, int], int] = {}
        #: How many of them each client has.
        self._held: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        #: What each client may still say to caches.
        self._words: dict[str, Bucket] = {}
        self._waiting: dict[tuple[int, str], asyncio.Future[str]] = {}
        self._tasks = Tasks()
        #: Waits until what is at its switch for a cache now was sent to it; the number of a datagram behind that.
        self.passed: Callable[[str], Awaitable[int]] | None = None
        #: Whether caches see themselves where something was dropped.
        self.sees = False
        self._moving: set[int] = set()

    # -- subscribers ----------------------------------------------------------------------

    async def assign(
        self,
        client: str,
        id: int,
        held: Subscription,
        content: bytes,
        past: bool,
        most: int = 0,
        limit: float = 0.0,
        back: float = 0.0,
    ) -> dict[str, Any]:
        """Have a cache responsible for what is allowed of a subscription (also in bytes); `Unavailable` if none can.

        `Rejected` if a client has more than ``most`` of them, or than `_MOST`.
        """
        number = self._of.get((client, id))
        found = None if number is None else self._assignments[number]
        if self._bytes[client] + len(content) > _MOST_BYTES:
            raise Rejected(f"Expected at most {_MOST_BYTES >> 20} MiB of subscriptions of {client} with a cache")
        if found is None and self._held[client] >= (most or _MOST):
            raise Rejected(f"Expected at most {most or _MOST} subscriptions of {client} with a cache, this is one more")
        if found is None or found.content != content:
            self.end(client, id)
            number = next(self._numbers)
            found = self._assignments[number] = _Assignment(number, client, id, held, content, past, limit, back)
            self._of[client, id] = number
            self._held[client] += 1
            self._bytes[client] += len(content)
        async with found.turn:
            if found.cache is None:
                await self._entrust(found)
                if past:
                    await self._prefer_whole(found)
        if found.standby is None:
            self._tasks.begin(self._again(found))
        return {"cache": found.cache, "number": found.number}

    async def _entrust(self, found: _Assignment) -> None:
        """Find a cache for a subscription."""
        failed: list[str] = []
        reason = "no cache serves this fabric (`sievenet cache` or `sievenet up --caches 1` starts one)"
        while (name := choice(self._loads, self._need(found), past=found.past, without=failed)) is not None:
            error = await self._ask(found, name)
            if not error:
                found.cache = name
                return
            failed.append(name)
            reason = f"{name}: {error}"
            self._loads.get(name, Load()).needs.pop(found.number, None)
        raise Unavailable(f"No cache for the subscription: {reason}")

    async def _prefer_whole(self, found: _Assignment) -> None:
        """If a cache lacks some of the past that is wanted, have its standby serve instead where that lacks less."""
        if found.whole.get(found.cache or "", 0.0) >= found.back:
            return
        await self._stand_by(found)
        first, second = found.cache, found.standby
        if first is None:  # it went meanwhile
            await self._entrust(found)
        elif second is not None and found.whole.get(second, 0.0) > found.whole.get(first, 0.0):
            found.cache, found.standby = second, first

    async def _stand_by(self, found: _Assignment) -> None:
        """Have a second cache keep what a subscription wants."""
        if found.cache is None or found.standby is not None:
            return
        name = choice(self._loads, self._need(found), past=found.past, without=(found.cache,))
        if name is not None and not await self._ask(found, name) and found.number in self._assignments:
            found.standby = name

    async def _ask(self, found: _Assignment, name: str) -> str:
        """Why a cache cannot be responsible; empty if it is."""
        self._loads[name].needs[found.number] = self._need(found)
        answer = asyncio.get_running_loop().create_future()
        self._waiting[found.number, name] = answer
        try:
            if not self._tell(name, c.Assign(found.number, found.client, found.category, found.content)):
                return "not connected"
            async with asyncio.timeout(_PATIENCE):
                return str(await answer)
        except TimeoutError:
            return f"no answer within {_PATIENCE:g} s"
        finally:
            del self._waiting[found.number, name]

    @staticmethod
    def _need(found: _Assignment) -> tuple[str, bytes]:
        return found.category, found.content

    def end(self, client: str, id: int) -> None:
        """A subscription needs no cache any more."""
        number = self._of.pop((client, id), None)
        found = None if number is None else self._assignments.pop(number, None)
        if number is not None:
            self._held[client] -= 1
            if found is not None:
                self._bytes[client] -= len(found.content)
            if not self._held[client]:
                del self._held[client], self._bytes[client]
        if found is not None:
            for name, load in self._loads.items():
                if load.needs.pop(found.number, None) is not None:
                    self._tell(name, c.Unassign(found.number))

    def held(self, client: str) -> list[tuple[int, Subscription]]:
        """The subscriptions of a client that caches are responsible for."""
        if not self._held[client]:
            return []
        return [(each.id, each.held) for each in self._assignments.values() if each.client == client]

    def revoke(self, client: str, id: int) -> None:
        """The rules allow less than a cache is responsible for: it sends no more, and the client asks again."""
        self.end(client, id)
        self._tell(client, c.CacheLost(id))

    # -- messages -------------------------------------------------------------------------

    async def carry_out(self, sender: str, message: Message) -> Message | None:
        """Carry out what a subscriber or a cache says, or asks."""
        if isinstance(message, c.AskPort):
            return Done(message.request, 0 if self.passed is None else await self.passed(sender))
        return self.handle(sender, message)

    def handle(self, sender: str, message: Message) -> Message | None:
        """Carry out what a subscriber or a cache says."""
        match message:
            case c.Uncache(id):
                self.end(sender, id)
            case c.ToCache(id, word):
                self._weigh(sender, len(word))
                found = self._assignments.get(self._of.get((sender, id), 0))
                if found is not None:
                    found.heard = asyncio.get_running_loop().time()
                if found is not None and found.cache is not None:
                    self._tell(found.cache, c.FromSubscriber(found.number, word))
                else:
                    self._tell(sender, c.CacheLost(id))
            case c.ServeCache(request, durable):
                self._serves(sender, durable)
                return Done(request)
            case c.Assumed(number, error, whole):
                answer = self._waiting.get((number, sender))
                if answer is not None and not answer.done():
                    if number in self._assignments:
                        self._assignments[number].whole[sender] = whole
                    answer.set_result(error)
            case c.ToSubscriber(number, word):
                found = self._assignments.get(number)
                if found is not None and found.cache == sender:
                    self._tell(found.client, c.CacheSays(found.id, word))
            case c.CacheLoad() if sender in self._loads:
                load, now = self._loads[sender], asyncio.get_running_loop().time()
                self._said[sender] = message
                load.active = frozenset(message.active) & load.needs.keys()
                load.reported(message.received + message.sent, message.rates, now)
                self._balance(now)
        return None

    def _weigh(self, client: str, size: int) -> None:
        """`Rejected` if a client says more to caches than they, and others who speak to them, can take."""
        words = self._words.setdefault(client, Bucket(_WORDS, 2 * _WORDS))
        if not words.take(size + _WORD, asyncio.get_running_loop().time()):
            raise Rejected(f"Expected at most {_WORDS >> 20} MiB of words to caches per second, {client} says more")

    # -- what switches have counted -------------------------------------------------------

    def watched(self) -> dict[str, float | None]:
        """Whose ports are worth a look, and how many events per second each takes, if that is known."""
        found: dict[str, float | None] = {}
        for each in self._assignments.values():
            before = found.get(each.client, 0.0)
            found[each.client] = None if before is None or not each.limit else before + each.limit
        return found | dict.fromkeys(self._loads)

    def count(self, client: str) -> int:
        """For how many subscriptions of a client caches are responsible."""
        return self._held[client]

    def overran(self, name: str, drops: int, now: float) -> None:
        """A port gave more than its client takes, or dropped packets: who does not know that yet is told."""
        if name in self._loads and drops:
            log.warning("%d packets for the cache %s were dropped", drops, name)
            if not self.sees:
                self._tell(name, c.PortDropped(_LOOKED))
        for found in self._assignments.values():
            if found.client == name and (drops or now - found.heard > _SILENT):
                self._tell(name, c.PortOverran(found.id, _LOOKED if drops else 0.0))
                for cache in (found.cache, found.standby):
                    if cache is not None:
                        self._tell(cache, c.Hold(found.number, _LOOKED, _HELD))

    # -- caches ---------------------------------------------------------------------------

    def _serves(self, name: str, durable: bool) -> None:
        self.lost(name)
        self._loads[name] = Load(durable=durable)
        log.info("%s serves as a cache", name)
        for found in list(self._assignments.values()):
            if found.cache is None or found.standby is None:
                self._tasks.begin(self._again(found))

    def lost(self, name: str) -> None:
        """A cache is gone: its subscribers are told, and others take over."""
        load = self._loads.pop(name, None)
        self._said.pop(name, None)
        if load is None:
            return
        for (_, cache), answer in self._waiting.items():
            if cache == name and not answer.done():
                answer.set_result("it is gone")
        for found in list(self._assignments.values()):
            if found.standby == name:
                found.standby = None
                self._tasks.begin(self._again(found))
            elif found.cache == name:
                found.cache, found.standby = found.standby, None
                patience = _BACK if load.durable and found.cache is None else 0.0
                self._tell(found.client, c.CacheLost(found.id, patience))
                self._tasks.begin(self._again(found))

    def left(self, client: str) -> None:
        """A client or component is gone for good."""
        self.lost(client)
        self._words.pop(client, None)
        for owner, id in [each for each in self._of if each[0] == client]:
            self.end(owner, id)

    async def _again(self, found: _Assignment) -> None:
        async with found.turn:
            with suppress(SievenetError):  # until a cache comes
                if found.cache is None:
                    await self._entrust(found)
                await self._stand_by(found)

    def _balance(self, now: float) -> None:
        """Move responsibilities from a cache with much to one with little."""
        if self._moving:
            return
        first = {number: each.cache for number, each in self._assignments.items() if each.cache is not None}
        numbers, to = move(self._loads, first) or ((), "")
        found = [self._assignments[number] for number in numbers]
        # Who has just said something may be about to be served.
        if all(now - each.heard > _QUIET for each in found):
            self._moving |= set(numbers)
            for each in found:
                self._tasks.begin(self._move(each, to))

    async def _move(self, found: _Assignment, to: str) -> None:
        try:
            before = found.cache
            if before is None or before == to:
                return
            if found.standby == to:
                found.cache, found.standby = to, before
                return
            if await self._ask(found, to):
                return
            await asyncio.sleep(_OVERLAP)
            there = found.number in self._assignments and found.cache == before and to in self._loads
            load = self._loads.get(before)
            if there and load is not None and found.number not in load.active:
                found.cache, gone = to, before
                load.needs.pop(found.number, None)
            else:
                gone = to
                if to in self._loads:
                    self._loads[to].needs.pop(found.number, None)
            self._tell(gone, c.Unassign(found.number))
        finally:
            self._moving.discard(found.number)

    def status(self) -> list[dict[str, Any]]:
        """What each cache has and does."""
        rows = []
        for name, load in sorted(self._loads.items()):
            said = self._said.get(name, c.CacheLoad())
            own = sum(self._assignments[each].cache == name for each in load.needs if each in self._assignments)
            rows.append(
                {
                    "cache": name,
                    "durable": load.durable and not said.trouble,
                    "assigned": own,
                    "standby": len(load.needs) - own,
                    "rate": round(load.rate, 1),
                    "active": len(load.active),
                    **{each: getattr(said, each) for each in _SAID},
                }
            )
        return rows
