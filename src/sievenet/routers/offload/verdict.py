"""What the answers to a batch come to: a vote on each vector, and on the relations of the inputs among themselves.

Where no answer has a majority of those asked, or it cannot be read, the router's own work (`own`) takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from sievenet.content.filter import Filter
from sievenet.routers.offload.jobs import Counts, Job
from sievenet.routers.offload.messages import Relations, decode_answer, decode_pairs
from sievenet.routers.offload.reputation import majority
from sievenet.routers.offload.tables import Table
from sievenet.routers.offload.worker import input_pairs, related

__all__ = ["Verdict", "differences"]


class Verdict:
    """The relations of a batch, and who deserves praise or blame for them."""

    def __init__(self, job: Job, own: Callable[[int], Relations], counts: Counts) -> None:
        self._job = job
        self._count = len(job.inputs)
        self._counts = counts
        #: All that cover each input, and all that it covers.
        self.above: list[set[int]] = [set() for _ in job.inputs]
        self.below: list[set[int]] = [set() for _ in job.inputs]
        self.blamed = set(job.waiting)
        self.praised: set[str] = set()
        #: Vector → what was voted, and by whom.
        self._voted: dict[int, tuple[Relations, list[str]]] = {}
        for number, clients in job.asked.items():
            found = self._vote(number, job.answers.get(number, {}), len(clients))
            if found is None:
                counts.local_vectors += 1
                found = own(number)
            self.add(found)
        self.praised -= self.blamed
        #: For each input, the other inputs that cover it, and those that it covers.
        self.covering: dict[int, set[int]] = {}
        self.covered: dict[int, set[int]] = {}
        self._inner: list[str] = []
        for i, j in self._pairs():
            self.covering.setdefault(j, set()).add(i)
            self.covered.setdefault(i, set()).add(j)

    def _vote(self, number: int, answers: Mapping[str, bytes], asked: int) -> Relations | None:
        best = majority(answers, asked)
        found = self._decoded(best)
        if found is not None:
            voters = [c for c, each in answers.items() if each == best]
            self._voted[number] = (found, voters)
            self.praised.update(voters)
            self.blamed.update(c for c, each in answers.items() if each != best)
        return found

    def _decoded(self, data: bytes | None) -> Relations | None:
        if data is None:
            return None
        try:
            found = decode_answer(data)
        except msgspec.DecodeError:
            found = None
        if found is None or len(found.above) != self._count or len(found.below) != self._count:
            self._counts.malformed += 1
            return None
        return found

    def _pairs(self) -> tuple[tuple[int, int], ...]:
        job = self._job
        asked = {client for clients in job.asked.values() for client in clients}
        best = majority(job.pairs, len(asked))
        if best is not None:
            try:
                pairs = decode_pairs(best)
            except msgspec.DecodeError:
                self._counts.malformed += 1
            else:
                self._inner = [c for c, each in job.pairs.items() if each == best]
                return pairs
        return input_pairs([wanted for wanted, _ in job.inputs])

    def add(self, found: Relations) -> None:
        """Relations that the router found itself."""
        for i in range(self._count):
            self.above[i].update(found.above[i])
            self.below[i].update(found.below[i])

    def liars(
        self, i: int, claimed: set[int], missed: set[int], placed: set[int], members: Callable[[int], set[int]]
    ) -> set[str]:
        """Who voted that the i-th input relates to filters that it does not, or not to those that it does.

        What was ``placed`` in this batch is told by the relations of the inputs; all else by those of vectors.
        """
        missing = missed - placed
        found = {
            client
            for number, (relations, voters) in self._voted.items()
            if not claimed.isdisjoint(relations.above[i])
            or not claimed.isdisjoint(relations.below[i])
            or not missing.isdisjoint(members(number))
            for client in voters
        }
        return found.union(self._inner) if not placed.isdisjoint(claimed | missed) else found


def differences(table: Table, wanted: Filter, over: set[int], under: set[int]) -> tuple[set[int], set[int]]:
    """What was said to cover a filter or be covered by it and is not, and what is and was not said: by the router."""
    truth = related([wanted], {n: table.filter(n) for n in table.numbers()})
    above, below = set(truth.above[0]), set(truth.below[0])
    return (over - above) | (under - below), (above - over) | (below - under)
