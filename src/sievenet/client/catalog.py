"""The categories a client knows: schema, number on the wire, and the index plan of now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from sievenet.content.schema import Schema
from sievenet.control.protocol import CategoryInfo
from sievenet.errors import PlanError, SchemaError

if TYPE_CHECKING:
    from sievenet.index.plan import Plan

__all__ = ["Catalog", "Category"]


class Category:
    """One category as the daemon described it last."""

    __slots__ = ("_plan", "budget", "epoch", "number", "plan_json", "schema")

    def __init__(self, info: CategoryInfo, schema: Schema) -> None:
        self.schema = schema
        self.number = info.number
        self.epoch = info.epoch
        self.budget = info.budget
        self.plan_json = info.plan
        self._plan: Plan | None = None

    @property
    def plan(self) -> Plan:
        """The index plan; read when first needed, since many clients never do."""
        if self._plan is None:
            from sievenet.index.plan import Plan

            plan = Plan.from_json(self.plan_json)
            if plan.schema != self.schema:
                raise PlanError(f"Expected a plan for {self.schema.name} as registered, got one for another schema")
            # The same object as everywhere: events are checked against the plan's schema by identity first.
            self._plan = msgspec.structs.replace(plan, schema=self.schema)
        return self._plan


class Catalog:
    """Categories by name and by number."""

    def __init__(self) -> None:
        self._by_name: dict[str, Category] = {}
        self._by_number: dict[int, Category] = {}

    def replace(self, infos: Iterable[CategoryInfo]) -> None:
        """What a daemon says at `Welcome` is all there is."""
        old = dict(self._by_name)
        self._by_name.clear()
        self._by_number.clear()
        for info in infos:
            self._enter(info, old.get(info.schema.name))

    def update(self, info: CategoryInfo) -> Category:
        """One category, new or with a newer plan. Older news than what is known is ignored."""
        known = self._by_name.get(info.schema.name)
        if known is not None and known.number == info.number and known.epoch > info.epoch:
            return known
        return self._enter(info, known)

    def _enter(self, info: CategoryInfo, known: Category | None) -> Category:
        # Equal schemas stay the same object: events, filters and matchers compare them by identity first.
        schema = known.schema if known is not None and known.schema == info.schema else info.schema
        category = Category(info, schema)
        if known is not None and known.schema is schema and known.plan_json == info.plan:
            category._plan = known._plan
        self._by_name[schema.name] = self._by_number[info.number] = category
        return category

    def get(self, name: str) -> Category | None:
        """The category of that name, if known."""
        return self._by_name.get(name)

    def numbered(self, number: int) -> Category | None:
        """The category of that number, if known."""
        return self._by_number.get(number)

    def __getitem__(self, name: str) -> Category:
        try:
            return self._by_name[name]
        except KeyError:
            raise SchemaError(expected=f"a known schema ({', '.join(self._by_name) or 'none yet'})", got=name) from None

    def __iter__(self) -> Iterator[Category]:
        return iter(self._by_name.values())

    def schemas(self) -> dict[str, Schema]:
        """Every known schema by its name."""
        return {name: category.schema for name, category in self._by_name.items()}
