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
    """Categories by schema and by number; a schema may have several versions, each a category of its own."""

    def __init__(self) -> None:
        #: By name, the oldest version first.
        self._by_name: dict[str, list[Category]] = {}
        self._by_number: dict[int, Category] = {}
        #: How often something has changed.
        self.changes = 0

    def replace(self, infos: Iterable[CategoryInfo]) -> None:
        """What a daemon says at `Welcome` is all there is."""
        self.changes += 1
        old = {name: list(versions) for name, versions in self._by_name.items()}
        self._by_name.clear()
        self._by_number.clear()
        for info in infos:
            known = [each for each in old.get(info.schema.name, ()) if each.schema == info.schema]
            self._enter(info, known[0] if known else None)

    def update(self, info: CategoryInfo) -> Category:
        """One category, new or with a newer plan. Older news than what is known is ignored."""
        for sibling in info.siblings:
            self.update(sibling)
        known = self.of(info.schema)
        if known is not None and known.number == info.number and known.epoch > info.epoch:
            return known
        return self._enter(info, known)

    def _enter(self, info: CategoryInfo, known: Category | None) -> Category:
        self.changes += 1
        # Equal schemas stay the same object: events, filters and matchers compare them by identity first.
        schema = known.schema if known is not None else info.schema
        category = Category(info, schema)
        if known is not None and known.plan_json == info.plan:
            category._plan = known._plan
        others = [each for each in self._by_name.get(schema.name, ()) if each.schema.version != schema.version]
        self._by_name[schema.name] = sorted([*others, category], key=lambda each: each.schema.version)
        self._by_number[info.number] = category
        return category

    def remove(self, number: int) -> Category | None:
        """A category is no more."""
        self.changes += 1
        category = self._by_number.pop(number, None)
        if category is not None:
            rest = [each for each in self._by_name.pop(category.schema.name, ()) if each is not category]
            if rest:
                self._by_name[category.schema.name] = rest
        return category

    def get(self, name: str) -> Category | None:
        """The category of that name, of the latest version, if known."""
        versions = self._by_name.get(name)
        return None if versions is None else versions[-1]

    def versions(self, name: str) -> list[Category]:
        """The categories of all versions of a schema, oldest first."""
        return list(self._by_name.get(name, ()))

    def of(self, schema: Schema) -> Category | None:
        """The category of just this schema, if known."""
        for each in self._by_name.get(schema.name, ()):
            if each.schema is schema or each.schema == schema:
                return each
        return None

    def numbered(self, number: int) -> Category | None:
        """The category of that number, if known."""
        return self._by_number.get(number)

    def __getitem__(self, name: str) -> Category:
        found = self.get(name)
        if found is None:
            raise SchemaError(expected=f"a known schema ({', '.join(self._by_name) or 'none yet'})", got=name)
        return found

    def known(self, schema: Schema) -> Category:
        """The category of just this schema; `SchemaError` if there is none."""
        found = self.of(schema)
        if found is None:
            latest = self[schema.name].schema
            raise SchemaError(
                f"Expected an event or filter of {latest.name} version {latest.version} as registered, got one "
                f"of version {schema.version} or with other attributes"
            )
        return found

    def __iter__(self) -> Iterator[Category]:
        return iter(self._by_number.values())

    def schemas(self) -> dict[str, Schema]:
        """Every known schema by its name, in its latest version."""
        return {name: versions[-1].schema for name, versions in self._by_name.items()}
