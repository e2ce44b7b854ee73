"""What a router wants done, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sievenet.routers.messages import FromRouter
from sievenet.routers.shipment import Shipment
from sievenet.session.message import Message

__all__ = ["Counts", "Deliver", "Output", "Send", "Tell", "WaveDone", "unwanted"]


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
    """The wave of this number has come back: what was told before it is in place, unless it was given up."""

    number: int
    done: bool = True


@dataclass(frozen=True, slots=True)
class Tell:
    """A message for a client that computes for the router."""

    client: str
    message: Message


Output = Send | Deliver | WaveDone | Tell


@dataclass(slots=True)
class Counts:
    """What a router counts."""

    events: int = 0
    delivered: int = 0
    forwarded: int = 0
    #: Events that went to every neighbour, since tables were not complete.
    flooded: int = 0
    #: Events that came from a neighbour though neither a client here nor another neighbour wants them.
    false_positives: int = 0
    #: Events sent once more, since their link broke, and those that may be lost with it.
    rescued: int = 0
    doubtful: int = 0
    expired_hops: int = 0
    malformed: int = 0
    strangers: int = 0


def unwanted(name: str, shipment: Shipment, by: tuple[str, str], wanted: dict[Any, Any], useful: int) -> int:
    """Rows that somebody sent to a router for nothing."""
    on_the_way = shipment.destinations is not None and any(d != name for d in shipment.destinations)
    if useful == len(shipment) or on_the_way:
        return 0
    rows = {row for interface, some in wanted.items() if interface != by for row in some.tolist()}
    return len(shipment) - len(rows)
