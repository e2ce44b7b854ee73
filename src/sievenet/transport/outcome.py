"""What a session is bounded by, and what comes out of it: releases, losses, counts."""

from __future__ import annotations

from typing import Any

import msgspec

from sievenet.transport.bloom import Bits
from sievenet.transport.wire import Header

__all__ = ["Limits", "Loss", "Released", "SessionCounts"]


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
    restarts: int = 0
