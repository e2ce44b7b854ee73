"""A node at a router as its transport sees it: publishing at once, on the connection."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from sievenet.client.overlay.membership import RouterMembership
from sievenet.client.transport.host import Host, Reach
from sievenet.content.batch import EventBatch
from sievenet.content.event import Event
from sievenet.errors import InvalidInput, Rejected, Unavailable

if TYPE_CHECKING:
    from sievenet.client.node import Node

__all__ = ["OverlayHost"]

#: Bytes that may wait for the connection before a publisher has to wait too.
_AHEAD: Final = 1 << 18


class OverlayHost(Host):
    """The host of an `OverlayNode`."""

    def __init__(self, node: Node, link: RouterMembership, categories: Mapping[str, int]) -> None:
        super().__init__(node)
        self._link, self._categories = link, categories
        self._incarnation = secrets.randbits(64)

    @property
    def identity(self) -> int:
        """The number that the router gave this connection."""
        return self._link.publisher

    @property
    def incarnation(self) -> int:
        """Drawn with this host."""
        return self._incarnation

    @property
    def largest(self) -> int:
        """A router says nothing of the sort: what an event may be is what fits."""
        return 0

    def emit(self, events: Sequence[Event]) -> bool:
        """Send events of one schema now; False if many bytes wait."""
        schema = events[0].schema
        self._link.publish(self._categories[schema.name], EventBatch.from_events(schema, events))
        return self._link.waiting < _AHEAD

    async def reach(self) -> Reach:
        """Whether every router has what was published: the router asks them all, and knows which ones are missing."""
        try:
            found = await self._node.ask("reach")
        except Unavailable as error:
            return Reach(str(error))
        except (InvalidInput, Rejected):  # a router that is older does not know the question
            return Reach("")
        if missing := found["missing"]:
            return Reach(f"no way to {', '.join(missing)}")
        lack = "" if found["settled"] else "not all routers have answered"
        return Reach(lack, (self._link.losses, found["graph"]))

    async def flushed(self) -> None:
        """Wait for the connection, and until it has taken most of what waits."""
        await self._link.ready()
        await self._link.drained()
