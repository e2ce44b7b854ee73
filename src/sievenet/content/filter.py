"""Filters: boxes, and subscriptions: unions of boxes.

A filter constrains each attribute by a set of values (`ValueSet`); an attribute that
it does not name is unconstrained.  The *domain* of an attribute is what the schema
says, or, for a schemaless filter, every value and being absent too.  Canonical form:

* each constraint is cut to its domain and in the domain's canonical form;
* a constraint that is the whole domain is left out;
* a filter with an empty constraint is the one empty filter of its schema.

Hence equal filters are equal values, and the algebra is attribute by attribute:

    covers      every constraint of mine covers the other's (or its domain)
    overlaps    all pairs of constraints overlap
    intersect   intersect all pairs
    merge       unite all pairs; *perfect* if nothing is added: one covers the other,
                or they differ in a single attribute
    minus       what remains, as disjoint boxes: peel one attribute after the other

A subscription is an ``or`` of filters.  Covering between unions of boxes is exact: what
`minus` leaves must be empty.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from sievenet.content.antichain import uncovered
from sievenet.content.schema import Schema, check_string
from sievenet.content.valueset import ALL, EMPTY, NUMBER, STRING, Value, ValueSet, point
from sievenet.errors import FilterError, SchemaError

__all__ = ["Filter", "Matchable", "Merge", "Subscription"]


class Matchable(Protocol):
    """What a filter can be asked about: an `Event` or a `Record`."""

    def get(self, name: str, /) -> Value | None:
        """The value of an attribute, ``None`` if absent."""


class Merge(NamedTuple):
    """The smallest filter that covers two others, and whether it covers nothing else."""

    filter: Filter
    perfect: bool


@dataclass(frozen=True, slots=True, init=False)
class Filter:
    """A conjunction of constraints, one per attribute.  ``schema`` is ``None`` if schemaless."""

    schema: Schema | None
    #: In the schema's order (by name if schemaless); none is empty, none is its whole domain.
    constraints: dict[str, ValueSet]
    #: True if nothing can match; then there are no constraints.
    empty: bool
    #: Made when first asked for: most filters are intermediate results.
    _hash: int | None

    def __init__(self, schema: Schema | None = None, constraints: Mapping[str, ValueSet] | None = None) -> None:
        kept: dict[str, ValueSet] = {}
        empty = False
        for name in _ordered(schema, constraints or {}):
            values = constraints[name]  # type: ignore[index]
            if schema is not None:
                attribute = schema.attributes[schema.positions[name]]
                values, domain = attribute.canonical(values), attribute.domain
            else:
                check_string(name, "attribute name", FilterError)
                domain = ALL
            if not values:
                kept, empty = {}, True
                break
            if values != domain:
                kept[name] = values
        self._set(schema, kept, empty)

    def _set(self, schema: Schema | None, constraints: dict[str, ValueSet], empty: bool) -> None:
        _set_schema(self, schema)
        _set_constraints(self, constraints)
        _set_empty(self, empty)
        _set_hash(self, None)

    @classmethod
    def _canonical(cls, schema: Schema | None, constraints: dict[str, ValueSet], empty: bool = False) -> Filter:
        """A filter from constraints that are canonical already."""
        new = object.__new__(cls)
        new._set(schema, {} if empty else constraints, empty)
        return new

    @classmethod
    def nothing(cls, schema: Schema | None = None) -> Filter:
        """The filter that no event matches."""
        return cls._canonical(schema, {}, empty=True)

    def __hash__(self) -> int:
        found = self._hash
        if found is None:
            name = None if self.schema is None else self.schema.name
            found = hash((name, self.empty, *((n, v.cuts) for n, v in self.constraints.items())))
            _set_hash(self, found)
        return found

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Filter):
            return NotImplemented
        return (
            self.empty == other.empty
            and self.constraints == other.constraints
            and (self.schema is other.schema or self.schema == other.schema)
        )

    # -- asking ---------------------------------------------------------------------------

    def __getitem__(self, name: str) -> ValueSet:
        """The values this filter admits for an attribute: the domain if unconstrained."""
        found = self.constraints.get(name)
        if found is not None:
            return found
        return EMPTY if self.empty else self.domain(name)

    def domain(self, name: str) -> ValueSet:
        """Every value the attribute could have."""
        return ALL if self.schema is None else self.schema[name].domain

    def matches(self, event: Matchable) -> bool:
        """Whether an event (or record) satisfies every constraint."""
        if self.empty:
            return False
        schema = self.schema
        if schema is not None and getattr(event, "schema", None) is not schema:
            self._check_event(event)
        # `value in values`, written out for one stretch: single events come here one by one.
        for name, values in self.constraints.items():
            value = event.get(name)
            kind = type(value)
            if kind is float or kind is int:
                there: tuple[object, ...] = (NUMBER, value)
            else:
                there = (STRING, value) if kind is str else point(value)
            cuts = values.cuts
            if len(cuts) == 2:
                if not cuts[0] <= there < cuts[1]:
                    return False
            elif not bisect_right(cuts, there) & 1:
                return False
        return True

    def _check_event(self, event: Matchable) -> None:
        theirs = getattr(event, "schema", None)
        if theirs != self.schema:
            assert self.schema is not None
            got = f"{theirs.name} version {theirs.version}" if theirs is not None else "a schemaless record"
            raise SchemaError(f"Expected an event of {self.schema.name} version {self.schema.version}, got {got}")

    def covers(self, other: Filter) -> bool:
        """Whether every event that ``other`` matches, this filter matches too."""
        if self.schema is not other.schema:
            self._check(other)
        if other.empty or self.empty:
            return other.empty
        theirs = other.constraints
        for name, values in self.constraints.items():
            found = theirs.get(name)
            if found is None or not values.covers(found):
                return False
        return True

    def overlaps(self, other: Filter) -> bool:
        """Whether some event matches both."""
        if self.schema is not other.schema:
            self._check(other)
        if self.empty or other.empty:
            return False
        theirs = other.constraints
        for name, values in self.constraints.items():
            found = theirs.get(name)
            if found is not None and not values.overlaps(found):
                return False
        return True

    # -- combining ------------------------------------------------------------------------

    def intersect(self, other: Filter) -> Filter:
        """What both match."""
        self._check(other)
        if self.empty or other.empty:
            return Filter.nothing(self.schema)
        merged = dict(self.constraints)
        for name, values in other.constraints.items():
            merged[name] = both = merged[name] & values if name in merged else values
            if not both:
                return Filter.nothing(self.schema)
        if len(merged) != len(self.constraints):
            merged = {name: merged[name] for name in _ordered(self.schema, merged)}
        return Filter._canonical(self.schema, merged)

    def merge(self, other: Filter) -> Merge:
        """The smallest filter that covers both, and whether it is exactly their union."""
        self._check(other)
        if self.covers(other):
            return Merge(self, True)
        if other.covers(self):
            return Merge(other, True)
        mine, theirs = self.constraints, other.constraints
        united: dict[str, ValueSet] = {}
        differing = len(mine.keys() ^ theirs.keys())
        for name, values in mine.items():
            found = theirs.get(name)
            if found == values:
                united[name] = values
            elif found is not None:
                differing += 1
                both, whole = self._fitted(name, values | found)
                if not whole:
                    united[name] = both
        return Merge(Filter._canonical(self.schema, united), differing <= 1)

    def minus(self, other: Filter) -> list[Filter]:
        """What this matches and ``other`` does not, as disjoint filters."""
        if not self.overlaps(other):
            return [] if self.empty else [self]
        rest: list[Filter] = []
        kept = self
        for name, values in other.constraints.items():
            outside = self[name] - values
            if outside:
                rest.append(kept._with(name, outside))
            kept = kept._with(name, self[name] & values)
        return rest

    def _fitted(self, name: str, values: ValueSet) -> tuple[ValueSet, bool]:
        """A set in the canonical form of an attribute's domain, and whether it is all of it."""
        if self.schema is None:
            return values, values == ALL
        attribute = self.schema[name]
        values = attribute.canonical(values)
        return values, values == attribute.domain

    def _with(self, name: str, values: ValueSet) -> Filter:
        """The same filter with one constraint replaced by another, which is not empty."""
        values, whole = self._fitted(name, values)
        changed = dict(self.constraints)
        if whole:
            changed.pop(name, None)
        elif name in changed:
            changed[name] = values
        else:
            changed[name] = values
            changed = {each: changed[each] for each in _ordered(self.schema, changed)}
        return Filter._canonical(self.schema, changed)

    def _check(self, other: Filter) -> None:
        if self.schema != other.schema:
            raise FilterError(expected=f"a filter of {_category(self.schema)}", got=f"`{_category(other.schema)}`")

    def __str__(self) -> str:
        from sievenet.content.text import filter_text

        return filter_text(self)

    def __repr__(self) -> str:
        return f"<Filter {self}>"


