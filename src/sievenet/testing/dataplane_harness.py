"""What a data plane under test comes in: see `sievenet.testing.dataplane_contract`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sievenet.dataplane.packet import Packet
from sievenet.dataplane.plane import Attached, DataPlane

__all__ = ["Harness"]


class Harness(Protocol):
    """A plane under test and the world around it."""

    @property
    def plane(self) -> DataPlane:
        """The plane, on `TOPOLOGY`."""
        ...

    @property
    def limited(self) -> bool:
        """Whether its switches hold `CAPACITY` flows."""
        ...

    @property
    def permits(self) -> bool:
        """Whether its switches check in which categories clients publish."""
        ...

    async def send(self, attached: Attached, packets: Sequence[Packet]) -> None:
        """An attached client sends packets."""
        ...

    async def settle(self) -> None:
        """Wait until all packets have arrived or are gone."""
        ...

    def received(self, attached: Attached) -> list[Packet]:
        """What an attached client has received so far."""
        ...

    async def set_switch(self, switch: str, up: bool) -> None:
        """Let a switch fail (and forget its table) or come back."""
        ...

    async def set_link(self, a: str, b: str, up: bool) -> None:
        """Let a link fail or come back."""
        ...
