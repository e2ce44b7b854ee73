"""What the transport needs of its node: publish and subscribe, of whatever network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from sievenet.content.event import Event
from sievenet.content.filter import Subscription
from sievenet.content.schema import Schema

if TYPE_CHECKING:
    from sievenet.client.advertisement import Advertisement
    from sievenet.client.delivery import Delivery
    from sievenet.client.feed import Feed
    from sievenet.client.node import Node

__all__ = ["Host", "Reach"]


class Reach(msgspec.Struct, frozen=True):
    """Whether what is published gets everywhere now."""

    #: Why not; empty if it does.
    lack: str
    #: Two answers with the same mark: nothing has changed between them.
    mark: tuple[int, ...] = ()


class Host(ABC):
    """A node as its transport sees it."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def schema(self, wanted: str | Schema) -> Schema:
        """Register a schema."""
        return await self._node.schema(wanted)

    async def advertise(self, what: Schema, *, transport: bool = False) -> Advertisement:
        """Advertise everything of a schema."""
        return await self._node.advertise(what, transport=transport)

    async def listen(self, wanted: Subscription, accept: Callable[[Delivery], bool]) -> Feed:
        """Subscribe without a queue: deliveries go straight to ``accept``."""
        return await self._node.listen(wanted, accept)

    @property
    def connected(self) -> bool:
        """Whether the node has a connection."""
        return self._node.connected

    @property
    @abstractmethod
    def identity(self) -> int:
        """The node's publisher number, which the network vouches for."""

    @property
    @abstractmethod
    def incarnation(self) -> int:
        """A number that was drawn when the node began: which of its lives this is."""

    @property
    @abstractmethod
    def largest(self) -> int:
        """Longest encoded event that the network takes, in bytes; 0 if it does not say."""

    @abstractmethod
    def emit(self, events: Sequence[Event]) -> bool:
        """Publish advertised events of one schema at once. False: many wait, see `flushed`; raises if impossible."""

    @abstractmethod
    async def reach(self) -> Reach:
        """Whether all that was published before this question has got everywhere, as far as the network can tell."""

    @abstractmethod
    async def flushed(self) -> None:
        """Wait until there is a connection and fewer packets wait."""