_set_schema: Final = vars(Filter)["schema"].__set__
_set_constraints: Final = vars(Filter)["constraints"].__set__
_set_empty: Final = vars(Filter)["empty"].__set__
_set_hash: Final = vars(Filter)["_hash"].__set__


@dataclass(frozen=True, slots=True, init=False)
class Subscription:
    """An ``or`` of filters of one schema: none empty, none covered by another, in a fixed order.

    Equality is that of this form.  Unions that consist of different boxes can still be the
    same set: `equivalent` tells.
    """

    schema: Schema | None
    filters: tuple[Filter, ...]

    def __init__(self, filters: Iterable[Filter], schema: Schema | None = None) -> None:
        every = list(dict.fromkeys(filters))
        schema = every[0].schema if every else schema
        for candidate in every:
            if candidate.schema is not schema:
                every[0]._check(candidate)
        kept = [each for each in every if not each.empty]
        if len(kept) > 1:
            kept = uncovered(kept)
            kept.sort(key=_sort_key)
        object.__setattr__(self, "schema", schema)
        object.__setattr__(self, "filters", tuple(kept))

    def __iter__(self) -> Iterator[Filter]:
        return iter(self.filters)

    def __len__(self) -> int:
        return len(self.filters)

    def matches(self, event: Matchable) -> bool:
        """Whether some filter matches the event."""
        return any(f.matches(event) for f in self.filters)

    def covers(self, other: Subscription) -> bool:
        """Whether every event that ``other`` matches, this matches too (exact for unions)."""
        self._check(other)
        return all(self._holds(f) for f in other.filters)

    def _holds(self, wanted: Filter) -> bool:
        """Whether the filters together cover one.

        Depth first: a piece that nothing covers ends the search at once.  Deciding this is
        co-NP-hard in the number of attributes, but pieces rarely outnumber the filters.
        """
        pieces = [(wanted, list(self.filters))]
        while pieces:
            piece, candidates = pieces.pop()
            near = [mine for mine in candidates if mine.overlaps(piece)]
            if not near:
                return False
            if not any(mine.covers(piece) for mine in near):
                first, *rest = near
                pieces += ((part, rest) for part in piece.minus(first))
        return True

    def _check(self, other: Subscription) -> None:
        if self.schema is not other.schema and self.schema != other.schema:
            raise FilterError(
                expected=f"a subscription of {_category(self.schema)}", got=f"`{_category(other.schema)}`"
            )

    def equivalent(self, other: Subscription) -> bool:
        """Whether both match the same events."""
        return self.covers(other) and other.covers(self)

    def overlaps(self, other: Subscription) -> bool:
        """Whether some event matches both."""
        self._check(other)
        return any(a.overlaps(b) for a in self.filters for b in other.filters)

    def intersect(self, other: Subscription) -> Subscription:
        """What both match."""
        self._check(other)
        return Subscription((a.intersect(b) for a in self.filters for b in other.filters), self.schema)

    def union(self, other: Subscription) -> Subscription:
        """What either matches."""
        self._check(other)
        return Subscription((*self.filters, *other.filters), self.schema)

    def __str__(self) -> str:
        from sievenet.content.text import subscription_text

        return subscription_text(self)

    def __repr__(self) -> str:
        return f"<Subscription {self}>"


def _ordered(schema: Schema | None, constraints: Mapping[str, ValueSet]) -> list[str]:
    if schema is None:
        return sorted(constraints)
    try:
        return sorted(constraints, key=schema.positions.__getitem__)
    except KeyError as unknown:
        schema[unknown.args[0]]  # says what there is instead
        raise


def _sort_key(each: Filter) -> tuple[tuple[str, tuple[object, ...]], ...]:
    return tuple((name, values.cuts) for name, values in each.constraints.items())


def _category(schema: Schema | None) -> str:
    return "a schemaless kind" if schema is None else f"{schema.name} version {schema.version}"
