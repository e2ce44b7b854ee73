"""What a subscriber gets: an event and where it came from; and where it goes, as the receive path sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from sievenet.client.transport.shim import Stamp
from sievenet.content.event import Event

__all__ = ["Delivery", "Sink", "Straight"]


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """One event as it arrived."""

    event: Event
    #: Number of the publishing node; with ``incarnation`` and ``sequence`` it names the event in the whole fabric.
    publisher: int
    sequence: int
    #: Nanoseconds since the epoch, by the clocks of the publisher and of this machine.
    sent: int
    received: int
    #: What the publisher's transport said in front of the event; None if it has none.
    stamp: Stamp | None = None
    #: It was lost and came as a repair; it came after a later one of its publisher (only told with a transport).
    recovered: bool = False
    late: bool = False
    #: Which life of the publisher counts with ``sequence``: a publisher that comes back has another, and counts from 0.
    #: In an overlay of routers, where a node that comes back has another number, always 0.
    incarnation: int = 0

    #: This node published it itself: it did not pass the network, and ``sequence`` counts such deliveries only.
    own: bool = False

    @property
    def latency(self) -> float:
        """Seconds from publisher to here; as good as the two clocks agree."""
        return (self.received - self.sent) / 1e9


class Sink(Protocol):
    """Where deliveries of one subscription go; a transport may stand in between."""

    false_positives: int

    def accept(self, delivery: Delivery) -> bool:
        """Take a delivery; False if it has to be offered again later."""


class Straight:
    """A sink that is a function: for what must not wait in a queue."""

    def __init__(self, accept: Callable[[Delivery], bool]) -> None:
        self.accept = accept
        self.false_positives = 0
