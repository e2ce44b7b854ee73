"""Events and subscriptions spread evenly over the event space, independent of each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from sievenet.content import EventBatch, Schema
from sievenet.workload.draws import per_dimension, rows
from sievenet.workload.interests import Interests
from sievenet.workload.space import batch_at, grid, slots
from sievenet.workload.widths import check_constrained, chosen_attributes, interests_around, widths

__all__ = ["Uniform", "Workload"]


class Workload(Protocol):
    """What every generator offers: two endless, repeatable sequences over one schema."""

    @property
    def schema(self) -> Schema:
        """The category of all events and subscriptions."""

    def events(self, count: int, *, start: int = 0) -> EventBatch:
        """Events ``start`` to ``start + count``."""

    def subscriptions(self, count: int, *, start: int = 0) -> Interests:
        """Subscriptions ``start`` to ``start + count``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniform:
    """Settings of the uniform workload, and the workload itself.

    >>> load = Uniform(schema=grid(2, hi=99), selectivity=0.2, seed=7)
    >>> len(load.events(1000)), len(load.subscriptions(50))
    (1000, 50)
    """

    #: Any schema without free text.
    schema: Schema = field(default_factory=grid)
    #: Mean part of a constrained attribute's domain that a subscription wants; one number or one per attribute.
    selectivity: float | tuple[float, ...] = 0.1
    #: Least and most attributes that a subscription constrains; None is all of them.
    constrained: tuple[int, int] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for attribute in self.schema.attributes:
            slots(attribute)
        per_dimension(self.selectivity, self._dimensions, "selectivity", 0.0, 1.0)
        check_constrained(self.constrained, self._dimensions)

    @property
    def _dimensions(self) -> int:
        return len(self.schema.attributes)

    def events(self, count: int, *, start: int = 0) -> EventBatch:
        """Events ``start`` to ``start + count``."""
        d = self._dimensions
        (cube,) = rows(self.seed, 0, start, count, lambda rng, n: (rng.random((n, d)),))
        return batch_at(self.schema, cube)

    def subscriptions(self, count: int, *, start: int = 0) -> Interests:
        """Subscriptions ``start`` to ``start + count``."""
        d = self._dimensions
        places, sizes, keys, counts = rows(
            self.seed,
            1,
            start,
            count,
            lambda rng, n: (rng.random((n, d)), rng.random((n, d)), rng.random((n, d)), rng.random(n)),
        )
        width = widths(sizes, per_dimension(self.selectivity, d, "selectivity", 0.0, 1.0))
        used = chosen_attributes(keys, counts, check_constrained(self.constrained, d))
        # A box is placed so that it fits: its centre is uniform over where it may lie.
        return interests_around(self.schema, width / 2.0 + places * (1.0 - width), width, used)
