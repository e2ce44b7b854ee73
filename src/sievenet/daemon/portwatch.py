"""A watch on ports: what switches have counted shows who is overrun and does not say so.

A subscriber reports an overload itself (`cache.overload`), and a cache asks its own port what that dropped. Neither can
when it is stopped, or when packets were dropped before they came to it. The switch has counted them:

    port of …      counters show             who is told
    a cache        drops                     the cache: subscribers hear what may be missing
    a subscriber   drops                     the subscriber: it asks its cache for what it lacks
    a subscriber   more than its limit       the same; its cache keeps what it will ask for, however long that takes

The rate of a port says something about limits only if every subscription behind it has one. Ports are looked at twice
a second, those of caches and of subscribers with a cache alone. Where datagrams have numbers, one is left out for what
was dropped, and a cache that reads its port sees where; there it is told nothing.

A cache asks besides whether all that was sent to it has left the switch (`passed`, see `cache.looks`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from contextlib import suppress
from typing import Final

from sievenet.cache.overload import PortMeter
from sievenet.control.directed import is_twin
from sievenet.control.plane import ControlPlane
from sievenet.daemon.caches import Caches
from sievenet.daemon.planes import AnyPlane
from sievenet.dataplane.embedded import EmbeddedDataPlane
from sievenet.dataplane.plane import PortCount
from sievenet.errors import SievenetError, Unavailable
from sievenet.network.topology import Attachment

__all__ = ["PortWatch"]

log = logging.getLogger("sievenet.daemon")

#: Seconds between looks.
EVERY: Final = 0.5
#: A port gives so many times the limits before its subscriber counts as overrun: it has a buffer, and clocks differ.
_TIMES: Final = 1.2
#: Seconds that a cache waits for what is at its switch for it; then it asks again.
_PATIENCE: Final = 5.0


class PortWatch:
    """Looks at ports as long as it runs."""

    def __init__(self, plane: AnyPlane, control: ControlPlane, caches: Caches) -> None:
        self._plane, self._control, self._caches = plane, control, caches
        self._meters: dict[str, PortMeter] = {}
        caches.passed, caches.sees = self.passed, isinstance(plane, EmbeddedDataPlane)

    async def run(self) -> None:
        """Look now and then."""
        while True:
            await asyncio.sleep(EVERY)
            try:
                await self.look(asyncio.get_running_loop().time())
            except SievenetError as error:
                log.debug("ports were not looked at: %s", error)

    async def look(self, now: float) -> None:
        """Look once."""
        watched, attached = self._caches.watched(), self._plane.clients()
        self._meters = {name: self._meters.get(name, PortMeter()) for name in watched if name in attached}
        counted = await self._counted({attached[name].attachment for name in self._meters})
        for name, meter in self._meters.items():
            found = counted.get(attached[name].attachment)
            if found is None:
                continue
            meter.looked(found.sent.packets, found.dropped, now)
            limit = watched[name]
            over = limit is not None and meter.rate > _TIMES * limit and self._alone(name)
            if meter.drops or over:
                self._caches.overran(name, meter.drops, now)

    async def passed(self, name: str) -> int:
        """Wait until what waits for a cache at its switch was sent to it, and it was told what was dropped before.

        Returns the number of a datagram behind all that, or 0 where datagrams have none.
        """
        try:
            async with asyncio.timeout(_PATIENCE):
                if isinstance(self._plane, EmbeddedDataPlane):
                    return await self._plane.endpoint_of(name).passed()
                place = self._plane.clients()[name].attachment
                found, now = (await self._counted({place})).get(place), asyncio.get_running_loop().time()
                if found is not None:
                    meter = self._meters.setdefault(name, PortMeter())
                    meter.looked(found.sent.packets, found.dropped, now)
                    if meter.drops:
                        self._caches.overran(name, meter.drops, now)
                return 0
        except TimeoutError:
            raise Unavailable(f"{name} did not take what waits for it within {_PATIENCE:g} s") from None
        except KeyError:
            raise Unavailable(f"{name} has no port") from None

    async def _counted(self, places: Collection[Attachment]) -> dict[Attachment, PortCount]:
        """What these ports have counted; no other is asked, where that is possible."""
        if not places:
            return {}
        if isinstance(self._plane, EmbeddedDataPlane):
            forwarding = self._plane.forwarding
            forwarding.settle()
            there = {each: forwarding.ports.get((each.switch, each.port)) for each in places}
            return {each: port.counters() for each, port in there.items() if port is not None}
        found: dict[Attachment, PortCount] = {}
        for switch in {each.switch for each in places}:
            with suppress(SievenetError):  # it is down
                ports = (await self._plane.counters(switch)).ports
                found |= {each: ports[each.port] for each in places if each.switch == switch and each.port in ports}
        return found

    def _alone(self, client: str) -> bool:
        """Whether all that comes to a client comes for subscriptions with a limit."""
        member = self._control.member(client)
        if member is None:
            return False
        plain = sum(subs for name, (_, subs) in member.by_category.items() if not is_twin(name))
        return plain <= self._caches.count(client)
