"""Cost: what a plan makes the network carry, and how much of it nobody needs.

    transmissions   packets over all links: from publishers, between switches, to subscribers; copies included
    received        packets that arrive at hosts (a host is one client's port); copies included
    delivered       (packet, subscription) pairs that the covers let through

Each has a necessary part, what an exact filter would need: one packet per event from its publisher, one per event over
every link with a subscriber behind it who wants it, one to every host that wants it, one delivery per match.  The rest
is unnecessary, and the three rates of docs/reference/rates.md are unnecessary over all:

    per link            of transmissions
    per host            of received
    per subscription    of delivered (the false-positive rate of the literature)

A plan is judged by one of them (`OBJECTIVES`): by default by transmissions, since a bit that helps a subscription but
sends every event twice helps nobody.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from sievenet.content import EventBatch
from sievenet.tuning.crossings import Crossings
from sievenet.tuning.deliveries import Deliveries, Wants, fpr
from sievenet.tuning.sites import Sites

__all__ = ["OBJECTIVES", "RATES", "Cost", "Needed", "Objective", "cost_of", "needed_of"]

_I64 = npt.NDArray[np.int64]

Objective = Literal["links", "host", "subscription"]
OBJECTIVES: Final[tuple[Objective, ...]] = get_args(Objective)
#: The three rates, under the names that every part uses.
RATES: Final = ("per_link", "per_host", "per_subscription")


@dataclass(frozen=True, slots=True)
class Needed:
    """What an exact filter would carry; batches add up."""

    transmissions: int = 0
    received: int = 0
    delivered: int = 0

    def __add__(self, other: Needed) -> Needed:
        return Needed(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True, slots=True)
class Cost:
    """What a plan carries; batches add up."""

    events: int = 0
    #: Codes of events: what publishers send.
    packets: int = 0
    transmissions: int = 0
    received: int = 0
    delivered: int = 0
    needed: Needed = Needed()

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @property
    def per_link(self) -> float:
        """Transmissions that nobody behind the link needed, over all."""
        return fpr(self.transmissions, self.needed.transmissions)

    @property
    def per_host(self) -> float:
        """Packets that no subscription of the host needed, over all that it received."""
        return fpr(self.received, self.needed.received)

    @property
    def per_subscription(self) -> float:
        """Unnecessary deliveries over all deliveries."""
        return fpr(self.delivered, self.needed.delivered)

    def judged(self, objective: Objective) -> float:
        """What is to be as small as possible."""
        if objective == "subscription":
            return self.per_subscription
        return float(self.transmissions if objective == "links" else self.received)

    def summary(self) -> dict[str, Any]:
        """Figures under the names that every part uses."""
        return {
            "events": self.events,
            "packets": self.packets,
            "transmissions": self.transmissions,
            "received": self.received,
            "delivered": self.delivered,
            "wanted": self.needed.delivered,
            "per_link": self.per_link,
            "per_host": self.per_host,
            "per_subscription": self.per_subscription,
        }

    def __str__(self) -> str:
        each = max(self.events, 1)
        return (
            f"{self.transmissions / each:.2f} transmissions and {self.received / each:.2f} packets received per event; "
            f"unnecessary: {self.per_link:.2%} per link, {self.per_host:.2%} per host, "
            f"{self.per_subscription:.2%} per subscription"
        )


def cost_of(
    deliveries: Deliveries, batch: EventBatch, needed: Needed, sites: Sites | None = None, source: _I64 | None = None
) -> Cost:
    """What a batch costs under a plan; ``source`` has switch and own place of each event's publisher.

    Without sites every subscription is a host of its own, all at one switch.
    """
    packets, delivered = deliveries.total(batch)
    if sites is None:
        return Cost(len(batch), packets, packets + delivered, delivered, delivered, needed)
    crossings = Crossings(sites.network)
    events, reached = deliveries.reached(batch, sites.place, len(sites.network.places))
    where = sites.located([None])[np.zeros(len(batch), np.int64)] if source is None else source
    crossings.add(reached, where[events, 0], where[events, 1], deliveries.group(batch, sites.network, len(events)))
    received = int(crossings.received.sum())
    return Cost(len(batch), packets, crossings.transmissions, received, delivered, needed)


def needed_of(wants: Wants, batch: EventBatch, sites: Sites | None = None, source: _I64 | None = None) -> Needed:
    """What an exact filter would carry for a batch."""
    wanted = int(wants.per_subscription(batch).sum())
    if sites is None:
        return Needed(len(batch) + wanted, wanted, wanted)
    crossings = Crossings(sites.network)
    reached = wants.reached(batch, sites.place, len(sites.network.places))
    where = sites.located([None])[np.zeros(len(batch), np.int64)] if source is None else source
    # Which of several trees an event takes is up to its code; all cross as many links, about: the first one's count.
    crossings.add(reached, where[:, 0], where[:, 1], np.zeros(len(batch), np.int64))
    return Needed(crossings.transmissions, int(crossings.received.sum()), wanted)
