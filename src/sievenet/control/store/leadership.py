"""Leadership: which of several daemons decides, by a cell that only one of them can change at a time.

    cell `leader`    name, term, url, beat         the leader changes it every quarter of a lease

    waiting ── nobody ever led, or the leader left ───────────▶ put(term + 1) ──▶ leading ── put is fenced ──▶ deposed
       ▲ └──── the cell has not changed for a lease ──────────▶     │
       └───────────────────────── fenced: somebody was quicker ─────┘

A lease is measured by whoever waits, with its own clock, from the last change that it saw: no two clocks are compared,
and time in which the store could not be reached does not count.

A leader that was paused does not know that it leads no more.  It need not: the journal, the partitions' logs and the
switches are fenced by the term, see `journal` and `sievenet.control.store`.  The lease only says when to try.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from sievenet.control.store.store import UNREADABLE, Store
from sievenet.errors import CodecError, Fenced, SievenetError

__all__ = ["Leader", "Leadership", "Lease", "read_leader"]

log = logging.getLogger("sievenet.store")

_CELL = "leader"


class Leader(msgspec.Struct, frozen=True):
    """Who leads."""

    #: Nothing if it has left.
    name: str
    term: int
    #: Where clients connect.
    url: str = ""
    beat: int = 0


async def read_leader(store: Store) -> tuple[Leader | None, int]:
    """Who leads, or led last, and the revision of the cell that says so."""
    entry = await store.get(_CELL)
    if entry is None:
        return None, 0
    try:
        return msgspec.json.decode(entry.data, type=Leader), entry.number
    except UNREADABLE as error:
        raise CodecError(expected="a leader", got=str(error), where="cell leader") from None


class Lease:
    """Whether somebody who shows signs of life has shown none for too long.  Pure.

    >>> lease = Lease(3.0)
    >>> [lease.ended(*look) for look in ((7, 0.0), (8, 2.0), (8, 4.9), (8, 5.0))]
    [False, False, False, True]
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._seen: int | None = None
        self._since = 0.0

    def ended(self, sign: int, now: float) -> bool:
        """The sign of life that is seen now: has it been the same for too long?"""
        if sign != self._seen:
            self._seen, self._since = sign, now
        return now - self._since >= self._seconds

    def again(self) -> None:
        """Nobody could look: begin anew."""
        self._seen = None


class Leadership:
    """Held from `win` until it is lost or left."""

    def __init__(self, store: Store, name: str, term: int, revision: int, lease: float) -> None:
        self._store, self._lease, self._revision = store, lease, revision
        self.name, self.term = name, term
        self._url, self._beat = "", 0
        #: Called once, with the reason, when somebody else leads.
        self.on_lost: Callable[[SievenetError], None] | None = None
        self._lost = False
        #: One change of the cell at a time: each compares with the one before.
        self._turn = asyncio.Lock()
        self._task = asyncio.create_task(self._renew(), name="leadership")

    @classmethod
    async def win(
        cls, store: Store, name: str, lease: float, waits: Callable[[Leader], None] | None = None
    ) -> Leadership:
        """Wait until this one leads; `waits` is told once who leads instead."""
        clock, watched, told = asyncio.get_running_loop().time, Lease(lease), 0
        while True:
            begin = clock()
            leader, revision = await read_leader(store)
            if clock() - begin > lease / 2:
                watched.again()  # the store was away, so that nobody could have shown a sign of life
            if leader is None or not leader.name or watched.ended(revision, clock()):
                term = 1 if leader is None else leader.term + 1
                mine = msgspec.json.encode(Leader(name, term))
                try:
                    return cls(store, name, term, await store.put(_CELL, mine, revision), lease)
                except Fenced:
                    continue
            if waits is not None and told != leader.term:
                told = leader.term
                waits(leader)
            await asyncio.sleep(lease / 8)

    async def announce(self, url: str) -> None:
        """Say where clients connect."""
        self._url = url
        await self._put(self.name)

    def lose(self, reason: SievenetError) -> None:
        """Somebody else leads: it was noticed elsewhere."""
        if not self._lost:
            self._lost = True
            log.error("%s leads no more (term %d): %s", self.name, self.term, reason)
            if self.on_lost is not None:
                self.on_lost(reason)

    async def _put(self, name: str) -> None:
        async with self._turn:
            self._beat += 1
            mine = msgspec.json.encode(Leader(name, self.term, self._url, self._beat))
            self._revision = await self._store.put(_CELL, mine, self._revision)

    async def _renew(self) -> None:
        while not self._lost:
            await asyncio.sleep(self._lease / 4)
            try:
                await self._put(self.name)
            except Fenced as error:
                self.lose(error)
            except SievenetError as error:
                log.warning("the lease could not be renewed: %s", error)
            except Exception:
                log.exception("internal error while the lease is renewed (please report)")

    async def leave(self) -> None:
        """Let somebody else lead, at once."""
        try:
            if not self._lost and self._store.reachable:
                async with asyncio.timeout(self._lease):
                    await self._put("")  # behind a change that is under way
        except (SievenetError, TimeoutError) as error:
            reason = str(error) or f"no answer within {self._lease:g} s"
            log.warning("the lease could not be given back, it ends by itself: %s", reason)
        finally:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
