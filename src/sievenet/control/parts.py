"""Jobs and their parts: a request on its way, and its share in each lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sievenet.control.state import Registration
from sievenet.errors import SievenetError

__all__ = ["Job", "Part"]


class Job:
    """A request on its way: done when all its parts are."""

    __slots__ = ("error", "finish", "remaining", "tickets")

    def __init__(self, tickets: list[int], finish: Callable[[Job], None]) -> None:
        #: Who waits for the answer.
        self.tickets = tickets
        self.finish = finish
        self.remaining = 1  # whoever hands out the parts counts as one
        self.error: SievenetError | None = None

    def part_done(self, error: SievenetError | None = None) -> None:
        """One part is done or refused."""
        self.remaining -= 1
        self.error = error or self.error
        if not self.remaining:
            self.finish(self)


class Part:
    """One request's share in one lane."""

    __slots__ = ("add", "entry", "job", "keys", "wire")

    def __init__(self, entry: Registration, wire: int, add: bool, keys: Sequence[int], job: Job | None) -> None:
        self.entry = entry
        self.wire = wire
        self.add = add
        #: The dz to register; what is removed is where the entry is registered.
        self.keys = keys
        self.job = job

    def done(self, error: SievenetError | None = None) -> None:
        """Report to whoever asked."""
        if self.job is not None:
            self.job.part_done(error)
