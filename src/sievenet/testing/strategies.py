"""Hypothesis strategies for content: schemas, values, filters, events.

    from sievenet.testing import strategies

    @given(strategies.schemas().flatmap(strategies.filters))
    def test_text_parses_back(each): ...

``small=True`` draws from a few values per attribute, so that filters meet, nest and touch often and
every point of the event space can be listed: `points` does, and is what brute force goes through.
It is exact for sets of small values: floats among them are whole, so halves tell the open ends
apart, and every stretch of strings starts with a string that `points` has.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from sievenet.content import (
    MAX_ATTRIBUTES,
    NUMBERS,
    PRESENT,
    Attribute,
    Event,
    EventBatch,
    Filter,
    Record,
    Schema,
    Subscription,
    Value,
    ValueSet,
)
from sievenet.content.number import float_at, float_key
from sievenet.content.schema import RESERVED
from sievenet.content.valueset import ABSENT, BOOLS, STRINGS, kind_of, point

__all__ = [
    "attributes",
    "batches",
    "events",
    "filters",
    "names",
    "near_floats",
    "payloads",
    "points",
    "record_points",
    "records",
    "schemas",
    "subscriptions",
    "value_sets",
    "values",
]

#: The strings of small domains, and the first string of every stretch they can bound.
SMALL_STRINGS: Final = ("", "a", "ab", "b")
SMALL_STRING_POINTS: Final = tuple(sorted({p for s in SMALL_STRINGS for p in (s, s + "\0")} | {"b", "ac", "c"}))
SMALL_NUMBERS: Final = (0, 1, 2, 3)
_INT64: Final = (1 << 63) - 1
_NAMES: Final = ("a", "b", "c", "d")

_text = st.text(max_size=12)


def names() -> SearchStrategy[str]:
    """Names that schemas and attributes may have."""
    return st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_.-]{0,9}\Z").filter(lambda name: name not in RESERVED)


def payloads() -> SearchStrategy[bytes]:
    """Opaque bytes, often none."""
    return st.one_of(st.just(b""), st.binary(max_size=40))


@st.composite
def attributes(draw: DrawFn, name: str | None = None, small: bool = False) -> Attribute:
    """An attribute of any type and domain."""
    name = draw(names()) if name is None else name
    kind = draw(st.sampled_from(("int", "float", "bool", "enum", "str")))
    match kind:
        case "int" if small:
            return Attribute(name, "int", lo=SMALL_NUMBERS[0], hi=SMALL_NUMBERS[-1])
        case "float" if small:
            return Attribute(name, "float", lo=SMALL_NUMBERS[0], hi=SMALL_NUMBERS[-1])
        case "int":
            lo, hi = sorted(draw(st.tuples(*[st.integers(-_INT64, _INT64)] * 2)))
            return Attribute(name, "int", lo=lo, hi=hi)
        case "float":
            lo, hi = sorted(draw(st.tuples(*[st.floats(-1e300, 1e300)] * 2)))
            return Attribute(name, "float", lo=lo, hi=hi)
        case "bool":
            return Attribute(name, "bool")
        case "enum":
            members = st.sampled_from(SMALL_STRINGS) if small else _text
            found = draw(st.lists(members, min_size=1, max_size=6, unique=True))
            return Attribute(name, "str", values=tuple(found))
        case _:
            return Attribute(name, "str")


@st.composite
def schemas(draw: DrawFn, max_attributes: int = 4, small: bool = False) -> Schema:
    """A schema; a small one has at most four attributes, called a to d."""
    count = draw(st.integers(1, min(max_attributes, len(_NAMES) if small else MAX_ATTRIBUTES)))
    chosen = _NAMES[:count] if small else draw(st.lists(names(), min_size=count, max_size=count, unique=True))
    name = "small" if small else draw(names())
    version = 1 if small else draw(st.integers(1, 65535))
    return Schema(name, tuple(draw(attributes(n, small)) for n in chosen), version)


def values(attribute: Attribute | None = None, small: bool = False) -> SearchStrategy[Value]:
    """Values of an attribute's domain; without an attribute, of any type."""
    if attribute is None:
        if small:
            return st.sampled_from((False, True, *SMALL_NUMBERS, *SMALL_STRINGS))
        whole = st.integers(-(1 << 63), _INT64)
        return st.one_of(st.booleans(), whole, st.floats(allow_nan=False, allow_infinity=False), _text)
    match attribute.type:
        case "bool":
            return st.booleans()
        case "str" if attribute.values is not None:
            return st.sampled_from(attribute.values)
        case "str":
            return st.sampled_from(SMALL_STRINGS) if small else _text
        case _ if small:
            return st.sampled_from(SMALL_NUMBERS)
        case "int":
            return st.integers(int(attribute.lo or 0), int(attribute.hi or 0))
        case _:
            return near_floats(float(attribute.lo or 0), float(attribute.hi or 0))


