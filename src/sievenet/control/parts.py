"""Jobs and their parts: a request on its way, its share in each lane, and the order in which a lane takes those.

Flow operations are saved if broad requests come before narrow ones: what a narrow one would add is there already.  To
take something back it is the other way round (PLEROMA, "ordering").  So of a slice, the next so many requests of one
type, the broader are taken first:

    queue    +3 +1 +2 -1 -3 +4          + subscribe, - unsubscribe, with how broad they are
    slice    └──────┘                   of one type: nothing overtakes a request of another type
    taken    +3 +2 +1, -1 -3, +4        whoever is in a slice is served before the next one is put in order

What is taken at a time (`control.batch`) becomes one difference of tables, in which order does not matter.  So a slice
matters if it is larger than that and more wait: with switches that take few changes at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice, takewhile

from sievenet.control.state import Registration
from sievenet.errors import SievenetError

__all__ = ["Job", "Part", "Slices"]


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


class Slices:
    """Takes requests from a queue, in slices of at most so many; with 1 in the order of arrival."""

    def __init__(self, size: int, holds: Callable[[int], bool]) -> None:
        self._size = size
        #: Whether a dz lies in the partition.
        self._holds = holds
        #: Those at the head of the queue that are in order.
        self._ordered = 0

    def take(self, queue: deque[Part], most: int) -> list[Part]:
        """The next ones."""
        if most < min(self._size, len(queue)):
            if not self._ordered:
                self._arrange(queue)
            most = min(most, self._ordered)
        taken = [queue.popleft() for _ in range(min(most, len(queue)))]
        self._ordered = max(0, self._ordered - len(taken))
        return taken

    def put_back(self, queue: deque[Part], taken: Sequence[Part]) -> None:
        """They are the next ones again."""
        queue.extendleft(reversed(taken))
        self._ordered += len(taken)

    def _arrange(self, queue: deque[Part]) -> None:
        first = queue[0]
        alike = list(takewhile(lambda part: _type(part) == _type(first), islice(queue, self._size)))
        for _ in alike:
            queue.popleft()
        alike.sort(key=self._breadth, reverse=first.add)
        self.put_back(queue, alike)

    def _breadth(self, part: Part) -> float:
        """The share of the event space; of what is taken back, that where it is registered."""
        keys = part.keys if part.add else filter(self._holds, part.entry.keys)
        return sum(2.0 ** -(key.bit_length() - 1) for key in keys)


def _type(part: Part) -> tuple[bool, bool]:
    return part.add, part.entry.wants
