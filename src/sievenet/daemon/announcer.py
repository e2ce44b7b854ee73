"""The announcer: tells clients of new plans and of new versions of schemas, and waits until they are ready for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from sievenet.control import protocol as p
from sievenet.control.plane import ControlPlane
from sievenet.control.state import Category
from sievenet.daemon.adoption import Adoption
from sievenet.daemon.planes import AnyPlane
from sievenet.session.connection import Connection

__all__ = ["Announcer"]


class Announcer:
    """Speaks to all clients that are connected; whoever does not confirm in time is cut off."""

    def __init__(
        self,
        control: ControlPlane,
        plane: AnyPlane,
        adoption: Adoption,
        peers: Mapping[str, Connection],
        described: Callable[[Category], p.CategoryInfo],
        cut_off: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self._control, self._plane, self._adoption, self._peers = control, plane, adoption, peers
        self._described, self._cut_off = described, cut_off

    async def plan_changed(self, category: Category) -> None:
        """Tell every client of the new plan; returns when all that may publish have adopted it or are gone.

        Until then catch-all flows deliver everything to everybody, so whoever does not confirm in time is cut off.
        """
        await self._tell(category, self._absent(0))

    async def version(self, category: Category) -> None:
        """Tell every client of a version of a schema; returns when all that may receive know of it or are gone."""
        await self._tell(category, self._absent(1))

    async def _tell(self, category: Category, absent: Iterable[str]) -> None:
        """Returns when all connected and these absent clients have confirmed what they are told of a category."""
        done = asyncio.Event()
        change = self._adoption.begin(category.number, category.epoch, {*self._peers, *absent}, done.set)
        news = p.PlanChanged(self._described(category))
        for peer in list(self._peers.values()):
            peer.send(news)
        limit = self._control.config.adoption
        try:
            while not done.is_set():
                await asyncio.wait((waiting := asyncio.ensure_future(done.wait()),), timeout=limit)
                waiting.cancel()
                for client in sorted(change.missing):
                    await self._cut_off(client, f"the new plan of {category.name} was not confirmed within {limit:g} s")
        finally:
            self._adoption.abandon(change)

    def _absent(self, kind: int) -> Iterable[str]:
        """Clients without a control connection that may still publish (0) or receive (1)."""
        for client in self._plane.clients():
            if client not in self._peers and self._control.registrations_of(client)[kind]:
                yield client
