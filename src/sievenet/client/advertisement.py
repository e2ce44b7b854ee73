"""A standing advertisement: what its node may publish, until it is closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sievenet.client.registrations import Registration, Registrations
from sievenet.session.lifetime import Closing

if TYPE_CHECKING:
    from sievenet.client.node import Node
    from sievenet.transport.statistics import SenderStatistics

__all__ = ["Advertisement"]


class Advertisement(Closing):
    """A standing advertisement."""

    def __init__(self, node: Node, registration: Registration, ledger: Registrations) -> None:
        self._node, self._ledger = node, ledger
        self.registration = registration

    async def close(self) -> None:
        """Unadvertise."""
        await self._node.unadvertise(self)

    @property
    def standing(self) -> bool:
        """Whether it was neither closed nor ended by rules that have changed."""
        return self.registration in self._ledger

    @property
    def transport(self) -> SenderStatistics | None:
        """What the transport did for this publisher; None if it does not use it."""
        return self._node.published_with(self.registration.category)

    def __str__(self) -> str:
        return str(self.registration.wanted)
