"""The client's side of offloading: keeps vectors, answers how new filters relate to them.

What a client keeps is bounded; the vector unused for longest is forgotten, and the router told when it matters.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from sievenet.content.codec import decode_filter
from sievenet.content.filter import Filter
from sievenet.content.schema import Schema
from sievenet.routers.bounds import Bounds
from sievenet.routers.offload.messages import Answer, Compute, Computed, Relations, VectorUpdate, encode_answer

__all__ = ["Worker", "related"]


def related(inputs: list[Filter], vector: dict[int, Filter]) -> Relations:
    """For each input, which filters of a vector cover it, and which it covers; equal filters are neither."""
    every = sorted(vector.items())
    above: list[tuple[int, ...]] = []
    below: list[tuple[int, ...]] = []
    for wanted in inputs:
        over: list[int] = []
        under: list[int] = []
        for number, each in every:
            if each.covers(wanted):
                if each != wanted:
                    over.append(number)
            elif wanted.covers(each):
                under.append(number)
        above.append(tuple(over))
        below.append(tuple(under))
    return Relations(tuple(above), tuple(below))


def input_pairs(inputs: list[Filter]) -> tuple[tuple[int, int], ...]:
    """The pairs (i, j) where the i-th filter covers the j-th, sorted."""
    return tuple(
        (i, j)
        for i, one in enumerate(inputs)
        for j, other in enumerate(inputs)
        if i != j and one != other and one.covers(other)
    )


class _Member(NamedTuple):
    """A filter of a vector."""

    vector: int
    number: int
    filter: Filter


@dataclass(slots=True)
class _Held:
    """A vector: whose filters it has, its version, and the key of each of its numbers."""

    category: int
    version: int
    keys: dict[int, int]


class Worker:
    """Answers `Compute`. All vectors of a category share one index, so that an input is compared with all at once."""

    def __init__(self, schemas: Callable[[int], Schema | None], limit: int = 100_000) -> None:
        self._schemas = schemas
        self._limit = limit
        self._vectors: OrderedDict[int, _Held] = OrderedDict()
        self._members: dict[int, _Member] = {}
        self._bounds: dict[int, Bounds] = {}
        self._next = 0

    def compute(self, request: Compute) -> Computed:
        """The answer. Raises `CodecError` for bytes that are no filter."""
        schema = self._schemas(request.category)
        inputs = [decode_filter(schema, data) for data in request.inputs]
        missing = [u.id for u in request.vectors if not self._update(request.category, schema, u)]
        asked = [u.id for u in request.vectors if u.id in self._vectors]
        found = self._related(request.category, inputs, set(asked))
        answers = tuple(Answer(number, encode_answer(found[number])) for number in asked)
        self._shrink()
        return Computed(request.job, answers, encode_answer(input_pairs(inputs)), tuple(missing))

    def _related(self, category: int, inputs: list[Filter], asked: set[int]) -> dict[int, Relations]:
        """As `related` for each vector."""
        above: dict[int, list[list[int]]] = {vector: [[] for _ in inputs] for vector in asked}
        below: dict[int, list[list[int]]] = {vector: [[] for _ in inputs] for vector in asked}
        bounds, members = self._bounds.get(category, Bounds()), self._members
        for i, wanted in enumerate(inputs):
            for key in bounds.above(wanted):
                vector, number, each = members[key]
                if vector in asked and each.covers(wanted) and each != wanted:
                    above[vector][i].append(number)
            for key in bounds.below(wanted):
                vector, number, each = members[key]
                if vector in asked and wanted.covers(each) and each != wanted:
                    below[vector][i].append(number)
        return {
            vector: Relations(
                tuple(tuple(sorted(numbers)) for numbers in above[vector]),
                tuple(tuple(sorted(numbers)) for numbers in below[vector]),
            )
            for vector in asked
        }

    def _update(self, category: int, schema: Schema | None, update: VectorUpdate) -> bool:
        """Bring a vector up to date; False, and it is dropped, if its base is another version."""
        # Read everything before anything changes: what cannot be read leaves all as it was.
        added = [(number, decode_filter(schema, data)) for number, data in update.added.items()]
        held = self._vectors.pop(update.id, None)
        if held is None or not update.base or held.category != category:
            if held is not None:
                self._drop(held)
            if update.base:
                return False
            held = _Held(category, 0, {})
        elif held.version != update.base:
            self._drop(held)
            return False
        bounds = self._bounds.setdefault(category, Bounds())
        for number in update.removed:
            self._forget(held, number)
        for number, wanted in added:
            self._forget(held, number)
            self._next += 1
            held.keys[number] = self._next
            self._members[self._next] = _Member(update.id, number, wanted)
            bounds.add(self._next, wanted)
        held.version = update.version
        self._vectors[update.id] = held
        return True

    def _forget(self, held: _Held, number: int) -> None:
        key = held.keys.pop(number, None)
        if key is not None:
            del self._members[key]
            self._bounds[held.category].remove(key)

    def _drop(self, held: _Held) -> None:
        for number in list(held.keys):
            self._forget(held, number)

    def _shrink(self) -> None:
        while len(self._members) > self._limit and self._vectors:
            _, held = self._vectors.popitem(last=False)
            self._drop(held)