def near_floats(lo: float, hi: float) -> SearchStrategy[float]:
    """Floats in a range that lie close together, down to neighbours: where open and closed ends are told apart."""
    anchors = [a for a in (lo, hi, 0.0, 1.0, 0.1, 500.0, float(1 << 53), -1.0) if lo <= a <= hi]
    keys = st.sampled_from(anchors).flatmap(lambda a: st.integers(float_key(a) - 3, float_key(a) + 3))
    close = keys.filter(lambda k: float_key(lo) <= k <= float_key(hi)).map(float_at)
    return st.one_of(close, close, st.floats(lo, hi).map(lambda x: x + 0.0))


@st.composite
def value_sets(draw: DrawFn, attribute: Attribute | None = None, small: bool = False) -> ValueSet:
    """Sets of an attribute's values (raw, not cut to the domain); schemaless ones may hold absent."""
    one = values(attribute, small)
    pieces: list[ValueSet] = []
    for _ in range(draw(st.integers(0, 3))):
        value = draw(one)
        kind = draw(st.sampled_from(("point", "up", "down", "between", "prefix", "whole")))
        is_open, other_open = draw(st.booleans()), draw(st.booleans())
        if kind == "up":
            pieces.append(ValueSet.interval(value, None, open_lo=is_open))
        elif kind == "down":
            pieces.append(ValueSet.interval(None, value, open_hi=is_open))
        elif kind == "between":
            other = draw(one)
            lo: Value
            hi: Value | None
            lo, hi = (value, other) if point(value) <= point(other) else (other, value)
            if kind_of(lo) != kind_of(hi):  # two types only meet without a schema
                hi = None
            pieces.append(ValueSet.interval(lo, hi, open_lo=is_open, open_hi=other_open))
        elif kind == "prefix" and isinstance(value, str):
            pieces.append(ValueSet.prefix(value))
        elif kind == "whole" and attribute is None:
            pieces.append(draw(st.sampled_from((ABSENT, BOOLS, NUMBERS, STRINGS, PRESENT))))
        else:
            pieces.append(ValueSet.of(value))
    found = ValueSet.union_of(pieces)
    return ~found if draw(st.booleans()) else found


@st.composite
def filters(draw: DrawFn, schema: Schema | None = None, small: bool = False) -> Filter:
    """Filters of a schema, or schemaless ones; some match everything or nothing."""
    if schema is None:
        named = st.sampled_from(_NAMES[:3]) if small else st.text(max_size=6)
        chosen = draw(st.lists(named, max_size=3, unique=True))
        return Filter(None, {name: draw(value_sets(None, small)) for name in chosen})
    taken = [a for a in schema.attributes if draw(st.integers(0, 3))]
    return Filter(schema, {a.name: draw(value_sets(a, small)) for a in taken})


@st.composite
def subscriptions(draw: DrawFn, schema: Schema | None = None, small: bool = False) -> Subscription:
    """Up to three filters in one."""
    return Subscription(draw(st.lists(filters(schema, small), max_size=3)), schema)


@st.composite
def events(draw: DrawFn, schema: Schema, small: bool = False) -> Event:
    """Events of a schema, with a payload now and then."""
    return Event(schema, tuple(draw(values(a, small)) for a in schema.attributes), draw(payloads()))


@st.composite
def records(draw: DrawFn, small: bool = False) -> Record:
    """Schemaless records."""
    named = st.sampled_from(_NAMES[:3]) if small else st.text(max_size=6)
    return Record(draw(st.dictionaries(named, values(None, small), max_size=4)), draw(payloads()))


@st.composite
def batches(draw: DrawFn, schema: Schema, max_size: int = 20) -> EventBatch:
    """Batches of events of a schema, also empty ones."""
    return EventBatch.from_events(schema, draw(st.lists(events(schema), max_size=max_size)))


# -- brute force ------------------------------------------------------------------------------


def points(schema: Schema) -> Iterator[Event]:
    """An event in every region that filters of small values can tell apart."""
    return (Event(schema, row) for row in itertools.product(*map(_axis, schema.attributes)))


def record_points(named: tuple[str, ...]) -> Iterator[Record]:
    """A record in every region that schemaless filters of small values on these names can tell apart."""
    axis = (None, False, True, *_halves(-1, 2 * SMALL_NUMBERS[-1] + 1), *SMALL_STRING_POINTS)
    for row in itertools.product(axis, repeat=len(named)):
        yield Record({name: value for name, value in zip(named, row, strict=True) if value is not None})


def _axis(attribute: Attribute) -> tuple[Value, ...]:
    match attribute.type:
        case "bool":
            return (False, True)
        case "int":
            return SMALL_NUMBERS
        case "float":
            return _halves(0, 2 * SMALL_NUMBERS[-1])
        case _:
            return attribute.values or SMALL_STRING_POINTS


def _halves(first: int, last: int) -> tuple[float, ...]:
    return tuple(i / 2 for i in range(first, last + 1))
