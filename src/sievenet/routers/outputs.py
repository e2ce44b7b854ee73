"""What a router wants done, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass

from sievenet.routers.messages import FromRouter
from sievenet.routers.shipment import Shipment

__all__ = ["Counts", "Deliver", "Output", "Send", "WaveDone"]


@dataclass(frozen=True, slots=True)
class Send:
    """A message for a neighbour."""

    neighbour: str
    message: FromRouter


@dataclass(frozen=True, slots=True, eq=False)
class Deliver:
    """Events for a client."""

    client: str
    shipment: Shipment


@dataclass(frozen=True, slots=True)
class WaveDone:
    """The wave of this number has come back: what was told before it is in place."""

    number: int


Output = Send | Deliver | WaveDone


@dataclass(slots=True)
class Counts:
    """What a router counts."""

    events: int = 0
    delivered: int = 0
    forwarded: int = 0
    #: Events that came from a neighbour though neither a client here nor another neighbour wants them.
    false_positives: int = 0
    expired_hops: int = 0
    malformed: int = 0
    strangers: int = 0
