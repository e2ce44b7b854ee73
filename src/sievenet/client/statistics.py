"""What a node has counted."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NodeStatistics", "ReceiverStatistics"]


@dataclass(frozen=True, slots=True)
class ReceiverStatistics:
    """Counts of packets since the node began."""

    received: int
    matched: int
    false_positives: int
    #: False positives that no subscription's cells explain: of flows merged or in transition.
    unexplained: int
    duplicates: int
    late: int
    malformed: int
    #: Packets of categories that this node does not subscribe to.
    strangers: int
    #: Packets that claim to be of another publisher than the one whose address they come from.
    forged: int = 0
    #: Events that came by directed delivery, and handovers between the ways that had to be ended early.
    directed: int = 0
    hasty: int = 0
    #: Events that nobody here wanted, and that came in one packet with others.
    companions: int = 0


@dataclass(frozen=True, slots=True)
class NodeStatistics:
    """Counts since the node began."""

    published: int
    #: Published events that no filter can want under the plan of now, and that were not sent.
    unwanted: int
    received: ReceiverStatistics
    delivered: int
    dropped: int
    #: Times that the connection to the daemon was lost.
    losses: int
    connected: bool
    #: Events that the network said it dropped on their way here, at most (routers only).
    missed: int = 0
    #: Whether no daemon runs, and events go on by the paths that exist (on real switches).
    alone: bool = False
    #: Seconds in which nobody kept events for this node, at most: without a router, or taken for dead by a daemon.
    away: float = 0.0
