"""What a membership asks of its node."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from sievenet.client.ports.port import Alone, Deliver
from sievenet.client.registrations import Registration
from sievenet.content.schema import Schema
from sievenet.control import protocol as p
from sievenet.errors import SievenetError

__all__ = ["Hooks"]


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the membership asks of its node."""

    #: Packets have come; a datagram has come alone.
    deliver: Deliver
    alone: Alone
    #: The catalog was replaced after a (re)connect: numbers and plans may be others.
    renewed: Callable[[p.Welcome], None]
    #: A category has a new plan; returns when no packet of the old plan is under way in this process.
    adopt: Callable[[p.CategoryInfo], Any]
    #: A category is no more.
    removed: Callable[[int], None]
    #: A registration is less than it was, or has ended: the rules have changed.
    revised: Callable[[p.Revised], None]
    #: The daemon refuses to have this registration again; it is to be struck out.
    refused: Callable[[Registration, SievenetError], None]
    #: This registration stands (again).
    settled: Callable[[Registration], None]
    #: The daemon's answers to a registration that was said again, and to a heartbeat.
    answered: Callable[[Registration, Any], None]
    told: Callable[[Any], None]
    #: The daemon says which numbers are this node's in a twin.
    directed: Callable[[p.Directed], None]
    #: Events of this node go through matchers, or no more.
    retain: Callable[[p.Retain], None]
    #: The daemon says something that only components understand.
    instructed: Callable[[Any], None]
    #: What to say of oneself with the heartbeat.
    report: Callable[[], p.Report]
    #: What was published since the last heartbeat: schema, how many events, and a sample of them (count, bytes).
    samples: Callable[[], Iterable[tuple[Schema, int, int, bytes]]]
