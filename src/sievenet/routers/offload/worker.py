"""The client's side of offloading: keeps vectors, answers how new filters relate to them.

What a client keeps is bounded; the vector unused for longest is forgotten, and the router told when it matters.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from sievenet.content.codec import decode_filter
from sievenet.content.filter import Filter
from sievenet.content.schema import Schema
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


class Worker:
    """Answers `Compute`."""

    def __init__(self, schemas: Callable[[int], Schema | None], limit: int = 100_000) -> None:
        self._schemas = schemas
        self._limit = limit
        self._vectors: OrderedDict[int, tuple[int, dict[int, Filter]]] = OrderedDict()
        self._held = 0

    def compute(self, request: Compute) -> Computed:
        """The answer. Raises `CodecError` for filters that are none."""
        schema = self._schemas(request.category)
        inputs = [decode_filter(schema, data) for data in request.inputs]
        answers: list[Answer] = []
        missing: list[int] = []
        for update in request.vectors:
            vector = self._vector(schema, update)
            if vector is None:
                missing.append(update.id)
            else:
                answers.append(Answer(update.id, encode_answer(related(inputs, vector))))
        self._shrink()
        return Computed(request.job, tuple(answers), encode_answer(input_pairs(inputs)), tuple(missing))

    def _vector(self, schema: Schema | None, update: VectorUpdate) -> dict[int, Filter] | None:
        version, members = self._vectors.pop(update.id, (0, {}))
        self._held -= len(members)
        if not update.base:
            members = {}
        elif update.base != version:
            return None
        for number in update.removed:
            members.pop(number, None)
        for number, data in update.added.items():
            members[number] = decode_filter(schema, data)
        self._vectors[update.id] = (update.version, members)
        self._held += len(members)
        return members

    def _shrink(self) -> None:
        while self._held > self._limit and self._vectors:
            _, (_, members) = self._vectors.popitem(last=False)
            self._held -= len(members)
