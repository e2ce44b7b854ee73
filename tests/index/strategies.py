"""Schemas, events, filters and plans of every kind, for property tests."""

import string

import msgspec
import numpy as np
from hypothesis import strategies as st

from sievenet.content import Attribute, EventBatch, Filter, Schema, ValueSet
from sievenet.index import Plan
from sievenet.index.axis import line_range
from sievenet.testing.strategies import near_floats
from sievenet.tuning.subspace import subspace_plan

HUGE = (1 << 63) - 1


@st.composite
def attributes(draw, name):
    kind = draw(st.sampled_from(["int", "int", "float", "enum", "str", "bool", "huge", "one"]))
    if kind == "int":
        lo = draw(st.integers(-50, 50))
        return Attribute(name, "int", lo=lo, hi=lo + draw(st.integers(0, 200)))
    if kind == "huge":
        return Attribute(name, "int", lo=-HUGE, hi=HUGE - draw(st.integers(0, 3)))
    if kind == "one":
        return draw(st.sampled_from([Attribute(name, "int", lo=7, hi=7), Attribute(name, "float", lo=0.1, hi=0.1)]))
    if kind == "float":
        lo = draw(st.floats(-1e6, 1e6))
        return Attribute(name, "float", lo=lo, hi=lo + draw(st.sampled_from([0.1, 1.0, 1000.0, 1e300, 5e-324])))
    if kind == "enum":
        values = draw(st.sets(st.text(string.ascii_lowercase, max_size=2), min_size=1, max_size=9))
        return Attribute(name, "str", values=tuple(values))
    return Attribute(name, kind)


@st.composite
def schemas(draw, max_attributes=4):
    count = draw(st.integers(1, max_attributes))
    return Schema("s", tuple(draw(attributes(f"a{i}")) for i in range(count)))


texts = st.text("ab\0", max_size=3)


def values(attribute):
    if attribute.type == "bool":
        return st.booleans()
    if attribute.type == "str":
        return texts if attribute.values is None else st.sampled_from(attribute.values)
    if attribute.type == "int":
        return st.integers(attribute.lo, attribute.hi)
    return near_floats(attribute.lo, attribute.hi)


@st.composite
def value_sets(draw, attribute):
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        a, b = draw(values(attribute)), draw(values(attribute))
        if draw(st.booleans()):
            parts.append(ValueSet.of(a))
        elif attribute.type == "bool":
            parts.append(ValueSet.of(a, b))
        elif attribute.type == "str" and draw(st.booleans()):
            parts.append(ValueSet.prefix(a))
        else:
            lo, hi = min(a, b), max(a, b)
            parts.append(ValueSet.interval(lo, hi, open_lo=draw(st.booleans()), open_hi=draw(st.booleans())))
    union = ValueSet.union_of(parts)
    return ~union if draw(st.integers(0, 3)) == 0 else union


@st.composite
def filters(draw, schema):
    chosen = [a for a in schema.attributes if draw(st.booleans())]
    return Filter(schema, {a.name: draw(value_sets(a)) for a in chosen})


@st.composite
def events(draw, schema):
    return schema.event_of({a.name: draw(values(a)) for a in schema.attributes})


@st.composite
def mbrs(draw, schema):
    area = {}
    for attribute in schema.attributes:
        if (attribute.type == "str" and attribute.values is None) or draw(st.booleans()):
            continue
        a, b = draw(values(attribute)), draw(values(attribute))
        area[attribute.name] = (min(a, b), max(a, b))
    return area


@st.composite
def split_points(draw, schema):
    found = {}
    for attribute in schema.attributes:
        if (attribute.type == "str" and attribute.values is None) or draw(st.booleans()):
            continue
        lo, hi = line_range(attribute)
        place = st.floats(lo, hi) if attribute.type == "float" else st.integers(lo, hi)
        count = draw(st.sampled_from([1, 3, 7]))
        found[attribute.name] = sorted(draw(st.lists(place, min_size=count, max_size=count)))
    return found


@st.composite
def plans(draw, schema):
    """Regular, selective and adaptive plans, with one code per event or several, and plans of subspaces."""
    if draw(st.integers(0, 3)) == 0:
        return draw(subspace_plans(schema))
    return msgspec.structs.replace(draw(combined_plans(schema)), once=draw(st.booleans()))


@st.composite
def subspace_plans(draw, schema):
    batch = EventBatch.from_events(schema, draw(st.lists(events(schema), max_size=8)))
    weights = np.array(draw(st.lists(st.integers(0, 3), min_size=len(batch), max_size=len(batch))), np.int64)
    names = [a.name for a in schema.attributes if draw(st.integers(0, 4))]
    bits = draw(st.integers(3, 40) | st.just(112))
    kind = draw(st.sampled_from(["dz", "cells"]))
    levels = draw(st.integers(0, min(5, bits)))
    return subspace_plan(batch, weights, bits, levels, draw(st.permutations(names)), kind, inner=draw(st.booleans()))


@st.composite
def combined_plans(draw, schema):
    names = [a.name for a in schema.attributes if draw(st.integers(0, 4))]
    areas = draw(st.none() | st.lists(mbrs(schema), min_size=1, max_size=4))
    count = 1 if areas is None else len(areas)
    splits = draw(st.none() | st.lists(split_points(schema), min_size=count, max_size=count))
    return Plan.combined(
        schema,
        draw(st.integers(3, 40) | st.just(112)),
        mbrs=areas,
        splits=splits,
        dimensions=draw(st.permutations(names)),
        kind=draw(st.sampled_from(["dz", "cells"])),
        rest=areas is not None and draw(st.booleans()),
        gray=draw(st.sampled_from([None, True, False])),
    )
