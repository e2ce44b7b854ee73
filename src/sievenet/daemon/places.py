"""Places: under which name, and at which host, a client enters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from sievenet.access.identity import Identity, Role
from sievenet.control.plane import ControlPlane, Placement
from sievenet.control.protocol import DataEndpoint
from sievenet.daemon.names import Names
from sievenet.daemon.planes import AnyPlane
from sievenet.daemon.ticket import Tickets
from sievenet.dataplane.plane import Attached
from sievenet.errors import Rejected

__all__ = ["Places", "endpoint_of"]

#: Names that the daemon gives to clients that bring none.
_PREFIX: Final = "node-"
_NAMES: Final = 1_000_000


def endpoint_of(attached: Attached, role: str, key: bytes) -> DataEndpoint | None:
    """Where the events of whoever is attached go and come from, and what seals them."""
    if attached.endpoint is None:
        return None
    address, port = attached.endpoint
    # What components send is for one recipient, and nobody else should get it beside his own.
    room = attached.room if role == Role.CLIENT else 0
    return DataEndpoint(attached.kind, address, port, attached.token, attached.namespace, key, room)


class Places:
    """Gives them; ``connected`` says whether the holder of a name is, ``cut_off`` ends one that is not."""

    def __init__(
        self,
        control: ControlPlane,
        plane: AnyPlane,
        tickets: Tickets,
        connected: Callable[[str], bool],
        cut_off: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self._control, self._plane, self._tickets = control, plane, tickets
        self._connected, self._cut_off = connected, cut_off
        self.names = Names(asyncio.get_running_loop().time())
        #: Names that somebody is entering under.
        self._entering: set[str] = set()
        self._given = 0

    async def enter(self, name: str | None, ticket: bytes, host: str | None, identity: Identity) -> Placement:
        """A place for a client, new or returning."""
        if name is None and identity.proof is not None and identity.role is Role.COMPONENT:
            name = identity.name  # exactly its member's: by another one it could not come back
        if name is None:
            return await self._named(host or self._least_loaded(), identity)
        resume = self._proven(name, ticket)
        if not resume:
            await self._wait(name, identity)
        # Nothing is awaited between the last look at `_entering` and this: of several one gets the name.
        self._entering.add(name)
        try:
            if not resume and self._control.life(name) is not None:
                await self._cut_off(name, "its name was taken over by a client with the same credentials")
            return await self._control.join(name, host or self._least_loaded(), resume=resume)
        finally:
            self._entering.discard(name)

    async def _named(self, host: str, identity: Identity) -> Placement:
        prefix = _PREFIX if identity.name is None else f"{identity.name}."
        while True:
            self._given += 1
            try:
                return await self._control.join(f"{prefix}{self._given}", host)
            except Rejected:
                # Taken, by a client of an earlier life of this daemon: count on, but not for ever.
                if self._given > _NAMES:
                    raise

    def _proven(self, name: str, ticket: bytes) -> bool:
        """Whether a ticket was given to whoever has the name now, not to somebody before."""
        life = self._control.life(name)
        return life is not None and self._tickets.valid(name, ticket, life)

    async def _wait(self, name: str, identity: Identity) -> None:
        """Returns when nobody has the name, or its holder may be ended (`names`)."""
        loop, control = asyncio.get_running_loop(), self._control
        while control.life(name) is not None or name in self._entering:
            connected = self._connected(name) or name in self._entering
            left, lease = control.lease_left(name), control.config.lease
            wait = self.names.wait(name, identity, connected, left, lease, loop.time())
            if wait <= 0:
                return
            await asyncio.sleep(wait)

    def _least_loaded(self) -> str:
        load = dict.fromkeys(self._plane.topology.hosts, 0)
        for attached in self._plane.clients().values():
            load[attached.host] += 1
        if not load:
            raise Rejected("Expected a host to attach to, got a topology without hosts")
        return min(load, key=lambda host: load[host])
