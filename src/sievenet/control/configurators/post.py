"""A post: a partition that is handed out, whose it is, and what its owner was asked."""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import NamedTuple, Protocol

from sievenet.control.configurators.monitor import Work
from sievenet.control.registrations import Changes, Puts, Registrations

__all__ = ["Open", "Partition", "Post"]


class Partition(Protocol):
    """What can be handed out: a lane."""

    prefix: int

    @property
    def queue(self) -> Sized:
        """What waits to be begun."""


class Open(NamedTuple):
    """An order that is not answered yet."""

    serial: int
    puts: Puts
    #: Requests in it.
    size: int
    since: float
    then: Callable[[Changes], None]


class Post:
    """A partition that was handed out at least once."""

    def __init__(self, number: int, lane: Partition, registrations: Registrations) -> None:
        self.number, self.lane, self.registrations = number, lane, registrations
        #: "" for nobody.
        self.owner = ""
        #: Who gets it when the open order is answered; "" for nobody.
        self.heir = ""
        self.epoch = 0
        #: Whether the owner has a copy, and the wires that it was told of, with their lives.
        self.loaded = False
        self.told: dict[int, int] = {}
        self.open: Open | None = None
        #: Seconds that loading it may take.
        self.grace = 0.0
        #: The last order, and how many are in the log since it began anew.
        self.last = self.entries = 0
        #: Requests that configurators have worked out, and in how many seconds.
        self.served, self.spent = 0, 0.0

    @property
    def work(self) -> Work:
        """For the monitor."""
        return Work(self.load, self.served, self.spent)

    @property
    def load(self) -> int:
        """Requests that wait for it."""
        return len(self.lane.queue) + (0 if self.open is None else self.open.size)
