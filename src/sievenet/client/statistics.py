"""What a node has counted."""

from __future__ import annotations

from dataclasses import dataclass

from sievenet.client.receiver import ReceiverStatistics

__all__ = ["NodeStatistics"]


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
    #: Seconds without a connection since the first one: events of that time are missing (routers only).
    away: float = 0.0
