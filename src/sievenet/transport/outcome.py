"""What a session is bounded by, and what comes out of it: releases, losses, counts."""

from __future__ import annotations

from typing import Any

import msgspec

from sievenet.transport.bloom import Bits
from sievenet.transport.codec import Header

__all__ = ["Limits", "Loss", "Missing", "Released", "SessionCounts"]


class Limits(msgspec.Struct, frozen=True):
    """Bounds of one session's state."""

    #: Messages held back at most; more are released in order.
    held: int = 4096
    #: Missing messages watched at most; more are not watched.
    missing: int = 4096
    #: No message is waited for longer, in seconds.
    latch: float = 5.0


class Loss(msgspec.Struct, frozen=True):
    """A wanted message that did not come in time."""

    publisher: int
    epoch: int
    sequence: int
    bits: Bits
    #: Width of the bits in bytes.
    width: int
    #: Seconds before the message that revealed the loss.
    age: float
    #: When it left, by the publisher's clock.
    departure: float
    #: False if this is likely one of the false alarms that the record's bits are expected to raise.
    believed: bool = True
    #: Last message of a stretch of which nothing is known; -1 if this is one message.
    last: int = -1


class Missing(msgspec.Struct):
    """A wanted message that is still waited for."""

    deadline: float
    bits: Bits
    width: int
    age: float
    departure: float
    #: Reported lost; still in the way only if held for repair.
    lost: bool = False

    def loss(self, publisher: int, epoch: int, sequence: int, *, believed: bool) -> Loss:
        """It did not come."""
        return Loss(publisher, epoch, sequence, self.bits, self.width, self.age, self.departure, believed)


class Released(msgspec.Struct, frozen=True):
    """A message for the application."""

    header: Header
    item: Any
    #: Seconds that it was held back.
    held: float = 0.0
    #: It came after a later one was delivered.
    late: bool = False


class SessionCounts(msgspec.Struct):
    """What happened, in messages."""

    received: int = 0
    duplicates: int = 0
    late: int = 0
    late_dropped: int = 0
    held: int = 0
    #: Sum of the seconds that messages were held.
    held_time: float = 0.0
    losses: int = 0
    overflows: int = 0
    absurd: int = 0
    stale: int = 0
    #: Numbers beyond the record that nobody could be asked about.
    unknown: int = 0

    def told(self, dropped: dict[str, int]) -> Any:
        """As fields of `ReceiverStatistics`; what was not delivered, and other oddities, as far as there were any."""
        names = ("duplicates", "late_dropped", "overflows", "absurd", "stale", "unknown")
        odd = dict(dropped) | {name: value for name in names if (value := getattr(self, name))}
        return {
            "held": self.held, "held_seconds": self.held_time, "late": self.late, "lost": self.losses, "dropped": odd
        }  # fmt: skip
