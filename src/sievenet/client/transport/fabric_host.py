"""A node of a fabric as its transport sees it: publishing at once, around the queue of a window."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from sievenet.client.transport.host import Host, Reach
from sievenet.content.event import Event
from sievenet.errors import Unavailable

if TYPE_CHECKING:
    from sievenet.client.membership import Membership
    from sievenet.client.node import Node
    from sievenet.client.outbox import Outbox
    from sievenet.client.publisher import Publisher

__all__ = ["FabricHost"]

#: Packets that may wait for the window when a publisher goes on.
_LOW: Final = 1024


class FabricHost(Host):
    """The host of a `FabricNode`."""

    def __init__(self, node: Node, session: Membership, outbox: Outbox, publisher: Publisher) -> None:
        super().__init__(node)
        self._session, self._outbox, self._publisher = session, outbox, publisher

    @property
    def identity(self) -> int:
        """The number that the data plane gave this node, and lets nobody else use."""
        return self._outbox.publisher

    @property
    def incarnation(self) -> int:
        """The one in the node's packets."""
        return self._outbox.incarnation

    @property
    def largest(self) -> int:
        """Longest encoded event."""
        return self._outbox.max_event

    def emit(self, events: Sequence[Event]) -> bool:
        """Send events now; False if many wait."""
        port = self._session.port
        if port is None:
            raise Unavailable("This node has no data port")
        now, outbox = time.time_ns(), self._outbox
        packets = [packet for event in events for packet in outbox.packets(event, now)]
        return self._publisher.send(port, packets)

    async def reach(self) -> Reach:
        """Whether there is a data plane; what that loses, receivers miss by themselves."""
        session = self._session
        return Reach("" if session.may_send else f"no connection to {session.url}", (session.losses,))

    async def flushed(self) -> None:
        """Wait until events may be sent, and fewer packets wait."""
        await self._session.sendable()
        if self._session.port is not None:
            await self._session.port.flushed(_LOW)
