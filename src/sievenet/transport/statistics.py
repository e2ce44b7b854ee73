"""What the transport did, in figures."""

from __future__ import annotations

import msgspec

__all__ = ["ReceiverStatistics", "SenderStatistics"]


class ReceiverStatistics(msgspec.Struct, frozen=True):
    """What the transport did for one subscription."""

    delivered: int
    held: int
    held_seconds: float
    waiting: int
    late: int
    lost: int
    recovered: int
    gaps: int
    #: Messages per second allowed by the tightest publisher session, and received in all; None without rate control.
    rate: float | None
    allowed: float | None
    sessions: int
    dropped: dict[str, int]


class SenderStatistics(msgspec.Struct, frozen=True):
    """What the transport did for one publisher."""

    published: int
    waiting: int
    refused: int
    rate: float
    flows: int
    feedbacks: int
    digests: int
    repairs: int
    logged: int
    dropped: dict[str, int]
