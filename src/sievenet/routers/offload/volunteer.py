"""A client's part in offloading, pure: it answers what its router asks, and claims where its own filters belong."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from sievenet.content.codec import decode_schema
from sievenet.content.filter import Filter
from sievenet.content.schema import Schema
from sievenet.errors import CodecError
from sievenet.routers.messages import category_of
from sievenet.routers.offload.fixed import Placer
from sievenet.routers.offload.messages import MAX_CLAIMS, Assign, Claim, Compute, Computed
from sievenet.routers.offload.worker import Worker

__all__ = ["Volunteer"]


class Volunteer:
    """Of one connection to one router; holds at most ``limit`` filters for it."""

    def __init__(self, limit: int = 100_000) -> None:
        self._schemas: dict[int, Schema | None] = {0: None}
        self._worker = Worker(self._schema, limit)
        self._placers: dict[int, Placer] = {}
        #: Requests answered, and fixed sets taken.
        self.computed = self.assigned = 0

    def _schema(self, category: int) -> Schema | None:
        if category not in self._schemas:
            raise CodecError(expected="a category whose schema was given", got=category, where="offloaded work")
        return self._schemas[category]

    def _learn(self, category: int, data: bytes) -> None:
        if data:
            schema = decode_schema(data)
            if category_of(schema) != category:
                raise CodecError(expected=f"the schema of category {category}", got=schema.name, where="offloaded work")
            self._schemas[category] = schema

    def compute(self, request: Compute) -> Computed:
        """Answer. Raises `CodecError` for what cannot be read."""
        self._learn(request.category, request.schema)
        self.computed += 1
        return self._worker.compute(request)

    def assign(self, message: Assign) -> None:
        """Take a fixed set."""
        self._learn(message.category, message.schema)
        self._placers[message.category] = Placer(message, self._schema(message.category))
        self.assigned += 1

    def claims(self, category: int, filters: Iterable[Filter]) -> tuple[Claim, ...]:
        """What to say of some filters along with their subscription; nothing if there is no set yet."""
        placer = self._placers.get(category)
        return () if placer is None else tuple(placer.claim(each) for each in islice(filters, MAX_CLAIMS))
