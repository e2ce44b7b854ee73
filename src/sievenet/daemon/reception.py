"""The reception: a name and a host for whoever joins."""

from __future__ import annotations

from typing import Final

from sievenet.control.plane import ControlPlane, Placement
from sievenet.daemon.planes import AnyPlane
from sievenet.daemon.ticket import Tickets
from sievenet.errors import Rejected

__all__ = ["Reception"]

#: Names that the daemon gives to clients that bring none.
_PREFIX: Final = "node-"
_NAMES: Final = 1_000_000


class Reception:
    """Finds places for clients and components."""

    def __init__(self, control: ControlPlane, plane: AnyPlane, tickets: Tickets) -> None:
        self._control, self._plane, self._tickets = control, plane, tickets
        self._named = 0

    def proven(self, name: str, ticket: bytes) -> bool:
        """Whether a ticket was given to whoever has the name now, not to somebody before."""
        life = self._control.life(name)
        return life is not None and self._tickets.valid(name, ticket, life)

    def ticket(self, name: str) -> bytes:
        """What proves a name the next time."""
        return self._tickets.issue(name, self._control.life(name) or 0)

    async def join(self, name: str | None, host: str | None, ticket: bytes, member: str | None) -> Placement:
        """Give a place to somebody, by its name if it brings one; who proves its name gets its old place."""
        host = host or self._least_loaded_host()
        if name is not None:
            return await self._control.join(name, host, resume=self.proven(name, ticket))
        prefix = _PREFIX if member is None else f"{member}."
        while True:
            self._named += 1
            try:
                return await self._control.join(f"{prefix}{self._named}", host)
            except Rejected:
                # Taken, by a client of an earlier life of this daemon: count on, but not for ever.
                if self._named > _NAMES:
                    raise

    def _least_loaded_host(self) -> str:
        load = dict.fromkeys(self._plane.topology.hosts, 0)
        for attached in self._plane.clients().values():
            load[attached.host] += 1
        if not load:
            raise Rejected("Expected a host to attach to, got a topology without hosts")
        return min(load, key=lambda host: load[host])
