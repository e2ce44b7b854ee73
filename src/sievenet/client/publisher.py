"""A node as a publisher whose events go through matchers: it keeps what it sent, and sends it again when told to.

Words of the daemon about a category are obeyed one after the other; only a pause takes effect at once, and ends what is
being sent again: it will be said again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Final

from sievenet.client.membership import Membership
from sievenet.client.outbox import Outbox
from sievenet.client.ports.burst import Burst
from sievenet.client.ports.port import DataPort
from sievenet.client.retention import Retention
from sievenet.control import protocol as p
from sievenet.dataplane.packet import Packet
from sievenet.errors import Unavailable
from sievenet.session.lifetime import Tasks

__all__ = ["Publisher"]

#: Packets that may wait for the window when a publisher goes on.
_LOW: Final = 1024
#: Seconds after which a pause ends without another word.
_LONGEST: Final = 5.0
#: Seconds that what was given to the port has to leave.
_FLUSH: Final = 0.5
#: Seconds that leaving takes at most while the daemon asks matchers, and a little.
_DEPARTURE: Final = 8.0
#: Seconds between looks at whether there is room again.
_LOOK: Final = 0.01


class Publisher:
    """What leaves a node goes through here."""

    def __init__(self, session: Callable[[], Membership], outbox: Outbox) -> None:
        self._session, self._outbox = session, outbox
        self.retention = Retention()
        #: What this node has published under.
        self._number = outbox.publisher
        self._tasks = Tasks()
        self._alarms: dict[int, asyncio.TimerHandle] = {}
        self._locks: dict[int, asyncio.Lock] = {}
        #: Pauses of each category so far, and words that something is to be kept.
        self._pauses: Counter[int] = Counter()
        self._keeps: Counter[int] = Counter()

    def send(self, port: DataPort, packets: list[Packet] | Burst) -> bool:
        """Give packets to a port, unless they have to wait; False if the publisher should."""
        if not self.retention.kept:
            return port.send(packets)
        if isinstance(packets, Burst):
            packets.apart = True  # of what shares a packet, some would go by both ways, and overtake
        now = asyncio.get_running_loop().time()
        passed = self.retention.passed(packets, now, self._session().alone)
        sent = port.send(passed) if len(passed) else True
        return sent and not (len(packets) and self.retention.full(_category(packets)))

    async def room(self, port: DataPort, packets: list[Packet] | Burst) -> None:
        """Wait until fewer packets wait at the port, and while what is paused is as much as fits."""
        await port.flushed(_LOW)
        while len(packets) and self.retention.full(_category(packets)):
            await asyncio.sleep(_LOOK)

    def renewed(self) -> None:
        """The connection is another one."""
        if self._outbox.publisher != self._number:
            self._number = self._outbox.publisher
            self.retention.kept.clear()  # nobody would take it: the network that it was sent in is no more
        self.retention.renewed(asyncio.get_running_loop().time())

    def told(self, message: p.Retain) -> None:
        """The daemon says what to keep, or to stop, or to go on."""
        category, now = message.category, asyncio.get_running_loop().time()
        first = message.keep and not self.retention
        if message.keep:
            self.retention.keep(category, message.serial, now, message.forget)
            self._keeps[category] += 1
        if message.pause:
            self.retention.pause(category)
            self._pauses[category] += 1
        self._tasks.begin(self._obey(message, first, self._keeps[category]))

    def _lock(self, category: int) -> asyncio.Lock:
        return self._locks.setdefault(category, asyncio.Lock())

    async def _obey(self, message: p.Retain, first: bool, keeps: int) -> None:
        category, missing = message.category, 0
        async with self._lock(category):
            if message.pause:
                self._arm(category)
            if message.pause or first:
                await self._flush()
            if message.again:
                missing = self.retention.rewind(category)
            if message.again or not message.keep:
                await self._go_on(category)
            if message.again:
                await self._flush()
            if not message.keep and keeps == self._keeps[category]:  # or it is to be kept again, since a moment ago
                self.retention.drop(category)
        trouble = f"{missing} packets that it sent lately were too many to be kept" if missing else ""
        self._session().tell(p.Did(message.serial, trouble, self._outbox.incarnation, self._outbox.next))

    async def _flush(self) -> None:
        """Wait until what was given to the port has left."""
        port = self._session().port
        try:
            async with asyncio.timeout(_FLUSH):
                if port is not None:
                    await port.flushed(0)
        except TimeoutError:
            pass  # what waits there is sent later, perhaps out of its turn

    def _arm(self, category: int) -> None:
        """Go on after a while even if nobody says so."""
        self._disarm(category)
        loop = asyncio.get_running_loop()
        self._alarms[category] = loop.call_later(_LONGEST, lambda: self._tasks.begin(self._alone(category)))

    def _disarm(self, category: int) -> None:
        if (alarm := self._alarms.pop(category, None)) is not None:
            alarm.cancel()

    async def _alone(self, category: int) -> None:
        async with self._lock(category):
            await self._go_on(category)

    async def _go_on(self, category: int) -> None:
        """Send what waits, no faster than the port takes it, and end the pause; unless there is another."""
        self._disarm(category)
        pauses = self._pauses[category]
        while pauses == self._pauses[category] and (packets := self.retention.following(category)) is not None:
            port = self._session().port
            try:
                if port is None:
                    raise Unavailable("The node has no data port at the moment")
                room = port.send(packets)
                self.retention.left(category)
                if not room:
                    await port.flushed(_LOW)
            except Unavailable:
                self._arm(category)
                return

    @contextlib.asynccontextmanager
    async def leaving(self) -> AsyncIterator[None]:
        """While the node leaves: what is paused is sent first, and until the end it may be told to send again."""
        await self._settled()
        # Matchers have to confirm what was sent last.
        self._session().patience = _DEPARTURE if self.retention else 0.0
        try:
            yield
        finally:
            await self.close()

    async def _settled(self) -> None:
        """Nothing waits for the network to change any more."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST):
                while self._alarms or any(lock.locked() for lock in self._locks.values()):
                    await asyncio.sleep(_LOOK)

    async def close(self) -> None:
        """Nothing is kept any more."""
        for alarm in self._alarms.values():
            alarm.cancel()
        await self._tasks.close()


def _category(packets: list[Packet] | Burst) -> int:
    return packets.category if isinstance(packets, Burst) else packets[0].category
