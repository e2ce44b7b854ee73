"""A node as a publisher whose events go through matchers: it keeps what it sent, and sends it again when told to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from sievenet.client.membership import Membership
from sievenet.client.ports.burst import Burst
from sievenet.client.ports.port import DataPort
from sievenet.client.retention import Retention
from sievenet.control import protocol as p
from sievenet.dataplane.packet import Packet
from sievenet.session.lifetime import Tasks

__all__ = ["Publisher"]

#: Packets that may wait for the window when a publisher goes on.
_LOW: Final = 1024
#: Seconds after which a pause ends without another word.
_LONGEST: Final = 5.0
#: Seconds that what was given to the port has to leave.
_FLUSH: Final = 0.5
#: Seconds between looks at whether there is room again.
_LOOK: Final = 0.01


class Publisher:
    """What leaves a node goes through here."""

    def __init__(self, session: Callable[[], Membership]) -> None:
        self._session = session
        self.retention = Retention()
        self._tasks = Tasks()
        self._alarms: dict[int, asyncio.TimerHandle] = {}

    def send(self, port: DataPort, packets: list[Packet] | Burst) -> bool:
        """Give packets to a port, unless they have to wait; False if the publisher should."""
        if not self.retention:
            return port.send(packets)
        now = asyncio.get_running_loop().time()
        passed = self.retention.passed(packets, now)
        sent = port.send(passed) if len(passed) else True
        return sent and not (len(packets) and self.retention.full(_category(packets)))

    async def room(self, port: DataPort, packets: list[Packet] | Burst) -> None:
        """Wait until fewer packets wait at the port, and while what is paused is as much as fits."""
        await port.flushed(_LOW)
        while len(packets) and self.retention.full(_category(packets)):
            await asyncio.sleep(_LOOK)

    def told(self, message: p.Retain) -> None:
        """The daemon says what to keep, or to stop, or to go on."""
        self._tasks.begin(self._obey(message))

    async def _obey(self, message: p.Retain) -> None:
        category, loop = message.category, asyncio.get_running_loop()
        if message.pause:
            self.retention.pause(category)
            self._alarms[category] = loop.call_later(_LONGEST, self._resume, category, False)
            port = self._session().port
            try:
                async with asyncio.timeout(_FLUSH):
                    if port is not None:
                        await port.flushed(0)
            except TimeoutError:
                pass  # what waits there is sent later, perhaps out of its turn
        else:
            self._resume(category, message.again)
            self.retention.keep(category, message.seconds)
        self._session().tell(p.Did(message.serial))

    def _resume(self, category: int, again: bool) -> None:
        if (alarm := self._alarms.pop(category, None)) is not None:
            alarm.cancel()
        port = self._session().port
        for packets in self.retention.resumed(category, asyncio.get_running_loop().time(), again=again):
            if port is not None:
                port.send(packets)

    async def close(self) -> None:
        """Nothing is kept any more; what is paused is sent."""
        for category in list(self._alarms):
            self._resume(category, False)
        await self._tasks.close()


def _category(packets: list[Packet] | Burst) -> int:
    return packets.category if isinstance(packets, Burst) else packets[0].category
