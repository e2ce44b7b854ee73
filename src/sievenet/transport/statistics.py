"""What the transport did, in figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from sievenet.transport.receiver import Receiver

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

    @staticmethod
    def of(receiver: Receiver) -> ReceiverStatistics:
        """The figures of a receiver now."""
        sessions, rates = receiver.sessions.values(), receiver.rates.values()
        return ReceiverStatistics(
            delivered=receiver.delivered,
            waiting=sum(session.waiting for session in sessions),
            recovered=receiver.recovered,
            gaps=receiver.gaps,
            rate=sum(each.rate for each in rates) if rates else None,
            allowed=min((each.allowed for each in rates), default=None),
            sessions=len(sessions),
            **receiver.counts.told(receiver.dropped),
        )


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
