"""An arrival: a packet as the receiver needs it, whichever data plane brought it."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Arrival"]


class Arrival(Protocol):
    """What the receiver needs of a packet."""

    @property
    def category(self) -> int:
        """Number of the category."""

    @property
    def code(self) -> int:
        """The event's code, left-aligned in 128 bits."""

    @property
    def publisher(self) -> int:
        """Number of the publishing node."""

    @property
    def incarnation(self) -> int:
        """Which life of that node it is."""

    @property
    def sequence(self) -> int:
        """The publisher's count of its events in this life."""

    @property
    def departure(self) -> int:
        """When it was published, in nanoseconds since the epoch."""

    @property
    def body(self) -> bytes:
        """The event in the codec's bytes."""
