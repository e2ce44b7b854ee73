"""What protocol objects want done: the shell carries it out, in order."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

import msgspec

from sievenet.transport.bloom import Bits

__all__ = ["OPEN", "Action", "Channel", "Deliver", "Gap", "Publish", "Send"]


class Channel(Enum):
    """To whom a control message goes."""

    #: Everyone who volunteers or recovers and whose filter the bits cover, and the publisher.
    PEERS = "peers"
    #: The publisher ``target``.
    PUBLISHER = "publisher"
    #: The receiver ``target``.
    NODE = "node"
    #: Everyone who listens for digests of this publisher.
    DIGEST = "digest"


class Deliver(msgspec.Struct, frozen=True):
    """A message for the application."""

    publisher: int
    sequence: int
    item: Any
    #: Seconds that it was held back.
    held: float = 0.0
    #: It came after a later one.
    late: bool = False
    #: It was lost and came as a repair.
    recovered: bool = False


#: The last number of a gap that has no end.
OPEN: Final = (1 << 63) - 1


class Gap(msgspec.Struct, frozen=True):
    """Messages that are gone for good: they seemed to be wanted, or nobody can say what they were, and nobody has them.

    A gap whose `last` is `OPEN` has no end: the publisher fell silent, and what it sent since, if anything, is unknown.
    """

    publisher: int
    epoch: int
    first: int
    last: int

    def __str__(self) -> str:
        end = "on (the publisher fell silent)" if self.open else f"to {self.last}"
        return f"gap: publisher {self.publisher:016x}, from {self.first}, {end}"

    @property
    def open(self) -> bool:
        """Whether it has no end."""
        return self.last == OPEN


class Send(msgspec.Struct, frozen=True):
    """A control message to send."""

    channel: Channel
    target: int
    #: Bits of the message it is about (`Channel.PEERS`).
    bits: Bits
    data: bytes
    #: Width of the bits in bytes.
    width: int = 0


class Publish(msgspec.Struct, frozen=True):
    """A message to publish: header and body."""

    bits: Bits
    sequence: int
    data: bytes
    #: What was given to `Sender.publish`.
    context: Any = None


Action = Deliver | Gap | Send | Publish
