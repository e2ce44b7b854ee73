"""A cache host: a component that subscribes to what it is responsible for, and sends to subscribers at their pace.

    packets ─▶ take ─▶ Cache.arrive ─┐                     ┌─▶ directed delivery ─▶ subscribers
    daemon ──▶ instructed ───────────┴─▶ pump: send, tick ─┤
                                                           └─▶ ToSubscriber ─▶ daemon ─▶ subscribers

One task, the *pump*, sends: as soon as something comes that may go, and every ten milliseconds while somebody is
served. A stream with several members is sent once, to a number that reaches all of them; until the daemon has given
that number, once to each.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import product
from typing import Any, Final, Self

import numpy as np

from sievenet.access.login import Login
from sievenet.cache import messages
from sievenet.cache.cache import Cache, CacheStatistics, Sending
from sievenet.cache.ring import Ring
from sievenet.cachehost.disks import Disks
from sievenet.cachehost.envelope import gathered, inside, joined, record_of, records_of, rows_of
from sievenet.cachehost.filters import SchemaFilters
from sievenet.cachehost.settings import CacheSettings, claimed
from sievenet.client.component import ComponentNode, DirectedSender
from sievenet.client.directed import wrapped, wrapped_many
from sievenet.client.interest import Wanted, understood
from sievenet.client.ports.burst import Arrivals
from sievenet.client.registrations import Registration
from sievenet.content.codec import decode_subscription
from sievenet.content.filter import Subscription
from sievenet.control import caching as c
from sievenet.control.directed import twin_schema
from sievenet.dataplane.packet import Packet
from sievenet.errors import CodecError, SievenetError
from sievenet.session.lifetime import Starting, Tasks

__all__ = ["CacheHost", "CacheSettings"]

log = logging.getLogger("sievenet.cache")

#: Seconds between looks while somebody is served, while nobody is, and between reports to the daemon.
_BUSY: Final = 0.01
_QUIET: Final = 0.1
_REPORT: Final = 1.0
#: Needs whose rates are reported at most.
_NEEDS: Final = 4096
#: Seconds after which what is on its way is asked about again.
_PATIENCE: Final = 2.0


class _Assignment:
    """One subscription that this cache is responsible for."""

    def __init__(self, client: str, category: str, entry: Registration, since: float) -> None:
        self.client, self.category, self.entry = client, category, entry
        #: Since when everything that it wants comes here.
        self.since = since
        self.recipient = 0


class CacheHost(Starting):
    """Use as an async context manager, or `start` and `close`."""

    def __init__(
        self,
        url: str | None,
        settings: CacheSettings | None = None,
        *,
        name: str | None = None,
        host: str | None = None,
        keep: Iterable[Wanted] = (),
        login: Login | None = None,
        timeout: float = 30.0,
    ) -> None:
        self.settings = settings or CacheSettings()
        self.settings.check()
        #: Holds its folder.
        self._claim: int | None = None
        self.core = Cache(max_events=self.settings.queue)
        self._keep = tuple(keep)
        #: What is kept in any case, and since when.
        self._kept: list[tuple[Subscription, float]] = []
        self._node = ComponentNode(
            url, self._take, name=name, host=host, login=login, timeout=timeout, instructed=self._instructed
        )
        self._names: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._rings: dict[str, Ring] = {}
        self._assigned: dict[int, _Assignment] = {}
        self._senders: dict[str, DirectedSender] = {}
        self._opening = asyncio.Lock()
        self._groups: dict[tuple[str, frozenset[str]], int | None] = {}
        self._wake = asyncio.Event()
        self._tasks = Tasks()
        self._losses = self._drops = 0
        self._disks = Disks(self._rings)
        self._offset: float | None = None

    # -- life -----------------------------------------------------------------------------

    async def start(self) -> Self:
        """Connect and serve; raises if that is not possible."""
        if self.settings.folder is not None and self.settings.disk:
            self._claim = claimed(self.settings.folder)
        try:
            await self._node.start()
        except BaseException:
            self._release()
            raise
        try:
            for each in self._keep:
                _, wanted = await understood(each, self._node.schema, schemaless=False)
                name = await self._open(wanted)
                await self._node.want(wanted)
                # What a durable ring still has was kept too.
                self._kept.append((wanted, min(self._now(), self._rings[name].oldest or self._now())))
            await self._serve()
        except BaseException:
            await self._node.close()
            self._release()
            raise
        self._tasks.begin(self._pump())
        self._tasks.begin(self._report())
        return self

    async def _serve(self) -> None:
        durable = self.settings.durable
        await self._node.call(lambda number: c.ServeCache(number, durable))

    async def close(self) -> None:
        """Say goodbye and stop."""
        await self._tasks.close()
        await self._node.close()
        self._release()

    def _release(self) -> None:
        if self._claim is not None:
            os.close(self._claim)
            self._claim = None

    @property
    def name(self) -> str:
        """Its name in the fabric."""
        return self._node.name

    @property
    def host(self) -> str:
        """The host where it is attached."""
        return self._node.host

    def statistics(self) -> CacheStatistics:
        """What it holds and did."""
        return self.core.statistics()

    def _now(self) -> float:
        """Seconds since 1970 that never jump: what is on disk is read by later processes."""
        loop = asyncio.get_running_loop()
        if self._offset is None:
            self._offset = time.time() - loop.time()
        return loop.time() + self._offset

    # -- responsibilities -----------------------------------------------------------------

    async def _open(self, wanted: Subscription) -> str:
        """Keep a category."""
        schema = wanted.schema
        assert schema is not None
        category = await self._node.category(schema.name)
        if schema.name not in self._rings:
            # Several subscriptions may be assigned at once: whoever finds a ring finds its sender too.
            async with self._opening:
                if schema.name not in self._rings:
                    self._senders[schema.name] = await self._node.directed(schema.name)
                    ring = self._rings[schema.name] = self.settings.ring(schema.name)
                    self.core.open(schema.name, lambda: ring, SchemaFilters(category.schema), self._now())
        self._names[category.number] = schema.name
        self._numbers[schema.name] = category.number
        return schema.name

    def _instructed(self, message: Any) -> None:
        match message:
            case c.Assign(number, client, category, content):
                self._tasks.begin(self._assign(number, client, category, content))
            case c.Unassign(number):
                self._tasks.begin(self._unassign(number))
            case c.Hold(number, back, seconds):
                self.core.hold(number, back, self._now() + seconds, self._now())
            case c.PortDropped(back):
                self.core.missed(self._now(), back)
            case c.FromSubscriber(number, word):
                self._hear(number, word)

    async def _assign(self, number: int, client: str, name: str, content: bytes) -> None:
        error, whole = "", 0.0
        try:
            category = await self._node.category(name)
            wanted = decode_subscription(category.schema, content)
            await self._open(wanted)
            entry = await self._node.want(wanted)
            found = _Assignment(client, name, entry, self._since(wanted))
            found.recipient, absent = await self._senders[name].recipient([client])
            if absent:
                raise SievenetError(f"{client} cannot be reached")
            self._assigned[number] = found
            self._groups[name, frozenset([client])] = found.recipient
            self.core.assign(number, name, wanted, (name, content), found.since)
            whole = self.core.whole(number, self._now())
        except SievenetError as problem:
            error = str(problem)[:256] or "failed"
            log.warning("subscription of %s in %s: %s", client, name, error)
        self._node.tell(c.Assumed(number, error, whole))

    def _since(self, wanted: Subscription) -> float:
        """Since when everything that is wanted comes here."""
        known = [*self._kept, *((each.entry.wanted, each.since) for each in self._assigned.values())]
        covering = [since for kept, since in known if kept.schema == wanted.schema and kept.covers(wanted)]
        return min(covering, default=self._now())

    async def _unassign(self, number: int) -> None:
        self.core.unassign(number)
        found = self._assigned.pop(number, None)
        if found is None:
            return
        with suppress(SievenetError):
            await self._node.unwant(found.entry)
            if all(each.client != found.client or each.category != found.category for each in self._assigned.values()):
                self._groups.pop((found.category, frozenset([found.client])), None)
                await self._senders[found.category].release(found.recipient)

    def _hear(self, number: int, word: bytes) -> None:
        try:
            answer = self.core.hear(number, messages.decoded(word), self._now())
        except CodecError as error:
            log.warning("subscription %d: %s", number, error)
            return
        if answer is not None:
            self._node.tell(c.ToSubscriber(number, messages.encoded(answer)))
        self._wake.set()

    # -- packets --------------------------------------------------------------------------

    def _take(self, packets: list[Packet] | Arrivals) -> None:
        now = self._now()
        if isinstance(packets, Arrivals):
            name = self._names.get(packets.category)
            if name is not None:
                heads = packets.heads
                keys = (heads["publisher"], heads["incarnation"], heads["sequence"])
                self.core.arrive(name, records_of(packets), now, keys)
        else:
            some: dict[str, list[bytes]] = {}
            for packet in packets:
                name = self._names.get(packet.category)
                if name is not None:
                    some.setdefault(name, []).append(record_of(packet))
            for name, records in some.items():
                self.core.arrive(name, records, now)
        self._look_at_port(now)
        if self.core.active:
            self._wake.set()

    def _look_at_port(self, now: float) -> None:
        """What the port has dropped is behind what was last known to be whole."""
        drops = self._node.drops
        if drops > self._drops:
            self.core.missed(now)
        else:
            self.core.sure()
        self._drops = drops

    async def _look_through(self, look: int) -> None:
        """Say when all that was on its way when this began has come; never, if the connection is lost."""
        losses = self._node.losses
        while self._node.losses == losses:
            try:
                async with asyncio.timeout(_PATIENCE):
                    await self._node.caught_up()
            except (SievenetError, TimeoutError) as error:
                log.debug("%s: %s", self.name, error)
                await asyncio.sleep(_QUIET)
                continue
            self._look_at_port(self._now())
            self.core.looks.end(look)
            self._wake.set()
            return

    async def _pump(self) -> None:
        """Send what may go, and look at the time."""
        looked = self._now()
        while True:
            pause = _BUSY if self.core.active else _QUIET
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.001, looked + pause - self._now())):
                    await self._wake.wait()
            self._wake.clear()
            if self._now() >= looked + pause:
                looked = self._now()
                self._look_at_port(looked)
                for number, word in self.core.tick(looked):
                    self._node.tell(c.ToSubscriber(number, messages.encoded(word)))
            if self._node.losses != self._losses:
                await self._returned()
            if (look := self.core.looks.begin()) is not None:
                self._tasks.begin(self._look_through(look))
            try:
                for sending in self.core.send(self._now()):
                    await self._send(sending)
            except SievenetError as error:
                # What was not sent is missed by subscribers, and sent again.
                log.warning("%s: %s", self.name, error)
                await asyncio.sleep(_QUIET)

    async def _returned(self) -> None:
        """The connection was lost, and something may have passed by: serve anew."""
        if not self._node.connected:
            return
        self._losses = self._node.losses
        self.core.interrupted(self._now())
        for number in list(self._assigned):
            self.core.unassign(number)
            with suppress(SievenetError):
                await self._node.unwant(self._assigned.pop(number).entry)
        self._groups.clear()
        for name in list(self._numbers):
            category = await self._node.category(name)
            self._names[category.number] = name
            self._numbers[name] = category.number
        await self._serve()

    async def _send(self, sending: Sending) -> None:
        number, twin = self._numbers[sending.category], twin_schema(sending.category).name
        recipients = self._recipients(sending)
        for run in sending.runs:
            rows = rows_of(run, number) if run.leaver is None else None
            if rows is None:
                packets = joined(inside(run, number))
                bodies = [(one, wrapped(one, each)) for one in recipients for each in packets]
                await self._node.send_packets(twin, bodies)
                continue
            for recipient, matrix in product(recipients, gathered(rows)):
                to = np.full(len(matrix), recipient, np.uint32)
                await self._node.send_burst(twin, to, wrapped_many(to, matrix))

    def _recipients(self, sending: Sending) -> list[int]:
        """The number that reaches all members; one for each of them until there is such a number."""
        members = [found for number in sending.members if (found := self._assigned.get(number)) is not None]
        clients = frozenset(found.client for found in members)
        key = (sending.category, clients)
        if key not in self._groups:
            self._groups[key] = None
            self._tasks.begin(self._number(key))
        recipient = self._groups[key]
        return [recipient] if recipient is not None else sorted({found.recipient for found in members})

    async def _number(self, key: tuple[str, frozenset[str]]) -> None:
        category, clients = key
        try:
            recipient, absent = await self._senders[category].recipient(sorted(clients))
        except SievenetError as error:
            log.debug("group of %d clients: %s", len(clients), error)
            return
        if not absent and key in self._groups:
            self._groups[key] = recipient

    async def _report(self) -> None:
        """Tell the daemon what is done here."""
        while True:
            await asyncio.sleep(_REPORT)
            now = self.core.statistics()
            disk = sum(ring.disk for ring in self._rings.values())
            for complaint in self._disks.complaints(self._now()):
                log.warning("%s: %s", self.name, complaint)
            active, rates = tuple(self.core.served), tuple(self.core.rates(self._now())[:_NEEDS])
            load = (now.received, now.sent, now.dropped, now.waiting, now.memory, disk, active, rates)
            self._node.tell(c.CacheLoad(*load, *self._disks.trouble(self._now())))
